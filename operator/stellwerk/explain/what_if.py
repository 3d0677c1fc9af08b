"""Decisions on a fork with supposed changes: other nodes, pods or profiles, or acts of a user.

The operator's port calls `what_if` (`serving.explanations`); `stellwerk what-if` and the page ask
that port. Scaling, deletion, relabelling and taints are in `supposed_changes`. The fork
(`World.fork`, `steps.on_fork`) is a copy that is thrown away afterwards. A `Trial` (`World.trial`)
is something else: it changes a snapshot in place, and undoes that. Invariant: pods are decided one
after the other as the scheduler would, each placed on the fork before the next; nothing reaches the
World itself.
"""

import copy
import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, TypeAlias

from stellwerk.answers.what_if import (
    MAX_PODS_ONE_BY_ONE,
    MAX_SUPPOSED_PODS,
    PlacedPod,
    PodThatStays,
    Supposition,
    TemplateOutcome,
    UnplacedPod,
    WhatIf,
    WouldPreempt,
)
from stellwerk.backend.queued_pod import IN_FLIGHT
from stellwerk.explain.attempt import Attempt, alone, attempt, not_asked, take_out_own_copies
from stellwerk.explain.by_template import TemplatePods, TemplateTally, kind_of_node
from stellwerk.explain.lists.page import controller_of
from stellwerk.explain.report import explain_attempt
from stellwerk.explain.steps import OutOfTime, Steps, on_fork, suggested
from stellwerk.explain.supposed_changes import SupposedChanges
from stellwerk.framework.types import PluginFailure
from stellwerk.models.complexity import DEFAULT_MAX_POD_COMPLEXITY, too_many_defaults
from stellwerk.models.eviction_budgets import EvictionBudgets
from stellwerk.models.node_acts import cordoned, settled
from stellwerk.models.pod import PodInfo, parse_pod
from stellwerk.plugins.shared.pod_resource_claims import given_back
from stellwerk.profiles.spec.defaults import GANG_SCHEDULING
from stellwerk.world.equal_pods import EqualPodRuns
from stellwerk.world.profiles import ServedProfile
from stellwerk.world.supposed_nodes import daemon_pods, suppose_daemon_pods, suppose_node
from stellwerk.world.world import World, supposed_profile
from stellwerk_kube.errors import ConfigurationError, ProfileError
from stellwerk_kube.json_values import JsonObject
from stellwerk_kube.node import HOSTNAME_LABEL, NodeInfo, parse_node
from stellwerk_kube.schema.defaults import default_pod, merge_label_keys

if TYPE_CHECKING:
    from stellwerk.answers.pod import PluginLeftOut, RecomputedExplanation

Throttled: TypeAlias = Callable[[PodInfo, ServedProfile], str]
"""Gives the reason why a pod would leave time to others now; empty: it would not."""
_MAX_NODES_PER_STEP: Final = 16
"""Supposed nodes that are added before updating the snapshot and yielding."""
_MAX_PODS_PER_STEP: Final = 16
"""Manifests of pods that are read before yielding; 16 take a few milliseconds."""
_SUPPOSED: Final = "(supposed)"
_STAYING: Final = frozenset({"DaemonSet", "Node"})
"""Owners of pods that a drain leaves: DaemonSets, and the kubelet of static pods."""


def what_if(
    live: World,
    supposed: Supposition,
    max_complexity: int = DEFAULT_MAX_POD_COMPLEXITY,
    throttled: Throttled = lambda *_: "",
) -> Steps[WhatIf]:
    """Decide on a fork of the World with what is supposed.

    A pod and a profile are held to the limits of those that come from the API: `max_complexity`.
    `throttled`: why a pod would leave time to others now.

    Raises:
        ConfigurationError: an object cannot be read, or a node is not there.
        OutOfTime: it was thrown in before anything was decided.
    """
    yield
    waiting = _waiting(live)
    unbound = [entry.newest for entry in live.queue.entries.values()]
    return (
        yield from on_fork(
            live,
            lambda world: _on_fork(
                world, live, supposed, waiting, unbound, max_complexity, throttled
            ),
        )
    )


