"""What was put in is read again up to where the file ends, however it ends."""

import contextlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stellwerk.journal.decoding import JournalError
from stellwerk.journal.entries import (
    Entry,
    Head,
    InitialState,
    WatchEvent,
    encode,
)
from stellwerk.journal.reader import Journal, open_journal, part_before
from stellwerk.journal.writer import JournalOptions, JournalWriter
from stellwerk.journal.zstandard import framing
from tests.support.recorded_runs import on_a_device

HEAD = Head("test", "2026-01-01T00:00:00Z")


def pod(number: int, text: str = "") -> WatchEvent:
    metadata = {"uid": f"u{number}", "name": f"p{number}", "namespace": "default"}
    return WatchEvent(
        float(number), "Pod", "ADDED", {"metadata": metadata, "spec": {"nodeName": text}}
    )


def write(file: Path, entries: list[Entry], most_bytes: int = 1 << 20) -> JournalWriter:
    writer = JournalWriter(JournalOptions(file, most_bytes), HEAD)
    for entry in entries:
        writer.put(entry)
    writer.close()
    return writer


def read(journal: Journal) -> list[Entry]:
    return [entry for entry in journal if not isinstance(entry, Head)]


def test_everything_comes_back(tmp_path: Path) -> None:
    file = tmp_path / "j"
    entries: list[Entry] = [pod(number, "x" * number) for number in range(2000)]
    assert write(file, entries).failure == ""
    journal = open_journal(file)
    assert read(journal) == entries
    assert (journal.damage, journal.head) == ("", HEAD)
    assert file.stat().st_mode & 0o777 == 0o600, "objects are not for every reader"


@given(data=st.data())
def test_a_journal_that_is_cut_off_is_read_up_to_there(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    file = tmp_path_factory.mktemp("j") / "j"
    compress = framing()
    entries: list[Entry] = [pod(number) for number in range(30)]
    blocks = [compress(encode(HEAD))]
    blocks += [compress(encode(entry)) for entry in entries]
    whole = b"".join(blocks)
    cut = data.draw(st.integers(len(blocks[0]), len(whole)))
    file.write_bytes(whole[:cut])
    journal = open_journal(file)
    got = read(journal)
    assert got == entries[: len(got)]
    complete = sum(len(block) for block in blocks[: len(got) + 1])
    assert bool(journal.damage) == (cut != complete)


@given(data=st.data())
def test_a_damaged_byte_costs_what_follows_it_and_is_named(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    file = tmp_path_factory.mktemp("j") / "j"
    entries: list[Entry] = [pod(number) for number in range(50)]
    write(file, entries)
    content = bytearray(file.read_bytes())
    place = data.draw(st.integers(0, len(content) - 1))
    content[place] ^= data.draw(st.integers(1, 255))
    file.write_bytes(content)
    journal = open_journal(file)
    got: list[Entry] = []
    with contextlib.suppress(JournalError):  # the first block is damaged: nothing can be read
        got = read(journal)
        assert len(got) == len(entries) or journal.damage
    assert got == entries[: len(got)]


def test_a_full_journal_goes_on_in_another_part(tmp_path: Path) -> None:
    file = tmp_path / "j"
    writer = JournalWriter(JournalOptions(file, 1 << 12), HEAD)
    living: dict[str, Entry] = {}
    for number in range(4000):
        event = pod(number, f"{number * 7919}")
        living[f"u{number}"] = event
        writer.put(event)
        if number % 3:
            gone = WatchEvent(float(number), "Pod", "DELETED", event.obj)
            del living[f"u{number}"]
            writer.put(gone)
        if number % 500 == 499:
            writer.put(InitialState([]))
    writer.close()
    assert part_before(file).is_file()
    both = read(open_journal(file))
    newest = read(Journal([file]))
    assert [entry for entry in newest if isinstance(entry, InitialState)], (
        "it begins with a checkpoint"
    )
    for entries in (both, newest):
        found: dict[str, object] = {}
        for entry in entries:
            if isinstance(entry, WatchEvent):
                uid = entry.obj["metadata"]["uid"]
                found.pop(uid, None)
                if entry.event_type != "DELETED":
                    found[uid] = entry.obj
        assert found == {uid: entry.obj for uid, entry in living.items()}  # type: ignore[union-attr]


def test_a_disk_that_is_full_ends_the_recording_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reasons: list[str] = []
    on_a_device(monkeypatch, Path("/dev/full"))
    writer = JournalWriter(JournalOptions(tmp_path / "j"), HEAD, reasons.append)
    for number in range(100):
        writer.put(pod(number, "x" * 10_000))
    writer.close()
    assert reasons == ["No space left on device"]
    assert writer.failure
    writer.put(pod(1))


@pytest.mark.parametrize("content", [b"# README\n" * 100, b"\x00" * 10], ids=["text", "zeros"])
def test_what_is_no_journal_is_named(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "j"
    file.write_bytes(content)
    with pytest.raises(JournalError, match="not a journal"):
        read(open_journal(file))


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(JournalError, match="no such file"):
        open_journal(tmp_path / "j")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param(
            b"x" * (1 << 20),
            "more than 16 MiB in a line; --file-limits 4 allows more",
            id="a line without an end",
        ),
        pytest.param(b'["S"]'.ljust(1 << 20) + b"\n", "more than 1000 times", id="too much text"),
    ],
)
def test_a_small_file_does_not_become_a_large_journal(
    tmp_path: Path, text: bytes, said: str
) -> None:
    file, compress = tmp_path / "j", framing()
    file.write_bytes(compress(encode(HEAD)) + compress(text * 80))
    with pytest.raises(JournalError, match=said):
        for _ in open_journal(file):
            pass


def test_an_entry_of_more_parts_than_any_has_is_not_parsed(tmp_path: Path) -> None:
    file, compress = tmp_path / "j", framing()
    file.write_bytes(compress(encode(HEAD)) + compress(b"[" + b"0," * 1_000_001 + b"0]\n"))
    with pytest.raises(JournalError, match=r"more than 1,000,000 parts in line 2; --file-limits 4"):
        read(open_journal(file))


def test_blocks_without_an_entry_are_damage_however_many_they_are(tmp_path: Path) -> None:
    """A block costs 100 µs: 20 MB of empty ones would take minutes."""
    file, compress = tmp_path / "j", framing()
    file.write_bytes(compress(encode(HEAD)) + compress(b"") * 100_000)
    journal = open_journal(file)
    assert read(journal) == []
    assert journal.damage.endswith("a block without an entry")
