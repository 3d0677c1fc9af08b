"""The reason for a pod's node in one line, and objections of its manifest to that node.

The demo prints the one and ends with an error on the other. Invariant: a line says nothing that is
not in the explanation, and what a manifest forbids is judged without the scheduler's own columns.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from stellwerk.models.answers.pod import DecisionFields, PodExplanation
from stellwerk.models.node import NodeInfo
from stellwerk.models.pod import PodInfo
from stellwerk.models.pod_affinity import AffinityTerm
from stellwerk.models.taints import NO_EXECUTE, NO_SCHEDULE, untolerated

_HARD: Final = (NO_SCHEDULE, NO_EXECUTE)
_SCORES: Final = 2
"""So many scores are named."""


def reason(explanation: PodExplanation | None) -> str:
    """The reason for which a bound pod is where it is."""
    if explanation is None:
        return "not explained"
    decision = explanation.decision
    if decision is None:
        return explanation.note or "not explained"
    words = [f"{decision.feasible} of {decision.nodes} nodes fit"]
    others = decision.others
    if others is not None and others.nodes == decision.nodes - decision.feasible:
        words += (f"{each.nodes}: {', '.join(each.reasons)}" for each in others.reasons)
    if len(decision.best) > 1:
        words.append(_choice(decision))
    return "; ".join(words)


def _choice(decision: DecisionFields) -> str:
    """The scores that put the chosen node before the next one."""
    chosen, second = decision.best[:2]
    if decision.tied > 1:
        return f"{decision.tied} tied at {chosen.total}, one of them drawn"
    leads = {
        plugin: score.weighted - second.scores[plugin].weighted
        for plugin, score in chosen.scores.items()
    }
    ahead = sorted((plugin for plugin, lead in leads.items() if lead > 0), key=leads.__getitem__)
    named = ", ".join(f"{plugin} +{leads[plugin]}" for plugin in reversed(ahead[-_SCORES:]))
    return f"best by {chosen.total} to {second.total} ({named})"


def forbidden(pod: PodInfo, pods: Sequence[PodInfo], nodes: Mapping[str, NodeInfo]) -> str:
    """The first objection of the pod's manifest to its node; empty: none."""
    return next(_objections(pod, pods, nodes), "")


def _objections(
    pod: PodInfo, pods: Sequence[PodInfo], nodes: Mapping[str, NodeInfo]
) -> Iterator[str]:
    node, spec = nodes[pod.node_name], pod.spec
    for key, value in spec.node_selector.items():
        if node.labels.get(key) != value:
            yield f"{node.name} is not labelled {key}={value}"
    required = spec.required_node_affinity
    if required is not None and not required.matches(node.labels, node.name):
        yield f"{node.name} does not match the required node affinity"
    for taint in untolerated(node.taints, spec.tolerations, _HARD):
        yield f"{node.name} has the taint {taint.key}, which is not tolerated"
    others = [other for other in pods if other.uid != pod.uid and other.node_name]
    for term in spec.pod_affinity.required_anti:
        if any(_together(term, pod, other, nodes) for other in others):
            yield f"{node.name} shares its {term.topology_key} with a pod that is to be avoided"
    for term in spec.pod_affinity.required:
        if not any(_together(term, pod, other, nodes) for other in pods):
            yield f"{node.name} shares its {term.topology_key} with no pod that is asked for"
    yield from _uneven(pod, pods, nodes)


def _together(
    term: AffinityTerm, pod: PodInfo, other: PodInfo, nodes: Mapping[str, NodeInfo]
) -> bool:
    key = term.topology_key
    value = nodes[pod.node_name].labels.get(key)
    return (
        bool(other.node_name)
        and value is not None
        and nodes[other.node_name].labels.get(key) == value
        and term.matcher.matches(other.namespace, other.labels, {})
    )


def _uneven(pod: PodInfo, pods: Sequence[PodInfo], nodes: Mapping[str, NodeInfo]) -> Iterator[str]:
    for constraint in pod.spec.spread_constraints:
        if not constraint.hard or constraint.selector is None:
            continue
        key, selector = constraint.topology_key, constraint.selector
        counts = Counter({node.labels[key]: 0 for node in nodes.values() if key in node.labels})
        for other in pods:
            if other.node_name and selector.matches(other.labels):
                counts[nodes[other.node_name].labels[key]] += 1
        skew = counts[nodes[pod.node_name].labels[key]] - min(counts.values())
        if skew > constraint.max_skew:
            yield f"{key} differs by {skew} pods, more than {constraint.max_skew}"
