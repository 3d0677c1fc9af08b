"""Whatever a plugin from outside answers, the framework sees its contract kept or its name."""

import sys
from typing import Any

import numpy as np
import pytest
from typing_extensions import override

from stellwerk.framework.events import (
    Action,
    ClusterChange,
    ClusterEventWithHint,
    QueueingHint,
    Resource,
)
from stellwerk.framework.extension_points import points_of
from stellwerk.framework.interface import (
    EnqueueExtensions,
    FilterPlugin,
    NormalizeScorePlugin,
    PermitResult,
    PostFilterResult,
    PreBindPlugin,
    PreFilterResult,
    ReservePlugin,
    ScorePlugin,
)
from stellwerk.framework.plugin_isolation import UNLIMITED, Unlimited, isolated
from stellwerk.framework.types import (
    OK,
    Code,
    CycleState,
    FilterResult,
    PluginFailure,
    Status,
    unschedulable,
)
from stellwerk.plugins.node_name import NodeName
from stellwerk.profiles.spec.plugin_description import ExtensionPoint
from stellwerk.snapshot.snapshot import NodeView
from tests.support.builders import make_cache, make_node, pod_info
from tests.support.plugin_runs import make_plugin

POD = pod_info("web")
STATE = CycleState()
ASYNCHRONOUS = {"permit", "pre_bind", "bind", "post_bind"}
ON_A_NODE = {"reserve", "unreserve", "pre_bind_pre_flight", *ASYNCHRONOUS}
CHANGE = ClusterChange(Resource.NODE, Action.ADD)


def two_nodes() -> NodeView:
    return NodeView(make_cache([make_node("a"), make_node("b")]).snapshot)


def plugin_with(method: str, answer: Any) -> Any:
    """A isolated plugin of one method, a duck without any base class."""

    def call(_: object, *arguments: Any) -> Any:
        return answer(*arguments) if callable(answer) else answer

    async def later(_: object, *arguments: Any) -> Any:
        return call(_, *arguments)

    own: Any = later if method in ASYNCHRONOUS else call
    kind: Any = type("Own", (), {"name": "Own", method: own})
    return isolated(kind(), UNLIMITED)


def ask(plugin: Any, method: str) -> Any:
    nodes = two_nodes()
    scores = np.zeros(2, np.int64)
    arguments: dict[str, tuple[Any, ...]] = {
        "pre_enqueue": (POD,),
        "sort_key": (POD, 1.0),
        "events_to_register": (),
        "normalize": (STATE, POD, scores),
        "filter_key": (STATE, POD),
        "post_filter": (STATE, POD, None),
    }
    others = (STATE, POD, "a") if method in ON_A_NODE else (STATE, POD, nodes)
    return getattr(plugin, method)(*arguments.get(method, others))


async def answer_of(plugin: Any, method: str) -> Any:
    answer = ask(plugin, method)
    return await answer if hasattr(answer, "__await__") else answer


