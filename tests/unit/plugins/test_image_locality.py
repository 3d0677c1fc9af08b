"""ImageLocality: thresholds, spread, names without a tag."""

from typing import Any

import pytest

from stellwerk.framework.types import CycleState
from stellwerk.models.pod import PodInfo
from stellwerk.plugins.image_locality import ImageLocality
from stellwerk.snapshot.snapshot import NodeView
from stellwerk_kube.node import parse_node
from tests.support.builders import make_cache, make_node, pod_info
from tests.support.plugin_runs import make_plugin, raw_scores, scores_on

MIB = 1 << 20


def holding(name: str, *images: tuple[str, int]) -> dict[str, Any]:
    return make_node(
        name, images=[{"names": [image], "sizeBytes": size * MIB} for image, size in images]
    )


def of_images(*images: str, **spec: Any) -> PodInfo:
    containers = [{"name": f"c{index}", "image": image} for index, image in enumerate(images)]
    return pod_info("p", containers=containers, **spec)


@pytest.mark.parametrize(
    ("mebibytes", "score"),
    [
        pytest.param(22, 0, id="below 23 MiB nothing counts"),
        pytest.param(23, 0, id="23 MiB is the zero of the scale"),
        pytest.param(512, 50, id="half way"),
        pytest.param(1000, 100, id="1000 MiB is the top"),
        pytest.param(5000, 100, id="more is not better"),
    ],
)
def test_the_scale_of_one_container(mebibytes: int, score: int) -> None:
    assert scores_on(ImageLocality, of_images("a:1"), [holding("n", ("a:1", mebibytes))]) == {
        "n": score
    }


def test_an_image_on_half_of_the_nodes_counts_half() -> None:
    nodes = [holding("has", ("a:1", 1000)), make_node("has not")]
    assert scores_on(ImageLocality, of_images("a:1"), nodes) == {"has": 48, "has not": 0}


def test_nodes_do_not_disagree_about_a_size_the_first_report_counts() -> None:
    nodes = [holding("first", ("a:1", 1000)), holding("second", ("a:1", 100))]
    assert scores_on(ImageLocality, of_images("a:1"), nodes) == {"first": 100, "second": 100}


def test_a_size_counts_until_no_node_holds_the_image() -> None:
    cache = make_cache([holding("first", ("a:1", 1000)), holding("second", ("a:1", 1000))])
    plugin, pod = make_plugin(ImageLocality, cache.snapshot), of_images("a:1")
    cache.set_node(parse_node(holding("first", ("a:1", 100))))
    cache.update_snapshot()
    assert raw_scores(plugin, pod, NodeView(cache.snapshot)) == {"first": 100, "second": 100}
    cache.set_node(parse_node(make_node("second")))
    cache.set_node(parse_node(make_node("first")))
    cache.update_snapshot()
    cache.set_node(parse_node(holding("first", ("a:1", 46))))
    cache.update_snapshot()
    assert raw_scores(plugin, pod, NodeView(cache.snapshot)) == {"first": 0, "second": 0}


@pytest.mark.parametrize("image", ["a", "registry.example:5000/a", "registry.example/a"], ids=str)
def test_a_name_without_tag_means_latest(image: str) -> None:
    node = holding("n", (f"{image}:latest", 1000))
    assert scores_on(ImageLocality, of_images(image), [node]) == {"n": 100}


def test_init_containers_and_image_volumes_count_but_volumes_raise_no_limit() -> None:
    volumes = [{"name": "v", "image": {"reference": "v:1"}}]
    pod = of_images("a:1", initContainers=[{"name": "i", "image": "i:1"}], volumes=volumes)
    node = holding("n", ("a:1", 500), ("i:1", 500), ("v:1", 500))
    # 1500 MiB on a scale from 23 MiB to 2000 MiB: two containers, the volume is none.
    assert scores_on(ImageLocality, pod, [node]) == {"n": 74}


def test_pods_whose_images_no_node_holds_share_a_key() -> None:
    cache = make_cache([holding("n", ("known:1", 100))])
    plugin = make_plugin(ImageLocality, cache.snapshot)
    one, other = of_images("x:1"), of_images("y:1", "z:1")
    assert plugin.score_key(CycleState(), one) == plugin.score_key(CycleState(), other)
    assert plugin.score_key(CycleState(), of_images("known:1")) != plugin.score_key(
        CycleState(), one
    )


def test_the_key_changes_when_another_node_gets_the_image() -> None:
    cache = make_cache([holding("has", ("a:1", 1000)), make_node("other")])
    plugin, pod = make_plugin(ImageLocality, cache.snapshot), of_images("a:1")
    before = plugin.score_key(CycleState(), pod)
    assert raw_scores(plugin, pod, NodeView(cache.snapshot)) == {"has": 48, "other": 0}
    cache.set_node(parse_node(holding("other", ("a:1", 1000))))
    cache.update_snapshot()
    assert plugin.score_key(CycleState(), pod) != before
    assert raw_scores(plugin, pod, NodeView(cache.snapshot)) == {"has": 100, "other": 100}
