"""An explanation of one pod: where it went, why it waits, or why no profile serves it.

The operator's port asks for it. Explaining goes on in steps, so that decisions have their turn in
between. Invariant: what is recomputed says so, and is computed on a fork; the live World is only
read.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from itertools import chain, islice
from typing import Final, Protocol

import numpy as np

from stellwerk.answers.gpus import GpusOfPod
from stellwerk.answers.observed import ObservedComparison, ObservedProfile
from stellwerk.answers.pod import (
    DecisionFields,
    DevicesOfPod,
    LastAttempt,
    LastPreemption,
    NearNode,
    OtherNodes,
    PluginFacts,
    PluginVerdicts,
    PodExplanation,
    PodState,
    PreemptedBy,
    PreemptionNow,
    PreFilterVerdict,
    RankedNode,
    ReasonCount,
    RecomputedExplanation,
    RecomputedVerdicts,
    SameVerdict,
    ScoreFields,
    TookPlace,
    VictimFields,
)
from stellwerk.answers.profiles import ProfileObject
from stellwerk.answers.shadow import ShadowDiff
from stellwerk.answers.suggestion import Suggestion
from stellwerk.backend.queued_pod import IN_FLIGHT, BindingStage, QueuedPod
from stellwerk.explain.attempt import Attempt, attempt, not_asked, take_out_own_copies
from stellwerk.explain.lists.page import owner_of
from stellwerk.explain.lists.queue import scheduled_message
from stellwerk.explain.proposals import PluginsAsked
from stellwerk.explain.queue_facts import (
    at,
    binding_facts,
    is_skipped,
    queue_facts,
)
from stellwerk.explain.queue_history import QueueHistory
from stellwerk.explain.records import (
    DecisionRecord,
    DecisionRecords,
    Evictions,
    Rejections,
    score_at,
)
from stellwerk.explain.steps import OutOfTime, Steps, on_fork
from stellwerk.explain.would_fit import WouldFit, filter_results, searched, suggested_edits
from stellwerk.framework.diagnosis import fit_error, reason_counts
from stellwerk.framework.filter_results import FilterResults
from stellwerk.framework.interface import PluginPart
from stellwerk.framework.types import PluginFailure, Status
from stellwerk.models.complexity import DEFAULT_MAX_POD_COMPLEXITY
from stellwerk.models.gpu import gpu_request
from stellwerk.models.pod import PodInfo
from stellwerk.plugins.shared.pod_resource_claims import claim_states
from stellwerk.world.decide import Decision
from stellwerk.world.profiles import MAX_NAMES_TO_SUGGEST, ServedProfile
from stellwerk.world.world import World
from stellwerk_kube.clock import rfc3339_milliseconds

_MAX_EXAMPLES: Final = 5
"""Nodes that are named for one reason, and of those that PreFilter leaves."""
_MAX_TAKERS: Final = 5
"""Pods that are named as those that took the place of another one."""
_MAX_NEAREST_NODES: Final = 20
"""Nodes that are shown one by one, those first that fewest plugins turn away."""
_MIN_SIMILARITY: Final = 0.6
"""Similarity, from 0 to 1, from which a schedulerName counts as misspelt: difflib's default."""


NOT_COMPARED: Final = (
    "its binding was not compared: it was bound before observing began, or the comparison is no "
    "longer kept"
)
NOT_COMPARED_YET: Final = (
    "its binding is not compared yet: a comparison waits for a second, or longer under load"
)


class Unserved(Protocol):
    """Tells pods that no scheduler serves from those of other schedulers."""

    def is_unserved(self, pod: PodInfo) -> bool:
        """Return whether no scheduler serves a pod that has no profile here."""
        ...

    def other_scheduler(self, pod: PodInfo) -> str:
        """Return the sign of another scheduler that serves the pod; empty: none is known."""
        ...


