"""The results of a sweep in one file of SQLite: each is there whole, or not at all.

Sweeps put runs into it and take them out again, be it days later. Invariant: what was put in stays,
however the process ends; a file of another grid, or of something else, is never written to.
"""

import sqlite3
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import orjson

from stellwerk_kube.errors import ConfigurationError
from stellwerk_simulation.run_metrics import Event, RunResult

_FORMAT: Final = "stellwerk sweep 1"
_SCHEMA: Final = """
CREATE TABLE about (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE runs (
    id TEXT PRIMARY KEY, cluster TEXT NOT NULL, profile TEXT NOT NULL, seed INTEGER NOT NULL,
    version TEXT NOT NULL, result BLOB NOT NULL
);
"""
_LOCK_SECONDS: Final = 10.0
"""Longest wait for another sweep that writes into the same file."""


@dataclass(frozen=True, slots=True)
class SweepRun:
    """One run of a sweep."""

    id: str
    """The hash of everything that goes into it, Stellwerk's version included."""
    cluster: str
    profile: str
    seed: int


class SweepResults:
    """A file of results."""

    def __init__(self, file: Path, grid: str) -> None:
        """Open the file, or make it; `grid`: the digest of the grid that it belongs to.

        Raises:
            ConfigurationError: it cannot be used, or holds the results of another grid.
        """
        self.file = file
        with self._said():
            self._database = sqlite3.connect(file, timeout=_LOCK_SECONDS)
            try:
                self._begin(grid)
            except BaseException:
                self._database.close()
                raise

    def _begin(self, grid: str) -> None:
        tables = {name for (name,) in self._rows("SELECT name FROM sqlite_master")}
        if not tables:
            self._database.executescript(f"BEGIN EXCLUSIVE;{_SCHEMA}COMMIT;")
            with self._database:
                self._database.executemany(
                    "INSERT INTO about VALUES (?, ?)", [("format", _FORMAT), ("grid", grid)]
                )
            return
        about = dict(self._rows("SELECT key, value FROM about")) if "about" in tables else {}
        if about.get("format") != _FORMAT:
            raise ConfigurationError(f"{self.file}: is not a results file of a sweep")
        if about.get("grid") != grid:
            message = "has the results of another grid, with other clusters or profiles"
            raise ConfigurationError(f"{self.file}: {message}; name another file with --results")

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    def ids(self) -> frozenset[str]:
        """The runs that are there.

        Raises:
            ConfigurationError: the file cannot be read.
        """
        with self._said():
            return frozenset(name for (name,) in self._rows("SELECT id FROM runs"))

    def put(self, run: SweepRun, result: RunResult, version: str) -> None:
        """Add the result of a run.

        Raises:
            ConfigurationError: the file cannot be written.
        """
        row = (run.id, run.cluster, run.profile, run.seed, version, _written(result))
        with self._said(), self._database:
            self._database.execute("INSERT OR REPLACE INTO runs VALUES (?, ?, ?, ?, ?, ?)", row)

    def of(self, ids: Collection[str]) -> Mapping[str, RunResult]:
        """The results of runs, as far as they are there, by id.

        Raises:
            ConfigurationError: the file cannot be read.
        """
        with self._said():
            rows = self._rows("SELECT id, result FROM runs")
            return {name: _read(result) for name, result in rows if name in ids}

    def _rows(self, query: str) -> list[tuple[Any, ...]]:
        return self._database.execute(query).fetchall()

    @contextmanager
    def _said(self) -> Iterator[None]:
        """Say in one line what is wrong with the file."""
        try:
            yield
        except (sqlite3.Error, orjson.JSONDecodeError, KeyError, TypeError) as error:
            reason = " ".join(str(error).split())
            raise ConfigurationError(f"cannot use {self.file}: {reason}") from error


def _written(result: RunResult) -> bytes:
    return orjson.dumps({**asdict(result), "events": [list(each) for each in result.events]})


def _read(text: bytes) -> RunResult:
    fields = orjson.loads(text)
    fields["events"] = [Event(*each) for each in fields["events"]]
    fields["waiting_seconds"] = tuple(fields["waiting_seconds"])
    return RunResult(**fields)
