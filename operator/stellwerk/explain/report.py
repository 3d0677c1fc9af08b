"""An explanation of one pod as JSON: where it went, why it waits, or why no profile serves it.

The operator's port asks for it. Explaining goes on in steps, so that decisions have their turn in
between. Invariant: what is recomputed says so, and is computed on a fork; the live World is only
read.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import chain, islice
from random import Random  # noqa: TID251 breaks ties of a fork, on which nothing hangs
from typing import Final

import numpy as np

from stellwerk.backend.queued_pod import IN_FLIGHT, QueuedPod
from stellwerk.explain.counterfactuals import Counterfactuals
from stellwerk.explain.device_report import claims_report, device_report, searched
from stellwerk.explain.device_suggestions import device_suggestions
from stellwerk.explain.evictions import Evictions
from stellwerk.explain.findings import Findings, findings
from stellwerk.explain.gpu_report import gpu_report, held_gpus
from stellwerk.explain.queue_facts import at, queue_facts, rfc3339
from stellwerk.explain.queue_history import QueueHistory
from stellwerk.explain.records import DecisionRecord, DecisionRecords, score_at
from stellwerk.explain.steps import Steps
from stellwerk.framework.diagnosis import fit_error, reason_counts
from stellwerk.framework.plugin_failure import PluginFailure
from stellwerk.framework.types import Status
from stellwerk.models.json_values import JsonObject
from stellwerk.models.pod import PodInfo
from stellwerk.world.decide import Decision, decide
from stellwerk.world.profiles import ServedProfile
from stellwerk.world.world import World

_EXAMPLES: Final = 5
_TAKERS: Final = 5
"""So many pods are named that took another one's place."""
_NEAREST: Final = 20
"""So many nodes are shown one by one."""
_NEAR: Final = 0.6


@dataclass(frozen=True, slots=True)
class Explanations:
    """What explanations are made from."""

    world: World
    records: DecisionRecords
    evictions: Evictions
    without_profile: Callable[[], Mapping[str, PodInfo]]
    """Unbound pods that no profile serves, by uid."""
    history: QueueHistory
    profile_objects: Callable[[], Iterable[JsonObject]]
    """Every SchedulerProfile with its conditions."""
    shadow: Callable[[str], JsonObject | None]
    """What a profile with shadowOf would have decided otherwise; None: there is no such one."""

    def pod(self, namespace: str, name: str) -> Steps | None:
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

    def _bound(self, pod: PodInfo) -> Steps:
        yield
        result = self._header(pod, "bound") | {"node": pod.node_name} | held_gpus(pod)
        claims = claims_report(self.world, pod)
        if claims:
            result["devices"] = {"claims": claims}
        victim = self.evictions.of_victim(pod.key)
        if victim is not None and victim["node"] == pod.node_name:
            result["preempted"] = victim
        record = self.records.of(pod.uid)
        if record is None or record.node_name != pod.node_name:
            return result | {"note": "this decision was not made here, or is no longer kept"}
        profile = self.world.profiles.served.get(record.scheduler_name)
        if profile is not None and record.scheduler_name != pod.spec.scheduler_name:
            result["selectedBy"] = profile.loaded.name
        return result | {"decision": self._record(record)}

    def _record(self, record: DecisionRecord) -> JsonObject:
        clock = self.world.clock
        decision: JsonObject = {
            "decidedAt": at(clock, record.decided_at_seconds),
            "attempts": record.attempts,
            "nodes": record.nodes,
            "evaluated": record.evaluated,
            "feasible": record.feasible,
            "tied": record.tied,
            "nominated": record.nominated,
            "best": [_ranked(record, *each) for each in enumerate(record.ranked(), start=1)],
        }
        why = record.rejections
        if why is not None:
            decision["others"] = {
                "countedAt": at(clock, why.counted_at_seconds),
                "nodes": why.others,
                "reasons": _reasons(why.counts.items()),
            }
        return decision

    # --- pending --------------------------------------------------------------------------------

    def _pending(self, entry: QueuedPod) -> Steps:
        world, pod = self.world, entry.newest
        result = self._header(pod, "scheduling" if entry.place in IN_FLIGHT else "waiting")
        result["queue"] = queue_facts(world, entry)
        if entry.attempts:
            last = result["lastAttempt"] = {"endedAt": at(world.clock, entry.queued_at)}
            message = scheduled_message(pod)
            if message:
                last["message"] = message
        preempted = self.evictions.of_preemptor(pod.key)
        if preempted is not None:
            result["lastPreemption"] = preempted | {"nominatedNode": pod.nominated_node_name}
            if pod.nominated_node_name != preempted["node"]:
                result["lastPreemption"]["tookPlace"] = self._took_place(pod)
        profile = world.profiles.of(pod)
        if profile is None:
            return result | self._no_profile(pod)
        yield
        fork = world.fork(Random(0))
        yield
        served = fork.profiles.of(pod)
        return result if served is None else result | (yield from explain_on(fork, pod, served))

    def _took_place(self, pod: PodInfo) -> list[JsonObject]:
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
            {
                "pod": each.key,
                "priority": each.priority,
                "bound": is_bound,
                "decidedAt": at(self.world.clock, decided_at_seconds),
            }
            for each, decided_at_seconds, is_bound in islice(takers.values(), _TAKERS)
        ]

    # --- without a profile ----------------------------------------------------------------------

    def _unserved(self, pod: PodInfo) -> Steps:
        yield
        return self._header(pod, "unserved") | self._no_profile(pod)

    def _no_profile(self, pod: PodInfo) -> JsonObject:
        profiles, wanted = self.world.profiles, pod.spec.scheduler_name
        result: JsonObject = {
            "reason": profiles.why_none(pod, hints=False),
            "served": sorted(profiles.served),
        }
        near = get_close_matches(wanted, list(profiles.served), 1, _NEAR)
        if near:
            result["nearest"] = near[0]
        return result

    def _header(self, pod: PodInfo, state: str) -> JsonObject:
        header: JsonObject = {
            "pod": pod.key,
            "uid": pod.uid,
            "schedulerName": pod.spec.scheduler_name,
            "priority": pod.priority,
            "state": "terminating" if pod.terminating else state,
        }
        selecting = None if pod.node_name else self.world.profiles.selecting(pod)
        return header if selecting is None else header | {"selectedBy": selecting.loaded.name}


