"""The rules of events, in their stored (core/v1) form.

Called through the strategies of both event groups. Invariant: what came through events.k8s.io
passes what events of the core group have to pass, and more, as in the API server.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stellwerk_cluster.apimachinery.failures import FieldError, bad_value, required
from stellwerk_cluster.apimachinery.names import qualified_name_errors
from stellwerk_cluster.apimachinery.objects import EMPTY

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stellwerk_kube.json_values import JsonObject

_TYPES: Final = ("Normal", "Warning")
_MAX_WORD_CHARACTERS: Final = 128
"""Characters of an event's reason, action, controller and instance."""
_MAX_NOTE_CHARACTERS: Final = 1024
"""Characters of an event's note."""
_MIN_SERIES_COUNT: Final = 2
"""Events from which there is a series."""
_OF_THE_CLUSTER: Final = ("default", "kube-system")
"""The namespaces of events about objects that have none."""
_IMMUTABLE: Final = (
    "involvedObject",
    "reason",
    "message",
    "source",
    "firstTimestamp",
    "lastTimestamp",
    "count",
    "reason",  # compared twice, and reported twice, by ValidateEventUpdate of v1.36
    "type",
    "eventTime",
    "action",
    "related",
    "reportingComponent",
    "reportingInstance",
)
_NEW_NAMES: Final = {"reportingComponent": "reportingController"}


def validate_old_event(event: JsonObject) -> list[FieldError]:
    """The errors of an event of the core group."""
    return list(_common_errors(event, "reportingComponent"))


def validate_old_event_update(
    new: JsonObject, _old: JsonObject, _subresource: str
) -> list[FieldError]:
    """As for a new event."""
    return validate_old_event(new)


def validate_new_event(event: JsonObject) -> list[FieldError]:
    """The errors of an event of events.k8s.io."""
    return list(_new_event_errors(event))


def validate_new_event_update(
    new: JsonObject, old: JsonObject, _subresource: str
) -> list[FieldError]:
    """The errors of a change of such an event: only its series may change."""
    series = _series_errors(new) if new.get("series") != old.get("series") else ()
    immutable = [
        bad_value(_NEW_NAMES.get(name, name), new.get(name), "field is immutable")
        for name in _IMMUTABLE
        if (new.get(name) or EMPTY) != (old.get(name) or EMPTY)
    ]
    return [*_common_errors(new, "reportingController"), *series, *immutable]


def _common_errors(event: JsonObject, controller: str) -> Iterator[FieldError]:
    """`legacyValidateEvent` of v1.36, which every event has to pass, however it came."""
    regarding = event["involvedObject"].get("namespace", "")
    namespace = event["metadata"].get("namespace", "")
    if event.get("eventTime"):
        astray = not regarding and namespace not in _OF_THE_CLUSTER
    else:
        # What has no namespace belongs to the default one.
        astray = namespace != regarding and (bool(regarding) or namespace != "default")
    if astray:
        yield bad_value("involvedObject.namespace", regarding, "does not match event.namespace")
    if not event.get("eventTime"):
        return
    yield from _reporter_errors(event, controller)
    for name in ("action", "reason"):
        if not event.get(name):
            yield required(name)
        yield from _length_errors(event, name, _MAX_WORD_CHARACTERS)
    yield from _length_errors(event, "message", _MAX_NOTE_CHARACTERS)


def _new_event_errors(event: JsonObject) -> Iterator[FieldError]:
    yield from _common_errors(event, "reportingController")
    yield from _series_errors(event)
    if not event.get("eventTime"):
        yield required("eventTime")
    if event.get("type", "") not in _TYPES:
        yield bad_value("type", "", f"has invalid value: {event.get('type', '')}")
    for name in ("firstTimestamp", "lastTimestamp", "count", "source"):
        if event.get(name):
            yield bad_value(name, "", "needs to be unset")


def _reporter_errors(event: JsonObject, shown: str) -> Iterator[FieldError]:
    controller = event.get("reportingComponent", "")
    if not controller:
        yield required(shown)
    for error in qualified_name_errors(controller):
        yield bad_value(shown, controller, error)
    if not event.get("reportingInstance"):
        yield required("reportingInstance")
    yield from _length_errors(event, "reportingInstance", _MAX_WORD_CHARACTERS)


def _length_errors(event: JsonObject, name: str, longest: int) -> Iterator[FieldError]:
    if len(event.get(name, "").encode()) > longest:
        yield bad_value(name, "", f"can have at most {longest} characters")


def _series_errors(event: JsonObject) -> Iterator[FieldError]:
    series = event.get("series")
    if series is None:
        return
    if (series.get("count") or 0) < _MIN_SERIES_COUNT:
        yield bad_value("series.count", "", f"should be at least {_MIN_SERIES_COUNT}")
    if not series.get("lastObservedTime"):
        yield required("series.lastObservedTime")
