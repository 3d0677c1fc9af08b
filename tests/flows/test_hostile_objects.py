"""No object holds the loop for long or leaves anything behind, however much it asks for."""

import logging
import time
from collections.abc import Callable
from typing import Any

import pytest

from stellwerk.models.complexity import DEFAULT_MAX_POD_COMPLEXITY
from stellwerk.models.pod import parse_pod
from stellwerk_kube.json_values import JsonObject
from tests.support.builders import make_node, make_pod
from tests.support.hostile_fields import POD_FIELDS
from tests.support.hostile_objects import OBJECTS
from tests.support.hostile_world import LoopMeter, hostile_world
from tests.support.in_process import make_profile, quiet, running
from tests.support.machine_speed import addition_seconds

NODES = 200
MOST_ADDITIONS = 10_000_000
"""The CPU time of so many: 400 ms where one takes 40 ns, four times the goal for 5,000 nodes."""
MOST_MIB = 5.0


SHOWN: dict[str, Callable[[], JsonObject]] = {
    **OBJECTS,
    "50,000 node names": lambda: POD_FIELDS["node names"].filled(size=1 << 19),
}
"""Those made by hand, and one that is bound, and not counted as complex."""


@pytest.mark.parametrize("name", SHOWN)
async def test_a_hostile_object(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # Records of the log keep what their exceptions have seen, for as long as the test lasts.
    monkeypatch.setattr(logging.root.manager, "disable", logging.CRITICAL)
    obj = SHOWN[name]()
    async with hostile_world(NODES) as world:
        cost = await world.cost_of(obj)
    assert cost.stall_ms < 1e3 * MOST_ADDITIONS * addition_seconds()
    assert cost.left_mib < MOST_MIB


async def test_a_pod_that_is_too_complex_rests_until_it_changes() -> None:
    entries = {f"key-{number}": "v" for number in range(3000)}
    async with running() as world:
        world.apply(make_node("n0"), make_profile("default-scheduler"))
        world.apply(make_pod("huge", nodeSelector=entries))
        await quiet(100)
        assert world.condition("huge") == (
            "Unschedulable",
            (
                "too complex to schedule: terms, expressions, values, constraints, tolerations, "
                "containers, ports, resources and volumes are too many "
                f"(3001, the limit is {DEFAULT_MAX_POD_COMPLEXITY})"
            ),
        )
        ((kind, reason, _),) = world.notes.about("huge")
        assert (kind, reason) == ("Warning", "FailedScheduling")
        world.apply(make_node("n1", labels=entries), make_pod("other"))
        world.clock.advance(60)
        await quiet(100)
        assert world.node_of("other"), "others are not held up"
        assert len(world.notes.about("huge")) == 1, "no change in the cluster is worth an attempt"
        world.apply(make_pod("huge", nodeSelector={"key-1": "v"}))
        world.clock.advance(60)
        await quiet(100)
        assert world.node_of("huge") == "n1"


async def test_a_bound_pod_counts_in_full_however_complex_it_is() -> None:
    entries = {f"key-{number}": "v" for number in range(3000)}
    huge = make_pod(
        "huge",
        node_name="n0",
        cpu="3",
        labels={"app": "a"},
        nodeSelector=entries,
        affinity={
            "podAntiAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [
                    {
                        "topologyKey": "kubernetes.io/hostname",
                        "labelSelector": {"matchLabels": {"app": f"b{number}"}},
                    }
                    for number in range(300)
                ]
            }
        },
    )
    async with running() as world:
        world.apply(make_node("n0", cpu="4"), make_profile("default-scheduler"))
        world.apply(huge)
        await quiet(100)
        world.apply(make_pod("large", cpu="2"), make_pod("repelled", labels={"app": "b299"}))
        world.apply(make_pod("small", cpu="100m"))
        await quiet(100)
        assert world.node_of("small") == "n0"
        assert world.condition("large") is not None
        assert world.condition("repelled") is not None


async def test_made_up_label_keys_of_many_pods_are_forgotten() -> None:
    async with running() as world:
        world.apply(make_node("n0"), make_profile("default-scheduler"))
        world.apply(make_pod("first", labels={"app": "a"}))
        await quiet(50)
        for number in range(600):
            term = {
                "topologyKey": "kubernetes.io/hostname",
                "labelSelector": {"matchLabels": {f"key-{number}": "v"}},
            }
            required = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
            world.apply(make_pod(f"p{number}", affinity={"podAntiAffinity": required}))
            await quiet(10)
            world.delete("Pod", f"p{number}")
        counts = world.cache.snapshot.pair_counts
        assert len(counts._label_sets_by_label) <= 256  # noqa: SLF001 no answer depends on it