def _on_fork(
    world: World,
    live: World,
    supposed: Supposition,
    waiting: list[PodInfo],
    unbound: list[PodInfo],
    max_complexity: int,
    throttled: Throttled,
) -> Steps[WhatIf]:
    daemon_sets = yield from _add_nodes(world, supposed)
    changes = SupposedChanges(world, unbound)
    yield from changes.apply(supposed)
    drained = supposed.drained_nodes
    nodes = yield from _nodes_named(world, drained)
    drains = _Drains(world, nodes)
    asked = yield from _asked_pods(world, supposed, changes, drains, max_complexity)
    if not (asked.pods or drained or asked.templates):
        asked.pods = [pod for pod in waiting if pod.uid not in changes.gone]
    # Made once, for plugins keep columns between decisions; and refused though no pod waits.
    profile = None
    if supposed.profile is not None:
        profile = _supposed_profile(world, supposed.profile, max_complexity)
        world.profiles.served[_SUPPOSED] = profile
    answers = _Answers(world, live, drains, throttled, asked)
    stopped: str | None = None
    try:
        for pod in asked.pods[:MAX_SUPPOSED_PODS]:
            if drains.evicts(pod):
                yield from answers.decide(pod, profile or world.profiles.of(pod))
        for template in asked.templates:
            yield from answers.decide_template(template, profile)
    except OutOfTime as reason:
        stopped = str(reason)
    placed, unplaced, explanation = answers.placed, answers.unplaced, answers.explanation
    left_out = asked.count - answers.examined - len(drains.staying)
    by_template = yield from answers.by_template()
    if explanation is not None:
        explanation = _without_uncordoning(explanation, drained)
    return WhatIf(
        drained=drained[0] if len(drained) == 1 else drained or None,
        acts=supposed.acts or None,
        ended=changes.ended or None,
        compatibility=sorted(answers.followed),
        left_out=left_out or None,
        stopped=stopped,
        explanation=explanation,
        placed=placed,
        unplaced=unplaced,
        lost=[*changes.lost, *drains.lost] or None,
        staying=drains.staying or None,
        not_asked=list(answers.not_asked) or None,
        daemon_sets=list(dict.fromkeys([*daemon_sets, *changes.daemon_sets])) or None,
        templates=by_template or None,
    )


@dataclass(slots=True)
class _AskedPods:
    """The pods of a question, in the order in which they are decided."""

    pods: list[PodInfo]
    explained: PodInfo | None = None
    """The one of them that is explained."""
    templates: list[TemplatePods] = field(default_factory=list)
    """The pods that come last, and are counted by template."""
    after: dict[str, str] = field(default_factory=dict)
    """The pod that has to run before one is made, by the keys of both."""

    @property
    def templated(self) -> int:
        """The number of pods of templates."""
        return sum(each.count for each in self.templates)

    @property
    def count(self) -> int:
        """The number of pods."""
        return len(self.pods) + self.templated


def _asked_pods(
    world: World,
    supposed: Supposition,
    changes: SupposedChanges,
    drains: "_Drains",
    max_complexity: int,
) -> Steps[_AskedPods]:
    """The pods that acts and drains leave without a node, and those that are supposed.

    Raises:
        ConfigurationError: a manifest cannot be read, or two pods have the same name.
    """
    asked = _AskedPods([*changes.anew, *drains.leaving, *changes.copies])
    for number, (manifest, runs_before) in enumerate(changes.made):
        asked.pods.append(_pod(world, manifest, max_complexity))
        asked.after[asked.pods[-1].key] = runs_before
        if number % _MAX_PODS_PER_STEP == 0:
            yield
    made: list[PodInfo] = []
    for number, manifest in enumerate(supposed.pods):
        made.append(_pod(world, manifest, max_complexity))
        if number % _MAX_PODS_PER_STEP == 0:
            yield
    if supposed.pod is not None:
        asked.explained = _pod(world, supposed.pod, max_complexity)
        made.append(asked.explained)
    take_out_own_copies(world, made, by_name=True)
    asked.pods += made
    for each in supposed.templates:
        found = TemplatePods(world, each, lambda manifest: _pod(world, manifest, max_complexity))
        asked.templates.append(found)
        yield from found.take_out_own_copies()
        yield
    _check_names([pod.key for pod in asked.pods], asked.templates)
    return asked


