"""Answers as tables for people, or as JSON or YAML for programs; once or whenever they change.

The commands print them. Tables are coloured on a terminal alone, and no wider than it is.
This module is the one that uses rich: other modules ask it for a `Printer`.
Invariant: a table shows nothing that is not in the answer, and a text of a user as it is, in one
line, never as markup; what is printed for programs is the operator's answer, unchanged.
"""

import asyncio
import os
import re
import shutil
import sys
import textwrap
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any, Final, Generic, NoReturn, TextIO

import orjson
import yaml
from rich.console import Console, ConsoleOptions, RenderableType
from rich.measure import Measurement
from rich.segment import Segment
from rich.style import Style
from rich.table import Table
from rich.text import Text
from typing_extensions import override

from stellwerk.answers.answer import Kind, PortAnswer, codec
from stellwerk.answers.decisions import DecisionsPage
from stellwerk.answers.devices import ClaimExplanation, DeviceExplanation, DevicesPage
from stellwerk.answers.diagnosis import DoctorReport, State
from stellwerk.answers.dump import CacheDump
from stellwerk.answers.group import ROOM_NOT_KEPT, GroupExplanation, GroupForecast
from stellwerk.answers.nodes import NodeExplanation, NodeFields, NodesPage, PodsTurnedAway
from stellwerk.answers.pod import (
    DecisionFields,
    LastPreemption,
    PodExplanation,
    PreemptedBy,
    PreemptionNow,
    RankedNode,
    RecomputedExplanation,
    ScoreFields,
    VictimFields,
)
from stellwerk.answers.profile_history import ProfileHistory
from stellwerk.answers.queue import QueuePage
from stellwerk.answers.shadow import ShadowDiff
from stellwerk.answers.suggestion import Suggestion
from stellwerk.answers.what_if import WhatIf
from stellwerk.answers.workload import WorkloadExplanation
from stellwerk.models.troubleshooting import address, entry_of
from stellwerk_cli.progress_line import waiting_for
from stellwerk_kube.clock import SystemClock, parse_moment
from stellwerk_kube.compatibility import decided_as
from stellwerk_kube.names import duration_text
from stellwerk_kube.untrusted_text import json_escaped, printable, printable_lines, terminal
from stellwerk_simulation.answers import BenchAnswer

_UNBROKEN: Final = 10_000
"""Columns where there is no terminal: what is piped keeps its lines whole, for grep."""
_NAMES: Final = 2
"""Columns of a benchmark that hold names. The others hold numbers."""
_MOST_NODES: Final = 10
_TIE: Final = 2
_MOST_TIED: Final = 5
_MOST_NAMES: Final = 20
_EXAMPLES: Final = 3
_MOST_DIFFERENCES: Final = 50
_WORD: Final = re.compile(r"[A-Z]+[a-z0-9]*|[^A-Z]+")


Part = str | tuple[str, str | Style]
"""A text, alone or with its style."""


class Printer(Console):
    """The one console of commands: a text of any author is shown as it is.

    Rich would read `[link=…]` as a link and `:skull:` as a picture. This console has both turned
    off, and takes out whatever moves a terminal, also of what it did not make itself. A closed pipe
    is the command line's to deal with, where rich would exit with 1.
    """

    is_wide = False
    """Whether everything is shown, however wide it is."""

    def __init__(
        self, output: TextIO, *, width: int | None = None, no_color: bool | None = None
    ) -> None:
        super().__init__(
            file=output,
            width=width,
            no_color=no_color,
            markup=False,
            emoji=False,
            highlight=False,
        )

    def say(self, *parts: Part) -> None:
        """Print one line of some parts; a line break in a text is a space."""
        self.print(Text.assemble(*map(plain, parts)))

    @override
    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            # Of texts, rich makes no control segments: those are the moves of a progress bar.
            is_move = segment.control is not None
            yield segment if is_move else Segment(printable_lines(segment.text), segment.style)

    @override
    def on_broken_pipe(self) -> NoReturn:
        raise BrokenPipeError


def plain(part: Part) -> Text:
    """A text as rich shows it: in one line, without markup and control characters."""
    text, style = (part, "") if isinstance(part, str) else part
    return Text(printable(text), style)


def console(output: TextIO | None = None) -> Printer:
    """The console of tables: a terminal, else as wide as $COLUMNS or any line, without colour."""
    output = output or sys.stdout
    if output.isatty():
        return Printer(terminal(output))
    width = _UNBROKEN
    if "COLUMNS" in os.environ:
        width = shutil.get_terminal_size((_UNBROKEN, 0)).columns
    return Printer(output, width=width, no_color=True)


# --- a pod --------------------------------------------------------------------------------------


def print_explanation(explanation: PodExplanation, to: Printer) -> None:
    """One pod's explanation."""
    _print_explanation(explanation, to)
    _print_releases(_releases(explanation), to)


def _releases(explanation: PodExplanation) -> list[str | None]:
    """The releases that the pod's decision followed, and that its verdicts follow."""
    parts = (explanation.decision, explanation.verdicts)
    return [each.compatibility for each in parts if each is not None]


def _print_releases(releases: Iterable[str | None], to: Printer) -> None:
    """The last line of a table: the releases in the words of every other answer."""
    known = [each for each in releases if each]
    if known:
        to.say((decided_as(known), "dim"))


