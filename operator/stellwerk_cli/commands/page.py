"""`stellwerk page`: what the operator knows and explains, in a browser on this machine.

The command line calls it. With `--local` no operator is asked: `reading.followed` follows the
cluster by watches, and answers in the operator's place. Invariant: it only reads, and listens on
the loopback interface alone; whatever a browser asks for passes the page's guard first.
"""

import argparse
import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from stellwerk_cli.commands.arguments import port_number
from stellwerk_cli.commands.port_arguments import PortAddress, add_port_arguments, port_address
from stellwerk_kube.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from stellwerk.answers.profile_history import ProfileHistory
    from stellwerk.framework.services import ClusterClient
    from stellwerk_cli.page.answers import Answer, ApiReader, PodEvent, Port
    from stellwerk_cli.reading.followed import ClusterToFollow, FollowedCluster
    from stellwerk_kube.json_values import JsonObject

HELP: Final = "show queues, decisions, nodes and explanations in a browser on this machine"
EXAMPLES: Final = (
    "page --open",
    "page --url http://127.0.0.1:10259 --port 8080",
    "page --local --context production",
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
    group = parser.add_argument_group("without an operator")
    group.add_argument(
        "--local",
        action="store_true",
        help="follow the cluster with your own credentials and ask no operator: decide beside the "
        "scheduler that serves the pods, and write nothing",
    )
    group.add_argument(
        "--config",
        default="",
        metavar="FILE|configmap/NAMESPACE/NAME",
        help="with --local, the KubeSchedulerConfiguration of the cluster's scheduler (default: "
        "the SchedulerProfiles of the cluster, or what the scheduler's pod shows, and the defaults "
        "of its release)",
    )
    parser.set_defaults(log_level="warning")


def run(options: argparse.Namespace) -> int:
    """Serve until interrupted."""
    address = port_address(options)
    if not options.local:
        if options.config:
            raise ConfigurationError("--config is for --local: an operator has profiles")
        asyncio.run(_serve(address, options.port, in_browser=options.open))
        return 0
    if options.lease or "url" in getattr(options, "given_options", ()):
        raise ConfigurationError("--local asks no operator: leave out --url and --lease")
    from stellwerk.garbage import collect_seldom  # noqa: PLC0415 before the imports

    collect_seldom()
    import uvloop  # noqa: PLC0415

    from stellwerk_cli.reading.followed import ClusterToFollow  # noqa: PLC0415 the operator's parts

    asked = ClusterToFollow(options.kubeconfig, options.context, options.config)
    uvloop.run(_serve_followed(asked, address, options.port, in_browser=options.open))
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
    client: "ClusterClient | None" = None
    """Asked if there is one; None: each question opens one."""

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

    async def _ask(self, question: "Callable[[ClusterClient], Awaitable[Answer]]") -> "Answer":
        if self.client is not None:
            return await question(self.client)
        from stellwerk_cli.commands.cluster_client import with_client  # noqa: PLC0415

        return await with_client(self.kubeconfig, self.context, question)


async def _serve(address: PortAddress, number: int, *, in_browser: bool) -> None:
    from stellwerk.answers.profiles import ProfilesPage  # noqa: PLC0415
    from stellwerk.supervision import take_signals  # noqa: PLC0415
    from stellwerk_cli.commands.operator_port import (  # noqa: PLC0415 aiohttp
        LeaderPort,
        NoOperatorError,
    )

    stopped = asyncio.Event()
    take_signals(stopped.set)
    async with LeaderPort(address) as leader:
        # A mistake in the arguments is said now, and not in the browser.
        try:
            await leader.get("/profiles", ProfilesPage)
        except NoOperatorError as none:
            hint = f"{none}; --local follows the cluster without an operator"
            raise NoOperatorError(hint, none.others) from none
        api = ApiServer(address.kubeconfig, address.context, address.history_namespace)
        said = "It asks the operator with your credentials. Stop: Ctrl-C"
        async with _opened(leader, number, api, said, in_browser=in_browser):
            await stopped.wait()


async def _serve_followed(
    asked: "ClusterToFollow", address: PortAddress, number: int, *, in_browser: bool
) -> None:
    """Follow the cluster, and serve the page once it is read."""
    from stellwerk.supervision import Ending, run_together, take_signals  # noqa: PLC0415
    from stellwerk_cli.reading.followed import follow_cluster  # noqa: PLC0415 the operator's parts

    ending = Ending()
    take_signals(ending.on_signal)
    async with follow_cluster(asked) as followed:
        api = ApiServer(asked.kubeconfig, asked.context, address.history_namespace, followed.client)
        await run_together(
            ending.stop,
            page=_page_of(followed, number, api, in_browser=in_browser),
            following=followed.run(ending.stop, ending.on_signal),
        )


async def _page_of(
    followed: "FollowedCluster", number: int, api: ApiServer, *, in_browser: bool
) -> None:
    """Serve the page of a followed cluster until cancelled."""
    from stellwerk_cli.progress_line import waiting_for  # noqa: PLC0415
    from stellwerk_cli.reading.followed import private_port  # noqa: PLC0415 the operator's parts

    with waiting_for(followed.progress):
        await followed.filled()
    for line in followed.lines():
        sys.stderr.write(f"stellwerk: {line}\n")
    said = "It follows the cluster with your credentials, and writes nothing. Stop: Ctrl-C"
    async with (
        private_port(followed) as port,
        _opened(port, number, api, said, followed.lines, in_browser=in_browser),
    ):
        await asyncio.Event().wait()


@asynccontextmanager
async def _opened(
    port: "Port",
    number: int,
    api: "ApiReader",
    said: str,
    remarks: "Callable[[], Iterable[str]]" = tuple,
    *,
    in_browser: bool,
) -> AsyncIterator[None]:
    """Serve the page inside; say where it is."""
    import webbrowser  # noqa: PLC0415

    from stellwerk_cli.page.server import open_page  # noqa: PLC0415

    async with open_page(port, number, api, remarks) as url:
        sys.stdout.write(f"Page: {url}\n{said}\n")
        sys.stdout.flush()
        if in_browser:
            await asyncio.to_thread(webbrowser.open, url)
        yield
