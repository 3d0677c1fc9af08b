"""What is remembered of the pods that a cluster was asked to run, and how little room it takes."""

from typing import Any

import pytest

from stellwerk.models.gpu import MODEL_LABEL
from stellwerk.models.pod import parse_pod
from stellwerk.snapshot.pod_shapes import (
    HALF_LIFE_PODS,
    MAX_SHAPES,
    MAX_TYPICAL_SHAPES,
    GpuShape,
    PodShapes,
    gpu_shape,
)
from tests.support.gpu_cluster import gpu_cache, gpu_node, gpu_pod, gpu_pod_info

SHARE = GpuShape(1000, 700, 1, ())
WHOLE = GpuShape(1000, 1000, 1, ())


def counts(seen: PodShapes) -> dict[GpuShape, float]:
    return {each.shape: round(each.pods, 2) for each in seen.shapes()}


def see(seen: PodShapes, first: int, number: int, **asked: int) -> None:
    pod = gpu_pod_info("p", **asked)
    for name in range(first, first + number):
        copy = pod.with_node("")
        copy.uid = f"uid-default-p{name}"
        seen.see([copy])


def test_a_pod_counts_once_however_often_it_is_tried() -> None:
    seen = PodShapes()
    for _ in range(3):
        see(seen, 0, 2, milli=700)
    see(seen, 2, 1, devices=1)
    assert counts(seen) == {SHARE: 2, WHOLE: 1}
    assert [each.shape for each in seen.typical] == [SHARE, WHOLE]


def test_pods_that_others_placed_are_found_on_nodes_and_counted_once() -> None:
    cache = gpu_cache([gpu_node("a", 4)], [gpu_pod("old", milli=700, on="a")])
    seen = cache.snapshot.pod_shapes
    see(seen, 0, 1, devices=1)
    for _ in range(2):
        seen.follow(cache.snapshot)
    cache.set_pod(parse_pod(gpu_pod("p0", devices=1, on="a")))
    cache.set_pod(parse_pod(gpu_pod("elsewhere", milli=700, on="a")))
    cache.update_snapshot()
    seen.follow(cache.snapshot)
    assert counts(seen) == {SHARE: 2, WHOLE: 1}


def test_what_is_tried_out_on_a_snapshot_is_not_counted() -> None:
    cache = gpu_cache([gpu_node("a", 4)])
    seen = cache.snapshot.pod_shapes
    with cache.trial() as trial:
        trial.add_pod(gpu_pod_info("supposed", milli=700), "a")
        seen.follow(cache.snapshot)
    seen.follow(cache.snapshot)
    assert seen.count == 0


def test_pods_that_come_with_their_nodes_are_left_out() -> None:
    seen = PodShapes()
    for kind, version in (("DaemonSet", "apps/v1"), ("Node", "v1"), ("ReplicaSet", "apps/v1")):
        pod = gpu_pod(kind.lower(), milli=700)
        owner = {"apiVersion": version, "kind": kind, "name": "x", "uid": "u", "controller": True}
        pod["metadata"]["ownerReferences"] = [owner]
        seen.see([parse_pod(pod)])
    assert counts(seen) == {SHARE: 1}


def test_what_is_asked_for_lately_counts_most() -> None:
    seen = PodShapes()
    see(seen, 0, 1, milli=700)
    see(seen, 1, HALF_LIFE_PODS, devices=1)
    assert counts(seen)[SHARE] == 0.5
    assert [each.shape for each in seen.typical] == [WHOLE]


def test_made_up_shapes_take_the_place_of_the_rarest_alone() -> None:
    seen = PodShapes()
    see(seen, 0, 200, milli=700)
    for number in range(2 * MAX_SHAPES):
        pod = gpu_pod(f"made-up-{number}", devices=1, cpu=f"{number + 2}m")
        seen.see([parse_pod(pod)])
    assert len(seen.shapes()) == MAX_SHAPES
    assert len(seen.typical) == MAX_TYPICAL_SHAPES
    assert seen.typical[0].shape == SHARE


def test_what_no_node_could_hold_is_not_counted() -> None:
    seen = PodShapes()
    for number, pod in enumerate(
        [
            gpu_pod("cpu", milli=700, cpu="1000000"),
            gpu_pod("devices", devices=10**6),
            gpu_pod("both", devices=1, milli=700),
            gpu_pod("share", milli=1500),
        ]
    ):
        seen.see([parse_pod(pod)])
        assert seen.count == 0, number


def test_a_fork_knows_what_was_seen_and_goes_its_own_way() -> None:
    cache = gpu_cache([gpu_node("a", 4)])
    seen = cache.snapshot.pod_shapes
    see(seen, 0, 3, milli=700)
    fork = cache.fork().snapshot.pod_shapes
    see(fork, 3, 5, devices=1)
    see(seen, 3, 1, milli=700)
    assert [each.shape for each in fork.typical] == [SHARE]
    assert fork.count == 3
    assert counts(seen) == {SHARE: 4}


def test_a_fork_of_a_cluster_where_nothing_was_counted_yet_looks_itself() -> None:
    cache = gpu_cache([gpu_node("a", 4)], [gpu_pod("old", milli=700, on="a")])
    fork = cache.fork().snapshot
    fork.pod_shapes.follow(fork)
    assert [each.shape for each in fork.pod_shapes.typical] == [SHARE]
    assert cache.snapshot.pod_shapes.count == 0


def term(*models: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": MODEL_LABEL, "operator": "In", "values": list(models)}]}


def required(*terms: dict[str, Any]) -> dict[str, Any]:
    chosen = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}
    return {"affinity": {"nodeAffinity": chosen}}


@pytest.mark.parametrize(
    ("spec", "models"),
    [
        pytest.param({}, (), id="none"),
        pytest.param({"nodeSelector": {MODEL_LABEL: "T4"}}, ("T4",), id="selector"),
        pytest.param(required(term("V100", "T4")), ("T4", "V100"), id="affinity"),
        pytest.param(
            {"nodeSelector": {MODEL_LABEL: "T4"}, **required(term("V100", "T4"))},
            ("T4",),
            id="what both admit",
        ),
        pytest.param(
            required(term("T4"), {"matchExpressions": [{"key": "zone", "operator": "Exists"}]}),
            (),
            id="a term that admits all",
        ),
    ],
)
def test_the_models_that_a_pod_admits(spec: dict[str, Any], models: tuple[str, ...]) -> None:
    pod = gpu_pod("p", milli=700)
    pod["spec"].update(spec)
    assert gpu_shape(parse_pod(pod)) == GpuShape(1000, 700, 1, models)


def test_a_pod_without_gpus_has_no_models() -> None:
    pod = gpu_pod("p", cpu="2")
    pod["spec"]["nodeSelector"] = {MODEL_LABEL: "T4"}
    assert gpu_shape(parse_pod(pod)) == GpuShape(2000, 0, 0, ())
