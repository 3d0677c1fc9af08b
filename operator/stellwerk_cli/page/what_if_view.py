"""The answer to a supposition for people: a summary, and pods that are alike as one line.

The page's what-if view and the table of `stellwerk what-if` use it.
Invariant: every pod of the answer is in one group, by name.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from stellwerk.answers.what_if import PlacedPod, UnplacedPod, WhatIf


@dataclass(frozen=True, slots=True)
class AlikePods:
    """Pods of one controller that get nodes, or that get none for the same reason."""

    pods: list[str] = field(default_factory=list)
    controller: str = ""
    """KIND/NAME; empty: none made them."""
    nodes: dict[str, int] = field(default_factory=dict)
    """Pods by node."""
    tied: int = 0
    """The number of nodes of which one is drawn; 0: no tie, or several pods."""
    message: str = ""
    """The reason for no node."""
    victims: Sequence[str] = ()
    """The pods that the first one would preempt, and the node."""
    node: str = ""


def placed_alike(answer: WhatIf, *, apart: bool = False) -> list[AlikePods]:
    """The pods that get a node, by controller; a pod without one is alone, or each if `apart`."""
    groups: dict[object, AlikePods] = {}
    for each in answer.placed:
        key = (not apart and _namespaced(each)) or each.pod
        group = groups.setdefault(
            key, AlikePods(controller=each.controller or "", tied=each.tied or 0)
        )
        group.pods.append(each.pod)
        group.nodes[each.node] = group.nodes.get(each.node, 0) + 1
    return list(groups.values())


def unplaced_alike(answer: WhatIf, *, apart: bool = False) -> list[AlikePods]:
    """The pods that get none, by controller and reason; the largest group first.

    If `apart`, each pod is alone.
    """
    groups: dict[object, AlikePods] = {}
    for each in answer.unplaced:
        preempts = each.would_preempt
        group = groups.setdefault(
            each.pod if apart else (_namespaced(each), each.message, preempts is not None),
            AlikePods(
                controller=each.controller or "",
                message=each.message,
                victims=() if preempts is None else preempts.victims,
                node="" if preempts is None else preempts.node,
            ),
        )
        group.pods.append(each.pod)
    return sorted(groups.values(), key=lambda group: -len(group.pods))


def _namespaced(pod: PlacedPod | UnplacedPod) -> str:
    return f"{pod.pod.partition('/')[0]}/{pod.controller}" if pod.controller else ""


def summary(answer: WhatIf) -> str:
    """The outcome in a sentence: how many pods move or get a node, and what becomes of the rest."""
    placed, unplaced = len(answer.placed), len(answer.unplaced)
    staying, lost = len(answer.staying or ()), len(answer.lost or ())
    total = placed + unplaced + staying + lost
    if not total:
        return ""
    moves = answer.drained is not None or bool(answer.ended)
    verb = _verb(placed, "moves", "move") if moves else _verb(placed, "gets a node", "get a node")
    plural = "" if total == 1 else "s"
    rest = [
        f"{number} {_verb(number, one, many)}"
        for number, one, many in (
            (unplaced, "finds no node", "find no node"),
            (staying, "stays where it is", "stay where they are"),
            (lost, "is lost", "are lost"),
        )
        if number
    ]
    return f"{placed} of {total} pod{plural} {verb}{''.join(f', {each}' for each in rest)}."


def _verb(number: int, one: str, many: str) -> str:
    return one if number == 1 else many
