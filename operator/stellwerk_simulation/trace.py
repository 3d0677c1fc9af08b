"""Nodes and pods of a GPU trace, read from the CSV files as published (openb, 2023).

The command line reads them, arrivals and clusters are made of them. Invariant: every row has been
checked; what is wrong in a file is one message with the file, the line and the column.
"""

import csv
import io
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, TypeVar

from stellwerk.models.gpu import WHOLE
from stellwerk_kube.errors import ConfigurationError
from stellwerk_kube.file_limits import (
    MAX_LINE_CHARACTERS,
    MAX_TRACE_ROWS,
    allowed,
    read_trace,
    too_much,
)
from stellwerk_kube.json_values import JsonObject
from stellwerk_kube.names import is_label_value

Row = TypeVar("Row")

_MAX_DEVICES: Final = 64
"""Devices of a node or a pod. No machine has so many."""
_MAX_SHOWN_COLUMNS: Final = 12
"""Columns of a foreign trace that a message names: enough to see which file it is."""
_MAX_SHOWN_NAME: Final = 40
"""Characters of such a name that are shown."""
_MAX_NAME_CHARACTERS: Final = 253
"""Characters of a name, as of any object of Kubernetes."""
_PRICE: Final = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?")
_MAX_AMOUNT: Final = 1 << 50
"""The largest amount: far beyond any machine, and far from the end of an int64 when summed."""


@dataclass(frozen=True, slots=True)
class TraceNode:
    """A node of a trace."""

    name: str
    cpu_millis: int
    memory_mib: int
    devices: int
    model: str
    """The model of all its devices; empty: not known."""
    hourly_price: float = 0.0
    """In whatever money; 0: none is known."""
    manifest: JsonObject | None = field(default=None, compare=False, repr=False)
    """The v1.Node itself; None: it is made of the columns."""


@dataclass(frozen=True, slots=True)
class TracePod:
    """A pod of a trace."""

    name: str
    cpu_millis: int
    memory_mib: int
    devices: int
    gpu_milli: int
    """Thousandths of each device; below 1000 only with one device, 0 without any."""
    models: tuple[str, ...]
    """The models that it admits; empty: any."""
    arrives_seconds: float = 0.0
    """Since the first pod of the trace."""
    runs_seconds: float | None = None
    """Once it is bound; None: for as long as the simulation."""
    manifest: JsonObject | None = field(default=None, compare=False, repr=False)
    """The v1.Pod itself; None: it is made of the columns."""

    @property
    def total_milli(self) -> int:
        """Thousandths of all its devices."""
        return self.devices * self.gpu_milli

    @property
    def of_daemon_set(self) -> bool:
        """Whether a DaemonSet made it, so that it says nothing about a node's use."""
        owners = (self.manifest or {}).get("metadata", {}).get("ownerReferences") or ()
        return any(owner.get("kind") == "DaemonSet" for owner in owners)


def read_nodes(path: Path) -> list[TraceNode]:
    """The nodes of a file, at least one.

    Raises:
        ConfigurationError: the file cannot be read, or a row is no node.
    """
    return _unique(path, _rows(path, ("sn", "cpu_milli", "memory_mib", "gpu", "model"), _node))


def read_pods(path: Path) -> list[TracePod]:
    """The pods of a file, at least one.

    Raises:
        ConfigurationError: the file cannot be read, or a row is no pod.
    """
    columns = ("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli")
    return since_the_first(_unique(path, _rows(path, columns, _pod)))


def since_the_first(pods: Sequence[TracePod]) -> list[TracePod]:
    """Copies of the pods, moved in time so that the first arrives at 0."""
    first = min((pod.arrives_seconds for pod in pods), default=0.0)
    return [replace(pod, arrives_seconds=pod.arrives_seconds - first) for pod in pods]


class _Fields:
    """The columns of one line."""

    def __init__(self, place: str, values: Mapping[str, str]) -> None:
        self._place = place
        self._values = values

    def text(self, column: str) -> str:
        """The text of a cell, without blanks around it."""
        return self._values.get(column, "").strip()

    def name(self, column: str) -> str:
        """A name, which must not be empty."""
        text = self.text(column) or self.refuse(column, "is empty")
        if len(text) > _MAX_NAME_CHARACTERS or not text.isprintable():
            self.refuse(column, f"{text[:80]!r} cannot be a name")
        return text

    def number(self, column: str, most: int = _MAX_AMOUNT) -> int:
        """A whole number from 0 on."""
        text = self.text(column)
        if not (text.isascii() and text.isdecimal()):
            self.refuse(column, f"{text[:40]!r} is not a whole number from 0 on")
        # Longer ones are not even parsed: it takes quadratic time.
        if len(text) > len(str(most)) or int(text) > most:
            self.refuse(column, f"{text[:40]} is more than {most}")
        return int(text)

    def model(self, column: str, text: str) -> str:
        """The name of a model, which becomes the value of a label."""
        if not is_label_value(text):
            self.refuse(column, f"{text[:80]!r} cannot be the value of a label")
        return text

    def price(self, column: str) -> float:
        """An amount of money from 0 on; nothing: 0."""
        text = self.text(column) or "0"
        if not _PRICE.fullmatch(text):
            self.refuse(column, f"{text[:40]!r} is not a price, such as 0.35")
        return float(text)

    def times(self, arrival: str, begin: str, end: str) -> tuple[float, float | None]:
        """The arrival of a pod, and its running time; None: it did not end."""
        if not self.text(arrival):
            return 0.0, None
        came = self.number(arrival)
        if not self.text(end):
            return float(came), None
        began = self.number(begin) if self.text(begin) else came
        ended = self.number(end)
        if ended < began:
            self.refuse(end, f"{ended} is before {began}, when the pod began")
        return float(came), float(ended - began)

    def refuse(self, column: str, problem: str) -> str:
        """Raise what is wrong."""
        raise ConfigurationError(f"{self._place}, column {column}: {problem}")


