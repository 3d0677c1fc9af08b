"""A profile's extenders, called in kube-scheduler's order and with its meaning.

The scheduling cycle filters and prioritizes with them, bindings may be theirs, preemption asks them
about victims. Invariant: filters run one after the other on what is left, scores are asked for at
once; the failure of an ignorable extender changes nothing, that of another one ends the attempt,
and a prioritizer's failure never matters.
"""

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
from typing_extensions import override

from stellwerk.backend.cache import Cache
from stellwerk.client.extender import AnsweredVictims, HttpExtender, OfferedNodes, OfferedVictims
from stellwerk.client.fence import Fence
from stellwerk.clock import Clock
from stellwerk.errors import ExtenderError, SchedulerError
from stellwerk.framework.interface import MAX_NODE_SCORE, Candidate, ClusterClient, Diagnosis
from stellwerk.framework.runtime import Feasibility
from stellwerk.framework.status import OK, Code, Status
from stellwerk.framework.status_column import StatusColumn
from stellwerk.metrics import Metrics
from stellwerk.models.extender_spec import Extender
from stellwerk.models.pod import PodInfo
from stellwerk.scheduler.extenders.raw_objects import RawObjects, Wanted
from stellwerk.scheduler.preemption import PreemptionExtender
from stellwerk.snapshot.columns import IntColumn
from stellwerk.snapshot.node_view import NodeView
from stellwerk.snapshot.snapshot import Snapshot

logger = logging.getLogger(__name__)

EXTENDER: Final = "Extender"
"""Stands for all extenders among the plugins that rejected a pod; any event may wake it."""
MAX_EXTENDER_SCORE: Final = 10
_SCORE_LIMIT: Final = 2**53
"""Beyond it an extender's score is cut off, so that totals cannot overflow."""
_REJECTED_SILENTLY: Final = Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE)


@dataclass(slots=True)
class Rejections:
    """The nodes that extenders took away, for the diagnosis of an attempt that failed."""

    statuses: dict[str, Status] = field(default_factory=dict)
    """By node name, where a reason was given."""
    happened: bool = False

    def added_to(self, diagnosis: Diagnosis, snapshot: Snapshot) -> Diagnosis:
        """The diagnosis with the extenders' word for every node they rejected."""
        if not self.happened:
            return diagnosis
        names = [snapshot.node_at(row).name for row in diagnosis.rows]
        statuses = StatusColumn.of(
            # A node that passed the filters and is not feasible went without a word.
            self.statuses.get(name, _REJECTED_SILENTLY if status.ok else status)
            for name, status in zip(names, diagnosis.statuses, strict=True)
        )
        plugins = diagnosis.unschedulable_plugins | {EXTENDER}
        return replace(diagnosis, statuses=statuses, unschedulable_plugins=plugins)


class CalledExtender(PreemptionExtender):
    """One extender, in the terms of the scheduler."""

    def __init__(self, http: HttpExtender, raw: RawObjects, cache: Cache) -> None:
        self.http = http
        self.spec = http.spec
        self._raw = raw
        self._cache = cache
        self._managed = frozenset(resource.name for resource in self.spec.managed_resources)

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
        if not self._managed:
            return True
        amounts = pod.spec.amounts
        return not self._managed.isdisjoint(amounts.requests.keys() | amounts.limits.keys())

    async def filter(
        self, pod: PodInfo, names: Sequence[str], rejections: Rejections
    ) -> Sequence[str]:
        """The nodes that are left, in the extender's order.

        Raises:
            SchedulerError: the extender failed, or what it is to be sent cannot be read.
        """
        answer = await self.http.filter(await self._raw.pod(pod), await self._offered(names))
        statuses = rejections.statuses
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
                scores[place[name]] += min(max(score * factor, -_SCORE_LIMIT), _SCORE_LIMIT)
        return scores

    async def bind(self, pod: PodInfo, node_name: str) -> None:
        """Have a pod bound.

        Raises:
            ExtenderError: it was not bound, as far as can be told.
        """
        await self.http.bind(pod.namespace, pod.name, pod.uid, node_name)

    @override
    async def preempt(self, pod: PodInfo, candidates: Sequence[Candidate]) -> Sequence[Candidate]:
        raw_victims: Mapping[str, bytes] | None = None
        if not self.spec.node_cache_capable:
            everybody = {v.uid: v for candidate in candidates for v in candidate.victims}
            raw_victims = await self._raw.pods(everybody.values())
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
                raise ExtenderError(self.name, "preempt", message)
        return tuple(known[uid] for uid in victims.uids)


def _offered_victims(candidate: Candidate, raw: Mapping[str, bytes] | None) -> OfferedVictims:
    uids = [victim.uid for victim in candidate.victims]
    objects = None if raw is None else [raw[uid] for uid in uids]
    return OfferedVictims(uids, candidate.pdb_violations, objects)


