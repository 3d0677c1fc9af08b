"""`stellwerk dump`: what the scheduler knows, compared with the API.

The command line calls it. Invariant: it only reads.
"""

import argparse
from typing import TYPE_CHECKING, Any, Final

from stellwerk_cli.commands.port_arguments import (
    PortAddress,
    add_exit_code_argument,
    add_output_arguments,
    add_port_arguments,
    port_address,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stellwerk.answers.dump import CacheDump
    from stellwerk_cli.commands.output import Shown
    from stellwerk_cli.commands.printer import Printer

HELP: Final = "compare the scheduler's cache with the API, and print cache and queues"
EXAMPLES: Final = (
    "dump",
    "dump -o json",
    "dump --exit-code",
)
PATH: Final = "/debug/dump"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments for the operator, and for the form of the answer."""
    add_output_arguments(parser)
    add_exit_code_argument(parser, "something differs from the API, or cannot be compared")
    add_port_arguments(parser)
    parser.set_defaults(log_level="warning")


def run(options: argparse.Namespace) -> int:
    """Ask, and print the dump.

    Raises:
        ConfigurationError: the arguments do not go together.
        UnreachableError: the operator does not answer.
    """
    import asyncio  # noqa: PLC0415

    answer = asyncio.run(_dump(port_address(options), options.output))
    is_no = bool(answer["differences"]) or not answer["compared"]
    return 1 if is_no and options.exit_code else 0


async def _dump(address: PortAddress, form: str) -> "Mapping[str, Any]":
    from stellwerk_cli.commands.operator_port import open_port  # noqa: PLC0415
    from stellwerk_cli.commands.output import show  # noqa: PLC0415

    async with open_port(address) as port:
        return await show(lambda: port.ask_json(PATH), form, shown_dump())


def shown_dump() -> "Shown[CacheDump]":
    """The kind of answer, its table and its names; rich is imported with it."""
    from stellwerk.answers.dump import CacheDump  # noqa: PLC0415
    from stellwerk_cli.commands.output import Shown  # noqa: PLC0415

    return Shown(
        CacheDump,
        print_dump,
        lambda dump: [name for each in dump.differences for name in each.names],
    )


def print_dump(dump: "CacheDump", to: "Printer") -> None:
    """Print the comparison with the names that differ, then the lines of the operator."""
    from stellwerk.answers.words import ago  # noqa: PLC0415

    to.say(f"{dump.comparison} ({ago(dump.compared_at)})")
    for each in dump.differences:
        more = each.count - len(each.names)
        others = f" and {more:,} more" if more else ""
        to.say((f"{each.kind}: {', '.join(each.names)}{others}", "yellow"))
    for line in dump.items:
        to.say(line, wraps=False)
    if dump.stopped is not None:
        to.say((dump.stopped, "yellow"))