def _print_explanation(explanation: PodExplanation, to: Printer) -> None:
    to.say(*_headline(explanation))
    if explanation.preempted is not None:
        _print_preempted(explanation.preempted, to)
    for text in (*_binding(explanation), explanation.note, explanation.reason):
        if text is not None:
            to.say(text)
    if explanation.nearest is not None:
        to.say("Nearest name: ", (explanation.nearest, "bold"))
    if explanation.served:
        to.say(f"Served are: {', '.join(explanation.served[:_MOST_NAMES])}")
    # Right above what came of it: the decision that followed, or the pod's place in the queue.
    if explanation.last_preemption is not None:
        _print_last_preemption(explanation.last_preemption, to)
    if explanation.decision is not None:
        _print_decision(explanation.decision, explanation.node or "", to)
    _print_queue(explanation, to)
    if explanation.verdicts is None:
        _print_devices(explanation, to)
    else:
        gated = explanation.queue is not None and explanation.queue.gated_by is not None
        _print_verdicts(explanation, to, held_back=gated)


def _binding(explanation: PodExplanation) -> Iterator[str]:
    """How far the pod's binding has come; nothing where it is not being bound."""
    if explanation.binding is not None:
        yield from explanation.binding.lines()
        yield f"It came there {_ago(explanation.binding.since)}."


def _headline(explanation: PodExplanation) -> Iterator[Part]:
    """The pod, its state, and whose it is."""
    yield explanation.pod, "bold"
    state = explanation.state
    yield " is not served here" if state == "elsewhere" else f" is {state}"
    if explanation.node is not None:
        yield f" on {explanation.node}"
    if explanation.scheduler_name is not None:
        selecting = explanation.selected_by
        by = f"by the selector of {selecting}, " if selecting else ""
        whose = f"schedulerName {explanation.scheduler_name}"
        yield f" ({by}{whose}, priority {explanation.priority})"


def _print_preempted(victim: PreemptedBy, to: Printer) -> None:
    text = (
        f"Preempted {_ago(victim.decided_at)} on {victim.node} by {victim.by}, which has "
        f"priority {victim.by_priority}; its own is {victim.priority}."
    )
    to.say((text, "red"))


def _print_last_preemption(last: LastPreemption, to: Printer) -> None:
    to.say(
        f"It preempted {_victims(last.victims)} on {last.node} {_ago(last.decided_at)}, one of "
        f"{counted(last.candidates, 'candidate')}, with "
        f"{counted(last.budget_violations, 'violation')} of disruption budgets."
    )
    if last.nominated_node != last.node:
        to.say(f"It is nominated to {last.nominated_node or 'no node'} now.")
    for each in last.took_place or ():
        got = "got" if each.bound else "was nominated to"
        text = f"{each.pod}, of priority {each.priority}, {got} that node {_ago(each.decided_at)}."
        to.say(text)


def _victims(victims: Iterable[VictimFields]) -> str:
    return ", ".join(f"{each.pod} ({each.priority})" for each in victims)


def _print_decision(decision: DecisionFields, chosen: str, to: Printer) -> None:
    tie = "no tie" if decision.tied < 2 else f"a tie of {decision.tied}"  # noqa: PLR2004 two
    if decision.nominated:
        # Counts of feasible nodes would mislead here: one node was asked.
        to.say(
            f"Decided {_ago(decision.decided_at)}, attempt {decision.attempts}: it got "
            f"{chosen or 'its node'}, to which it was nominated. Other nodes are looked at only if "
            "the nominated one does not take the pod."
        )
        return
    to.say(
        f"Decided {_ago(decision.decided_at)}: {decision.feasible} of "
        f"{counted(decision.nodes, 'node')} feasible, {tie}, attempt {decision.attempts}."
    )
    best = decision.best[:_MOST_NODES]
    if best:
        _print_scores(best, decision.tied, chosen, to)
    else:
        to.say("There was one feasible node, and nothing to score.")
    if decision.others is not None:
        others = decision.others
        to.say(f"Why the others were not, counted {_ago(others.counted_at)}:")
        to.print(
            _reason_table((each.plugin, each.nodes, each.reasons, ()) for each in others.reasons)
        )


def _print_scores(best: Sequence[RankedNode], tied: int, chosen: str, to: Printer) -> None:
    """The best nodes with their points, the steps to these where the terminal is wide enough."""
    steps = _score_table(best, chosen, _score_steps)
    if getattr(to, "is_wide", False) or _natural_width(steps, to) <= to.width:
        to.print(steps)
        to.say(("raw → normalised × weight = weighted", "dim"))
    else:
        to.print(_score_table(best, chosen, _score_points, narrow=True))
        to.say(("weighted points; -o wide has how they come about", "dim"))
    total = best[0].total
    left = tied - sum(node.total == total for node in best)
    if left > 0 and tied >= _TIE:
        to.say(f"{left:,} more with {total}")


