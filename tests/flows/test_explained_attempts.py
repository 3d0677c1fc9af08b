"""What an explanation says that a pod would get is what the scheduler then gives it."""

from collections.abc import Iterator

import pytest

from tests.flows.explained_attempts import Compared, compare
from tests.support.scripted_plugins import Script, installed


@pytest.fixture
def script() -> Iterator[Script]:
    with installed() as script:
        yield script


@pytest.mark.parametrize(
    "seeds",
    [
        pytest.param(range(8), id="eight clusters"),
        pytest.param(range(8, 48), id="40 clusters", marks=pytest.mark.long),
        pytest.param(
            range(500), id="500 clusters", marks=[pytest.mark.soak, pytest.mark.timeout(0)]
        ),
    ],
)
def test_what_is_said_before_an_attempt_comes_true(script: Script, seeds: range) -> None:
    compared = Compared()
    for seed in seeds:
        compare(seed, script, compared)
    assert not compared.wrong
    assert compared.placed > 30
    assert compared.refused > 30
    assert compared.tied
    assert compared.of_groups > 10
