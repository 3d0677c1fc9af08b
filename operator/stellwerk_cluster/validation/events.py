"""The rules of events, in their stored (core/v1) form.

Called through the strategies of both event groups. Invariant: strict for events that came through
events.k8s.io, lax for the others, as in the API server.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stellwerk_cluster.apimachinery.failures import FieldError, bad_value, required
from stellwerk_cluster.apimachinery.names import qualified_name_errors
from stellwerk_cluster.apimachinery.objects import EMPTY

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stellwerk.models.json_values import JsonObject

_TYPES: Final = ("Normal", "Warning")
_LONGEST_WORD: Final = 128
_LONGEST_NOTE: Final = 1024
_FEWEST_IN_SERIES: Final = 2
_IMMUTABLE: Final = (
    "involvedObject",
    "reason",
    "message",
    "source",
    "firstTimestamp",
    "lastTimestamp",
    "count",
    "related",
    "reportingComponent",
    "reportingInstance",
    "type",
    "action",
    "eventTime",
)


def validate_old_event(event: JsonObject) -> list[FieldError]:
    """What is wrong with an event of the core group."""
    return list(_old_event_errors(event))


def _old_event_errors(event: JsonObject) -> Iterator[FieldError]:
    regarding = event["involvedObject"].get("namespace", "")
    namespace = event["metadata"].get("namespace", "")
    # What has no namespace belongs to the default one.
    if namespace != regarding and (regarding or namespace != "default"):
        yield bad_value("involvedObject.namespace", regarding, "does not match event.namespace")
    if event.get("eventTime"):
        yield from _reporter_errors(event, "reportingComponent")
        for name in ("action", "reason"):
            if not event.get(name):
                yield required(name)
            else:
                yield from _length_errors(event, name, _LONGEST_WORD)
        yield from _length_errors(event, "message", _LONGEST_NOTE)


def validate_old_event_update(
    new: JsonObject, _old: JsonObject, _subresource: str
) -> list[FieldError]:
    """As for a new event."""
    return validate_old_event(new)


def validate_new_event(event: JsonObject) -> list[FieldError]:
    """What is wrong with an event of events.k8s.io."""
    return list(_new_event_errors(event))


def _new_event_errors(event: JsonObject) -> Iterator[FieldError]:
    if not event.get("eventTime"):
        yield required("eventTime")
    yield from _series_errors(event)
    yield from _reporter_errors(event)
    for name in ("action", "reason"):
        if not event.get(name):
            yield required(name)
        else:
            yield from _length_errors(event, name, _LONGEST_WORD)
    yield from _length_errors(event, "message", _LONGEST_NOTE)
    if event.get("type", "") not in _TYPES:
        yield bad_value("type", "", f"has invalid value: {event.get('type', '')}")
    for name in ("firstTimestamp", "lastTimestamp", "count", "source"):
        if event.get(name):
            yield bad_value(name, "", "needs to be unset")


def _reporter_errors(event: JsonObject, shown: str = "reportingController") -> Iterator[FieldError]:
    controller = event.get("reportingComponent", "")
    if not controller:
        yield required(shown)
    for error in qualified_name_errors(controller):
        yield bad_value(shown, controller, error)
    if not event.get("reportingInstance"):
        yield required("reportingInstance")
    else:
        yield from _length_errors(event, "reportingInstance", _LONGEST_WORD)


def _length_errors(event: JsonObject, name: str, longest: int) -> Iterator[FieldError]:
    if len(event.get(name, "")) > longest:
        yield bad_value(name, "", f"can have at most {longest} characters")


def _series_errors(event: JsonObject) -> Iterator[FieldError]:
    series = event.get("series")
    if series is not None and (series.get("count") or 0) < _FEWEST_IN_SERIES:
        yield bad_value("series.count", "", f"should be at least {_FEWEST_IN_SERIES}")


def validate_new_event_update(
    new: JsonObject, old: JsonObject, _subresource: str
) -> list[FieldError]:
    """Only the series of such an event may change."""
    errors = [
        bad_value(name, new.get(name), "field is immutable")
        for name in _IMMUTABLE
        if (new.get(name) or EMPTY) != (old.get(name) or EMPTY)
    ]
    return [*errors, *_series_errors(new)]
