"""A profile's extenders, called in kube-scheduler's order and with its meaning.

The scheduling cycle filters and prioritizes with them, bindings may be theirs, preemption asks them
about victims. Invariant: filters run one after the other on what is left, scores are asked for at
once; the failure of an ignorable extender changes nothing, that of another one ends the attempt,
and a prioritizer's failure never matters.

The scheduling coroutine waits for these answers, so a slow extender holds up all pods, up to its
`httpTimeout` for each call. The time is taken from the profile's share (`framework.time_budget`).
"""

import asyncio
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Final, Protocol

import numpy as np
from typing_extensions import override

from stellwerk.backend.cache import Cache
from stellwerk.client.extender import HttpExtender, OfferedNodes, OfferedVictims
from stellwerk.client.extender_answers import AnsweredVictims
from stellwerk.framework.interface import MAX_NODE_SCORE, Candidate, PostFilterResult
from stellwerk.framework.time_budget import TimeBudget
from stellwerk.framework.types import OK, Code, Status, error
from stellwerk.models.pod import PodInfo
from stellwerk.scheduler.extenders.raw_objects import RawObjects
from stellwerk.snapshot.columns import IntColumn
from stellwerk.world.extenders import (
    ExtenderFilterResult,
    Extenders,
    is_interested,
    with_victims_only,
)
from stellwerk_kube.errors import ExtenderError, SchedulerError
from stellwerk_kube.untrusted_text import shown

logger = logging.getLogger(__name__)

MAX_EXTENDER_SCORE: Final = 10
"""Highest score that an extender is expected to give (`extenderv1.MaxExtenderPriority`)."""
MAX_SUMMED_SCORE: Final = 2**53
"""Bound on an extender's score: beyond it the score is cut off, so that totals cannot overflow."""


class PreemptionExtender(Protocol):
    """The properties of an extender that preemption needs."""

    @property
    def name(self) -> str:
        """Its name in logs."""
        ...

    @property
    def ignorable(self) -> bool:
        """True: scheduling goes on without the extender if it fails."""
        ...

    @property
    def supports_preemption(self) -> bool:
        """True: the extender has a preempt verb."""
        ...

    def is_interested(self, pod: PodInfo) -> bool:
        """Return whether the pod uses a resource that the extender manages, or any pod will do."""
        ...

    async def preempt(self, pod: PodInfo, candidates: Sequence[Candidate]) -> Sequence[Candidate]:
        """Return the candidates that remain, perhaps with other victims.

        Raises:
            SchedulerError: the extender failed.
        """
        ...