@dataclass(frozen=True, slots=True)
class Explanations:
    """Explanations of pods, and what they are made from."""

    world: World
    records: DecisionRecords
    evictions: Evictions
    without_profile: Callable[[], Mapping[str, PodInfo]]
    """Unbound pods that no profile serves, by uid."""
    unserved: Unserved
    """Tells those that no scheduler serves from those of other schedulers."""
    binding: Callable[[str], BindingStage | None]
    """Gives the stage of a pod's binding, by uid; None: the pod is not being bound."""
    history: QueueHistory
    profile_objects: Callable[[], Iterable[ProfileObject]]
    """Every SchedulerProfile with its conditions."""
    shadow: Callable[[str], ShadowDiff | None]
    """Gives the counts and differences of a profile with shadowOf, by its name; None: no shadow."""
    throttled: Callable[[PodInfo, ServedProfile], str]
    """Gives the reason why a pod would leave time to others now; empty: it would not."""
    max_pod_complexity: int = DEFAULT_MAX_POD_COMPLEXITY
    """Limit on the complexity of supposed pods and profiles, as of those from the API."""
    observed: Callable[[int], Iterable[ObservedProfile]] = lambda _: ()
    """Gives every observed profile, with up to this number of its last comparisons."""
    comparison_of: Callable[[PodInfo], ObservedComparison | None] = lambda _: None
    """Gives the comparison of a pod that an observed scheduler has bound; None: none is kept."""
    is_comparison_pending: Callable[[PodInfo], bool] = lambda _: False
    """Tells whether the binding of a pod was seen and is still to be compared."""

    def pod(self, namespace: str, name: str) -> Steps[PodExplanation] | None:
        """Explain a pod; None: there is none of that name."""
        for entry in self.world.queue.entries.values():
            if entry.newest.name == name and entry.newest.namespace == namespace:
                return self._pending(entry)
        for pod in self.world.cache.pods():
            if pod.name == name and pod.namespace == namespace:
                return self._bound(pod)
        for pod in self.without_profile().values():
            if pod.name == name and pod.namespace == namespace:
                return self._unserved(pod)
        gone = self.evictions.of_victim(f"{namespace}/{name}")
        return None if gone is None else _preempted(f"{namespace}/{name}", gone)

    # --- bound ----------------------------------------------------------------------------------

    def _bound(self, pod: PodInfo) -> Steps[PodExplanation]:
        yield
        claims = claim_states(self.world.objects, pod)
        victim = self.evictions.of_victim(pod.key)
        result = replace(
            self._header(pod, "bound"),
            node=pod.node_name,
            gpus=held_gpus(pod),
            devices=DevicesOfPod(claims=claims) if claims else None,
            preempted=victim if victim is not None and victim.node == pod.node_name else None,
        )
        record = self.records.of(pod.uid)
        observing = self._observing(pod)
        if observing and (record is None or record.node_name != pod.node_name):
            compared = self.comparison_of(pod)
            note = None
            if compared is None:
                is_pending = self.is_comparison_pending(pod)
                note = NOT_COMPARED_YET if is_pending else NOT_COMPARED
            return replace(result, observing=observing, comparison=compared, note=note)
        if record is None or record.node_name != pod.node_name:
            note = "this replica did not make the decision, or no longer keeps it"
            return replace(result, note=note)
        if record.nominated:
            # Only the pods that it evicted say why it went there.
            last = self.evictions.of_preemptor(pod.key)
            if last is not None and last.node == record.node_name:
                result = replace(result, last_preemption=last)
        profile = self.world.profiles.served.get(record.scheduler_name)
        if profile is not None and record.scheduler_name != pod.spec.scheduler_name:
            result = replace(result, selected_by=profile.loaded.name)
        return replace(result, decision=self._record(record))

    def _observing(self, pod: PodInfo) -> str | None:
        """The schedulerName of an observed pod; None: no profile observes it."""
        profile = self.world.profiles.of(pod)
        return profile.scheduler_name if profile is not None and profile.observes else None

    def _refused(self, pod: PodInfo) -> OtherNodes | None:
        refused = self.records.refused(pod.uid)
        return None if refused is None else self._others(refused)

    def _others(self, why: Rejections) -> OtherNodes:
        return OtherNodes(
            counted_at=at(self.world.clock, why.counted_at_seconds),
            nodes=why.others,
            reasons=reasons_of(why.counts.items()),
        )

    def _record(self, record: DecisionRecord) -> DecisionFields:
        clock, why = self.world.clock, record.rejections
        return DecisionFields(
            decided_at=at(clock, record.decided_at_seconds),
            compatibility=str(record.release),
            attempts=record.attempts,
            nodes=record.nodes,
            evaluated=record.evaluated,
            feasible=record.feasible,
            tied=record.tied,
            nominated=record.nominated,
            remarks=list(record.remarks) or None,
            best=[_ranked(record, position) for position in record.ranked()],
            others=None if why is None else self._others(why),
        )

    # --- pending --------------------------------------------------------------------------------

    def _pending(self, entry: QueuedPod) -> Steps[PodExplanation]:
        world, pod = self.world, entry.newest
        if is_skipped(world, entry):
            yield
            note = "it is being deleted; it is in no queue and takes no room on a node"
            return replace(self._header(pod, "terminating"), note=note)
        last_attempt = None
        if entry.attempts:
            ended_at = at(world.clock, entry.queued_at)
            last_attempt = LastAttempt(ended_at=ended_at, message=scheduled_message(pod) or None)
        result = replace(
            self._header(pod, "scheduling" if entry.place in IN_FLIGHT else "waiting"),
            queue=queue_facts(world, entry),
            last_attempt=last_attempt,
            last_preemption=self._last_preemption(pod),
            refused_by_extenders=self._refused(pod),
        )
        if observing := self._observing(pod):
            # The condition is the other scheduler's, and so are its attempts.
            said = scheduled_message(pod) or None
            result = replace(result, observing=observing, scheduler_said=said, last_attempt=None)
        assumed, stage = world.cache.assumed_pods.get(pod.uid), self.binding(pod.uid)
        if assumed is not None and stage is not None:
            # It has its node: nothing is to be found out about others, and on this one it counts.
            yield
            binding = binding_facts(world, pod, assumed, stage)
            result = replace(result, node=assumed.node_name, binding=binding, queue=None)
            record = self.records.of(pod.uid)
            if record is None or record.node_name != assumed.node_name:
                return result
            return replace(result, decision=self._record(record))
        profile = world.profiles.of(pod)
        if profile is None:
            return self._without_profile(result, pod)
        yield
        found = yield from on_fork(world, lambda fork: _pending_on(fork, pod, world))
        if found is None:
            return result
        # Of the moment of the answer: a slow plugin may have taken seconds until here.
        throttled = self.throttled(pod, profile)
        refused = result.refused_by_extenders
        # An attempt that failed has no node left that plugins and extenders both let pass.
        held_up = throttled or (refused is not None and _refused_words(refused.nodes)) or ""
        if held_up and found.would_get_node is not None:
            found = replace(found, would_get_node=None, tied_nodes=None, tied=None)
            found = replace(found, would_wait=held_up)
        return replace(
            result,
            verdicts=found.verdicts,
            devices=found.devices,
            gpus=found.gpus,
            would_get_node=found.would_get_node,
            tied_nodes=found.tied_nodes,
            tied=found.tied,
            would_wait=found.would_wait,
            preemption=found.preemption,
            would_fit=found.would_fit,
            note=found.stopped,
            plugins=found.plugins,
            left_out=found.left_out,
        )

    def _last_preemption(self, pod: PodInfo) -> LastPreemption | None:
        last = self.evictions.of_preemptor(pod.key)
        if last is None:
            return None
        took_place = None if pod.nominated_node_name == last.node else self._took_place(pod)
        return replace(last, nominated_node=pod.nominated_node_name, took_place=took_place)

    def _took_place(self, pod: PodInfo) -> list[TookPlace]:
        """The pods that got, or were nominated to, the node that victims were to leave for one."""
        nomination = self.evictions.nomination_of(pod.key)
        if nomination is None:
            return []
        bound = self.records.since(nomination.node_name, nomination.decided_at_seconds)
        later = self.evictions.later_on(nomination)
        nominated: Iterable[tuple[PodInfo | DecisionRecord, float, bool]] = (
            (it.preemptor, it.decided_at_seconds, False) for it in later
        )
        takers = {
            each.uid: (each, seconds, is_bound)
            for each, seconds, is_bound in chain(
                nominated, ((it, it.decided_at_seconds, True) for it in bound)
            )
            # What has less priority has no place that a nominated pod waits for.
            if each.priority >= pod.priority and each.uid != pod.uid
        }
        return [
            TookPlace(
                pod=each.key,
                priority=each.priority,
                bound=is_bound,
                decided_at=at(self.world.clock, decided_at_seconds),
            )
            for each, decided_at_seconds, is_bound in islice(takers.values(), _MAX_TAKERS)
        ]

    # --- without a profile ----------------------------------------------------------------------

    def _unserved(self, pod: PodInfo) -> Steps[PodExplanation]:
        yield
        sign = self.unserved.other_scheduler(pod)
        if not sign:
            return self._without_profile(self._header(pod, "unserved"), pod)
        reason = f'another scheduler serves schedulerName "{pod.spec.scheduler_name}": {sign}'
        return replace(self._header(pod, "elsewhere"), reason=reason)

    def _without_profile(self, explanation: PodExplanation, pod: PodInfo) -> PodExplanation:
        """The explanation with the reason why no profile serves the pod."""
        profiles, wanted = self.world.profiles, pod.spec.scheduler_name
        near = get_close_matches(
            wanted, islice(profiles.served, MAX_NAMES_TO_SUGGEST), 1, _MIN_SIMILARITY
        )
        return replace(
            explanation,
            reason=profiles.why_none(pod, hints=False),
            served=sorted(profiles.served),
            nearest=near[0] if near else None,
        )

    def _header(self, pod: PodInfo, state: PodState) -> PodExplanation:
        selecting = None if pod.node_name else self.world.profiles.selecting(pod)
        return PodExplanation(
            pod=pod.key,
            uid=pod.uid,
            scheduler_name=pod.spec.scheduler_name,
            priority=pod.priority,
            requests=dict(pod.amounts.requests) or None,
            state="terminating" if pod.terminating else state,
            selected_by=None if selecting is None else selecting.loaded.name,
            pod_group=None if pod.group is None else pod.group.shown,
            owner=owner_of(pod) or None,
        )