class _Answers:
    """The answers on one pod after the other, each placed on the fork before the next."""

    def __init__(
        self,
        world: World,
        live: World,
        drains: "_Drains",
        throttled: Throttled,
        asked: _AskedPods,
    ) -> None:
        self._after = dict(asked.after)
        self._world = world
        self._live = live
        self._drains = drains
        self._throttled = throttled
        self._explained = asked.explained
        # Listed as well while that is readable: programs that ask for few pods need no counts.
        self._lists_templates = asked.templated <= MAX_PODS_ONE_BY_ONE
        self._runs = EqualPodRuns(world)
        self._with_group: dict[str, Attempt] = {}
        """Results for members whose group was decided for another member, by uid."""
        self.explanation: RecomputedExplanation | None = None
        self.examined = 0
        """Pods that have an answer, listed or counted."""
        self.placed: list[PlacedPod] = []
        self.unplaced: list[UnplacedPod] = []
        self.followed: set[str] = set()
        """The Kubernetes releases."""
        self.not_asked: dict[PluginLeftOut, None] = {}
        self._tallies = {id(each): TemplateTally(each.name, each.count) for each in asked.templates}
        """By the identity of the template, in their order."""
        self._tally: TemplateTally | None = None
        """Counts the pods of the template that is decided on; None: no template is."""
        self._held_back_first = ""
        """The reason for which a plugin keeps the latest pod of `decide` from the queue."""
        self._keys_with_node: set[str] = set()
        """Keys of the pods that got a node, if the order of a StatefulSet asks for them."""

    def decide(self, pod: PodInfo, profile: ServedProfile | None) -> Steps[None]:
        """Decide for one pod."""
        world = self._world
        before = self._after.get(pod.key)
        if before and before not in self._keys_with_node:
            message = f"its StatefulSet creates it once {before} runs"
            self._gets_none(pod, message, held_back=True)
            return
        if profile is None:
            self._gets_none(pod, world.profiles.why_none(pod))
            return
        self.followed.add(str(profile.compatibility.version))
        if pod.spec.too_complex:
            self._gets_none(pod, pod.spec.too_complex)
            return
        self.not_asked |= dict.fromkeys(not_asked(profile, pod))
        yield
        self._held_back_first = _held_back(pod, profile)
        held_back = self._held_back_first or self._throttled(pod, profile)
        tried = self._with_group.pop(pod.uid, None)
        if tried is None and pod is self._explained:
            tried = yield from self._explain(pod, profile)
            yield
        elif tried is None and not held_back:
            tried = yield from self._tried(pod, profile)
        if held_back or tried is None:
            tried = Attempt(message=held_back, is_own=False)
        self._with_group |= tried.others
        if tried.node_name:
            self._drains.made_good(pod)
            self._gets(pod, tried)
        else:
            self._gets_none(pod, tried.message, _would_preempt(tried), held_back=bool(held_back))

    def decide_template(self, template: TemplatePods, profile: ServedProfile | None) -> Steps[None]:
        """Decide for the pods of a template, and count what becomes of them.

        `profile`: decides for all; None: the one that serves the pods.
        """
        first = template.first
        if first is None:
            return
        profile = profile or self._world.profiles.of(first)
        self._tally = self._tallies[id(template)]
        # All members of a group have to be there before the first is decided.
        pods = list(template) if template.is_grouped else template
        yield
        before = ""
        for pod in pods:
            if template.is_ordered and before:
                self._after[pod.key] = before
            before = pod.key
            # Copies of the first are held back, or left to others, for the same reason.
            is_copy = pod.details is first.details and pod is not first and not template.is_ordered
            if is_copy and profile is not None and not template.is_grouped:
                self._decide_copy(pod, profile)
                yield
            else:
                yield from self.decide(pod, profile)

    def _decide_copy(self, pod: PodInfo, profile: ServedProfile) -> None:
        """Decide for a further pod of a template, as `decide` without what they have in common."""
        held_back = self._held_back_first or self._throttled(pod, profile) or pod.spec.too_complex
        if held_back:
            self._gets_none(pod, held_back, held_back=bool(self._held_back_first))
            return
        try:
            tried = alone(self._world, pod, profile, self._runs)
        except PluginFailure as failure:
            tried = Attempt(message=str(failure))
        if tried.node_name:
            self._gets(pod, tried)
        else:
            self._gets_none(pod, tried.message, _would_preempt(tried))

    def by_template(self) -> Steps[list[TemplateOutcome]]:
        """The counts of each template."""
        found: list[TemplateOutcome] = []
        for tally in self._tallies.values():
            outcome = yield from tally.outcome(self._kind_of, listed=self._lists_templates)
            found.append(outcome)
        return found

    def _kind_of(self, node_name: str) -> str:
        node = self._world.cache.node(node_name)
        return "" if node is None else kind_of_node(node)

    def _gets(self, pod: PodInfo, tried: Attempt) -> None:
        self.examined += 1
        self._keys_with_node.add(pod.key)
        if self._tally is not None:
            self._tally.count_placed(tried.node_name)
        if self._tally is None or self._lists_templates:
            self.placed.append(
                PlacedPod(
                    pod=pod.key,
                    node=tried.node_name,
                    tied=tried.tied or None,
                    controller=controller_of(pod) or None,
                )
            )

    def _gets_none(
        self,
        pod: PodInfo,
        message: str,
        would_preempt: WouldPreempt | None = None,
        *,
        held_back: bool = False,
    ) -> None:
        self.examined += 1
        if self._tally is not None:
            self._tally.count_unplaced(message, would_preempt)
        if self._tally is None or self._lists_templates:
            self.unplaced.append(
                UnplacedPod(
                    pod=pod.key,
                    message=message,
                    would_preempt=would_preempt,
                    held_back=held_back,
                    controller=controller_of(pod) or None,
                )
            )

    def _explain(self, pod: PodInfo, profile: ServedProfile) -> Steps[Attempt]:
        self.explanation, tried = yield from explain_attempt(self._world, pod, profile, self._live)
        return tried or Attempt(message=self.explanation.verdicts.error or "")

    def _tried(self, pod: PodInfo, profile: ServedProfile) -> Steps[Attempt]:
        try:
            return (yield from attempt(self._world, pod, profile, self._live, self._runs))
        except PluginFailure as failure:
            return Attempt(message=str(failure))


