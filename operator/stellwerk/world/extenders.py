"""Answers of extenders, as an input of decisions: in node names, statuses and scores.

`scheduler.extenders` implements the protocol over HTTP; a recording takes the answers down as data
while they are given, and a replay hands in what was recorded. Invariants: an answer is data of its
own, which no later change of the World alters; one that was taken down and is given again makes the
same decision on the same World.
"""

from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import coroutine
from typing import Any, Final, Protocol, TypeAlias, TypeVar

import numpy as np
from typing_extensions import override

from stellwerk.framework.interface import Candidate, PostFilterResult
from stellwerk.framework.types import Code, Status, unschedulable
from stellwerk.models.pod import PodInfo
from stellwerk.profiles.spec.extender_spec import Extender
from stellwerk.snapshot.columns import IntColumn
from stellwerk_kube.errors import SchedulerError


@dataclass(frozen=True, slots=True)
class ExtenderFilterResult:
    """The nodes that the extenders of a profile leave of those that its filters pass."""

    node_names: Sequence[str]
    """In the order in which the last extender named them."""
    statuses: Mapping[str, Status] = field(default_factory=dict)
    """By node name, why it was taken away, where a reason was given."""


def is_interested(extender: Extender, pod: PodInfo) -> bool:
    """Whether an extender is asked about a pod: it uses a resource that is managed, or any will do.

    Source: `IsInterested`.
    """
    managed = {resource.name for resource in extender.managed_resources}
    if not managed:
        return True
    amounts = pod.spec.amounts
    return not managed.isdisjoint(amounts.requests.keys() | amounts.limits.keys())


class Extenders(Protocol):
    """A profile's extenders: what they answer is an input of decisions."""

    async def accept(self, pod: PodInfo, node_name: str) -> bool:
        """Return whether the node nominated to the pod passes; a failure counts as no."""
        ...

    async def filter(self, pod: PodInfo, node_names: Sequence[str]) -> ExtenderFilterResult:
        """Return which of the feasible nodes remain.

        Raises:
            SchedulerError: an extender that is not ignorable failed.
        """
        ...

    async def prioritize(self, pod: PodInfo, node_names: Sequence[str]) -> IntColumn:
        """Return (n,) int64, what is added to the total of each node."""
        ...

    async def preempt(self, pod: PodInfo, found: PostFilterResult) -> PostFilterResult:
        """Return the candidates that remain, perhaps with other victims."""
        ...

    async def bind(self, pod: PodInfo, node_name: str) -> Status | None:
        """Bind the pod; None if that is left to the profile's plugins."""
        ...


Answer: TypeAlias = Any
"""The answer to one call, as JSON; where it failed, `{FAILURE: why}`."""
FAILURE: Final = "error"
_Value = TypeVar("_Value")


class AnswersMissing(LookupError):  # noqa: N818 what is missing is no error of this process
    """The decision asks what the recorded one did not."""


class AnswerSink(Protocol):
    """Takes down what extenders are asked for a decision, in the order in which it happens."""

    def asked(self, pod: PodInfo) -> None:
        """A decision begins to wait for extenders."""
        ...

    def answered(self, answer: Answer) -> None:
        """The call that is waited for has ended."""
        ...