def held_gpus(pod: PodInfo) -> GpusOfPod | None:
    """Return the numbers of the GPUs that a pod has on its node, as it says; None: it has none."""
    request = gpu_request(pod.amounts.requests)
    if request is None or not pod.gpu_devices:
        return None
    return GpusOfPod(
        devices=request.devices, milli_of_each=request.milli, numbers=list(pod.gpu_devices)
    )


def _refused_words(nodes: int) -> str:
    """The reason why a pod waits although plugins let nodes pass."""
    counted = "1 node" if nodes == 1 else f"{nodes:,} nodes"
    return f"in its last attempt extenders rejected {counted} that passed the plugins"


def _preempted(key: str, victim: PreemptedBy) -> Steps[PodExplanation]:
    yield
    return PodExplanation(pod=key, state="preempted", preempted=victim)


def explain_attempt(
    world: World, pod: PodInfo, profile: ServedProfile, live: World | None = None
) -> Steps[tuple[RecomputedExplanation, Attempt | None]]:
    """The verdicts on a pod, recomputed on a fork, and where it would go or what would help.

    With the attempt that says so; None: a plugin failed. The pod has its node on the fork from then
    on. `live`: as for `attempt`.
    """
    take_out_own_copies(world, [pod])
    world.cache.update_snapshot()
    computed = rfc3339_milliseconds(world.clock.now())
    try:
        yield from searched(world, pod, profile)
        found = yield from filter_results(world, pod, profile)
        yield
        asked = PluginsAsked(world.cache.snapshot, pod, profile, found.found.state)
        result = RecomputedExplanation(
            verdicts=replace(
                verdicts(world, found, computed), compatibility=str(profile.compatibility.version)
            )
        )
        parts = {**(yield from asked.parts())}
        for name, why in _distrusted(pod, live or world).items():
            own = parts.get(name)
            said = own if isinstance(own, PluginFacts) else PluginFacts(lines=())
            parts[name] = replace(said, lines=(*said.lines, why))
        result = _with_parts(world, pod, result, parts)
        left_out = [*asked.left_out, *not_asked(profile, pod)] or None
        tried = yield from attempt(world, pod, profile, live)
        yield
        if tried.node_name:
            return replace(
                result,
                would_get_node=tried.node_name,
                tied=tried.tied or None,
                tied_nodes=tried.tied_nodes or None,
                left_out=left_out,
            ), tried
        if found.fits.any():
            return replace(result, would_wait=tried.message, left_out=left_out), tried
        search, of_objects, stopped = WouldFit(world, pod, profile), list[Suggestion](), None
        try:
            yield from search.search(found, asked)
            of_objects = yield from suggested_edits(world, pod, profile, asked.object_edits)
        except OutOfTime as reason:
            stopped = str(reason)
    except PluginFailure as failure:
        failed = RecomputedVerdicts(recomputed_at=computed, error=str(failure))
        return RecomputedExplanation(verdicts=failed), None
    return replace(
        result,
        preemption=None if tried.decision is None else preemption(tried.decision, search),
        would_fit=[each.answer() for each in search.suggestions] + of_objects,
        would_wait=None if tried.is_own else tried.message,
        left_out=[*asked.left_out, *not_asked(profile, pod)] or None,
        stopped=stopped,
    ), tried


