"""The lines that a watch with faults sends, and their times.

`watch_writer` asks for them. Pure: it is given the lines and the time, and writes nothing.
Invariant: but for lines that a fault drops, ends, reorders, rewrites or makes up, every line leaves
once, whole and in order.
"""

from __future__ import annotations

import heapq
from collections import deque
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

import orjson

from stellwerk_cluster.faults import rewritten_lines
from stellwerk_cluster.faults.table import (
    CutLine,
    Drop,
    EndlessList,
    EventFault,
    Late,
    LongLines,
    NoBookmarks,
    OlderVersions,
    OtherKind,
    Reorder,
    Repeat,
    Silence,
    StreamEnding,
    StreamError,
    Twins,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from stellwerk_cluster.faults.plan import FaultPlan, Strike
    from stellwerk_kube.json_values import JsonObject


_REASONS: Final = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    409: "Conflict",
    410: "Expired",
    422: "Invalid",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}


def status_body(code: int, reason: str | None, message: str) -> JsonObject:
    """A Status; without a reason, with the one that the API gives for this code."""
    is_success = code < HTTPStatus.MULTIPLE_CHOICES
    status: JsonObject = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success" if is_success else "Failure",
    }
    if not is_success:
        status |= {"message": message, "reason": reason or _REASONS.get(code, "Unknown")}
    return {**status, "code": code}


_BOOKMARK: Final = b'{"type":"BOOKMARK"'
_LIST_END: Final = b"k8s.io/initial-events-end"
_MAX_MADE_UP: Final = 1000
"""Lines that are made up at a time, however long the last time is ago."""
_MAX_REMEMBERED_LINES: Final = 1000
"""Lines of a watch that a fault can repeat."""
NEVER: Final = float("inf")


@dataclass(frozen=True, slots=True)
class Close:
    """The end of a stream."""

    last: bytes = b""
    """Bytes that are still sent."""
    silent_seconds: float = 0.0
    """Nothing happens for so long before the end."""
    reset: bool = False
    """Whether the connection is reset; else the stream ends as it should."""


