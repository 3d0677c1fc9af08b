"""`stellwerk promote NAME`: a shadow and the profile that it shadows change places.

The command line calls it. Invariant: it writes two SchedulerProfiles, with the user's own rights.
"""

import argparse
from typing import Final

HELP: Final = "let a shadow profile take the place of the one that it shadows; again goes back"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments for the profile and its cluster."""
    parser.add_argument("name", help="the SchedulerProfile with spec.shadowOf")
    parser.add_argument("--kubeconfig", metavar="FILE", help="credentials (default: as kubectl)")
    parser.add_argument("--context", help="context of the kubeconfig (default: its current one)")
    parser.set_defaults(log_level="warning")


def run(options: argparse.Namespace) -> int:
    """Promote, and say what was done."""
    import asyncio  # noqa: PLC0415

    from stellwerk.client.promotion import promote  # noqa: PLC0415
    from stellwerk.commands.cluster_client import with_client  # noqa: PLC0415

    done = asyncio.run(
        with_client(
            options.kubeconfig, options.context, lambda client: promote(client, options.name)
        )
    )
    before = "resumed: " if done.resumed else ""
    print(
        f"{before}SchedulerProfile {done.active} has the spec that {done.shadow} had, which now "
        f"shadows it with the former one; promote again to go back"
    )
    return 0
