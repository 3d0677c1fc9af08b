"""The table of a pod's explanation: where it is and why, what it waits for, what would help.

`explain`, `simulate --until` and `what-if` print it. Invariant: texts of objects and plugins are
printed as they are; where the terminal is too narrow, points take the place of their steps.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from stellwerk.answers.observed import ObservedComparison
from stellwerk.answers.pod import (
    DecisionFields,
    LastPreemption,
    PlacementNow,
    PodExplanation,
    PreemptedBy,
    PreemptionNow,
    QueueFacts,
    RankedNode,
    RecomputedExplanation,
    ScoreFields,
    VictimFields,
)
from stellwerk.answers.suggestion import Suggestion
from stellwerk.answers.words import age, ago, counted, latency
from stellwerk.models.troubleshooting import address, entry_of
from stellwerk_cli.commands.output import Shown
from stellwerk_cli.commands.printer import Cell, Column, Part, Printer, linked
from stellwerk_kube.compatibility import decided_as
from stellwerk_kube.untrusted_text import printable

_MAX_RANKED_NODES: Final = 10
"""The best nodes that are shown with their scores. The JSON has all that the operator keeps."""
_MIN_TIED: Final = 2
"""Nodes with the best total that make a tie."""
_MAX_TIED_NAMES: Final = 5
"""Equal nodes that are named. The number of the others follows."""
_MAX_NAMES: Final = 20
"""Served schedulerNames that are named."""
_WORD: Final = re.compile(r"[A-Z]+[a-z0-9]*|[^A-Z]+")
"""A word of a plugin's name."""


def print_explanation(explanation: PodExplanation, to: Printer) -> None:
    """One pod's explanation."""
    print_pod(explanation, to)
    print_releases(releases_of(explanation), to)


def releases_of(explanation: PodExplanation) -> list[str | None]:
    """The releases that the pod's decision followed, and that its verdicts follow."""
    parts = (explanation.decision, explanation.verdicts)
    return [each.compatibility for each in parts if each is not None]


def print_releases(releases: Iterable[str | None], to: Printer) -> None:
    """The last line of a table: the releases in the words of every other answer."""
    known = [each for each in releases if each]
    if known:
        to.say((decided_as(known), "dim"))


def print_pod(explanation: PodExplanation, to: Printer) -> None:
    """Print the explanation without its last line, which a workload has once for all its pods."""
    to.say(*_headline(explanation))
    if explanation.observing is not None:
        _print_observed(explanation.observing, explanation.comparison, to)
    if explanation.preempted is not None:
        _print_preempted(explanation.preempted, to)
    for text in (*_binding(explanation), explanation.note, explanation.reason):
        if text is not None:
            to.say(text)
    if explanation.nearest is not None:
        to.say("Nearest name: ", (explanation.nearest, "bold"))
    if explanation.served:
        to.say(f"Served schedulerNames: {', '.join(explanation.served[:_MAX_NAMES])}")
    # Right above what came of it: the decision that followed, or the pod's place in the queue.
    if explanation.last_preemption is not None:
        _print_last_preemption(explanation.last_preemption, to)
    if explanation.decision is not None:
        _print_decision(explanation.decision, explanation.node or "", to)
    _print_as_read(explanation, to)
    _print_queue(explanation, to)
    if explanation.verdicts is None:
        _print_devices(explanation, to)
    else:
        gated = explanation.queue is not None and explanation.queue.gated_by is not None
        print_verdicts(explanation, to, held_back=gated)


def _binding(explanation: PodExplanation) -> Iterator[str]:
    """The stage of the pod's binding; nothing where it is not being bound."""
    if explanation.binding is not None:
        yield from explanation.binding.lines()
        yield f"It got there {ago(explanation.binding.since)}."


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


def _print_observed(scheduler: str, compared: ObservedComparison | None, to: Printer) -> None:
    """Print that nothing is written, and the other scheduler's binding beside our decision."""
    to.say((f"observing {scheduler}: nothing is written", "yellow"))
    if compared is None:
        return
    after = compared.scheduled_after_seconds
    took = "" if after is None else f", {latency(after)} after the pod could be scheduled"
    to.say(f"{scheduler} bound it to {compared.node} {ago(compared.at)}{took}.")
    to.say("Compared with our decision on the state before: ", (compared.sentence(), "bold"), ".")


def _print_preempted(victim: PreemptedBy, to: Printer) -> None:
    text = (
        f"Preempted {ago(victim.decided_at)} on {victim.node} by {victim.by}, which has "
        f"priority {victim.by_priority}; its own is {victim.priority}."
    )
    to.say((text, "red"))
    _print_decided_by(victim.decided_by, to)


def _print_decided_by(decided_by: str | None, to: Printer) -> None:
    """Print what decided for victims against kube-scheduler's order, if anything did."""
    if decided_by is not None:
        to.say(f"Chosen against kube-scheduler's order: {decided_by}.")