def _preempted(key: str, victim: JsonObject) -> Steps:
    yield
    return {"pod": key, "state": "preempted", "preempted": victim}


def explain_on(world: World, pod: PodInfo, profile: ServedProfile) -> Steps:
    """The verdicts on a pod, recomputed on a World of one's own, and what would make it fit."""
    world.cache.update_snapshot()
    computed = rfc3339(world.clock.now())
    try:
        yield from searched(world, pod, profile)
        found = yield from findings(world, pod, profile)
        yield
        result: JsonObject = {"verdicts": {"recomputedAt": computed} | verdicts(world, found)}
        result |= yield from device_report(world, pod, profile, found.found.state)
        result |= gpu_report(world.cache.snapshot, pod, found)
        if found.fits.any():
            decision = decide(world, pod, profile, thorough=True)
            yield
            return result | {"wouldGetNode": decision.node_name}
        decision = decide(world, pod, profile)
        yield
        result |= preemption(decision)
        search = Counterfactuals(world, pod, profile)
        yield from search.search(found)
        of_devices = yield from device_suggestions(world, pod, profile, found.found.state)
    except PluginFailure as failure:
        return {"verdicts": {"recomputedAt": computed, "error": str(failure)}}
    result["wouldFit"] = [each.as_json() for each in search.suggestions] + of_devices
    if search.eviction:
        pods = ", ".join(search.eviction)
        result["preemption"]["wouldDo"] = (
            f"evicting {pods} on {search.eviction_node} would do, but preemptionPolicy is Never"
        )
    return result


def verdicts(world: World, found: Findings) -> JsonObject:
    """Every plugin's verdicts, grouped by reason, the plugin that turns most nodes away first."""
    names = world.cache.snapshot.names(found.rows.tolist())
    by_plugin: list[JsonObject] = []
    for plugin in found.results:
        turned_away = found.statuses(plugin)
        reasons: list[JsonObject] = [
            {
                "reasons": list(status.reasons),
                "nodes": len(positions),
                "examples": [names[position] for position in positions[:_EXAMPLES]],
            }
            for status, positions in turned_away
        ]
        if reasons:
            nodes = sum(len(positions) for _, positions in turned_away)
            by_plugin.append({"plugin": plugin, "nodes": nodes, "verdicts": reasons})
    by_plugin.sort(key=lambda each: -each["nodes"])
    result: JsonObject = {
        "nodes": len(names),
        "feasible": int(found.fits.sum()),
        "byPlugin": by_plugin,
        "firstReasons": dict(reason_counts(found.diagnosis.statuses)),
    }
    status = found.found.pre_filter
    if not status.ok:
        result["preFilter"] = {"plugin": status.plugin, "reasons": list(status.reasons)}
    if found.found.node_names is not None:
        result["onlyNodes"] = sorted(found.found.node_names)[:_EXAMPLES]
    if not found.fits.any():
        result["message"] = fit_error(found.diagnosis)
    if found.results:
        result["nearest"] = _nearest(found, names)
    return result


def _nearest(found: Findings, names: Sequence[str]) -> list[JsonObject]:
    """The nodes that fewest plugins turn away, each with what these say of it."""
    order = np.argsort(found.fails, kind="stable")[:_NEAREST].tolist()
    return [
        {
            "node": names[position],
            "rejectedBy": {
                plugin: list(found.status(plugin, position).reasons)
                for plugin in found.failing(position)
            },
        }
        for position in order
    ]


def preemption(decision: Decision) -> JsonObject:
    """What preemption would do now."""
    if decision.candidate is not None:
        candidate = decision.candidate
        return {
            "preemption": {
                "node": candidate.node_name,
                "victims": [
                    {"pod": victim.key, "priority": victim.priority} for victim in candidate.victims
                ],
            }
        }
    message = decision.post_filter.status.message if decision.post_filter is not None else ""
    return {"preemption": {"message": message}}


def scheduled_message(pod: PodInfo) -> str:
    """What the PodScheduled condition says; empty: nothing."""
    for condition in pod.conditions:
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return str(condition.get("message") or "")
    return ""


def _reasons(counts: Iterable[tuple[Status, int]]) -> list[JsonObject]:
    return [
        {"plugin": status.plugin, "reasons": list(status.reasons), "nodes": nodes}
        for status, nodes in sorted(counts, key=lambda each: -each[1])
    ]


def _ranked(record: DecisionRecord, rank: int, position: int) -> JsonObject:
    scores = {}
    for score in record.scores:
        plugin, weight, *_ = score
        raw, normalized = score_at(score, position)
        weighted = normalized * weight
        scores[plugin] = {"raw": raw, "normalized": normalized, "weighted": weighted}
    total = 0 if record.total is None else int(record.total[position])
    name = record.names[position]
    return {"node": name, "rank": rank, "total": total, "scores": scores}
