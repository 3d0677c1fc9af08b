"""Supposed acts on nodes, each with every field that it changes in a real cluster.

What-if, plans, trials of plugins and suggestions suppose acts: cordon and uncordon, add, relabel,
taint and untaint; a drain is a cordon and evictions (`explain.what_if`). Acts on other objects,
scaling and deletion, are in `explain.supposed_changes`. All callers share it, so that an act means
the same everywhere. Invariant: a supposed node equals the real one after the node lifecycle
controller has acted. A test compares both on the embedded cluster.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from stellwerk_kube.node import NodeInfo
from stellwerk_kube.taints import NO_SCHEDULE, UNSCHEDULABLE_TAINT_KEY, Taint

_CORDONED = Taint(UNSCHEDULABLE_TAINT_KEY, "", NO_SCHEDULE)


def cordoned(node: NodeInfo) -> NodeInfo:
    """Return the node after `kubectl cordon`: unschedulable, and with the taint that says so.

    The taint matters to more than NodeUnschedulable: a spread constraint with `nodeTaintsPolicy:
    Honor` leaves tainted nodes out of its domains.
    """
    return settled(replace(node, unschedulable=True))


def uncordoned(node: NodeInfo) -> NodeInfo:
    """Return the node after `kubectl uncordon`."""
    return settled(replace(node, unschedulable=False))


def relabelled(node: NodeInfo, labels: Mapping[str, str | None]) -> NodeInfo:
    """Return the node after `kubectl label`; None takes a label away."""
    changed = {**node.labels, **labels}
    left = {key: value for key, value in changed.items() if value is not None}
    return settled(replace(node, labels=left))


def tainted(node: NodeInfo, taints: Iterable[Taint]) -> NodeInfo:
    """Return the node after `kubectl taint`; a taint of the same key and effect is replaced."""
    added = {(each.key, each.effect): each for each in taints}
    kept = [each for each in node.taints if (each.key, each.effect) not in added]
    return settled(replace(node, taints=(*kept, *added.values())))


def untainted(node: NodeInfo, taints: Iterable[Taint]) -> NodeInfo:
    """Return the node after `kubectl taint` with a hyphen: without these taints."""
    gone = frozenset(taints)
    return settled(replace(node, taints=tuple(each for each in node.taints if each not in gone)))


def settled(node: NodeInfo) -> NodeInfo:
    """Return a node as the node lifecycle controller leaves it (`nodeSpecToTaintKey`, v1.36).

    It puts the taint of cordoning on each unschedulable node, and takes it off every other one.
    """
    others = tuple(each for each in node.taints if each.key != UNSCHEDULABLE_TAINT_KEY)
    if not node.unschedulable:
        return node if len(others) == len(node.taints) else replace(node, taints=others)
    return node if _CORDONED in node.taints else replace(node, taints=(*others, _CORDONED))
