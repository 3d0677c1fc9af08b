"""Profiles come, change, collide, break and go: what serves, what is said, and what pods notice."""

import asyncio
import logging
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from importlib.metadata import EntryPoint
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, ClassVar

import pytest
from pydantic import BaseModel

from stellwerk.backend.queued_pod import Place
from stellwerk.framework.types import OK, Status
from stellwerk.models.pod import PodInfo
from stellwerk.plugins import assembly, registry
from stellwerk.profiles.entry import ProfileEntry
from stellwerk.profiles.loader import NewPlugins
from stellwerk.profiles.spec.plugin_description import ExtensionPoint
from stellwerk.profiles.spec.profile import OPERATOR_LABEL
from stellwerk.profiles.spec.status_fields import SchedulerProfileStatus
from stellwerk.world.decide import decide
from stellwerk.world.loop import TIMERS
from stellwerk_kube.compatibility import Compatibility, Release
from stellwerk_kube.json_values import JsonObject
from tests.support.builders import make_node, make_pod, pod_info
from tests.support.in_process import InProcess, eventually, make_profile, quiet, running

if TYPE_CHECKING:
    from stellwerk.profiles.spec.plugin_description import PluginDescription


UNKNOWN: JsonObject = {"plugins": {"score": {"enabled": [{"name": "Foo"}]}}}
PACKING: JsonObject = {
    "pluginConfig": [
        {
            "name": "NodeResourcesFit",
            "args": {
                "scoringStrategy": {
                    "type": "MostAllocated",
                    "resources": [{"name": "cpu", "weight": 1}],
                }
            },
        }
    ]
}
OTHER_SORT: JsonObject = {
    "plugins": {"queueSort": {"enabled": [{"name": "ByName"}], "disabled": [{"name": "*"}]}}
}


class ByName:
    """A QueueSort plugin from outside Stellwerk."""

    name: ClassVar[str] = "ByName"
    args_model: ClassVar[type[BaseModel] | None] = None

    def __init__(self, _: object, __: object) -> None:
        self.broken = False

    def sort_key(self, pod: PodInfo, _: float) -> tuple[float, ...]:
        return (float(ord(pod.name[0])),)


class Gate:
    """A PreEnqueue plugin that raises until it is mended."""

    name: ClassVar[str] = "Gate"
    args_model: ClassVar[type[BaseModel] | None] = None
    broken: ClassVar[bool] = True

    def __init__(self, _: object, __: object) -> None:
        """Take no arguments."""

    def events_to_register(self) -> tuple[()]:
        return ()

    def pre_enqueue(self, _: PodInfo) -> Status:
        if type(self).broken:
            raise RuntimeError("no answer")
        return OK


class Fussy:
    """A plugin that refuses to be made."""

    name: ClassVar[str] = "Fussy"
    args_model: ClassVar[type[BaseModel] | None] = None

    def __init__(self, _: object, __: object) -> None:
        raise RuntimeError("not with me")

    def pre_enqueue(self, _: PodInfo) -> Status:
        return OK


OWN = {plugin.name: plugin for plugin in (ByName, Gate, Fussy)}


