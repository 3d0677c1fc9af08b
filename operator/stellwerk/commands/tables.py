"""Explanations as tables for people: colour where there is a terminal, no wider than it is.

The commands print them, and so does the demo. Invariant: nothing is shown that is not in the
explanation's JSON.
"""

import os
import re
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NoReturn, TextIO

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text
from typing_extensions import override

from stellwerk.explain.device_text import device_lines
from stellwerk.explain.gpu_report import gpu_lines

_WIDTH: Final = 100
"""Where there is no terminal."""
_MOST_NODES: Final = 10
_NODE_WIDTH: Final = 30
"""What rank, name and total of a node take."""
_WORD: Final = re.compile(r"[A-Z]+[a-z0-9]*|[^A-Z]+")

Json = Mapping[str, Any]


class _Tables(Console):
    """A console whose closed pipe is the command line's to deal with: rich would exit with 1."""

    @override
    def on_broken_pipe(self) -> NoReturn:
        raise BrokenPipeError


def console(output: TextIO | None = None) -> Console:
    """Where tables go: a terminal's own width, otherwise $COLUMNS or a fixed one, and no colour."""
    output = output or sys.stdout
    if output.isatty():
        return _Tables(file=output, highlight=False)
    width = shutil.get_terminal_size((_WIDTH, 0)).columns if "COLUMNS" in os.environ else _WIDTH
    return _Tables(file=output, highlight=False, width=width, no_color=True)


def print_explanation(explanation: Json, to: Console) -> None:
    """One pod's explanation."""
    to.print(_headline(explanation))
    if "preempted" in explanation:
        _print_preempted(explanation["preempted"], to)
    if "lastPreemption" in explanation:
        _print_last_preemption(explanation["lastPreemption"], to)
    for field in ("note", "reason"):
        if field in explanation:
            to.print(escape(f"{explanation[field]}"))
    if "nearest" in explanation:
        to.print(f"Nearest name: [bold]{escape(explanation['nearest'])}[/]")
    if "decision" in explanation:
        _print_decision(explanation["decision"], explanation.get("node", ""), to)
    if "queue" in explanation:
        _print_queue(explanation, to)
    if "verdicts" not in explanation:
        _print_devices(explanation, to)
    if "verdicts" in explanation:
        _print_verdicts(explanation, to)


def _headline(explanation: Json) -> Text:
    """The pod, its state, and whose it is."""
    headline = Text.assemble((explanation["pod"], "bold"), f" is {explanation['state']}")
    if "node" in explanation:
        headline.append(f" on {explanation['node']}")
    if "schedulerName" in explanation:
        selecting = explanation.get("selectedBy")
        by = f"by the selector of {selecting}, " if selecting else ""
        whose = f"schedulerName {explanation['schedulerName']}"
        headline.append(f" ({by}{whose}, priority {explanation['priority']})")
    return headline


def _print_preempted(victim: Json, to: Console) -> None:
    text = (
        f"Preempted at {victim['decidedAt']} on {victim['node']} by {victim['by']}, which has "
        f"priority {victim['byPriority']}; its own is {victim['priority']}."
    )
    to.print(f"[red]{escape(text)}[/]")


def _print_last_preemption(last: Json, to: Console) -> None:
    victims = ", ".join(f"{each['pod']} ({each['priority']})" for each in last["victims"])
    to.print(
        escape(
            f"At {last['decidedAt']} it preempted {victims} on {last['node']}, one of "
            f"{last['candidates']} candidates, with {last['budgetViolations']} violations of "
            "disruption budgets."
        )
    )
    if last["nominatedNode"] != last["node"]:
        to.print(escape(f"It is nominated to {last['nominatedNode'] or 'no node'} now."))
    for each in last.get("tookPlace") or ():
        got = "got" if each["bound"] else "was nominated to"
        text = f"{each['pod']}, of priority {each['priority']}, {got} that node at"
        to.print(escape(f"{text} {each['decidedAt']}."))


def _print_decision(decision: Json, chosen: str, to: Console) -> None:
    tie = "no tie" if decision["tied"] < 2 else f"a tie of {decision['tied']}"  # noqa: PLR2004 two
    to.print(
        f"Decided at {decision['decidedAt']}: {decision['feasible']} of {decision['nodes']} nodes "
        f"feasible, {tie}, attempt {decision['attempts']}."
    )
    best = decision["best"][:_MOST_NODES]
    if best:
        to.print(_score_table(best, chosen, to.width))
        to.print("[dim]raw → normalised × weight = weighted[/]")
    elif decision["nominated"]:
        to.print("It went to the node that it was nominated to; no other was looked at.")
    else:
        to.print("There was one feasible node, and nothing to score.")
    if "others" in decision:
        others = decision["others"]
        to.print(f"Why the others were not, counted at {others['countedAt']}:")
        to.print(
            _reason_table(
                (each["plugin"], each["nodes"], each["reasons"], ()) for each in others["reasons"]
            )
        )


