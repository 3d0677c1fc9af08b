"""The wrapper of plugins from other packages: a fault ends the attempt and nothing else.

The assembly wraps each such plugin. Plugins that come with Stellwerk are called directly, and pay
nothing. Invariants: a call of an isolated plugin returns the form that its extension point asks
for, or raises a PluginFailure that names plugin and point. If answers are cached by a part of the
pod, the plugin can read only that part.
"""

import logging
import math
from collections.abc import (
    Awaitable,
    Callable,
    Generator,
    Hashable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType
from typing import Any, Final, Protocol, TypeVar, cast

import numpy as np
from typing_extensions import override

from stellwerk.answers.pod import PluginFacts
from stellwerk.answers.suggestion import ChangeFields
from stellwerk.framework.changes import Change, Cost
from stellwerk.framework.events import (
    QUEUE,
    ClusterEventWithHint,
    HintScope,
    QueueingHint,
    QueueingHintFn,
    queue_if,
)
from stellwerk.framework.extension_points import (
    BIND,
    FILTER,
    PERMIT,
    PLACEMENT_GENERATE,
    PLACEMENT_SCORE,
    POST_BIND,
    POST_FILTER,
    PRE_BIND,
    PRE_BIND_PRE_FLIGHT,
    PRE_ENQUEUE,
    PRE_FILTER,
    PRE_SCORE,
    QUEUE_SORT,
    RESERVE,
    SCORE,
    UNRESERVE,
    Point,
    is_keyed_by_spec,
)
from stellwerk.framework.interface import (
    MAX_PROPOSALS,
    Candidate,
    ExplainPlugin,
    PermitResult,
    Plugin,
    PostFilterResult,
    PreFilterResult,
    ProposePlugin,
    Reuse,
)
from stellwerk.framework.types import OK, Code, CycleState, FilterResult, PluginFailure, Status
from stellwerk.framework.victim_order import VictimOrder
from stellwerk.models.pod import PodInfo
from stellwerk.snapshot.columns import IntColumn
from stellwerk.snapshot.snapshot import Snapshot
from stellwerk.snapshot.trial import Trial

logger = logging.getLogger(__name__)
_IN_TREE: Final = "stellwerk.plugins."

Answer = TypeVar("Answer")
Kind = TypeVar("Kind")


class PluginGuard(Protocol):
    """Cuts off calls that take too long."""

    def of_profile(self, scheduler_name: str) -> "PluginGuard":
        """Return the guard of one profile: the time of calls counts for that profile."""
        ...

    def exhausted(self) -> bool:
        """Return whether the profile's foreign code has taken too much time of late."""
        ...

    def call(self, plugin: str, point: str, call: Callable[[], Answer]) -> Answer:
        """Make a synchronous call.

        Raises:
            PluginFailure: it did not return in time.
        """
        ...

    async def wait(self, plugin: str, point: str, call: Callable[[], Awaitable[Answer]]) -> Answer:
        """Make a call and wait for what it answers.

        Raises:
            PluginFailure: it did not finish in time.
        """
        ...


class Unlimited(PluginGuard):
    """Lets every call take its time."""

    @override
    def of_profile(self, scheduler_name: str) -> "PluginGuard":
        return self

    @override
    def exhausted(self) -> bool:
        return False

    @override
    def call(self, plugin: str, point: str, call: Callable[[], Answer]) -> Answer:
        return call()

    @override
    async def wait(self, plugin: str, point: str, call: Callable[[], Awaitable[Answer]]) -> Answer:
        return await call()


UNLIMITED: Final = Unlimited()


class Unaccounted(PluginGuard):
    """Cuts off calls as another guard does, to no profile's account: for what is only supposed."""

    def __init__(self, guard: PluginGuard) -> None:
        self._guard = guard

    @override
    def of_profile(self, scheduler_name: str) -> "PluginGuard":
        return self

    @override
    def exhausted(self) -> bool:
        return False

    @override
    def call(self, plugin: str, point: str, call: Callable[[], Answer]) -> Answer:
        return self._guard.call(plugin, point, call)

    @override
    async def wait(self, plugin: str, point: str, call: Callable[[], Awaitable[Answer]]) -> Answer:
        return await self._guard.wait(plugin, point, call)


class PluginViolation(Exception):  # noqa: N818 what happened, not what kind of error
    """An answer that the extension point does not allow; says in what way."""


def is_trusted(plugin: Plugin) -> bool:
    """Return whether the plugin comes with Stellwerk, where tests hold it to its contract."""
    return type(plugin).__module__.startswith(_IN_TREE)


def isolated(plugin: Plugin, guard: PluginGuard) -> Plugin:
    """The plugin, wrapped unless it comes with Stellwerk."""
    if is_trusted(plugin):
        return plugin
    return cast("Plugin", IsolatedPlugin(plugin, guard))


class IsolatedPlugin:
    """Has the methods that the plugin has, each isolated.

    Methods with a default that a plugin need not inherit are filled in.
    """

    def __init__(self, plugin: Plugin, guard: PluginGuard) -> None:
        self.plugin = plugin
        self.name = plugin.name
        self.filter_reuse: Reuse = getattr(plugin, "filter_reuse", Reuse.NEVER)
        self.needs_pre_filter: bool = getattr(plugin, "needs_pre_filter", False)
        self.costly_filter: bool = getattr(plugin, "costly_filter", False)
        self.score_reuse: Reuse = getattr(plugin, "score_reuse", Reuse.NEVER)
        self.distrusted = ""
        """Reason why its answers are no longer cached; empty: they may be."""
        self._guard = guard
        for point, method, default in _DEFAULTS:
            if point.implemented_by(plugin):
                setattr(self, method, default)
        for method, (label, check) in _CHECKS_BESIDE_POINTS.items():
            own = _own_method(plugin, method)
            if own is not None:
                setattr(self, method, self._synchronous(own, label, check))
        for point, check in _CHECKS:
            if point.implemented_by(plugin):
                wrap = self._asynchronous if point.awaited else self._synchronous
                own = point.method_of(plugin)
                reuse, key = _REUSED.get(point.method, ("", ""))
                if (
                    reuse
                    and getattr(self, reuse) is not Reuse.NEVER
                    and _has_default_key(plugin, key)
                ):
                    own = _with_spec_alone(own, self.name, key, reuse)
                setattr(self, point.method, wrap(own, point.label, check))
        for method, contain in (("explain", self._explain), ("propose", self._propose)):
            if hasattr(plugin, method):
                setattr(self, method, contain)

    def distrust(self, point: str, node_name: str, key: str) -> None:
        """Reuse no answer from now on: one that was kept differs from what the plugin says now.

        The instance stays distrusted, and so do the frameworks that reloads make of it.
        """
        self.filter_reuse = self.score_reuse = Reuse.NEVER
        self.distrusted = (
            f"its {point} gave another answer for node {node_name} than the reused one for the "
            f"same {key}: the answer depends on more than the plugin declares. It is now called "
            "in every cycle"
        )
        logger.warning("plugin %s: %s", self.name, self.distrusted)

    # --- explanations, a step at a time ---------------------------------------------------------

    def _explain(self, *arguments: Any) -> Generator[None, None, PluginFacts | None]:
        """The plugin's part, each step of it guarded.

        Raises:
            PluginFailure: it raised, took too long, or answered something else.
        """
        own = cast("ExplainPlugin", self.plugin).explain
        steps = self._guarded("Explain", lambda: own(*arguments))
        if not isinstance(steps, Generator):
            return self._guarded("Explain", partial(_part, steps))
        for _ in range(MAX_GENERATOR_STEPS):
            ended = self._guarded("Explain", partial(_step, steps))
            if ended is not None:
                return self._guarded("Explain", partial(_part, ended.value))
            yield
        raise self._named("Explain", PluginViolation(f"took more than {MAX_GENERATOR_STEPS} steps"))

    def _propose(self, *arguments: Any) -> Iterator[Change | None]:
        """The plugin's proposals, each of them guarded.

        Raises:
            PluginFailure: it raised, took too long, or proposed something else or too much.
        """
        own = cast("ProposePlugin", self.plugin).propose
        proposals = self._guarded("Propose", lambda: iter(_iterable(own(*arguments))))
        count = 0
        for _ in range(MAX_GENERATOR_STEPS):
            each = self._guarded("Propose", lambda: next(proposals, _END))
            if each is _END:
                return
            count += each is not None
            if count > MAX_PROPOSALS:
                message = f"proposed more than {MAX_PROPOSALS} changes"
                raise self._named("Propose", PluginViolation(message))
            yield None if each is None else self._guarded("Propose", partial(self._change, each))
        raise self._named("Propose", PluginViolation(f"took more than {MAX_GENERATOR_STEPS} steps"))

    def _change(self, proposal: object) -> Change:
        """The change, with whatever code of the plugin's is in it guarded."""
        if not isinstance(proposal, Change):
            raise PluginViolation(f"proposed {type(proposal).__name__}, not a Change")
        return IsolatedChange(
            cost=Cost(proposal.cost),
            group=tuple(map(str, proposal.group)),
            target=str(proposal.target),
            text=str(proposal.describe()),
            shown=_of_kind(proposal.fields(), ChangeFields),
            own=proposal,
            guarded=self._guarded,
        )

    def _guarded(self, point: str, call: Callable[[], Answer]) -> Answer:
        """The answer of a call.

        Raises:
            PluginFailure: it raised, or took too long.
        """
        try:
            return self._guard.call(self.name, point, call)
        except (Exception, SystemExit) as failure:
            raise self._named(point, failure) from failure

    def _synchronous(
        self, own: Callable[..., Any], point: str, check: "Check"
    ) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:  # noqa: ANN401 whatever the point answers
            try:
                answer = self._guard.call(self.name, point, lambda: own(*arguments))
                return check(self, answer, arguments)
            except (Exception, SystemExit) as failure:
                raise self._named(point, failure) from failure

        return call

    def _asynchronous(
        self, own: Callable[..., Awaitable[Any]], point: str, check: "Check"
    ) -> Callable[..., Awaitable[Any]]:
        async def call(*arguments: Any) -> Any:  # noqa: ANN401 whatever the point answers
            try:
                answer = await self._guard.wait(self.name, point, lambda: own(*arguments))
                return check(self, answer, arguments)
            except (Exception, SystemExit) as failure:
                raise self._named(point, failure) from failure

        return call

    def _named(self, point: str, failure: BaseException) -> PluginFailure:
        if isinstance(failure, PluginFailure):
            return failure
        kind = "" if isinstance(failure, PluginViolation) else f"{type(failure).__name__}: "
        return PluginFailure(self.name, point, f"{kind}{failure}")

    def checked_filter(self, answer: object, arguments: tuple[Any, ...]) -> FilterResult:
        """Verdicts with codes for every row, and statuses that are isolated, too."""
        result = _of_kind(answer, FilterResult)
        codes = _column(result.codes, len(arguments[2]), "verdicts").astype(np.int32)
        return FilterResult(codes, self._synchronous(result.status, "Filter", _check_own_status))

    def checked_hints(self, answer: object) -> list[ClusterEventWithHint]:
        """Registrations whose hint functions are isolated, too."""
        if not isinstance(answer, (list, tuple)):
            raise PluginViolation(
                f"answered {type(answer).__name__}, not a sequence of ClusterEventWithHint"
            )
        events = [_of_kind(each, ClusterEventWithHint) for each in answer]
        return [replace(each, queueing_hint_fn=self._hint_fn(each)) for each in events]

    def _hint_fn(self, event: ClusterEventWithHint) -> QueueingHintFn | None:
        own = event.queueing_hint_fn
        if own is None:
            return None
        hint = self._synchronous(_within_scope(own, event.scope), "QueueingHint", _check_hint)
        # Queue may cost an attempt, which is set back; asking would cost every other profile.
        return lambda pod, change: QUEUE if self._guard.exhausted() else hint(pod, change)


# --- the part of a pod that answers may depend on ------------------------------------------------

_SPEC_FIELDS: Final = frozenset({"spec", "priority", "amounts"})
"""The attributes of a pod that follow from its spec."""
_FIELDS_BY_SCOPE: Final = MappingProxyType(
    {
        HintScope.SPEC: _SPEC_FIELDS | {"nominated_node_name"},
        HintScope.SPEC_AND_NODE_NAMES: _SPEC_FIELDS | {"nominated_node_name", "node_names"},
        HintScope.SPEC_AND_LABELS: _SPEC_FIELDS | {"nominated_node_name", "labels", "label_set"},
    }
)
_REUSED: Final = MappingProxyType(
    {
        FILTER.method: ("filter_reuse", "filter_key"),
        SCORE.method: ("score_reuse", "score_key"),
    }
)
"""Method → (attribute that lets its answers be kept, method that names what they are kept by)."""


class KeyedPod:
    """The part of a pod by which a plugin's answers are kept, in place of the pod.

    Reading anything else raises: the answer would be given to pods in which it is another one.
    """

    __slots__ = ("_fields", "_pod", "_remedy")

    def __init__(self, pod: PodInfo, fields: frozenset[str], remedy: str) -> None:
        self._pod = pod
        self._fields = fields
        self._remedy = remedy

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 whatever the pod has there
        if name in self._fields:
            # A resize of the pod may have given it amounts of its own.
            return getattr(self._pod.spec if name == "amounts" else self._pod, name)
        raise AttributeError(
            f"pod.{name} is not part of the key by which answers are reused: {self._remedy}"
        )


def _has_default_key(plugin: Plugin, key: str) -> bool:
    return not hasattr(plugin, key) or is_keyed_by_spec(plugin, key)


def _with_spec_alone(
    own: Callable[..., Any], plugin: str, key: str, reuse: str
) -> Callable[..., Any]:
    """The method, called with a pod that shows its spec alone."""
    # A filter's answers are kept by the spec alone (`RowFilters.split_by_reuse`), a score's by any
    # key.
    key_that = (
        "returns None for pods whose answers depend on more"
        if key == "filter_key"
        else "has whatever else they depend on"
    )
    remedy = (
        f"with {reuse}, answers are reused for pods of the same spec. Give {plugin} a {key} "
        f"that {key_that}, or leave {reuse} at Reuse.NEVER"
    )
    return lambda state, pod, nodes: own(state, KeyedPod(pod, _SPEC_FIELDS, remedy), nodes)


def _within_scope(own: QueueingHintFn, scope: HintScope) -> QueueingHintFn:
    """The hint function, called with a pod that shows the part alone that its scope names."""
    fields = _FIELDS_BY_SCOPE.get(scope)
    if fields is None:
        return own
    remedy = (
        f"with HintScope.{scope.name}, hints are reused for pods that are alike. Name a wider scope"
    )
    return lambda pod, change: own(cast("PodInfo", KeyedPod(pod, fields, remedy)), change)


Check = Callable[[IsolatedPlugin, Any, tuple[Any, ...]], Any]
MAX_GENERATOR_STEPS: Final = 1000
"""Steps of a plugin's generator in one explanation, or in one list of proposals. A generator that
goes on is a failure of its plugin."""
_END: Final = object()


@dataclass(frozen=True, slots=True, kw_only=True)
class IsolatedChange(Change):
    """A change that a plugin has proposed, which may hold code of its own, or make no sense."""

    cost: Cost  # type: ignore[misc] # each change of a plugin has its own
    group: tuple[str, ...]
    target: str
    text: str
    shown: ChangeFields = field(compare=False)
    own: Change = field(compare=False)
    guarded: Callable[[str, Callable[[], Any]], Any] = field(compare=False)

    @override
    def apply(self, trial: Trial, snapshot: Snapshot, pod: PodInfo) -> PodInfo:
        def apply() -> PodInfo:
            return _of_kind(self.own.apply(trial, snapshot, pod), PodInfo)

        changed: PodInfo = self.guarded("Propose", apply)
        return changed

    @override
    def describe(self) -> str:
        return self.text

    @override
    def fields(self) -> ChangeFields:
        return self.shown


def _step(steps: Generator[None, None, Any]) -> StopIteration | None:
    """Go on by one step; returns the end, which no guard lets pass as an exception."""
    try:
        next(steps)
    except StopIteration as ended:
        return ended
    return None


def _iterable(answer: object) -> Iterable[object]:
    if not isinstance(answer, Iterable):
        raise PluginViolation(f"answered {type(answer).__name__}, not changes")
    return answer


def _part(answer: object) -> PluginFacts | None:
    if answer is None:
        return None
    facts = _of_kind(answer, PluginFacts)
    if not _are_texts(facts.lines):
        raise PluginViolation(f"explained with lines {facts.lines!r}, not with texts")
    fields: object = facts.fields or {}
    if not isinstance(fields, Mapping):
        raise PluginViolation(f"explained with fields that are {type(fields).__name__}")
    for name, value in fields.items():
        if not isinstance(name, str) or not (
            isinstance(value, (str, int, float)) or _are_texts(value)
        ):
            raise PluginViolation(f"explained with a field {name!r} that is {type(value).__name__}")
    return facts


def _are_texts(value: object) -> bool:
    return isinstance(value, (list, tuple)) and all(isinstance(each, str) for each in value)


# --- what each extension point asks for ---------------------------------------------------------


def _check_status(_: IsolatedPlugin, answer: object, __: tuple[Any, ...]) -> Status:
    return _status(answer)


def _check_own_status(plugin: IsolatedPlugin, answer: object, _: tuple[Any, ...]) -> Status:
    return replace(_status(answer), plugin=plugin.name)


def _check_nothing(_: IsolatedPlugin, __: object, ___: tuple[Any, ...]) -> None:
    """Accept any answer; nothing reads it."""


def _check_sort_key(_: IsolatedPlugin, answer: object, __: tuple[Any, ...]) -> tuple[float, ...]:
    key = _of_kind(answer, tuple)
    if not all(isinstance(part, (int, float)) and not math.isnan(part) for part in key):
        raise PluginViolation(f"answered {key!r}, not a tuple of numbers")
    return key


def _check_pre_filter(_: IsolatedPlugin, answer: object, __: tuple[Any, ...]) -> PreFilterResult:
    result = _of_kind(answer, PreFilterResult)
    _status(result.status)
    names: object = result.node_names
    if names is None:
        return result
    if not isinstance(names, (set, frozenset, list, tuple)) or not all(
        isinstance(name, str) for name in names
    ):
        raise PluginViolation(f"named nodes by {type(names).__name__}, not by a set of names")
    return PreFilterResult(result.status, frozenset(names))


def _check_filter(
    plugin: IsolatedPlugin, answer: object, arguments: tuple[Any, ...]
) -> FilterResult:
    return plugin.checked_filter(answer, arguments)


def _check_post_filter(_: IsolatedPlugin, answer: object, __: tuple[Any, ...]) -> PostFilterResult:
    result = _of_kind(answer, PostFilterResult)
    _status(result.status)
    for candidate in result.candidates:
        _of_kind(candidate, Candidate)
    return result


def _check_scores(_: IsolatedPlugin, answer: object, arguments: tuple[Any, ...]) -> IntColumn:
    # A copy: the plugin may write into its own array in the next cycle.
    return _column(answer, len(arguments[2]), "scores").astype(np.int64)


def _check_permit(_: IsolatedPlugin, answer: object, __: tuple[Any, ...]) -> PermitResult:
    result = _of_kind(answer, PermitResult)
    _status(result.status)
    seconds: object = result.timeout_seconds
    if not isinstance(seconds, (int, float)) or not seconds >= 0:
        raise PluginViolation(f"a timeout of {seconds!r} seconds")
    return result


def _check_hints(
    plugin: IsolatedPlugin, answer: object, _: tuple[Any, ...]
) -> list[ClusterEventWithHint]:
    return plugin.checked_hints(answer)


def _check_hint(_: IsolatedPlugin, answer: object, __: tuple[Any, ...]) -> QueueingHint:
    """A bool is understood as the condition of Queue; nothing else stands for a QueueingHint."""
    return queue_if(answer) if isinstance(answer, bool) else _of_kind(answer, QueueingHint)


def _check_key(_: IsolatedPlugin, answer: Hashable, __: tuple[Any, ...]) -> Hashable:
    hash(answer)
    return answer


def _check_keys(_: IsolatedPlugin, answer: object, __: tuple[Any, ...]) -> list[list[str]]:
    return [[_of_kind(key, str) for key in _listed(each)] for each in _listed(answer)]


def _listed(answer: object) -> Sequence[object]:
    if isinstance(answer, (list, tuple)):
        return answer
    raise PluginViolation(f"answered {type(answer).__name__}, not lists of label keys")


def _check_names(_: IsolatedPlugin, answer: object, __: tuple[Any, ...]) -> frozenset[str]:
    if not isinstance(answer, (set, frozenset, list, tuple)):
        raise PluginViolation(f"answered {type(answer).__name__}, not names of resources")
    return frozenset(_of_kind(name, str) for name in answer)


def _check_bool(_: IsolatedPlugin, answer: object, __: tuple[Any, ...]) -> bool:
    return _of_kind(answer, bool)


def _check_time(_: IsolatedPlugin, answer: object, __: tuple[Any, ...]) -> float | None:
    return None if answer is None else _of_kind(answer, float)


def _check_victim_order(_: IsolatedPlugin, answer: object, __: tuple[Any, ...]) -> VictimOrder:
    return _of_kind(answer, VictimOrder)


def _check_placement_scores(
    _: IsolatedPlugin, answer: object, arguments: tuple[Any, ...]
) -> IntColumn:
    return _column(answer, arguments[0].count, "scores").astype(np.int64)


_CHECKS: Final[Sequence[tuple[Point[Any, Any], Check]]] = (
    (PRE_ENQUEUE, _check_status),
    (QUEUE_SORT, _check_sort_key),
    (PRE_FILTER, _check_pre_filter),
    (FILTER, _check_filter),
    (POST_FILTER, _check_post_filter),
    (PRE_SCORE, _check_status),
    (SCORE, _check_scores),
    (RESERVE, _check_status),
    (UNRESERVE, _check_nothing),
    (PERMIT, _check_permit),
    (PRE_BIND_PRE_FLIGHT, _check_status),
    (PRE_BIND, _check_status),
    (BIND, _check_status),
    (POST_BIND, _check_nothing),
    (PLACEMENT_GENERATE, _check_keys),
    (PLACEMENT_SCORE, _check_placement_scores),
)
"""The function that checks the answer at each extension point."""
_CHECKS_BESIDE_POINTS: Final[Mapping[str, tuple[str, Check]]] = MappingProxyType(
    {
        "events_to_register": ("EventsToRegister", _check_hints),
        "add_pods": ("PreFilterExtensionAddPod", _check_status),
        "remove_pods": ("PreFilterExtensionRemovePod", _check_status),
        "filter_key": (FILTER.label, _check_key),
        "score_key": (SCORE.label, _check_key),
        "normalize": ("ScoreExtensionNormalize", _check_scores),
        "counted_resources": ("CountsRoom", _check_names),
        "admits_victim": ("AdmitsVictims", _check_bool),
        "rejection_ends_at": ("ReadsTime", _check_time),
        "victim_order": ("OrdersVictims", _check_victim_order),
        "scored_resources": (PLACEMENT_SCORE.label, _check_names),
    }
)
"""Method → (its name in messages, the function that checks the answer)."""


def _own_method(plugin: Plugin, method: str) -> Callable[..., Any] | None:
    own: Callable[..., Any] | None = getattr(plugin, method, None)
    if own is None or method != "normalize":
        return own
    normalize = own
    # It may work in place, and raw scores are cached between cycles.
    return lambda state, pod, scores: normalize(state, pod, scores.copy())


def _spec_of(_: CycleState, pod: PodInfo) -> Hashable:
    return pod.spec


def _no_objection(_: CycleState, __: PodInfo, ___: str) -> Status:
    return OK


_DEFAULTS: Final[Sequence[tuple[Point[Any, Any], str, Callable[..., Any]]]] = (
    (FILTER, "filter_key", _spec_of),
    (SCORE, "score_key", _spec_of),
    (PLACEMENT_SCORE, "scored_resources", tuple),
    (RESERVE, UNRESERVE.method, _no_objection),
    (PRE_BIND, PRE_BIND_PRE_FLIGHT.method, _no_objection),
)
"""(point, method, function in place of a method that a plugin at the point did not inherit)."""


def _of_kind(answer: object, kind: type[Kind]) -> Kind:
    if not isinstance(answer, kind):
        raise PluginViolation(f"answered {type(answer).__name__}, not {kind.__name__}")
    return answer


def _status(answer: object) -> Status:
    status = _of_kind(answer, Status)
    code: object = status.code
    reasons: object = status.reasons
    if not isinstance(code, Code):
        raise PluginViolation(f"a status with code {code!r}")
    if not isinstance(reasons, tuple) or not all(isinstance(each, str) for each in reasons):
        raise PluginViolation(f"a status with reasons {reasons!r}, not a tuple of texts")
    return status


def _column(answer: object, rows: int, what: str) -> np.ndarray[Any, np.dtype[Any]]:
    column = _of_kind(answer, np.ndarray)
    if column.shape != (rows,):
        raise PluginViolation(f"{what} of shape {column.shape} for {rows} nodes")
    if column.dtype.kind not in "iu":
        raise PluginViolation(f"{what} of type {column.dtype}, not integers")
    return column
