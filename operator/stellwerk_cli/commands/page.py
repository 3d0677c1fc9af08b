"""`stellwerk page`: what the operator knows and explains, in a browser on this machine.

The command line calls it. Invariant: it only reads, and listens on the loopback interface alone;
whatever a browser asks for passes the page's guard first.
"""

import argparse
import asyncio
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from stellwerk_cli.commands.arguments import port_number
from stellwerk_cli.commands.port_arguments import PortAddress, add_port_arguments, port_address

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from stellwerk.answers.profile_history import ProfileHistory
    from stellwerk.client.kubernetes import KubernetesClient
    from stellwerk_cli.page.answers import Answer, PodEvent
    from stellwerk_kube.json_values import JsonObject

HELP: Final = "show queues, decisions, nodes and explanations in a browser on this machine"
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
        help="port of the page on 127.0.0.1; its key is kept for the next start (default: a "
        "free one)",
    )
    parser.add_argument("--open", action="store_true", help="open the page in the default browser")
    add_port_arguments(parser)
    parser.set_defaults(log_level="warning")


def run(options: argparse.Namespace) -> int:
    """Serve until interrupted."""
    asyncio.run(_serve(port_address(options), options.port, in_browser=options.open))
    return 0


_MAX_EVENTS: Final = 20
"""Events of a pod that its page shows, the newest ones."""
_MAX_LISTED_EVENTS: Final = 200
"""Events that are asked for: the API server does not list the newest ones first."""


@dataclass(frozen=True, slots=True)
class ApiServer:
    """The page's ApiReader, with a user's own credentials."""

    kubeconfig: str | None
    context: str | None
    namespace: str
    """The operator's, in which it keeps the histories of profiles."""

    async def history(self, profile: str) -> "ProfileHistory":
        """The accepted specs of a profile."""
        from stellwerk_cli.profile_revisions import read_history  # noqa: PLC0415

        found = await self._ask(lambda client: read_history(client, self.namespace, profile))
        return found.answer()

    async def pod(self, namespace: str, name: str) -> "JsonObject":
        """The manifest of a pod."""
        from stellwerk.client.kubernetes import pod_path  # noqa: PLC0415

        return await self._ask(lambda client: client.get(pod_path(namespace, name)))

    async def events(self, namespace: str, name: str) -> "Sequence[PodEvent]":
        """The newest events of a pod."""
        from urllib.parse import quote  # noqa: PLC0415

        from stellwerk_cli.page.answers import PodEvent  # noqa: PLC0415

        selector = quote(f"involvedObject.kind=Pod,involvedObject.name={name}", safe="")
        path = f"/api/v1/namespaces/{quote(namespace, safe='')}/events?fieldSelector={selector}"
        listed = await self._ask(lambda client: client.get(f"{path}&limit={_MAX_LISTED_EVENTS}"))
        found = map(PodEvent.of, listed.get("items") or ())
        return sorted(found, key=lambda each: each.at, reverse=True)[:_MAX_EVENTS]

    async def _ask(self, question: "Callable[[KubernetesClient], Awaitable[Answer]]") -> "Answer":
        from stellwerk_cli.commands.cluster_client import with_client  # noqa: PLC0415

        return await with_client(self.kubeconfig, self.context, question)


async def _serve(address: PortAddress, number: int, *, in_browser: bool) -> None:
    import signal  # noqa: PLC0415
    import webbrowser  # noqa: PLC0415

    from stellwerk.answers.profiles import ProfilesPage  # noqa: PLC0415
    from stellwerk_cli.commands.operator_port import LeaderPort  # noqa: PLC0415
    from stellwerk_cli.page.server import open_page  # noqa: PLC0415

    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for each in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(each, stopped.set)
    async with LeaderPort(address) as leader:
        # A mistake in the arguments is said now, and not in the browser.
        await leader.get("/profiles", ProfilesPage)
        api = ApiServer(address.kubeconfig, address.context, address.history_namespace)
        async with open_page(leader, number, api) as url:
            sys.stdout.write(f"Page: {url}\n")
            sys.stdout.write("It asks the operator with your credentials. Stop: Ctrl-C\n")
            sys.stdout.flush()
            if in_browser:
                await asyncio.to_thread(webbrowser.open, url)
            await stopped.wait()
