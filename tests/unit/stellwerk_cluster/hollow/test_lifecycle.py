"""The syntax of load profiles."""

from datetime import UTC, datetime, timedelta

import pytest

from stellwerk_cluster.hollow.lifecycle import (
    Lifecycle,
    Lifecycles,
    parse_stages,
    seconds_to_change,
    usage_at,
)
from stellwerk_kube.errors import ConfigurationError
from tests.support.node_driver import ClusterDriver, hollow_pod

WRONG = ["8=100%", "08:00=100", "24:00=1%", "08:60=1%", "08:00=-1%", "a", "08:00=1%,08:00=2%"]


@pytest.mark.parametrize("text", WRONG)
def test_a_pod_whose_load_cannot_be_read_has_none(text: str) -> None:
    pod = hollow_pod("p", annotations={"usage": "cpu=1", "load": text})
    lifecycle = Lifecycles().of(pod)
    assert (lifecycle.usage, lifecycle.load) == ("cpu=1", "")


@pytest.mark.parametrize("text", WRONG)
def test_a_file_whose_load_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"--stages f: stages\[0\].load: "):
        parse_stages({"stages": [{"load": text}]}, "f")


DAY = Lifecycle(usage="cpu=1,memory=100,logs=100,pids=10", load="20:30=30%, 08:00=150%")


def at(hour: int, minute: int = 0, second: int = 0) -> datetime:
    return datetime(2026, 1, 1, hour, minute, second, tzinfo=UTC)


@pytest.mark.parametrize(
    ("moment", "cpu"),
    [
        pytest.param(at(0), 300, id="the step of yesterday"),
        pytest.param(at(7, 59, 59), 300, id="the last second before a step"),
        pytest.param(at(8), 1500, id="a step"),
        pytest.param(at(20, 30), 300, id="the next step"),
    ],
)
def test_a_step_holds_until_the_next_over_midnight(moment: datetime, cpu: int) -> None:
    assert usage_at(DAY, moment)["cpu"] == cpu


def test_what_is_stored_stays() -> None:
    assert usage_at(DAY, at(0)) == {"cpu": 300, "memory": 30, "logs": 100, "pids": 3}


def test_the_next_step_is_known() -> None:
    assert seconds_to_change(DAY, at(7, 59, 30)) == 30
    assert seconds_to_change(DAY, at(8)) == 12.5 * 3600
    assert seconds_to_change(DAY, at(22)) == 10 * 3600
    assert seconds_to_change(Lifecycle(load="08:00=50%"), at(0)) is None
    assert seconds_to_change(Lifecycle(), at(0)) is None


def test_a_load_that_rises_brings_a_node_under_pressure_and_its_fall_relieves_it() -> None:
    cluster = ClusterDriver(1, heartbeats=False)
    load = {"usage": "memory=31.95Gi", "load": "00:00=10%,01:00=100%"}
    cluster.create("pods", hollow_pod("p", annotations=load))
    cluster.advance(3590, step=5)
    assert cluster.condition("node-1", "MemoryPressure") == "False"
    cluster.advance(30)
    assert cluster.condition("node-1", "MemoryPressure") == "True"
    assert cluster.pod("p")["status"]["reason"] == "Evicted"
    assert cluster.clock.now() - at(1) < timedelta(seconds=30)