@pytest.fixture(autouse=True)
def own_plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the plugins of this module known."""
    known: dict[str, PluginDescription] = dict(registry.known_plugins())
    known |= {name: registry.describe(plugin) for name, plugin in OWN.items()}
    instantiate = registry.instantiate

    def make(name: str, handle: Any, args: BaseModel | None) -> Any:
        return OWN[name](handle, args) if name in OWN else instantiate(name, handle, args)

    monkeypatch.setattr("stellwerk.wiring.known_plugins", lambda: known)
    monkeypatch.setattr(assembly, "instantiate", make)
    monkeypatch.setattr(Gate, "broken", True)


@pytest.fixture
def world() -> InProcess:
    return InProcess()


def condition(status: JsonObject, type_: str) -> JsonObject:
    by_type: dict[str, JsonObject] = {each["type"]: each for each in status["conditions"]}
    return by_type[type_]


def verdict(world: InProcess, name: str) -> tuple[str, str, str, str]:
    """(Accepted, its reason, Active, its reason)."""
    status = world.profile(name)
    accepted, active = condition(status, "Accepted"), condition(status, "Active")
    return accepted["status"], accepted["reason"], active["status"], active["reason"]


VALID = ("True", "Valid", "True", "Serving")


@dataclass(frozen=True)
class Step:
    """An edit, and what the profiles look like after it."""

    change: JsonObject | str
    """A profile to apply, or the name of one to delete."""
    verdicts: dict[str, tuple[str, str, str, str]]
    serving: set[str]


FLOWS = [
    pytest.param(
        [Step(make_profile("a"), {"a": VALID}, {"a"})],
        id="a good profile serves",
    ),
    pytest.param(
        [
            Step(
                make_profile("a", **UNKNOWN), {"a": ("False", "Invalid", "False", "Invalid")}, set()
            )
        ],
        id="a bad profile does not",
    ),
    pytest.param(
        [
            Step(make_profile("a"), {"a": VALID}, {"a"}),
            Step(
                make_profile("a", generation=2, **UNKNOWN),
                {"a": ("False", "Invalid", "True", "LastGoodVersion")},
                {"a"},
            ),
            Step(
                make_profile("a", generation=3, weights={"NodeResourcesFit": 2}),
                {"a": VALID},
                {"a"},
            ),
        ],
        id="the last good version goes on until the edit is mended",
    ),
    pytest.param(
        [
            Step(make_profile("a"), {"a": VALID}, {"a"}),
            Step(
                make_profile(
                    "a", generation=2, plugins={"multiPoint": {"enabled": [{"name": "Fussy"}]}}
                ),
                {"a": ("False", "Invalid", "True", "LastGoodVersion")},
                {"a"},
            ),
        ],
        id="a plugin that refuses to be made counts as a bad edit",
    ),
    pytest.param(
        [
            Step(make_profile("new", "s", created=9), {"new": VALID}, {"s"}),
            Step(
                make_profile("old", "s", created=1),
                {
                    "old": VALID,
                    "new": ("False", "SchedulerNameTaken", "False", "SchedulerNameTaken"),
                },
                {"s"},
            ),
            Step("old", {"new": VALID}, {"s"}),
        ],
        id="the older of two profiles with one schedulerName wins, and the loser recovers",
    ),
    pytest.param(
        [
            Step(make_profile("b", "s"), {"b": VALID}, {"s"}),
            Step(
                make_profile("a", "s"),
                {"a": VALID, "b": ("False", "SchedulerNameTaken", "False", "SchedulerNameTaken")},
                {"s"},
            ),
        ],
        id="of profiles of one age the first by name wins",
    ),
    pytest.param(
        [
            Step(make_profile("a", created=1), {"a": VALID}, {"a"}),
            Step(
                make_profile("b", created=2, **OTHER_SORT),
                {"b": ("False", "QueueSortDiffers", "False", "QueueSortDiffers")},
                {"a"},
            ),
            Step("a", {"b": VALID}, {"b"}),
        ],
        id="a younger profile with another queue sort waits until the older one is gone",
    ),
    pytest.param(
        [
            Step(make_profile("a", created=1), {"a": VALID}, {"a"}),
            Step(make_profile("b", created=2), {"b": VALID}, {"a", "b"}),
            Step(
                make_profile("b", created=2, generation=2, **OTHER_SORT),
                {"a": VALID, "b": ("False", "QueueSortDiffers", "True", "LastGoodVersion")},
                {"a", "b"},
            ),
            Step(
                make_profile("a", created=1, generation=2, **OTHER_SORT),
                {"a": VALID, "b": VALID},
                {"a", "b"},
            ),
        ],
        id="an edit into a conflict leaves the last good version, and counts once that is over",
    ),
    pytest.param(
        [
            Step(make_profile("a", created=1), {"a": VALID}, {"a"}),
            Step(make_profile("b", "a", created=2, **UNKNOWN), {"a": VALID}, {"a"}),
            Step(
                make_profile("b", "a", created=2, generation=2),
                {"b": ("False", "SchedulerNameTaken", "False", "SchedulerNameTaken")},
                {"a"},
            ),
        ],
        id="the reason of a refusal is that of the newest version",
    ),
]


@pytest.mark.parametrize("steps", FLOWS)
async def test_verdicts(world: InProcess, steps: list[Step]) -> None:
    for step in steps:
        if isinstance(step.change, str):
            world.delete("SchedulerProfile", step.change)
        else:
            world.apply(step.change)
        await world.status.write_changed()
        assert {name: verdict(world, name) for name in step.verdicts} == step.verdicts
        assert set(world.profiles.served) == step.serving


async def test_a_refusal_names_the_field_in_the_condition_and_in_an_event(world: InProcess) -> None:
    world.apply(make_profile("a", **UNKNOWN))
    await world.status.write_changed()
    message = condition(world.profile("a"), "Accepted")["message"]
    assert message.startswith('spec.plugins.score.enabled[0].name: unknown plugin "Foo"')
    assert world.notes.about("a") == [("Warning", "Invalid", message)]


async def test_one_verdict_is_one_event_and_recovery_is_told_too(world: InProcess) -> None:
    world.apply(make_profile("a", **UNKNOWN))
    for _ in range(3):
        await world.status.write_changed()
        world.clock.advance(10)
    world.apply({**make_profile("a", generation=2), "status": world.profile("a")})
    await world.status.write_changed()
    assert [reason for _, reason, _ in world.notes.about("a")] == ["Invalid", "Valid"]


async def test_a_remark_is_part_of_the_accepted_condition(world: InProcess) -> None:
    world.apply(make_profile("a", percentageOfNodesToScore=250))
    await world.status.write_changed()
    message = condition(world.profile("a"), "Accepted")["message"]
    assert message == "spec.percentageOfNodesToScore: 250 acts as 100"


async def test_the_last_good_version_survives_a_restart() -> None:
    before = InProcess()
    before.apply(make_profile("a", weights={"NodeResourcesFit": 7}))
    await before.status.write_changed()
    status = before.profile("a")

    after = InProcess()
    after.apply({**make_profile("a", generation=2, **UNKNOWN), "status": status})
    await after.status.write_changed()
    assert verdict(after, "a") == ("False", "Invalid", "True", "LastGoodVersion")
    assert after.profiles.served["a"].loaded.spec.weights == {"NodeResourcesFit": 7}
    assert after.profile("a")["lastGoodGeneration"] == 1


async def test_a_last_good_spec_is_replaced_whole(world: InProcess) -> None:
    world.apply(make_profile("a", **PACKING))
    await world.status.write_changed()
    status = world.profile("a")
    edited = make_profile("a", generation=2, weights={"ImageLocality": 3})
    world.apply({**edited, "status": status})
    await world.status.write_changed()
    assert world.profile("a")["lastGoodSpec"] == edited["spec"]


async def test_the_status_is_what_the_definition_says(world: InProcess) -> None:
    world.apply(make_profile("a"), make_node("n"), make_pod("p", scheduler_name="a"))
    world.profiles.served["a"].activity.last_decision_seconds = world.clock.monotonic()
    await world.status.write_changed()
    status = SchedulerProfileStatus.model_validate(world.profile("a"))
    assert status.observed_generation == 1
    assert status.pending_pods is not None
    assert (status.pending_pods.total, status.pending_pods.active) == (1, 1)
    assert status.last_decision_time == "2026-01-01T00:00:00Z"


async def test_pending_pods_are_counted_by_profile_and_queue(world: InProcess) -> None:
    world.apply(make_profile("a"), make_profile("b"))
    world.apply(
        make_pod("a1", scheduler_name="a"),
        make_pod("b1", scheduler_name="b"),
        make_pod("b2", scheduler_name="b", schedulingGates=[{"name": "wait"}]),
    )
    await world.status.write_changed()
    counts = {name: world.profile(name)["pendingPods"] for name in ("a", "b")}
    nothing = {"active": 0, "backoff": 0, "unschedulable": 0, "gated": 0}
    assert counts == {
        "a": {**nothing, "total": 1, "active": 1},
        "b": {**nothing, "total": 2, "active": 1, "gated": 1},
    }


async def test_counts_are_written_every_few_seconds_and_only_when_they_changed(
    world: InProcess,
) -> None:
    writes = world.client.requests
    world.apply(make_profile("a"))
    await world.status.write_changed()
    assert len(writes) == 1
    world.apply(make_pod("p", scheduler_name="a"))
    await world.status.write_changed()
    assert len(writes) == 1, "a write has just been made"
    world.clock.advance(3)
    await world.status.write_changed()
    assert len(writes) == 2
    world.clock.advance(100)
    await world.status.write_changed()
    assert len(writes) == 2, "nothing changed"


async def test_a_verdict_does_not_wait_for_the_counts(world: InProcess) -> None:
    world.apply(make_profile("a"))
    await world.status.write_changed()
    world.apply({**make_profile("a", generation=2, **UNKNOWN), "status": world.profile("a")})
    await world.status.write_changed()
    assert verdict(world, "a")[0] == "False"


async def test_who_may_not_write_writes_nothing(world: InProcess) -> None:
    world.status.may_write = lambda: False
    world.apply(make_profile("a", **UNKNOWN))
    await world.status.write_changed()
    assert world.client.requests == []
    assert world.notes.events == []


async def test_draws_of_a_profile_with_a_seed_are_recorded_and_repeat_themselves() -> None:
    chosen = []
    for _ in range(2):
        world = InProcess()
        world.apply(make_profile("a", tieBreakSeed=7), *(make_node(f"n{n}") for n in range(50)))
        world.cache.update_snapshot()
        pod = pod_info("p", scheduler_name="a")
        profile = world.profiles.of(pod)
        assert profile is not None
        decisions = [decide(world.operator.world, pod, profile) for _ in range(3)]
        chosen.append([(each.node_name, each.draws) for each in decisions])
    assert chosen[0] == chosen[1]
    assert len({node_name for node_name, _ in chosen[0]}) > 1
    assert all(among == 50 for _, ((_, among),) in chosen[0])


async def test_an_echo_of_the_status_changes_nothing(world: InProcess) -> None:
    world.apply(make_profile("a"))
    framework = world.profiles.served["a"].framework
    world.apply({**make_profile("a"), "status": {"scheduledPods": 3}})
    assert world.profiles.served["a"].framework is framework


async def test_what_serves_is_made_anew_for_the_profile_that_changed_alone(
    world: InProcess,
) -> None:
    for name in ("a", "b"):
        world.apply(make_profile(name))
    before = world.profiles.served
    world.apply(make_profile("b", generation=2, weights={"NodeResourcesFit": 2}))
    after = world.profiles.served
    assert after["a"] is before["a"]
    assert after["b"].loaded.generation == 2


async def test_instances_with_equal_arguments_are_kept(world: InProcess) -> None:
    world.apply(make_profile("a"))
    before = world.profiles.served["a"].framework
    world.apply(make_profile("a", generation=2, **PACKING))
    after = world.profiles.served["a"].framework
    old = {plugin.name: plugin for each in before.plugins.values() for plugin in each}
    new = {plugin.name: plugin for each in after.plugins.values() for plugin in each}
    assert {name for name in new if new[name] is not old[name]} == {"NodeResourcesFit"}


async def test_a_recreated_profile_does_not_inherit_from_the_one_before(world: InProcess) -> None:
    world.apply(make_profile("a"))
    other = make_profile("a", **UNKNOWN)
    other["metadata"]["uid"] = "another"
    world.apply(other)
    await world.status.write_changed()
    assert verdict(world, "a") == ("False", "Invalid", "False", "Invalid")
    assert "a" not in world.profiles.served


async def test_pods_of_a_deleted_profile_wait_with_a_condition_and_are_taken_up_again() -> None:
    async with running() as world:
        world.apply(make_profile("a"), make_node("n", cpu="1"))
        world.apply(make_pod("big", cpu="2", scheduler_name="a"))
        await eventually(lambda: world.condition("big"))
        world.delete("SchedulerProfile", "a")
        assert "uid-default-big" not in world.queue.entries
        message = 'no SchedulerProfile serves schedulerName "a" any more'
        await eventually(lambda: world.condition("big") == ("SchedulerError", message))
        world.apply(make_node("m", cpu="4"))
        await quiet()
        assert world.node_of("big") is None
        world.apply(make_profile("a"))
        await eventually(lambda: world.node_of("big") == "m")


async def test_pods_of_others_are_told_nothing(world: InProcess) -> None:
    world.apply(make_profile("a"), make_pod("theirs", scheduler_name="other"))
    world.delete("SchedulerProfile", "a")
    await quiet()
    assert world.condition("theirs") is None
    assert "uid-default-theirs" in world.operator.without_profile.pods


async def test_a_pod_in_flight_when_its_profile_goes_is_bound() -> None:
    async with running() as world:
        released = asyncio.Event()
        bind = world.client.bind

        async def slow_bind(*args: str) -> None:
            await released.wait()
            await bind(*args)

        world.client.bind = slow_bind  # type: ignore[method-assign, assignment]
        world.apply(make_profile("a"), make_node("n"), make_pod("p", scheduler_name="a"))
        await eventually(lambda: world.queue.place("uid-default-p") is Place.BINDING)
        world.delete("SchedulerProfile", "a")
        await quiet()
        released.set()
        await eventually(lambda: world.node_of("p") == "n")
        assert world.condition("p") is None
        assert world.notes.about("p")[-1][1] == "Scheduled"


async def test_a_pod_whose_binding_fails_after_its_profile_went_is_laid_down() -> None:
    async with running() as world:
        released = asyncio.Event()

        async def failing_bind(*_: str) -> None:
            await released.wait()
            raise OSError("gone")

        world.client.bind = failing_bind  # type: ignore[method-assign, assignment]
        world.apply(make_profile("a"), make_node("n"), make_pod("p", scheduler_name="a"))
        await eventually(lambda: world.queue.place("uid-default-p") is Place.BINDING)
        world.delete("SchedulerProfile", "a")
        released.set()
        await eventually(lambda: "uid-default-p" in world.operator.without_profile.pods)
        await eventually(lambda: world.condition("p"))
        assert world.condition("p") == (
            "SchedulerError",
            'no SchedulerProfile serves schedulerName "a" any more',
        )
        assert "uid-default-p" not in world.cache.assumed_pods


async def test_pods_rejected_under_the_old_version_are_retried_under_the_new_one() -> None:
    async with running() as world:
        world.apply(make_profile("a"), make_node("n", unschedulable=True))
        world.apply(make_pod("p", scheduler_name="a"))
        await eventually(lambda: world.condition("p"))
        world.clock.advance(5)
        without = {"filter": {"disabled": [{"name": "NodeUnschedulable"}]}}
        world.apply(make_profile("a", generation=2, plugins=without))
        await eventually(lambda: world.node_of("p") == "n")


async def test_another_queue_sort_puts_waiting_pods_in_another_order(world: InProcess) -> None:
    world.apply(make_profile("a"))
    for name in ("c", "b", "a"):
        world.apply(make_pod(name, scheduler_name="a"))
    queue = world.queue
    names = ("a", "b", "c")
    assert [queue.position(f"uid-default-{name}") for name in names] == [2, 1, 0]
    world.apply(make_profile("a", generation=2, **OTHER_SORT))
    assert [queue.position(f"uid-default-{name}") for name in names] == [0, 1, 2]


async def test_a_gate_that_raises_gates_the_pod_under_its_name_and_is_asked_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with running() as world:
        with caplog.at_level(logging.ERROR):
            enabled = {"multiPoint": {"enabled": [{"name": "Gate"}]}}
            world.apply(make_profile("a", plugins=enabled), make_node("n"))
            world.apply(make_pod("p", scheduler_name="a"))
        entry = world.queue.entries.get("uid-default-p")
        assert entry is not None
        assert (entry.place, entry.gating_plugin) == (Place.GATED, "Gate")
        assert "PreEnqueue of Gate failed" in caplog.text
        Gate.broken = False
        for timer in TIMERS:
            timer.act(world.operator.world)
        await eventually(lambda: world.node_of("p") == "n")


async def test_a_sort_that_raises_falls_back_to_priority_and_time(
    world: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> tuple[float, ...]:
        raise RuntimeError("no order")

    monkeypatch.setattr(ByName, "sort_key", broken)
    world.apply(make_profile("a", **OTHER_SORT))
    world.apply(
        make_pod("low", scheduler_name="a"), make_pod("high", scheduler_name="a", priority=5)
    )
    queue = world.queue
    assert [queue.position(f"uid-default-{name}") for name in ("high", "low")] == [0, 1]


async def test_a_seed_repeats_the_choice_among_equal_nodes() -> None:
    async def choices(seed: int) -> list[str | None]:
        async with running() as world:
            world.apply(make_profile("a", tieBreakSeed=seed))
            world.apply(*(make_node(f"n{number}", cpu="64") for number in range(16)))
            names = [f"p{number}" for number in range(12)]
            for name in names:
                world.apply(make_pod(name, scheduler_name="a"))
            await eventually(lambda: all(world.node_of(name) for name in names))
            return [world.node_of(name) for name in names]

    assert await choices(7) == await choices(7)
    assert await choices(7) != await choices(8)


async def test_default_constraints_beyond_the_complexity_of_a_pod_are_refused(
    world: InProcess,
) -> None:
    def spec(count: int) -> JsonObject:
        constraints = [
            {"maxSkew": 1, "topologyKey": f"k{number}", "whenUnsatisfiable": "ScheduleAnyway"}
            for number in range(count)
        ]
        args = {"defaultingType": "List", "defaultConstraints": constraints}
        return {"pluginConfig": [{"name": "PodTopologySpread", "args": args}]}

    world.apply(make_profile("many", **spec(201)), make_profile("few", **spec(200)))
    await quiet(20)
    entries = world.operator.loader.entries
    assert entries["few"].refusal is None
    refusal = entries["many"].refusal
    assert refusal is not None
    assert refusal.message == (
        "spec.pluginConfig: defaultConstraints: too complex to schedule with: topology spread "
        "constraints count 10 each (2010, the limit is 2000)"
    )


SHAPED: JsonObject = {
    "pluginConfig": [
        {"name": "VolumeBinding", "args": {"shape": [{"utilization": 50, "score": 5}]}}
    ]
}


async def test_auto_follows_the_server_and_a_named_release_does_not() -> None:
    world = InProcess()
    world.apply(make_profile("a"), make_profile("b", compatibility="1.36"))
    before = dict(world.profiles.served)
    world.operator.loader.follow(Compatibility.with_server(Release.V1_37))
    releases = {
        name: served.compatibility.release for name, served in world.profiles.served.items()
    }
    assert releases == {"a": Release.V1_37, "b": Release.V1_36}
    assert world.profiles.served["a"].framework is not before["a"].framework
    assert world.profiles.served["b"].framework is before["b"].framework
    plugins = world.profiles.served["a"].framework.plugins[ExtensionPoint.FILTER]
    assert not {*plugins} & {*before["a"].framework.plugins[ExtensionPoint.FILTER]}


async def test_an_argument_of_a_later_release_is_refused_until_the_server_has_it() -> None:
    world = InProcess()
    world.apply(make_profile("a", **SHAPED))
    assert world.profiles.refusals["a"].endswith(
        "spec.pluginConfig[0].args.shape: not supported: volume capacity is not scored"
    )
    world.operator.loader.follow(Compatibility.with_server(Release.V1_37))
    assert list(world.profiles.served) == ["a"]
    assert world.profiles.refusals == {}


async def test_a_fork_decides_as_its_world_does() -> None:
    world = InProcess()
    world.operator.loader.follow(Compatibility.with_server(Release.V1_37))
    world.apply(make_profile("a"))
    fork = world.operator.world.fork(Random(0))
    assert fork.profiles.compatibility == world.profiles.compatibility
    assert fork.profiles.served["a"].compatibility == world.profiles.served["a"].compatibility


SOURCE = """
from stellwerk.framework.node_adapter import NodeFilterPlugin