def _held_back(pod: PodInfo, profile: ServedProfile) -> str:
    """The plugin that keeps a pod from the queue, and why; empty: none does."""
    for plugin in profile.pre_enqueues:
        if plugin.name == GANG_SCHEDULING:  # of groups `attempt` knows more
            continue
        try:
            status = plugin.pre_enqueue(pod)
        except Exception as failure:  # noqa: BLE001 whatever a plugin raises gates the pod
            return f"held back by {plugin.name}: {type(failure).__name__}: {failure}"
        if not status.ok:
            reasons = ", ".join(status.reasons)
            return f"held back by {plugin.name}{': ' if reasons else ''}{reasons}"
    return ""


def _would_preempt(tried: Attempt) -> WouldPreempt | None:
    candidate = None if tried.decision is None else tried.decision.candidate
    if candidate is None:
        return None
    victims = [victim.key for victim in candidate.victims]
    return WouldPreempt(node=candidate.node_name, victims=victims)


def _waiting(live: World) -> list[PodInfo]:
    """The pods that wait, in the order of priority and time."""
    entries = [
        entry
        for entry in live.queue.entries.values()
        if entry.place not in IN_FLIGHT and not entry.newest.terminating
    ]
    entries.sort(key=lambda entry: (-entry.newest.priority, entry.queued_at))
    return [entry.newest for entry in entries]


