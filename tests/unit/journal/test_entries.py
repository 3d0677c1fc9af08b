"""Every entry is read as it was written; what is none is named."""

import orjson
import pytest

from stellwerk.journal.decoding import JournalError, decode
from stellwerk.journal.entries import (
    Answered,
    Asked,
    Decided,
    Entry,
    Forgotten,
    GroupBegun,
    GroupDecided,
    Head,
    InitialState,
    Nominated,
    SnapshotWritten,
    WatchEvent,
    Yielded,
    encode,
)

ENTRIES: list[Entry] = [
    Head("1.0", "2026-01-01T00:00:00Z", part=3, hashed=True, max_pod_complexity=7),
    Head("1.0", "2026-01-01T00:00:00Z", release="1.37", feature_gates="AllAlpha=true"),
    WatchEvent(1.5, "Pod", None, {"metadata": {"name": "p"}}),
    WatchEvent(1.5, "Node", "DELETED", {"metadata": {"name": "n"}}),
    SnapshotWritten(),
    Decided(2.0, "u", "default/p", "s", 1, "n1"),
    Decided(2.0, "u", "default/p", "s", 2, "", "n2", ["v"], "no", [(1, 3)], [True, [1, 2]]),
    Decided(2.0, "u", "default/p", "s", 2, "", message="no"),
    Asked(2.0, "u"),
    Answered(answer=False),
    Answered([None, {}]),
    Answered([]),
    GroupBegun(2.0, "s", ["", "default", "g"], ["u1", "u2"], [], 1),
    GroupBegun(2.0, "s", ["", "default", "g"], ["u1"], ["u2"], 0, keeps_room=True, ending=["u3"]),
    Yielded(0),
    GroupDecided(2.0, [["u1", "default/p", 1, "n1", ""]], placed=True, draws=[(0, 2)]),
    GroupDecided(2.0, [["u1", "default/p", 1, "", "no"]], victims=["v"], nodes={"u1": "n"}),
    Forgotten(3.0, "u"),
    Nominated(3.0, "u", "n1"),
    Nominated(3.0, "u"),
    InitialState(["n1", "n2"], [("u", "n1")], []),
    InitialState(),
]


@pytest.mark.parametrize("entry", ENTRIES, ids=repr)
def test_what_is_written_is_read(entry: Entry) -> None:
    line = encode(entry)
    assert line.count(b"\n") == 1
    assert encode(decode(line)) == line
    assert type(decode(line)) is type(entry)


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"{}",
        b"[]",
        b'["Z"]',
        b'[["E"]]',
        b'["E",1]',
        b'["H"]',
        b'["H",{"format":1,"startedAt":"yesterday"}]',
        b'["H",{"format":1,"startedAt":"2026-01-01T00:00:00"}]',
        b'["H",{"format":1,"startedAt":"2026-01-01T00:00:00Z","part":"one"}]',
        b"nonsense",
        b'["F",1,2,3,4]',
        b'["F","1","u"]',
        b'["F",-1,"u"]',
        b'["F",1e300,"u"]',
        b'["E",1,"Pod","ADDED",5]',
        b'["E",1,"Pod","ADDED",{}]',
        b'["E",1,"Pod","ADDED",{"metadata":{"name":5}}]',
        b'["E",1,"Pod","EXPLODED",{"metadata":{"name":"p"}}]',
        b'["E",1,["Pod"],"ADDED",{"metadata":{"name":"p"}}]',
        b'["D",1,{},[],{},"a"]',
        b'["D",1,"u","default/p","s",1,"n","",["v"],"",[[1]]]',
        b'["L",5]',
        b'["L",["n"],[["u"]]]',
        b'["E",1,"Pod","ADDED",' + b"[" * 5000 + b"]" * 5000 + b"]",
    ],
    ids=repr,
)
def test_what_is_no_entry_is_refused(line: bytes) -> None:
    with pytest.raises(ValueError, match=r".+"):
        decode(line)


def test_another_format_is_refused_with_the_version_that_wrote_it() -> None:
    line = orjson.dumps(["H", {"format": 9, "version": "7.1"}])
    said = r"format 9; .* reads the formats 1 and 2, .* written by 7\.1"
    with pytest.raises(JournalError, match=said):
        decode(line)
