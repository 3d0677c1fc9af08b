"""`stellwerk explain pod NAME` and `podgroup NAME`: why it is where it is, and what would help.

The command line calls it; `kubectl stellwerk explain …` is the same. Invariant: it only reads.
"""

import argparse
from typing import Final
from urllib.parse import quote

from stellwerk.commands.port_arguments import (
    PortAddress,
    add_output_arguments,
    add_port_arguments,
    port_address,
)
from stellwerk.errors import ConfigurationError

HELP: Final = "say why a pod is where it is, why it waits, and what would help"
EXAMPLES: Final = (
    "explain pod hello",
    "explain pod team/web-0 --watch",
    "explain podgroup training -o yaml",
)


_KINDS: Final = ["pod", "pods", "po", "podgroup", "podgroups"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments for the pod or group, and for the form of the answer."""
    parser.add_argument("kind", choices=_KINDS, help="what to explain")
    parser.add_argument("name", help="its name; NAMESPACE/NAME works, too")
    parser.add_argument("-n", "--namespace", default="default", help="default: %(default)s")
    parser.add_argument(
        "-w", "--watch", action="store_true", help="print again whenever it has changed"
    )
    add_output_arguments(parser)
    add_port_arguments(parser)
    parser.set_defaults(log_level="warning")


def run(options: argparse.Namespace) -> int:
    """Ask, and print the answer."""
    namespace, slash, name = options.name.rpartition("/")
    if not name:
        raise ConfigurationError(f"{options.name!r} names no pod")
    inside = f"/explain/{quote(namespace if slash else options.namespace)}"
    is_group = options.kind.startswith("podgroup")
    path = f"{inside}/podgroups/{quote(name)}" if is_group else f"{inside}/{quote(name)}"
    import asyncio  # noqa: PLC0415

    asyncio.run(_explain(port_address(options), path, options.output, watch=options.watch))
    return 0


async def _explain(address: PortAddress, path: str, form: str, *, watch: bool) -> None:
    from stellwerk.commands.operator_port import open_port  # noqa: PLC0415
    from stellwerk.commands.tables import Shown, print_explanation, print_group, show  # noqa: PLC0415  # noqa: PLC0415
    from stellwerk.models.answers.group import GroupExplanation  # noqa: PLC0415
    from stellwerk.models.answers.pod import PodExplanation  # noqa: PLC0415

    async with open_port(address) as port:
        if "/podgroups/" in path:
            group = Shown(GroupExplanation, print_group)
            await show(lambda: port.written(path), form, group, watch=watch)
        else:
            pod = Shown(PodExplanation, print_explanation)
            await show(lambda: port.written(path), form, pod, watch=watch)
