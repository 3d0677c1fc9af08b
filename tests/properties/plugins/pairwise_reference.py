"""PodTopologySpread and InterPodAffinity one node and one pod at a time, as documented.

Slow and plain on purpose: the property tests hold the plugins to it. A `World` is nodes with the
pods on each; verdicts and scores come by node name.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from stellwerk.models.pod import PodInfo
from stellwerk.models.pod_affinity import PodMatcher, SpreadConstraint
from stellwerk_kube.node import NodeInfo
from stellwerk_kube.taints import NO_EXECUTE, NO_SCHEDULE, untolerated

HOSTNAME = "kubernetes.io/hostname"
SKEWED = "node(s) didn't match pod topology spread constraints"
NO_LABEL = f"{SKEWED} (missing required label)"
EXISTING = "node(s) didn't satisfy existing pods anti-affinity rules"
ANTI = "node(s) didn't match pod anti-affinity rules"
AFFINITY = "node(s) didn't match pod affinity rules"

Changes = Mapping[str, Sequence[tuple[PodInfo, int]]]
"""Node name → (pod, +1 or −1): one hypothesis per node."""


@dataclass
class World:
    """A cluster as lists."""

    nodes: list[NodeInfo]
    pods: Mapping[str, list[PodInfo]]
    """Node name → pods on it."""
    namespaces: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def placed(self) -> Iterable[tuple[NodeInfo, PodInfo]]:
        """Return every pod on a node, with the node."""
        return ((node, pod) for node in self.nodes for pod in self.pods.get(node.name, ()))


# --- PodTopologySpread --------------------------------------------------------------------------


def _eligible(pod: PodInfo, constraint: SpreadConstraint, node: NodeInfo) -> bool:
    if constraint.honor_node_affinity:
        affinity = pod.spec.required_node_affinity
        if any(node.labels.get(key) != value for key, value in pod.spec.node_selector.items()):
            return False
        if affinity is not None and not affinity.matches(node.labels, node.name):
            return False
        if pod.node_names is not None and node.name not in pod.node_names:
            return False
    hard = (NO_SCHEDULE, NO_EXECUTE)
    return not constraint.honor_node_taints or not untolerated(
        node.taints, pod.spec.tolerations, hard
    )


def _selected(constraint: SpreadConstraint, pod: PodInfo, other: PodInfo) -> bool:
    return (
        constraint.selector is not None
        and other.namespace == pod.namespace
        and constraint.selector.matches(other.labels)
    )


def _counted(constraint: SpreadConstraint, pod: PodInfo, pods: Iterable[PodInfo]) -> int:
    if constraint.selector is None or not constraint.selector.requirements:
        return 0
    return sum(not other.terminating and _selected(constraint, pod, other) for other in pods)


def spread_rejections(world: World, pod: PodInfo, changes: Changes) -> dict[str, str]:
    """Return the reason on each node that DoNotSchedule constraints exclude."""
    hard = [constraint for constraint in pod.spec.spread_constraints if constraint.hard]
    rejections = {}
    for node in world.nodes:
        reason = _spread_reason(world, pod, hard, node, changes.get(node.name, ()))
        if reason:
            rejections[node.name] = reason
    return rejections


def _spread_reason(
    world: World,
    pod: PodInfo,
    hard: Sequence[SpreadConstraint],
    node: NodeInfo,
    changes: Sequence[tuple[PodInfo, int]],
) -> str:
    for constraint in hard:
        key = constraint.topology_key
        if key not in node.labels:
            return NO_LABEL
        domains: Counter[str] = Counter()
        for other in world.nodes:
            if not all(each.topology_key in other.labels for each in hard):
                continue
            if not _eligible(pod, constraint, other):
                continue
            domains[other.labels[key]] += _counted(constraint, pod, world.pods.get(other.name, ()))
            if other is node:
                domains[other.labels[key]] += sum(
                    change for changed, change in changes if _selected(constraint, pod, changed)
                )
        minimum = min(domains.values(), default=0)
        if len(domains) < (constraint.min_domains or 1):
            minimum = 0
        self_match = int(_selected(constraint, pod, pod))
        if domains[node.labels[key]] + self_match - minimum > constraint.max_skew:
            return SKEWED
    return ""


def spread_scores(
    world: World,
    pod: PodInfo,
    soft: Sequence[SpreadConstraint],
    feasible: Sequence[NodeInfo],
    *,
    require_all: bool,
) -> dict[str, tuple[int, int]]:
    """Return (raw, normalised) on each feasible node."""

    def ignored(node: NodeInfo) -> bool:
        return require_all and any(each.topology_key not in node.labels for each in soft)

    scored = [node for node in feasible if not ignored(node)]
    raw: dict[str, float] = {node.name: 0.0 for node in feasible}
    for constraint in soft:
        key = constraint.topology_key
        sizes = {node.labels.get(key, "") for node in scored}
        weight = math.log((len(scored) if key == HOSTNAME else len(sizes)) + 2)
        for node in scored:
            if key not in node.labels:
                continue
            same = [node]
            if key != HOSTNAME:
                same = [
                    other
                    for other in world.nodes
                    if other.labels.get(key, "") == node.labels[key]
                    and not ignored(other)
                    and _eligible(pod, constraint, other)
                ]
            count = sum(_counted(constraint, pod, world.pods.get(other.name, ())) for other in same)
            raw[node.name] += count * weight + (constraint.max_skew - 1)
    whole = {name: math.floor(score + 0.5) for name, score in raw.items()}
    values = [whole[node.name] for node in scored]
    highest, lowest = max(values, default=0), min(values, default=0)
    result = {node.name: (whole[node.name], 0) for node in feasible}
    for node in scored:
        score = whole[node.name]
        normalized = 100 if highest == 0 else 100 * (highest + lowest - score) // highest
        result[node.name] = (score, normalized)
    return result


# --- InterPodAffinity ---------------------------------------------------------------------------


def _asks(world: World, matcher: PodMatcher, other: PodInfo) -> bool:
    """Whether a pending pod's term means a placed pod."""
    known = world.namespaces.get(other.namespace)
    return matcher.matches(other.namespace, other.labels, {}) or (
        known is not None and matcher.matches(other.namespace, other.labels, known)
    )


