"""The capacity against which the risk plugins hold measured load, and the Beta distribution."""

import math
from typing import Final

import numpy as np

from stellwerk.plugin_api import NodeView
from stellwerk_plugins.load.node_usage import FloatColumn

_FEW: Final = 24
"""Rows below which computing them one by one costs less."""
_STEPS_AT_ONCE: Final = 8
_ENOUGH: Final = 3e-15
_MAX_STEPS: Final = 4000
"""Steps of the continued fraction. It has converged long before, except at extreme arguments."""
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


def beta_probabilities(alpha: FloatColumn, beta: FloatColumn, x: FloatColumn) -> FloatColumn:
    """(n,) float64, `beta_probability` of each."""
    if len(x) <= _FEW:
        each = zip(alpha.tolist(), beta.tolist(), x.tolist(), strict=True)
        return np.array([beta_probability(*one) for one in each], np.float64)
    found: FloatColumn = np.where(x >= 1, 1.0, 0.0)
    found[~((alpha > 0) & (beta > 0))] = np.nan
    inside = (x > 0) & (x < 1) & (alpha > 0) & (beta > 0)
    found[inside & (np.isinf(alpha) | np.isinf(beta))] = np.nan
    at = np.flatnonzero(inside & np.isfinite(alpha) & np.isfinite(beta))
    a, b, y = alpha[at], beta[at], x[at]
    log_front = _log_gamma(a + b) - _log_gamma(a) - _log_gamma(b) + a * np.log(y) + b * np.log1p(-y)
    with np.errstate(over="ignore", invalid="ignore"):
        front = np.where(log_front < _LARGEST_EXPONENT, np.exp(log_front), np.inf)
        lower = y < (a + 1) / (a + b + 2)
        first, second = np.where(lower, a, b), np.where(lower, b, a)
        part = front * _fractions(first, second, np.where(lower, y, 1 - y)) / first
    found[at] = np.where(lower, part, 1.0 - part)
    return found


def _log_gamma(values: FloatColumn) -> FloatColumn:
    return np.array([math.lgamma(value) for value in values.tolist()], np.float64)


def _fractions(alpha: FloatColumn, beta: FloatColumn, x: FloatColumn) -> FloatColumn:
    """(n,) float64, `_fraction` of each; those that have settled are left out of further steps."""
    found = np.ones(len(x), np.float64)
    at = np.arange(len(x))
    c, d = np.ones(len(x), np.float64), 1 / _nonzero(1.0 - (alpha + beta) * x / (alpha + 1))
    result = d.copy()
    for step in range(1, _MAX_STEPS):
        twice = 2 * step
        factor = np.ones(0, np.float64)
        for term in (
            step * (beta - step) * x / ((alpha - 1 + twice) * (alpha + twice)),
            -(alpha + step) * (alpha + beta + step) * x / ((alpha + twice) * (alpha + 1 + twice)),
        ):
            d = 1 / _nonzero(1 + term * d)
            c = _nonzero(1 + term / c)
            factor = c * d
            result = result * factor
        if step % _STEPS_AT_ONCE == 0 or step == _MAX_STEPS - 1:
            found[at] = result
            open_ = np.abs(factor - 1) >= _ENOUGH
            if not open_.any():
                break
            at, alpha, beta, x = at[open_], alpha[open_], beta[open_], x[open_]
            c, d, result = c[open_], d[open_], result[open_]
    return found


def _nonzero(values: FloatColumn) -> FloatColumn:
    values[np.abs(values) <= _TINY] = _TINY
    return values


def _fraction(alpha: float, beta: float, x: float) -> float:
    """Lentz's evaluation of the continued fraction."""
    c, d = 1.0, 1.0 - (alpha + beta) * x / (alpha + 1)
    d = 1 / (d if abs(d) > _TINY else _TINY)
    result = d
    for step in range(1, _MAX_STEPS):
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
