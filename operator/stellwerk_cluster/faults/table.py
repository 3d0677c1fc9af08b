"""The table of faults: what may be written in a fault file, and what it means.

`stellwerk cluster --faults` reads it, `plan` decides by it, `injector` and `watch_lines` carry it
out. Words are the API's: verbs and resources as in RBAC, fields in camel case. Invariant: a table
that exists is valid, and says nothing of which requests were struck so far; a mistake in a file is
one line that names the file, the entry and the field.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from email.utils import format_datetime
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeAlias

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
    model_validator,
)
from pydantic.alias_generators import to_camel
from pydantic_core import PydanticCustomError

from stellwerk_kube.errors import ConfigurationError
from stellwerk_kube.yaml_file import read_one_yaml

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pydantic_core import ErrorDetails


WATCH: Final = "watch"
LIST: Final = "list"
Verb: TypeAlias = Literal[
    "get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"
]
_MAX_STATUS: Final = 599
"""The highest status of HTTP that a fault may answer."""
_MIN_STATUS: Final = 200
"""The lowest status of HTTP that a fault may answer: below are interim answers."""


def _span(value: object) -> object:
    """A single number is the span from it to itself."""
    return (value, value) if isinstance(value, (int, float)) else value


def _in_order(span: tuple[float, float]) -> tuple[float, float]:
    if span[0] > span[1]:
        raise PydanticCustomError("order", "must be [least, most]")
    return span


NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Seconds = Annotated[
    tuple[NotNegative, NotNegative], BeforeValidator(_span), AfterValidator(_in_order)
]
"""A duration, or the least and the most: each time something between the two."""


class HttpDate(BaseModel):
    """The form of Retry-After with a date."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    date: float = Field(ge=-1e9, le=1e9)
    """Seconds from now; negative is past."""

    def header(self, now: datetime) -> str:
        """The date as HTTP writes it."""
        return format_datetime(now + timedelta(seconds=self.date), usegmt=True)


def _retry_after(value: object) -> tuple[str | HttpDate | None, ...]:
    """Each form that is taken in turn; a form alone is a list of one."""
    forms = value if isinstance(value, list) and value else [value]
    return tuple(_form(form) for form in forms)


def _form(form: object) -> str | HttpDate | None:
    match form:
        case None | str() | HttpDate():
            return form
        case bool():
            pass
        case int() | float():
            return str(form)
        case {"date": int() | float() as seconds, **others} if not others:
            return HttpDate(date=seconds)
        case _:
            pass
    raise PydanticCustomError(
        "form", "must be a number of seconds, a text, {{date: SECONDS}}, null, or a list of these"
    )


class Fault(BaseModel):
    """The fields of every entry: the requests it may strike, and when.

    All conditions that are given must hold.
    """

    model_config = ConfigDict(
        extra="forbid", frozen=True, alias_generator=to_camel, populate_by_name=True
    )

    name: Annotated[str, StringConstraints(max_length=100)] = ""
    """Shown in counts and mistakes; without one, the fault and its place in the table."""
    verbs: tuple[Verb, ...] = ()
    """Empty: all."""
    resources: tuple[Annotated[str, StringConstraints(min_length=1)], ...] = ()
    """Plural names, with their subresource if any (`pods`, `pods/binding`); empty: all.

    What is no resource goes by its path (`/version`).
    """
    user_agent: str = ""
    """Only clients whose User-Agent begins with this."""
    probability: float = Field(default=1.0, gt=0, le=1)
    every: Annotated[int, Field(ge=1)] | None = None
    """The step at which matching requests are struck: every n-th."""
    times: Annotated[int, Field(ge=1)] | None = None
    """At most so often."""
    between: Annotated[tuple[NotNegative, NotNegative], AfterValidator(_in_order)] | None = None
    """Seconds since the table came into force. For faults of watches: when its events pass."""

    @model_validator(mode="after")
    def _one_choice(self) -> Fault:
        if self.every is not None and self.probability < 1:
            raise PydanticCustomError("choice", "every and probability exclude each other")
        return self


# --- of requests ----------------------------------------------------------------------------------


class Delay(Fault):
    """The request, or its answer, takes longer."""

    fault: Literal["delay"] = "delay"
    seconds: Seconds
    moment: Literal["before", "after"] = "before"
    """Before the request is handled, or between that and the answer."""


class Reset(Fault):
    """The connection is reset, and the request is not handled."""

    fault: Literal["reset"] = "reset"


class InjectedAnswer(Fault):
    """An answer in place of the API's; the request is not handled."""

    fault: Literal["answer"] = "answer"
    code: int = Field(ge=_MIN_STATUS, le=_MAX_STATUS)
    reason: str | None = None
    message: str = "injected fault"
    retry_after: Annotated[tuple[str | HttpDate | None, ...], BeforeValidator(_retry_after)] = (
        None,
    )
    """Forms of the Retry-After header, taken in turn; null: without one."""
    body: Any = None
    """JSON, or a text as it is; null: a Status with the code, reason and message."""


