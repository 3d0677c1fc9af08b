"""`stellwerk queue`, `decisions`, `nodes` and `devices`: the operator's lists, as kubectl's.

The command line calls them. The columns of each table are TITLES and `rows()` of its page in
`stellwerk.answers`; `explained_node` has the table of one node. Invariant: they only read, and a
table shows at most as many rows as fit its reader, with the number of those that it leaves out;
JSON and YAML hold all.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol
from urllib.parse import urlencode

from stellwerk_cli.commands.door import DoorAddress, add_door_arguments, door_address
from stellwerk_cli.commands.port_arguments import (
    add_namespace_argument,
    add_output_arguments,
    add_port_arguments,
    namespace_of,
    port_address,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from typing import TypeAlias

    from stellwerk_cli.commands.door import Port
    from stellwerk_cli.commands.output import Shown
    from stellwerk_cli.commands.printer import Printer
    from stellwerk_kube.selectors import LabelSelector

    Wanted: TypeAlias = Callable[[Mapping[str, Any]], bool] | None

_MAX_NAMESPACES: Final = 5
"""Namespaces that are named where the one that was asked for has no entries."""
_MAX_ENTRIES_PER_PAGE: Final = 5000
"""Entries that the operator gives in one answer."""
MAX_ROWS: Final = 500
"""Rows of a table: more than are read. JSON and YAML have all entries."""


@dataclass(frozen=True, slots=True)
class Filter:
    """An option by which the operator chooses entries."""

    option: str
    asks: str
    """The word of the operator's port."""
    help: str
    metavar: str
    choices: tuple[str, ...] = ()


_MATCH: Final = Filter("--match", "q", "only those whose name contains this text", "TEXT")


@dataclass(frozen=True, slots=True)
class ListCommand:
    """A command that prints one of the operator's lists."""

    path: str
    HELP: str
    EXAMPLES: tuple[str, ...]
    namespaced: bool = True
    labelled: bool = True
    """Whether entries have the labels of their objects."""
    filters: tuple[Filter, ...] = (_MATCH,)
    may_be_read: bool = True
    """Whether a cluster that is read can answer in place of an operator."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Arguments for the choice of entries, and for the form of the answer."""
        if self.namespaced:
            add_namespace_argument(parser)
            parser.add_argument(
                "-A", "--all-namespaces", action="store_true", help="list all namespaces"
            )
        if self.labelled:
            parser.add_argument(
                "-l",
                "--selector",
                metavar="SELECTOR",
                type=_selector,
                help="only those with these labels, in kubectl's syntax: app=web,tier!=test",
            )
        for each in self.filters:
            parser.add_argument(
                each.option,
                dest=each.asks,
                metavar=each.metavar,
                choices=each.choices or None,
                help=each.help,
            )
        parser.add_argument(
            "-w", "--watch", action="store_true", help="print the answer again whenever it changes"
        )
        add_output_arguments(parser)
        (add_door_arguments if self.may_be_read else add_port_arguments)(parser)
        parser.set_defaults(log_level="warning")

    def run(self, options: argparse.Namespace) -> int:
        """Ask, and print the list.

        Raises:
            ConfigurationError: the arguments do not go together.
            UnreachableError: the operator does not answer.
        """
        import asyncio  # noqa: PLC0415

        to_operator = None if self.may_be_read else DoorAddress(port_address(options))
        address = to_operator or door_address(options)
        everywhere = not self.namespaced or options.all_namespaces
        namespace = None if everywhere else namespace_of(options)
        selector = options.selector if self.labelled else None
        elsewhere = set[str]()

        def is_wanted(entry: Mapping[str, Any]) -> bool:
            if selector is not None and not selector.matches(entry.get("labels") or {}):
                return False
            if namespace is None or entry["pod"].startswith(f"{namespace}/"):
                return True
            elsewhere.add(entry["pod"].partition("/")[0])
            return False

        wanted = None if namespace is selector is None else is_wanted
        answer = asyncio.run(self._show(address, wanted, options))
        is_empty = not answer["items"] and not answer.get("unserved")
        if elsewhere and is_empty and options.output in {"table", "wide"}:
            _say_elsewhere(str(namespace), sorted(elsewhere))
        return 0

    async def _show(
        self, address: DoorAddress, wanted: Wanted, options: argparse.Namespace
    ) -> Mapping[str, Any]:
        from stellwerk_cli.commands.door import open_door  # noqa: PLC0415
        from stellwerk_cli.commands.output import show  # noqa: PLC0415

        # A table of everything needs no more than its rows; what is left out is known here alone.
        is_whole = options.output == "table" and wanted is None
        most = MAX_ROWS if is_whole else None
        asked = {each.asks: getattr(options, each.asks) for each in self.filters}
        asked = {word: value for word, value in asked.items() if value}
        async with open_door(address) as door:
            return await show(
                lambda: _entries(door, self.path, wanted, most, asked),
                options.output,
                shown_lists()[self.path],
                watch=options.watch,
                door=door,
            )


async def _entries(
    port: Port,
    path: str,
    wanted: Wanted,
    most: int | None,
    asked: Mapping[str, str],
) -> Mapping[str, Any]:
    """All pages as one answer, or the first entries; those that are wanted, or all.

    `asked`: what the operator itself chooses by.
    """

    def part(**place: int) -> str:
        return f"{path}?{urlencode({**place, **asked})}"

    first = await port.ask_json(part(limit=most or _MAX_ENTRIES_PER_PAGE))
    items = list(first["items"])
    while most is None and len(items) < first["total"]:
        more = (await port.ask_json(part(limit=_MAX_ENTRIES_PER_PAGE, offset=len(items))))["items"]
        if not more:
            break
        items += more
    if wanted is None:
        return {**first, "items": items}
    inside = list(filter(wanted, items))
    answer = {**first, "total": len(inside), "items": inside}
    if "unserved" in first:
        unserved = list(filter(wanted, first["unserved"]))
        answer |= {"unserved": unserved, "unservedTotal": len(unserved)}
    return answer


