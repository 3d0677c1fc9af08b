"""Explanations of pods in a cluster that was read once, and that another scheduler serves.

The commands that read a cluster in place of an operator (`stellwerk_cli.reading`) ask for them.
Invariant: an answer says what follows from the objects of the cluster and the configuration
assumed, and nothing that only an operator knows: no queue, no attempts, no times of decisions.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from stellwerk.answers.group import GroupExplanation
from stellwerk.answers.pod import (
    OtherNodes,
    PodExplanation,
)
from stellwerk.answers.queue import UnboundPod, UnboundPods
from stellwerk.explain.attempt import EXTENDERS_NOT_ASKED
from stellwerk.explain.lists.page import PodsAsked, controller_of, natural_order
from stellwerk.explain.lists.queue import scheduled_message
from stellwerk.explain.placement_now import placement, with_placement_now
from stellwerk.explain.pod_groups import explain_group
from stellwerk.explain.queue_facts import at
from stellwerk.explain.records import (
    MAX_SHOWN_NODES,
    node_names,
    refusals_of_extenders,
)
from stellwerk.explain.report import Explanations, reasons_of
from stellwerk.explain.steps import Steps, on_fork
from stellwerk.framework.diagnosis import fit_error
from stellwerk.framework.types import Code, PluginFailure
from stellwerk.models.pod import PodInfo
from stellwerk.world.decide import Decision, broken, find_nodes, is_broken
from stellwerk.world.profiles import ServedProfile
from stellwerk.world.world import World
from stellwerk_kube.clock import Clock

_MAX_KINDS: Final = 1000
"""Kinds of waiting pods that are decided for a list. Pods with the same spec and labels are one
kind; a kind takes a millisecond or two at 5,000 nodes."""
NOT_SEEN: Final = "its decision was not seen: its scheduler made it before the cluster was read"
_FITS: Final = "it would get a node now; its scheduler has not bound it yet"


def explain_read_pod(
    explanations: Explanations, namespace: str, name: str
) -> Steps[PodExplanation] | None:
    """Explain a pod of a cluster that was read; None: there is none of that name."""
    found = explanations.pod(namespace, name)
    return None if found is None else _as_read(explanations, found)


def _as_read(explanations: Explanations, steps: Steps[PodExplanation]) -> Steps[PodExplanation]:
    found = yield from steps
    world = explanations.world
    if found.state == "bound":
        bound = world.cache.pod(found.uid or "")
        found = replace(found, note=NOT_SEEN)
        if bound is not None and world.profiles.of(bound) is None:
            return replace(found, reason=_no_profile(world, bound))
        return (yield from with_placement_now(world, found))
    # The queue of the operator that was filled for this answer says nothing about the scheduler's.
    found = replace(found, queue=None, last_attempt=None, last_preemption=None)
    pod = _waiting_pod(explanations, found)
    if pod is None:
        return found
    said = scheduled_message(pod) or None
    profile = world.profiles.of(pod)
    if profile is None:
        return replace(
            found,
            state="elsewhere",
            scheduler_said=said,
            reason=_no_profile(world, pod),
            served=sorted(world.profiles.served),
            nearest=None,
        )
    held = held_back(pod, profile)
    if held and found.state == "waiting":
        plugin, reason = held
        words = f"held back by {plugin}: {reason}"
        found = replace(found, would_get_node=None, tied=None, tied_nodes=None, would_wait=words)
    return replace(found, scheduler_said=said)


def _waiting_pod(explanations: Explanations, found: PodExplanation) -> PodInfo | None:
    entry = explanations.world.queue.entries.get(found.uid or "")
    if entry is not None:
        return entry.newest
    return explanations.without_profile().get(found.uid or "")


def _no_profile(world: World, pod: PodInfo) -> str:
    name = pod.spec.scheduler_name
    return (
        f'the configuration that is assumed has no profile for schedulerName "{name}": another '
        f"scheduler serves it, or none does{world.profiles.suggested(name)}"
    )


def held_back(pod: PodInfo, profile: ServedProfile) -> tuple[str, str] | None:
    """(plugin, reason) of the PreEnqueue plugin that keeps a pod from being tried; None: none."""
    for plugin in profile.pre_enqueues:
        try:
            status = plugin.pre_enqueue(pod)
        except Exception as failure:  # noqa: BLE001 whatever a plugin raises gates the pod
            return plugin.name, f"{type(failure).__name__}: {failure}"
        if status.code is not Code.SUCCESS:
            return plugin.name, ", ".join(status.reasons) or "it gives no reason"
    return None


# --- the extenders' word -------------------------------------------------------------------------


def after_extenders(found: PodExplanation, decision: Decision, clock: Clock) -> PodExplanation:
    """The explanation of a pod once the extenders of its profile were asked about it."""
    left_out = [each for each in found.left_out or () if each.reason != EXTENDERS_NOT_ASKED]
    refused = refusals_of_extenders(decision.search, clock.monotonic())
    others = None
    if refused is not None:
        others = OtherNodes(
            counted_at=at(clock, refused.counted_at_seconds),
            nodes=refused.others,
            reasons=reasons_of(refused.counts.items()),
        )
    tied: Sequence[str] = ()
    if decision.scores is not None and decision.best is not None and len(decision.best) > 1:
        tied = node_names(decision.search, decision.scores, decision.best)
    message = None if decision.failure is None else decision.failure.message
    placement_now = found.placement_now
    if placement_now is not None:
        placement_now = placement(decision, decision.node_name, found.node or "")
    return replace(
        found,
        left_out=left_out or None,
        refused_by_extenders=others,
        would_get_node=decision.node_name or None,
        tied=len(tied) or None,
        tied_nodes=list(tied[:MAX_SHOWN_NODES]) or None,
        would_wait=found.would_wait or (message if others is not None else None),
        placement_now=placement_now,
    )


# --- the pods that wait ---------------------------------------------------------------------------


def unbound_pods(
    world: World, without_profile: Iterable[PodInfo], asked: PodsAsked
) -> Steps[UnboundPods]:
    """The pods without a node, by schedulerName and controller, each with what rejects it now."""
    yield
    pods = [entry.newest for entry in world.queue.entries.values()]
    pods = [pod for pod in (*pods, *without_profile) if asked.text in pod.key]
    pods.sort(
        key=lambda pod: (
            pod.spec.scheduler_name,
            pod.namespace,
            controller_of(pod),
            natural_order(pod.name),
        )
    )
    return (yield from on_fork(world, lambda fork: _decided(fork, pods, asked.plugin)))


def _decided(fork: World, pods: list[PodInfo], plugin: str) -> Steps[UnboundPods]:
    known: dict[object, tuple[list[str], str]] = {}
    fork.cache.update_snapshot()
    items, left_out = [], 0
    for pod in pods:
        key = _kind_of(pod)
        verdict = known.get(key)
        if verdict is None:
            if len(known) >= _MAX_KINDS:
                left_out += 1
                continue
            verdict = known[key] = _verdict(fork, pod)
            yield
        rejected, message = verdict
        if plugin and plugin not in rejected:
            continue
        items.append(
            UnboundPod(
                pod=pod.key,
                scheduler_name=pod.spec.scheduler_name,
                controller=controller_of(pod) or None,
                priority=pod.priority,
                rejected_by=rejected or None,
                message=message,
                labels=dict(pod.labels) or None,
            )
        )
    return UnboundPods(total=len(items), items=items, left_out=left_out or None)


def _kind_of(pod: PodInfo) -> object:
    """A key that pods share if they are turned away alike; volumes and claims are a pod's own."""
    is_own = pod.volumes or pod.generated_claims or pod.group or pod.nominated_node_name
    names = pod.node_names
    return (
        pod.uid
        if is_own or names or pod.terminating
        else (id(pod.spec), id(pod.label_set), pod.owner)
    )


