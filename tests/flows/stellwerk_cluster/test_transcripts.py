"""The embedded API answers what a real API server answered: the recorded scenarios, replayed.

`NOT_YET` names the steps that still differ, each with the reason; it must only shrink.
"""

import json
import time
from collections.abc import Iterator
from types import ModuleType
from typing import Any
from urllib.parse import parse_qsl

import pytest

from stellwerk_cluster.apimachinery.feature_gates import GANGS, GENERIC_WORKLOAD
from stellwerk_cluster.apimachinery.users import User
from stellwerk_cluster.cluster import ClusterOptions, EmbeddedCluster
from stellwerk_cluster.identity.assembly import IdentityOptions
from stellwerk_cluster.identity.token_file import StaticToken
from tests.support.invariants import check_unaltered
from tests.support.recordings import WIRE_RELEASE, transcript, transcript_modules
from tests.support.served_cluster import served

SLOW = {"watch": pytest.mark.long, "crd": pytest.mark.slow}
_PATIENCE_SECONDS = 30.0

_ORDER = "the answer quotes the object with its keys in the order of the API's own types"

_CHECKS = "other checks stand behind the probes"
_NO_PAGE = "a path that names nothing is answered with a Status"
_VERSION = "the version says that this is Stellwerk's"

USERS = (
    StaticToken("admin", User("admin", "admin", ("system:masters",))),
    StaticToken("scheduler", User("system:kube-scheduler", "system:kube-scheduler")),
    StaticToken("alicetoken", User("alice", "alice", ("",))),
)

TOKENS = {"admin": "admin", "scheduler": "scheduler", "alice": "alicetoken"}

GATES = {
    "podgroups": GANGS,
    "podgroups-generic-only": frozenset({GENERIC_WORKLOAD}),
    "podgroups-gate-off": frozenset[str](),
}
"""The scenarios about groups of pods, with the feature gates that were on."""

NOT_YET: dict[str, dict[int, str]] = {
    "apply": {},
    "auth": {},
    "health": {8: _CHECKS, 9: _CHECKS, 10: _CHECKS, 11: _CHECKS, 12: _CHECKS, 15: _VERSION},
    "health-more": {4: _CHECKS},
    "binding": {},
    "concurrency": {},
    "concurrency-more": {},
    "crd": {},
    "default-tolerations": {},
    "deletion": {},
    "dry-run": {},
    "errors": {
        31: "the HTTP library refuses unknown methods itself",
    },
    "events": {},
    "eviction": {},
    "lists": {},
    "namespaces": {},
    "nodes": {19: "the answer quotes the whole object, with the managedFields of its writer"},
    "other-kinds": {
        36: "the lease of the API server has no peer address",
    },
    "pdb": {},
    "pod-defaults": {},
    "pod-errors": {},
    "pod-status": {},
    "podgroups": {},
    "podgroups-gate-off": {},
    "podgroups-generic-only": {},
    "priority-admission": {},
    "priorityclasses": {},
    "runtimeclass": {},
    "runtimeclass-more": {},
    "scheduling-gates": {},
    "tables": {},
    "watch": {78: _ORDER},
}


OTHERWISE: dict[str, dict[str, dict[int, str]]] = {
    "1.36": {},
    "1.37": {"auth": {34: "the role of kube-scheduler has DeviceTaintRules, too"}},
    "1.38": {
        "auth": {34: "the role of kube-scheduler has DeviceTaintRules and groups, too"},
        "crd": dict.fromkeys((2, 82, 83), _NO_PAGE),
        "health": {13: _NO_PAGE},
    },
}
"""Steps of 1.36 that other releases answer in another way, beside `without_written_version`; their
groups have another version altogether."""

if WIRE_RELEASE != "1.36":
    NOT_YET = {
        scenario: steps | OTHERWISE[WIRE_RELEASE].get(scenario, {})
        for scenario, steps in NOT_YET.items()
        if scenario not in GATES
    }


@pytest.fixture(scope="module")
def replay() -> Iterator[ModuleType]:
    with transcript_modules("normalise", "replay") as (_, replay):
        yield replay


