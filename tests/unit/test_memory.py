"""What is left is known from the kernel's own files."""

import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from stellwerk import memory
from stellwerk.memory import MemoryUse, memory_use

MIB = 1 << 20


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The files of a kernel: 50 MiB resident of a machine that has more, and no limits."""
    pages = resource.getpagesize()
    monkeypatch.setattr(memory, "_PROC", tmp_path / "proc")
    monkeypatch.setattr(memory, "_CGROUPS", tmp_path / "cgroup")
    (tmp_path / "proc").mkdir()
    (tmp_path / "cgroup").mkdir()
    (tmp_path / "proc" / "statm").write_text(f"{400 * MIB // pages} {50 * MIB // pages} 1 1 0 1 0")
    (tmp_path / "proc" / "cgroup").write_text("0::/kubepods/pod1/c1\n")
    memory.resident_limit_bytes.cache_clear()
    monkeypatch.setattr(resource, "getrlimit", lambda _: (resource.RLIM_INFINITY,) * 2)
    yield tmp_path
    memory.resident_limit_bytes.cache_clear()


def test_without_a_limit_the_machine_is_it(kernel: Path) -> None:
    use = memory_use()
    assert use.taken_bytes == 50 * MIB
    assert use.limit_bytes > 200 * MIB
    (kernel / "proc" / "statm").unlink()
    assert memory_use().share == 0, "where nothing says what is taken, everything is allowed"


@pytest.mark.parametrize(
    "file",
    [
        pytest.param("memory.max", id="a container's own group"),
        pytest.param("memory/memory.limit_in_bytes", id="version 1"),
        pytest.param("kubepods/pod1/memory.max", id="a group above, seen from the machine"),
    ],
)
def test_the_smallest_limit_of_a_control_group_counts(kernel: Path, file: str) -> None:
    (kernel / "cgroup" / "memory.max").parent.mkdir(exist_ok=True)
    path = kernel / "cgroup" / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{100 * MIB}\n")
    other = kernel / "cgroup" / "kubepods"
    other.mkdir(exist_ok=True)
    (other / "memory.max").write_text("max\n")
    assert memory_use() == MemoryUse(50 * MIB, 100 * MIB)
    assert str(memory_use()) == "50 of 100 MiB of memory"


def test_address_space_counts_where_it_is_nearer_to_its_limit(
    kernel: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (kernel / "cgroup" / "memory.max").write_text(str(100 * MIB))
    monkeypatch.setattr(resource, "getrlimit", lambda _: (500 * MIB,) * 2)
    assert memory_use() == MemoryUse(400 * MIB, 500 * MIB)
