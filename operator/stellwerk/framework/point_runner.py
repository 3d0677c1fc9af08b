"""Runs the plugins of one extension point: in order, measured, failures named.

The phases of the runtime hold one PointRunner per point. Invariant: whatever a plugin raises, the
caller sees its answer or a PluginFailure that names plugin and point; a run that raises is measured
as an Error.
"""

from collections.abc import Awaitable, Callable, Sequence
from collections.abc import Set as AbstractSet
from functools import partial
from typing import Generic, Self, TypeVar

from stellwerk.framework.extension_points import PluginsByPoint, Point
from stellwerk.framework.interface import Plugin
from stellwerk.framework.plugin_failure import PluginFailure
from stellwerk.framework.stopwatch import Stopwatch
from stellwerk.framework.types import Code, CycleState, PointRun, Status
from stellwerk.models.pod import PodInfo

Role = TypeVar("Role", bound=Plugin)
Answer = TypeVar("Answer")
Awaited = TypeVar("Awaited")
Call = Callable[..., Answer]


class Timing:
    """Runs of extension points, each noted in the attempt when it ends.

    It ends when the context is left, or when the next one begins without anything between them: one
    reading of the clock is the end of one and the beginning of the other.
    """

    __slots__ = ("_label", "_now", "_started", "_state", "code", "skipped")

    def __init__(self, stopwatch: Stopwatch, label: str, state: CycleState) -> None:
        self._now = stopwatch.started
        self._label = label
        self._state = state
        self.code = Code.ERROR
        """How the run ended; Error until something else is noted."""
        self.skipped: AbstractSet[str] | None = None
        """Set at the end of a run whose plugins count as evaluated, but for these."""

    def __enter__(self) -> Self:
        self._started = self._now()
        return self

    def __exit__(self, *_: object) -> None:
        seconds = self._now() - self._started
        self._state.point_runs.append(PointRun(self._label, self.code, seconds, self.skipped))

    def go_on_with(self, label: str) -> None:
        """The run has ended, and that of another point begins."""
        started, self._started = self._started, self._now()
        seconds = self._started - started
        self._state.point_runs.append(PointRun(self._label, self.code, seconds, self.skipped))
        self._label, self.code, self.skipped = label, Code.ERROR, None

    def noted(self, status: Status) -> Status:
        """The same status, with which the run ended."""
        self.code = status.code
        return status


class PointRunner(Generic[Role, Answer]):
    """The plugins of one extension point in calling order, each with its method.

    `subject` is what the point looks at beside the pod: nodes, a node's name, a diagnosis.
    """

    def __init__(
        self, point: Point[Role, Answer], plugins: PluginsByPoint, stopwatch: Stopwatch
    ) -> None:
        self.label = point.label
        self.calls: Sequence[tuple[Role, Call[Answer]]] = [
            (plugin, point.method_of(plugin)) for plugin in point.among(plugins)
        ]
        self.timed: Callable[[CycleState], Timing] = partial(Timing, stopwatch, point.label)
        """The context in which the point runs."""
        self.empty_run = PointRun(point.label, Code.SUCCESS, 0.0, None)
        """Noted where no plugin has anything to do, which takes no time."""
        self._stopwatch = stopwatch
        self.measured_calls: Sequence[tuple[Role, Call[Answer]]] = [
            (plugin, partial(self._measure, plugin, call)) for plugin, call in self.calls
        ]
        """The same for sampled attempts, at points that ask many: no frame more around each.

        The caller turns what a plugin raises into a `failure`.
        """

    def ask(
        self, plugin: Role, call: Call[Answer], state: CycleState, pod: PodInfo, subject: object
    ) -> Answer:
        """One plugin's answer.

        Raises:
            PluginFailure: the plugin raised.
        """
        try:
            if state.sampled:
                return self._measure(plugin, call, state, pod, subject)
            return call(state, pod, subject)
        except Exception as failure:
            raise self.failure(plugin, failure) from failure

    async def wait(
        self,
        plugin: Role,
        call: Call[Awaitable[Awaited]],
        state: CycleState,
        pod: PodInfo,
        subject: object,
    ) -> Awaited:
        """One plugin's answer, at a point that may wait.

        Raises:
            PluginFailure: the plugin raised.
        """
        started = self._stopwatch.started() if state.sampled else 0.0
        try:
            answer = await call(state, pod, subject)
        except Exception as failure:
            raise self.failure(plugin, failure) from failure
        if state.sampled:
            self._stopwatch.plugin(plugin.name, self.label, _code_of(answer), started)
        return answer

    def failure(self, plugin: Plugin, failure: Exception) -> PluginFailure:
        """What a plugin raised, with its name; one that names another plugin already stays."""
        if isinstance(failure, PluginFailure):
            return failure
        return PluginFailure(plugin.name, self.label, f"{type(failure).__name__}: {failure}")

    def named(self, plugin: Plugin, status: Status) -> Status:
        """A rejection with its plugin; an error in kube-scheduler's words, which name it, too."""
        if status.rejected:
            return Status(status.code, status.reasons, status.plugin or plugin.name)
        return self.error(plugin, status)

    def error(self, plugin: Plugin, status: Status) -> Status:
        """An error that names plugin and point, whatever the status was."""
        reason = f'running {self.label} plugin "{plugin.name}": {status.message}'
        return Status(Code.ERROR, (reason,), plugin.name)

    def _measure(
        self, plugin: Role, call: Call[Answer], state: CycleState, pod: PodInfo, subject: object
    ) -> Answer:
        started = self._stopwatch.started()
        answer = call(state, pod, subject)
        self._stopwatch.plugin(plugin.name, self.label, _code_of(answer), started)
        return answer


def _code_of(answer: object) -> Code:
    """The status code of an answer; arrays of verdicts and scores count as Success."""
    status = getattr(answer, "status", answer)
    code = getattr(status, "code", Code.SUCCESS)
    return code if isinstance(code, Code) else Code.SUCCESS
