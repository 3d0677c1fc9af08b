"""`stellwerk version`: of this program, and of the cluster that the kubeconfig names.

The command line calls it. Invariant: it only reads, and says which cluster did not answer.
"""

import argparse
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from stellwerk import __version__
from stellwerk_cli.commands.port_arguments import add_access_arguments, add_output_arguments
from stellwerk_kube.untrusted_text import printable

if TYPE_CHECKING:
    from stellwerk.client.kubernetes import KubernetesClient

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
    compatibility: str = ""
    """The release that decisions follow beside this server, where a profile names none."""
    in_use: Mapping[str, str] = field(default_factory=dict)
    """The version in which each kind is read, of those that releases serve in different ones."""
    off: Mapping[str, str] = field(default_factory=dict)
    """Kinds that cannot be read, each with the reason and what is off without it."""

    def as_json(self) -> dict[str, Any]:
        """In the shape of `kubectl version -o json`, as far as there is anything to say."""
        found: dict[str, Any] = {"clientVersion": {"gitVersion": f"v{self.client}"}}
        if self.server is not None:
            found["serverVersion"] = {"gitVersion": self.server}
            found["compatibility"] = self.compatibility
            found["versionsInUse"] = dict(self.in_use)
            found["off"] = dict(self.off)
        return found


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments for the cluster, and for the form of the answer."""
    parser.add_argument(
        "--client", action="store_true", help="print the version of this program alone"
    )
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
        versions = asyncio.run(_versions(options))
    except Exception:
        _print(Versions(__version__), options.output)
        raise
    _print(versions, options.output)
    return 0


async def _versions(options: argparse.Namespace) -> Versions:
    from stellwerk_cli.commands.cluster_client import with_client  # noqa: PLC0415

    return await with_client(options.kubeconfig, options.context, _versions_beside)


async def _versions_beside(client: "KubernetesClient") -> Versions:
    from stellwerk.handlers.availability import kinds_in_use  # noqa: PLC0415
    from stellwerk_kube.compatibility import RECORDED, release_of_server  # noqa: PLC0415

    server = await client.check_reachable()
    release = release_of_server(server) or RECORDED
    return Versions(__version__, server, str(release), *await kinds_in_use(client))


def _print(versions: Versions, form: str) -> None:
    if form in {"table", "wide", "name"}:
        from stellwerk_kube.compatibility import decided_by_default  # noqa: PLC0415

        sys.stdout.write(f"Client Version: v{versions.client}\n")
        if versions.server is not None:
            lines = [
                f"Server Version: {versions.server}",
                decided_by_default(versions.compatibility),
                *(f"{kind}: {version}" for kind, version in versions.in_use.items()),
                *(f"{kind}: off, {why}" for kind, why in versions.off.items()),
            ]
            sys.stdout.write("".join(f"{printable(line)}\n" for line in lines))
    else:
        from stellwerk_cli.commands.output import write_for_programs  # noqa: PLC0415 rich

        write_for_programs(versions.as_json(), form, "Version")
    sys.stdout.flush()