class ListPage(Protocol):
    """An answer that is a list: it says what its table shows (`stellwerk.answers`)."""

    TITLES: ClassVar[Sequence[str]]
    NONE: ClassVar[str]
    """The sentence in place of an empty table."""

    def rows(self) -> Iterator[tuple[str, ...]]:
        """The cells of each entry, under the titles."""
        ...

    def count(self) -> int:
        """The entries that there are, on this page or not."""
        ...

    def remarks(self) -> Iterator[str]:
        """Lines below the table."""
        ...

    def names(self) -> Iterator[str]:
        """Each entry as an argument for commands."""
        ...


def shown_lists() -> Mapping[str, Shown[Any]]:
    """The kinds of lists with their tables and names, by path; rich is imported with them."""
    from stellwerk.answers.decisions import DecisionsPage  # noqa: PLC0415
    from stellwerk.answers.devices import DevicesPage  # noqa: PLC0415
    from stellwerk.answers.nodes import NodesPage  # noqa: PLC0415
    from stellwerk.answers.queue import QueuePage, UnboundPods  # noqa: PLC0415
    from stellwerk_cli.commands.output import Shown  # noqa: PLC0415

    def names(page: ListPage) -> Iterator[str]:
        return page.names()

    return {
        "/queue": Shown(QueuePage, print_list, names, Shown(UnboundPods, print_list, names)),
        "/decisions": Shown(DecisionsPage, print_list, names),
        "/nodes": Shown(NodesPage, print_list, names),
        "/explain/devices": Shown(DevicesPage, print_list, names),
    }


def print_list(page: ListPage, to: Printer) -> None:
    """Print a list as `kubectl get` does, and how many entries are left out."""
    from stellwerk_cli.commands.printer import Column  # noqa: PLC0415 rich

    rows = list(islice(page.rows(), MAX_ROWS))
    if not rows:
        to.say(page.NONE)
    else:
        last = page.TITLES[-1]
        to.table(
            (Column(title, folds=True, is_one_line=title != last) for title in page.TITLES), rows
        )
        if page.count() > len(rows):
            to.say(f"{page.count() - len(rows)} more: -o json has all")
    for line in page.remarks():
        to.say((line, "yellow"))


def _say_elsewhere(namespace: str, others: Sequence[str]) -> None:
    """Say beside an empty list which namespaces it would have entries of."""
    from stellwerk_kube.names import suggestion  # noqa: PLC0415
    from stellwerk_kube.untrusted_text import printable  # noqa: PLC0415

    more = "" if len(others) <= _MAX_NAMESPACES else ", …"
    named = f"{', '.join(others[:_MAX_NAMESPACES])}{more}"
    near = suggestion(namespace, others)
    line = f"nothing in namespace {namespace}{near}; there are some in {named} (-A lists all)"
    sys.stderr.write(f"{printable(f'stellwerk: {line}')}\n")


def _selector(text: str) -> LabelSelector:
    """A label selector, as kubectl takes it."""
    from stellwerk_kube.label_selectors import (  # noqa: PLC0415
        LabelSelectorError,
        parse_selector_text,
    )

    try:
        return parse_selector_text(text)
    except LabelSelectorError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


QUEUE: Final = ListCommand(
    "/queue",
    "list pending pods in the order in which they are tried",
    ("queue", "queue --all-namespaces --watch", "queue -l app=web", "queue -A --queue gated"),
    filters=(
        _MATCH,
        Filter(
            "--queue",
            "queue",
            "only pods of this queue: active, backoff, unschedulable or gated; unserved: pods "
            "that no scheduler serves",
            "QUEUE",
            ("active", "backoff", "unschedulable", "gated", "unserved"),
        ),
        Filter("--plugin", "plugin", "only pods that this plugin rejected", "PLUGIN"),
    ),
)
DECISIONS: Final = ListCommand(
    "/decisions",
    "list recent placements, the newest first",
    ("decisions", "decisions -n team -o json", "decisions -A --node node-1"),
    labelled=False,
    may_be_read=False,
    filters=(_MATCH, Filter("--node", "node", "only pods placed on this node", "NODE")),
)
NODES: Final = ListCommand(
    "/nodes",
    "list nodes with the resources that the scheduler counts as used",
    ("nodes", "nodes -l disk=ssd -o yaml", "nodes --sort-by memory"),
    namespaced=False,
    filters=(
        _MATCH,
        Filter(
            "--sort-by",
            "sort",
            "name, or a resource, the most used first (default: the order of arrival)",
            "name|RESOURCE",
        ),
    ),
)
DEVICES: Final = ListCommand(
    "/explain/devices",
    "list the devices that drivers offer, and the claims that hold them",
    ("devices", "devices --node node-1 --state free", "devices --match gpu -o json"),
    namespaced=False,
    labelled=False,
    filters=(
        _MATCH,
        Filter("--node", "node", "only devices for this node", "NODE"),
        Filter(
            "--state",
            "state",
            "only devices that a claim holds (held), or that none does (free)",
            "STATE",
            ("held", "free"),
        ),
    ),
)
