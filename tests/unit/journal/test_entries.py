"""Every entry is read as it was written; what is none is named."""

import orjson
import pytest

from stellwerk.journal.entries import (
    Decided,
    Entry,
    Forgotten,
    Head,
    JournalError,
    Layout,
    Nominated,
    Snapshot,
    WatchEvent,
    decode,
    encode,
)

ENTRIES: list[Entry] = [
    Head("1.0", "2026-01-01T00:00:00Z", part=3, hashed=True, max_pod_complexity=7),
    WatchEvent(1.5, "Pod", None, {"metadata": {"name": "p"}}),
    WatchEvent(1.5, "Node", "DELETED", {"metadata": {"name": "n"}}),
    Snapshot(),
    Decided(2.0, "u", "default/p", "s", 1, "n1"),
    Decided(2.0, "u", "default/p", "s", 2, "", "n2", ["v"], "no", [(1, 3)], [True, [1, 2]]),
    Decided(2.0, "u", "default/p", "s", 2, "", message="no"),
    Forgotten(3.0, "u"),
    Nominated(3.0, "u", "n1"),
    Nominated(3.0, "u"),
    Layout(["n1", "n2"], [("u", "n1")], []),
    Layout(),
]


@pytest.mark.parametrize("entry", ENTRIES, ids=repr)
def test_what_is_written_is_read(entry: Entry) -> None:
    line = encode(entry)
    assert line.count(b"\n") == 1
    assert encode(decode(line)) == line
    assert type(decode(line)) is type(entry)


@pytest.mark.parametrize(
    "line",
    [b"", b"{}", b"[]", b'["Z"]', b'["E",1]', b'["H"]', b"nonsense", b'["F",1,2,3,4]'],
    ids=repr,
)
def test_what_is_no_entry_is_refused(line: bytes) -> None:
    with pytest.raises(ValueError, match=r".+"):
        decode(line)


def test_another_format_is_refused_with_the_version_that_wrote_it() -> None:
    line = orjson.dumps(["H", {"format": 9, "version": "7.1"}])
    with pytest.raises(JournalError, match=r"format 9; .* reads format 1, .* written by 7\.1"):
        decode(line)