def _node(fields: _Fields) -> TraceNode:
    return TraceNode(
        name=fields.name("sn"),
        cpu_millis=fields.number("cpu_milli"),
        memory_mib=fields.number("memory_mib", _MAX_AMOUNT >> 20),
        devices=fields.number("gpu", _MAX_DEVICES),
        model=fields.model("model", fields.text("model")),
        hourly_price=fields.price("hourly_price"),
    )


def _pod(fields: _Fields) -> TracePod:
    devices = fields.number("num_gpu", _MAX_DEVICES)
    milli = min(fields.number("gpu_milli"), WHOLE) if devices else 0
    if devices and not milli:
        fields.refuse("gpu_milli", "is 0 where num_gpu is not")
    if devices > 1 and milli < WHOLE:
        fields.refuse("gpu_milli", f"{milli} of each of {devices} devices: only one can be shared")
    models = fields.text("gpu_spec").split("|") if devices else []
    arrives, runs = fields.times("creation_time", "scheduled_time", "deletion_time")
    return TracePod(
        name=fields.name("name"),
        cpu_millis=fields.number("cpu_milli"),
        memory_mib=fields.number("memory_mib", _MAX_AMOUNT >> 20),
        devices=devices,
        gpu_milli=milli,
        models=tuple(fields.model("gpu_spec", model) for model in models if model),
        arrives_seconds=arrives,
        runs_seconds=runs,
    )


def _rows(
    path: Path, columns: tuple[str, ...], parse: Callable[[_Fields], Row]
) -> Iterator[tuple[int, Row]]:
    """(line, row) of a file."""
    reader = csv.DictReader(_lines(path), restval="", strict=True)
    try:
        _check_head(path, reader.fieldnames or (), columns)
        for values in reader:
            if None in values:
                message = f"{path}, line {reader.line_num}: more fields than columns"
                raise ConfigurationError(message)
            yield reader.line_num, parse(_Fields(f"{path}, line {reader.line_num}", values))
    except csv.Error as error:
        raise ConfigurationError(f"{path}, line {reader.line_num}: {error}") from error


def _check_head(path: Path, found: Sequence[str], wanted: Sequence[str]) -> None:
    """Refuse a first line without one of the columns, or with one of them twice."""
    for column in wanted:
        if column not in found:
            needed = f"a row needs {', '.join(wanted)}"
            there = ", ".join(name[:_MAX_SHOWN_NAME] for name in list(found)[:_MAX_SHOWN_COLUMNS])
            more = ", …" if len(found) > _MAX_SHOWN_COLUMNS else ""
            raise ConfigurationError(
                f"{path}, line 1: there is no column {column}; {needed}, as the openb traces have "
                f"them, and this file has {there or 'none'}{more}"
            )
    for column, times in Counter(found).items():
        if column and times > 1:
            raise ConfigurationError(f"{path}, line 1: the column {column[:80]} occurs twice")


def _unique(path: Path, rows: Iterator[tuple[int, "Named"]]) -> list["Named"]:
    lines: dict[str, int] = {}
    found, most = [], allowed(MAX_TRACE_ROWS)
    for line, row in rows:
        first = lines.setdefault(row.name, line)
        if first != line:
            message = f"{path}, line {line}: the name {row.name} stands in line {first} already"
            raise ConfigurationError(message)
        found.append(row)
        if len(found) > most:
            raise ConfigurationError(f"{path}, line {line}: {too_much(f'{most:,} rows')}")
    if not found:
        raise ConfigurationError(f"{path}: there is no row")
    return found


Named = TypeVar("Named", TraceNode, TracePod)


def _content(path: Path) -> bytes:
    """A whole file, which is UTF-8, unpacked if its name ends in .xz."""
    try:
        content = read_trace(path)
    except OSError as error:
        raise ConfigurationError(f"cannot read {path}: {error.strerror or error}") from error
    try:
        content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ConfigurationError(f"{path}, line {line}: not UTF-8") from error
    return content


def _lines(path: Path) -> Iterator[str]:
    """The lines of a file as they stand there, none of which is read beyond its limit."""
    # An io.StringIO would hold four bytes for each character.
    text = io.TextIOWrapper(io.BytesIO(_content(path)), encoding="utf-8-sig", newline="")
    most = allowed(MAX_LINE_CHARACTERS)
    number = 0
    while line := text.readline(most + 1):
        number += 1
        if len(line) > most:
            message = too_much(f"{most:,} characters in a line")
            raise ConfigurationError(f"{path}, line {number}: {message}")
        yield line
