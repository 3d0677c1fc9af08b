"""Objects of any kind that are malformed, contradictory or malicious: other pods are scheduled.

A whole operator is shown odd pods, nodes, profiles and whatever else it watches, as watches show
them. Each costs itself at most: it is counted as malformed, refused in words, or decided with.
"""

import asyncio
from collections.abc import Callable
from copy import deepcopy
from typing import Any, Final

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stellwerk.handlers.delivery import Delivery
from stellwerk.handlers.watched_kinds import WATCHED
from stellwerk_kube.json_values import JsonObject
from tests.properties.models.test_odd_objects import DELETED, paths, rich_node, rich_pod, simple_pod
from tests.support.builders import make_node, make_pod
from tests.support.hostile_fields import OTHER_FIELDS, base, put
from tests.support.in_process import InProcess, make_profile, quiet, running

ODD: Final[tuple[Any, ...]] = (
    *(DELETED, None, "", "x", "\ud7ff\u202e", "\x1b[31m\x00", "a" * 5000, "NaN", "1e999999999"),
    *(0, -5, 10**18, 2**64 - 1, 1.5, -1e308, True),
    *([], [None], [5], ["x"], [[[]]], [{}], {}, {"a": None}, {"a": 5}, {"a": ["b"]}, {"": ""}),
    *("n1", "usual", "odd", ["n1", "n1"], "Exists", "Gt", "NotAnOperator", "-1", "9E"),
)


def rich_profile() -> JsonObject:
    return make_profile(
        "odd",
        created=5,
        percentageOfNodesToScore=50,
        weights={"NodeResourcesFit": 3},
        plugins={"score": {"disabled": [{"name": "ImageLocality"}], "enabled": []}},
        pluginConfig=[
            {"name": "PodTopologySpread", "args": {"defaultingType": "List"}},
            {"name": "InterPodAffinity", "args": {"hardPodAffinityWeight": 5}},
        ],
        podInitialBackoffSeconds=1,
        tieBreakSeed=3,
    )


def filled_object(name: str) -> JsonObject:
    """An object of another kind that says something in the field that the table fills."""
    return OTHER_FIELDS[name].filled("claim" if "claim" in name else "odd", size=1000)


def storage_class() -> JsonObject:
    obj = base("StorageClass", "hostile")
    put(obj, ("allowedTopologies",), [{"matchLabelExpressions": [{"key": "n", "values": ["4"]}]}])
    return obj


USUAL: Final[dict[str, Callable[[], JsonObject]]] = {
    "a pod": lambda: rich_pod("odd"),
    "a simple pod": lambda: simple_pod("odd"),
    "a pod on a node": lambda: put_in(rich_pod("odd"), ("spec", "nodeName"), "n1"),
    "a pod that is nominated": lambda: put_in(
        simple_pod("odd"), ("status", "nominatedNodeName"), "n1"
    ),
    "a node": lambda: rich_node("odd"),
    "a profile": rich_profile,
    "a StorageClass": storage_class,
    **{
        name: (lambda name=name: filled_object(name))  # type: ignore[misc]
        for name, field in OTHER_FIELDS.items()
        if field.kind != "SchedulerProfile"
    },
}


def put_in(obj: JsonObject, path: tuple[str | int, ...], value: Any) -> JsonObject:
    put(obj, path, value)
    return obj


@st.composite
def odd_objects(draw: st.DrawFn) -> list[JsonObject]:
    """Some of the usual objects, each with one to three values replaced or taken away."""
    objects = []
    for name in draw(st.lists(st.sampled_from(list(USUAL)), min_size=1, max_size=3)):
        obj = USUAL[name]()
        kind = obj["kind"]
        for _ in range(draw(st.integers(1, 3))):
            *above, last = draw(st.sampled_from(list(paths(obj))))
            place: Any = obj
            for step in above:
                place = place[step]
            value = draw(st.sampled_from(ODD))
            if value is DELETED:
                place.pop(last)
            else:
                place[last] = deepcopy(value)
        objects.append({**obj, "kind": kind})
    return objects


def uses_claim() -> JsonObject:
    """A pod that reads volumes, claims, classes and capacities."""
    return make_pod(
        "reader",
        volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "claim"}}],
        priority=10,
    )


def usual_pod(name: str) -> JsonObject:
    """A pod of another namespace that wants a node of its own choice."""
    return make_pod(name, namespace="other", nodeSelector={"kubernetes.io/hostname": "usual-node"})


class Watches:
    """The deliveries of every kind of an operator."""

    def __init__(self, world: InProcess) -> None:
        self.world = world
        handlers, self._version = world.operator.handlers, 0
        self._of = {
            watched.kind: Delivery(watched, handlers, world.metrics, lambda *_: None)
            for watched in WATCHED
        }

    def show(self, event_type: str, obj: JsonObject) -> None:
        self._version += 1
        copied = orjson.loads(orjson.dumps(obj))
        metadata = copied.get("metadata")
        if isinstance(metadata, dict):
            metadata["resourceVersion"] = str(self._version)
        self._of[obj["kind"]].deliver(event_type, copied)

    def failures(self) -> dict[str, float]:
        counted = self.world.metrics.handler_failures
        return {kind: counted.labels(kind).value for kind in self._of}


async def survives(odd: list[JsonObject]) -> None:
    async with running() as world:
        watches = Watches(world)
        world.apply(make_node("n1", cpu="8"), make_profile("default-scheduler"))
        await quiet(20)
        for obj in odd:
            watches.show("ADDED", obj)
        watches.show("ADDED", base("PersistentVolumeClaim", "claim"))
        watches.show("ADDED", uses_claim())
        world.apply(make_node("usual-node", cpu="64"))
        await quiet(20)
        world.apply(usual_pod("usual"))
        await quiet(50)
        for obj in odd:
            watches.show("MODIFIED", obj)
        world.clock.advance(120)
        await quiet(50)
        for obj in odd:
            watches.show("DELETED", obj)
        world.apply(usual_pod("last"))
        await quiet(50)
        assert not any(watches.failures().values()), watches.failures()
        for name in ("usual", "last"):
            stored = world.client.objects[f"/api/v1/namespaces/other/pods/{name}"]
            assert stored["spec"].get("nodeName") == "usual-node", name
        for _, _, _, note in world.notes.events:
            assert note.isprintable()
            assert len(note.encode()) <= 1024


@settings(deadline=None)
@given(odd_objects())
def test_what_is_beside_odd_objects_is_scheduled(odd: list[JsonObject]) -> None:
    asyncio.run(survives(odd))


@pytest.mark.parametrize("name", USUAL)
async def test_what_is_beside_usual_objects_is_scheduled(name: str) -> None:
    await survives([USUAL[name]()])
