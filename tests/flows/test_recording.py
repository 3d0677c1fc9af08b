"""A recorded run is decided again exactly; what ends a recording ends nothing else."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest

from stellwerk.backend.cache import Cache
from stellwerk.journal.decoding import decode
from stellwerk.journal.entries import (
    Answered,
    Decided,
    Entry,
    GroupBegun,
    GroupDecided,
    Head,
    PluginState,
    SnapshotWritten,
    WatchEvent,
    Yielded,
    encode,
)
from stellwerk.journal.reader import Journal, open_journal
from stellwerk.journal.writer import JournalOptions
from stellwerk.scheduler import time_slice
from stellwerk.world.extenders import is_failure
from stellwerk.world.world import World
from stellwerk_kube.node import parse_node
from stellwerk_simulation.replaying import Replay
from stellwerk_simulation.rerunning import AsRecorded, Rerun
from tests.support.builders import make_node, make_pod
from tests.support.in_process import make_profile
from tests.support.recorded_kinds import KINDS, RECORDINGS, record
from tests.support.recorded_runs import (
    on_a_device,
    packing,
    record_gangs,
    record_partly_bound,
    record_run,
    replayed,
)


@pytest.mark.parametrize(
    ("seed", "hashed"),
    [
        pytest.param(1, False, id="names"),
        pytest.param(2, True, id="hashes"),
        pytest.param(3, False, id="names again", marks=pytest.mark.long),
        pytest.param(4, True, id="hashes again", marks=pytest.mark.long),
    ],
)
async def test_every_decision_comes_out_again(tmp_path: Path, seed: int, hashed: bool) -> None:  # noqa: FBT001 a parameter
    file = tmp_path / "journal"
    assert await record_run(JournalOptions(file, hashed=hashed), seed=seed) == []
    replay, journal = replayed(file)
    assert journal.damage == ""
    assert replay.result.differences == []
    assert replay.result.decisions == replay.result.equal > 300
    evicted = [
        entry for entry in open_journal(file) if isinstance(entry, Decided) and entry.victims
    ]
    assert evicted, "the run preempts"


async def test_profiles_by_namespace_come_out_again_though_labels_are_hashed(
    tmp_path: Path,
) -> None:
    file = tmp_path / "journal"
    options = JournalOptions(file, hashed=True)
    assert await record_run(options, pods=120, nodes=12, by_namespace=True) == []
    replay, _ = replayed(file)
    assert replay.result.differences == []
    assert replay.result.decisions == replay.result.equal > 100
    deciding = {entry.scheduler_name for entry in open_journal(file) if isinstance(entry, Decided)}
    assert len(deciding) == 3
    assert "default-scheduler" in deciding
    text = "".join(str(entry) for entry in open_journal(file))
    for name in ("batch", "packing", "tight"):
        assert f"'{name}'" not in text


async def test_what_a_selector_would_have_had_is_decided_by_its_profile(tmp_path: Path) -> None:
    file, manifest = tmp_path / "journal", packing("packing", "batch")
    await record_run(JournalOptions(file), pods=120, nodes=12, by_namespace=True)
    recorded = AsRecorded([manifest])
    rerun: Rerun | None = None
    for entry in open_journal(file):
        recorded.feed(entry)
        if isinstance(entry, Head):
            rerun = Rerun(entry, [manifest], seed=1)
        elif rerun is not None:
            rerun.feed(entry)
    assert rerun is not None
    arrived = [each.finish().arrived for each in (recorded, rerun)]
    assert 0 < arrived[0] <= arrived[1] < 120, "pods come to it also while they wait"
    assert 0 < rerun.outcomes.placed <= rerun.outcomes.arrived


@pytest.mark.parametrize(
    "order",
    [
        pytest.param("PPPNNa", id="pods listed before nodes"),
        pytest.param("PPaaNNa", id="pods listed, and others created, before nodes"),
        pytest.param("NNPPaa", id="nodes listed before pods"),
    ],
)
async def test_pods_of_the_first_lists_are_decided_when_all_lists_are_there(order: str) -> None:
    """As the operator decided on them; P and N are listed, a pod is created (a)."""
    rerun = Rerun(Head("test", "2026-01-01T00:00:00Z"), [make_profile("default-scheduler")], seed=1)
    for number, what in enumerate(order):
        pod, node = make_pod(f"p{number}", cpu="1"), make_node(f"n{number}")
        kind, event_type, obj = {
            "P": ("Pod", None, pod),
            "a": ("Pod", "ADDED", pod),
            "N": ("Node", None, node),
        }[what]
        rerun.feed(WatchEvent(0.1 * number, kind, event_type, obj))
    outcomes = rerun.finish()
    pods = len(order) - order.count("N")
    assert (outcomes.arrived, outcomes.placed) == (pods, pods)
    assert outcomes.waited(1.0) <= 0.1 * len(order)


async def test_the_newest_part_alone_is_replayed_exactly(tmp_path: Path) -> None:
    file = tmp_path / "journal"
    await record_run(JournalOptions(file, most_bytes=15_000), seed=3)
    part = file.with_name("newest")
    part.write_bytes(file.read_bytes())
    replay, _ = replayed(part)
    assert next(iter(Journal([part]))).part > 1  # type: ignore[union-attr]
    assert replay.result.decisions == replay.result.equal > 0


async def test_a_full_disk_ends_the_recording_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_a_device(monkeypatch, Path("/dev/full"))
    said = await record_run(JournalOptions(tmp_path / "journal"), pods=60)
    assert said == ["No space left on device"]


async def test_names_are_not_in_a_hashed_journal(tmp_path: Path) -> None:
    file = tmp_path / "journal"
    await record_run(JournalOptions(file, hashed=True), pods=80)
    texts = [str(entry) for entry in open_journal(file)]
    for name in ("'n1'", "'p7'", "'default'", "'z1'", "'a2'"):
        assert not [text for text in texts if name in text and "SchedulerProfile" not in text], name


async def test_an_earlier_version_decided_the_same() -> None:
    """With volumes, preemption and a node that goes; tests/README.md says how it is made."""
    file = Path(__file__).parents[1] / "data" / "recordings" / "embedded-cluster.journal"
    replay, journal = replayed(file)
    assert journal.damage == ""
    assert replay.result.differences == []
    assert (replay.result.decisions, replay.result.equal) == (229, 229)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "hashed",
    [pytest.param(False, id="names", marks=pytest.mark.long), pytest.param(True, id="hashes")],
)
def test_each_kind_of_decision_comes_out_again(tmp_path: Path, kind: str, hashed: bool) -> None:  # noqa: FBT001 a parameter
    file = tmp_path / "journal"
    record(kind, JournalOptions(file, hashed=hashed))
    _check_kind(kind, file)


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(1, 10))]
)
async def test_what_came_between_the_members_of_a_group_comes_there_again(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time_slice, "TIME_SLICE_SECONDS", 0.0)
    file = tmp_path / "journal"
    await record_gangs(JournalOptions(file), seed=seed)
    replay, journal = replayed(file)
    assert (journal.damage, replay.result.differences, replay.result.unknown) == ("", [], 0)
    assert replay.result.decisions == replay.result.equal
    assert replay.result.groups > 10
    assert any(isinstance(entry, Yielded) for entry in open_journal(file))


async def test_the_room_of_gangs_that_are_bound_in_part_comes_out_again(tmp_path: Path) -> None:
    file = tmp_path / "journal"
    await record_partly_bound(JournalOptions(file))
    begun = [entry for entry in open_journal(file) if isinstance(entry, GroupBegun)]
    assert any(entry.keeps_part for entry in begun)
    assert any(not entry.keeps_part for entry in begun), "its time was over"
    replay, journal = replayed(file)
    assert (journal.damage, replay.result.differences, replay.result.unknown) == ("", [], 0)
    assert replay.result.decisions == replay.result.equal


async def test_another_profile_places_gangs_whole_or_not_at_all() -> None:
    manifest = make_profile("default-scheduler", gangScheduling=True)
    rerun: Rerun | None = None
    for entry in open_journal(RECORDINGS / "gangs.journal"):
        if isinstance(entry, Head):
            rerun = Rerun(entry, [manifest], seed=1)
        elif rerun is not None:
            rerun.feed(entry)
            _check_gangs(rerun.world)
    assert rerun is not None
    assert rerun.finish().placed > 15


def _check_gangs(world: World) -> None:
    for key, members in world.pod_groups.groups.items():
        placed = [uid for uid in members.pods if world.cache.pod(uid) is not None]
        size = members.group.min_count if members.group is not None else 0
        assert not placed or len(placed) >= size or len(members.pods) < size, key.name


@pytest.mark.parametrize("kind", KINDS)
def test_an_earlier_version_decided_each_kind_the_same(kind: str) -> None:
    _check_kind(kind, RECORDINGS / f"{kind}.journal")


def _check_kind(kind: str, file: Path) -> None:
    async def replay() -> tuple[Replay, Journal]:
        return replayed(file)

    replay_, journal = asyncio.run(replay())
    result = replay_.result
    assert (journal.damage, result.differences, result.unknown) == ("", [], 0)
    assert result.decisions == result.equal > 5
    entries = list(open_journal(file))
    for wanted, why in HAS[kind].items():
        assert any(map(why, entries)), f"there is {wanted}"


HAS: dict[str, dict[str, Callable[[Entry], bool]]] = {
    "preemption": {"a victim": lambda each: isinstance(each, Decided) and bool(each.victims)},
    "volumes": {
        "a volume": lambda each: isinstance(each, WatchEvent) and each.kind == "PersistentVolume",
    },
    "devices": {"an allocation under way": lambda each: isinstance(each, PluginState)},
    "gangs": {
        "a placed group": lambda each: isinstance(each, GroupDecided) and each.placed,
        "a group that evicts": lambda each: isinstance(each, GroupDecided) and bool(each.victims),
        "another order": lambda each: isinstance(each, GroupDecided) and bool(each.overs),
    },
    "extenders": {
        "an answer": lambda each: isinstance(each, Answered) and isinstance(each.answer, list),
        "a failure": lambda each: isinstance(each, Answered) and is_failure(each.answer),
    },
}


async def test_rows_that_were_written_in_steps_come_out_in_the_same_order() -> None:
    """A node that goes between two steps had its row in the first of them, or never had one."""
    cache, entries = Cache(), [cast("Entry", Head("0", "2026-01-01T00:00:00Z"))]
    cache.on_write = lambda nodes: entries.append(SnapshotWritten(nodes))

    def event(event_type: str | None, name: str) -> None:
        obj = make_node(name)
        entries.append(WatchEvent(0.0, "Node", event_type, obj))
        if event_type == "DELETED":
            cache.remove_node(name)
        else:
            cache.set_node(parse_node(obj))

    for index in range(200):
        event(None, f"n{index}")
    assert cache.write_ahead(64)
    event("DELETED", "n150")
    event("DELETED", "n3")
    event("ADDED", "n200")
    assert cache.write_ahead(64)
    event("ADDED", "n201")
    cache.update_snapshot()
    replay: Replay | None = None
    for entry in (decode(encode(entry)) for entry in entries):
        replay = Replay(entry) if isinstance(entry, Head) else replay
        assert replay is not None
        replay.feed(entry)
    assert replay is not None
    assert replay.world.cache.snapshot.row_of == cache.snapshot.row_of