def _score_table(
    best: Sequence[RankedNode],
    chosen: str,
    cell: Callable[[ScoreFields], str],
    *,
    narrow: bool = False,
) -> Table:
    """Nodes in rows, plugins in columns; `narrow`: their names on several lines."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("#", justify="right")
    table.add_column("NODE", overflow="fold")
    table.add_column("TOTAL", justify="right")
    plugins = list(best[0].scores)
    for plugin in plugins:
        shown = printable(plugin)
        name = "\n".join(_WORD.findall(shown)) or shown if narrow else shown
        table.add_column(Text(name), justify="right", overflow="fold")
    for node in best:
        cells = [cell(node.scores[plugin]) for plugin in plugins]
        style = "bold green" if node.node == chosen else ""
        row = (f"{node.rank}", node.node, f"{node.total}", *cells)
        table.add_row(*map(plain, row), style=style)
    return table


def _natural_width(table: Table, to: Printer) -> int:
    """The columns that a table takes if nothing in it is wrapped."""
    return Measurement.get(to, to.options.update(width=_UNBROKEN), table).maximum


def _score_points(score: ScoreFields) -> str:
    return f"{score.weighted}"


def _score_steps(score: ScoreFields) -> str:
    weight = score.weighted // score.normalized if score.normalized else 1
    if weight == 1 and score.raw == score.normalized:
        return f"{score.weighted}"
    return f"{score.raw} → {score.normalized}×{weight}={score.weighted}"


def _reason_table(rows: Iterable[tuple[str, int, Sequence[str], Sequence[str]]]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("NODES", justify="right")
    table.add_column("PLUGIN")
    table.add_column("WHY", overflow="fold")
    listed = list(rows)
    if any(examples for *_, examples in listed):
        table.add_column("FOR EXAMPLE", overflow="fold", style="dim")
    for plugin, nodes, reasons, examples in listed:
        helped = Text(", ").join(_helped(reason, plugin) for reason in reasons)
        cells = [plain(f"{nodes}"), plain(plugin), helped, plain(", ".join(examples))]
        table.add_row(*cells[: len(table.columns)])
    return table


def _helped(reason: str, plugin: str) -> Text:
    """A plugin's reason; a terminal that knows links leads from it to what to do."""
    entry = entry_of(reason, plugin)
    return plain((reason, "" if entry is None else Style(link=address(entry))))


def _print_queue(explanation: PodExplanation, to: Printer) -> None:
    queue, last = explanation.queue, explanation.last_attempt
    if queue is None:
        return
    place = f"In {queue.queue} for {_age(queue.since)}"
    if queue.position is not None:
        place += f", {counted(queue.position, 'pod')} before it"
    place += f"; {counted(queue.attempts, 'attempt')}"
    if queue.next_retry is not None:
        place += f", next in {_age(queue.next_retry, ahead=True)} at the latest"
    to.say(f"{place}.")
    if queue.gated_by is not None:
        to.say((f"Held back by {queue.gated_by}.", "yellow"))
    if last is not None:
        message = f": {last.message}" if last.message else ""
        to.say(f"Last attempt ended {_ago(last.ended_at)}{message}")
    events = dict.fromkeys(each.words for each in queue.woken_by or () if each.words)
    if events:
        to.say("It is tried again when ", (_either(list(events)), "cyan"), ".")


# --- what is computed anew ----------------------------------------------------------------------


def _print_verdicts(
    explanation: PodExplanation | RecomputedExplanation, to: Printer, *, held_back: bool = False
) -> None:
    verdicts = explanation.verdicts
    if verdicts is None:
        return
    to.say()
    to.say("Verdicts, computed anew:")
    if verdicts.error is not None:
        to.say((verdicts.error, "red"))
        return
    if verdicts.pre_filter is not None:
        text = f"{verdicts.pre_filter.plugin}: {', '.join(verdicts.pre_filter.reasons)}"
        to.say((f"All nodes: {text}", "red"))
    if verdicts.by_plugin:
        to.print(
            _reason_table(
                (by_plugin.plugin, each.nodes, each.reasons, each.examples)
                for by_plugin in verdicts.by_plugin
                for each in by_plugin.verdicts
            )
        )
    refused = explanation.refused_by_extenders if isinstance(explanation, PodExplanation) else None
    if refused is not None:
        to.say(f"Refused by extenders in its last attempt, {_ago(refused.counted_at)}:")
        to.print(
            _reason_table((each.plugin, each.nodes, each.reasons, ()) for each in refused.reasons)
        )
    _print_devices(explanation, to)
    if explanation.would_get_node is not None:
        when = "if it were not held back" if held_back else "now"
        to.say((f"{_would_get(explanation)} {when}.", "green"))
        return
    if explanation.would_wait is not None:
        to.say((f"It would get no node now: {explanation.would_wait}", "yellow"))
    if explanation.would_fit is None and explanation.preemption is None:
        return
    if explanation.preemption is not None:
        _print_preemption(explanation.preemption, to)
    _print_suggestions(explanation.would_fit or (), to)


def _would_get(explanation: PodExplanation | RecomputedExplanation) -> str:
    """The node, or the nodes among which it is drawn."""
    names, tied = explanation.tied_nodes, explanation.tied
    if not names or tied is None:
        return f"It would get {explanation.would_get_node}"
    shown = ", ".join(names[:_MOST_TIED])
    more = f" and {tied - _MOST_TIED:,} more" if tied > _MOST_TIED else ""
    return f"It would get one of {tied:,} equal nodes ({shown}{more})"


def _print_devices(explanation: PodExplanation | RecomputedExplanation, to: Printer) -> None:
    for report in (explanation.devices, explanation.gpus):
        for line in report.lines() if report is not None else ():
            to.say(line)
    for plugin, facts in (explanation.plugins or {}).items():
        for line in facts.lines:
            to.say(f"{plugin}: {line}")
    for each in explanation.left_out or ():
        to.say((f"Left out is {each.plugin}: {each.reason}", "yellow"))
    if isinstance(explanation, RecomputedExplanation) and explanation.stopped:
        to.say((explanation.stopped, "yellow"))


