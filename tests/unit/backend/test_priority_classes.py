"""PriorityClasses: what admission would have resolved, and that it stays so."""

from functools import partial
from typing import Any

import pytest

from stellwerk.backend.priority_classes import PriorityClasses
from stellwerk.models.pod import parse_pod
from stellwerk_kube.json_values import JsonObject
from tests.support.builders import make_pod


def make_class(name: str, value: int, **fields: Any) -> JsonObject:
    return {"metadata": {"name": name}, "value": value, **fields}


def classes_with(*classes: JsonObject) -> PriorityClasses:
    classes_seen = PriorityClasses()
    for each in classes:
        classes_seen.set(each)
    classes_seen.synced()
    return classes_seen


HIGH = make_class("high", 1000)
QUIET = make_class("quiet", 500, preemptionPolicy="Never")
DEFAULT = make_class("usual", 7, globalDefault=True)


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        pytest.param({"priorityClassName": "high"}, (1000, "PreemptLowerPriority"), id="by name"),
        pytest.param({"priorityClassName": "quiet"}, (500, "Never"), id="with the class's policy"),
        pytest.param(
            {"priorityClassName": "high", "preemptionPolicy": "Never"},
            (1000, "Never"),
            id="the pod's own policy wins",
        ),
        pytest.param({}, (7, "PreemptLowerPriority"), id="the global default"),
        pytest.param(
            {"priorityClassName": "high", "priority": 3},
            (3, "PreemptLowerPriority"),
            id="a resolved priority wins",
        ),
        pytest.param(
            {"priorityClassName": "system-node-critical"},
            (2_000_001_000, "PreemptLowerPriority"),
            id="system classes exist always",
        ),
        pytest.param(
            {"priorityClassName": "nonsense"},
            (0, "PreemptLowerPriority"),
            id="an unknown class gives nothing",
        ),
    ],
)
def test_priorities_are_resolved_as_at_admission(
    spec: JsonObject, expected: tuple[int, str]
) -> None:
    classes = classes_with(HIGH, QUIET, DEFAULT)
    pod = parse_pod(make_pod("a", **spec), partial(classes.resolve_for, "uid-default-a"))
    assert (pod.spec.priority, pod.spec.preemption_policy) == expected


def test_without_a_default_a_pod_has_no_priority() -> None:
    assert classes_with(HIGH).resolve_for("uid", "") == (0, "PreemptLowerPriority")


def test_of_several_defaults_the_lowest_counts() -> None:
    classes = classes_with(DEFAULT, make_class("other", 3, globalDefault=True))
    assert classes.resolve("") == (3, "PreemptLowerPriority")


@pytest.mark.parametrize("name", ["", "high"])
def test_a_resolved_priority_never_changes(name: str) -> None:
    classes = classes_with(HIGH, DEFAULT)
    before = classes.resolve_for("uid", name)
    classes.set(make_class("high", 1, globalDefault=True))
    assert classes.resolve_for("uid", name) == before
    classes.remove("high")
    classes.remove("usual")
    assert classes.resolve_for("uid", name) == before
    assert classes.resolve_for("another", name) != before
    classes.forget("uid")
    assert classes.resolve_for("uid", name) != before


def test_pods_that_came_before_their_class_are_named_when_it_comes() -> None:
    classes = PriorityClasses()
    assert classes.resolve_for("early", "high") == (0, "PreemptLowerPriority")
    assert "early" in classes.waiting
    assert classes.set(QUIET) == frozenset()
    assert classes.set(HIGH) == {"early"}
    assert classes.resolve_for("early", "high")[0] == 1000
    assert "early" not in classes.waiting


def test_whether_there_is_a_default_is_known_once_all_are_listed() -> None:
    classes = PriorityClasses()
    classes.resolve_for("early", "")
    classes.set(DEFAULT)
    assert classes.synced() == {"early"}
    assert classes.resolve_for("early", "")[0] == 7


def test_a_system_class_cannot_be_removed() -> None:
    classes = classes_with(make_class("system-cluster-critical", 2_000_000_000))
    classes.remove("system-cluster-critical")
    assert classes.resolve("system-cluster-critical")[0] == 2_000_000_000


def test_a_fork_and_its_original_resolve_apart() -> None:
    classes = classes_with(HIGH)
    classes.resolve_for("resolved", "high")
    classes.resolve_for("early", "usual")
    fork = classes.fork()
    fork.remove("high")
    assert fork.resolve_for("resolved", "high")[0] == 1000
    assert fork.resolve("high") != classes.resolve("high")
    assert fork.set(make_class("usual", 7)) == {"early"}
    assert "early" in classes.waiting
    assert fork.synced() == classes.fork().synced() == frozenset()