def explain_on(
    world: World, pod: PodInfo, profile: ServedProfile, live: World | None = None
) -> Steps[RecomputedExplanation]:
    """`explain_attempt` without the attempt."""
    explanation, _ = yield from explain_attempt(world, pod, profile, live)
    return explanation


def _pending_on(fork: World, pod: PodInfo, live: World) -> Steps[RecomputedExplanation | None]:
    """The explanation of a pod that waits; None: its profile is served no more."""
    served = fork.profiles.of(pod)
    if served is None:
        return None
    return (yield from explain_on(fork, pod, served, live))


def _distrusted(pod: PodInfo, live: World) -> Mapping[str, str]:
    """Plugins whose answers the pod's profile reuses no more, and why: some may have been wrong."""
    served = live.profiles.of(pod)
    return {} if served is None else served.framework.distrusted


def _with_parts(
    world: World, pod: PodInfo, result: RecomputedExplanation, parts: Mapping[str, PluginPart]
) -> RecomputedExplanation:
    """The explanation with what each plugin says, in the field of its kind."""
    claims = claim_states(world.objects, pod)
    devices = DevicesOfPod(claims=claims) if pod.spec.resource_claims else None
    gpus, facts = None, {}
    for plugin, part in parts.items():
        match part:
            case DevicesOfPod():
                devices = part
            case GpusOfPod():
                gpus = part
            case PluginFacts():
                facts[plugin] = part
    return replace(result, devices=devices, gpus=gpus, plugins=facts or None)