def _print_last_preemption(last: LastPreemption, to: Printer) -> None:
    to.say(
        f"It preempted {_victims(last.victims)} on {last.node} {ago(last.decided_at)}, one of "
        f"{counted(last.candidates, 'candidate')}, with "
        f"{counted(last.budget_violations, 'violation')} of disruption budgets."
    )
    _print_decided_by(last.decided_by, to)
    if last.nominated_node != last.node:
        to.say(f"It is nominated to {last.nominated_node or 'no node'} now.")
    for each in last.took_place or ():
        got = "got" if each.bound else "was nominated to"
        text = f"{each.pod}, of priority {each.priority}, {got} that node {ago(each.decided_at)}."
        to.say(text)


def _victims(victims: Iterable[VictimFields]) -> str:
    return ", ".join(f"{each.pod} ({each.priority})" for each in victims)


def _print_decision(decision: DecisionFields, chosen: str, to: Printer) -> None:
    tie = "no tie" if decision.tied < 2 else f"a tie of {decision.tied}"  # noqa: PLR2004 two
    if decision.nominated:
        # Counts of feasible nodes would mislead here: one node was asked.
        to.say(
            f"Decided {ago(decision.decided_at)}, attempt {decision.attempts}: it got "
            f"{chosen or 'its node'}, the node of its nomination. Other nodes are tried only if "
            "the nominated one rejects the pod."
        )
        return
    to.say(
        f"Decided {ago(decision.decided_at)}: {decision.feasible} of "
        f"{counted(decision.nodes, 'node')} feasible, {tie}, attempt {decision.attempts}."
    )
    for remark in decision.remarks or ():
        to.say(f"{remark}.")
    best = decision.best[:_MAX_RANKED_NODES]
    if best:
        _print_scores(best, decision.tied, chosen, to)
    else:
        to.say("Only one node was feasible, so nothing was scored.")
    if decision.others is not None:
        others = decision.others
        to.say(f"Why the others were not feasible, counted {ago(others.counted_at)}:")
        _print_reasons(((each.plugin, each.nodes, each.reasons, ()) for each in others.reasons), to)


def _print_as_read(explanation: PodExplanation, to: Printer) -> None:
    """The parts that only the answer of a cluster that is read has."""
    if explanation.placement_now is not None:
        _print_placement(explanation.placement_now, explanation.node or "", to)
    if explanation.scheduler_said is not None:
        to.say(f"Its scheduler said: {explanation.scheduler_said}")


def _print_placement(now: PlacementNow, own: str, to: Printer) -> None:
    """Print the nodes for a bound pod if it came now, its own node in green."""
    tie = "no tie" if now.tied < _MIN_TIED else f"a tie of {now.tied}"
    to.say(
        f"If it came now: {now.feasible} of {counted(now.nodes, 'node')} feasible, {tie}; it would "
        f"get {now.node}."
    )
    if now.best:
        _print_scores(now.best, now.tied, own, to)
    else:
        to.say("There is one feasible node, and nothing to score.")


def _print_scores(best: Sequence[RankedNode], tied: int, chosen: str, to: Printer) -> None:
    """The best nodes with their points, the steps to these where the terminal is wide enough."""
    plugins = list(best[0].scores)

    def rows(points: Callable[[ScoreFields], str]) -> Iterator[list[Cell]]:
        for node in best:
            scores = (points(node.scores[plugin]) for plugin in plugins)
            style = "bold green" if node.node == chosen else ""
            cells = (f"{node.rank}", node.node, f"{node.total}", *scores)
            yield [(cell, style) for cell in cells]

    steps = _score_columns((plugin,) for plugin in plugins)
    if to.is_wide or to.has_room_for(steps, rows(_score_steps)):
        to.table(steps, rows(_score_steps))
        to.say(("raw → normalised × weight = weighted", "dim"))
    else:
        to.table(_score_columns(map(_words, plugins)), rows(_score_points))
        to.say(("weighted points; -o wide shows how they are computed", "dim"))
    total = best[0].total
    left = tied - sum(node.total == total for node in best)
    if left > 0 and tied >= _MIN_TIED:
        to.say(f"{left:,} more with {total}")


def _score_columns(plugins: Iterable[Sequence[str]]) -> list[Column]:
    """Columns of scores; the name of each plugin may stand in several lines."""
    return [
        Column("#", is_number=True),
        Column("NODE", folds=True),
        Column("TOTAL", is_number=True),
        *(Column(lines, is_number=True, folds=True) for lines in plugins),
    ]


def _words(plugin: str) -> list[str]:
    """The name of a plugin, a word in each line."""
    shown = printable(plugin)
    return _WORD.findall(shown) or [shown]


def _score_points(score: ScoreFields) -> str:
    return f"{score.weighted}"


def _score_steps(score: ScoreFields) -> str:
    weight = score.weighted // score.normalized if score.normalized else 1
    if weight == 1 and score.raw == score.normalized:
        return f"{score.weighted}"
    return f"{score.raw} → {score.normalized}×{weight}={score.weighted}"


