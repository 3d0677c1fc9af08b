"""Which selector has a pod: the oldest that matches; what is kept of namespaces never lies."""

from typing import Any

import pytest

from stellwerk.profiles.spec.selector import PodsSelected, ProfileSelector
from stellwerk.world.profile_selectors import UNDECIDED, ProfileSelectors, SelectorOverlaps
from stellwerk_kube.json_values import JsonObject


def selecting(name: str, **selector: Any) -> PodsSelected:
    return PodsSelected.by(name, ProfileSelector.model_validate(selector))


def of_team(name: str, team: str) -> PodsSelected:
    return selecting(name, namespaceSelector={"matchLabels": {"team": team}})


def namespace(**labels: str) -> JsonObject:
    return {"metadata": {"labels": labels}}


class Cluster:
    """Namespaces by name, and the selectors that look at them."""

    def __init__(self, *selectors: PodsSelected, **namespaces: JsonObject) -> None:
        self.namespaces = namespaces
        self.selectors = ProfileSelectors(self.namespaces.get)
        self.selectors.serve(selectors)

    def first(self, where: str, scheduler_name: str = "default-scheduler", **labels: str) -> str:
        return self.selectors.first(scheduler_name, where, labels)


@pytest.mark.parametrize(
    ("selector", "serves"),
    [
        pytest.param({"schedulerNames": ["a", "default-scheduler"]}, True, id="the name alone"),
        pytest.param({"schedulerNames": ["a"]}, False, id="another name"),
        pytest.param({"podSelector": {}}, True, id="every pod that names no scheduler"),
        pytest.param(
            {"podSelector": {"matchLabels": {"app": "web"}}}, True, id="the label of the pod"
        ),
        pytest.param(
            {"podSelector": {"matchLabels": {"app": "db"}}}, False, id="another value of it"
        ),
        pytest.param(
            {"namespaceSelector": {"matchLabels": {"team": "batch"}}},
            True,
            id="the label of the namespace",
        ),
        pytest.param(
            {"namespaceSelector": {"matchLabels": {"app": "web"}}},
            False,
            id="the pod's label, asked of the namespace",
        ),
        pytest.param(
            {
                "namespaceSelector": {"matchLabels": {"team": "batch"}},
                "podSelector": {
                    "matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["web"]}]
                },
            },
            False,
            id="one of two that have to match",
        ),
        pytest.param(
            {
                "namespaceSelector": {
                    "matchLabels": {"team": "batch"},
                    "matchExpressions": [
                        {"key": "frozen", "operator": "DoesNotExist"},
                        {"key": "team", "operator": "Exists"},
                    ],
                }
            },
            True,
            id="labels and expressions together",
        ),
    ],
)
def test_all_that_a_selector_says_has_to_match(selector: JsonObject, *, serves: bool) -> None:
    cluster = Cluster(selecting("own", **selector), here=namespace(team="batch"))
    assert cluster.first("here", app="web") == ("own" if serves else "")


def test_of_two_that_match_the_older_one_has_the_pod() -> None:
    cluster = Cluster(
        of_team("old", "batch"), selecting("new", podSelector={}), here=namespace(team="batch")
    )
    assert cluster.first("here") == "old"
    assert cluster.selectors.all("default-scheduler", "here", {}) == ("old", "new")


def test_a_namespace_that_was_not_seen_leaves_open_what_hangs_on_it() -> None:
    by_pod = selecting("first", podSelector={"matchLabels": {"app": "web"}})
    cluster = Cluster(by_pod, of_team("second", "batch"))
    assert cluster.first("late", app="web") == "first"
    assert cluster.first("late", app="db") == UNDECIDED
    assert cluster.selectors.all("default-scheduler", "late", {"app": "db"}) == ()
    assert not cluster.first("late", "other")
    cluster.namespaces["late"] = namespace(team="web")
    assert not cluster.first("late", app="db")


def test_every_version_of_a_namespace_is_read_anew() -> None:
    cluster = Cluster(of_team("own", "batch"), here=namespace(team="batch"))
    assert cluster.first("here") == "own"
    cluster.namespaces["here"] = namespace()
    assert not cluster.first("here")
    cluster.namespaces["here"] = namespace(team="batch")
    assert cluster.first("here") == "own"
    del cluster.namespaces["here"]
    cluster.selectors.forget("here")
    assert cluster.first("here") == UNDECIDED


def test_other_selectors_count_at_once() -> None:
    cluster = Cluster(of_team("own", "batch"), here=namespace(team="batch"))
    assert cluster.first("here") == "own"
    assert cluster.selectors.serve([of_team("own", "web")])
    assert not cluster.first("here")
    assert not cluster.selectors.serve([of_team("own", "web")]), "these count already"


def test_overlaps_say_the_same_of_both_profiles() -> None:
    overlaps = SelectorOverlaps()
    overlaps.count("a", ["old", "new", "newest"])
    overlaps.count("b", ["old", "new"])
    overlaps.count("b", ["new"])
    assert overlaps.of("old") == ({"new": 2, "newest": 1}, {})
    assert overlaps.of("new") == ({}, {"old": 2})
    overlaps.forget("b")
    assert overlaps.of("new") == ({}, {"old": 1})
    overlaps.clear()
    assert overlaps.of("old") == ({}, {})