@pytest.mark.parametrize(
    ("method", "answer", "message"),
    [
        ("pre_enqueue", None, 'PreEnqueue plugin "Own": answered NoneType, not Status'),
        ("pre_enqueue", Status("Success"), "a status with code 'Success'"),  # type: ignore[arg-type]
        ("pre_enqueue", Status(Code.ERROR, "text"), "not a tuple of texts"),  # type: ignore[arg-type]
        ("sort_key", 7, 'QueueSort plugin "Own": answered int, not tuple'),
        ("sort_key", (float("nan"),), "not a tuple of numbers"),
        ("events_to_register", "all", "answered str, not a sequence of ClusterEventWithHint"),
        ("events_to_register", ["Node/Add"], "answered str, not ClusterEventWithHint"),
        ("pre_filter", OK, 'PreFilter plugin "Own": answered Status, not PreFilterResult'),
        ("pre_filter", PreFilterResult(OK, "n1"), "named nodes by str"),  # type: ignore[arg-type]
        ("filter", [0, 0], 'Filter plugin "Own": answered list, not FilterResult'),
        ("filter", FilterResult([0, 0], OK), "answered list, not ndarray"),  # type: ignore[arg-type]
        ("filter", FilterResult.everywhere(3), "verdicts of shape (3,) for 2 nodes"),
        ("filter_key", [], "Filter plugin \"Own\": TypeError: unhashable type: 'list'"),
        ("post_filter", OK, 'PostFilter plugin "Own": answered Status, not PostFilterResult'),
        ("post_filter", PostFilterResult(OK, ("n1",)), "answered str, not Candidate"),  # type: ignore[arg-type]
        ("pre_score", True, 'PreScore plugin "Own": answered bool, not Status'),
        ("score", [1, 2], 'Score plugin "Own": answered list, not ndarray'),
        ("score", np.zeros(2), 'Score plugin "Own": scores of type float64, not integers'),
        ("score", np.zeros((2, 1), np.int64), "scores of shape (2, 1) for 2 nodes"),
        ("normalize", np.zeros(1, np.int64), "scores of shape (1,) for 2 nodes"),
        ("reserve", "no", 'Reserve plugin "Own": answered str, not Status'),
        ("permit", OK, 'Permit plugin "Own": answered Status, not PermitResult'),
        ("permit", PermitResult(OK, -1.0), "a timeout of -1.0 seconds"),
        ("permit", PermitResult(OK, float("nan")), "a timeout of nan seconds"),
        ("pre_bind_pre_flight", 1, 'PreBindPreFlight plugin "Own": answered int, not Status'),
        ("pre_bind", 1, 'PreBind plugin "Own": answered int, not Status'),
        ("bind", None, 'Bind plugin "Own": answered NoneType, not Status'),
        ("bind", lambda *_: 1 // 0, 'Bind plugin "Own": ZeroDivisionError: '),
        ("post_bind", lambda *_: sys.exit(3), 'PostBind plugin "Own": SystemExit: 3'),
        ("unreserve", lambda *_: {"y": 0}["x"], 'Unreserve plugin "Own": KeyError: '),
    ],
)
async def test_what_is_not_allowed_is_named(method: str, answer: Any, message: str) -> None:
    with pytest.raises(PluginFailure) as raised:
        await answer_of(plugin_with(method, answer), method)
    assert message in str(raised.value)
    assert raised.value.plugin == "Own"


def test_a_status_of_a_verdict_is_asked_for_later_and_contained_too() -> None:
    result = ask(
        plugin_with("filter", FilterResult(np.ones(2, np.int32), lambda _: None)),  # type: ignore[arg-type, return-value]
        "filter",
    )
    with pytest.raises(PluginFailure, match="answered NoneType, not Status"):
        result.status(1)


def test_a_verdict_without_a_name_gets_the_plugins() -> None:
    codes = np.ones(2, np.int32)
    made = FilterResult(codes, lambda _: Status(Code.UNSCHEDULABLE, ("full",)))
    assert ask(plugin_with("filter", made), "filter").status(1) == unschedulable("Own", "full")


def test_a_plugin_that_reuses_its_array_changes_no_earlier_answer() -> None:
    scratch = np.array([1, 2], np.int64)
    first = ask(plugin_with("score", scratch), "score")
    scratch[:] = 9
    assert first.tolist() == [1, 2]


def test_normalising_in_place_leaves_the_raw_scores_alone() -> None:
    def in_place(_: object, __: object, scores: Any) -> Any:
        scores += 5
        return scores

    raw = np.zeros(2, np.int64)
    plugin = plugin_with("normalize", in_place)
    assert plugin.normalize(STATE, POD, raw).tolist() == [5, 5]
    assert raw.tolist() == [0, 0]


def queueing_hint_fn(answer: object) -> Any:
    event = ClusterEventWithHint(Resource.NODE, Action.ADD, lambda _, __: answer)  # type: ignore[arg-type, return-value]
    (contained_event,) = ask(plugin_with("events_to_register", [event]), "events_to_register")
    return contained_event.queueing_hint_fn


@pytest.mark.parametrize(
    ("answer", "understood"),
    [
        (QueueingHint.QUEUE, QueueingHint.QUEUE),
        (QueueingHint.QUEUE_SKIP, QueueingHint.QUEUE_SKIP),
        (True, QueueingHint.QUEUE),
        (False, QueueingHint.QUEUE_SKIP),
    ],
)
def test_a_hint_function_answers_a_queueing_hint_or_a_bool(
    answer: object, understood: QueueingHint
) -> None:
    assert queueing_hint_fn(answer)(POD, CHANGE) is understood


def test_a_hint_function_that_answers_something_else_has_failed() -> None:
    with pytest.raises(PluginFailure) as caught:
        queueing_hint_fn(None)(POD, CHANGE)
    assert (caught.value.plugin, caught.value.point) == ("Own", "QueueingHint")
    assert "answered NoneType, not QueueingHint" in str(caught.value)


@pytest.mark.parametrize(
    ("method", "role", "points"),
    [
        ("filter", FilterPlugin, {ExtensionPoint.FILTER}),
        ("score", ScorePlugin, {ExtensionPoint.SCORE}),
        ("normalize", NormalizeScorePlugin, set()),
        ("reserve", ReservePlugin, {ExtensionPoint.RESERVE}),
        ("pre_bind", PreBindPlugin, {ExtensionPoint.PRE_BIND}),
        ("events_to_register", EnqueueExtensions, set()),
    ],
)
def test_a_plugin_needs_no_base_class(
    method: str, role: type[Any], points: set[ExtensionPoint]
) -> None:
    plugin = plugin_with(method, OK)
    members = [name for name in vars(role) if not name.startswith("_")]
    assert method in members
    assert [name for name in members if not hasattr(plugin, name)] == []
    assert points_of(plugin) == points


def test_plugins_that_come_with_stellwerk_are_called_directly() -> None:
    plugin = make_plugin(NodeName)
    assert isolated(plugin, UNLIMITED) is plugin


def test_a_hint_is_not_asked_while_its_profile_has_spent_its_time() -> None:
    class Exhausted(Unlimited):
        @override
        def exhausted(self) -> bool:
            return spent

    def hint(*_: object) -> QueueingHint:
        asked.append(1)
        return QueueingHint.QUEUE_SKIP

    registered = [ClusterEventWithHint(Resource.NODE, Action.ADD, hint)]
    kind: Any = type("Own", (), {"name": "Own", "events_to_register": lambda _: registered})
    plugin: Any = isolated(kind(), Exhausted())
    (event,) = plugin.events_to_register()
    asked: list[int] = []
    spent = False
    assert event.queueing_hint_fn(POD, CHANGE) is QueueingHint.QUEUE_SKIP
    spent = True
    assert event.queueing_hint_fn(POD, CHANGE) is QueueingHint.QUEUE
    assert len(asked) == 1