def _add_nodes(world: World, supposed: Supposition) -> Steps[list[str]]:
    """Add the supposed nodes; returns the DaemonSets whose pods come with them."""
    numbers = itertools.count(1)
    daemons: list[PodInfo] = []
    if supposed.add_nodes:
        for pod in daemon_pods(world):
            if pod is None:
                yield
            else:
                daemons.append(pod)
    come: dict[str, None] = {}
    for index, manifest in enumerate(supposed.add_nodes):
        try:
            node = _parsed(manifest)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ConfigurationError(f"addNodes[{index}] is not a Node: {error}") from error
        for number in range(supposed.count):
            name = node.name if supposed.count == 1 else f"{node.name}-{number + 1}"
            added = settled(_renamed(node, name, world))
            suppose_node(world, added)
            for pod in suppose_daemon_pods(world, added, daemons):
                come[f"{pod.namespace}/{pod.owner[1] if pod.owner else pod.name}"] = None
            if next(numbers) % _MAX_NODES_PER_STEP == 0:
                world.cache.update_snapshot()
                yield
    return list(come)


def _parsed(manifest: JsonObject) -> NodeInfo:
    """The node as it is made of a manifest, which may leave out the name and what is allocatable.

    Raises:
        KeyError, TypeError, ValueError, AttributeError: it is malformed.
    """
    metadata, status = manifest.get("metadata") or {}, manifest.get("status") or {}
    name = str(metadata.get("name") or metadata.get("generateName") or "new")
    # As the API server fills it in, resource by resource.
    allocatable = {**(status.get("capacity") or {}), **(status.get("allocatable") or {})}
    return parse_node(
        {
            **manifest,
            "metadata": {**metadata, "name": name, "uid": ""},
            "status": {**status, "allocatable": allocatable},
        }
    )


def _renamed(node: NodeInfo, name: str, world: World) -> NodeInfo:
    """The node under this name, or one that is free."""
    number = 0
    free = name
    while world.cache.node(free) is not None:
        number += 1
        free = f"{name}-new" if number == 1 else f"{name}-new-{number}"
    labels = node.labels
    if HOSTNAME_LABEL in labels:
        labels = {**labels, HOSTNAME_LABEL: free}
    return replace(node, name=free, uid=free, labels=labels)


def _nodes_named(world: World, names: Sequence[str]) -> Steps[list[NodeInfo]]:
    """The nodes with these names.

    Raises:
        ConfigurationError: there is no such node.
    """
    found: list[NodeInfo] = []
    for name in names:
        node = world.cache.node(name)
        if node is None:
            near = yield from suggested(name, [each.name for each in world.cache.nodes()])
            raise ConfigurationError(f'there is no node "{name}"{near}')
        found.append(node)
    return found