class {name}(NodeFilterPlugin):
    name = "{name}"
    def filter_node(self, pod, node):
        return None if node.name == "late" else "not the late one"
"""


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory of packages that this process looks into."""
    known = set(sys.modules)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    for name in set(sys.modules) - known:
        del sys.modules[name]


def install(site: Path, name: str, source: str = SOURCE) -> None:
    """What pip leaves behind: a module, and metadata with an entry point."""
    (site / f"{name.lower()}.py").write_text(source.format(name=name))
    information = site / f"{name.lower()}-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    points = f"[stellwerk.plugins]\n{name} = {name.lower()}:{name}\n"
    (information / "entry_points.txt").write_text(points)


def test_several_operators_serve_the_profiles_with_their_label() -> None:
    unnamed, named = InProcess(), InProcess()
    named.operator.loader.operator_name = "gpu"
    theirs = make_profile("packing")
    for world in (unnamed, named):
        world.apply(make_profile("spreading"))
        theirs["metadata"]["labels"] = {OPERATOR_LABEL: "gpu"}
        world.apply(theirs)
    assert set(unnamed.profiles.served) == {"spreading"}
    assert set(named.profiles.served) == {"packing"}
    theirs = {**theirs, "metadata": {**theirs["metadata"], "labels": {OPERATOR_LABEL: "other"}}}
    named.apply(theirs)
    assert set(named.profiles.served) == set()
    assert "packing" not in named.operator.loader.entries