def _print_preemption(preemption: PreemptionNow, to: Printer) -> None:
    if preemption.victims is not None:
        victims = _victims(preemption.victims)
        to.say(f"Preemption would evict {victims} on {preemption.node}.")
    if preemption.would_do is not None:
        to.say(f"{preemption.would_do}.")


def _print_suggestions(suggestions: Sequence[Suggestion], to: Printer) -> None:
    if not suggestions:
        to.say("No change that was tried would make it fit.")
        return
    to.say()
    to.say(("What would make it fit", "bold"), ", each tried:")
    for suggestion in suggestions:
        to.say(" ", ("•", "green"), f" {suggestion.text}")


def print_what_if(answer: WhatIf, to: Printer) -> None:
    """Pods with their nodes, and pods without one with the reason."""
    _print_drains(answer, to)
    if answer.placed:
        table = Table(box=None, pad_edge=False, header_style="bold")
        table.add_column("POD", overflow="fold")
        table.add_column("NODE", overflow="fold")
        for placed in answer.placed:
            tie = f" (or {placed.tied - 1:,} equal)" if placed.tied else ""
            table.add_row(plain(placed.pod), plain((placed.node, "green")) + plain(tie))
        to.print(table)
    for each in answer.unplaced:
        to.say((each.pod, "red"), f" gets no node: {each.message}")
        if each.would_preempt is not None and answer.explanation is None:
            victims = ", ".join(each.would_preempt.victims)
            to.say(f"  it would preempt {victims} on {each.would_preempt.node}")
    if answer.left_out:
        why = f": {answer.stopped}" if answer.stopped else ""
        more = counted(answer.left_out, "more pod")
        to.say((f"{more} not looked at{why}", "yellow"))
    elif not (answer.placed or answer.unplaced or answer.lost or answer.staying):
        to.say("No pod waits." if answer.drained is None else "No pod has to move.")
    if answer.explanation is not None and answer.unplaced:
        held_back = any(each.held_back for each in answer.unplaced)
        _print_verdicts(answer.explanation, to, held_back=held_back)
    else:
        for left in answer.not_asked or ():
            to.say((f"Left out is {left.plugin}: {left.reason}", "yellow"))
    _print_releases(answer.compatibility, to)


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
        to.say((pod, "red"), " is lost: it has no controller that makes it anew")
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
        more = f" and {len(pods) - _EXAMPLES:,} more" if len(pods) > _EXAMPLES else ""
        ends = "ends" if len(pods) == 1 else "end"
        after = f" after {seconds} s" if seconds else ""
        anew = ", and is made anew" if len(pods) == 1 else ", and are made anew"
        named = f"{', '.join(pods[:_EXAMPLES])}{more}"
        head = f"{counted(len(pods), 'pod')} ({named}) {ends}{after}"
        to.say(f"{head}{anew if made_anew else ''}: {reason}")


# --- a node and a workload ----------------------------------------------------------------------


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
        more = f" and {len(fitting) - _MOST_NAMES:,} more" if len(fitting) > _MOST_NAMES else ""
        named = ", ".join(fitting[:_MOST_NAMES])
        to.say((f"Of the pods that wait, each seen alone, would fit: {named}{more}", "green"))
    elif explanation.turned_away:
        to.say("None of the pods that wait would fit there.")
    else:
        to.say("No pod waits.")
    if explanation.turned_away:
        to.print(_turned_away(explanation.turned_away))
    if explanation.left_out is not None:
        why = f": {explanation.stopped}" if explanation.stopped else ""
        more = counted(explanation.left_out, "more pod")
        to.say((f"{more} not looked at{why}", "yellow"))
    _print_releases(explanation.compatibility, to)


