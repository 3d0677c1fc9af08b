"""`stellwerk shadow diff NAME`: what a profile with shadowOf would have decided otherwise.

The command line calls it. Invariant: it only reads.
"""

import argparse
from typing import Final
from urllib.parse import quote

from stellwerk_cli.commands.port_arguments import (
    PortAddress,
    add_output_arguments,
    add_port_arguments,
    port_address,
)

HELP: Final = "say what a shadow profile would have decided otherwise, and which plugin made it so"
EXAMPLES: Final = (
    "shadow diff packing-next",
    "shadow diff packing-next -o json",
)


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
    from stellwerk_cli.commands.tables import SHADOW, show  # noqa: PLC0415

    async with open_port(address) as port:
        await show(lambda: port.written(path), form, SHADOW)