def _score_table(best: Sequence[Json], chosen: str, width: int) -> Table:
    """Nodes in rows, plugins in columns; their names on several lines where they are too wide."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("#", justify="right")
    table.add_column("NODE", overflow="fold")
    table.add_column("TOTAL", justify="right")
    plugins = list(best[0]["scores"])
    words = " " if sum(len(plugin) + 2 for plugin in plugins) < width - _NODE_WIDTH else "\n"
    for plugin in plugins:
        name = plugin if words == " " else words.join(_WORD.findall(plugin)) or plugin
        table.add_column(escape(name), justify="right", overflow="fold")
    for node in best:
        cells = [_score_text(node["scores"][plugin]) for plugin in plugins]
        style = "bold green" if node["node"] == chosen else ""
        total = f"{node['total']}"
        table.add_row(f"{node['rank']}", escape(node["node"]), total, *cells, style=style)
    return table


def _score_text(score: Json) -> str:
    weight = score["weighted"] // score["normalized"] if score["normalized"] else 1
    if weight == 1 and score["raw"] == score["normalized"]:
        return f"{score['weighted']}"
    return f"{score['raw']} → {score['normalized']}×{weight}={score['weighted']}"


def _reason_table(rows: Iterable[tuple[str, int, Sequence[str], Sequence[str]]]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("NODES", justify="right")
    table.add_column("PLUGIN")
    table.add_column("WHY", overflow="fold")
    listed = list(rows)
    if any(examples for *_, examples in listed):
        table.add_column("FOR EXAMPLE", overflow="fold", style="dim")
    for plugin, nodes, reasons, examples in listed:
        cells = (f"{nodes}", plugin, ", ".join(reasons), ", ".join(examples))
        table.add_row(*map(escape, cells[: len(table.columns)]))
    return table


def _print_queue(explanation: Json, to: Console) -> None:
    queue = explanation["queue"]
    place = f"In {queue['queue']} since {queue['since']}"
    if queue.get("position") is not None:
        place += f", {queue['position']} pods before it"
    place += f"; {queue['attempts']} attempt{'' if queue['attempts'] == 1 else 's'}"
    if "nextRetry" in queue:
        place += f", next at the latest at {queue['nextRetry']}"
    to.print(escape(f"{place}."))
    if "gatedBy" in queue:
        to.print(f"[yellow]Held back by {escape(queue['gatedBy'])}.[/]")
    last = explanation.get("lastAttempt")
    if last:
        message = f": {last['message']}" if last.get("message") else ""
        to.print(escape(f"Last attempt ended at {last['endedAt']}{message}"))
    woken = queue.get("wokenBy")
    if woken:
        events = ", ".join(each["event"] for each in woken)
        to.print(f"Woken by: [cyan]{escape(events)}[/]")


def _print_verdicts(explanation: Json, to: Console) -> None:
    verdicts = explanation["verdicts"]
    to.print(f"\nVerdicts, computed anew at {verdicts['recomputedAt']}:")
    if "error" in verdicts:
        to.print(f"[red]{escape(verdicts['error'])}[/]")
        return
    pre_filter = verdicts.get("preFilter")
    if pre_filter:
        text = f"{pre_filter['plugin']}: {', '.join(pre_filter['reasons'])}"
        to.print(f"[red]All nodes: {escape(text)}[/]")
    if verdicts["byPlugin"]:
        to.print(
            _reason_table(
                (by_plugin["plugin"], each["nodes"], each["reasons"], each["examples"])
                for by_plugin in verdicts["byPlugin"]
                for each in by_plugin["verdicts"]
            )
        )
    _print_devices(explanation, to)
    if "wouldGetNode" in explanation:
        held_back = "gatedBy" in explanation.get("queue", {})
        when = "if it were not held back" if held_back else "now"
        to.print(f"[green]It would get {escape(explanation['wouldGetNode'])} {when}.[/]")
        return
    _print_preemption(explanation.get("preemption") or {}, to)
    _print_suggestions(explanation.get("wouldFit") or (), to)


def _print_devices(explanation: Json, to: Console) -> None:
    of_claims = device_lines(explanation["devices"]) if "devices" in explanation else ()
    of_gpus = gpu_lines(explanation["gpus"]) if "gpus" in explanation else ()
    for line in (*of_claims, *of_gpus):
        to.print(escape(line))


def _print_preemption(preemption: Json, to: Console) -> None:
    if "victims" in preemption:
        victims = ", ".join(f"{each['pod']} ({each['priority']})" for each in preemption["victims"])
        to.print(escape(f"Preemption would evict {victims} on {preemption['node']}."))
    if "wouldDo" in preemption:
        to.print(escape(f"{preemption['wouldDo']}."))


def _print_suggestions(suggestions: Sequence[Json], to: Console) -> None:
    if not suggestions:
        to.print("No change that was tried would make it fit.")
        return
    to.print("\n[bold]What would make it fit[/], each tried:")
    for suggestion in suggestions:
        to.print(f" [green]•[/] {escape(suggestion['text'])}")


def print_what_if(answer: Json, to: Console) -> None:
    """Who lands where, who does not, and why."""
    if "drained" in answer:
        to.print(escape(f"If {answer['drained']} were drained:"))
    if answer["placed"]:
        table = Table(box=None, pad_edge=False, header_style="bold")
        table.add_column("POD", overflow="fold")
        table.add_column("NODE", overflow="fold")
        for each in answer["placed"]:
            table.add_row(escape(each["pod"]), f"[green]{escape(each['node'])}[/]")
        to.print(table)
    for each in answer["unplaced"]:
        to.print(f"[red]{escape(each['pod'])}[/] gets no node: {escape(each['message'])}")
        preempt = each.get("wouldPreempt")
        if preempt:
            victims = ", ".join(preempt["victims"])
            to.print(escape(f"  it would preempt {victims} on {preempt['node']}"))
    if not answer["placed"] and not answer["unplaced"]:
        to.print("No pod has to move." if "drained" in answer else "No pod waits.")
    explanation = answer.get("explanation")
    if explanation and answer["unplaced"]:
        _print_verdicts(explanation, to)