def _print_reasons(
    rows: Iterable[tuple[str, int, Sequence[str], Sequence[str]]], to: Printer
) -> None:
    """Print (plugin, nodes, reasons, examples) in a table; without examples a column less."""
    listed = list(rows)
    columns = [
        Column("NODES", is_number=True),
        Column("PLUGIN"),
        Column("WHY", folds=True),
    ]
    if any(examples for *_, examples in listed):
        columns.append(Column("FOR EXAMPLE", folds=True))
    table = list[list[Cell]]()
    for plugin, nodes, reasons, examples in listed:
        helped = list[Part]()
        for reason in reasons:
            helped += [", ", _helped(reason, plugin)] if helped else [_helped(reason, plugin)]
        cells: list[Cell] = [f"{nodes}", plugin, helped, (", ".join(examples), "dim")]
        table.append(cells[: len(columns)])
    to.table(columns, table)


def _helped(reason: str, plugin: str) -> Part:
    """A plugin's reason; a terminal that knows links leads from it to what to do."""
    entry = entry_of(reason, plugin)
    return reason if entry is None else linked(reason, address(entry))


def _print_queue(explanation: PodExplanation, to: Printer) -> None:
    queue, last = explanation.queue, explanation.last_attempt
    if queue is None:
        return
    observing = explanation.observing
    if observing is not None:
        # Queues and attempts are ours; the pod waits in those of the other scheduler.
        to.say(f"It waits for {observing}. Decided here {ago(queue.since)}.")
    else:
        _print_place(queue, to)
    if queue.gated_by is not None:
        to.say((f"Held back by {queue.gated_by}.", "yellow"))
    if last is not None:
        message = f": {last.message}" if last.message else ""
        to.say(f"Last attempt ended {ago(last.ended_at)}{message}")
    events = dict.fromkeys(each.words for each in queue.woken_by or () if each.words)
    if events:
        act = "tried" if observing is None else "decided"
        to.say(f"It is {act} again when ", (_either(list(events)), "cyan"), ".")


def _print_place(queue: QueueFacts, to: Printer) -> None:
    """Print the queue that a pod waits in, and its place there."""
    place = f"In {queue.queue} for {age(queue.since)}"
    if queue.position is not None:
        place += f", {counted(queue.position, 'pod')} before it"
    place += f"; {counted(queue.attempts, 'attempt')}"
    if queue.next_retry is not None:
        place += f", next in {age(queue.next_retry, ahead=True)} at the latest"
    to.say(f"{place}.")


def print_verdicts(
    explanation: PodExplanation | RecomputedExplanation, to: Printer, *, held_back: bool = False
) -> None:
    """Print what each plugin says now, and what would help.

    Args:
        explanation: of a pod; without verdicts nothing is printed.
        to: the console.
        held_back: whether the pod is held back whatever the verdicts are.
    """
    verdicts = explanation.verdicts
    if verdicts is None:
        return
    to.say()
    to.say("Verdicts, computed now:")
    if verdicts.error is not None:
        to.say((verdicts.error, "red"))
        return
    if verdicts.pre_filter is not None:
        text = f"{verdicts.pre_filter.plugin}: {', '.join(verdicts.pre_filter.reasons)}"
        to.say((f"All nodes: {text}", "red"))
    if verdicts.by_plugin:
        _print_reasons(
            (
                (by_plugin.plugin, each.nodes, each.reasons, each.examples)
                for by_plugin in verdicts.by_plugin
                for each in by_plugin.verdicts
            ),
            to,
        )
    refused = explanation.refused_by_extenders if isinstance(explanation, PodExplanation) else None
    if refused is not None:
        of_operator = isinstance(explanation, PodExplanation) and explanation.read is None
        when = f" in its last attempt, {ago(refused.counted_at)}" if of_operator else ""
        to.say(f"Refused by extenders{when}:")
        _print_reasons(
            ((each.plugin, each.nodes, each.reasons, ()) for each in refused.reasons), to
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
    shown = ", ".join(names[:_MAX_TIED_NAMES])
    more = f" and {tied - _MAX_TIED_NAMES:,} more" if tied > _MAX_TIED_NAMES else ""
    return f"It would get one of {tied:,} equal nodes ({shown}{more})"


def _print_devices(explanation: PodExplanation | RecomputedExplanation, to: Printer) -> None:
    for report in (explanation.devices, explanation.gpus):
        for line in report.lines() if report is not None else ():
            to.say(line)
    for plugin, facts in (explanation.plugins or {}).items():
        for line in facts.lines:
            to.say(f"{plugin}: {line}")
    for each in explanation.left_out or ():
        to.say((f"Not asked: {each.plugin}: {each.reason}", "yellow"))
    if isinstance(explanation, RecomputedExplanation) and explanation.stopped:
        to.say((explanation.stopped, "yellow"))


def _print_preemption(preemption: PreemptionNow, to: Printer) -> None:
    if preemption.victims is not None:
        victims = _victims(preemption.victims)
        to.say(f"Preemption would evict {victims} on {preemption.node}.")
        _print_decided_by(preemption.decided_by, to)
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


def _either(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"


POD: Final = Shown(PodExplanation, print_explanation, lambda pod: [pod.pod])