def _verdict(fork: World, pod: PodInfo) -> tuple[list[str], str]:
    """The plugins that turn a pod away, and the message of the condition that it would get."""
    profile = fork.profiles.of(pod)
    if profile is None:
        return [], _no_profile(fork, pod)
    if pod.terminating or pod.spec.too_complex:
        return [], pod.spec.too_complex or "it is being deleted"
    held = held_back(pod, profile)
    if held is not None:
        plugin, reason = held
        return [plugin], reason
    try:
        return _rejections(fork, pod, profile)
    except PluginFailure as failure:
        return [failure.plugin], str(failure)


def _rejections(fork: World, pod: PodInfo, profile: ServedProfile) -> tuple[list[str], str]:
    """The plugins by which every node turns a pod away, and the message that counts the nodes.

    Raises:
        PluginFailure: a plugin raised.
    """
    search = find_nodes(fork, pod, profile, profile.new_state(pod))
    if is_broken(search):
        failure = broken(search).failure
        return [], "" if failure is None else failure.message
    if search.found.fits.any():
        return [], _FITS
    diagnosis = profile.framework.filtering.diagnose(search.found, pod)
    plugins = diagnosis.unschedulable_plugins | diagnosis.pending_plugins
    return sorted(plugins), fit_error(diagnosis)


# --- a group --------------------------------------------------------------------------------------


def explain_read_group(world: World, namespace: str, name: str) -> Steps[GroupExplanation] | None:
    """Explain a group of a cluster that was read; None: neither it nor a member is known."""
    found = explain_group(world, namespace, name)
    return None if found is None else _group_as_read(found)


def _group_as_read(steps: Steps[GroupExplanation]) -> Steps[GroupExplanation]:
    found = yield from steps
    members = [replace(each, queue=None) for each in found.members]
    return replace(found, members=members)
