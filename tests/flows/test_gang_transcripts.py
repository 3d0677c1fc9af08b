"""Every recorded scenario of groups of pods, played to the whole operator.

The facts are those of the recordings' README. `DIFFERENT` lists what Stellwerk does otherwise on
purpose, with the number that it has in docs/differences.md; it must only shrink.
"""

from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from stellwerk_kube.json_values import JsonObject
from tests.flows.gang_comparison import GangComparison
from tests.support.recordings import scenario, scenarios, transcript_modules
from tests.support.scheduler_replay import play

SCENARIOS = scenarios("gang")

OWN_REASONS = frozenset({"WaitingForPods", "TooFewPods", "EnoughPods"})
"""Of conditions and events that say that a group waits for pods, where upstream is silent (13)."""

LIKE_OTHERS = {
    "gang-filter-rejects",
    "gang-fits",
    "gang-more-than-min",
    "gang-starved",
    "gang-too-big",
    "group-after-pods",
    "member-deleted-while-waiting",
    "no-nodes-and-deleting-member",
    "preemption-by-gang",
    "topology-one-zone",
}
"""Scenarios whose parts others have, too; `make test-all` plays them."""

TICKS = {"gang-bind-refused": 0.36}
"""Where in a second the clock ticked that ends backoffs, in scenarios that wait for it."""

_ONCE = "0: a claim that members share is written once"
_RESTS = "1: a group that cannot be placed rests, and its pods keep what was said of them"
_LOOPED = "1: only a loop tries pods between the creation of a node and the removal of its taint"
_AS_ONE = "5: the group preempts as one, and says so, also where only its pods have a priority"
_BY_NAME = "6: equal members are taken by name, so that another one is left over and then deleted"
_KEEPS_NODE = (
    "16: a member that could not be bound keeps its node while others of its gang are bound"
)
_SAYS_SO = "13: a group that lost pods says that it waits"
_NOMINATES = "2: each member is nominated to its node while victims end"
_ENDING = "19: the condition says that the group waits for its victims"
_WHOEVER = "24: the condition says what is so, whoever bound the members"

DIFFERENT: dict[str, dict[str, str]] = {
    "basic-policy": {"had untolerated taint(s)": _LOOPED},
    "dra-shared-claim": {
        "got allocated elsewhere in the meantime": _ONCE,
        '"kind": "ResourceClaim"': _ONCE,
    },
    "gang-bind-refused": {
        "pods two bound, one refused": _KEEPS_NODE,
        "request: missing": _KEEPS_NODE,
        "request: added": _KEEPS_NODE,
    },
    "gang-more-than-min": {"had untolerated taint(s)": _LOOPED},
    "gang-preempts-pod-by-pod": {
        "pods victims terminating": _AS_ONE,
        "pods one victim gone": _AS_ONE,
        "groups victims terminating": _AS_ONE,
        "groups one victim gone": _AS_ONE,
        "event: ": _AS_ONE,
        "request: ": _AS_ONE,
    },
    "gang-starved": {
        "pods and taken again": _RESTS,
        'request: missing (1): {"body": {"status": {"$setElementOrder/conditions": '
        '[{"type": "PodScheduled"}]': _RESTS,
    },
    "gang-two-profiles": {
        "pods two left": _SAYS_SO,
        "groups refused": "20: what is wrong is said of the group, too",
        "request: added": "20: what is wrong is said of the group, too",
    },
    "group-deleted-while-waiting": {
        "pods group gone": _SAYS_SO,
        "pods room for all, but no group": _SAYS_SO,
        "not found": "1: only a loop finds out in mid-cycle that the group is gone",
    },
    "member-deleted-while-waiting": {
        "pods two pods left": _BY_NAME,
        "pods room for three, but only two pods": _BY_NAME,
        "groups two pods left": _SAYS_SO,
        "groups room for three, but only two pods": _SAYS_SO,
    },
    "no-nodes-and-deleting-member": {
        "groups p2 is being deleted": "11: a terminating member does not count",
    },
    "preemption-by-gang": {
        "pods victims terminating": _NOMINATES,
        "groups victims terminating": _ENDING,
        "request: added": _ENDING,
        "request: missing": _NOMINATES,
        "event: missing": _NOMINATES,
    },
    "preemption-of-gang": {
        "pods both pods of w go": _NOMINATES,
        "groups both pods of w go": _ENDING,
        "request: added": _ENDING,
        "request: missing": _NOMINATES,
        "groups at the end": _WHOEVER,
    },
}
"""By scenario: what a difference begins with or contains, and the doubt that it comes from."""


@pytest.fixture(scope="module")
def normalise() -> Iterator[ModuleType]:
    with transcript_modules("normalise") as (normalise,):
        yield normalise


def _is_group(obj: JsonObject) -> bool:
    return bool(obj["kind"] == "PodGroup")


def _given(group: JsonObject) -> tuple[JsonObject, list[str]]:
    """What the API has made of the group that was created."""
    return group["spec"], group["metadata"].get("finalizers", [])


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(each, marks=pytest.mark.long if each in LIKE_OTHERS else ())
        for each in SCENARIOS
    ],
)
def test_the_operator_does_what_kube_scheduler_did(
    name: str, normalise: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recording = scenario(name, "gang")
    outcome = play(recording, tmp_path, monkeypatch, tick_seconds=TICKS.get(name, 0.5))
    stored = {each["metadata"]["name"]: each for each in outcome.final_objects if _is_group(each)}
    recorded = {
        each["metadata"]["name"]: each for each in recording["finalOtherObjects"] if _is_group(each)
    }
    assert {key: _given(each) for key, each in stored.items()} == {
        key: _given(each) for key, each in recorded.items()
    }
    known = DIFFERENT.get(name, {})
    found = list(GangComparison(recording, outcome, normalise.norm, OWN_REASONS).differences())
    assert [line for line in found if not any(each in line for each in known)] == []
    assert [each for each in known if not any(each in line for line in found)] == []
