"""The measured usage of nodes: what a source read last, as columns over the snapshot's rows.

The load-aware plugins each have a UsageTable over an object of kind NodeUsage, which their source
has read. Invariant: a number that cannot be one (not finite, of a node that is not there) is never
in a column, and one that is too old is missing from the moment at which it is.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, TypeGuard

import numpy as np
import numpy.typing as npt

from stellwerk.plugin_api import ChangeCursor, Handle, IntColumn, JsonObject

KIND: Final = "NodeUsage"
FloatColumn = npt.NDArray[np.float64]

COLUMNS: Final = ("cpuFirst", "cpuLast", "cpuMean", "cpuDeviation", "memoryMean", "memoryDeviation")
"""Percent of the node's capacity: the first and the last mean or latest value of the answer, and
the means and deviations by which risk is reckoned (NaN: there is no number of that resource)."""

FULL_PERCENT: Final = 100.0
_HALF: Final = 0.5
_BELOW_HALF: Final = math.nextafter(0.5, 0.0)
_NAMED: Final = 3
MAX_USAGE_NODES: Final = 50_000
"""Nodes of one reading, ten times as many as a cluster has."""
_MAX_METRICS: Final = 64
"""Metrics of one node. Further ones are not read."""
_LARGEST_PERCENT: Final = 1e9
_LARGEST_NUMBER: Final = 1e15
_AVERAGE: Final = "AVG"
_LATEST: Final = "Latest"
_DEVIATION: Final = "STD"


class Usage:
    """Measured usage of nodes, checked and kept small while it is read."""

    def __init__(self, end: object) -> None:
        """`end`: of the measured window, in seconds since the epoch; 0 if it is no such number."""
        self._end_seconds = int(end) if _is_number(end) else 0
        self._nodes: list[str] = []
        self._known: list[bool] = []
        self._at: list[float | None] = []
        self._columns: dict[str, list[float | None]] = {name: [] for name in COLUMNS}
        self._refused = 0

    def add(self, name: str, metrics: object, measured_seconds: object = None) -> None:
        """Take in the metrics of one node, in load-watcher's form.

        Raises:
            ValueError: there are more nodes than any cluster has.
        """
        if len(self._nodes) == MAX_USAGE_NODES:
            raise ValueError(f"more than {MAX_USAGE_NODES} nodes")
        listed = metrics[:_MAX_METRICS] if isinstance(metrics, list) else ()
        good = [each for each in listed if _is_metric(each)]
        self._refused += len(listed) - len(good)
        self._nodes.append(name)
        self._known.append(isinstance(metrics, list))
        self._at.append(float(measured_seconds) if _is_number(measured_seconds) else None)
        for column, value in _of_node(good).items():
            self._columns[column].append(value)

    def fields(self) -> JsonObject:
        """All of it, as the object of kind NodeUsage shows it."""
        return {
            "end": self._end_seconds,
            "nodes": self._nodes,
            "known": self._known,
            "at": self._at,
            "refused": self._refused,
            **self._columns,
        }


def checked_usage(answer: object) -> JsonObject:
    """Usage by node from load-watcher's JSON, in a form that is small and checked.

    Raises:
        ValueError: the answer is of another form.
    """
    if not isinstance(answer, Mapping):
        raise ValueError(  # noqa: TRY004 what a source answers is a value
            f"an object is expected, not {type(answer).__name__}"
        )
    window = answer.get("window")
    usage = Usage(window.get("end") if isinstance(window, Mapping) else 0)
    data = answer.get("data")
    by_node = data.get("NodeMetricsMap") if isinstance(data, Mapping) else None
    for name, of_node in by_node.items() if isinstance(by_node, Mapping) else ():
        if isinstance(of_node, Mapping):
            usage.add(str(name), of_node.get("metrics"), of_node.get("timestamp"))
        else:
            usage.add(str(name), None)
    return usage.fields()


def _is_number(value: object) -> TypeGuard[float]:
    """Whether it is one, and one that a float holds."""
    return (
        isinstance(value, (int, float))
        and not isinstance(value, bool)
        and abs(value) <= _LARGEST_NUMBER
    )


def _is_metric(metric: object) -> bool:
    if not isinstance(metric, Mapping):
        return False
    value = metric.get("value", 0)
    return _is_number(value) and 0 <= value <= _LARGEST_PERCENT


def _of_node(metrics: Sequence[Mapping[str, Any]]) -> dict[str, float | None]:
    """One node's values; None where there is no number."""
    cpu = [each for each in metrics if each.get("type") == "CPU"]
    memory = [each for each in metrics if each.get("type") == "Memory"]
    loads = [_value(each) for each in cpu if each.get("operator") in {_AVERAGE, _LATEST}]
    cpu_mean, cpu_deviation = _mean_and_deviation(cpu)
    memory_mean, memory_deviation = _mean_and_deviation(memory)
    return {
        "cpuFirst": loads[0] if loads else None,
        "cpuLast": loads[-1] if loads else None,
        "cpuMean": cpu_mean,
        "cpuDeviation": cpu_deviation,
        "memoryMean": memory_mean,
        "memoryDeviation": memory_deviation,
    }