def _turned_away(rows: Iterable[PodsTurnedAway]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("PODS", justify="right")
    for title in ("PLUGIN", "WHY", "FOR EXAMPLE"):
        table.add_column(title, overflow="fold")
    for each in rows:
        examples = ", ".join(each.pods[:_EXAMPLES])
        row = (f"{each.count}", each.plugin, ", ".join(each.reasons), examples)
        table.add_row(*map(plain, row))
    return table


def print_device(explanation: DeviceExplanation, to: Printer) -> None:
    """A device: what it is, who has it, and the nodes that it is for."""
    device = explanation.device
    state = "held" if device.claims else "free"
    shared = ", shared by claims" if explanation.shared else ""
    to.say((f"device/{device.device}", "bold"), f": {state}{shared}")
    more = explanation.on_nodes - len(explanation.nodes)
    nodes = ", ".join(explanation.nodes) or "none that is here"
    to.say(f"Nodes: {nodes}{f' and {more:,} more' * (more > 0)}")
    for name, values in (("Capacity", device.capacity), ("Attributes", device.attributes)):
        if values:
            to.say(f"{name}: {', '.join(f'{key}={it}' for key, it in values.items())}")
    for taint in device.taints:
        to.say(f"Taint: {taint.key}={taint.value}:{taint.effect}")
    for each in explanation.counters:
        to.say(
            f"Counter {each.counter_set}/{each.counter}: it takes {each.takes}, "
            f"{each.free} of {each.offered} is free"
        )
    for holder in explanation.holders:
        part = ", ".join(f"{key}={amount}" for key, amount in holder.consumed.items())
        words = [f"Held by {holder.claim} (request {holder.request})"]
        words += [f"takes {part}"] * bool(part) + ["only looks at it"] * holder.only_looks
        words += [f"for {', '.join(holder.pods)}"] * bool(holder.pods)
        to.say(", ".join(words))


def print_claim(explanation: ClaimExplanation, to: Printer) -> None:
    """A resource claim: what it asks for, what it has, and whose it is."""
    to.say((f"resourceclaim/{explanation.claim}", "bold"), f": {explanation.state}")
    if explanation.problem is not None:
        to.say((f"Its requests cannot be read: {explanation.problem}", "red"))
    for each in explanation.requests:
        count = "all" if each.count == "All" else f"{each.count}"
        where = "".join(f", where {selector}" for selector in each.selectors)
        to.say(f"Request {each.request}: {count} of class {each.device_class}{where}")
    for title, names in (
        ("Devices", explanation.devices),
        ("Reserved for", explanation.reserved_for),
        ("Waiting for it", explanation.waiting),
    ):
        to.say(f"{title}: {', '.join(names) or 'none'}")


def print_workload(explanation: WorkloadExplanation, to: Printer) -> None:
    """A controller's pods, those that wait by reason."""
    of = f"{explanation.with_node} of {counted(explanation.pods, 'pod')} on nodes"
    to.say((explanation.workload, "bold"), f" in {explanation.namespace}: {of}")
    for each in explanation.waiting:
        more = f" and {len(each.pods) - _EXAMPLES:,} more" if len(each.pods) > _EXAMPLES else ""
        named = f"{', '.join(each.pods[:_EXAMPLES])}{more}"
        to.say()
        to.say((f"{counted(len(each.pods), 'pod')} ({named}): {each.reason}", "yellow"))
        if each.explanation is not None:
            _print_explanation(each.explanation, to)
    if not explanation.pods:
        to.say("It has no pods.")
    explained = (each.explanation for each in explanation.waiting)
    _print_releases((r for each in explained if each is not None for r in _releases(each)), to)


# --- a group ------------------------------------------------------------------------------------


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
        to.say(f"would fit with {nodes} like {each.like}, beside the free room that there is")
    _print_releases([explanation.compatibility], to)


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
        yield f"pods are given back {after} s after too few could be bound"


def _outcome(would: GroupForecast) -> Iterator[str]:
    if would.message:
        yield f"now: {would.message}"
    if would.missing:
        yield f"  {would.missing}"
    if would.placed:
        yield f"now: it would be placed on {would.placement}"
    if would.victims:
        yield f"  by evicting {', '.join(would.victims)}"
    if would.room_is_kept_on:
        yield f"  with room kept on {', '.join(would.room_is_kept_on)}"


def _print_members(explanation: GroupExplanation, would: GroupForecast | None, to: Printer) -> None:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("POD", "NODE", "QUEUE", "WHY NOT"):
        table.add_column(title, overflow="fold")
    reasons = (would.reasons if would is not None else None) or {}
    nodes = would.nodes if would is not None else {}
    for each in explanation.members:
        now = f"would get {nodes[each.pod]}" if each.pod in nodes else ""
        why_not = reasons.get(each.pod) or now or each.message or ""
        table.add_row(*map(plain, (each.pod, each.node, each.queue or "", why_not)))
    to.print(table)


# --- a benchmark --------------------------------------------------------------------------------


def print_bench(answer: BenchAnswer, to: Printer) -> None:
    """A row for each workload and scheduler, under what was measured."""
    head, *rows = bench_lines(answer)
    to.say(bench_headline(answer))
    table = Table(box=None, pad_edge=False)
    for number, title in enumerate(head):
        table.add_column(title, overflow="fold", justify="left" if number < _NAMES else "right")
    for row in rows:
        table.add_row(*map(plain, row))
    to.print(table)


def bench_headline(answer: BenchAnswer) -> str:
    """Scope of the measurement, in a line."""
    where = "the embedded cluster" if answer.embedded else f"Kubernetes {answer.server_version}"
    how = "at once" if answer.rate is None else f"{answer.rate} a second"
    return f"{answer.nodes} nodes of {where}; the pods of a workload are created {how}"


def bench_lines(answer: BenchAnswer) -> list[list[str]]:
    """Titles, and a row for each run; a second scheduler is compared with the first."""
    costs = any(each.cpu_milliseconds_per_pod is not None for each in answer.runs)
    several = len({each.scheduler for each in answer.runs}) > 1
    head = ["WORKLOAD", "SCHEDULER", "BOUND", "PODS/S", "P50 ms", "P99 ms"]
    head += ["CPU ms/POD", "MiB"] if costs else []
    lines = [[*head, "OF THE FIRST"] if several else head]
    first: dict[str, float] = {}
    for each in answer.runs:
        bound = f"{each.bound}" if each.bound == each.pods else f"{each.bound} of {each.pods}"
        row = [each.workload, each.scheduler, bound]
        row += map(_amount, (each.pods_per_second, each.p50_milliseconds, each.p99_milliseconds))
        row += map(_amount, (each.cpu_milliseconds_per_pod, each.peak_mib)) if costs else []
        if several:
            speed = each.pods_per_second
            of = first.setdefault(each.workload, speed) if speed else None
            row.append(f"{speed / of:.2f}" if speed and of else "")
        lines.append(row)
    return lines


def _amount(number: float | None) -> str:
    return "" if number is None else f"{number:,.1f}" if number < 10 else f"{number:,.0f}"  # noqa: PLR2004 one digit


@contextmanager
def progress(steps: int) -> Iterator[Callable[[str, int, int], None]]:
    """Yield what moves a bar on the terminal, one for each step; elsewhere nothing is shown."""
    if not sys.stderr.isatty():
        yield lambda _what, _done, _of: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn  # noqa: PLC0415

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=console(sys.stderr), transient=True) as bars:
        whole = bars.add_task("workloads", total=steps)
        step = bars.add_task("")
        begun: list[str] = []

        def move(what: str, done: int, of: int) -> None:
            if what not in begun:
                begun.append(what)
                bars.update(whole, completed=max(0, len(begun) - 2))
            bars.update(step, description=printable(what), completed=done, total=of)

        yield move


