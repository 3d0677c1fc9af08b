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
from itertools import islice, zip_longest
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

    from stellwerk.answers.decisions import DecisionsPage
    from stellwerk_cli.commands.door import Port
    from stellwerk_cli.commands.output import Shown
    from stellwerk_cli.commands.printer import Column, Printer
    from stellwerk_kube.selectors import LabelSelector

    Wanted: TypeAlias = Callable[[Mapping[str, Any]], bool] | None

_MAX_NAMESPACES: Final = 5
"""Namespaces that are named where the one that was asked for has no entries."""
_MAX_ENTRIES_PER_PAGE: Final = 5000
"""Entries that the operator gives in one answer."""
MAX_TABLE_ROWS: Final = 500
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
    grouped: bool = False
    """Whether a table has pods of one controller that wait for the same reason as one row."""
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
            "-w",
            "--watch",
            action="store_true",
            help="keep watching: redraw a terminal every two seconds, otherwise print rows "
            "that are new or changed",
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
            if selector is not None and not selector.parsed.matches(entry.get("labels") or {}):
                return False
            if namespace is None or entry["pod"].startswith(f"{namespace}/"):
                return True
            elsewhere.add(entry["pod"].partition("/")[0])
            return False

        wanted = None if namespace is selector is None else is_wanted
        asked = {each.asks: getattr(options, each.asks) for each in self.filters}
        if self.grouped and options.output == "table":
            # An operator that groups by itself chooses by itself, too; an older one ignores this.
            from stellwerk.answers.queue import BY_CONTROLLER  # noqa: PLC0415 pydantic

            asked |= {"by": BY_CONTROLLER, "namespace": namespace}
            asked["labelSelector"] = None if selector is None else selector.text
        asked = {word: value for word, value in asked.items() if value}
        answer = asyncio.run(self._show(address, wanted, asked, options, elsewhere))
        if elsewhere and _is_empty(answer) and options.output in {"table", "wide"}:
            _say_elsewhere(str(namespace), sorted(elsewhere))
        return 0

    async def _show(
        self,
        address: DoorAddress,
        wanted: Wanted,
        asked: Mapping[str, str],
        options: argparse.Namespace,
        elsewhere: set[str],
    ) -> Mapping[str, Any]:
        """Print the list; `elsewhere` gets the namespaces that have entries, if this has none."""
        from stellwerk_cli.commands.door import open_door  # noqa: PLC0415
        from stellwerk_cli.commands.output import show  # noqa: PLC0415

        # A table of everything needs no more than its rows; what is left out is known here alone.
        is_grouped = "by" in asked
        is_whole = options.output == "table" and (wanted is None or is_grouped)
        # Beyond its rows a watched table would take entries for new, or for gone.
        is_whole = is_whole and not options.watch
        most = MAX_TABLE_ROWS if is_whole else None
        async with open_door(address) as door:
            answer = await show(
                lambda: _entries(door, self.path, wanted, most, asked),
                options.output,
                shown_lists()[self.path],
                watch=options.watch,
                door=door,
            )
            if "groups" in answer and _is_empty(answer) and "namespace" in asked:
                everywhere = {word: each for word, each in asked.items() if word != "namespace"}
                others = await _entries(door, self.path, None, most, everywhere)
                elsewhere.update(each["namespace"] for each in others["groups"])
                lost = others.get("unserved") or ()
                elsewhere.update(each["pod"].partition("/")[0] for each in lost)
            return answer


def _is_empty(answer: Mapping[str, Any]) -> bool:
    return not any(answer.get(each) for each in ("items", "groups", "unserved", "observed"))


async def _entries(
    port: Port,
    path: str,
    wanted: Wanted,
    most: int | None,
    asked: Mapping[str, str],
) -> Mapping[str, Any]:
    """All pages as one answer, or the first entries; those that are wanted, or all.

    `asked`: what the operator itself chooses by. An answer with groups is whole, and chosen there.
    """

    def part(**place: int) -> str:
        return f"{path}?{urlencode({**place, **asked})}"

    first = await port.ask_json(part(limit=most or _MAX_ENTRIES_PER_PAGE))
    if "groups" in first:
        return first
    items = list(first["items"])
    is_part = most is not None and wanted is None
    while not is_part and len(items) < first["total"]:
        more = (await port.ask_json(part(limit=_MAX_ENTRIES_PER_PAGE, offset=len(items))))["items"]
        if not more:
            break
        items += more
    if wanted is None:
        return {**first, "items": items}
    inside = list(filter(wanted, items))
    answer = {**first, "total": len(inside), "items": inside}
    if "observed" in first:
        answer["observed"] = list(filter(wanted, first["observed"]))
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
    from stellwerk.answers.queue import QueueGroups, QueuePage, UnboundPods  # noqa: PLC0415
    from stellwerk_cli.commands.output import Shown  # noqa: PLC0415

    def shown(kind: type[Any], gone: str = "", **others: Shown[Any]) -> Shown[Any]:
        return Shown(
            kind,
            print_list,
            lambda page: page.names(),
            changes=lambda: ChangedRows(gone).print,
            **others,
        )

    return {
        "/queue": shown(
            QueuePage,
            _LEFT,
            as_read=shown(UnboundPods),
            as_groups=shown(QueueGroups, _LEFT),
        ),
        "/decisions": Shown(
            DecisionsPage,
            print_decisions,
            lambda page: (*page.names(), *(each.pod for each in page.observed or ())),
            changes=lambda: ChangedDecisions().print,
        ),
        "/nodes": shown(NodesPage, _GONE),
        "/explain/devices": shown(DevicesPage, _GONE),
    }


_LEFT: Final = "left"
"""The word for a pod that is in no queue any more: it is bound, or deleted."""
_GONE: Final = "gone"


