"""The table of a node's explanation: what is used of it, and which waiting pods would fit there.

`stellwerk explain node/NAME` prints it; `listings` has the table of `stellwerk nodes`. Invariant:
each waiting pod is seen alone.
"""

from typing import Final

from stellwerk.answers.nodes import NodeExplanation
from stellwerk.answers.words import counted
from stellwerk_cli.commands.explained_pod import print_releases
from stellwerk_cli.commands.output import Shown
from stellwerk_cli.commands.printer import Column, Printer

_MAX_NAMES: Final = 20
"""Pods that are named of those that would fit."""
_MAX_EXAMPLES: Final = 3
"""Pods that are named for each reason."""


def print_node(explanation: NodeExplanation, to: Printer) -> None:
    """A node, and who would fit there."""
    node = explanation.node
    cordoned = ", cordoned" if node.unschedulable else ""
    on_it = f": {counted(explanation.running, 'pod')} on it{cordoned}"
    to.say((f"node/{node.name}", "bold"), on_it)
    quantities = node.quantities
    if quantities is not None:
        shares = (
            f"{name} {quantities.requested.get(name, '0')} of {amount}"
            for name, amount in quantities.allocatable.items()
            if name in {"cpu", "memory", "pods"} or quantities.requested.get(name, "0") != "0"
        )
        to.say(f"Requested: {', '.join(shares)}")
    for taint in node.taints:
        to.say(f"Taint: {taint.key}={taint.value}:{taint.effect}")
    fitting = explanation.fitting
    if fitting:
        more = f" and {len(fitting) - _MAX_NAMES:,} more" if len(fitting) > _MAX_NAMES else ""
        named = ", ".join(fitting[:_MAX_NAMES])
        to.say((f"Pending pods that would fit, each by itself: {named}{more}", "green"))
    elif explanation.turned_away:
        to.say("No pending pod would fit there.")
    else:
        to.say("No pod waits.")
    if explanation.turned_away:
        titles = ("PLUGIN", "WHY", "FOR EXAMPLE")
        to.table(
            [Column("PODS", is_number=True), *(Column(title, folds=True) for title in titles)],
            (
                (
                    f"{each.count}",
                    each.plugin,
                    ", ".join(each.reasons),
                    ", ".join(each.pods[:_MAX_EXAMPLES]),
                )
                for each in explanation.turned_away
            ),
        )
    if explanation.left_out is not None:
        why = f": {explanation.stopped}" if explanation.stopped else ""
        more = counted(explanation.left_out, "more pod")
        to.say((f"{more} not examined{why}", "yellow"))
    print_releases(explanation.compatibility, to)


NODE: Final = Shown(NodeExplanation, print_node, lambda answer: answer.fitting)
