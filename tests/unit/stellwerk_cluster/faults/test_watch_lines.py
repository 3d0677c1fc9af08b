import json
from typing import Any

from stellwerk_cluster.faults.plan import FaultPlan, RequestAttributes
from stellwerk_cluster.faults.table import FaultTable
from stellwerk_cluster.faults.watch_lines import NEVER, Close, LineSchedule
from stellwerk_kube.clock import VirtualClock

BOOKMARK = b'{"type":"BOOKMARK","object":{}}\n'


def event(name: str, version: int = 1, type_: str = "MODIFIED") -> bytes:
    body = {"metadata": {"uid": name, "resourceVersion": str(version)}}
    return b'{"type":"%b","object":%b}\n' % (type_.encode(), json.dumps(body).encode())


class Stream:
    """A watch that is struck by some faults from its beginning on."""

    def __init__(self, *faults: dict[str, Any], seed: int = 1) -> None:
        self.clock = VirtualClock()
        self.plan = FaultPlan(FaultTable.model_validate({"faults": faults}), seed, self.clock)
        self.plan.arm()
        strikes = self.plan.strikes(RequestAttributes("watch", "pods"))
        self.schedule = LineSchedule(strikes, self.plan, 0.0)

    def accept(self, *lines: bytes) -> None:
        for line in lines:
            self.schedule.accept(line, self.clock.monotonic())

    def due(self) -> list[bytes]:
        return self.schedule.due(self.clock.monotonic())


def test_what_is_not_struck_passes() -> None:
    stream = Stream({"fault": "drop", "between": [10, 20]})
    stream.accept(event("a"), event("b"), BOOKMARK)
    assert stream.due() == [event("a"), event("b"), BOOKMARK]
    assert stream.schedule.next_seconds() == NEVER


def test_dropped_events_never_come_but_bookmarks_do() -> None:
    stream = Stream({"fault": "drop"})
    stream.accept(event("a"), BOOKMARK)
    assert stream.due() == [BOOKMARK]
    assert stream.plan.counts() == [("1 (drop)", 1)]


def test_events_of_a_type_only() -> None:
    stream = Stream({"fault": "drop", "types": ["ADDED", "DELETED"]})
    stream.accept(event("a", 1, "ADDED"), event("a", 2), event("a", 3, "DELETED"))
    assert stream.due() == [event("a", 2)]


def test_late_events_keep_their_order_and_hold_back_the_bookmark() -> None:
    stream = Stream({"fault": "late", "seconds": [1, 5], "share": 0.5})
    lines = [event(f"p{number}") for number in range(20)]
    stream.accept(*lines, BOOKMARK)
    came = stream.due()
    assert len(came) < 20
    stream.clock.advance(5)
    assert came + stream.due() == [*lines, BOOKMARK]


def test_reordered_events_pass_others_but_not_those_of_their_object() -> None:
    stream = Stream({"fault": "reorder", "seconds": [0, 1]})
    lines = [event(name, version) for version in range(10) for name in ("a", "b")]
    stream.accept(*lines)
    stream.clock.advance(11)
    came = stream.due()
    assert sorted(came) == sorted(lines)
    assert came != lines
    assert [line for line in came if b'"a"' in line] == lines[::2]


def test_reordered_events_of_the_same_object_where_that_is_asked_for() -> None:
    stream = Stream({"fault": "reorder", "seconds": [0, 1], "sameObject": True})
    lines = [event("a", version) for version in range(10)]
    stream.accept(*lines)
    stream.clock.advance(1)
    came = stream.due()
    assert sorted(came) == sorted(lines)
    assert came != lines


def test_repeated_events_come_with_those_before_them() -> None:
    stream = Stream({"fault": "repeat", "events": 2})
    stream.accept(event("a"), event("b"))
    assert stream.due() == [event("a"), event("a"), event("b"), event("a"), event("b")]


def test_a_stream_ends_at_an_event() -> None:
    stream = Stream({"fault": "endWatch", "afterEvents": 1})
    stream.accept(event("a"), BOOKMARK, event("b"), event("c"))
    assert stream.due() == [event("a"), BOOKMARK]
    assert stream.schedule.close == Close()
    assert stream.plan.counts() == [("1 (endWatch)", 1)]


def test_a_stream_ends_at_its_time() -> None:
    stream = Stream({"fault": "endWatch", "afterSeconds": 3})
    stream.accept(event("a"))
    assert stream.due() == [event("a")]
    assert stream.schedule.next_seconds() == 3
    stream.clock.advance(3)
    assert stream.due() == []
    assert stream.schedule.close == Close()