def _mean_and_deviation(
    metrics: Iterable[Mapping[str, Any]],
) -> tuple[float | None, float | None]:
    """The mean, or else the latest value, and the deviation; None without any metric."""
    mean, deviation, averaged, valid = 0.0, 0.0, False, False
    for each in metrics:
        valid, operator = True, each.get("operator", "")
        if operator == _AVERAGE:
            mean, averaged = _value(each), True
        elif operator == _DEVIATION:
            deviation = _value(each)
        elif operator in {"", _LATEST} and not averaged:
            mean = _value(each)
    return (mean, deviation) if valid else (None, None)


def _value(metric: Mapping[str, Any]) -> float:
    return float(metric.get("value", 0))


class UsageTable:
    """The usage that a source read last, by the rows of the snapshot."""

    def __init__(self, handle: Handle, name: str, max_age_seconds: float) -> None:
        """`name`: of the object; `max_age_seconds`: 0 takes numbers of any age."""
        self._handle = handle
        self._name = name
        self._max_age_seconds = max_age_seconds
        self._read = ChangeCursor(handle.objects.changes(KIND))
        self._nodes = ChangeCursor(handle.snapshot.node_changes)
        self._position: dict[str, int] = {}
        self._index: npt.NDArray[np.intp] = np.zeros(0, np.intp)
        """(N,) the position of each row's node in the answer; −1 it is not there."""
        self._values: dict[str, FloatColumn] = {}
        self._known: npt.NDArray[np.bool_] = np.zeros(1, np.bool_)
        self._at: FloatColumn = np.full(1, np.nan)
        """(M + 1,) float64, when each node of the answer was measured; NaN: it does not say."""
        self._oldest_seconds = math.nan
        """The oldest of them that counts; NaN: none."""
        self._columns: dict[str, FloatColumn] = {}
        self.answered = False
        """Whether the source has answered at all."""
        self.end_seconds = 0
        """The end of the measured window, in seconds since the epoch."""
        self.revision = 0
        """Changes when what is measured does."""
        self.version = 0
        """Changes with any column: also when a node comes, goes or is of another size."""
        self._stale = False
        self._missing = handle.metrics.gauge(
            "stellwerk_nodes_without_usage",
            "Nodes for which a load-aware plugin has no usable measurement.",
            *("profile", "source"),
        )
        self._show_missing()

    def refresh(self) -> int:
        """Follow the source, the nodes and the time; returns the revision."""
        changed = False
        if not self._read.current:
            self._read.catch_up()
            self._take_answer()
            changed = True
        changed |= self._follow_nodes()
        stale = self._is_stale()
        if self._leave_out_old() or stale != self._stale:
            self._stale = stale
            self._columns.clear()
            self.revision += 1
            changed = True
        if changed:
            self.version += 1
            self._show_missing()
        return self.revision

    def _show_missing(self) -> None:
        nodes = len(self._handle.snapshot.row_of)
        measured = int(np.count_nonzero(self.measured())) if len(self._index) else 0
        self._missing.set(max(0, nodes - measured), self._handle.profile_name, self._name)

    def column(self, name: str) -> FloatColumn:
        """(N,) float64, percent; NaN: not known, or too old."""
        found = self._columns.get(name)
        if found is None or len(found) != len(self._index):
            values = self._values.get(name)
            if values is None or self._stale:
                found = np.full(len(self._index), np.nan)
            else:
                found = values[self._index]
            self._columns[name] = found
        return found

    def measured(self) -> npt.NDArray[np.bool_]:
        """(N,) bool, the rows of which the source has said something that counts."""
        if self._stale:
            return np.zeros(len(self._index), np.bool_)
        known: npt.NDArray[np.bool_] = self._known[self._index]
        return known

    def age_seconds(self) -> float:
        """Seconds since the window ended."""
        return self._handle.now().timestamp() - self.end_seconds

    def explained(self, nodes: Sequence[str]) -> str:
        """Source and age of the numbers, and the number of nodes without any."""
        if not self.answered:
            return f"{self._name} has not answered: every node counts as without measurements"
        missing = [name for name in nodes if not self._is_measured(name)]
        text = f"usage of {self._name}, measured {max(0.0, self.age_seconds()):.0f} s ago"
        if self._stale:
            limit = f"{self._max_age_seconds:g} s (maxAgeSeconds)"
            if self.age_seconds() < 0:
                ahead = f"measured {-self.age_seconds():.0f} s ahead of this clock"
                return f"usage of {self._name}, {ahead}: more than {limit}, so it counts as missing"
            return f"{text}: older than {limit}, so it counts as missing"
        if missing:
            some = ", ".join(missing[:_NAMED]) + (", …" if len(missing) > _NAMED else "")
            text += f"; {len(missing)} of {len(nodes)} nodes have no measurement ({some})"
        return text

    def _is_measured(self, name: str) -> bool:
        row = self._handle.snapshot.row_of.get(name)
        return row is not None and row < len(self._index) and bool(self._known[self._index[row]])

    def _is_stale(self) -> bool:
        """Whether it is too old, or of a time as far ahead: one of the two clocks is wrong then."""
        return bool(self._max_age_seconds) and abs(self.age_seconds()) > self._max_age_seconds

    def _take_answer(self) -> None:
        """The object was read anew, or is gone."""
        shown = self._handle.objects.get(KIND, "", self._name)
        self.answered = shown is not None
        answer: JsonObject = shown or {}
        names = answer.get("nodes", ())
        self.end_seconds = int(answer.get("end", 0))
        self._position = {name: position for position, name in enumerate(names)}
        self._known = np.array([*answer.get("known", ()), False], np.bool_)
        self._values = {
            name: np.array([*answer.get(name, ()), None], np.float64) for name in COLUMNS
        }
        self._at = np.array([*answer.get("at", ()), None], np.float64)
        self._oldest_seconds = -math.inf
        self._leave_out_old()
        self._columns.clear()
        self._nodes = ChangeCursor(self._handle.snapshot.node_changes)
        self.revision += 1

    def _leave_out_old(self) -> bool:
        """Nodes whose own measurement is too old have none; returns whether there were any."""
        now_seconds = self._handle.now().timestamp()
        limit = now_seconds - self._max_age_seconds
        if not (self._max_age_seconds and self._oldest_seconds < limit):
            return False
        old = (self._at < limit) | (self._at > now_seconds + self._max_age_seconds)
        self._known &= ~old
        for values in self._values.values():
            values[old] = np.nan
        self._columns.clear()
        self._oldest_seconds = float(np.fmin.reduce(np.where(old, np.nan, self._at)))
        return True

    def _follow_nodes(self) -> bool:
        """Find the position of each row whose node changed; returns whether any did."""
        snapshot = self._handle.snapshot
        rows = self._nodes.advance()
        if rows is None or len(self._index) != snapshot.size:
            self._index = np.full(snapshot.size, -1, np.intp)
            for name, row in snapshot.row_of.items():
                self._index[row] = self._position.get(name, -1)
            self._columns.clear()
        elif rows:
            for row in rows:
                node = snapshot.nodes[row]
                self._index[row] = -1 if node is None else self._position.get(node.name, -1)
            self._columns.clear()
        return rows != []


def whole_scores(values: FloatColumn) -> IntColumn:
    """(n,) int64, rounded half up; 0 of what is below it or no number. Takes `values` over."""
    np.fmax(values, 0.0, out=values)
    # Not a half: of the number just below a half the sum would be 1.
    values += _BELOW_HALF
    scores: IntColumn = values.astype(np.int64)
    return scores


def go_round(values: FloatColumn) -> FloatColumn:
    """Rounded half away from zero, exactly (`math.Round`)."""
    whole = np.trunc(values)
    rounded: FloatColumn = whole + np.where(np.abs(values - whole) >= _HALF, np.sign(values), 0.0)
    return rounded