class LostAnswer(Fault):
    """The request is handled, but the connection is reset in place of the answer."""

    fault: Literal["lostAnswer"] = "lostAnswer"


class FalseSuccess(Fault):
    """A write is answered with success, and not handled."""

    fault: Literal["falseSuccess"] = "falseSuccess"


class Hang(Fault):
    """No answer; the request is not handled, and the connection is reset at last."""

    fault: Literal["hang"] = "hang"
    seconds: Seconds = (60.0, 60.0)


# --- of watches -----------------------------------------------------------------------------------


class StreamFault(Fault):
    """A fault of a watch's stream of events."""

    of_lists: bool = False
    """Only watches that begin with a list (`sendInitialEvents`)."""

    @model_validator(mode="after")
    def _watches(self) -> StreamFault:
        if self.verbs and WATCH not in self.verbs:
            raise PydanticCustomError("verbs", "it strikes watches only, and verbs leaves them out")
        return self


class StreamEnding(StreamFault):
    """Something that ends a stream, at an event or after some time, whichever is first."""

    after_events: Annotated[int, Field(ge=0)] | None = None
    """Events that pass before the one that brings the end."""
    after_seconds: Seconds | None = None
    """Since the watch began. Neither of the two: at once."""


class EndWatch(StreamEnding):
    """The stream ends as if its time were over."""

    fault: Literal["endWatch"] = "endWatch"


class CutLine(StreamEnding):
    """The connection is reset in the middle of a line."""

    fault: Literal["cutLine"] = "cutLine"


class Silence(StreamEnding):
    """The connection stays open, but nothing comes any more; it is reset at last."""

    fault: Literal["silence"] = "silence"
    seconds: Seconds = (120.0, 120.0)


class StreamError(StreamEnding):
    """An ERROR event, and the stream ends."""

    fault: Literal["streamError"] = "streamError"
    code: int = Field(default=500, ge=_MIN_STATUS, le=_MAX_STATUS)
    reason: str | None = None
    message: str = "injected fault"


class EventFault(StreamFault):
    """A fault of single events."""

    share: float = Field(default=1.0, gt=0, le=1)
    """The share of the events."""
    types: tuple[Literal["ADDED", "MODIFIED", "DELETED"], ...] = ()
    """Empty: all."""


class Late(EventFault):
    """Events come later, in order."""

    fault: Literal["late"] = "late"
    seconds: Seconds


class Reorder(EventFault):
    """Events come later, and others pass them."""

    fault: Literal["reorder"] = "reorder"
    seconds: Seconds = (0.05, 0.5)
    same_object: bool = False
    """Also those of the same object, which a real API never does."""


class Repeat(EventFault):
    """Events come again, as where a watch is resumed from an older version."""

    fault: Literal["repeat"] = "repeat"
    events: int = Field(default=1, ge=1, le=1000)
    """The event and so many before it, less one, in their order."""


class Drop(EventFault):
    """Events never come."""

    fault: Literal["drop"] = "drop"


class EndlessList(StreamFault):
    """A list that a watch begins with goes on with objects that do not exist, without end."""

    fault: Literal["endlessList"] = "endlessList"
    per_second: Annotated[float, Field(gt=0, le=1e6)] = 1000.0


class NoBookmarks(StreamFault):
    """Bookmarks never come, the one that ends a list among them."""

    fault: Literal["noBookmarks"] = "noBookmarks"


class OlderVersions(EventFault):
    """The object of an event says an older resourceVersion than it has."""

    fault: Literal["olderVersions"] = "olderVersions"
    by: int = Field(default=1000, ge=1)
    """The difference between the two versions; no version falls below 1."""


class Twins(EventFault):
    """After an event its object comes again under another uid: one name, two objects."""

    fault: Literal["twins"] = "twins"


class LongLines(EventFault):
    """The object of an event has an annotation that makes its line so long."""

    fault: Literal["longLines"] = "longLines"
    bytes: int = Field(default=10_000_000, ge=1, le=1 << 30)


class OtherKind(EventFault):
    """The object of an event says that it is of another kind."""

    fault: Literal["otherKind"] = "otherKind"
    kind: Annotated[str, StringConstraints(min_length=1)] = "ConfigMap"


# --- of the bytes of answers ----------------------------------------------------------------------


class Drip(Fault):
    """The body of an answer, or of a watch, comes a few bytes at a time."""

    fault: Literal["drip"] = "drip"
    bytes: int = Field(default=1, ge=1)
    seconds: NotNegative = 0.001
    """The pause after each piece."""


class HalfAnswer(Fault):
    """A body stops in its middle; the connection stays open, and is reset at last."""

    fault: Literal["halfAnswer"] = "halfAnswer"
    seconds: Seconds = (60.0, 60.0)


