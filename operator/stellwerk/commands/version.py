"""`stellwerk version`: of this program, and of the cluster that the kubeconfig names.

The command line calls it. Invariant: it only reads, and says which cluster did not answer.
"""

import argparse
import sys
from dataclasses import dataclass
from typing import Final

from stellwerk import __version__
from stellwerk.commands.port_arguments import add_access_arguments, add_output_arguments
from stellwerk.models.untrusted_text import printable

HELP: Final = "print the versions of this program and of the cluster"
EXAMPLES: Final = (
    "version",
    "version --client -o json",
)


@dataclass(frozen=True, slots=True)
class Versions:
    """The answer; the server is absent with `--client`."""

    client: str
    server: str | None = None

    def as_json(self) -> dict[str, dict[str, str]]:
        """In the shape of `kubectl version -o json`, as far as there is anything to say."""
        found = {"clientVersion": {"gitVersion": f"v{self.client}"}}
        if self.server is not None:
            found["serverVersion"] = {"gitVersion": self.server}
        return found


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments for the cluster, and for the form of the answer."""
    parser.add_argument("--client", action="store_true", help="of this program alone")
    add_access_arguments(parser)
    add_output_arguments(parser)
    parser.set_defaults(log_level="warning")


def run(options: argparse.Namespace) -> int:
    """Print what is known, also where the cluster does not answer.

    Raises:
        ConfigurationError: the kubeconfig cannot be read.
        UnreachableError: the cluster does not answer.
    """
    if options.client:
        _print(Versions(__version__), options.output)
        return 0
    import asyncio  # noqa: PLC0415

    try:
        server = asyncio.run(_server_version(options))
    except Exception:
        _print(Versions(__version__), options.output)
        raise
    _print(Versions(__version__, server), options.output)
    return 0


async def _server_version(options: argparse.Namespace) -> str:
    from stellwerk.commands.cluster_client import with_client  # noqa: PLC0415

    return await with_client(
        options.kubeconfig, options.context, lambda client: client.check_reachable()
    )


def _print(versions: Versions, form: str) -> None:
    if form == "table":
        sys.stdout.write(f"Client Version: v{versions.client}\n")
        if versions.server is not None:
            sys.stdout.write(f"Server Version: {printable(versions.server)}\n")
    else:
        from stellwerk.commands.tables import write_for_programs  # noqa: PLC0415 rich

        write_for_programs(versions.as_json(), form)
    sys.stdout.flush()
