"""Calls into plugins at one extension point: failures named, durations told to who measures.

The phases hold one PointCalls per point. Invariant: whatever a plugin raises, the caller sees its
answer or a PluginFailure that names plugin and point.
"""

from collections.abc import Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from typing import Final, Generic, Protocol, TypeVar

from typing_extensions import override

from stellwerk.framework.cycle_state import CycleState
from stellwerk.framework.interface import Plugin
from stellwerk.framework.plugin_failure import PluginFailure
from stellwerk.framework.status import Code

Role = TypeVar("Role", bound=Plugin)
Answer = TypeVar("Answer")
Call = Callable[..., Answer]

_IN_TREE: Final = "stellwerk.plugins."


class Stopwatch(Protocol):
    """Told how long extension points and plugins take; metrics live above this layer.

    A `label` is the extension point as kube-scheduler's metrics write it ("PreFilter").
    """

    def started(self) -> float:
        """The time now, to be handed back."""
        ...

    def point(self, label: str, code: Code, started: float) -> None:
        """All plugins of an extension point have run."""
        ...

    def plugin(self, plugin: str, label: str, code: Code, started: float) -> None:
        """One plugin has run, in an attempt that is sampled."""
        ...

    def evaluated(self, label: str, skipped: AbstractSet[str]) -> None:
        """The plugins of a point were asked in an attempt, but for those that skipped."""
        ...


class Unmeasured(Stopwatch):
    """Nobody measures: decisions that are only thought."""

    @override
    def started(self) -> float:
        return 0.0

    @override
    def point(self, label: str, code: Code, started: float) -> None:
        pass

    @override
    def plugin(self, plugin: str, label: str, code: Code, started: float) -> None:
        pass

    @override
    def evaluated(self, label: str, skipped: AbstractSet[str]) -> None:
        pass


UNMEASURED: Final = Unmeasured()


class PointCalls(Generic[Role, Answer]):
    """The plugins of one extension point in calling order, each with the call to make."""

    def __init__(
        self, label: str, plugins: Sequence[tuple[Role, Call[Answer]]], stopwatch: Stopwatch
    ) -> None:
        """`plugins` are pairs of a plugin and its method."""
        self.label = label
        self._plain = plugins
        self._timed = [
            (plugin, self._with_time(plugin, call, stopwatch)) for plugin, call in plugins
        ]

    def __len__(self) -> int:
        return len(self._plain)

    def __iter__(self) -> Iterator[Role]:
        return (plugin for plugin, _ in self._plain)

    def of(self, state: CycleState) -> Sequence[tuple[Role, Call[Answer]]]:
        """The calls for an attempt: timed if it is sampled."""
        return self._timed if state.sampled else self._plain

    def failed(self, plugin: Plugin, failure: Exception) -> PluginFailure:
        """The failure that names the plugin and the point."""
        return plugin_failure(plugin, self.label, failure)

    def _with_time(self, plugin: Role, call: Call[Answer], stopwatch: Stopwatch) -> Call[Answer]:
        def timed(*arguments: object) -> Answer:
            started = stopwatch.started()
            result = call(*arguments)
            stopwatch.plugin(plugin.name, self.label, code_of(result), started)
            return result

        return timed


def plugin_failure(plugin: Plugin, label: str, failure: Exception) -> PluginFailure:
    """What a plugin raised, with its name; a failure that names another plugin already is kept."""
    if isinstance(failure, PluginFailure):
        return failure
    return PluginFailure(plugin.name, label, f"{type(failure).__name__}: {failure}")


def is_trusted(plugin: Plugin) -> bool:
    """Whether the plugin comes with Stellwerk, where tests hold it to its contract."""
    return type(plugin).__module__.startswith(_IN_TREE)


def code_of(answer: object) -> Code:
    """The status code of an answer; arrays of verdicts and scores count as Success."""
    status = getattr(answer, "status", answer)
    code = getattr(status, "code", Code.SUCCESS)
    return code if isinstance(code, Code) else Code.SUCCESS