class GzipBomb(Fault):
    """The answer is packed, though no client asked for that, and unpacks to so many spaces."""

    fault: Literal["gzipBomb"] = "gzipBomb"
    bytes: int = Field(default=1 << 30, ge=1, le=1 << 40)


class EndlessPages(Fault):
    """Each page of a list says that it is not the last, and after the last the first one comes."""

    fault: Literal["endlessPages"] = "endlessPages"

    @model_validator(mode="after")
    def _lists(self) -> EndlessPages:
        if self.verbs and LIST not in self.verbs:
            raise PydanticCustomError("verbs", "it strikes lists only, and verbs leaves them out")
        return self


# --- of the server --------------------------------------------------------------------------------


class Outage(Fault):
    """For the time of `between`, every connection is reset."""

    fault: Literal["outage"] = "outage"
    history: Literal["kept", "forgotten", "older"] = "kept"
    """The changes that are known afterwards.

    forgotten: watches from versions before it are answered 410. older: the objects, and the
    counter of versions, are as they were `revisions` changes before it (a restored backup); only
    the embedded API can do so.
    """
    revisions: int = Field(default=100, ge=1)

    @model_validator(mode="after")
    def _has_its_time(self) -> Outage:
        if self.between is None:
            raise PydanticCustomError("between", "between is required: [begin, end] in seconds")
        chosen = {"verbs", "resources", "user_agent", "probability", "every", "times"}
        if given := sorted(chosen & self.model_fields_set):
            raise PydanticCustomError(
                "whole",
                "it strikes everything: {given} has no effect",
                {"given": ", ".join(map(to_camel, given))},
            )
        return self


AnyFault = Annotated[
    Delay
    | Reset
    | InjectedAnswer
    | LostAnswer
    | FalseSuccess
    | Hang
    | EndWatch
    | CutLine
    | Silence
    | StreamError
    | Late
    | Reorder
    | Repeat
    | Drop
    | EndlessList
    | NoBookmarks
    | OlderVersions
    | Twins
    | LongLines
    | OtherKind
    | Drip
    | HalfAnswer
    | GzipBomb
    | EndlessPages
    | Outage,
    Field(discriminator="fault"),
]


class FaultTable(BaseModel):
    """All that goes wrong."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    seed: int | None = None
    """The seed of every draw; without one, a new one for every run, which is shown."""
    faults: tuple[AnyFault, ...] = ()

    def titles(self) -> tuple[str, ...]:
        """The titles of all entries, all different."""
        return tuple(
            title_of(place, fault.name or fault.fault) for place, fault in enumerate(self.faults)
        )


def title_of(place: int, name: str) -> str:
    """The title of the entry at a place, counted from 0."""
    return f"{place + 1} ({name})" if name else str(place + 1)


_TAGS = ("union_tag_not_found", "union_tag_invalid")


def read_fault_table(path: Path) -> FaultTable:
    """The table of a file.

    Raises:
        ConfigurationError: it cannot be read, or something in it is wrong.
    """
    content = read_one_yaml(path)
    try:
        return FaultTable.model_validate({} if content is None else content)
    except ValidationError as error:
        raise ConfigurationError(f"{path}: {_mistake(error, content)}") from error


def _mistake(error: ValidationError, content: object) -> str:
    """The first mistake."""
    detail = error.errors(include_url=False)[0]
    location = detail["loc"]
    text = _text(detail)
    if len(location) > 1 and location[0] == "faults" and isinstance(location[1], int):
        entry = _entry(content, location[1])
        # pydantic puts the value of `fault` between the entry and its fields.
        field = "fault" if detail["type"] in _TAGS else _path(location[3:])
        return f"entry {_title(location[1], entry)}: {field + ': ' if field else ''}{text}"
    return f"{_path(location)}: {text}" if location else text


def _entry(content: object, place: int) -> dict[str, Any]:
    entries = content.get("faults") if isinstance(content, dict) else None
    entry = entries[place] if isinstance(entries, list) else None
    return entry if isinstance(entry, dict) else {}


def _title(place: int, entry: dict[str, Any]) -> str:
    return title_of(place, str(entry.get("name") or entry.get("fault") or ""))


def _path(location: Sequence[int | str]) -> str:
    steps = [f"[{step}]" if isinstance(step, int) else f".{step}" for step in location]
    return "".join(steps).removeprefix(".")


def _text(detail: ErrorDetails) -> str:
    text = detail["msg"][:1].lower() + detail["msg"][1:]
    if detail["type"] in _TAGS:
        known = (detail.get("ctx") or {}).get("expected_tags")
        return f"must be one of {known}" if known else "must name the fault"
    if detail["type"] == "extra_forbidden":
        return "there is no such field"
    if detail["type"] == "missing":
        return "required"
    return " ".join(text.split())
