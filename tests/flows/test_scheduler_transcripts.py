"""Every recorded scenario of kube-scheduler v1.36, played to the whole operator: it does the same.

What was recorded is edited only where Stellwerk deliberately does something else (docs/differences)
or was not told to do the same; each edit has a name and a reason.
"""

import copy
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

from stellwerk_kube.json_values import JsonObject
from tests.flows.scheduler_comparison import Comparison
from tests.support.recordings import scenario, scenarios, transcript_modules
from tests.support.scheduler_replay import Outcome, play

Edit = Callable[[JsonObject], None]

SCENARIOS = scenarios()
TICKS = {"bind-forbidden": 0.59, "extender-failing-backoff": 0.698, "no-nodes": 0.187}
"""Where in a second the clock ticked that ends backoffs, in scenarios that wait for it."""


LARGE = {"percentage-of-nodes": 250}
"""Scenarios with so many equal nodes, n000 and on, of which the recording shows only some."""


def load(name: str) -> JsonObject:
    recording = scenario(name)
    if name in LARGE:
        shown = json.dumps(recording["initialObjects"][0])
        recording["initialObjects"] = [
            json.loads(shown.replace("n000", f"n{number:03}")) for number in range(LARGE[name])
        ]
    return recording


# --- what is deliberately different ----------------------------------------------------


def victims_are_deleted_by_uid(recording: JsonObject) -> None:
    """A pod re-created under a victim's name is no victim: each delete has a precondition."""
    uids = {
        obj["metadata"]["name"]: obj["metadata"]["uid"]
        for obj in recording["initialObjects"]
        if obj["kind"] == "Pod"
    }
    for request in recording["schedulerRequests"]:
        if request["verb"] == "delete":
            uid = uids[request["uri"].rpartition("/")[2]]
            request["requestObject"] |= {"apiVersion": "v1", "preconditions": {"uid": uid}}


def lost_pods_keep_their_condition(recording: JsonObject) -> None:
    """Somebody else bound or deleted the pod: PodScheduled=False would be wrong, or in vain."""
    requests = recording["schedulerRequests"]
    reports = [each for each in requests if "conditions" in str(each["requestObject"])]
    assert len(reports) == 1
    requests.remove(reports[0])
    bound = {"type": "PodScheduled", "status": "True", "lastProbeTime": None}
    moments = [recording["finalPods"], *(each["pods"] for each in recording["observations"])]
    for pods in moments:
        for state in pods.values():
            stamp = state["conditions"][0]["lastTransitionTime"]
            state["conditions"] = [{**bound, "lastTransitionTime": stamp}]


def leader_election_is_not_configured(recording: JsonObject) -> None:
    """Whether to elect a leader is said by flags of `stellwerk run`, and nobody did here."""
    recording["schedulerRequests"] = [
        each for each in recording["schedulerRequests"] if "/kube-system/" not in each["uri"]
    ]
    recording["events"] = [
        each for each in recording["events"] if each["regarding"]["kind"] != "Lease"
    ]
    # Which process took the pod up was not recorded; it was bound at once.
    binding = recording["schedulerRequests"][0]
    recording["schedulingAttempts"] = [{"t": binding["t"], "pod": "default/a"}]


EDITS: dict[str, Edit] = {
    "bind-conflict": lost_pods_keep_their_condition,
    "bind-conflict-409": lost_pods_keep_their_condition,
    "bind-pod-deleted": lost_pods_keep_their_condition,
    "leader-election": leader_election_is_not_configured,
}


# --- the scenarios ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def normalise() -> Iterator[ModuleType]:
    with transcript_modules("normalise") as (normalise,):
        yield normalise


def played(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Outcome:
    tick_seconds = TICKS.get(name, 0.5)
    return play(load(name), folder, monkeypatch, tick_seconds=tick_seconds)


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_operator_does_what_kube_scheduler_did(
    name: str,
    normalise: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    outcome = played(name, tmp_path, monkeypatch)
    expected = copy.deepcopy(load(name))
    victims_are_deleted_by_uid(expected)
    if name in EDITS:
        EDITS[name](expected)
    found = Comparison(expected, outcome, normalise.norm).differences()
    assert list(found) == []


def test_pods_of_a_service_go_to_different_zones_first(
    normalise: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    del normalise  # skips where there are no recordings
    pods = played("default-spread", tmp_path, monkeypatch).final_pods
    nodes = [pods[name]["nodeName"] for name in ("w0", "w1", "w2", "w3")]
    assert len(set(nodes)) == 4
    assert nodes[0][0] != nodes[1][0], "a1 and a2 are in one zone, b1 and b2 in another"
