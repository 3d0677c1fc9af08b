"""The answer to a supposition for people: a summary, and one line for pods that are alike.

The page's what-if view and the table of `stellwerk what-if` use it.
Invariant: every pod of the answer is in one group, by name.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from stellwerk.answers.what_if import PlacedPod, TemplateOutcome, UnplacedPod, WhatIf
from stellwerk.answers.words import controller_name, counted


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


def counted_templates(answer: WhatIf) -> list[TemplateOutcome]:
    """The templates whose pods are not listed one by one."""
    return [each for each in answer.templates or () if not each.listed]


def template_name(outcome: TemplateOutcome) -> str:
    """The template in the words of `stellwerk explain`: a pod, or a controller."""
    namespace, _, rest = outcome.template.partition("/")
    return controller_name(namespace, rest) if "/" in rest else outcome.template


def kinds_of_nodes(outcome: TemplateOutcome) -> list[str]:
    """The kinds of node that get pods of a template, the one with the most pods first."""
    found = [
        f"{counted(each.pods, 'pod')} on {counted(each.nodes, 'node')} of {each.kind}"
        for each in outcome.by_kind
    ]
    others = outcome.placed - sum(each.pods for each in outcome.by_kind)
    return [*found, f"{counted(others, 'pod')} on nodes of other kinds"] if others else found


def nodes_with_most(outcome: TemplateOutcome, most: int) -> str:
    """The nodes that get the most pods of a template, and how many more get some."""
    shown = outcome.by_node[:most]
    text = ", ".join(f"{each.node} ({each.pods:,})" for each in shown)
    more = outcome.nodes - len(shown)
    return f"{text} and {more:,} more" if more else text


def summary(answer: WhatIf) -> str:
    """The outcome in a sentence: how many pods move or get a node, and what becomes of the rest."""
    outcomes = counted_templates(answer)
    placed = len(answer.placed) + sum(each.placed for each in outcomes)
    unplaced = len(answer.unplaced) + sum(each.unplaced for each in outcomes)
    staying, lost = len(answer.staying or ()), len(answer.lost or ())
    total = placed + unplaced + staying + lost
    if not total:
        return ""
    moves = answer.drained is not None or bool(answer.ended)
    verb = _verb(placed, "moves", "move") if moves else _verb(placed, "gets a node", "get a node")
    plural = "" if total == 1 else "s"
    rest = [
        f"{number:,} {_verb(number, one, many)}"
        for number, one, many in (
            (unplaced, "finds no node", "find no node"),
            (staying, "stays where it is", "stay where they are"),
            (lost, "is lost", "are lost"),
        )
        if number
    ]
    ends = "".join(f", {each}" for each in rest)
    return f"{placed:,} of {total:,} pod{plural} {verb}{ends}."


def _verb(number: int, one: str, many: str) -> str:
    return one if number == 1 else many
