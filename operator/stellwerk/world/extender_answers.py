"""Answers of extenders as data: taken down while they are given, and given again in a replay.

Recording operators wrap a profile's extenders, replays stand in for them. Invariant: an answer that
was taken down and is given again makes the same decision on the same World.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
from typing_extensions import override

from stellwerk.framework.interface import Candidate, PostFilterResult
from stellwerk.framework.status import Code, Status
from stellwerk.models.pod import PodInfo
from stellwerk.snapshot.columns import IntColumn
from stellwerk.world.extenders import ExtenderFilterResult, Extenders

Answer: TypeAlias = Any
"""What one call gave, as JSON."""


class AnswersMissing(LookupError):  # noqa: N818 what is missing is no error of this process
    """The decision asks what the recorded one did not."""


class RecordedExtenders(Extenders):
    """A profile's extenders, with what they answered for the decision in progress."""

    def __init__(self, extenders: Extenders) -> None:
        self._extenders = extenders
        self.answers: list[Any] = []
        """JSON, one item a call."""
        self._at_filter = False

    @override
    async def accept(self, pod: PodInfo, node_name: str) -> bool:
        self.answers = []
        answer = await self._extenders.accept(pod, node_name)
        self.answers.append(answer)
        self._at_filter = True
        return answer

    @override
    async def filter(self, pod: PodInfo, node_names: Sequence[str]) -> ExtenderFilterResult:
        if not self._at_filter:
            self.answers = []
        self._at_filter = False
        answer = await self._extenders.filter(pod, node_names)
        # None: no extender filters, which is not the same as leaving every node.
        unchanged = answer.node_names is node_names
        names = None if unchanged else list(answer.node_names)
        statuses = {name: _written(status) for name, status in answer.statuses.items()}
        self.answers.append([names, statuses])
        return answer

    @override
    async def prioritize(self, pod: PodInfo, node_names: Sequence[str]) -> IntColumn:
        added = await self._extenders.prioritize(pod, node_names)
        self.answers.append(added.tolist())
        return added

    @override
    async def preempt(self, pod: PodInfo, found: PostFilterResult) -> PostFilterResult:
        left = await self._extenders.preempt(pod, found)
        candidates = [
            [each.node_name, [victim.uid for victim in each.victims], each.pdb_violations]
            for each in left.candidates
        ]
        self.answers.append([_written(left.status), candidates])
        return left

    @override
    async def bind(self, pod: PodInfo, node_name: str) -> Status | None:
        return await self._extenders.bind(pod, node_name)


class ReplayedExtenders(Extenders):
    """Gives recorded answers in their order.

    Every method raises AnswersMissing where there is none left.
    """

    def __init__(self, answers: Sequence[Any]) -> None:
        self._answers = deque(answers)

    @override
    async def accept(self, pod: PodInfo, node_name: str) -> bool:
        return bool(self._next())

    @override
    async def filter(self, pod: PodInfo, node_names: Sequence[str]) -> ExtenderFilterResult:
        names, statuses = self._next()
        read = {name: _read(status) for name, status in statuses.items()}
        if names is None:
            return ExtenderFilterResult(node_names, read)
        offered = frozenset(node_names)
        return ExtenderFilterResult([name for name in names if name in offered], read)

    @override
    async def prioritize(self, pod: PodInfo, node_names: Sequence[str]) -> IntColumn:
        added = np.array(self._next(), np.int64)
        if len(added) != len(node_names):
            raise AnswersMissing("scores of other nodes were recorded")
        return added

    @override
    async def preempt(self, pod: PodInfo, found: PostFilterResult) -> PostFilterResult:
        status, candidates = self._next()
        victims = {victim.uid: victim for each in found.candidates for victim in each.victims}
        left = tuple(
            Candidate(name, tuple(victims[uid] for uid in uids if uid in victims), violations)
            for name, uids, violations in candidates
        )
        if not left:
            return PostFilterResult(_read(status))
        return replace(found, candidates=left)

    @override
    async def bind(self, pod: PodInfo, node_name: str) -> Status | None:
        return None

    def _next(self) -> Answer:
        if not self._answers:
            raise AnswersMissing("the recorded decision asked its extenders less")
        return self._answers.popleft()


def _written(status: Status) -> list[Any]:
    return [status.code.name, list(status.reasons), status.plugin]


def _read(written: Sequence[Any]) -> Status:
    code, reasons, plugin = written
    return Status(Code[code], tuple(reasons), plugin)
