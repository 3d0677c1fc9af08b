"""The syntax of load profiles."""

import pytest

from stellwerk.errors import ConfigurationError
from stellwerk_cluster.hollow.lifecycle import Lifecycles, Step, parse_load, parse_stages
from tests.support.node_driver import hollow_pod

WRONG = ["8=100%", "08:00=100", "24:00=1%", "08:60=1%", "08:00=-1%", "a", "08:00=1%,08:00=2%"]


def test_steps_are_sorted() -> None:
    assert parse_load("20:30=30%,08:00=100%") == (Step(480, 100), Step(1230, 30))
    assert parse_load(" ") == ()


@pytest.mark.parametrize("text", WRONG)
def test_a_pod_whose_load_cannot_be_read_has_none(text: str) -> None:
    pod = hollow_pod("p", annotations={"usage": "cpu=1", "load": text})
    lifecycle = Lifecycles().of(pod)
    assert (lifecycle.usage, lifecycle.load) == ("cpu=1", "")


@pytest.mark.parametrize("text", WRONG)
def test_a_file_whose_load_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"--stages f: stages\[0\].load: "):
        parse_stages({"stages": [{"load": text}]}, "f")
