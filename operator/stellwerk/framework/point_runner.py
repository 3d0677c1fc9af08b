"""The plugins of one extension point in calling order, with the time and the errors of each call.

FilterPhase, RowFilters, ScorePhase, BindingPoints and Framework have a `PointRunner` for each point
they run. Invariant: an exception in a plugin becomes a PluginFailure that names the plugin
(`PointRunner.failure`), and every run of a point is noted in the attempt's CycleState, also the run
that an exception ends.
"""

from collections.abc import Awaitable, Callable, Sequence
from collections.abc import Set as AbstractSet
from functools import partial
from typing import Generic, Self, TypeVar

from stellwerk.framework.extension_points import PluginsByPoint, Point
from stellwerk.framework.interface import Plugin
from stellwerk.framework.metrics_recorder import MetricsRecorder
from stellwerk.framework.types import Code, CycleState, PluginFailure, PointRun, Status
from stellwerk.models.pod import PodInfo

Role = TypeVar("Role", bound=Plugin)
Answer = TypeVar("Answer")
Awaited = TypeVar("Awaited")
Call = Callable[..., Answer]


class Timing:
    """A context that notes the run of an extension point in the attempt when the run ends.

    A run ends when the context is left, or when `go_on_with` begins the next point. One reading of
    the clock is then the end of one run and the beginning of the next.
    """

    __slots__ = ("_label", "_now", "_started", "_state", "code", "skipped")

    def __init__(self, metrics_recorder: MetricsRecorder, label: str, state: CycleState) -> None:
        self._now = metrics_recorder.started
        self._label = label
        self._state = state
        self.code = Code.ERROR
        """Result of the run; Error until the caller sets another, so that exceptions count."""
        self.skipped: AbstractSet[str] | None = None
        """Plugins that do not count as evaluated. The caller sets it at the end of the run; None:
        no plugin of the point counts."""

    def __enter__(self) -> Self:
        self._started = self._now()
        return self

    def __exit__(self, *_: object) -> None:
        seconds = self._now() - self._started
        self._state.point_runs.append(PointRun(self._label, self.code, seconds, self.skipped))

    def go_on_with(self, label: str) -> None:
        """End the run, and begin that of another point."""
        started, self._started = self._started, self._now()
        seconds = self._started - started
        self._state.point_runs.append(PointRun(self._label, self.code, seconds, self.skipped))
        self._label, self.code, self.skipped = label, Code.ERROR, None

    def noted(self, status: Status) -> Status:
        """Set the result of the run, and return the status unchanged."""
        self.code = status.code
        return status


class PointRunner(Generic[Role, Answer]):
    """The plugins of one extension point in calling order, each with its method.

    `subject` is the argument after the pod: nodes, a node's name or a diagnosis, by the point.
    """

    def __init__(
        self, point: Point[Role, Answer], plugins: PluginsByPoint, metrics_recorder: MetricsRecorder
    ) -> None:
        self.label = point.label
        self.calls: Sequence[tuple[Role, Call[Answer]]] = [
            (plugin, point.method_of(plugin)) for plugin in point.among(plugins)
        ]
        self.timed: Callable[[CycleState], Timing] = partial(Timing, metrics_recorder, point.label)
        """Makes the context in which the point runs."""
        self.empty_run = PointRun(point.label, Code.SUCCESS, 0.0, None)
        """The run to note if no plugin has anything to do. It saves two readings of the clock."""
        self._metrics_recorder = metrics_recorder
        self.measured_calls: Sequence[tuple[Role, Call[Answer]]] = [
            (plugin, partial(self._measure, plugin, call)) for plugin, call in self.calls
        ]
        """`calls` with measured methods, for sampled attempts.

        The synchronous points choose one of the two lists and call its methods themselves, catch
        exceptions and raise `failure`. A method here that did it for them would be one more Python
        call for each plugin and pod: 25 for a pod in the default profile.
        """

    async def wait(
        self,
        plugin: Role,
        call: Call[Awaitable[Awaited]],
        state: CycleState,
        pod: PodInfo,
        subject: object,
    ) -> Awaited:
        """Call one plugin at an asynchronous point, and return its answer.

        Raises:
            PluginFailure: the plugin raised.
        """
        started = self._metrics_recorder.started() if state.sampled else 0.0
        try:
            answer = await call(state, pod, subject)
        except Exception as failure:
            raise self.failure(plugin, failure) from failure
        if state.sampled:
            self._metrics_recorder.plugin(plugin.name, self.label, _code_of(answer), started)
        return answer

    def failure(self, plugin: Plugin, failure: Exception) -> PluginFailure:
        """Make an exception a PluginFailure of this plugin; one that is a PluginFailure stays."""
        if isinstance(failure, PluginFailure):
            return failure
        return PluginFailure(plugin.name, self.label, f"{type(failure).__name__}: {failure}")

    def named(self, plugin: Plugin, status: Status) -> Status:
        """Add the plugin to a rejection; make any other status an `error`."""
        if status.rejected:
            return Status(status.code, status.reasons, status.plugin or plugin.name)
        return self.error(plugin, status)

    def error(self, plugin: Plugin, status: Status) -> Status:
        """Make a status an error in kube-scheduler's words, which name the plugin and the point."""
        reason = f'running {self.label} plugin "{plugin.name}": {status.message}'
        return Status(Code.ERROR, (reason,), plugin.name)

    def _measure(
        self, plugin: Role, call: Call[Answer], state: CycleState, pod: PodInfo, subject: object
    ) -> Answer:
        started = self._metrics_recorder.started()
        answer = call(state, pod, subject)
        self._metrics_recorder.plugin(plugin.name, self.label, _code_of(answer), started)
        return answer


def _code_of(answer: object) -> Code:
    """The status code of an answer; arrays of verdicts and scores count as Success."""
    status = getattr(answer, "status", answer)
    code = getattr(status, "code", Code.SUCCESS)
    return code if isinstance(code, Code) else Code.SUCCESS