def print_list(page: ListPage, to: Printer) -> None:
    """Print a list as `kubectl get` does, and how many entries are left out."""
    most = MAX_TABLE_ROWS if to.max_rows is None else min(MAX_TABLE_ROWS, to.max_rows)
    rows = list(islice(page.rows(), most))
    if not rows:
        to.say(page.NONE)
    else:
        to.table(_columns(page), rows)
        if page.count() > len(rows):
            to.say(f"{page.count() - len(rows)} more: -o json has all")
    for line in page.remarks():
        to.say((line, "yellow"))


def print_decisions(page: DecisionsPage, to: Printer) -> None:
    """Print the decisions, and the bindings of observed schedulers beside ours."""
    _print_decisions(page, to, print_list, print_list)


def _print_decisions(
    page: DecisionsPage,
    to: Printer,
    decided: Callable[[ListPage, Printer], None],
    compared: Callable[[ListPage, Printer], None],
) -> None:
    from stellwerk.answers.observed import ComparedBindings  # noqa: PLC0415 pydantic

    if page.items or page.observed is None:
        decided(page, to)
    if page.observed is not None:
        if page.items:
            to.say(("Bindings of observed schedulers:", "bold"))
        compared(ComparedBindings(page.observed), to)


def _columns(page: ListPage, widths: Sequence[int] = (), *, titled: bool = True) -> list[Column]:
    from stellwerk_cli.commands.printer import Column  # noqa: PLC0415 rich

    last = page.TITLES[-1]
    return [
        Column(title * titled, folds=True, is_one_line=title != last, min_width=width)
        for title, width in zip_longest(page.TITLES, widths)
    ]


class ChangedRows:
    """The table of a list that is watched: once as a whole, then rows that are new or changed.

    Ages run without a change. A row of an entry that is gone says so, where `gone` has a word.
    """

    def __init__(self, gone: str) -> None:
        self._gone = gone
        self._rows: dict[tuple[str, ...], str] | None = None
        """The last rows without their ages, and the name in each."""
        self._widths: list[int] = []

    def print(self, page: ListPage, to: Printer) -> None:
        """Print the table, or what has changed in it."""
        ages = {at for at, title in enumerate(page.TITLES) if title in _AGES}
        rows = {
            tuple(cell for at, cell in enumerate(row) if at not in ages): row for row in page.rows()
        }
        before, self._rows = self._rows, {key: row[0] for key, row in rows.items()}
        if before is None:
            first = list(rows.values())[:MAX_TABLE_ROWS]
            cells = [*first, page.TITLES]
            # The last column is as wide as what comes.
            self._widths = [max(map(len, column)) for column in zip(*cells, strict=True)][:-1]
            print_list(page, to)
            return
        changed = [row for key, row in rows.items() if key not in before]
        if self._gone:
            left = dict.fromkeys(before.values()).keys() - set(self._rows.values())
            blank = [""] * (len(page.TITLES) - 2)
            changed += [(name, self._gone, *blank) for name in before.values() if name in left]
        if changed:
            columns = _columns(page, [*self._widths], titled=False)
            to.table(columns, dict.fromkeys(changed), has_titles=False)


class ChangedDecisions:
    """The lists of `stellwerk decisions` that are watched, each as ChangedRows."""

    def __init__(self) -> None:
        self._decided, self._compared = ChangedRows(""), ChangedRows("")

    def print(self, page: DecisionsPage, to: Printer) -> None:
        """Print both tables, or what has changed in them."""
        _print_decisions(page, to, self._decided.print, self._compared.print)


_AGES: Final = frozenset({"FOR", "AGE"})
"""Titles of the columns in which a time runs."""


def _say_elsewhere(namespace: str, others: Sequence[str]) -> None:
    """Say beside an empty list which namespaces it would have entries of."""
    from stellwerk_kube.names import suggestion  # noqa: PLC0415
    from stellwerk_kube.untrusted_text import printable  # noqa: PLC0415

    more = "" if len(others) <= _MAX_NAMESPACES else ", …"
    named = f"{', '.join(others[:_MAX_NAMESPACES])}{more}"
    near = suggestion(namespace, others)
    line = f"nothing in namespace {namespace}{near}; there are some in {named} (-A lists all)"
    sys.stderr.write(f"{printable(f'stellwerk: {line}')}\n")


@dataclass(frozen=True, slots=True)
class _Selector:
    """A label selector of the command line, and the text that it was."""

    text: str
    parsed: LabelSelector


def _selector(text: str) -> _Selector:
    """A label selector, as kubectl takes it."""
    from stellwerk_kube.label_selectors import (  # noqa: PLC0415
        LabelSelectorError,
        parse_selector_text,
    )

    try:
        return _Selector(text, parse_selector_text(text))
    except LabelSelectorError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


QUEUE: Final = ListCommand(
    "/queue",
    "list pending pods, those of one controller together; -o wide lists each, in the order in "
    "which they are tried",
    (
        "queue",
        "queue --all-namespaces --watch",
        "queue -l app=web -o wide",
        "queue -A --queue gated",
    ),
    grouped=True,
    filters=(
        _MATCH,
        Filter(
            "--queue",
            "queue",
            "only pods of this queue: active, backoff, unschedulable or gated; observed: pods "
            "that wait for an observed scheduler; unserved: pods that no scheduler serves",
            "QUEUE",
            ("active", "backoff", "unschedulable", "gated", "observed", "unserved"),
        ),
        Filter("--plugin", "plugin", "only pods that this plugin rejected", "PLUGIN"),
    ),
)
DECISIONS: Final = ListCommand(
    "/decisions",
    "list recent placements, the newest first, and how those of observed schedulers compare",
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
