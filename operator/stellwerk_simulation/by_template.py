"""Counts of the pods of large controllers, in answers that would list thousands of them.

Simulations and plans of nodes answer with it, as what-if does (`explain.by_template`). Invariant: a
pod is either counted here or listed by its name.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Final

from stellwerk.answers.what_if import TemplateOutcome
from stellwerk.explain.by_template import TemplateTally, kind_of_node
from stellwerk.explain.steps import finished
from stellwerk_kube.node import parse_node
from stellwerk_kube.pod_templates import maker_of
from stellwerk_simulation.cluster import node_manifest
from stellwerk_simulation.trace import TraceNode, TracePod

MIN_COUNTED_PODS: Final = 1001
"""Pods of a controller from which on they are counted: what-if, too, lists no more than 1,000."""


def controllers_of_many(pods: Sequence[TracePod]) -> dict[str, str]:
    """NAMESPACE/KIND/NAME of the controller of each pod that is one of very many, by its name."""
    makers = {pod.name: maker_of(pod.manifest) for pod in pods if pod.manifest is not None}
    counts = Counter(makers.values())
    return {
        name: maker for name, maker in makers.items() if maker and counts[maker] >= MIN_COUNTED_PODS
    }


def outcomes(
    makers: Mapping[str, str],
    placed: Mapping[str, str],
    left_out: Mapping[str, str],
    kinds: Mapping[str, str],
) -> list[TemplateOutcome]:
    """The outcome of each controller that `makers` names.

    Args:
        makers: the controller of each pod that is counted, by the pod's name.
        placed: the node of each pod that has one.
        left_out: the reasons for which pods have none.
        kinds: the kind of each node, by its name.
    """
    counts = Counter(makers.values())
    tallies = {maker: TemplateTally(maker, count) for maker, count in counts.items()}
    for pod, maker in makers.items():
        if pod in placed:
            tallies[maker].count_placed(placed[pod])
        elif pod in left_out:
            tallies[maker].count_unplaced(left_out[pod], None)
    return [finished(tally.outcome(lambda name: kinds.get(name, ""))) for tally in tallies.values()]


def kinds_of(nodes: Sequence[TraceNode]) -> dict[str, str]:
    """The kind of each node, by its name."""
    return {
        node.name: kind_of_node(parse_node(node.manifest or node_manifest(node))) for node in nodes
    }


def without(names: Mapping[str, str], counted: AbstractSet[str]) -> dict[str, str]:
    """The pods that are not counted, with what is said of each."""
    return {name: text for name, text in names.items() if name not in counted}