# --- the outcomes of a replay -------------------------------------------------------------------


def print_outcomes(rows: Iterable[Sequence[str]], to: Printer) -> None:
    """A line for each profile: how the pods fared under it."""
    table = Table(box=None, pad_edge=False)
    table.add_column("PROFILE")
    for title in ("PLACED", "OF", "WAITED P50", "P99", "NODES", "AT MOST", "PREEMPTED"):
        table.add_column(title, justify="right")
    for row in rows:
        table.add_row(*map(plain, row))
    to.print(table)


# --- a shadow -----------------------------------------------------------------------------------


def print_shadow(answer: ShadowDiff, to: Printer) -> None:
    """The counts of a shadow, and the newest differences."""
    found = "no decision was compared yet"
    if answer.compared:
        found = (
            f"{answer.differing} of {answer.compared} decisions differ; its own nodes score "
            f"{answer.mean_gain} more on the average"
        )
    to.say(f"{answer.profile} decides beside {answer.shadow_of}: {found}")
    left_out = [
        f"{number} {what}"
        for number, what in ((answer.skipped, "skipped"), (answer.failed, "failed"))
        if number
    ]
    if left_out:
        to.say(f"of {answer.decisions} decisions, {' and '.join(left_out)}")
    if answer.groups:
        to.say(f"{answer.groups} of the compared decisions are on groups of pods")
    if not answer.differences:
        return
    table = Table(box=None, pad_edge=False)
    for title in ("POD", "NODE", "SHADOW'S"):
        table.add_column(title, overflow="fold")
    for title in ("SCORE", "SHADOW'S"):
        table.add_column(title, justify="right")
    table.add_column("MADE BY", overflow="fold")
    for each in answer.differences[:_MOST_DIFFERENCES]:
        why = ": ".join(filter(None, (each.plugin, each.reason)))
        row = (each.pod, each.node or "none", each.shadow_node or "none")
        scores = ("" if total is None else f"{total}" for total in (each.total, each.shadow_total))
        table.add_row(*map(plain, (*row, *scores, why)))
    to.print(table)


# --- lists --------------------------------------------------------------------------------------


MOST_ROWS: Final = 500
"""Of a list, in a table."""
_MAX_UNSERVED_REASONS: Final = 10
"""Reasons why pods are unserved that are printed below the queue; there is one for each name."""


def print_queue(answer: QueuePage, to: Printer) -> None:
    """Pods that wait, as `kubectl get` lists them."""
    rows = (
        (
            each.pod,
            each.queue,
            _age(each.since),
            f"{each.priority}",
            f"{each.attempts}",
            ", ".join(each.rejected_by or ()) or each.error or "",
        )
        for each in answer.items
    )
    unserved = answer.unserved or ()
    lost = ((each.pod, "unserved", "", f"{each.priority}", "", "") for each in unserved)
    titles = ("POD", "QUEUE", "FOR", "PRIORITY", "ATTEMPTS", "REJECTED BY")
    total = answer.total + (answer.unserved_total or 0)
    _print_list("No pod waits.", titles, chain(rows, lost), total, to)
    reasons = Counter(each.reason for each in unserved)
    for reason, count in reasons.most_common(_MAX_UNSERVED_REASONS):
        to.say((f"{counted(count, 'pod')} unserved: {reason}", "yellow"))
    if unserved:
        served = ", ".join(answer.served or ()) or "none"
        to.say((f"schedulerNames that are served: {served}", "yellow"))


def print_decisions(answer: DecisionsPage, to: Printer) -> None:
    """Pods that got a node, the last one first."""
    rows = (
        (
            each.pod,
            each.node,
            _age(each.decided_at),
            f"{each.feasible}/{each.nodes}",
            "" if each.tied < _TIE else f"{each.tied}",
            f"{each.attempts}",
        )
        for each in answer.items
    )
    titles = ("POD", "NODE", "AGE", "FEASIBLE", "TIED", "ATTEMPTS")
    _print_list("No pod has got a node yet.", titles, rows, answer.total, to)


def print_nodes(answer: NodesPage, to: Printer) -> None:
    """Nodes with what is requested of what they offer."""

    def used(node: NodeFields, resource: str, unit: int) -> str:
        amounts = (node.requested.get(resource, 0), node.allocatable.get(resource, 0))
        return "/".join(f"{amount / unit:.4g}" for amount in amounts)

    rows = (
        (
            each.name,
            used(each, "cpu", 1000),
            used(each, "memory", 1 << 30),
            used(each, "pods", 1),
            ", ".join(
                f"{taint.key}{'=' * bool(taint.value)}{taint.value}:{taint.effect}"
                for taint in each.taints
            ),
        )
        for each in answer.items
    )
    titles = ("NODE", "CPU", "MEMORY GiB", "PODS", "TAINTS")
    _print_list("There is no node.", titles, rows, answer.total, to)