class ProfileExtenders:
    """The extenders of one profile; an attempt keeps those it began with."""

    def __init__(self, extenders: Sequence[CalledExtender]) -> None:
        self.extenders = extenders

    async def filter(self, pod: PodInfo, found: Feasibility, snapshot: Snapshot) -> Rejections:
        """Narrow the feasible rows down, one extender after the other.

        This is `findNodesThatPassExtenders`; their order is the order in which nodes are offered.

        Raises:
            SchedulerError: an extender that is not ignorable failed.
        """
        rows = found.rows
        if rows is None:
            order = snapshot.visit_order
            rows = order[found.fits[order]]
        offered = snapshot.names(rows.tolist())
        rejections = Rejections()
        remaining = await self._remaining(pod, offered, rejections)
        if remaining is not offered:
            rejections.happened = len(remaining) != len(offered)
            found.rows = np.array([snapshot.row_of[name] for name in remaining], dtype=np.intp)
            found.fits = np.zeros_like(found.fits)
            found.fits[found.rows] = True
        return rejections

    async def accept(self, pod: PodInfo, node_name: str) -> bool:
        """Whether the node that was promised to the pod stands (`evaluateNominatedNode`).

        If not, or if an extender fails, all nodes are looked at.
        """
        try:
            return bool(await self._remaining(pod, [node_name], Rejections()))
        except SchedulerError as failure:
            logger.warning("%s: the nominated node cannot be evaluated: %s", pod.key, failure)
            return False

    async def _remaining(
        self, pod: PodInfo, names: Sequence[str], rejections: Rejections
    ) -> Sequence[str]:
        """The nodes that every filter leaves, or the very same sequence if nobody filters.

        Raises:
            SchedulerError: an extender that is not ignorable failed.
        """
        for extender in self._interested(pod):
            if not names:
                break
            if not extender.spec.filter_verb:
                continue
            try:
                names = await extender.filter(pod, names, rejections)
            except SchedulerError as failure:
                if not extender.ignorable:
                    raise
                logger.info("%s goes on without extender %s: %s", pod.key, extender.name, failure)
        return names

    async def prioritize(self, pod: PodInfo, nodes: NodeView) -> IntColumn:
        """(n,) int64, what the extenders add to the totals; all of them are asked at once."""
        names = nodes.snapshot.names(nodes.row_numbers().tolist())
        place = {name: position for position, name in enumerate(names)}
        answers = await asyncio.gather(
            *(
                self._scores(extender, pod, names, place)
                for extender in self._interested(pod)
                if extender.spec.prioritize_verb
            )
        )
        scores: IntColumn = np.zeros(len(names), np.int64)
        for answer in answers:
            if answer is not None:
                scores += answer
        return scores

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


class ExtenderPool:
    """The extenders of all profiles; equal ones are one, with one set of connections."""

    def __init__(
        self,
        client: ClusterClient,
        raw: RawObjects,
        cache: Cache,
        clock: Clock,
        metrics: Metrics,
        fence: Fence | None = None,
    ) -> None:
        self._client = client
        self._raw = raw
        self._cache = cache
        self._clock = clock
        self._metrics = metrics
        self._fence = fence
        self._extenders: list[CalledExtender] = []
        self._closing: set[asyncio.Task[None]] = set()

    def serve(self, wanted: Mapping[str, Sequence[Extender]]) -> dict[str, ProfileExtenders]:
        """The extenders of each profile that has any; those that are in no profile are closed."""
        before, self._extenders = self._extenders, []
        served = {
            scheduler_name: ProfileExtenders([self._extender(spec, before) for spec in specs])
            for scheduler_name, specs in wanted.items()
            if specs
        }
        self._raw.want(_wanted(wanted))
        for extender in before:
            if extender not in self._extenders:
                self._retire(extender)
        return served

    async def close(self) -> None:
        """Close every connection."""
        self.serve({})
        await asyncio.gather(*self._closing)

    def _extender(self, spec: Extender, before: Sequence[CalledExtender]) -> CalledExtender:
        for extender in (*self._extenders, *before):
            if extender.spec == spec:
                break
        else:
            http = HttpExtender(
                spec,
                self._client.get,
                clock=self._clock,
                metrics=self._metrics,
                fence=self._fence,
            )
            extender = CalledExtender(http, self._raw, self._cache)
        if extender not in self._extenders:
            self._extenders.append(extender)
        return extender

    def _retire(self, extender: CalledExtender) -> None:
        """Attempts under way may still call it; a call opens what it needs, and closes it again."""
        task = asyncio.get_running_loop().create_task(extender.http.close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)


def _wanted(specs: Mapping[str, Sequence[Extender]]) -> Wanted:
    every = [spec for each in specs.values() for spec in each]
    return Wanted(
        frozenset(
            name
            for name, each in specs.items()
            if any(spec.filter_verb or spec.prioritize_verb or spec.preempt_verb for spec in each)
        ),
        nodes=any(
            (spec.filter_verb or spec.prioritize_verb) and not spec.node_cache_capable
            for spec in every
        ),
        bound_pods=any(spec.preempt_verb and not spec.node_cache_capable for spec in every),
    )
