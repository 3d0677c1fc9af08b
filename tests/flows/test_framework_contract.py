"""Every extension point's contract, with scripted plugins in a whole operator and skipped time."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from stellwerk.backend.queued_pod import Place
from stellwerk.framework.interface import PermitResult, PreFilterResult
from stellwerk.framework.types import OK, SKIP, Code, FilterResult, Status
from stellwerk_kube.clock import VirtualClock
from stellwerk_kube.errors import Conflict, Forbidden, NotFound
from tests.support.builders import make_node, make_pod
from tests.support.in_process import InProcess, eventually, make_profile, quiet, running
from tests.support.scripted_plugins import Script, installed
from tests.support.skipped_time import run_skipping

UNSCHEDULABLE = Status(Code.UNSCHEDULABLE, ("no luck",))
UNRESOLVABLE = Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, ("no luck",))
PENDING = Status(Code.PENDING, ("not yet",))
ERROR = Status(Code.ERROR, ("broken",))
WAIT = Status(Code.WAIT)
Flow = Callable[[InProcess, Script], Awaitable[None]]

PLUGINS = {
    "multiPoint": {"enabled": [{"name": "First"}, {"name": "Second"}]},
    "bind": {
        "enabled": [{"name": "First"}, {"name": "Second"}, {"name": "DefaultBinder"}],
        "disabled": [{"name": "*"}],
    },
}


@pytest.fixture
def script() -> Iterator[Script]:
    with installed() as script:
        yield script


@asynccontextmanager
async def world_with(clock: VirtualClock, nodes: int) -> AsyncIterator[InProcess]:
    async with running(clock) as world:
        world.apply(make_profile("default-scheduler", plugins=PLUGINS))
        world.apply(*(make_node(f"n{index}", cpu="4") for index in range(1, nodes + 1)))
        yield world


def play(flow: Flow, script: Script, *, nodes: int = 1) -> None:
    """Run a flow in skipped time; at its end nothing may be lost."""

    async def run(clock: VirtualClock) -> None:
        async with world_with(clock, nodes) as world:
            await flow(world, script)
            assert str(await world.operator.audit.run()) == "no discrepancies"

    run_skipping(run)


def pod(name: str, **fields: Any) -> dict[str, Any]:
    return make_pod(name, cpu="100m", **fields)


async def settled(world: InProcess, name: str) -> Place | None:
    """Where a pod is once nothing can happen without time passing."""
    await quiet()
    return world.queue.place(world.pod(name)["metadata"]["uid"])


def unreserved(script: Script) -> list[str]:
    """The plugins whose Unreserve was called, in order."""
    return [call.split(".")[0] for call in script.of("a") if call.endswith(".unreserve")]


def raising(*_: object) -> None:
    raise ZeroDivisionError("by zero")


async def forever(*_: object) -> Status:
    await asyncio.Event().wait()
    return OK


def everywhere(status: Status) -> Callable[..., FilterResult]:
    def rejected(_: object, __: object, nodes: Any) -> FilterResult:
        result = FilterResult.everywhere(len(nodes))
        return FilterResult(result.codes + 1, lambda _: status)

    return rejected


# --- order and Skip -----------------------------------------------------------------------------


def test_every_point_is_called_in_order_and_plugins_in_the_profiles_order(script: Script) -> None:
    async def flow(world: InProcess, script: Script) -> None:
        world.apply(pod("a"))
        await eventually(lambda: world.node_of("a"))
        await quiet()
        both = [
            "pre_enqueue",
            "pre_filter",
            "filter",
            "pre_score",
            "score",
            "normalize",
            "reserve",
            "permit",
            "pre_bind_pre_flight",
            "pre_bind",
            "bind",
            "post_bind",
        ]
        expected = [f"{name}.{point}" for point in both for name in ("First", "Second")]
        # Score and NormalizeScore alternate: a plugin's scores are normalised when it gave them.
        at = expected.index("First.score")
        expected[at : at + 4] = [
            f"{name}.{point}" for name in ("First", "Second") for point in ("score", "normalize")
        ]
        assert script.of("a") == expected

    play(flow, script, nodes=2)


def test_skip_leaves_out_the_coupled_point_of_that_plugin_alone(script: Script) -> None:
    script.answers |= {
        "First.pre_filter": PreFilterResult(SKIP),
        "Second.pre_score": SKIP,
        "First.pre_bind_pre_flight": SKIP,
    }

    async def flow(world: InProcess, script: Script) -> None:
        world.apply(pod("a"))
        await eventually(lambda: world.node_of("a"))
        called = set(script.of("a"))
        assert not called & {"First.filter", "Second.score", "First.pre_bind"}
        assert {"Second.filter", "First.score", "Second.pre_bind"} <= called

    play(flow, script, nodes=2)


def test_pre_filters_restrict_to_the_nodes_that_all_of_them_name(script: Script) -> None:
    script.answers |= {
        "First.pre_filter": PreFilterResult(OK, frozenset({"n1", "n2"})),
        "Second.pre_filter": PreFilterResult(OK, frozenset({"n2", "n3"})),
    }

    async def flow(world: InProcess, _: Script) -> None:
        world.apply(pod("a"))
        await eventually(lambda: world.node_of("a"))
        assert world.node_of("a") == "n2"

    play(flow, script, nodes=3)


# --- what statuses mean for the queue -----------------------------------------------------------


@pytest.mark.parametrize(
    ("point", "answer", "place", "condition"),
    [
        pytest.param(
            "pre_filter",
            PreFilterResult(UNSCHEDULABLE),
            Place.UNSCHEDULABLE,
            ("Unschedulable", "0/1 nodes are available: no luck."),
            id="PreFilter finds no room",
        ),
        pytest.param(
            "pre_filter",
            PreFilterResult(ERROR),
            Place.ERROR_BACKOFF,
            ("SchedulerError", 'running PreFilter plugin "First": broken'),
            id="PreFilter answers an error",
        ),
        pytest.param(
            "filter",
            everywhere(UNRESOLVABLE),
            Place.UNSCHEDULABLE,
            ("Unschedulable", "0/1 nodes are available: 1 no luck."),
            id="Filter finds no room for good",
        ),
        pytest.param(
            "filter",
            everywhere(PENDING),
            Place.UNSCHEDULABLE,
            ("Unschedulable", "0/1 nodes are available: 1 not yet."),
            id="Filter waits for something outside",
        ),
        pytest.param(
            "filter",
            everywhere(ERROR),
            Place.ERROR_BACKOFF,
            ("SchedulerError", 'running "First" filter plugin: broken'),
            id="Filter answers an error",
        ),
        pytest.param(
            "reserve",
            UNSCHEDULABLE,
            Place.UNSCHEDULABLE,
            ("Unschedulable", "0/1 nodes are available: 1 no luck."),
            id="Reserve rejects",
        ),
        pytest.param(
            "reserve",
            ERROR,
            Place.ERROR_BACKOFF,
            ("SchedulerError", 'running Reserve plugin "First": broken'),
            id="Reserve answers an error",
        ),
        pytest.param(
            "permit",
            PermitResult(UNSCHEDULABLE),
            Place.UNSCHEDULABLE,
            ("Unschedulable", "0/1 nodes are available: 1 no luck."),
            id="Permit denies",
        ),
        pytest.param(
            "permit",
            PermitResult(ERROR),
            Place.ERROR_BACKOFF,
            ("SchedulerError", 'running Permit plugin "First": broken'),
            id="Permit answers an error",
        ),
        pytest.param(
            "pre_bind_pre_flight",
            UNSCHEDULABLE,
            Place.ERROR_BACKOFF,
            ("SchedulerError", 'running PreBindPreFlight plugin "First": no luck'),
            id="PreBindPreFlight may not reject",
        ),
        pytest.param(
            "pre_bind",
            UNSCHEDULABLE,
            Place.ERROR_BACKOFF,
            ("Unschedulable", "no luck"),
            id="PreBind rejects, which no event can mend",
        ),
        pytest.param(
            "bind",
            UNSCHEDULABLE,
            Place.ERROR_BACKOFF,
            ("Unschedulable", "no luck"),
            id="Bind rejects, which no event can mend",
        ),
        pytest.param(
            "bind",
            ERROR,
            Place.ERROR_BACKOFF,
            ("SchedulerError", 'running Bind plugin "First": broken'),
            id="Bind answers an error",
        ),
    ],
)
def test_a_status_decides_where_the_pod_waits(
    script: Script, point: str, answer: object, place: Place, condition: tuple[str, str]
) -> None:
    script.answers[f"First.{point}"] = answer

    async def flow(world: InProcess, _: Script) -> None:
        world.apply(pod("a"))
        assert await settled(world, "a") is place
        assert world.condition("a") is not None
        reason, message = world.condition("a") or ("", "")
        assert (reason, message.split(" no new claims")[0]) == condition

    play(flow, script)


@pytest.mark.parametrize(
    ("status", "places"),
    [
        pytest.param(UNSCHEDULABLE, [Place.BACKOFF], id="a rejection, by way of backoff"),
        pytest.param(PENDING, [Place.ACTIVE], id="Pending, without backoff"),
    ],
)
def test_an_event_brings_a_pod_back(script: Script, status: Status, places: list[Place]) -> None:
    script.answers["First.reserve"] = status

    async def flow(world: InProcess, script: Script) -> None:
        world.apply(pod("a"))
        assert await settled(world, "a") is Place.UNSCHEDULABLE
        script.answers["First.reserve"] = OK
        world.apply(make_node("another", cpu="4"))
        assert [world.queue.place(world.pod("a")["metadata"]["uid"])] == places
        await eventually(lambda: world.node_of("a"))

    play(flow, script)


# --- Reserve and Unreserve ----------------------------------------------------------------------


def test_unreserve_is_called_for_all_in_reverse_order_once(script: Script) -> None:
    script.answers["First.reserve"] = UNSCHEDULABLE

    async def flow(world: InProcess, script: Script) -> None:
        world.apply(pod("a"))
        await settled(world, "a")
        tail = [call for call in script.of("a") if "reserve" in call]
        assert tail == ["First.reserve", "Second.unreserve", "First.unreserve"]

    play(flow, script)


def test_an_unreserve_that_raises_does_not_keep_others_from_theirs(script: Script) -> None:
    script.answers |= {"Second.permit": PermitResult(ERROR), "Second.unreserve": raising}

    async def flow(world: InProcess, script: Script) -> None:
        world.apply(pod("a"))
        assert await settled(world, "a") is Place.ERROR_BACKOFF
        assert unreserved(script) == ["Second", "First"]
        assert failures(world, "Second", "Unreserve") == 1

    play(flow, script)


# --- Permit -------------------------------------------------------------------------------------


def test_a_waiting_pod_is_bound_when_the_last_plugin_allows_it(script: Script) -> None:
    script.answers |= {
        "First.permit": PermitResult(WAIT, 60.0),
        "Second.permit": PermitResult(WAIT, 60.0),
    }

    async def flow(world: InProcess, script: Script) -> None:
        world.apply(pod("a"))
        assert await settled(world, "a") is Place.IN_FLIGHT
        handle = script.handles["First"]
        (waiting,) = handle.waiting_pods()
        assert set(waiting.pending_plugins) == {"First", "Second"}
        waiting.allow("First")
        await quiet()
        assert world.node_of("a") is None
        assert "First.pre_bind" not in script.of("a")
        waiting.allow("Second")
        await eventually(lambda: world.node_of("a"))
        assert handle.waiting_pod(world.pod("a")["metadata"]["uid"]) is None

    play(flow, script)


def test_a_waiting_pod_that_another_plugin_rejects_waits_for_events(script: Script) -> None:
    script.answers["First.permit"] = PermitResult(WAIT, 60.0)

    async def flow(world: InProcess, script: Script) -> None:
        world.apply(pod("a"))
        await settled(world, "a")
        (waiting,) = script.handles["Second"].waiting_pods()
        waiting.reject("Second", "not you")
        assert await settled(world, "a") is Place.UNSCHEDULABLE
        assert world.condition("a") == (
            "Unschedulable",
            "0/1 nodes are available: 1 not you.",
        )
        entry = world.queue.entries.get(world.pod("a")["metadata"]["uid"])
        assert entry is not None
        assert entry.unschedulable_plugins == {"Second"}

    play(flow, script)


@pytest.mark.parametrize(
    ("asked_seconds", "waited_seconds", "words"),
    [
        pytest.param(0.5, 0.5, "500ms", id="half a second"),
        pytest.param(90.0, 90.0, "1m30s", id="a minute and a half"),
        pytest.param(7200.0, 900.0, "15m0s", id="two hours, which is too long"),
    ],
)
def test_the_time_of_a_waiting_pod_ends(
    script: Script, asked_seconds: float, waited_seconds: float, words: str
) -> None:
    script.answers["First.permit"] = PermitResult(WAIT, asked_seconds)

    async def flow(world: InProcess, script: Script) -> None:
        started = world.clock.monotonic()
        world.apply(pod("a"))
        await settled(world, "a")
        script.answers["First.permit"] = PermitResult()
        await asyncio.sleep(waited_seconds - 0.1)
        assert not world.condition("a")
        await eventually(lambda: world.condition("a"))
        assert world.clock.monotonic() - started == pytest.approx(waited_seconds, abs=0.01)
        timed_out = f"rejected due to timeout after waiting {words} at plugin First"
        assert world.condition("a") == (
            "Unschedulable",
            f"0/1 nodes are available: 1 {timed_out}.",
        )

    play(flow, script)


def test_a_plugin_that_allowed_in_time_does_not_time_out(script: Script) -> None:
    script.answers |= {
        "First.permit": PermitResult(WAIT, 1.0),
        "Second.permit": PermitResult(WAIT, 10.0),
    }

    async def flow(world: InProcess, script: Script) -> None:
        world.apply(pod("a"))
        await settled(world, "a")
        (waiting,) = script.handles["First"].waiting_pods()
        waiting.allow("First")
        await eventually(lambda: world.condition("a"), 20)
        assert "after waiting 10s at plugin Second" in (world.condition("a") or ("", ""))[1]

    play(flow, script)


def test_any_number_of_waiting_pods_holds_up_nobody(script: Script) -> None:
    script.answers["First.permit"] = lambda _, each, __: (
        PermitResult() if each.name == "last" else PermitResult(WAIT, 60.0)
    )

    async def flow(world: InProcess, _: Script) -> None:
        world.apply(*(make_node(f"big{index}", cpu="100") for index in range(10)))
        world.apply(*(make_pod(f"gang-{index}", cpu="10m") for index in range(600)))
        await eventually(lambda: len(list(world.operator.waiting_pods.all())) == 600)
        world.apply(pod("last"))
        await eventually(lambda: world.node_of("last"))
        for waiting in world.operator.waiting_pods.all():
            waiting.allow("First")
        await eventually(lambda: not world.operator.waiting_pods.all())
        await eventually(lambda: world.node_of("gang-599"))

    play(flow, script)


def test_a_permit_that_takes_its_time_holds_up_nobody(script: Script) -> None:
    async def slowly(_: object, each: Any, __: str) -> PermitResult:
        await asyncio.sleep(3 if each.name == "slow" else 0)
        return PermitResult()

    script.answers["First.permit"] = slowly

    async def flow(world: InProcess, _: Script) -> None:
        world.apply(pod("slow"), pod("quick"))
        await eventually(lambda: world.node_of("quick"), 1)
        assert world.node_of("slow") is None
        await eventually(lambda: world.node_of("slow"))

    play(flow, script)


def test_a_pod_that_is_deleted_while_it_waits_leaves_nothing_behind(script: Script) -> None:
    script.answers["First.permit"] = PermitResult(WAIT, 60.0)

    async def flow(world: InProcess, script: Script) -> None:
        world.apply(pod("a"))
        await settled(world, "a")
        world.delete("Pod", "a")
        await quiet()
        assert unreserved(script) == ["Second", "First"]
        assert len(world.queue.entries) == len(world.operator.bindings) == 0
        assert not world.operator.waiting_pods.all()
        assert not list(world.cache.pods())

    play(flow, script)


def test_a_pod_whose_deletion_begins_while_it_is_bound_gives_its_room_back(
    script: Script,
) -> None:
    script.answers["First.pre_bind"] = forever

    async def flow(world: InProcess, _: Script) -> None:
        world.apply(make_pod("going", cpu="4", priority=10))
        await settled(world, "going")
        world.apply(make_pod("next", cpu="4", priority=10))
        assert await settled(world, "next") is Place.UNSCHEDULABLE
        script.answers.clear()
        going = make_pod("going", cpu="4", priority=10)
        going["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        world.apply(going)
        await eventually(lambda: world.node_of("next"))

    play(flow, script)


# --- PreBind, Bind, PostBind --------------------------------------------------------------------


def test_where_prebind_has_work_the_node_is_announced_and_taken_back(script: Script) -> None:
    gate = asyncio.Event()

    async def at_length(*_: object) -> Status:
        await gate.wait()
        return ERROR

    script.answers["First.pre_bind"] = at_length

    async def flow(world: InProcess, _: Script) -> None:
        world.apply(pod("a"))
        await eventually(lambda: world.pod("a").get("status", {}).get("nominatedNodeName") == "n1")
        gate.set()
        await eventually(lambda: world.condition("a"))
        assert "nominatedNodeName" not in world.pod("a")["status"]

    play(flow, script)


def test_the_first_bind_that_does_not_skip_binds(script: Script) -> None:
    async def flow(world: InProcess, script: Script) -> None:
        async def own(_: object, each: Any, node_name: str) -> Status:
            await world.client.bind(each.namespace, each.name, each.uid, node_name)
            return OK

        script.answers["First.bind"] = own
        world.apply(pod("a"))
        await eventually(lambda: world.node_of("a"))
        await quiet()
        assert "Second.bind" not in script.of("a")
        bound = [path for verb, path in world.client.requests if path.endswith("/binding")]
        assert len(bound) == 1
        assert world.notes.about("a") == [
            ("Normal", "Scheduled", "Successfully assigned default/a to n1")
        ]

    play(flow, script)


def test_a_postbind_that_raises_changes_nothing_for_pod_or_other_plugins(script: Script) -> None:
    script.answers["First.post_bind"] = raising

    async def flow(world: InProcess, script: Script) -> None:
        world.apply(pod("a"))
        await eventually(lambda: world.node_of("a"))
        await quiet()
        assert script.of("a")[-1] == "Second.post_bind"
        assert [event[1] for event in world.notes.about("a")] == ["Scheduled"]
        assert failures(world, "First", "PostBind") == 1

    play(flow, script)


@pytest.mark.parametrize(
    "failure",
    [
        pytest.param(
            Conflict("bind", 409, "Conflict", 'pod a is already assigned to node "n2"'), id="409"
        ),
        pytest.param(Forbidden("bind", 403, "Forbidden", 'pods "a" is forbidden'), id="403"),
        pytest.param(NotFound("bind", 404, "NotFound", 'pods "a" not found'), id="404"),
    ],
)
def test_a_refused_binding_is_reported_in_the_apis_words_and_tried_again(
    script: Script, failure: Any
) -> None:
    async def flow(world: InProcess, _: Script) -> None:
        world.client.failures["/api/v1/namespaces/default/pods/a/binding"] = failure
        world.apply(pod("a"))
        assert await settled(world, "a") is Place.ERROR_BACKOFF
        assert world.condition("a") == (
            "SchedulerError",
            f'running Bind plugin "DefaultBinder": {failure.message}',
        )
        await eventually(lambda: world.node_of("a"))

    play(flow, script)


# --- failures at each stage ---------------------------------------------------------------------


def failures(world: InProcess, plugin: str, point: str) -> float:
    family = world.metrics.plugin_failures
    return family.labels(plugin, point, "default-scheduler").value


@pytest.mark.parametrize(
    ("method", "point"),
    [
        pytest.param("pre_filter", "PreFilter", id="PreFilter"),
        pytest.param("filter", "Filter", id="Filter"),
        pytest.param("pre_score", "PreScore", id="PreScore"),
        pytest.param("score", "Score", id="Score"),
        pytest.param("normalize", "ScoreExtensionNormalize", id="NormalizeScore"),
        pytest.param("reserve", "Reserve", id="Reserve"),
        pytest.param("permit", "Permit", id="Permit"),
        pytest.param("pre_bind_pre_flight", "PreBindPreFlight", id="PreBindPreFlight"),
        pytest.param("pre_bind", "PreBind", id="PreBind"),
        pytest.param("bind", "Bind", id="Bind"),
    ],
)
def test_a_plugin_that_raises_fails_the_attempt_by_name_and_the_pod_is_retried(
    script: Script, caplog: pytest.LogCaptureFixture, method: str, point: str
) -> None:
    script.answers[f"First.{method}"] = raising
    words = f'running {point} plugin "First": ZeroDivisionError: by zero'

    async def flow(world: InProcess, script: Script) -> None:
        world.apply(pod("a"))
        assert await settled(world, "a") is Place.ERROR_BACKOFF
        assert world.condition("a") == ("SchedulerError", words)
        assert world.notes.about("a") == [("Warning", "FailedScheduling", words)]
        assert failures(world, "First", point) == 1
        assert words in caplog.text
        script.answers.clear()
        await eventually(lambda: world.node_of("a"))

    play(flow, script, nodes=2)


@pytest.mark.parametrize("method", ["reserve", "permit", "pre_bind_pre_flight", "pre_bind", "bind"])
def test_what_fails_is_undone_forgotten_requeued_and_then_told(
    script: Script, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    script.answers[f"Second.{method}"] = raising
    order: list[str] = []

    async def flow(world: InProcess, script: Script) -> None:
        queue, cache = world.queue, world.cache
        requeue, tell = queue.add_unschedulable_if_not_present, world.notes.event

        def undone(_: object, each: Any, __: str) -> None:
            order.append(f"unreserve, assumed {each.uid in cache.assumed_pods}")

        def requeued(entry: Any, *args: Any, **kwargs: Any) -> Place | None:
            order.append(f"requeue, assumed {entry.pod.uid in cache.assumed_pods}")
            return requeue(entry, *args, **kwargs)

        def told(regarding: Any, *args: Any, **kwargs: Any) -> None:
            order.append(f"event, {queue.place(regarding.uid)!r}")
            tell(regarding, *args, **kwargs)

        script.answers["First.unreserve"] = undone
        monkeypatch.setattr(queue, "add_unschedulable_if_not_present", requeued)
        monkeypatch.setattr(world.notes, "event", told)
        world.apply(pod("a"))
        await settled(world, "a")
        assert order == [
            "unreserve, assumed True",
            "requeue, assumed False",
            f"event, {Place.ERROR_BACKOFF!r}",
        ]

    play(flow, script)


def test_room_that_a_failed_binding_held_is_offered_to_those_who_wait(script: Script) -> None:
    gate = asyncio.Event()

    async def at_length(_: object, each: Any, __: str) -> Status:
        if each.name != "big":
            return OK
        await gate.wait()
        return ERROR

    script.answers["First.pre_bind"] = at_length

    async def flow(world: InProcess, _: Script) -> None:
        world.apply(make_pod("big", cpu="4", priority=10))
        await settled(world, "big")
        world.apply(make_pod("small", cpu="1", priority=10))
        assert await settled(world, "small") is Place.UNSCHEDULABLE
        gate.set()
        await eventually(lambda: world.node_of("small"))

    play(flow, script)


# --- cancellation -------------------------------------------------------------------------------


def test_a_victim_in_prebind_is_called_back_requeued_and_told(script: Script) -> None:
    script.answers["First.pre_bind"] = forever

    async def flow(world: InProcess, script: Script) -> None:
        world.apply(pod("a"))
        await settled(world, "a")
        uid = world.pod("a")["metadata"]["uid"]
        assert world.operator.bindings.cancel(uid, "preempted by DefaultPreemption")
        assert not world.operator.bindings.cancel(uid, "again")
        assert await settled(world, "a") is Place.ERROR_BACKOFF
        assert world.condition("a") == (
            "SchedulerError",
            "binding was cancelled: preempted by DefaultPreemption",
        )
        assert unreserved(script) == ["Second", "First"]
        script.answers.clear()
        await eventually(lambda: world.node_of("a"))

    play(flow, script)


def test_a_prebind_that_swallows_its_cancellation_is_not_bound_all_the_same(
    script: Script,
) -> None:
    async def stubborn(*_: object) -> Status:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return OK
        return OK

    script.answers["First.pre_bind"] = stubborn

    async def flow(world: InProcess, script: Script) -> None:
        world.apply(pod("a"))
        await settled(world, "a")
        world.operator.bindings.cancel(world.pod("a")["metadata"]["uid"], "preempted")
        assert await settled(world, "a") is Place.ERROR_BACKOFF
        assert "First.bind" not in script.of("a")

    play(flow, script)


def test_a_binding_that_has_been_sent_cannot_be_called_back(script: Script) -> None:
    script.answers["First.bind"] = forever

    async def flow(world: InProcess, _: Script) -> None:
        world.apply(pod("a"))
        await settled(world, "a")
        assert not world.operator.bindings.cancel(world.pod("a")["metadata"]["uid"], "preempted")

    play(flow, script)


def test_a_waiting_victim_is_tried_again_after_a_backoff_not_called_unschedulable(
    script: Script,
) -> None:
    script.answers["First.permit"] = PermitResult(WAIT, 60.0)

    async def flow(world: InProcess, _: Script) -> None:
        world.apply(pod("a"))
        await settled(world, "a")
        held = world.operator.waiting_pods.get_waiting(world.pod("a")["metadata"]["uid"])
        assert held is not None
        assert held.preempt("DefaultPreemption", "preempted")
        assert await settled(world, "a") is Place.ERROR_BACKOFF
        assert world.condition("a") == (
            "SchedulerError",
            "waiting on permit for pod: preempted",
        )

    play(flow, script)


@pytest.mark.parametrize(
    ("method", "answer"),
    [
        pytest.param("permit", PermitResult(WAIT, 600.0), id="while it waits on Permit"),
        pytest.param("permit", forever, id="in Permit"),
        pytest.param("pre_bind", forever, id="in PreBind"),
        pytest.param("bind", forever, id="in Bind"),
    ],
)
def test_at_the_end_of_the_process_reserve_is_undone_and_nothing_is_written(
    script: Script, method: str, answer: object
) -> None:
    script.answers[f"First.{method}"] = answer

    async def flow(clock: VirtualClock) -> InProcess:
        async with world_with(clock, 1) as world:
            world.apply(pod("a"))
            await settled(world, "a")
        return world

    world = run_skipping(flow)
    assert unreserved(script) == ["Second", "First"]
    assert world.notes.about("a") == []
    assert world.condition("a") is None
    assert len(world.operator.bindings) == 0


def test_a_pod_that_somebody_else_binds_meanwhile_is_left_to_them(script: Script) -> None:
    gate = asyncio.Event()

    async def at_length(*_: object) -> Status:
        await gate.wait()
        return OK

    script.answers["First.pre_bind"] = at_length

    async def flow(world: InProcess, script: Script) -> None:
        world.apply(pod("a"))
        await settled(world, "a")
        uid = world.pod("a")["metadata"]["uid"]
        await world.client.bind("default", "a", uid, "n2")
        path = "/api/v1/namespaces/default/pods/a/binding"
        message = 'pod a is already assigned to node "n2"'
        world.client.failures[path] = Conflict("bind", 409, "Conflict", message)
        gate.set()
        await quiet()
        assert world.condition("a") is None
        assert world.queue.place(uid) is None
        assert unreserved(script) == ["Second", "First"]
        assert {each.node_name for each in world.cache.pods()} == {"n2"}

    play(flow, script, nodes=2)


def test_a_pod_that_is_being_deleted_is_not_scheduled(script: Script) -> None:
    async def flow(world: InProcess, script: Script) -> None:
        going = pod("a")
        going["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        world.apply(going)
        await quiet()
        assert world.notes.about("a") == [
            ("Warning", "FailedScheduling", "skip schedule deleting pod: default/a")
        ]
        assert script.of("a") == ["First.pre_enqueue", "Second.pre_enqueue"]

    play(flow, script)


def test_pods_that_a_plugin_wants_activated_move_when_their_cycle_has_succeeded(
    script: Script,
) -> None:
    script.answers["First.filter"] = lambda _, each, nodes: (
        everywhere(UNSCHEDULABLE)(_, each, nodes)
        if each.name == "waiting"
        else FilterResult.everywhere(len(nodes))
    )

    async def flow(world: InProcess, script: Script) -> None:
        world.apply(pod("waiting", priority=10))
        assert await settled(world, "waiting") is Place.UNSCHEDULABLE
        sibling = world.queue.pod(world.pod("waiting")["metadata"]["uid"])
        assert sibling is not None

        def reserve(state: Any, *_: object) -> Status:
            state.pods_to_activate[sibling.uid] = sibling
            return OK

        script.answers = {"First.reserve": reserve}
        entry = world.queue.entries.get(sibling.uid)
        assert entry is not None
        world.apply(pod("a"))
        await eventually(lambda: world.node_of("waiting"), 0.5)

    play(flow, script)