def accepted(world: InProcess, profile: str) -> bool:
    return world.operator.loader.entries[profile].refusal is None


def naming(plugin: str) -> dict[str, Any]:
    return {"plugins": {"filter": {"enabled": [{"name": plugin}]}}}


async def test_the_profile_serves_once_the_package_is_there(site: Path) -> None:
    async with running() as world:
        finder = NewPlugins(world.operator.loader)
        world.apply(make_node("early"), make_node("late"))
        world.apply(make_profile("a", **naming("LatePlugin")), make_pod("web", scheduler_name="a"))
        assert not accepted(world, "a")
        assert world.operator.loader.lacks_plugins()
        await finder.look()
        assert not accepted(world, "a")
        install(site, "LatePlugin")
        await finder.look()
        assert accepted(world, "a")
        assert not world.operator.loader.lacks_plugins()
        await eventually(lambda: world.node_of("web") == "late")


async def test_a_package_that_is_broken_is_named_once_and_harms_nothing(
    site: Path, caplog: pytest.LogCaptureFixture
) -> None:
    world = InProcess()
    finder = NewPlugins(world.operator.loader)
    world.apply(make_profile("a"), make_profile("b", **naming("BrokenPlugin")))
    install(site, "BrokenPlugin", "raise OSError('no such library')")
    for _ in range(3):
        await finder.look()
    assert not accepted(world, "b")
    assert accepted(world, "a")
    said = [line for line in caplog.messages if "BrokenPlugin" in line and "entry point" in line]
    assert len(said) == 1
    assert "OSError: no such library" in said[0]


