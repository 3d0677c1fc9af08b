"""The Beta distribution's function, against values that are known."""

import math

import numpy as np
import pytest

from stellwerk_plugins.load.utilisation import beta_probabilities, beta_probability


@pytest.mark.parametrize(
    ("alpha", "beta", "x", "expected"),
    [
        pytest.param(1, 1, 0.3, 0.3, id="uniform"),
        pytest.param(2, 1, 0.3, 0.09, id="x squared"),
        pytest.param(1, 3, 0.3, 1 - 0.7**3, id="one less a cube"),
        pytest.param(2, 2, 0.3, 0.3**2 * (3 - 0.6), id="symmetric"),
        pytest.param(0.5, 0.5, 0.3, 2 / math.pi * math.asin(math.sqrt(0.3)), id="arcsine"),
        pytest.param(5000, 5000, 0.5, 0.5, id="narrow, at the mean"),
        pytest.param(2, 3, 0, 0, id="nothing is below 0"),
        pytest.param(2, 3, 1, 1, id="all is below 1"),
    ],
)
def test_known_values(alpha: float, beta: float, x: float, expected: float) -> None:
    assert beta_probability(alpha, beta, x) == pytest.approx(expected, abs=1e-10)


@pytest.mark.parametrize("x", [0.05, 0.31, 0.5, 0.77, 0.99])
def test_both_sides_add_up(x: float) -> None:
    whole = beta_probability(3.7, 0.9, x) + beta_probability(0.9, 3.7, 1 - x)
    assert whole == pytest.approx(1, abs=1e-12)


def test_without_a_distribution_there_is_no_number() -> None:
    assert math.isnan(beta_probability(0, 1, 0.5))
    assert math.isnan(beta_probability(math.inf, math.inf, 0.5))


def test_many_at_once_are_each_as_one_alone() -> None:
    shapes = np.random.default_rng(7)
    alpha = np.append(10 ** shapes.uniform(-3, 5, 400), [0, np.inf, 2, 2, 1e-300, np.nan])
    beta = np.append(10 ** shapes.uniform(-3, 5, 400), [1, np.inf, 3, 3, 1, 1])
    x = np.append(shapes.uniform(0, 1, 400), [0.5, 0.5, 0, 1, 0.5, 0.5])
    near = slice(0, 200)
    x[near] = np.clip(
        alpha[near] / (alpha[near] + beta[near]) * shapes.uniform(0.9, 1.1, 200), 0, 1
    )
    each = [beta_probability(*one) for one in zip(*map(list, (alpha, beta, x)), strict=True)]
    assert beta_probabilities(alpha, beta, x) == pytest.approx(each, abs=1e-9, nan_ok=True)
    few = slice(0, 5)
    assert beta_probabilities(alpha[few], beta[few], x[few]) == pytest.approx(each[few])