def test_all_streams_end_when_the_time_of_the_fault_comes() -> None:
    stream = Stream({"fault": "silence", "seconds": 7, "between": [10, 11]})
    stream.clock.advance(9)
    stream.accept(event("a"))
    assert stream.due() == [event("a")]
    stream.clock.advance(1)
    stream.accept(event("b"))
    assert stream.due() == []
    assert stream.schedule.close == Close(silent_seconds=7, reset=True)


def test_a_stream_that_was_quiet_while_the_fault_had_its_time_goes_on() -> None:
    stream = Stream({"fault": "endWatch", "between": [1, 2], "afterSeconds": 5})
    stream.clock.advance(6)
    assert stream.schedule.next_seconds() == NEVER


def test_a_line_is_cut_in_its_middle() -> None:
    stream = Stream({"fault": "cutLine", "afterEvents": 0})
    stream.accept(event("a"))
    assert stream.due() == []
    close = stream.schedule.close
    assert close is not None
    assert close.reset
    assert 0 < len(close.last) < len(event("a"))
    assert event("a").startswith(close.last)


def test_an_error_in_the_stream_ends_it() -> None:
    stream = Stream({"fault": "streamError", "code": 410, "afterEvents": 0})
    stream.accept(event("a"))
    close = stream.schedule.close
    assert close is not None
    error = json.loads(close.last)
    assert (error["type"], error["object"]["code"]) == ("ERROR", 410)
    assert error["object"]["reason"] == "Expired"


def test_what_is_held_back_leaves_when_the_api_ends_the_stream() -> None:
    stream = Stream({"fault": "late", "seconds": 60})
    stream.accept(event("a"), event("b"))
    assert stream.due() == []
    assert stream.schedule.rest() == [event("a"), event("b")]


LIST_END = (
    b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"9","annotations":'
    b'{"k8s.io/initial-events-end":"true"}}}}\n'
)


def test_a_list_without_end_goes_on_with_objects_that_do_not_exist() -> None:
    stream = Stream({"fault": "endlessList", "perSecond": 10, "between": [0, 5]})
    stream.accept(event("a", 5, "ADDED"), LIST_END, BOOKMARK)
    assert stream.due() == [event("a", 5, "ADDED"), BOOKMARK]
    assert stream.schedule.next_seconds() == 0.1
    stream.clock.advance(1)
    made = [json.loads(line)["object"]["metadata"] for line in stream.due()]
    assert [each["uid"] for each in made] == [f"made-up-{number}" for number in range(10)]
    assert {each["resourceVersion"] for each in made} == {"5"}
    stream.clock.advance(5)
    assert stream.due() == [], "its time is over"


def test_bookmarks_that_never_come() -> None:
    stream = Stream({"fault": "noBookmarks"})
    stream.accept(event("a"), BOOKMARK, LIST_END)
    assert stream.due() == [event("a")]
    assert stream.plan.counts() == [("1 (noBookmarks)", 2)]


def test_an_object_that_says_an_older_version() -> None:
    stream = Stream({"fault": "olderVersions", "by": 7})
    stream.accept(event("a", 10), event("b", 3))
    assert versions(stream.due()) == ["3", "1"]


def versions(lines: list[bytes]) -> list[str]:
    return [json.loads(line)["object"]["metadata"]["resourceVersion"] for line in lines]


def test_an_object_that_comes_under_two_uids() -> None:
    stream = Stream({"fault": "twins"})
    stream.accept(event("a"))
    first, second = (json.loads(line)["object"]["metadata"] for line in stream.due())
    assert second == first | {"uid": "a-twin"}


def test_a_line_that_is_long_and_an_object_of_another_kind() -> None:
    stream = Stream({"fault": "longLines", "bytes": 5000}, {"fault": "otherKind", "kind": "Node"})
    stream.accept(event("a"))
    (line,) = stream.due()
    assert 5000 <= len(line) < 5200
    assert json.loads(line)["object"]["kind"] == "Node"


def test_what_is_no_event_is_not_rewritten() -> None:
    stream = Stream({"fault": "otherKind"}, {"fault": "olderVersions"}, {"fault": "twins"})
    stream.accept(b"nonsense\n")
    assert set(stream.due()) == {b"nonsense\n"}