class RecordedExtenders(Extenders):
    """A profile's extenders, whose answers are taken down."""

    def __init__(self, extenders: Extenders, sink: AnswerSink) -> None:
        self._extenders, self._sink = extenders, sink
        self._at_filter = False

    @override
    async def accept(self, pod: PodInfo, node_name: str) -> bool:
        self._sink.asked(pod)
        answer = await self._noted(self._extenders.accept(pod, node_name), bool)
        self._at_filter = not answer
        return answer

    @override
    async def filter(self, pod: PodInfo, node_names: Sequence[str]) -> ExtenderFilterResult:
        if not self._at_filter:
            self._sink.asked(pod)
        self._at_filter = False

        def written(result: ExtenderFilterResult) -> Answer:
            # None: no extender filters, which is not the same as leaving every node.
            unchanged = result.node_names is node_names
            names = None if unchanged else list(result.node_names)
            return [names, {name: _written(each) for name, each in result.statuses.items()}]

        return await self._noted(self._extenders.filter(pod, node_names), written)

    @override
    async def prioritize(self, pod: PodInfo, node_names: Sequence[str]) -> IntColumn:
        return await self._noted(self._extenders.prioritize(pod, node_names), np.ndarray.tolist)

    @override
    async def preempt(self, pod: PodInfo, found: PostFilterResult) -> PostFilterResult:
        def written(left: PostFilterResult) -> Answer:
            candidates = [
                [each.node_name, [victim.uid for victim in each.victims], each.pdb_violations]
                for each in left.candidates
            ]
            return [_written(left.status), candidates]

        return await self._noted(self._extenders.preempt(pod, found), written)

    @override
    async def bind(self, pod: PodInfo, node_name: str) -> Status | None:
        return await self._extenders.bind(pod, node_name)

    async def _noted(
        self, asking: Awaitable[_Value], written: Callable[[_Value], Answer]
    ) -> _Value:
        try:
            answer = await asking
        except SchedulerError as failure:
            self._sink.answered({FAILURE: str(failure)})
            raise
        self._sink.answered(written(answer))
        return answer


class ReplayedExtenders(Extenders):
    """Waits for recorded answers, which whatever drives the decision sends in.

    Every method raises AnswersMissing where the answer is of another question.
    """

    @override
    async def accept(self, pod: PodInfo, node_name: str) -> bool:
        return bool(await _answer())

    @override
    async def filter(self, pod: PodInfo, node_names: Sequence[str]) -> ExtenderFilterResult:
        answer = await _answer()
        try:
            names, statuses = answer
            read = {name: _read(status) for name, status in statuses.items()}
            offered = frozenset(node_names)
            left = node_names if names is None else [name for name in names if name in offered]
        except _OTHER as error:
            raise AnswersMissing("something else was asked for its node names") from error
        return ExtenderFilterResult(left, read)

    @override
    async def prioritize(self, pod: PodInfo, node_names: Sequence[str]) -> IntColumn:
        answer = await _answer()
        try:
            added = np.array(answer, np.int64)
        except (*_OTHER, OverflowError) as error:
            raise AnswersMissing("something else was asked for its scores") from error
        if added.shape != (len(node_names),):
            raise AnswersMissing("scores of other nodes were recorded")
        return added

    @override
    async def preempt(self, pod: PodInfo, found: PostFilterResult) -> PostFilterResult:
        answer = await _answer()
        victims = {victim.uid: victim for each in found.candidates for victim in each.victims}
        try:
            status, candidates = answer
            left = tuple(
                Candidate(name, tuple(victims[uid] for uid in uids if uid in victims), violations)
                for name, uids, violations in candidates
            )
            read = _read(status)
        except _OTHER as error:
            raise AnswersMissing("something else was asked for its candidates") from error
        return replace(found, candidates=left) if left else PostFilterResult(read)

    @override
    async def bind(self, pod: PodInfo, node_name: str) -> Status | None:
        return None


_OTHER: Final = (TypeError, ValueError, KeyError, AttributeError)
"""Errors that reading the answer to another question may raise."""


@coroutine
def _answer() -> Generator[None, Answer, Answer]:
    """Wait for the recorded answer.

    Raises:
        SchedulerError: the call failed then.
    """
    answer = yield
    if is_failure(answer):
        raise SchedulerError(str(answer[FAILURE]))
    return answer


def is_failure(answer: Answer) -> bool:
    """Whether the call failed."""
    return isinstance(answer, dict) and FAILURE in answer


def _written(status: Status) -> list[Any]:
    return [status.code.name, list(status.reasons), status.plugin]


def _read(written: Sequence[Any]) -> Status:
    code, reasons, plugin = written
    return Status(Code[code], tuple(map(str, reasons)), str(plugin))


