"""Sources of an experiment's nodes and pods: CSV, manifests, a recording, a live cluster.

Experiments read them. Invariant: a source is read once, whatever is asked of it.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import TypeAlias

from typing_extensions import override

from stellwerk.models.json_values import JsonObject
from stellwerk.models.yaml_file import read_objects
from stellwerk_simulation.cluster_objects import USED
from stellwerk_simulation.manifests import is_manifest_file, nodes_of, pods_of
from stellwerk_simulation.recorded import SUFFIX, read_recording
from stellwerk_simulation.trace import TraceNode, TracePod, read_nodes, read_pods


class Source(ABC):
    """Nodes, pods and what else there is of a cluster."""

    def __init__(self, place: str, others: Sequence[JsonObject] = (), note: str = "") -> None:
        self.place = place
        """Where it is, as messages name it."""
        self.others = others
        """Every object, nodes and pods perhaps among them."""
        self.note = note
        """What is odd about it; empty: nothing."""

    @abstractmethod
    def nodes(self) -> list[TraceNode]:
        """The nodes, at least one.

        Raises:
            ConfigurationError: there is none, or one is wrong.
        """

    @abstractmethod
    def pods(self) -> list[TracePod]:
        """The pods, at least one.

        Raises:
            ConfigurationError: there is none, or one is wrong.
        """


class Objects(Source):
    """Manifests, from a file or from a cluster."""

    def __init__(self, objects: Sequence[JsonObject], place: str) -> None:
        super().__init__(place, objects)

    @override
    def nodes(self) -> list[TraceNode]:
        return nodes_of(self.others, self.place)

    @override
    def pods(self) -> list[TracePod]:
        return pods_of(self.others, self.place)


class _Table(Source):
    """A CSV file, of nodes or of pods."""

    def __init__(self, path: Path) -> None:
        super().__init__(str(path))
        self._path = path

    @override
    def nodes(self) -> list[TraceNode]:
        return read_nodes(self._path)

    @override
    def pods(self) -> list[TracePod]:
        return read_pods(self._path)


class _Recording(Source):
    """A journal of a cluster."""

    def __init__(self, path: Path) -> None:
        self._recorded = read_recording(path)
        damage = self._recorded.damage
        note = f"read up to here: {damage}" if damage else ""
        super().__init__(str(path), tuple(self._recorded.others.values()), note)

    @override
    def nodes(self) -> list[TraceNode]:
        return self._recorded.trace_nodes()

    @override
    def pods(self) -> list[TracePod]:
        return self._recorded.trace_pods()


Check: TypeAlias = Callable[[str, Sequence[JsonObject], AbstractSet[str]], None]
"""Looks at objects of a file, which begins messages, as objects of these kinds."""


def objects_of(files: Sequence[Path], check: Check) -> Objects:
    """Files of manifests as one cluster.

    Raises:
        ConfigurationError: one cannot be read.
    """
    found = []
    for file in files:
        objects = read_objects(file)
        check(f"-f {file}", objects, USED)
        found += objects
    return Objects(found, ", ".join(map(str, files)))


def source_of(path: Path, check: Check | None = None, at: str = "") -> Source:
    """A file, by the end of its name; `check` looks at manifests, whose place `at` names.

    Raises:
        ConfigurationError, JournalError: it cannot be read.
    """
    if is_manifest_file(path):
        objects = read_objects(path)
        if check is not None:
            check(f"{at} {path}", objects, USED)
        return Objects(objects, str(path))
    return _Recording(path) if path.suffix == SUFFIX else _Table(path)