def print_devices(answer: DevicesPage, to: Printer) -> None:
    """Devices, and the claims that hold them."""
    rows = (
        (
            each.device,
            each.node or "several",
            ", ".join(each.claims),
            ", ".join(f"{key}={value}" for key, value in each.attributes.items()),
        )
        for each in answer.items
    )
    titles = ("DEVICE", "NODE", "HELD BY", "ATTRIBUTES")
    _print_list("There is no device.", titles, rows, answer.total, to)


def _print_list(
    none: str, titles: Sequence[str], rows: Iterable[tuple[str, ...]], total: int, to: Printer
) -> None:
    listed = list(islice(rows, MOST_ROWS))
    if not listed:
        to.say(none)
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in titles:
        table.add_column(title, overflow="fold", no_wrap=title != titles[-1])
    for row in listed:
        table.add_row(*map(plain, row))
    to.print(table)
    if total > len(listed):
        to.say(f"{total - len(listed)} more: -o json has all")


def _age(moment: str, *, ahead: bool = False) -> str:
    """The time since then, or until then, as kubectl writes ages."""
    try:
        seconds = (SystemClock().now() - parse_moment(moment)).total_seconds()
    except ValueError:
        return moment
    return duration_text(max(0.0, -seconds if ahead else seconds))


def _ago(moment: str) -> str:
    age = _age(moment)
    return age if age == moment else f"{age} ago"


