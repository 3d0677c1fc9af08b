"""AccessibleNodesBySelector follow nodes that come, go, and change their labels."""

from collections.abc import Callable

import pytest

from stellwerk.backend.cache import Cache
from stellwerk.plugins.volume_binding.accessible_nodes import AccessibleNodesBySelector
from stellwerk_kube.node import parse_node
from stellwerk_kube.selectors import NodeSelector, NodeSelectorTerm, Requirement
from tests.support.builders import make_cache, make_node

ZONE = "topology.kubernetes.io/zone"
IN_Z1 = NodeSelector((NodeSelectorTerm((Requirement(ZONE, "In", frozenset({"z1"})),)),))


def small_cache() -> Cache:
    return make_cache(
        [make_node("a", zone="z1"), make_node("b", zone="z2"), make_node("c", zone="z1")]
    )


def many_come(cache: Cache) -> None:
    for i in range(20):
        cache.set_node(parse_node(make_node(f"n{i}", zone="z1" if i % 2 else "z2")))


@pytest.mark.parametrize(
    ("change", "reached"),
    [
        pytest.param(lambda _: None, {"a", "c"}, id="nothing changes"),
        pytest.param(
            lambda cache: cache.set_node(parse_node(make_node("b", zone="z1"))),
            {"a", "b", "c"},
            id="a node moves in",
        ),
        pytest.param(
            lambda cache: cache.set_node(parse_node(make_node("a", zone="z2"))),
            {"c"},
            id="a node moves out",
        ),
        pytest.param(
            lambda cache: cache.set_node(parse_node(make_node("a", zone="z1", cpu="9"))),
            {"a", "c"},
            id="a node stays",
        ),
        pytest.param(lambda cache: cache.remove_node("c"), {"a"}, id="a node goes"),
        pytest.param(
            many_come,
            {"a", "c", *(f"n{i}" for i in range(1, 20, 2))},
            id="more nodes come than are looked at one by one",
        ),
    ],
)
def test_rows_are_those_of_the_nodes_now(
    change: Callable[[Cache], object], reached: set[str]
) -> None:
    cache, accessible = small_cache(), AccessibleNodesBySelector()
    nodes = accessible.of(IN_Z1)
    accessible.refresh(cache.snapshot)
    change(cache)
    accessible.refresh(cache.update_snapshot())
    assert set(cache.snapshot.names(nodes.rows.tolist())) == reached


def test_equal_selectors_share_a_reach() -> None:
    accessible = AccessibleNodesBySelector()
    assert accessible.of(IN_Z1) is accessible.of(NodeSelector(IN_Z1.terms))


def test_the_version_grows_only_when_nodes_change() -> None:
    cache, accessible = small_cache(), AccessibleNodesBySelector()
    version = accessible.refresh(cache.snapshot)
    assert accessible.refresh(cache.update_snapshot()) == version
    cache.remove_node("a")
    assert accessible.refresh(cache.update_snapshot()) > version


def test_another_snapshot_is_looked_at_anew() -> None:
    accessible = AccessibleNodesBySelector()
    nodes = accessible.of(IN_Z1)
    accessible.refresh(small_cache().snapshot)
    accessible.refresh(make_cache([make_node("x", zone="z2"), make_node("y", zone="z1")]).snapshot)
    assert nodes.rows.tolist() == [1]
