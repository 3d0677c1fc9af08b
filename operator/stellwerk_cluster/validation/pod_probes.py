"""Probes and lifecycle hooks of containers.

Called by the validation of containers. Invariant: a handler says what is done in exactly one way.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from stellwerk_cluster.apimachinery.failures import (
    FieldError,
    bad_value,
    forbidden_field,
    required,
    unsupported,
)
from stellwerk_cluster.apimachinery.objects import EMPTY
from stellwerk_cluster.validation.checks import not_negative, port_number_or_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from stellwerk.models.json_values import JsonObject

PROBES: Final = ("livenessProbe", "readinessProbe", "startupProbe")
_NUMBERS: Final = (
    "initialDelaySeconds",
    "timeoutSeconds",
    "periodSeconds",
    "successThreshold",
    "failureThreshold",
)
_HEADER_NAME: Final = "[-A-Za-z0-9]+"


def probe_errors(
    container: JsonObject, field: str, grace_seconds: int | None
) -> Iterator[FieldError]:
    """Errors of the probes of a container."""
    for name in PROBES:
        probe, where = container.get(name), f"{field}.{name}"
        if probe is None:
            continue
        yield from _handler_errors(probe, where, grace_seconds)
        for number in _NUMBERS:
            yield from not_negative(probe.get(number, 0), f"{where}.{number}")
        own_grace = probe.get("terminationGracePeriodSeconds")
        if own_grace is not None and own_grace <= 0:
            where_grace = f"{where}.terminationGracePeriodSeconds"
            yield bad_value(where_grace, own_grace, "must be greater than 0")
        if name == "readinessProbe":
            if own_grace is not None:
                where_grace = f"{where}.terminationGracePeriodSeconds"
                yield bad_value(where_grace, own_grace, "must not be set for readinessProbes")
        elif probe.get("successThreshold", 0) != 1:
            threshold = probe.get("successThreshold", 0)
            yield bad_value(f"{where}.successThreshold", threshold, "must be 1")


def lifecycle_errors(
    container: JsonObject, field: str, grace_seconds: int | None
) -> Iterator[FieldError]:
    """Errors of the hooks of a container."""
    lifecycle: JsonObject = container.get("lifecycle") or EMPTY
    for name in ("postStart", "preStop"):
        if lifecycle.get(name) is not None:
            where = f"{field}.lifecycle.{name}"
            yield from _handler_errors(lifecycle[name], where, grace_seconds)


def _handler_errors(
    handler: JsonObject, field: str, grace_seconds: int | None
) -> Iterator[FieldError]:
    given = [name for name in _ACTIONS if handler.get(name) is not None]
    if not given:
        yield required(field, "must specify a handler type")
        return
    for name in given[1:]:
        yield forbidden_field(f"{field}.{name}", "may not specify more than 1 handler type")
    first = given[0]
    if first == "sleep":
        yield from _sleep_errors(handler[first], f"{field}.sleep", grace_seconds)
    else:
        yield from _ACTIONS[first](handler[first], f"{field}.{first}")


def _exec_errors(action: JsonObject, field: str) -> Iterator[FieldError]:
    if not action.get("command"):
        yield required(f"{field}.command")


def _http_errors(action: JsonObject, field: str) -> Iterator[FieldError]:
    if not action.get("path"):
        yield required(f"{field}.path")
    yield from port_number_or_name(action.get("port", 0), f"{field}.port")
    if action.get("scheme", "") not in ("HTTP", "HTTPS"):
        yield unsupported(f"{field}.scheme", action.get("scheme", ""), ("HTTP", "HTTPS"))
    for header in action.get("httpHeaders") or ():
        if not re.fullmatch(_HEADER_NAME, header.get("name", "")):
            text = (
                "a valid HTTP header must consist of alphanumeric characters or '-' (e.g. "
                f"'X-Header-Name', regex used for validation is '{_HEADER_NAME}')"
            )
            yield bad_value(f"{field}.httpHeaders", header.get("name", ""), text)


def _port_errors(action: JsonObject, field: str) -> Iterator[FieldError]:
    yield from port_number_or_name(action.get("port", 0), f"{field}.port")


def _sleep_errors(
    action: JsonObject, field: str, grace_seconds: int | None
) -> Iterator[FieldError]:
    seconds = action.get("seconds", 0)
    if grace_seconds is not None and not 0 <= seconds <= grace_seconds:
        text = f"must be non-negative and less than terminationGracePeriodSeconds ({grace_seconds})"
        yield bad_value(field, seconds, text)


def _never(_action: JsonObject, _field: str) -> Iterator[FieldError]:
    return iter(())


_ACTIONS: Final[dict[str, Callable[[JsonObject, str], Iterator[FieldError]]]] = {
    "exec": _exec_errors,
    "httpGet": _http_errors,
    "tcpSocket": _port_errors,
    "grpc": _port_errors,
    "sleep": _never,
}
"""What a handler may do, in the order in which the API looks; the first one counts."""