def _asked(world: World, matcher: PodMatcher, pod: PodInfo) -> bool:
    """Whether a placed pod's term means the pending pod."""
    labels = world.namespaces.get(pod.namespace, {})
    return matcher.matches(pod.namespace, pod.labels, labels)


def affinity_rejections(world: World, pod: PodInfo, changes: Changes) -> dict[str, str] | None:
    """Return the reason on each node that required terms exclude; None: Skip."""
    affinity = pod.spec.pod_affinity
    repelled = any(
        term.topology_key in node.labels and _asked(world, term.matcher, pod)
        for node, other in world.placed()
        for term in other.spec.pod_affinity.required_anti
    )
    if not repelled and not affinity.required and not affinity.required_anti:
        return None
    rejections = {}
    for node in world.nodes:
        pods = {other.uid: (where, other) for where, other in world.placed()}
        for other, change in changes.get(node.name, ()):
            if change > 0:
                pods[other.uid] = (node, other)
            else:
                del pods[other.uid]
        reason = _affinity_reason(world, pod, node, list(pods.values()))
        if reason:
            rejections[node.name] = reason
    return rejections


def _together(key: str, node: NodeInfo, where: NodeInfo) -> bool:
    return key in node.labels and where.labels.get(key) == node.labels[key]


def _affinity_reason(
    world: World, pod: PodInfo, node: NodeInfo, placed: Sequence[tuple[NodeInfo, PodInfo]]
) -> str:
    if not _affinity_met(world, pod, node, placed):
        return AFFINITY
    for term in pod.spec.pod_affinity.required_anti:
        for where, other in placed:
            if _together(term.topology_key, node, where) and _asks(world, term.matcher, other):
                return ANTI
    for where, other in placed:
        for term in other.spec.pod_affinity.required_anti:
            if _together(term.topology_key, node, where) and _asked(world, term.matcher, pod):
                return EXISTING
    return ""


def _affinity_met(
    world: World, pod: PodInfo, node: NodeInfo, placed: Sequence[tuple[NodeInfo, PodInfo]]
) -> bool:
    terms = pod.spec.pod_affinity.required

    def means_all(other: PodInfo) -> bool:
        return all(_asks(world, term.matcher, other) for term in terms)

    keys = [term.topology_key for term in terms]
    if not all(key in node.labels for key in keys):
        return False
    matching = [where for where, other in placed if means_all(other)]
    if all(any(_together(key, node, where) for where in matching) for key in keys):
        return True
    nobody = not any(key in where.labels for where in matching for key in keys)
    return nobody and means_all(pod)


def affinity_scores(
    world: World,
    pod: PodInfo,
    feasible: Sequence[NodeInfo],
    *,
    hard_weight: int = 1,
    ignore_existing: bool = False,
) -> dict[str, tuple[int, int]] | None:
    """Return (raw, normalised) on each feasible node; None: Skip."""
    affinity = pod.spec.pod_affinity
    if ignore_existing and not affinity.preferred and not affinity.preferred_anti:
        return None
    weights: Counter[tuple[str, str]] = Counter()
    for node, other in world.placed():
        theirs = other.spec.pod_affinity
        wanted = [(item.term, item.weight) for item in affinity.preferred]
        wanted += [(item.term, -item.weight) for item in affinity.preferred_anti]
        effects = [pair for pair in wanted if _asks(world, pair[0].matcher, other)]
        wanting = [(term, hard_weight) for term in theirs.required if hard_weight]
        wanting += [(item.term, item.weight) for item in theirs.preferred]
        wanting += [(item.term, -item.weight) for item in theirs.preferred_anti]
        effects += [pair for pair in wanting if _asked(world, pair[0].matcher, pod)]
        for term, weight in effects:
            if term.topology_key in node.labels:
                weights[term.topology_key, node.labels[term.topology_key]] += weight
    if not weights:
        return None
    raw = {node.name: sum(weights[item] for item in node.labels.items()) for node in feasible}
    lowest, highest = min(raw.values(), default=0), max(raw.values(), default=0)
    spread = highest - lowest
    return {
        name: (score, int(100.0 * ((score - lowest) / spread)) if spread else 0)
        for name, score in raw.items()
    }