async def test_what_is_said_of_a_pod_is_short_and_printable() -> None:
    resources = {f"example.com/resource-{number}": "1" for number in range(900)}
    async with running() as world:
        world.apply(make_node("n0"), make_profile("default-scheduler"))
        world.apply(make_pod("wants", requests={**resources, "example.com/\x1b[31m\n\u202e": "1"}))
        await quiet(100)
        reason, message = world.condition("wants") or ("", "")
        ((_, _, note),) = world.notes.about("wants")
        assert reason == "Unschedulable"
        for text in (message, note):
            assert text.startswith("0/1 nodes are available: ")
            assert text.isprintable()
            assert text.endswith(" ...")
            assert len(text.encode()) <= 1024


async def test_sidecars_cost_what_they_request_and_not_its_square() -> None:
    def sidecars(count: int) -> JsonObject:
        return make_pod(
            "p",
            node_name="n0",
            initContainers=[
                {
                    "name": f"c{number}",
                    "restartPolicy": "Always",
                    "resources": {"requests": {f"example.com/r{number}": "1"}},
                }
                for number in range(count)
            ],
        )

    def seconds(count: int) -> float:
        pod = sidecars(count)
        started = time.thread_time()
        parse_pod(pod)
        return time.thread_time() - started

    few = min(seconds(500) for _ in range(7))
    many = min(seconds(4000) for _ in range(7))
    assert many < 24 * few, "eight times as many, three times that for noise; a square is 64"


async def test_a_bound_pod_with_thousands_of_terms_costs_later_attempts_little() -> None:
    anti = {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": f"key-{number}", "labelSelector": {}} for number in range(20_000)
        ]
    }
    async with hostile_world(NODES) as hostile:
        world = hostile.world

        async def seconds(prefix: str) -> float:
            with LoopMeter() as meter:
                for number in range(10):
                    world.apply(make_pod(f"{prefix}{number}", cpu="1m", labels={"app": "a"}))
                    await quiet(20)
            assert all(world.node_of(f"{prefix}{number}") for number in range(10))
            return meter.total_seconds

        await seconds("warm")
        alone = await seconds("alone")
        world.apply(make_pod("huge", node_name="n0", affinity={"podAntiAffinity": anti}))
        await seconds("first")
        beside = await seconds("beside")
        assert beside < 4 * alone + 0.02
        held = world.cache.snapshot.pair_counts.held()[1]
        assert held == 20_000
        world.delete("Pod", "huge")
        await seconds("last")
        assert world.cache.snapshot.pair_counts.held()[1] == 0


async def test_an_image_of_many_monitors_keeps_its_node_from_others_until_it_is_gone() -> None:
    def user(name: str, monitors: list[str], **spec: Any) -> JsonObject:
        rbd = {"pool": "p", "image": "i", "monitors": monitors}
        return make_pod(name, volumes=[{"name": "v", "rbd": rbd}], **spec)

    async with running() as world:
        world.apply(make_node("n0"), make_profile("default-scheduler"))
        world.apply(user("huge", [f"m{number}" for number in range(5000)], node_name="n0"))
        world.apply(user("same", ["m4999"]), user("other", ["x"]))
        await quiet(100)
        assert world.node_of("other") == "n0"
        assert world.condition("same") is not None
        world.delete("Pod", "huge")
        world.clock.advance(60)
        await quiet(100)
        assert world.node_of("same") == "n0"


async def test_resources_that_a_node_and_a_pod_invent_together_go_with_the_node() -> None:
    resources = {f"example.com/resource-{number}": "1" for number in range(900)}
    async with running() as world:
        inventor = make_node("inventor")
        inventor["status"]["allocatable"] |= resources
        world.apply(make_node("n0"), inventor, make_profile("default-scheduler"))
        world.apply(make_pod("wants", requests=resources))
        world.apply(make_pod("other", cpu="100m"))
        await quiet(100)
        assert world.node_of("wants") == "inventor"
        snapshot = world.cache.snapshot
        assert len(snapshot.resource_row) > 900
        world.delete("Pod", "wants")
        world.delete("Node", "inventor")
        world.apply(make_pod("another", cpu="100m"))
        await quiet(100)
        assert world.node_of("another") == "n0"
        assert len(snapshot.resource_row) < 10
        assert len(snapshot.requested) < 50
