import io
import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typing_extensions import override

from stellwerk_cluster.apimachinery.failures import StatusError
from stellwerk_cluster.registry.data_directory import DataDirectory
from stellwerk_cluster.registry.store import Store
from stellwerk_kube.errors import ConfigurationError


def make(name: str, **spec: Any) -> dict[str, Any]:
    return {"metadata": {"namespace": "default", "name": name}, "spec": spec}


@contextmanager
def opened(path: Path) -> Iterator[tuple[DataDirectory, Store]]:
    directory, store = DataDirectory(path), Store()
    directory.restore(store)
    with closing(directory):
        yield directory, store


def state(store: Store) -> dict[str, dict[tuple[str, str], tuple[int, bytes]]]:
    collections = ((name, store.collection(name).entries()) for name in store.names())
    return {
        name: {each.key: (each.revision, each.data) for each in entries}
        for name, entries in collections
        if entries
    }


def log_of(path: Path) -> Path:
    return max(path.glob("log-*"))


class FullDisk(io.FileIO):
    """A log that takes only half of what is written."""

    def __init__(self, name: str) -> None:
        super().__init__(name, "r+b")
        self.seek(0, os.SEEK_END)

    @override
    def write(self, line: Any) -> int:
        return super().write(line[: len(line) // 2])


def killed(path: Path) -> Path:
    """A copy of a directory as a process leaves it that is killed now."""
    return Path(shutil.copytree(path, path.with_name(f"{path.name}-killed")))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.mark.parametrize("in_order", [True, False])
def test_a_restart_finds_every_object_at_its_version(path: Path, *, in_order: bool) -> None:
    with opened(path) as (_, store):
        kept = store.create("pods", make("kept"))
        gone = store.create("pods", make("gone"))
        store.create("nodes", {"metadata": {"name": "n"}})
        store.replace("pods", make("kept", x="ä"), kept)
        store.remove("pods", gone)
        left = killed(path)
    with opened(path if in_order else left) as (_, after):
        assert state(after) == state(store)
        assert (after.revision == store.revision) is in_order


def test_after_a_kill_no_version_is_given_twice_and_watches_begin_anew(path: Path) -> None:
    with opened(path) as (_, store):
        store.create("pods", make("a"))
        left = killed(path)
    with opened(left) as (_, after):
        assert after.revision > store.revision
        assert after.collection("pods").forgotten == after.revision
        assert after.collection("never used before").forgotten == after.revision


operation = st.tuples(
    st.sampled_from(["put", "drop", "restart", "kill"]),
    st.sampled_from(["pods", "nodes"]),
    st.sampled_from("abc"),
    st.integers(0, 1000),
)


@settings(deadline=None)
@given(st.lists(operation, max_size=20))
def test_any_history_is_kept(history: list[tuple[str, str, str, int]]) -> None:
    with TemporaryDirectory() as name, ExitStack() as stack:
        path = Path(name) / "data"
        _, store = stack.enter_context(opened(path))
        for act, resource, key, number in history:
            present = store.collection(resource).get(("default", key))
            obj = make(key, number=number)
            if act in {"restart", "kill"}:
                before = state(store)
                path = killed(path) if act == "kill" else path
                stack.pop_all().close()
                _, store = stack.enter_context(opened(path))
                assert state(store) == before
            elif act == "drop" and present is not None:
                store.remove(resource, present)
            elif present is not None:
                store.replace(resource, obj, present)
            else:
                store.create(resource, obj)


def test_a_change_that_was_not_written_to_its_end_is_cut_off_and_told(path: Path) -> None:
    with opened(path) as (_, store):
        store.create("pods", make("a"))
        whole = state(store)
        store.create("pods", make("b"))
        left = killed(path)
    log = log_of(left)
    log.write_bytes(log.read_bytes()[:-10])
    with opened(left) as (again, after):
        assert state(after) == whole
        assert len(again.notes) == 1
        assert "not written to its end" in again.notes[0]


@pytest.mark.parametrize("file", ["log", "snapshot"])
def test_a_damaged_file_is_refused_with_the_place(path: Path, file: str) -> None:
    with opened(path) as (_, store):
        store.create("pods", make("a"))
    if file == "snapshot":
        with opened(path):
            pass
    damaged = max(path.glob(f"{file}-*"))
    damaged.write_bytes(damaged.read_bytes().replace(b"default", b"fedault"))
    with pytest.raises(ConfigurationError, match=rf"{damaged.name} is damaged at byte \d+"):
        DataDirectory(path).restore(Store())


def test_a_snapshot_without_its_end_is_refused(path: Path) -> None:
    with opened(path):
        pass
    snapshot = max(path.glob("snapshot-*"))
    snapshot.write_bytes(snapshot.read_bytes()[:-10])
    with pytest.raises(ConfigurationError, match="its end is missing"):
        DataDirectory(path).restore(Store())


def test_a_file_of_something_else_is_refused(path: Path) -> None:
    path.mkdir()
    (path / "snapshot-00000001").write_bytes(b"something else")
    with pytest.raises(ConfigurationError, match="its end is missing"):
        DataDirectory(path).restore(Store())


def test_two_cannot_share_a_directory(path: Path) -> None:
    with opened(path), pytest.raises(ConfigurationError, match=r"in use by process \d+"):
        DataDirectory(path)
    with opened(path):
        pass


def test_a_directory_that_cannot_be_made_is_refused(path: Path) -> None:
    path.touch()
    with pytest.raises(ConfigurationError, match="Not a directory"):
        DataDirectory(path / "data")


def test_a_change_that_cannot_be_written_does_not_happen(path: Path) -> None:
    with opened(path) as (_, store):
        before = store.revision
    with pytest.raises(StatusError, match="is closed"):
        store.create("pods", make("a"))
    assert (store.revision, len(store.collection("pods"))) == (before, 0)


def test_a_full_disk_leaves_no_half_written_change(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(path) as (directory, store):
        store.create("pods", make("a"))
        whole = state(store)
        log = directory._log  # noqa: SLF001  (a disk that is full is stood in for)
        assert log is not None
        with FullDisk(log.name) as full:
            monkeypatch.setattr(directory, "_log", full)
            with pytest.raises(StatusError, match="no space left"):
                store.create("pods", make("b"))
        monkeypatch.setattr(directory, "_log", log)
        log.seek(0, os.SEEK_END)
        store.create("pods", make("c"))
        left = killed(path)
    with opened(left) as (directory, after):
        assert state(after).keys() == whole.keys()
        assert [key[1] for key in state(after)["pods"]] == ["a", "c"]
        assert directory.notes == []


def test_a_return_to_an_older_state_is_kept(path: Path) -> None:
    with opened(path) as (_, store):
        entry = store.create("pods", make("a"))
        before = store.revision
        store.replace("pods", make("a", x=1), entry)
        store.create("pods", make("b"))
        store.rewind(before)
    with opened(path) as (_, after):
        assert state(after) == state(store)


async def test_a_long_log_is_replaced_by_a_snapshot(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stellwerk_cluster.registry.data_directory._MIN_LOG_BYTES", 1000)
    with opened(path) as (directory, store):
        entry = store.create("pods", make("a"))
        for number in range(20):
            entry = store.replace("pods", make("a", x=number), entry)
        first = log_of(path)
        await directory.force()
        store.replace("pods", make("a", x="after"), entry)
        assert not first.exists()
        assert log_of(path).stat().st_size < 1000
        left = killed(path)
    with opened(left) as (_, after):
        assert state(after) == state(store)
