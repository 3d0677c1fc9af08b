"""`stellwerk page`: what the operator knows and explains, in a browser on this machine.

The command line calls it. Invariant: it only reads, and listens on the loopback interface alone;
whatever a browser asks for passes the page's guard first.
"""

import argparse
import asyncio
import sys
from typing import TYPE_CHECKING, Final

from stellwerk.commands.arguments import port_number
from stellwerk.commands.port_arguments import PortAddress, add_port_arguments, port_address

if TYPE_CHECKING:
    from stellwerk.models.answers.profile_history import ProfileHistory
    from stellwerk.page.answers import HistoryReader

HELP: Final = "show the queues, decisions, nodes and explanations in a browser on this machine"
EXAMPLES: Final = (
    "page --open",
    "page --url http://127.0.0.1:10259 --port 8080",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments for the page's port, and for a browser to open it."""
    parser.add_argument(
        "--port",
        type=port_number,
        default=0,
        help="of the page, on 127.0.0.1, whose key is kept for the next time (default: a free one)",
    )
    parser.add_argument("--open", action="store_true", help="open it in the default browser")
    add_port_arguments(parser)
    parser.set_defaults(log_level="warning")


def run(options: argparse.Namespace) -> int:
    """Serve until interrupted."""
    asyncio.run(_serve(port_address(options), options.port, in_browser=options.open))
    return 0


def profile_history(kubeconfig: str | None, context: str | None, namespace: str) -> "HistoryReader":
    """Read histories of profiles from the API server, with the user's own credentials."""
    from stellwerk.client.profile_revisions import read_history  # noqa: PLC0415
    from stellwerk.commands.cluster_client import with_client  # noqa: PLC0415

    async def read(name: str) -> "ProfileHistory":
        found = await with_client(
            kubeconfig, context, lambda client: read_history(client, namespace, name)
        )
        return found.answer()

    return read


async def _serve(address: PortAddress, number: int, *, in_browser: bool) -> None:
    import signal  # noqa: PLC0415
    import webbrowser  # noqa: PLC0415

    from stellwerk.commands.operator_port import LeaderPort  # noqa: PLC0415
    from stellwerk.models.answers.listings import ProfilesPage  # noqa: PLC0415
    from stellwerk.page.server import open_page  # noqa: PLC0415

    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for each in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(each, stopped.set)
    async with LeaderPort(address) as leader:
        # A mistake in the arguments is said now, and not in the browser.
        await leader.get("/profiles", ProfilesPage)
        history = profile_history(address.kubeconfig, address.context, address.lease_namespace)
        async with open_page(leader, number, history) as url:
            sys.stdout.write(f"Page: {url}\n")
            sys.stdout.write("It asks the operator with your credentials. Stop: Ctrl-C\n")
            sys.stdout.flush()
            if in_browser:
                await asyncio.to_thread(webbrowser.open, url)
            await stopped.wait()