class LineSchedule:
    """The lines of one watch that have not left yet."""

    def __init__(self, strikes: Iterable[Strike], plan: FaultPlan, now_seconds: float) -> None:
        """Disturb a watch that begins now."""
        strikes = list(strikes)
        self._endings = [
            (strike, strike.fault) for strike in strikes if isinstance(strike.fault, StreamEnding)
        ]
        self._of_events = [
            (strike, strike.fault) for strike in strikes if isinstance(strike.fault, EventFault)
        ]
        self._no_bookmarks = [
            (strike, strike.fault) for strike in strikes if isinstance(strike.fault, NoBookmarks)
        ]
        self._endless_lists = [
            (strike, strike.fault) for strike in strikes if isinstance(strike.fault, EndlessList)
        ]
        self._endless: EndlessList | None = None
        """The fault that makes lines up now, in place of a list's end."""
        self._endless_since_seconds = now_seconds
        self._made_up = 0
        reorders = [fault for _, fault in self._of_events if isinstance(fault, Reorder)]
        self._in_order = not reorders
        self._per_object = not any(fault.same_object for fault in reorders)
        self._plan = plan
        self._began_seconds = now_seconds
        self._events = 0
        self._pushed = 0
        self._waiting: list[tuple[float, int, bytes]] = []
        self._latest_seconds: dict[str, float] = {}
        self._latest_of_all_seconds = now_seconds
        self._recent: deque[bytes] = deque(maxlen=_MAX_REMEMBERED_LINES)
        self.close: Close | None = None
        """The end of the stream, once that is due."""

    def accept(self, line: bytes, now_seconds: float) -> None:
        """Take a line from the API."""
        self._end_by_time(now_seconds)
        if self.close is not None:
            return
        if line.startswith(_BOOKMARK):
            if self._withholds(line, now_seconds):
                return
            # It says that everything before it has been sent, so nothing may be left behind it.
            self._push(line, max(now_seconds, self._latest_of_all_seconds))
            return
        for strike, ending in self._endings:
            over = ending.after_events is not None and self._events >= ending.after_events
            if over and self._plan.is_due(ending):
                self._end(strike, ending, line)
                return
        self._events += 1
        self._recent.append(line)
        self._disturb(line, now_seconds)

    def due(self, now_seconds: float) -> list[bytes]:
        """The lines that leave now; `close` may be set afterwards."""
        self._end_by_time(now_seconds)
        lines = self._invented(now_seconds)
        while self._waiting and self._waiting[0][0] <= now_seconds:
            lines.append(heapq.heappop(self._waiting)[2])
        return lines

    def rest(self) -> list[bytes]:
        """Every line that is left, now that the API itself has ended the stream."""
        lines = [line for _, _, line in sorted(self._waiting)]
        self._waiting.clear()
        return lines

    def next_seconds(self) -> float:
        """The time of the next thing to do."""
        ends = [self._end_seconds(strike, ending) for strike, ending in self._endings]
        if self._endless is not None:
            made_for_seconds = (self._made_up + 1) / self._endless.per_second
            ends.append(self._endless_since_seconds + made_for_seconds)
        return min([self._waiting[0][0] if self._waiting else NEVER, *ends])

    # --- bookmarks ------------------------------------------------------------------------------

    def _withholds(self, bookmark: bytes, now_seconds: float) -> bool:
        """Return whether a fault keeps a bookmark back, perhaps with made-up objects in its place.

        A list without end is one that never says so: other bookmarks pass it.
        """
        for strike, fault in self._no_bookmarks:
            if self._plan.is_due(fault):
                self._plan.struck[strike.title] += 1
                return True
        for strike, endless in self._endless_lists:
            if _LIST_END in bookmark and self._plan.is_due(endless):
                self._plan.struck[strike.title] += 1
                self._endless, self._endless_since_seconds = endless, now_seconds
                return True
        return False

    def _invented(self, now_seconds: float) -> list[bytes]:
        """The made-up lines that are due; when the fault's time is over, nothing comes any more."""
        if self._endless is None or not self._plan.is_due(self._endless):
            self._endless = None
            return []
        wanted = int((now_seconds - self._endless_since_seconds) * self._endless.per_second)
        first = self._made_up
        self._made_up = min(max(wanted, first), first + _MAX_MADE_UP)
        like = self._recent[-1] if self._recent else None
        return [rewritten_lines.made_up(like, each) for each in range(first, self._made_up)]

    # --- single events --------------------------------------------------------------------------

    def _disturb(self, line: bytes, now_seconds: float) -> None:
        due_seconds, copies, twins = now_seconds, 1, list[bytes]()
        for strike, fault in self._of_events:
            chosen = strike.draws.fraction("event", self._events) < fault.share
            if not (chosen and _is_of(fault, line) and self._plan.is_due(fault)):
                continue
            self._plan.struck[strike.title] += 1
            match fault:
                case Drop():
                    return
                case Repeat():
                    copies = max(copies, fault.events + 1)
                case Late() | Reorder():
                    due_seconds += strike.draws.within(fault.seconds, "seconds", self._events)
                case Twins():
                    twins.append(rewritten_lines.twin(line))
                case _:
                    line = _rewritten(fault, line)
        due_seconds = self._after_those_before(line, due_seconds)
        for each in (line, *twins):
            self._push(each, due_seconds)
        if copies > 1:
            for earlier in list(self._recent)[1 - copies :]:
                self._push(earlier, due_seconds)

    def _after_those_before(self, line: bytes, due_seconds: float) -> float:
        """No line passes one that it may not pass."""
        if self._in_order:
            return max(due_seconds, self._latest_of_all_seconds)
        if not self._per_object:
            return due_seconds
        uid = _uid(line)
        due_seconds = max(due_seconds, self._latest_seconds.get(uid, 0.0))
        self._latest_seconds[uid] = due_seconds
        return due_seconds

    def _push(self, line: bytes, due_seconds: float) -> None:
        self._pushed += 1
        self._latest_of_all_seconds = max(self._latest_of_all_seconds, due_seconds)
        heapq.heappush(self._waiting, (due_seconds, self._pushed, line))

    # --- the end --------------------------------------------------------------------------------

    def _end_by_time(self, now_seconds: float) -> None:
        if self.close is not None:
            return
        for strike, ending in self._endings:
            if now_seconds >= self._end_seconds(strike, ending):
                self._end(strike, ending, self._recent[-1] if self._recent else b"")
                return

    def _end_seconds(self, strike: Strike, ending: StreamEnding) -> float:
        """The time at which this end comes without an event."""
        elapsed = self._plan.elapsed_seconds
        if elapsed is None or (ending.after_events is not None and ending.after_seconds is None):
            return NEVER
        after = strike.draws.within(ending.after_seconds or (0.0, 0.0), "after")
        armed_at_seconds = self._plan.now_seconds - elapsed
        at_seconds = max(self._began_seconds, armed_at_seconds) + after
        if ending.between is not None:
            at_seconds = max(at_seconds, armed_at_seconds + ending.between[0])
            if at_seconds >= armed_at_seconds + ending.between[1]:
                return NEVER
        return at_seconds

    def _end(self, strike: Strike, ending: StreamEnding, line: bytes) -> None:
        self._plan.struck[strike.title] += 1
        match ending:
            case CutLine():
                self.close = Close(line[: len(line) // 2], reset=True)
            case Silence():
                silent_seconds = strike.draws.within(ending.seconds, "silent")
                self.close = Close(silent_seconds=silent_seconds, reset=True)
            case StreamError():
                status = status_body(ending.code, ending.reason, ending.message)
                error = orjson.dumps({"type": "ERROR", "object": status}) + b"\n"
                self.close = Close(error)
            case _:
                self.close = Close()


def _rewritten(fault: EventFault, line: bytes) -> bytes:
    match fault:
        case OlderVersions():
            return rewritten_lines.older(line, fault.by)
        case LongLines():
            return rewritten_lines.padded(line, fault.bytes)
        case OtherKind():
            return rewritten_lines.of_kind(line, fault.kind)
        case _:
            return line


def _is_of(fault: EventFault, line: bytes) -> bool:
    types = fault.types
    return not types or any(line.startswith(b'{"type":"%b"' % each.encode()) for each in types)


def _uid(line: bytes) -> str:
    try:
        return str(orjson.loads(line)["object"]["metadata"]["uid"])
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return ""
