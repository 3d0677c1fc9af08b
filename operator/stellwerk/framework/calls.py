"""Calls into plugins at one extension point: contained, and timed where somebody measures.

The phases hold one PointCalls per point. In-tree plugins are called directly, for they are held to
their contract by tests; others through a guard that limits their time and checks what they answer.
Invariant: whatever a plugin does, the caller sees its answer or a PluginFailure that names it.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, Protocol, TypeVar

from stellwerk.framework.cycle_state import CycleState
from stellwerk.framework.interface import Plugin
from stellwerk.framework.plugin_failure import PluginFailure
from stellwerk.framework.status import Code
from stellwerk.models.plugin_description import ExtensionPoint

Role = TypeVar("Role", bound=Plugin)
Answer = TypeVar("Answer")
Call = Callable[..., Answer]

_IN_TREE: Final = "stellwerk.plugins."


class PluginGuard(Protocol):
    """Cuts off a synchronous call of somebody else's plugin that does not return."""

    def __call__(self, plugin: str, point: str, call: Callable[[], Any]) -> Any: ...  # noqa: ANN401 whatever the call answers


class Stopwatch(Protocol):
    """Told how long extension points and plugins take; metrics live above this layer."""

    def started(self) -> float:
        """The time now, to be handed back."""
        ...

    def point(self, point: ExtensionPoint, code: Code, started: float) -> None:
        """All plugins of an extension point have run."""
        ...

    def plugin(self, plugin: str, point: ExtensionPoint, code: Code, started: float) -> None:
        """One plugin has run, in an attempt that is sampled."""
        ...


@dataclass(frozen=True, slots=True)
class Instruments:
    """What surrounds calls into plugins; both are optional."""

    guard: PluginGuard | None = None
    stopwatch: Stopwatch | None = None


class PointCalls(Generic[Role, Answer]):
    """The plugins of one extension point in calling order, each with the call to make."""

    def __init__(
        self,
        point: ExtensionPoint,
        plugins: Sequence[tuple[Role, Call[Answer]]],
        answer: type[Answer],
        instruments: Instruments,
    ) -> None:
        """`plugins` are pairs of a plugin and its method; `answer` is what others must answer."""
        self.point = point
        guarded = [
            (
                plugin,
                call if is_trusted(plugin) else self._guarded(plugin, call, answer, instruments),
            )
            for plugin, call in plugins
        ]
        self._plain = guarded
        stopwatch = instruments.stopwatch
        self._timed = (
            guarded
            if stopwatch is None
            else [(plugin, self._with_time(plugin, call, stopwatch)) for plugin, call in guarded]
        )

    def __len__(self) -> int:
        return len(self._plain)

    def __iter__(self) -> Iterator[Role]:
        return (plugin for plugin, _ in self._plain)

    def of(self, state: CycleState) -> Sequence[tuple[Role, Call[Answer]]]:
        """The calls for an attempt: timed if it is sampled."""
        return self._timed if state.sampled else self._plain

    def failed(self, plugin: Plugin, failure: Exception) -> PluginFailure:
        """The failure that names the plugin and the point."""
        if isinstance(failure, PluginFailure):
            return failure
        return PluginFailure(plugin.name, self.point.label, f"{type(failure).__name__}: {failure}")

    def _guarded(
        self, plugin: Role, call: Call[Answer], answer: type[Answer], instruments: Instruments
    ) -> Call[Answer]:
        def guarded(*arguments: object) -> Answer:
            if instruments.guard is None:
                result = call(*arguments)
            else:
                result = instruments.guard(plugin.name, self.point.label, lambda: call(*arguments))
            if not isinstance(result, answer):
                message = f"answered {type(result).__name__}, not {answer.__name__}"
                raise PluginFailure(plugin.name, self.point.label, message)
            return result

        return guarded

    def _with_time(self, plugin: Role, call: Call[Answer], stopwatch: Stopwatch) -> Call[Answer]:
        def timed(*arguments: object) -> Answer:
            started = stopwatch.started()
            result = call(*arguments)
            stopwatch.plugin(plugin.name, self.point, _code(result), started)
            return result

        return timed


def is_trusted(plugin: Plugin) -> bool:
    """Whether the plugin comes with Stellwerk."""
    return type(plugin).__module__.startswith(_IN_TREE)


def _code(answer: object) -> Code:
    """The status code of an answer; arrays of verdicts and scores count as Success."""
    status = getattr(answer, "status", answer)
    code = getattr(status, "code", Code.SUCCESS)
    return code if isinstance(code, Code) else Code.SUCCESS