def counted(number: int, noun: str) -> str:
    """A number of things, in the plural where it is not 1."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _either(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"


# --- the history of a profile -------------------------------------------------------------------


def print_history(history: ProfileHistory, to: Printer) -> None:
    """Each accepted spec, newest first, with what differs from the one before."""
    revisions, name = history.revisions, history.profile
    if not revisions:
        to.say(f"SchedulerProfile {name} has no history here; -n names the operator's namespace")
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("REVISION", "GENERATION"):
        table.add_column(title, justify="right")
    for title in ("ACCEPTED", "REPLACED"):
        table.add_column(title, no_wrap=True)
    table.add_column("PODS", justify="right")
    table.add_column("CHANGED", overflow="fold")
    before = [each.spec for each in revisions[1:]] + [None]
    for each, former in zip(revisions, before, strict=True):
        cells = (
            f"{each.revision}",
            f"{each.generation or ''}",
            _ago(each.accepted_at),
            _ago(each.replaced_at)
            if each.replaced_at
            else ("" if each is not revisions[0] else "in use"),
            f"{each.scheduled_pods}",
            _changed(former, each.spec),
        )
        table.add_row(*map(plain, cells))
    to.print(table)


def _changed(before: Mapping[str, Any] | None, after: Mapping[str, Any] | None) -> str:
    """The fields of the spec that differ."""
    if after is None:
        return "not kept: too large, or no spec"
    if before is None:
        return ""
    names = [name for name in {*before, *after} if before.get(name) != after.get(name)]
    return ", ".join(sorted(names))[:200]


# --- a dump -------------------------------------------------------------------------------------


def print_dump(dump: CacheDump, to: Printer) -> None:
    """The comparison with the names that differ, then the lines of the operator."""
    to.say(f"{dump.comparison} ({_ago(dump.compared_at)})")
    for each in dump.differences:
        more = each.count - len(each.names)
        others = f" and {more:,} more" if more else ""
        to.say((f"{each.kind}: {', '.join(each.names)}{others}", "yellow"))
    for line in dump.items:
        to.print(plain(line), soft_wrap=True)
    if dump.stopped is not None:
        to.say((dump.stopped, "yellow"))


# --- a diagnosis --------------------------------------------------------------------------------

_DIAGNOSIS_COLUMNS: Final = 80
"""Columns of a diagnosis: it is read in mails and issues, where wider lines break anywhere."""
_STATE_STYLES: Final[Mapping[State, str]] = {
    "ok": "green",
    "warning": "yellow",
    "failed": "bold red",
    "unknown": "cyan",
}
_STATE_WIDTH: Final = max(map(len, _STATE_STYLES))


def print_diagnosis(diagnosis: DoctorReport, to: Printer) -> None:
    """A line for each finding: state, check, what was found; below it what to do, and quotations.

    In the wide form no line is broken.
    """
    is_wide = getattr(to, "is_wide", False)
    width = _UNBROKEN if is_wide else min(to.width, _DIAGNOSIS_COLUMNS)
    indent = " " * (_STATE_WIDTH + 2)
    for each in diagnosis.items:
        first = f"{each.state:<{_STATE_WIDTH}}  {each.check}: {each.what}"
        lines = textwrap.wrap(printable(first), width, subsequent_indent=indent)
        to.print(Text(lines[0][:_STATE_WIDTH], _STATE_STYLES[each.state]), end="", soft_wrap=True)
        to.print(Text("\n".join([lines[0][_STATE_WIDTH:], *lines[1:]])), soft_wrap=True)
        below = [f"> {each.remedy}"] if each.remedy and each.state != "ok" else []
        quoted = [f"| {text}" for text in each.quoted]
        for text in (*below, *quoted):
            lines = textwrap.wrap(
                printable(text),
                width,
                initial_indent=indent,
                subsequent_indent=f"{indent}  ",
                break_on_hyphens=False,
            )
            to.print(Text("\n".join(lines), "dim" if text in quoted else ""), soft_wrap=True)
    counts = Counter(each.state for each in diagnosis.items)
    to.say(", ".join(f"{counts[state]} {state}" for state in _STATE_STYLES))


WATCH_SECONDS: Final = 2.0

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Shown(Generic[Kind]):
    """A kind of answer, the table of it, and the names in it."""

    kind: type[Kind]
    table: Callable[[Kind, Printer], None]
    names: Callable[[Kind], Iterable[str]]
    """Of pods as NAMESPACE/NAME, of others as KIND/NAME: each is an argument for commands."""


LISTS: Final[Mapping[str, Shown[Any]]] = {
    "/queue": Shown(QueuePage, print_queue, lambda page: (each.pod for each in page.items)),
    "/decisions": Shown(
        DecisionsPage, print_decisions, lambda page: (each.pod for each in page.items)
    ),
    "/nodes": Shown(
        NodesPage, print_nodes, lambda page: (f"node/{each.name}" for each in page.items)
    ),
    "/explain/devices": Shown(
        DevicesPage, print_devices, lambda page: (f"device/{each.device}" for each in page.items)
    ),
}
POD: Final = Shown(PodExplanation, print_explanation, lambda pod: [pod.pod])
GROUP: Final = Shown(GroupExplanation, print_group, lambda group: [f"podgroup/{group.pod_group}"])
WHAT_IF: Final = Shown(
    WhatIf,
    print_what_if,
    lambda answer: [
        *(each.pod for each in answer.placed),
        *(each.pod for each in answer.unplaced),
    ],
)
DEVICE: Final = Shown(DeviceExplanation, print_device, lambda it: [f"device/{it.device.device}"])
CLAIM: Final = Shown(ClaimExplanation, print_claim, lambda claim: [f"resourceclaim/{claim.claim}"])
DUMP: Final = Shown(
    CacheDump,
    print_dump,
    lambda dump: [name for each in dump.differences for name in each.names],
)
DIAGNOSIS: Final = Shown(
    DoctorReport,
    print_diagnosis,
    lambda diagnosis: (each.check for each in diagnosis.items if each.state != "ok"),
)
NODE: Final = Shown(NodeExplanation, print_node, lambda answer: answer.fitting)
WORKLOAD: Final = Shown(
    WorkloadExplanation,
    print_workload,
    lambda answer: (pod for each in answer.waiting for pod in each.pods),
)
SHADOW: Final = Shown(
    ShadowDiff, print_shadow, lambda answer: (each.pod for each in answer.differences)
)
HISTORY: Final = Shown(
    ProfileHistory, print_history, lambda answer: [f"schedulerprofile/{answer.profile}"]
)


async def show(
    ask: Callable[[], Awaitable[Json]], form: str, shown: Shown[Kind], *, watch: bool = False
) -> Json:
    """Print an answer, and return it; with `watch`, again whenever it has changed.

    Raises:
        MalformedAnswer: it is another kind of answer than is shown.
    """
    before: Json | None = None
    while True:
        with waiting_for("waiting for the answer"):
            answer = await ask()
        codec(shown.kind).read(answer)  # what follows takes its fields, in every form
        if _without_times(answer) != before:
            show_written(answer, form, shown)
        if not watch:
            return answer
        before = _without_times(answer)
        await asyncio.sleep(WATCH_SECONDS)


_RUNNING: Final = frozenset({"recomputedAt", "roomIsKeptSeconds"})
"""Fields that are different in each answer, however deep they lie: a clock runs in them."""


def _without_times(answer: Any) -> Any:  # noqa: ANN401 any JSON
    """The answer without the running time in it; whether a clock runs is kept."""
    if isinstance(answer, Mapping):
        return {
            name: value is None if name in _RUNNING else _without_times(value)
            for name, value in answer.items()
        }
    return [_without_times(each) for each in answer] if isinstance(answer, list) else answer


def show_written(answer: Json, form: str, shown: Shown[Kind]) -> None:
    """Print an answer that is there, as JSON of the operator."""
    if form in {"table", "wide"}:
        to = console()
        to.is_wide = form == "wide"
        shown.table(codec(shown.kind).read(answer), to)
    elif form == "name":
        for name in dict.fromkeys(shown.names(codec(shown.kind).read(answer))):
            sys.stdout.write(f"{printable(name)}\n")
    else:
        write_for_programs(answer, form, shown.kind.__name__)
    sys.stdout.flush()


def show_answer(answer: PortAnswer, form: str, names: Iterable[str] = ()) -> None:
    """Print an answer of another part than the operator, for programs."""
    if form == "name":
        for name in names:
            sys.stdout.write(f"{printable(name)}\n")
    else:
        kind = type(answer)
        write_for_programs(codec(kind).as_json(answer), form, kind.__name__)
    sys.stdout.flush()


API_VERSION: Final = "answers.stellwerk.dev/v1"
"""Of the answers of commands; docs/answers.json has their schemas."""


def write_for_programs(answer: Json, form: str, kind: str) -> None:
    """Write an answer with its kind, as `json` or `yaml`; controls in it are escaped."""
    whole = {"apiVersion": API_VERSION, "kind": kind, **answer}
    if form == "json":
        text = orjson.dumps(whole, option=orjson.OPT_INDENT_2).decode()
        sys.stdout.write(json_escaped(text) + "\n")
        return
    text = yaml.safe_dump(whole, sort_keys=False, allow_unicode=True)
    if printable_lines(text) != text:  # then escapes say the same
        text = yaml.safe_dump(whole, sort_keys=False)
    sys.stdout.write(text)