def with_victims_only(found: PostFilterResult) -> PostFilterResult:
    """The candidates for which an extender, or the plugin, has named victims.

    If there is none, the status names the plugin that found the candidates, as a plugin's own
    rejection would: its hints wake the pod.
    """
    left = tuple(candidate for candidate in found.candidates if candidate.victims)
    if left:
        return replace(found, candidates=left)
    nothing_left = "preemption: no candidate node for preemption"
    return PostFilterResult(unschedulable(found.plugin, *found.earlier_reasons, nothing_left))


class KeptExtenders(Extenders):
    """A profile's extenders for one attempt of a group: what they said of a pod is kept.

    Members are looked at more than once, in other orders. Nodes that the extenders have not been
    shown for a pod are asked about where none is left of those that they have let pass.
    """

    def __init__(self, extenders: Extenders) -> None:
        self._extenders = extenders
        self._verdicts: dict[str, dict[str, Status | None]] = {}
        """By uid and node name; None: the node passes."""
        self._unfiltered: set[str] = set()
        """Uids of the pods which no extender filters for."""
        self._scores: dict[str, dict[str, int]] = {}
        self._struck: set[str] = set()
        """Uids of the pods whose candidates were shown."""
        self._is_kept = False
        """Whether the decision under way goes by what was said before."""

    @override
    async def accept(self, pod: PodInfo, node_name: str) -> bool:
        verdicts = self._verdicts.setdefault(pod.uid, {})
        self._is_kept = node_name in verdicts
        if not self._is_kept:
            accepted = await self._extenders.accept(pod, node_name)
            verdicts[node_name] = None if accepted else _NOT_ACCEPTED
        return verdicts[node_name] is None

    @override
    async def filter(self, pod: PodInfo, node_names: Sequence[str]) -> ExtenderFilterResult:
        verdicts = self._verdicts.setdefault(pod.uid, {})
        passing = [name for name in node_names if verdicts.get(name, _UNKNOWN) is None]
        self._is_kept = bool(passing) or pod.uid in self._unfiltered
        if pod.uid in self._unfiltered:
            return ExtenderFilterResult(node_names)
        if not passing:
            unknown = [name for name in node_names if name not in verdicts]
            offered = node_names if len(unknown) == len(node_names) else unknown
            if offered:
                answer = await self._extenders.filter(pod, offered)
                if answer.node_names is offered:
                    self._unfiltered.add(pod.uid)
                passing = list(answer.node_names)
                refused = {name: answer.statuses.get(name, _NOT_ACCEPTED) for name in offered}
                verdicts |= refused | dict.fromkeys(passing)
                if offered is node_names:
                    return answer
        if len(passing) == len(node_names):
            return ExtenderFilterResult(node_names)
        statuses = {
            name: status
            for name in node_names
            if (status := verdicts.get(name)) is not None and status is not _NOT_ACCEPTED
        }
        return ExtenderFilterResult(passing, statuses)

    @override
    async def prioritize(self, pod: PodInfo, node_names: Sequence[str]) -> IntColumn:
        scores = self._scores.setdefault(pod.uid, {})
        if not self._is_kept:
            added = await self._extenders.prioritize(pod, node_names)
            scores.update(zip(node_names, added.tolist(), strict=True))
        return np.array([scores.get(name, 0) for name in node_names], np.int64)

    @override
    async def preempt(self, pod: PodInfo, found: PostFilterResult) -> PostFilterResult:
        if pod.uid in self._struck:
            return with_victims_only(found)
        self._struck.add(pod.uid)
        return await self._extenders.preempt(pod, found)

    @override
    async def bind(self, pod: PodInfo, node_name: str) -> Status | None:
        return await self._extenders.bind(pod, node_name)


_NOT_ACCEPTED: Final = unschedulable("", "refused by an extender")
"""A node that was rejected without a reason."""
_UNKNOWN: Final = unschedulable("", "not asked about")
