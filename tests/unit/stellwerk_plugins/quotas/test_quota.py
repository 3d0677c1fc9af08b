"""Elastic quotas: what counts, what is borrowed, and what makes no sense."""

from typing import Any

import pytest

from stellwerk.backend.object_store import IndexedObjectStore
from stellwerk_plugins.quotas.quota import (
    NamespaceUse,
    Quotas,
    QuotaState,
    parse_quota,
)
from tests.support.builders import pod_info


def quota(namespace: str, created: str = "", name: str = "quota", **spec: Any) -> dict[str, Any]:
    metadata = {"namespace": namespace, "name": name, "creationTimestamp": created}
    return {"metadata": metadata, "spec": spec}


@pytest.mark.parametrize(
    ("spec", "used", "over"),
    [
        pytest.param({}, {"cpu": 10**9}, False, id="no maximum"),
        pytest.param({"max": {"cpu": "4"}}, {"cpu": 3000}, False, id="within it"),
        pytest.param({"max": {"cpu": "4"}}, {"cpu": 4001}, True, id="beyond it"),
        pytest.param({"max": {"cpu": "4"}}, {"memory": 1}, True, id="memory is not named: 0 of it"),
        pytest.param(
            {"max": {"cpu": "4"}}, {"example.com/gpu": 9}, False, id="devices are not named: any"
        ),
    ],
)
def test_the_maximum_bounds_what_it_names_and_what_every_list_has(
    spec: dict[str, Any],
    used: dict[str, int],
    over: bool,  # noqa: FBT001 a column of the table
) -> None:
    assert parse_quota(quota("a", **spec)).over_max({}, used) is over


def test_the_oldest_quota_of_a_namespace_counts_whatever_is_written_later() -> None:
    objects = IndexedObjectStore()
    objects.set("ElasticQuota", quota("a", "2026-02-01T00:00:00Z", "young", min={"cpu": "1"}))
    objects.set("ElasticQuota", quota("a", "2026-01-01T00:00:00Z", "old", min={"cpu": "2"}))
    quotas = Quotas(objects)
    assert quotas.by_namespace()["a"].name == "old"
    objects.set("ElasticQuota", quota("a", "2026-02-01T00:00:00Z", "young", min={"cpu": "3"}))
    assert quotas.by_namespace()["a"].name == "old"
    assert quotas.doubled == {"a": ("young",)}


@pytest.mark.parametrize(
    "spec",
    [{"min": {"cpu": "x"}}, {"min": {"cpu": "-1"}}, {"min": []}, {"min": {"cpu": "9"}, "max": {}}],
)
def test_what_makes_no_sense_is_left_out_and_named(spec: dict[str, Any]) -> None:
    assert parse_quota(quota("a", **spec)).faults


@pytest.mark.parametrize("spec", [None, [], "x", {"min": None, "max": None}])
def test_a_specification_of_another_form_bounds_nothing(spec: Any) -> None:
    parsed = parse_quota({"metadata": {"namespace": "a"}, "spec": spec})
    assert (parsed.min, parsed.max) == ({}, None)


def test_pods_that_ran_before_the_quota_was_made_count_in_it() -> None:
    use, objects = NamespaceUse(), IndexedObjectStore()
    use.count_pod(0, pod_info("web", namespace="a", cpu="2"), 1)
    quotas = Quotas(objects)
    assert quotas.by_namespace() == {}
    objects.set("ElasticQuota", quota("a", min={"cpu": "1"}))
    state = QuotaState(quotas.by_namespace(), lambda namespace: use.used.get(namespace, {}))
    assert state.used("a") == {"cpu": 2000}
    assert quotas.by_namespace()["a"].over_min(state.used("a"))


def test_use_is_gone_with_the_last_pod() -> None:
    use, pod = NamespaceUse(), pod_info("web", namespace="a", cpu="2")
    fork = use.fork()
    use.count_pod(0, pod, 1)
    assert (use.used, use.rows) == ({"a": {"cpu": 2000}}, {"a": {0: 1}})
    use.count_pod(0, pod, -1)
    assert (use.used, use.rows) == ({}, {})
    assert fork.used == {}


def test_a_changed_state_leaves_the_one_it_was_copied_from() -> None:
    quotas = {"a": parse_quota(quota("a", min={"cpu": "1"}))}
    state = QuotaState(quotas, lambda _: {"cpu": 500})
    changed = state.copy()
    changed.change(pod_info("web", namespace="a", cpu="2"), 1)
    changed.change(pod_info("free", namespace="b", cpu="2"), 1)
    assert (changed.used("a"), changed.total()) == ({"cpu": 2500}, {"cpu": 2500})
    assert (state.used("a"), state.total()) == ({"cpu": 500}, {"cpu": 500})