def verdicts(world: World, found: FilterResults, computed: str) -> RecomputedVerdicts:
    """Every plugin's verdicts, grouped by reason, the plugin that turns most nodes away first."""
    names = world.cache.snapshot.names(found.rows.tolist())
    by_plugin: list[PluginVerdicts] = []
    for plugin in found.results:
        same = [
            SameVerdict(
                reasons=list(status.reasons),
                nodes=len(positions),
                examples=[names[position] for position in positions[:_MAX_EXAMPLES]],
            )
            for status, positions in found.statuses(plugin)
        ]
        if same:
            nodes = sum(each.nodes for each in same)
            by_plugin.append(PluginVerdicts(plugin=plugin, nodes=nodes, verdicts=same))
    by_plugin.sort(key=lambda each: -each.nodes)
    status, only = found.found.pre_filter, found.found.node_names
    pre_filter = PreFilterVerdict(plugin=status.plugin, reasons=list(status.reasons))
    return RecomputedVerdicts(
        recomputed_at=computed,
        nodes=len(names),
        feasible=int(found.fits.sum()),
        by_plugin=by_plugin,
        first_reasons=dict(reason_counts(found.diagnosis.statuses)),
        pre_filter=None if status.ok else pre_filter,
        only_nodes=None if only is None else sorted(only)[:_MAX_EXAMPLES],
        message=None if found.fits.any() else fit_error(found.diagnosis),
        nearest=_nearest(found, names) if found.results else None,
    )


def _nearest(found: FilterResults, names: Sequence[str]) -> list[NearNode]:
    """The nodes that fewest plugins turn away, each with what these say of it."""
    order = np.argsort(found.fails, kind="stable")[:_MAX_NEAREST_NODES].tolist()
    return [
        NearNode(
            node=names[position],
            rejected_by={
                plugin: list(found.status(plugin, position).reasons)
                for plugin in found.failing(position)
            },
        )
        for position in order
    ]


def preemption(decision: Decision, search: WouldFit) -> PreemptionNow:
    """The outcome of preemption now, and as it would be if it were allowed."""
    would_do = None
    if search.eviction:
        pods = ", ".join(search.eviction)
        would_do = (
            f"evicting {pods} on {search.eviction_node} would make room, but preemptionPolicy "
            "is Never"
        )
    candidate, post_filter = decision.candidate, decision.post_filter
    if candidate is None:
        message = post_filter.status.message if post_filter is not None else ""
        return PreemptionNow(message=message, would_do=would_do)
    victims = [VictimFields(pod=each.key, priority=each.priority) for each in candidate.victims]
    return PreemptionNow(
        node=candidate.node_name,
        victims=victims,
        decided_by=decision.decided_by or None,
        would_do=would_do,
    )


def reasons_of(counts: Iterable[tuple[Status, int]]) -> list[ReasonCount]:
    """Rejections counted by status, the most frequent first."""
    return [
        ReasonCount(plugin=status.plugin, reasons=list(status.reasons), nodes=nodes)
        for status, nodes in sorted(counts, key=lambda each: -each[1])
    ]


def _ranked(record: DecisionRecord, position: int) -> RankedNode:
    """A node of a record; all that are better than one of the best are kept, too."""
    scores = {}
    for score in record.scores:
        plugin, weight, *_ = score
        raw, normalized = score_at(score, position)
        weighted = normalized * weight
        scores[plugin] = ScoreFields(raw=raw, normalized=normalized, weighted=weighted)
    total, rank = 0, 1
    if record.total is not None:
        total = int(record.total[position])
        rank += int((record.total > total).sum())
    name = record.names[position]
    return RankedNode(node=name, rank=rank, total=total, scores=scores)
