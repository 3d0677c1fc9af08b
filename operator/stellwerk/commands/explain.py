"""`stellwerk explain pod NAME` and `podgroup NAME`: why it is where it is, and what would help.

The command line calls it; `kubectl stellwerk explain …` is the same. Invariant: it only reads.
"""

import argparse
from collections.abc import Sequence
from typing import Final
from urllib.parse import quote

from stellwerk.commands.port_arguments import (
    PortAddress,
    add_namespace_argument,
    add_output_arguments,
    add_port_arguments,
    port_address,
    split_name,
)
from stellwerk.errors import ConfigurationError
from stellwerk.models.name_syntax import suggestion

HELP: Final = "say why a pod is where it is, why it waits, and what would help"
EXAMPLES: Final = (
    "explain pod hello",
    "explain pod team/web-0 --watch",
    "explain pod/hello -n team -o json",
    "explain podgroup training -o yaml",
)


_KINDS: Final = {
    "pod": "pod",
    "pods": "pod",
    "po": "pod",
    "podgroup": "podgroup",
    "podgroups": "podgroup",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments for the pod or group, and for the form of the answer."""
    parser.add_argument(
        "what",
        nargs="+",
        metavar="KIND NAME | KIND/NAME",
        help="pod or podgroup, and its name, which NAMESPACE/NAME may be, too",
    )
    add_namespace_argument(parser)
    parser.add_argument(
        "-w", "--watch", action="store_true", help="print again whenever it has changed"
    )
    add_output_arguments(parser)
    add_port_arguments(parser)
    parser.set_defaults(log_level="warning")


def run(options: argparse.Namespace) -> int:
    """Ask, and print the answer."""
    kind, name = _kind_and_name(options.what)
    namespace, name = split_name(options, name)
    inside, is_group = f"/explain/{quote(namespace, safe='')}", kind == "podgroup"
    name = quote(name, safe="")
    path = f"{inside}/podgroups/{name}" if is_group else f"{inside}/{name}"
    import asyncio  # noqa: PLC0415

    asyncio.run(_explain(port_address(options), path, options.output, watch=options.watch))
    return 0


def _kind_and_name(words: Sequence[str]) -> tuple[str, str]:
    """(kind, name) of `KIND NAME` or `KIND/NAME`.

    Raises:
        ConfigurationError: it is neither, or of another kind.
    """
    kind, name = words[0], words[-1]
    if len(words) == 1:
        kind, _, name = words[0].partition("/")
    if kind not in _KINDS:
        near = suggestion(kind, _KINDS)
        raise ConfigurationError(f"{kind!r} is not explained: pod NAME, or podgroup NAME{near}")
    if len(words) > len(("KIND", "NAME")) or not name:
        raise ConfigurationError(f"explain {' '.join(words)}: expected one name of a {kind}")
    return _KINDS[kind], name


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
