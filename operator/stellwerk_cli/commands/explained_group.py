"""The table of a pod group's explanation: its members, and what would happen now.

`stellwerk explain podgroup/NAME` prints it. Invariant: remarks and messages are printed as they
are.
"""

from collections.abc import Iterator
from typing import Final

from stellwerk.answers.group import ROOM_NOT_KEPT, GroupExplanation, GroupForecast
from stellwerk_cli.commands.explained_pod import print_releases
from stellwerk_cli.commands.output import Shown
from stellwerk_cli.commands.printer import Column, Printer


def print_group(explanation: GroupExplanation, to: Printer) -> None:
    """One group's explanation."""
    counts = f"{explanation.placed} placed of {explanation.min_count} needed"
    headline = f"{explanation.pod_group}: {explanation.state} ({counts}, "
    ended = f", {explanation.succeeded} succeeded" if explanation.succeeded else ""
    to.say(f"{headline}{explanation.exist} exist, {explanation.running} running{ended})")
    for remark in _remarks(explanation):
        to.say(f"  {remark}")
    would = explanation.would_happen
    _print_members(explanation, would, to)
    for line in _outcome(would) if would is not None else ():
        to.say(line)
    for each in explanation.would_fit or ():
        nodes = "1 more node" if each.nodes == 1 else f"{each.nodes} more nodes"
        to.say(f"would fit with {nodes} like {each.like}, in addition to the free room")
    print_releases([explanation.compatibility], to)


def _remarks(explanation: GroupExplanation) -> Iterator[str]:
    if explanation.waits_for:
        yield explanation.waits_for
    yield from explanation.remarks or ()
    for problem in explanation.problems or ():
        yield f"not usable: {problem}"
    left = explanation.room_is_kept_seconds
    if left != ROOM_NOT_KEPT:
        until = "while it is the first of its queue" if left is None else f"for {left} s more"
        yield f"room is kept for it, {until}"
    after = explanation.given_back_after_seconds
    if after is not None:
        yield f"if too few pods can be bound, the bound ones are deleted after {after} s"


def _outcome(would: GroupForecast) -> Iterator[str]:
    if would.message:
        yield f"now: {would.message}"
    if would.missing:
        yield f"  {would.missing}"
    if would.placed:
        yield f"now: it would be placed on {would.placement}"
    if would.victims:
        yield f"  by evicting {', '.join(would.victims)}"
    if would.decided_by:
        yield f"  chosen against kube-scheduler's order: {would.decided_by}"
    if would.room_is_kept_on:
        yield f"  with room kept on {', '.join(would.room_is_kept_on)}"


def _print_members(explanation: GroupExplanation, would: GroupForecast | None, to: Printer) -> None:
    reasons = (would.reasons if would is not None else None) or {}
    nodes = would.nodes if would is not None else {}
    rows = []
    for each in explanation.members:
        now = f"would get {nodes[each.pod]}" if each.pod in nodes else ""
        why_not = reasons.get(each.pod) or now or each.message or ""
        rows.append((each.pod, each.node, each.queue or "", why_not))
    titles = ("POD", "NODE", "QUEUE", "WHY NOT")
    to.table((Column(title, folds=True) for title in titles), rows)


GROUP: Final = Shown(GroupExplanation, print_group, lambda group: [f"podgroup/{group.pod_group}"])
