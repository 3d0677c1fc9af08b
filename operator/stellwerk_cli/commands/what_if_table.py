"""The table of a what-if: what is supposed, which pods get which node, and which get none.

`stellwerk what-if` prints it. Invariant: a pod without a node has its reason beside it.
"""

from collections.abc import Sequence
from typing import Final

from stellwerk.answers.what_if import PodThatStays, TemplateOutcome, WhatIf
from stellwerk.answers.words import controller_name, counted, named
from stellwerk_cli.commands.explained_pod import print_releases, print_verdicts
from stellwerk_cli.commands.output import Shown
from stellwerk_cli.commands.printer import Cell, Column, Part, Printer
from stellwerk_cli.page.what_if_view import (
    AlikePods,
    counted_templates,
    kinds_of_nodes,
    nodes_with_most,
    placed_alike,
    summary,
    template_name,
    unplaced_alike,
)

_NAMED_NODES: Final = 5
"""Nodes of a template in the table; -o wide has all that the answer names."""


def print_what_if(answer: WhatIf, to: Printer) -> None:
    """Print the summary, then pods with their nodes, and pods without one with the reason.

    Pods that are alike are one line, unless everything is to be shown.
    """
    _print_head(answer, to)
    if answer.placed:
        columns = (Column("POD", folds=True), Column("NODE", folds=True))
        to.table(columns, map(_placed_row, placed_alike(answer, apart=to.is_wide)))
    for group in unplaced_alike(answer, apart=to.is_wide):
        one = len(group.pods) == 1
        to.say((_pods(group), "red"), f" get{'s' * one} no node: {group.message}")
        if group.victims and answer.explanation is None:
            victims = ", ".join(group.victims)
            who = "it" if one else group.pods[0]
            to.say(f"  {who} would preempt {victims} on {group.node}")
    for outcome in counted_templates(answer):
        print_template(outcome, to)
    if answer.left_out:
        why = f": {answer.stopped}" if answer.stopped else ""
        more = counted(answer.left_out, "more pod")
        to.say((f"{more} not examined{why}", "yellow"))
    elif not (
        answer.placed or answer.unplaced or answer.lost or answer.staying or answer.templates
    ):
        to.say("No pod waits." if answer.drained is None else "No pod has to move.")
    if answer.explanation is not None and answer.unplaced:
        held_back = any(each.held_back for each in answer.unplaced)
        print_verdicts(answer.explanation, to, held_back=held_back)
    else:
        for left in answer.not_asked or ():
            to.say((f"Not asked: {left.plugin}: {left.reason}", "yellow"))
    print_releases(answer.compatibility, to)


def print_template(outcome: TemplateOutcome, to: Printer) -> None:
    """Print the counts of a template: kinds of node, nodes, and the reasons of the rest."""
    gets = "gets a node" if outcome.placed == 1 else "get a node"
    pods = counted(outcome.pods, "pod")
    to.say((template_name(outcome), "bold"), f": {outcome.placed:,} of {pods} {gets}")
    for kind in kinds_of_nodes(outcome):
        to.say("  ", (kind, "green"))
    if outcome.nodes:
        most = len(outcome.by_node) if to.is_wide else _NAMED_NODES
        to.say(f"  by node: {nodes_with_most(outcome, most)}")
    for reason in outcome.reasons:
        get = "gets" if reason.pods == 1 else "get"
        to.say("  ", (counted(reason.pods, "pod"), "red"), f" {get} no node: {reason.message}")
        if reason.would_preempt is not None:
            victims = named(reason.would_preempt.victims)
            to.say(f"    the first would preempt {victims} on {reason.would_preempt.node}")
    if outcome.other_reasons:
        others = counted(outcome.other_reasons, "more pod")
        to.say("  ", (others, "red"), " without a node, for other reasons")
    if outcome.left_out:
        to.say("  ", (f"{counted(outcome.left_out, 'pod')} not examined", "yellow"))


def _placed_row(group: AlikePods) -> tuple[Cell, Cell]:
    if len(group.pods) == 1:
        tie = f" (or {group.tied - 1:,} equal)" if group.tied else ""
        return group.pods[0], [(next(iter(group.nodes)), "green"), tie]
    nodes = list[Part]()
    for node, count in group.nodes.items():
        nodes += [", " if nodes else "", (node, "green"), f" ({count:,})" if count > 1 else ""]
    return _pods(group), nodes


def _pods(group: AlikePods) -> str:
    """The pods of a group in words: one by its name, several by their controller or first names."""
    if len(group.pods) == 1:
        return group.pods[0]
    if not group.controller:
        return _listed(group.pods)
    namespace = group.pods[0].partition("/")[0]
    return f"{counted(len(group.pods), 'pod')} of {controller_name(namespace, group.controller)}"


def _print_head(answer: WhatIf, to: Printer) -> None:
    """The summary, what is supposed, and the pods that acts end or do not end."""
    outcome = summary(answer)
    if answer.drained is not None:
        drained = answer.drained
        names = drained if isinstance(drained, str) else ", ".join(drained)
        outcome = f"If {names} were drained: {outcome}".rstrip()
    if outcome:
        to.say((outcome, "bold"))
    for act in answer.acts or ():
        to.say(f"Supposed: {act}")
    _print_ended(answer, to)
    if answer.daemon_sets:
        which = ", ".join(answer.daemon_sets)
        where = "the nodes" if answer.acts else "the added nodes"
        to.say(f"On {where} are the pods of the DaemonSets {which}.")
    lost = answer.lost or ()
    for pods in [[pod] for pod in lost] if to.is_wide else [lost] if lost else []:
        fate = "is lost: no controller recreates it"
        if len(pods) > 1:
            fate = "are lost: no controller recreates them"
        to.say((_listed(pods), "red"), f" {fate}")
    staying: dict[object, list[PodThatStays]] = {}
    for number, each in enumerate(answer.staying or ()):
        alike = (each.node, each.budget, each.message)
        staying.setdefault(number if to.is_wide else alike, []).append(each)
    for stay in staying.values():
        names, first = _listed([each.pod for each in stay]), stay[0]
        verb = "stays" if len(stay) == 1 else "stay"
        to.say((names, "red"), f" {verb} on {first.node}: budget {first.budget}: {first.message}")


def _listed(pods: Sequence[str]) -> str:
    return pods[0] if len(pods) == 1 else f"{counted(len(pods), 'pod')} ({named(pods)})"


def _print_ended(answer: WhatIf, to: Printer) -> None:
    """The pods that acts end, those of one reason together."""
    by_reason: dict[tuple[str, int | None, bool], list[str]] = {}
    lost = frozenset(answer.lost or ())
    for pod in answer.ended or ():
        if pod.pod in lost:
            continue  # It has a line of its own.
        by_reason.setdefault((pod.reason, pod.after_seconds, pod.made_anew), []).append(pod.pod)
    for (reason, seconds, made_anew), pods in by_reason.items():
        ends = "ends" if len(pods) == 1 else "end"
        after = f" after {seconds} s" if seconds else ""
        anew = ", and is recreated" if len(pods) == 1 else ", and are recreated"
        head = f"{counted(len(pods), 'pod')} ({named(pods)}) {ends}{after}"
        to.say(f"{head}{anew if made_anew else ''}: {reason}")


WHAT_IF: Final = Shown(
    WhatIf,
    print_what_if,
    lambda answer: [
        *(each.pod for each in answer.placed),
        *(each.pod for each in answer.unplaced),
        *(each.template for each in counted_templates(answer)),
    ],
)
