"""Two plugins at every extension point that note each call and answer as a test says.

They come in by entry points, as plugins of other packages do, and so are contained and configured
likewise.
"""

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import EntryPoint
from typing import Any, ClassVar

import numpy as np
import pytest

from stellwerk.framework.events import Action, ClusterEventWithHint, Resource
from stellwerk.framework.interface import PermitResult, PreFilterResult
from stellwerk.framework.services import Handle
from stellwerk.framework.types import OK, SKIP, FilterResult
from stellwerk.plugins import registry

_ANSWERS: dict[str, Any] = {
    "pre_enqueue": OK,
    "pre_filter": PreFilterResult(),
    "filter": lambda _, __, nodes: FilterResult.everywhere(len(nodes)),
    "post_filter": None,
    "pre_score": OK,
    "score": lambda _, __, nodes: np.zeros(len(nodes), np.int64),
    "normalize": lambda _, __, scores: scores,
    "reserve": OK,
    "unreserve": None,
    "permit": PermitResult(),
    "pre_bind_pre_flight": OK,
    "pre_bind": OK,
    "bind": SKIP,
    "post_bind": None,
}


class Script:
    """What was called, and what is to be answered."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        """"First.reserve" and so on; calls for every pod."""
        self.answers: dict[str, Any] = {}
        """"First.reserve" → a status or result; or a function of the call's arguments."""
        self.handles: dict[str, Handle] = {}

    def of(self, pod: str) -> list[str]:
        """The calls for one pod."""
        return [call.split(" ")[0] for call in self.calls if call.endswith(f" {pod}")]

    def answer(self, plugin: str, method: str, pod: str, arguments: tuple[Any, ...]) -> Any:
        self.calls.append(f"{plugin}.{method} {pod}")
        answer = self.answers.get(f"{plugin}.{method}", _ANSWERS[method])
        return answer(*arguments) if callable(answer) else answer


SCRIPT = Script()


class _Scripted:
    name: ClassVar[str]

    def __init__(self, handle: Handle, _: object) -> None:
        SCRIPT.handles[self.name] = handle

    def events_to_register(self) -> list[ClusterEventWithHint]:
        return [
            ClusterEventWithHint(Resource.NODE, Action.ADD),
        ]

    def pre_enqueue(self, pod: Any) -> Any:
        return SCRIPT.answer(self.name, "pre_enqueue", pod.name, (pod,))

    def pre_filter(self, state: Any, pod: Any, nodes: Any) -> Any:
        return SCRIPT.answer(self.name, "pre_filter", pod.name, (state, pod, nodes))

    def filter(self, state: Any, pod: Any, nodes: Any) -> Any:
        return SCRIPT.answer(self.name, "filter", pod.name, (state, pod, nodes))

    def pre_score(self, state: Any, pod: Any, nodes: Any) -> Any:
        return SCRIPT.answer(self.name, "pre_score", pod.name, (state, pod, nodes))

    def score(self, state: Any, pod: Any, nodes: Any) -> Any:
        return SCRIPT.answer(self.name, "score", pod.name, (state, pod, nodes))

    def normalize(self, state: Any, pod: Any, scores: Any) -> Any:
        return SCRIPT.answer(self.name, "normalize", pod.name, (state, pod, scores))

    def reserve(self, state: Any, pod: Any, node_name: str) -> Any:
        return SCRIPT.answer(self.name, "reserve", pod.name, (state, pod, node_name))

    def unreserve(self, state: Any, pod: Any, node_name: str) -> Any:
        return SCRIPT.answer(self.name, "unreserve", pod.name, (state, pod, node_name))

    async def permit(self, state: Any, pod: Any, node_name: str) -> Any:
        return await self._awaited("permit", state, pod, node_name)

    def pre_bind_pre_flight(self, state: Any, pod: Any, node_name: str) -> Any:
        return SCRIPT.answer(self.name, "pre_bind_pre_flight", pod.name, (state, pod, node_name))

    async def pre_bind(self, state: Any, pod: Any, node_name: str) -> Any:
        return await self._awaited("pre_bind", state, pod, node_name)

    async def bind(self, state: Any, pod: Any, node_name: str) -> Any:
        return await self._awaited("bind", state, pod, node_name)

    async def post_bind(self, state: Any, pod: Any, node_name: str) -> Any:
        return await self._awaited("post_bind", state, pod, node_name)

    async def _awaited(self, method: str, state: Any, pod: Any, node_name: str) -> Any:
        answer = SCRIPT.answer(self.name, method, pod.name, (state, pod, node_name))
        return await answer if inspect.isawaitable(answer) else answer


class First(_Scripted):
    name: ClassVar[str] = "First"


class Second(_Scripted):
    name: ClassVar[str] = "Second"


@contextmanager
def installed(*names: str) -> Iterator[Script]:
    """The plugins as if their package were installed, with an empty script."""
    points = [
        EntryPoint(name, f"{__name__}:{name}", registry.ENTRY_POINT_GROUP)
        for name in names or ("First", "Second")
    ]
    SCRIPT.calls.clear()
    SCRIPT.answers.clear()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(registry, "entry_points", lambda group: points if group else ())
        _forget_plugins()
        try:
            yield SCRIPT
        finally:
            _forget_plugins()


def _forget_plugins() -> None:
    registry._registry.cache_clear()  # noqa: SLF001 what is known stays known in a process
