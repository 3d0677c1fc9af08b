"""Which outcomes of dry runs are remembered, and for how long."""

import random

import pytest

from stellwerk.backend.cache import Cache
from stellwerk.backend.nominator import Nominator
from stellwerk.backend.object_store import IndexedObjectStore
from stellwerk.framework.handle import ProfileHandle
from stellwerk.framework.offline import offline_services
from stellwerk.framework.types import unresolvable
from stellwerk.models.pod import parse_pod
from stellwerk.plugins.default_preemption.dry_run import (
    MAX_SPECS,
    DryRunOutcomes,
    DryRunResults,
)
from stellwerk_kube.node import parse_node
from tests.support.builders import make_node, make_pod, pod_info
from tests.support.preemption_cases import make_budget

FOUND = unresolvable("", "No preemption victims found")


class Cluster:
    """Two nodes with a pod each, and what is remembered about them."""

    def __init__(self) -> None:
        self.cache, self.nominator, self.objects = Cache(), Nominator(), IndexedObjectStore()
        for name in ("n0", "n1"):
            self.cache.set_node(parse_node(make_node(name)))
            self.show(name)
        self.cache.update_snapshot()
        services = offline_services(
            self.cache.snapshot, self.objects, self.nominator, random.Random(1)
        )
        self.results = DryRunResults(ProfileHandle(services, "default-scheduler"))

    def show(self, node_name: str, **status: str) -> None:
        pod = make_pod(f"on-{node_name}", node_name=node_name)
        pod["status"] = status
        self.cache.set_pod(parse_pod(pod))

    def of(self, key: object = "key", *, pod: str = "web") -> DryRunOutcomes:
        self.cache.update_snapshot()
        return self.results.of(key, pod_info(pod, priority=10)).outcomes

    def learn(self, key: object = "key") -> None:
        self.of(key).update({0: FOUND, 1: FOUND})


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


def test_the_specs_asked_for_last_are_remembered(cluster: Cluster) -> None:
    for key in range(MAX_SPECS):
        cluster.learn(key)
    assert cluster.of(0)
    cluster.learn("one more")
    assert cluster.of(0)
    assert cluster.of(1) == {}, "the one that was asked for longest ago made room"


def test_a_change_of_any_budget_ends_them_all(cluster: Cluster) -> None:
    for key in ("one", "another"):
        cluster.learn(key)
    cluster.objects.set("PodDisruptionBudget", make_budget("web", {"app": "web"}, 1))
    assert cluster.of("one") == {}
    assert cluster.of("another") == {}


def test_what_holds_is_remembered_for_other_pods(cluster: Cluster) -> None:
    cluster.learn()
    assert cluster.of(pod="job") == {0: FOUND, 1: FOUND}


def test_a_pod_that_comes_or_goes_ends_what_was_found_on_its_node(cluster: Cluster) -> None:
    cluster.learn()
    cluster.cache.remove_pod(pod_info("on-n1").uid)
    assert cluster.of() == {0: FOUND}


def test_so_does_a_newer_record_of_a_pod(cluster: Cluster) -> None:
    cluster.learn()
    cluster.show("n0", startTime="2026-01-01T00:00:00Z")
    assert cluster.of() == {1: FOUND}


def test_so_does_a_nomination_and_its_end(cluster: Cluster) -> None:
    cluster.learn()
    job = pod_info("job", priority=10)
    cluster.nominator.nominate(job, "n0")
    assert cluster.of() == {1: FOUND}
    cluster.learn()
    cluster.nominator.nominate(job, "")
    assert cluster.of() == {1: FOUND}


def test_a_pod_s_own_nomination_is_left_out_for_it_alone(cluster: Cluster) -> None:
    cluster.nominator.nominate(pod_info("job", priority=10), "n0")
    cluster.learn()
    assert cluster.of(pod="job") == {1: FOUND}
    cluster.of(pod="job")[0] = FOUND
    assert cluster.of() == {1: FOUND}


def test_what_cannot_be_followed_is_forgotten(cluster: Cluster) -> None:
    cluster.learn()
    for _ in range(10_000):
        cluster.show("n0")
    assert cluster.of() == {}
