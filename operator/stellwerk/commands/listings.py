"""`stellwerk queue`, `decisions` and `nodes`: the operator's lists, as kubectl prints lists.

The command line calls them. Invariant: they only read, and a table shows at most so many rows as
fit its reader, with the number of those that it leaves out; JSON and YAML hold all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from stellwerk.commands.port_arguments import (
    PortAddress,
    add_namespace_argument,
    add_output_arguments,
    add_port_arguments,
    namespace_of,
    port_address,
)

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

    from stellwerk.client.operator_port import OperatorPort

_PAGE: Final = 5000
"""Entries that the operator gives at once."""


@dataclass(frozen=True, slots=True)
class ListCommand:
    """A command that prints one of the operator's lists."""

    path: str
    HELP: str
    EXAMPLES: tuple[str, ...]
    namespaced: bool = True

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Arguments for the choice of entries, and for the form of the answer."""
        if self.namespaced:
            add_namespace_argument(parser)
            parser.add_argument(
                "-A", "--all-namespaces", action="store_true", help="pods of all namespaces"
            )
        parser.add_argument(
            "-w", "--watch", action="store_true", help="print again whenever it has changed"
        )
        add_output_arguments(parser)
        add_port_arguments(parser)
        parser.set_defaults(log_level="warning")

    def run(self, options: argparse.Namespace) -> int:
        """Ask, and print the list.

        Raises:
            ConfigurationError: the arguments do not go together.
            UnreachableError: the operator does not answer.
        """
        import asyncio  # noqa: PLC0415

        everywhere = not self.namespaced or options.all_namespaces
        namespace = None if everywhere else namespace_of(options)
        asyncio.run(self._show(port_address(options), namespace, options))
        return 0

    async def _show(
        self, address: PortAddress, namespace: str | None, options: argparse.Namespace
    ) -> None:
        from stellwerk.commands.operator_port import open_port  # noqa: PLC0415
        from stellwerk.commands.tables import LISTS, MOST_ROWS, show  # noqa: PLC0415

        # A table of everything needs no more than its rows; what -n leaves out is known here alone.
        is_whole = options.output == "table" and namespace is None
        most = MOST_ROWS if is_whole else None
        async with open_port(address) as port:
            await show(
                lambda: _entries(port, self.path, namespace, most),
                options.output,
                LISTS[self.path],
                watch=options.watch,
            )


async def _entries(
    port: OperatorPort, path: str, namespace: str | None, most: int | None = None
) -> Mapping[str, Any]:
    """All pages as one answer, or the first entries; the pods of one namespace, or of all."""
    first = await port.written(f"{path}?limit={most or _PAGE}")
    items = list(first["items"])
    while most is None and len(items) < first["total"]:
        more = (await port.written(f"{path}?limit={_PAGE}&offset={len(items)}"))["items"]
        if not more:
            break
        items += more
    if namespace is None:
        return {**first, "items": items}
    inside = [each for each in items if each["pod"].startswith(f"{namespace}/")]
    return {**first, "total": len(inside), "items": inside}


QUEUE: Final = ListCommand(
    "/queue",
    "list the pods that wait, in the order in which they are tried",
    ("queue", "queue --all-namespaces --watch"),
)
DECISIONS: Final = ListCommand(
    "/decisions",
    "list the pods that got a node, the last one first",
    ("decisions", "decisions -n team -o json"),
)
NODES: Final = ListCommand(
    "/nodes",
    "list the nodes with what the scheduler counts on them",
    ("nodes", "nodes -o yaml"),
    namespaced=False,
)
