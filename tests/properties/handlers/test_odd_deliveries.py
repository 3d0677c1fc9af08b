"""Odd objects and events on their way in cost themselves, and nothing that comes beside them."""

import asyncio
from collections.abc import Iterable
from copy import deepcopy
from typing import Any, Final

from hypothesis import given
from hypothesis import strategies as st

from stellwerk.handlers.delivery import Delivery
from stellwerk.handlers.watched_kinds import WATCHED, WatchedKind
from stellwerk_kube.json_values import JsonObject
from tests.properties.models.test_odd_objects import odd, rich_node, rich_pod
from tests.support.builders import make_node, make_pod
from tests.support.in_process import InProcess

PODS, NODES = WATCHED[0], WATCHED[1]
HOPELESS: Final[tuple[Any, ...]] = (None, "text", 5, [], {}, {"metadata": None}, {"metadata": "x"})
LONG: Final = "9" * 100_000


def with_version(obj: JsonObject, version: int) -> JsonObject:
    obj["metadata"] |= {"resourceVersion": str(version), "uid": f"uid-{obj['metadata']['name']}"}
    return obj


def absurd(obj: JsonObject) -> JsonObject:
    """The pod with a quantity of 100,000 digits."""
    obj["spec"]["containers"][0]["resources"] = {"requests": {"cpu": LONG}}
    return obj


ODD_PODS = st.one_of(
    odd(with_version(rich_pod("odd"), 5)),
    st.sampled_from(HOPELESS),
    st.builds(lambda: with_version(absurd(rich_pod("long")), 6)),
)
ODD_NODES = st.one_of(odd(with_version(rich_node("odd"), 5)), st.sampled_from(HOPELESS))
HOW = st.sampled_from(["listed", "ADDED", "MODIFIED", "DELETED", "ODD"])


def delivery(scheduler: InProcess, kind: WatchedKind) -> Delivery:
    return Delivery(kind, scheduler.operator.handlers, scheduler.metrics, lambda *_: None)


def listing(delivery: Delivery, odd_ones: Iterable[tuple[str, Any]], *items: JsonObject) -> None:
    """A list of odd ones and usual ones, with odd events while it is read."""
    delivery.begin_listing()
    for how, obj in odd_ones:
        if how == "listed":
            delivery.listed(deepcopy(obj))
        else:
            delivery.deliver(how, deepcopy(obj))
    for item in items:
        delivery.listed(with_version(item, 10))
    asyncio.run(delivery.end_listing())


@given(
    st.lists(st.tuples(HOW, ODD_PODS), max_size=4), st.lists(st.tuples(HOW, ODD_NODES), max_size=4)
)
def test_what_comes_beside_odd_objects_is_known(
    odd_pods: list[tuple[str, Any]], odd_nodes: list[tuple[str, Any]]
) -> None:
    scheduler = InProcess()
    pods, nodes = (delivery(scheduler, kind) for kind in (PODS, NODES))
    listing(nodes, odd_nodes, make_node("n1", cpu="8"))
    listing(pods, odd_pods, make_pod("a", node_name="n1", cpu="1"))
    # A first list is passed on item by item, a later one as a whole.
    listing(nodes, odd_nodes, make_node("n1", cpu="8"), make_node("n2", cpu="8"))
    listing(
        pods,
        odd_pods,
        make_pod("a", node_name="n1", cpu="1"),
        make_pod("b", node_name="n2", cpu="1"),
    )
    assert {"n1", "n2"} <= {node.name for node in scheduler.cache.nodes()}
    assert {"uid-a", "uid-b"} <= {pod.uid for pod in scheduler.cache.pods()}
    assert scheduler.metrics.handler_failures.labels("Pod").value == 0
    assert scheduler.metrics.handler_failures.labels("Node").value == 0
    scheduler.cache.update_snapshot()


@given(st.lists(st.tuples(HOW, ODD_PODS), min_size=1, max_size=4))
def test_deleting_all_leaves_nothing(odd_pods: list[tuple[str, Any]]) -> None:
    scheduler = InProcess()
    pods = delivery(scheduler, PODS)
    listing(pods, odd_pods)
    listing(pods, [])
    assert pods.known == 0
    assert not list(scheduler.cache.pods())
