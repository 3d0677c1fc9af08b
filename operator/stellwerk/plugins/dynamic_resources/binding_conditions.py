"""Binding conditions: whether the devices of an allocated claim are ready to be used.

Filter asks about claims that were allocated earlier, PreBind waits with it. Invariant: an answer
depends on the claim and the time alone.
"""

import json
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from enum import Enum, auto
from typing import Final

from stellwerk.models.json_values import JsonObject
from stellwerk.plugins.dynamic_resources.claims import is_allocated

TIMED_OUT: Final = "device binding timeout"
_FAILED: Final = "device binding failed"


class Readiness(Enum):
    """The state of a claim's devices."""

    READY = auto()
    PENDING = auto()
    FAILED = auto()


def readiness(claim: JsonObject) -> Readiness:
    """The state of the devices of an allocated claim."""
    if failure_of(claim):
        return Readiness.FAILED
    ready = all(
        conditions.get(condition, {}).get("status") == "True"
        for result, conditions in _waiting(claim)
        for condition in result["bindingConditions"]
    )
    return Readiness.READY if ready else Readiness.PENDING


def has_conditions(claim: JsonObject) -> bool:
    """Whether any of the devices has to become ready first."""
    return any(True for _ in _waiting(claim))


def drivers_awaited(claim: JsonObject) -> Iterator[str]:
    """The drivers whose devices have to become ready first."""
    for result, _ in _waiting(claim):
        yield str(result["driver"])


def outcome_of(failure: str) -> str:
    """The outcome of waiting in the words of kube-scheduler's metrics; no failure: success."""
    if not failure:
        return "success"
    if failure == TIMED_OUT:
        return "timeout"
    return "failure" if failure.startswith(_FAILED) else "error"


def failure_of(claim: JsonObject) -> str:
    """The failure of a device in kube-scheduler's words; empty: there is none."""
    for result, conditions in _waiting(claim):
        for condition in result.get("bindingFailureConditions") or ():
            failed = conditions.get(condition)
            if failed is not None and failed.get("status") == "True":
                return (
                    f"{_FAILED}: claim={claim['metadata']['name']}, "
                    f"reason={failed.get('reason') or ''}, "
                    f"message={json.dumps(failed.get('message') or '')}"
                )
    return ""


def is_late(claim: JsonObject, now: datetime, timeout_seconds: float) -> bool:
    """Whether so much time has passed since the claim was allocated; never if it is not known."""
    written = ((claim.get("status") or {}).get("allocation") or {}).get("allocationTimestamp")
    if not written:
        return False
    try:
        allocated = datetime.fromisoformat(written)
    except ValueError:
        return False
    return now > allocated + timedelta(seconds=timeout_seconds)


def is_available(claim: JsonObject, now: datetime, timeout_seconds: float) -> bool:
    """Whether an allocated claim can be used, now or when its devices are ready."""
    match readiness(claim):
        case Readiness.READY:
            return True
        case Readiness.FAILED:
            return False
        case Readiness.PENDING:
            return not is_late(claim, now, timeout_seconds)


def _waiting(claim: JsonObject) -> Iterator[tuple[JsonObject, Mapping[str, JsonObject]]]:
    """The results with binding conditions, and the conditions of their devices by type."""
    if not is_allocated(claim):
        return
    status = claim["status"]
    reported = {
        (each.get("driver"), each.get("pool"), each.get("device")): each.get("conditions") or ()
        for each in status.get("devices") or ()
    }
    for result in (status["allocation"].get("devices") or {}).get("results") or ():
        if result.get("bindingConditions"):
            key = (result["driver"], result["pool"], result["device"])
            yield result, {each["type"]: each for each in reported.get(key, ())}
