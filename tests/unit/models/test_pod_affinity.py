"""Pod affinity terms and spread constraints as parsed."""

from typing import Any

import pytest

from stellwerk.models.pod_affinity import (
    AffinityTerm,
    PodAffinity,
    parse_pod_affinity,
    parse_spread_constraints,
)
from stellwerk_kube.json_values import JsonObject

APP: JsonObject = {"matchLabels": {"app": "web"}}
LABELS = {"app": "web", "pod-template-hash": "5"}


def term(**fields: Any) -> AffinityTerm:
    listed = [{"topologyKey": "zone", "labelSelector": APP, **fields}]
    affinity = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": listed}}
    (parsed,) = parse_pod_affinity(affinity, "own", LABELS).required
    return parsed


def test_all_four_kinds_of_terms() -> None:
    required = [{"topologyKey": "zone", "labelSelector": APP}]
    preferred = [{"weight": 7, "podAffinityTerm": required[0]}]
    both = {
        "requiredDuringSchedulingIgnoredDuringExecution": required,
        "preferredDuringSchedulingIgnoredDuringExecution": preferred,
    }
    parsed = parse_pod_affinity({"podAffinity": both, "podAntiAffinity": both}, "own", {})
    assert parsed.required == parsed.required_anti == (term(),)
    assert parsed.preferred == parsed.preferred_anti
    assert [(each.weight, each.term) for each in parsed.preferred] == [(7, term())]
    assert parse_pod_affinity({}, "own", {}) == PodAffinity()


def test_equal_terms_are_one_key() -> None:
    assert term() == term()
    assert hash(term()) == hash(term())
    assert term() != term(topologyKey="host")


@pytest.mark.parametrize(
    ("fields", "namespace", "namespace_labels", "matches"),
    [
        pytest.param({}, "own", {}, True, id="the pod's own namespace"),
        pytest.param({}, "other", {}, False, id="and no other"),
        pytest.param({"namespaces": ["other"]}, "other", {}, True, id="a listed namespace"),
        pytest.param({"namespaces": ["other"]}, "own", {}, False, id="then not the pod's own"),
        pytest.param({"namespaces": []}, "own", {}, True, id="an empty list is none"),
        pytest.param({"namespaceSelector": {}}, "any", {}, True, id="an empty selector: all"),
        pytest.param(
            {"namespaceSelector": {"matchLabels": {"team": "a"}}},
            "own",
            {"team": "b"},
            False,
            id="a selector: not the pod's own by itself",
        ),
        pytest.param(
            {"namespaceSelector": {"matchLabels": {"team": "a"}}, "namespaces": ["other"]},
            "third",
            {"team": "a"},
            True,
            id="selector or list",
        ),
        pytest.param({"labelSelector": None}, "own", {}, False, id="no selector: no pod"),
        pytest.param({"labelSelector": {}}, "own", {}, True, id="an empty selector: every pod"),
    ],
)
def test_which_pods_are_meant(
    fields: JsonObject, namespace: str, namespace_labels: dict[str, str], *, matches: bool
) -> None:
    assert term(**fields).matcher.matches(namespace, LABELS, namespace_labels) is matches


def test_match_label_keys_take_values_from_the_pod() -> None:
    matcher = term(matchLabelKeys=["pod-template-hash", "absent"]).matcher
    assert matcher.matches("own", LABELS, {})
    assert not matcher.matches("own", {**LABELS, "pod-template-hash": "6"}, {})


def test_mismatch_label_keys_exclude_them() -> None:
    matcher = term(mismatchLabelKeys=["pod-template-hash"]).matcher
    assert not matcher.matches("own", LABELS, {})
    assert matcher.matches("own", {**LABELS, "pod-template-hash": "6"}, {})


def test_keys_that_the_api_server_has_merged_are_not_said_twice() -> None:
    merged = {
        **APP,
        "matchExpressions": [{"key": "pod-template-hash", "operator": "In", "values": ["5"]}],
    }
    keys = ["pod-template-hash"]
    assert term(labelSelector=merged, matchLabelKeys=keys) == term(matchLabelKeys=keys)


def test_keys_without_a_selector_select_nothing() -> None:
    assert term(labelSelector=None, matchLabelKeys=["app"]).matcher.selector is None


CONSTRAINT: JsonObject = {
    "maxSkew": 1,
    "topologyKey": "zone",
    "whenUnsatisfiable": "DoNotSchedule",
    "labelSelector": APP,
}


def test_defaults_of_a_constraint() -> None:
    (constraint,) = parse_spread_constraints([CONSTRAINT], {})
    assert constraint.hard
    assert constraint.min_domains is None
    assert constraint.honor_node_affinity
    assert not constraint.honor_node_taints


def test_a_constraint_with_everything() -> None:
    (constraint,) = parse_spread_constraints(
        [
            CONSTRAINT
            | {
                "whenUnsatisfiable": "ScheduleAnyway",
                "minDomains": 3,
                "nodeAffinityPolicy": "Ignore",
                "nodeTaintsPolicy": "Honor",
                "matchLabelKeys": ["pod-template-hash"],
            }
        ],
        LABELS,
    )
    assert not constraint.hard
    assert constraint.min_domains == 3
    assert not constraint.honor_node_affinity
    assert constraint.honor_node_taints
    assert constraint.selector is not None
    assert constraint.selector.matches(LABELS)
    assert not constraint.selector.matches({"app": "web"})


def test_no_constraints() -> None:
    assert parse_spread_constraints(None, {}) == ()