class CalledExtender(PreemptionExtender):
    """One extender, in the terms of the scheduler."""

    def __init__(self, http: HttpExtender, raw: RawObjects, cache: Cache) -> None:
        self.http = http
        self.spec = http.spec
        self._raw = raw
        self._cache = cache

    @property
    @override
    def name(self) -> str:
        return self.http.name

    @property
    @override
    def ignorable(self) -> bool:
        return self.spec.ignorable

    @property
    @override
    def supports_preemption(self) -> bool:
        return bool(self.spec.preempt_verb)

    @override
    def is_interested(self, pod: PodInfo) -> bool:
        return is_interested(self.spec, pod)

    async def filter(
        self, pod: PodInfo, names: Sequence[str], statuses: dict[str, Status]
    ) -> Sequence[str]:
        """The nodes that are left, in the extender's order; `statuses` gets the reasons.

        Raises:
            SchedulerError: the extender failed, or what it is to be sent cannot be read.
        """
        answer = await self.http.filter(await self._raw.pod(pod), await self._offered(names))
        for name, reason in answer.unresolvable.items():
            statuses[name] = Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, (reason,))
        for name, reason in answer.failed.items():
            if name not in answer.unresolvable:
                statuses[name] = Status(Code.UNSCHEDULABLE, (reason,))
        return answer.node_names

    async def prioritize(
        self, pod: PodInfo, names: Sequence[str], place: Mapping[str, int]
    ) -> IntColumn:
        """(n,) int64, score × weight × 10 for nodes in the order of `names`.

        Raises:
            SchedulerError: the extender failed, or what it is to be sent cannot be read.
        """
        answer = await self.http.prioritize(await self._raw.pod(pod), await self._offered(names))
        scores: IntColumn = np.zeros(len(names), np.int64)
        factor = self.spec.weight * (MAX_NODE_SCORE // MAX_EXTENDER_SCORE)
        for name, score in answer:
            if name in place:
                scores[place[name]] += min(max(score * factor, -MAX_SUMMED_SCORE), MAX_SUMMED_SCORE)
        return scores

    async def bind(self, pod: PodInfo, node_name: str) -> None:
        """Have a pod bound.

        Raises:
            ExtenderError: it was not bound, as far as is known.
        """
        await self.http.bind(pod.namespace, pod.name, pod.uid, node_name)

    @override
    async def preempt(self, pod: PodInfo, candidates: Sequence[Candidate]) -> Sequence[Candidate]:
        raw_victims: Mapping[str, bytes] | None = None
        if not self.spec.node_cache_capable:
            distinct = {v.uid: v for candidate in candidates for v in candidate.victims}
            raw_victims = await self._raw.pods(distinct.values())
        victims = {each.node_name: _offered_victims(each, raw_victims) for each in candidates}
        answer = await self.http.preempt(await self._raw.pod(pod), victims)
        offered = {each.node_name: each for each in candidates}
        return [
            Candidate(
                node_name,
                self._resolved(node_name, each, offered.get(node_name)),
                each.pdb_violations,
            )
            for node_name, each in answer.items()
        ]

    async def _offered(self, names: Sequence[str]) -> OfferedNodes:
        if self.spec.node_cache_capable:
            return OfferedNodes(names)
        return OfferedNodes(names, await self._raw.nodes(names))

    def _resolved(
        self, node_name: str, victims: AnsweredVictims, offered: Candidate | None
    ) -> tuple[PodInfo, ...]:
        """The pods with these uids, which have to be known as victims or to run on the node."""
        known = dict(self._cache.pods_on(node_name))
        if offered is not None:
            known |= {victim.uid: victim for victim in offered.victims}
        for uid in victims.uids:
            if uid not in known:
                message = (
                    f"extender: {self.name} claims to preempt pod (UID: {uid}) on node: "
                    f"{node_name}, but the pod is not found on that node"
                )
                raise ExtenderError(self.name, "preempt", shown(message))
        return tuple(known[uid] for uid in victims.uids)


def _offered_victims(candidate: Candidate, raw: Mapping[str, bytes] | None) -> OfferedVictims:
    uids = [victim.uid for victim in candidate.victims]
    objects = None if raw is None else [raw[uid] for uid in uids]
    return OfferedVictims(uids, candidate.pdb_violations, objects)


class ProfileExtenders(Extenders):
    """The extenders of one version of a profile, in the order in which it names them."""

    def __init__(
        self, extenders: Sequence[CalledExtender], scheduler_name: str, budget: TimeBudget
    ) -> None:
        self.extenders = extenders
        self._scheduler_name = scheduler_name
        self._budget = budget

    @override
    async def accept(self, pod: PodInfo, node_name: str) -> bool:
        """Return whether the extenders accept a pod's nominated node (`evaluateNominatedNode`)."""
        try:
            return bool(await self._remaining(pod, [node_name], {}))
        except SchedulerError as failure:
            logger.warning("%s: the nominated node cannot be evaluated: %s", pod.key, failure)
            return False

    @override
    async def filter(self, pod: PodInfo, node_names: Sequence[str]) -> ExtenderFilterResult:
        """Narrow the nodes down, one extender after the other (`findNodesThatPassExtenders`).

        Raises:
            SchedulerError: an extender that is not ignorable failed.
        """
        statuses: dict[str, Status] = {}
        return ExtenderFilterResult(await self._remaining(pod, node_names, statuses), statuses)

    async def _remaining(
        self, pod: PodInfo, names: Sequence[str], statuses: dict[str, Status]
    ) -> Sequence[str]:
        """The nodes that every filter leaves, or the very same sequence if no extender filters.

        Raises:
            SchedulerError: an extender that is not ignorable failed.
        """
        for extender in self._interested(pod):
            if not names:
                break
            if not extender.spec.filter_verb:
                continue
            try:
                with self._accounted(extender.name):
                    names = await extender.filter(pod, names, statuses)
            except SchedulerError as failure:
                if not extender.ignorable:
                    raise
                logger.info(
                    "%s is decided without extender %s: %s", pod.key, extender.name, failure
                )
        return names

    @override
    async def prioritize(self, pod: PodInfo, node_names: Sequence[str]) -> IntColumn:
        """(n,) int64, what the extenders add to the totals; all of them are asked at once."""
        place = {name: position for position, name in enumerate(node_names)}
        asked = [each for each in self._interested(pod) if each.spec.prioritize_verb]
        with self._accounted(", ".join(extender.name for extender in asked)):
            answers = await asyncio.gather(
                *(self._scores(extender, pod, node_names, place) for extender in asked)
            )
        scores: IntColumn = np.zeros(len(node_names), np.int64)
        for answer in answers:
            if answer is not None:
                scores += answer
        return scores

    @override
    async def preempt(self, pod: PodInfo, found: PostFilterResult) -> PostFilterResult:
        asked = [each for each in self._interested(pod) if each.supports_preemption]
        with self._accounted(", ".join(extender.name for extender in asked)):
            return await call_extenders(pod, found, self.extenders)

    @override
    async def bind(self, pod: PodInfo, node_name: str) -> Status | None:
        """Let the extender that binds do so; None if that is left to the profile's plugins."""
        for extender in self._interested(pod):
            if not extender.spec.bind_verb:
                continue
            try:
                await extender.bind(pod, node_name)
            except SchedulerError as failure:
                if not extender.ignorable:
                    return Status(Code.ERROR, (str(failure),))
                logger.info("%s is bound without extender %s: %s", pod.key, extender.name, failure)
            else:
                return OK
        return None

    @contextmanager
    def _accounted(self, names: str) -> Iterator[None]:
        """Put the time for which the scheduling coroutine waits to the profile's account."""
        started_seconds = self._budget.now()
        try:
            yield
        finally:
            seconds = self._budget.now() - started_seconds
            if names:
                self._budget.spent(self._scheduler_name, f"extender {names}", seconds)

    def _interested(self, pod: PodInfo) -> Iterable[CalledExtender]:
        return (extender for extender in self.extenders if extender.is_interested(pod))

    async def _scores(
        self, extender: CalledExtender, pod: PodInfo, names: Sequence[str], place: Mapping[str, int]
    ) -> IntColumn | None:
        try:
            return await extender.prioritize(pod, names, place)
        except SchedulerError as failure:
            logger.debug("%s gets no score from %s: %s", pod.key, extender.name, failure)
            return None


async def call_extenders(
    pod: PodInfo, found: PostFilterResult, extenders: Sequence[PreemptionExtender]
) -> PostFilterResult:
    """Let extenders strike candidates off, one extender after the other (`callExtenders`)."""
    candidates: Sequence[Candidate] = found.candidates
    for extender in extenders:
        if not candidates:
            break
        if not extender.supports_preemption or not extender.is_interested(pod):
            continue
        try:
            answer = await extender.preempt(pod, candidates)
        except SchedulerError as failure:
            if extender.ignorable:
                logger.warning("ignoring extender %s: %s", extender.name, failure)
                continue
            return PostFilterResult(error(found.plugin, f"preemption: {failure}"))
        # Offered without victims, a node may be left so for the next extender to name some.
        unnamed = {candidate.node_name for candidate in candidates if not candidate.victims}
        emptied = [
            candidate.node_name
            for candidate in answer
            if not candidate.victims and candidate.node_name not in unnamed
        ]
        if emptied and not extender.ignorable:
            message = f'expected at least one victim pod on node "{emptied[0]}"'
            return PostFilterResult(error(found.plugin, f"preemption: {message}"))
        candidates = [each for each in answer if each.node_name not in emptied]
    return with_victims_only(replace(found, candidates=tuple(candidates)))