async def test_nothing_is_read_while_no_profile_lacks_a_plugin(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module = "stellwerk.profiles.loader"
    monkeypatch.setattr(f"{module}.PLUGIN_SEARCH_SECONDS", 0.0)
    looks: list[int] = []
    world = InProcess()

    def installed() -> tuple[EntryPoint, ...]:
        looks.append(1)
        return ()

    finder = NewPlugins(world.operator.loader, installed)
    world.apply(make_profile("a"), make_profile("wrong", podMaxBackoffSeconds=0))
    task = asyncio.create_task(finder.run())
    for _ in range(20):
        await asyncio.sleep(0)
    assert looks == []
    world.apply(make_profile("b", **naming("NoSuchPlugin")))
    await eventually(lambda: looks)
    task.cancel()
    await asyncio.wait({task})


# --- many profiles ------------------------------------------------------------------------------

KINDS = [
    pytest.param({}, id="names of their own"),
    pytest.param(
        {"selector": {"schedulerNames": ["web"], "podSelector": {"matchLabels": {"a": "b"}}}},
        id="selectors of one schedulerName",
    ),
    pytest.param(
        {"extenders": [{"urlPrefix": "http://127.0.0.1:9", "filterVerb": "f"}]}, id="extenders"
    ),
    pytest.param({"shadowOf": "default", "schedulerName": None}, id="shadows of one profile"),
    pytest.param({"shadowOf": "nobody", "schedulerName": None}, id="shadows of nothing"),
    pytest.param({"weights": {"Nothing": 1}}, id="profiles that are refused"),
]


def calls(act: Callable[[], None]) -> int:
    """The number of calls of Python functions, and of built-in ones, that an act makes."""
    made = 0

    def count(_: object, event: str, __: object) -> None:
        nonlocal made
        made += event in {"call", "c_call"}

    sys.setprofile(count)
    try:
        act()
    finally:
        sys.setprofile(None)
    return made


@pytest.mark.parametrize("spec", KINDS)
async def test_a_change_costs_what_the_changed_profile_does_however_many_others_there_are(
    world: InProcess, spec: JsonObject
) -> None:
    def applied(first: int, last: int) -> None:
        for number in range(first, last):
            profile = make_profile(f"p-{number}", created=1)
            written = {**profile["spec"], **spec}
            profile["spec"] = {key: value for key, value in written.items() if value is not None}
            world.apply(profile)

    world.apply(make_profile("default"))
    applied(0, 20)
    few = calls(lambda: applied(20, 25))
    applied(25, 150)
    many = calls(lambda: applied(150, 155))
    # As many again for what is compared in one call; it was eight times as much.
    assert many < 2 * few
    assert len(world.operator.loader.entries) == 156
    await world.operator.extenders.close()


async def test_many_profiles_of_one_name_are_compared_beside_other_work(world: InProcess) -> None:
    world.apply(make_profile("default"))
    cost = [
        calls(lambda: world.apply(make_profile(f"p-{number}", "web", created=1)))  # noqa: B023 called at once
        for number in range(200)
    ]
    assert max(cost[100:]) < max(cost[:64])
    await eventually(lambda: all(each.refusal for each in list(entries(world))[2:]))
    assert set(world.profiles.served) == {"default", "web"}
    assert world.profiles.served["web"].loaded.name == "p-0"
    world.delete("SchedulerProfile", "p-0")
    await eventually(lambda: world.profiles.served["web"].loaded.name == "p-1")
    assert "already served" in world.profiles.refusals["web"]


async def test_pods_of_another_profile_are_bound_while_hundreds_of_profiles_come() -> None:
    async with running() as world:
        world.apply(make_profile("stellwerk"), make_node("n", cpu="100"))
        for number in range(300):
            world.apply(make_profile(f"p-{number}", "web" if number % 2 else None, created=1))
            if number % 50 == 49:
                world.apply(make_pod(f"pod-{number}", scheduler_name="stellwerk"))
                await quiet()
                assert world.node_of(f"pod-{number}") == "n", "before the next profile comes"


def entries(world: InProcess) -> Iterable[ProfileEntry]:
    return world.operator.loader.entries.values()


@pytest.mark.parametrize("seed", range(12))
def test_to_look_at_all_profiles_anew_changes_nothing(world: InProcess, seed: int) -> None:
    """What is worked out for those that a change concerns is what holds for all."""
    random, loader = Random(seed), world.operator.loader
    names = ["a", "b", "c", "d", "e"]
    for step in range(60):
        name = random.choice(names)
        path_known = name in loader.entries
        if path_known and random.random() < 0.2:
            world.delete("SchedulerProfile", name)
        else:
            spec: JsonObject = random.choice([{}, {}, {}, OTHER_SORT, UNKNOWN, PACKING])
            profile = make_profile(
                name, random.choice(names[:3]), created=names.index(name), generation=step, **spec
            )
            if random.random() < 0.15:
                profile["spec"] = {"shadowOf": random.choice(names)}
            world.apply(profile)
        before = said(world)
        for each in loader.entries:
            loader._dependencies.outdated[each] = set()  # noqa: SLF001 as though all had changed
        loader._judge_some()  # noqa: SLF001
        assert said(world) == before


def said(world: InProcess) -> JsonObject:
    """What serves, why others do not, and what decides beside."""
    profiles, loader = world.profiles, world.operator.loader
    return {
        "served": {name: each.loaded for name, each in sorted(profiles.served.items())},
        "refusals": dict(sorted(profiles.refusals.items())),
        "objects": {name: (each.refusal, each.serving) for name, each in loader.entries.items()},
        "shadows": sorted(loader.shadows.by_name),
    }
