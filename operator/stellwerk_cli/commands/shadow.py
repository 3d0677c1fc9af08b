"""`stellwerk shadow diff NAME`: what a profile with shadowOf would have decided otherwise.

The command line calls it. Invariant: it only reads.
"""

import argparse
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from stellwerk_cli.commands.port_arguments import (
    PortAddress,
    add_output_arguments,
    add_port_arguments,
    port_address,
)
from stellwerk_kube.compatibility import decided_as

if TYPE_CHECKING:
    from stellwerk.answers.shadow import ShadowDiff
    from stellwerk_cli.commands.output import Shown
    from stellwerk_cli.commands.printer import Printer

HELP: Final = (
    "show what a shadow profile would have decided differently, and which plugin "
    "made the difference"
)
EXAMPLES: Final = (
    "shadow diff packing-next",
    "shadow diff packing-next -o json",
)
_MAX_DIFFERENCES: Final = 50
"""Differences in a table, the newest ones. JSON has all that the operator keeps."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments for the profile, and for the form of the answer."""
    parser.add_argument("what", choices=["diff"], help="what to show")
    parser.add_argument("name", help="the SchedulerProfile with spec.shadowOf")
    add_output_arguments(parser)
    add_port_arguments(parser)
    parser.set_defaults(log_level="warning")


def run(options: argparse.Namespace) -> int:
    """Ask, and print the answer."""
    import asyncio  # noqa: PLC0415

    path = f"/shadow/{quote(options.name, safe='')}"
    asyncio.run(_show(port_address(options), path, options.output))
    return 0


async def _show(address: PortAddress, path: str, form: str) -> None:
    from stellwerk_cli.commands.operator_port import open_port  # noqa: PLC0415
    from stellwerk_cli.commands.output import show  # noqa: PLC0415

    async with open_port(address) as port:
        await show(lambda: port.ask_json(path), form, shown_shadow())


def shown_shadow() -> "Shown[ShadowDiff]":
    """The kind of answer, its table and its names; rich is imported with it."""
    from stellwerk.answers.shadow import ShadowDiff  # noqa: PLC0415
    from stellwerk_cli.commands.output import Shown  # noqa: PLC0415

    return Shown(ShadowDiff, print_shadow, lambda answer: (each.pod for each in answer.differences))


def print_shadow(answer: "ShadowDiff", to: "Printer") -> None:
    """Print the counts of a shadow, and the newest differences."""
    from stellwerk_cli.commands.printer import Column  # noqa: PLC0415 rich

    found = "no decision was compared yet"
    if answer.compared:
        found = (
            f"{answer.differing} of {answer.compared} decisions differ; its own nodes score "
            f"{answer.mean_gain} more on average"
        )
    to.say(f"{answer.profile} shadows {answer.shadow_of}: {found}")
    left_out = [
        f"{number} {what}"
        for number, what in ((answer.skipped, "skipped"), (answer.failed, "failed"))
        if number
    ]
    if left_out:
        to.say(f"of {answer.decisions} decisions, {' and '.join(left_out)}")
    if answer.groups:
        to.say(f"{answer.groups} of the compared decisions are on groups of pods")
    if answer.compatibility is not None:
        to.say((decided_as([answer.compatibility]), "dim"))
    if not answer.differences:
        return
    columns = [
        *(Column(title, folds=True) for title in ("POD", "ACTIVE NODE", "SHADOW NODE")),
        # Both by the shadow's plugins: of the node that the active profile chose, and of its own.
        *(Column(title, is_number=True) for title in ("ACTIVE SCORE", "SHADOW SCORE")),
        Column("MADE BY", folds=True),
    ]
    rows = []
    for each in answer.differences[:_MAX_DIFFERENCES]:
        why = ": ".join(filter(None, (each.plugin, each.reason)))
        scores = ("" if total is None else f"{total}" for total in (each.total, each.shadow_total))
        rows.append((each.pod, each.node or "none", each.shadow_node or "none", *scores, why))
    to.table(columns, rows)