class _Drains:
    """Nodes that are drained as `kubectl drain --ignore-daemonsets --force` does it.

    Pods without a budget leave at once. One with a budget leaves when it is its turn, if the budget
    allows it then: what has got another node is made good.
    """

    def __init__(self, world: World, nodes: Sequence[NodeInfo]) -> None:
        """Cordon the nodes, and take the pods off them."""
        self._world = world
        self._budgets = EvictionBudgets(world.objects.list("PodDisruptionBudget") if nodes else ())
        self._evicted: set[str] = set()
        """Uids of those that left though they have a budget."""
        self.lost: list[str] = []
        """Pods that nothing makes anew."""
        self.staying: list[PodThatStays] = []
        found: list[PodInfo] = []
        for node in nodes:
            found += (
                pod
                for pod in world.cache.pods_on(node.name).values()
                # One that is being deleted goes by itself, and has its replacement already.
                if not pod.terminating
                and (pod.owner is None or pod.owner[0].rpartition(" ")[2] not in _STAYING)
            )
            world.cache.set_node(cordoned(node))
        found.sort(key=lambda pod: (-pod.priority, pod.key))
        self._on_nodes = {pod.uid: pod for pod in found if self._budgets.of(pod)}
        """Pods with a budget that are on their nodes still, by uid."""
        self._take_off([pod for pod in found if pod.uid not in self._on_nodes])
        self.lost = [pod.key for pod in found if pod.owner is None and self.evicts(pod)]
        self.leaving = [pod.with_node("") for pod in found if pod.owner is not None]
        """The pods that are made anew, the highest priority first."""

    def evicts(self, pod: PodInfo) -> bool:
        """Whether a pod leaves its node, or never was on one that is drained."""
        on_node = self._on_nodes.pop(pod.uid, None)
        if on_node is None:
            return True
        refusal = self._budgets.refusing(on_node)
        if refusal is not None:
            budget, message = refusal
            self.staying.append(
                PodThatStays(pod=pod.key, node=on_node.node_name, budget=budget, message=message)
            )
            return False
        self._budgets.take(on_node)
        self._evicted.add(pod.uid)
        self._take_off([on_node])
        return True

    def made_good(self, pod: PodInfo) -> None:
        """A pod that may have left has a node."""
        if pod.uid in self._evicted:
            self._budgets.give_back(pod)

    def _take_off(self, pods: Sequence[PodInfo]) -> None:
        world = self._world
        for pod in pods:
            world.cache.remove_pod(pod.uid)
            if pod.group is not None:
                world.pod_groups.put_pod(pod.with_node(""), pod.group)
        for claim in given_back(world.objects, pods):
            world.objects.set("ResourceClaim", claim)


def _check_names(keys: Sequence[str], templates: Sequence[TemplatePods]) -> None:
    """Refuse two pods of one name, of which the second would replace the first."""
    names = Counter(keys)
    for template in templates:
        names.update(template.keys())
    twice = next((name for name, number in names.items() if number > 1), None)
    if twice is not None:
        raise ConfigurationError(f"two of the pods have the name {twice}")


def _without_uncordoning(
    found: "RecomputedExplanation", drained: Sequence[str]
) -> "RecomputedExplanation":
    """The explanation without suggestions that undo the drains which are supposed."""
    kept = [
        suggestion
        for suggestion in found.would_fit or ()
        if not any(
            change.kind == "uncordon" and change.node in drained for change in suggestion.changes
        )
    ]
    return found if found.would_fit is None else replace(found, would_fit=kept)


def _pod(world: World, manifest: JsonObject, max_complexity: int) -> PodInfo:
    try:
        # Its fields were checked at the door, without the tables of the API: to load them would
        # hold the operator's loop for 0.35 s, and keep 27 MiB.
        spec = {key: value for key, value in manifest["spec"].items() if key != "nodeName"}
        unbound = copy.deepcopy({**manifest, "spec": spec})
        default_pod(unbound)
        merge_label_keys(unbound)
        resolve, compatibility = world.priority_classes.resolve, world.profiles.compatibility
        pod = parse_pod(unbound, resolve, max_complexity, compatibility)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ConfigurationError(f"not a Pod: {error!r}") from error
    world.nominator.remove(pod.uid)
    world.pod_groups.put_pod(pod, pod.group)
    return pod


def _supposed_profile(world: World, manifest: JsonObject, max_complexity: int) -> ServedProfile:
    too_many = too_many_defaults(manifest.get("spec"), max_complexity)
    if too_many:
        raise ConfigurationError(f"this profile cannot be used: spec.pluginConfig: {too_many}")
    try:
        return supposed_profile(world, manifest)
    except ProfileError as error:
        raise ConfigurationError(f"this profile cannot be used: {error}") from error
