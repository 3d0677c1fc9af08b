"""The table of a what-if: what is supposed, which pods get which node, and which get none.

`stellwerk what-if` prints it. Invariant: a pod without a node has its reason beside it.
"""

from typing import Final

from stellwerk.answers.what_if import WhatIf
from stellwerk.answers.words import counted
from stellwerk_cli.commands.explained_pod import print_releases, print_verdicts
from stellwerk_cli.commands.output import Shown
from stellwerk_cli.commands.printer import Cell, Column, Printer

_MAX_EXAMPLES: Final = 3
"""Pods that are named of those that an act ends for one reason."""


def print_what_if(answer: WhatIf, to: Printer) -> None:
    """Pods with their nodes, and pods without one with the reason."""
    _print_drains(answer, to)
    if answer.placed:
        rows = list[tuple[Cell, Cell]]()
        for placed in answer.placed:
            tie = f" (or {placed.tied - 1:,} equal)" if placed.tied else ""
            rows.append((placed.pod, [(placed.node, "green"), tie]))
        to.table((Column("POD", folds=True), Column("NODE", folds=True)), rows)
    for each in answer.unplaced:
        to.say((each.pod, "red"), f" gets no node: {each.message}")
        if each.would_preempt is not None and answer.explanation is None:
            victims = ", ".join(each.would_preempt.victims)
            to.say(f"  it would preempt {victims} on {each.would_preempt.node}")
    if answer.left_out:
        why = f": {answer.stopped}" if answer.stopped else ""
        more = counted(answer.left_out, "more pod")
        to.say((f"{more} not examined{why}", "yellow"))
    elif not (answer.placed or answer.unplaced or answer.lost or answer.staying):
        to.say("No pod waits." if answer.drained is None else "No pod has to move.")
    if answer.explanation is not None and answer.unplaced:
        held_back = any(each.held_back for each in answer.unplaced)
        print_verdicts(answer.explanation, to, held_back=held_back)
    else:
        for left in answer.not_asked or ():
            to.say((f"Not asked: {left.plugin}: {left.reason}", "yellow"))
    print_releases(answer.compatibility, to)


def _print_drains(answer: WhatIf, to: Printer) -> None:
    for act in answer.acts or ():
        to.say(f"Supposed: {act}")
    _print_ended(answer, to)
    if answer.drained is not None:
        drained = answer.drained
        names = drained if isinstance(drained, str) else ", ".join(drained)
        to.say(f"If {names} were drained:")
    if answer.daemon_sets:
        which = ", ".join(answer.daemon_sets)
        where = "the nodes" if answer.acts else "the added nodes"
        to.say(f"On {where} are the pods of the DaemonSets {which}.")
    for pod in answer.lost or ():
        to.say((pod, "red"), " is lost: no controller recreates it")
    for stays in answer.staying or ():
        to.say(
            (stays.pod, "red"), f" stays on {stays.node}: budget {stays.budget}: {stays.message}"
        )


def _print_ended(answer: WhatIf, to: Printer) -> None:
    """The pods that acts end, those of one reason together."""
    by_reason: dict[tuple[str, int | None, bool], list[str]] = {}
    lost = frozenset(answer.lost or ())
    for pod in answer.ended or ():
        if pod.pod in lost:
            continue  # It has a line of its own.
        by_reason.setdefault((pod.reason, pod.after_seconds, pod.made_anew), []).append(pod.pod)
    for (reason, seconds, made_anew), pods in by_reason.items():
        more = f" and {len(pods) - _MAX_EXAMPLES:,} more" if len(pods) > _MAX_EXAMPLES else ""
        ends = "ends" if len(pods) == 1 else "end"
        after = f" after {seconds} s" if seconds else ""
        anew = ", and is recreated" if len(pods) == 1 else ", and are recreated"
        named = f"{', '.join(pods[:_MAX_EXAMPLES])}{more}"
        head = f"{counted(len(pods), 'pod')} ({named}) {ends}{after}"
        to.say(f"{head}{anew if made_anew else ''}: {reason}")


WHAT_IF: Final = Shown(
    WhatIf,
    print_what_if,
    lambda answer: [
        *(each.pod for each in answer.placed),
        *(each.pod for each in answer.unplaced),
    ],
)
