"""`stellwerk observe report [NAME]`: how the bindings of another scheduler compare with ours.

The command line calls it. Invariant: it only reads; a share is of all bindings that were compared,
and the table says the sum of the shares.
"""

import argparse
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final
from urllib.parse import urlencode

from stellwerk_cli.commands.port_arguments import (
    PortAddress,
    add_exit_code_argument,
    add_output_arguments,
    add_port_arguments,
    port_address,
)
from stellwerk_kube.compatibility import decided_as

if TYPE_CHECKING:
    from stellwerk.answers.observed import ClassCounts, ObservedPage, ObservedProfile
    from stellwerk_cli.commands.output import Shown
    from stellwerk_cli.commands.printer import Printer

HELP: Final = (
    "report how another scheduler's bindings compare with the decisions of the profiles that "
    "observe it, by day and reason"
)
EXAMPLES: Final = (
    "observe report",
    "observe report -o json",
    "observe report --exit-code",
)
_MAX_COMPARISONS: Final = 1000
"""Comparisons that are asked for: as many as an operator keeps."""
_MAX_REASONS: Final = 20
"""Reasons in a table, the most frequent ones. JSON has all."""
_MAX_DIFFERENCES: Final = 10
"""Differences in a table, the newest ones. JSON has all that the operator keeps."""
NOTHING_OBSERVED: Final = (
    "no profile observes another scheduler: a SchedulerProfile with spec.mode Observe does"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments for the profile, and for the form of the answer."""
    parser.add_argument("what", choices=["report"], help="what to show")
    parser.add_argument(
        "name",
        nargs="?",
        default="",
        help="the SchedulerProfile that observes, or its schedulerName (default: all of them)",
    )
    add_output_arguments(parser)
    add_exit_code_argument(parser, "a binding differs, or we found no node for a pod")
    add_port_arguments(parser)
    parser.set_defaults(log_level="warning")


def run(options: argparse.Namespace) -> int:
    """Ask, and print the answer."""
    import asyncio  # noqa: PLC0415

    words = {"limit": _MAX_COMPARISONS} | ({"profile": options.name} if options.name else {})
    path = f"/observed?{urlencode(words)}"
    differs = asyncio.run(_show(port_address(options), path, options.output))
    return 1 if differs and options.exit_code else 0


async def _show(address: PortAddress, path: str, form: str) -> bool:
    """Print the answer; whether a binding differs."""
    from stellwerk_cli.commands.operator_port import open_port  # noqa: PLC0415
    from stellwerk_cli.commands.output import show  # noqa: PLC0415

    async with open_port(address) as port:
        answer = await show(lambda: port.ask_json(path), form, shown_observed())
        counts = (each["counts"] for each in answer["items"])
        return any(each["differs"] or each["foundNone"] for each in counts)


def shown_observed() -> "Shown[ObservedPage]":
    """The kind of answer, its table and its names; rich is imported with it."""
    from stellwerk.answers.observed import ObservedPage  # noqa: PLC0415
    from stellwerk_cli.commands.output import Shown  # noqa: PLC0415

    return Shown(
        ObservedPage,
        print_report,
        lambda answer: (
            comparison.pod
            for each in answer.items
            for comparison in each.comparisons
            if comparison.result in _NOT_ALIKE
        ),
    )


_NOT_ALIKE: Final = frozenset({"differs", "foundNone"})


def print_report(answer: "ObservedPage", to: "Printer") -> None:
    """Print the report of each profile."""
    if not answer.items:
        to.say(NOTHING_OBSERVED)
    for number, each in enumerate(answer.items):
        if number:
            to.say("")
        _print_profile(each, to)


def _print_profile(profile: "ObservedProfile", to: "Printer") -> None:
    """Print one profile: shares by day, latency, reasons, the newest differences, shadows."""
    from stellwerk.answers.words import counted, latency  # noqa: PLC0415 pydantic

    to.say(
        (profile.scheduler_name, "bold"),
        f" is observed by {profile.name} since {_minute(profile.since)}: "
        f"{counted(profile.compared, 'binding')} compared, "
        f"{profile.pending:,} not yet, {counted(profile.waiting, 'pod')} waiting",
    )
    if profile.compared:
        _print_shares(profile, to)
    else:
        to.say("No binding has been compared yet.")
    if profile.latency is not None:
        quantiles = ", ".join(
            f"{name} {latency(seconds)}"
            for name, seconds in (
                ("p50", profile.latency.p50_seconds),
                ("p90", profile.latency.p90_seconds),
                ("p99", profile.latency.p99_seconds),
            )
        )
        name = profile.scheduler_name
        to.say(f"From when a pod could be scheduled to its binding {name} took {quantiles}.")
    _print_reasons(profile, to)
    _print_differences(profile, to)
    _print_shadows(profile, to)
    if profile.skipped_decisions:
        made, left_out = counted(profile.decisions, "decision"), f"{profile.skipped_decisions:,}"
        to.say(f"{made} on pods that wait, {left_out} left out in bursts.")
    if profile.compatibility is not None:
        to.say((decided_as([profile.compatibility]), "dim"))


def _print_shares(profile: "ObservedProfile", to: "Printer") -> None:
    from stellwerk_cli.commands.printer import Column  # noqa: PLC0415 rich

    titles = (
        *(("BINDINGS",), ("EQUAL",), ("SAMPLED",), ("DIFFERS",)),
        *(("WE FOUND", "NONE"), ("NOT COM-", "PARABLE"), ("SUM",)),
    )
    columns = [Column("DAY"), *(Column(title, is_number=True) for title in titles)]
    rows = [(each.day, *_cells(each.counts)) for each in profile.days]
    to.table(columns, [*rows, [(cell, "bold") for cell in ("all", *_cells(profile.counts))]])


def _cells(counts: "ClassCounts") -> Iterator[str]:
    """The number of bindings, the share of each class, and the sum of the shares."""
    from stellwerk.answers.words import percent  # noqa: PLC0415 pydantic

    by_class = counts.by_class().values()
    total = sum(by_class)
    yield f"{total:,}"
    yield from (percent(each, total) for each in by_class)
    yield percent(sum(by_class), total)


def _print_reasons(profile: "ObservedProfile", to: "Printer") -> None:
    from stellwerk_cli.commands.printer import Column  # noqa: PLC0415 rich

    bindings = Column("BINDINGS", is_number=True)
    if profile.reasons:
        to.say(("Why bindings differ:", "bold"))
        columns = [
            Column("PLUGIN", folds=True),
            bindings,
            Column(("POINTS,", "ON AVERAGE"), is_number=True),
            Column("REASON", folds=True),
        ]
        to.table(
            columns,
            [
                (
                    each.plugin,
                    f"{each.count:,}",
                    "" if each.reason else f"{each.points / each.count:+.1f}",
                    each.reason or "its scores",
                )
                for each in profile.reasons[:_MAX_REASONS]
            ],
        )
        _say_left_out(len(profile.reasons) - _MAX_REASONS, "reason", to)
    if profile.incomparable:
        to.say(("Why bindings could not be compared:", "bold"))
        rows = [(f"{each.count:,}", each.reason) for each in profile.incomparable[:_MAX_REASONS]]
        to.table([bindings, Column("REASON", folds=True)], rows)


def _print_differences(profile: "ObservedProfile", to: "Printer") -> None:
    """Print the newest bindings that differ."""
    from stellwerk.answers.observed import ComparedBindings  # noqa: PLC0415 pydantic
    from stellwerk_cli.commands.printer import Column  # noqa: PLC0415 rich

    found = [each for each in profile.comparisons if each.result in _NOT_ALIKE]
    if not found:
        return
    to.say(("The newest bindings that differ:", "bold"))
    columns = [Column(title, folds=True) for title in ComparedBindings.TITLES]
    to.table(columns, list(ComparedBindings(found[:_MAX_DIFFERENCES]).rows()))
    _say_left_out(len(found) - _MAX_DIFFERENCES, "difference", to)


def _print_shadows(profile: "ObservedProfile", to: "Printer") -> None:
    from stellwerk.answers.observed import ONE_STEP  # noqa: PLC0415 pydantic

    for each in profile.shadows or ():
        found = "has compared no decision yet"
        if each.compared:
            found = (
                f"chose another node in {each.differing:,} of {each.compared:,} decisions; its own "
                f"nodes score {each.mean_gain_points:g} more on average"
            )
        to.say(f"Shadow {each.name} {found}.")
    if profile.shadows:
        to.say((ONE_STEP, "dim"))


def _say_left_out(number: int, noun: str, to: "Printer") -> None:
    if number > 0:
        to.say(f"{number:,} more {noun}{'' if number == 1 else 's'}: -o json has all")


def _minute(moment: str) -> str:
    """A moment without its seconds, in UTC."""
    return moment[:16].replace("T", " ") + " UTC"