def without_descriptions(value: Any) -> Any:
    """Texts on table columns are our own."""
    if isinstance(value, dict):
        return {
            key: without_descriptions(each) for key, each in value.items() if key != "description"
        }
    if isinstance(value, list):
        return [without_descriptions(each) for each in value]
    return value


def without_written_version(answer: Any) -> Any:
    """From 1.38 on, every Status of a binding, an eviction or a deletion has one more field.

    `test_releases.py` shows that it is there; here all others are as 1.36 answered.
    """
    body = answer.get("body")
    if WIRE_RELEASE in {"1.36", "1.37"} or not isinstance(body, dict):
        return answer
    if (body.get("kind"), body.get("status")) != ("Status", "Success"):
        return answer
    metadata = {name: each for name, each in body["metadata"].items() if name != "resourceVersion"}
    return {**answer, "body": {**body, "metadata": metadata}}


def with_entries_in_order(value: Any) -> Any:
    """The order of managedFields begins with their times, in whole seconds."""
    if isinstance(value, dict):
        return {
            key: sorted(each, key=lambda entry: json.dumps({**entry, "time": ""}, sort_keys=True))
            if key == "managedFields" and isinstance(each, list)
            else with_entries_in_order(each)
            for key, each in value.items()
        }
    return [with_entries_in_order(each) for each in value] if isinstance(value, list) else value


def arrived(watch: dict[str, Any], events: int) -> None:
    """Return once a watch has so many new events or has ended; a busy machine may take long."""
    until = time.monotonic() + _PATIENCE_SECONDS
    while len(watch["events"]) - watch["seen"] < events and not watch["ended"]:
        if time.monotonic() > until:
            return  # the comparison shows what is lacking
        time.sleep(0.01)


def expected_of(answer: dict[str, Any]) -> dict[str, Any]:
    headers = {key: value for key, value in answer.get("headers", {}).items() if key != "Vary"}
    return {**answer, "headers": headers} if "headers" in answer else answer


@pytest.mark.parametrize(
    "scenario",
    [pytest.param(each, marks=SLOW.get(each, ())) for each in sorted(NOT_YET)],
)
def test_every_step_is_answered_as_recorded(
    scenario: str, replay: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    # How long a version of the future is waited for shows in no answer.
    monkeypatch.setattr("stellwerk_cluster.apiserver.http._FUTURE_VERSION_SECONDS", 0.05)
    options = ClusterOptions(
        controllers=False,
        kubelet=None,
        heartbeats=False,
        release=WIRE_RELEASE,
        feature_gates=GATES.get(scenario, frozenset()),
        identity=IdentityOptions("rbac", tokens=USERS),
    )
    differences = []
    folder = "gang" if scenario in GATES else "api"
    with served(EmbeddedCluster(0, options=options)) as cluster:
        client = replay.Replay(cluster.url, TOKENS)
        client.on_restart = None
        for text in transcript(f"{folder}/{scenario}.jsonl").read_text().splitlines():
            line = json.loads(text)
            query = line.get("request", {}).get("query")
            if isinstance(query, str):
                line["request"]["query"] = dict(parse_qsl(query))
            if "watch" in line and line.get("op") in {"events", "end"}:
                arrived(client.watches[line["watch"]], len(line["events"]))
            if "wait" in line:
                if "has compacted" in line["note"]:
                    cluster.store.compact(cluster.store.revision)
                continue  # the recorded server settles in the background, this one while it answers
            outcome = client.step(line) if "step" in line else None
            if outcome is None or line.get("unstable") or line["step"] in NOT_YET[scenario]:
                continue
            expected, answered = (
                with_entries_in_order(without_descriptions(each)) for each in outcome
            )
            answered = without_written_version(answered)
            found = replay.compare(expected_of(expected), answered, managed=scenario not in GATES)
            differences += [(line["step"], line["note"], *each) for each in found]
        for watch in client.watches.values():
            watch["conn"].close()
    check_unaltered(cluster.store)
    assert differences == []
