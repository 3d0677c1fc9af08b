"""The capacity against which the risk plugins hold measured load, and the Beta distribution."""

import math
from typing import Final

import numpy as np

from stellwerk.plugin_api import NodeView
from stellwerk_plugins.load.node_usage import FloatColumn

_ENOUGH: Final = 3e-15
_MOST_STEPS: Final = 4000
_LARGEST_EXPONENT: Final = 700.0
_TINY: Final = 1e-300


def capacity_of(nodes: NodeView, resource: str) -> FloatColumn:
    """(n,) float64, what nodes offer: cpu in millicores, memory in MiB."""
    offered = nodes.allocatable(resource).astype(np.float64)
    capacity: FloatColumn = offered / 1024 / 1024 if resource == "memory" else offered
    return capacity


def beta_probability(alpha: float, beta: float, x: float) -> float:
    """The Beta distribution's function at x (the regularised incomplete beta function).

    By the continued fraction of Lentz, on the side of the mean where it converges.
    """
    if not (alpha > 0 and beta > 0):
        return math.nan
    if x <= 0 or x >= 1:
        return 0.0 if x <= 0 else 1.0
    if math.isinf(alpha) or math.isinf(beta):
        return math.nan
    log_front = (
        math.lgamma(alpha + beta)
        - math.lgamma(alpha)
        - math.lgamma(beta)
        + alpha * math.log(x)
        + beta * math.log1p(-x)
    )
    front = math.exp(log_front) if log_front < _LARGEST_EXPONENT else math.inf
    if x < (alpha + 1) / (alpha + beta + 2):
        return front * _fraction(alpha, beta, x) / alpha
    return 1.0 - front * _fraction(beta, alpha, 1 - x) / beta


def _fraction(alpha: float, beta: float, x: float) -> float:
    """Lentz's evaluation of the continued fraction."""
    c, d = 1.0, 1.0 - (alpha + beta) * x / (alpha + 1)
    d = 1 / (d if abs(d) > _TINY else _TINY)
    result = d
    for step in range(1, _MOST_STEPS):
        twice = 2 * step
        for term in (
            step * (beta - step) * x / ((alpha - 1 + twice) * (alpha + twice)),
            -(alpha + step) * (alpha + beta + step) * x / ((alpha + twice) * (alpha + 1 + twice)),
        ):
            d = 1 + term * d
            d = 1 / (d if abs(d) > _TINY else _TINY)
            c = 1 + term / c
            c = c if abs(c) > _TINY else _TINY
            factor = c * d
            result *= factor
        if abs(factor - 1) < _ENOUGH:
            break
    return result
