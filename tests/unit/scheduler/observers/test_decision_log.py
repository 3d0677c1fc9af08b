"""What the log says of decisions: one line each at debug, every verdict at trace."""

import json
import logging
from typing import Any

import pytest
from typing_extensions import override

from stellwerk.logs import TRACE, JsonFormatter
from stellwerk_kube.clock import VirtualClock
from tests.support.builders import make_node, make_pod
from tests.support.in_process import InProcess, eventually, make_profile, quiet, running
from tests.support.skipped_time import run_skipping

DECISIONS = "stellwerk.scheduler.observers.decision_log"


class Lines(logging.Handler):
    """Formats each record where it is made, as the log itself does."""

    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(JsonFormatter())
        self.all: list[dict[str, Any]] = []

    @override
    def emit(self, record: logging.LogRecord) -> None:
        self.all.append(json.loads(self.format(record)))

    def about(self, pod: str, logger: str = DECISIONS) -> list[dict[str, Any]]:
        here = [line for line in self.all if line["logger"] == logger]
        return [line for line in here if line.get("pod") == f"default/{pod}"]


def played(level: int, flow: Any) -> Lines:
    """What was logged from that level on while pods were scheduled."""
    lines, logger = Lines(), logging.getLogger("stellwerk")
    before = logger.level
    logger.addHandler(lines)
    logger.setLevel(level)

    async def run(clock: VirtualClock) -> None:
        async with running(clock) as world:
            await flow(world)

    try:
        run_skipping(run)
    finally:
        logger.setLevel(before)
        logger.removeHandler(lines)
    return lines


async def one_fits_one_does_not(world: InProcess) -> None:
    world.apply(make_profile("default-scheduler"))
    world.apply(make_node("small", cpu="1"), make_node("large", cpu="4"))
    world.apply(make_pod("web", cpu="2"), make_pod("huge", cpu="64"))
    await eventually(lambda: world.node_of("web") and world.condition("huge"))
    await quiet()


def test_each_decision_is_one_line_at_debug() -> None:
    lines = played(logging.DEBUG, one_fits_one_does_not)
    (bound,) = lines.about("web")
    assert bound["message"] == "default/web goes to large (2 nodes evaluated, 1 feasible)"
    assert (bound["level"], bound["result"], bound["node"]) == ("debug", "scheduled", "large")
    (rejected,) = lines.about("huge")
    assert rejected["result"] == "unschedulable"
    assert "0/2 nodes are available: 2 Insufficient cpu" in rejected["message"]


def test_at_info_decisions_are_silent() -> None:
    assert played(logging.INFO, one_fits_one_does_not).about("web") == []


def test_trace_has_every_verdict_of_a_single_node_and_of_a_rejected_pod() -> None:
    lines = played(TRACE, one_fits_one_does_not)
    verdicts = [line["message"] for line in lines.about("web") if line["level"] == "trace"]
    assert verdicts == [
        (
            "default/web -> small: NodeResourcesFit says UnschedulableAndUnresolvable: "
            "Insufficient cpu"
        ),
        "default/web -> large: fits",
    ]
    rejected = [line for line in lines.about("huge") if line["level"] == "trace"]
    assert {line["node"]: line["plugin"] for line in rejected} == {
        "small": "NodeResourcesFit",
        "large": "NodeResourcesFit",
    }


def test_trace_has_scores_with_amounts_and_totals() -> None:
    async def flow(world: InProcess) -> None:
        world.apply(make_profile("default-scheduler"))
        world.apply(make_node("a", cpu="4"), make_node("b", cpu="4"), make_pod("web", cpu="2"))
        await eventually(lambda: world.node_of("web"))

    messages = [line["message"] for line in played(TRACE, flow).about("web")]
    assert any("NodeResourcesFit, requested nothing, allocatable cpu=4000," in m for m in messages)
    assert any(m.startswith("default/web: Host a => Score ") for m in messages)


def test_the_lines_of_an_attempt_share_its_id_and_others_have_none() -> None:
    lines = played(logging.DEBUG, one_fits_one_does_not)
    (decided,) = lines.about("web")
    bound = [line for line in lines.all if "default/web is bound to large" in line["message"]]
    assert [line["attempt"] for line in bound] == [decided["attempt"]]
    (other,) = lines.about("huge")
    assert other["attempt"] != decided["attempt"]
    moved = [line for line in lines.all if "web moved to active" in line["message"]]
    assert moved
    assert not any("attempt" in line for line in moved)


@pytest.mark.parametrize("level", [logging.DEBUG, TRACE], ids=["debug", "trace"])
def test_no_message_shows_an_object_of_python(level: int) -> None:
    for line in played(level, one_fits_one_does_not).all:
        assert " object at 0x" not in line["message"]
        assert "{'" not in line["message"]
        assert "PodInfo(" not in line["message"]
