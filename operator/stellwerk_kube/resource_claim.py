"""ResourceClaims: the devices that a claim's spec asks for, and what its status says of them.

DynamicResources searches by the spec and writes the status; listings and explanations show both.
Specs are parsed once per distinct text. Invariant: equal specs give the identical DeviceClaim for
as long as it is kept, whatever the claims are called.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum, auto
from typing import Final

import orjson

from stellwerk_kube.cel.bounded_cache import RecentlyMade
from stellwerk_kube.clock import parse_moment
from stellwerk_kube.device_capacity import Amounts, parse_amounts
from stellwerk_kube.json_values import JsonObject, text, text_or_empty, texts, whole_number
from stellwerk_kube.taints import Taint, Toleration, parse_tolerations

ALL: Final = "All"
"""allocationMode of a request for every device that matches."""
MAX_RESULTS: Final = 32
"""Devices that one claim may be given (`AllocationResultsMaxSize`)."""
MAX_KEPT_CLAIM_SPECS: Final = 1024
"""Parsed specs that are kept, as far as they stay below `MAX_KEPT_CLAIM_SPEC_BYTES`: templates give
thousands of claims the same text, and few clusters have more templates."""
MAX_KEPT_CLAIM_SPEC_BYTES: Final = 1 << 20
"""Bytes of the texts of kept specs; one spec may have up to a megabyte."""
BINDING_FAILED: Final = "device binding failed"
"""The first words of a failure of a device that was to become ready for its pod."""

# --- spec ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Choice:
    """A request, or one of the alternatives of a request."""

    name: str
    parent: str
    """The request whose alternative it is; empty: it is a request itself."""
    class_name: str
    everything: bool
    """Every device that matches (allocationMode All)."""
    count: int
    admin_access: bool
    selectors: tuple[str, ...]
    """CEL expressions."""
    tolerations: tuple[Toleration, ...]
    written_tolerations: Sequence[JsonObject]
    capacity: Amounts

    @property
    def full_name(self) -> str:
        """`request`, or `request/alternative`."""
        return f"{self.parent}/{self.name}" if self.parent else self.name

    @property
    def request(self) -> str:
        """The name of the request that it belongs to."""
        return self.parent or self.name

    def untolerated(self, taints: Iterable[Taint]) -> list[Taint]:
        """The taints that it does not tolerate."""
        return [
            taint for taint in taints if not any(each.tolerates(taint) for each in self.tolerations)
        ]


@dataclass(frozen=True, slots=True, eq=False)
class DeviceRequest:
    """One request of a claim."""

    name: str
    choices: tuple[Choice, ...]
    """The request itself, or its alternatives, best first."""
    prioritized: bool
    """The choices are alternatives (firstAvailable)."""


@dataclass(frozen=True, slots=True, eq=False)
class DeviceConstraint:
    """An attribute in which the devices of some requests must agree, or must all differ."""

    attribute: str
    distinct: bool
    requests: frozenset[str]
    """Empty: all requests."""

    def covers(self, choice: Choice) -> bool:
        """Whether the devices of a request are affected."""
        named = self.requests
        return not named or choice.request in named or choice.full_name in named


@dataclass(frozen=True, slots=True, eq=False)
class DeviceClaim:
    """The devices that a claim asks for (spec.devices)."""

    requests: tuple[DeviceRequest, ...]
    constraints: tuple[DeviceConstraint, ...]
    config: Sequence[JsonObject]

    @property
    def expressions(self) -> set[str]:
        """The selectors of all requests and alternatives."""
        return {each for choice in self.choices for each in choice.selectors}

    @property
    def choices(self) -> list[Choice]:
        """All requests and alternatives in order."""
        return [choice for request in self.requests for choice in request.choices]


def device_claim_of(claim: JsonObject) -> DeviceClaim:
    """The parsed spec of a claim.

    Raises:
        KeyError, TypeError, ValueError, AttributeError: the claim is malformed.
    """
    return _device_claims.of(orjson.dumps(claim["spec"].get("devices") or {}))


def _device_claim(written: bytes) -> DeviceClaim:
    devices = orjson.loads(written)
    return DeviceClaim(
        tuple(_request(each) for each in devices.get("requests") or ()),
        tuple(_constraint(each) for each in devices.get("constraints") or ()),
        devices.get("config") or (),
    )


_device_claims: Final = RecentlyMade(_device_claim, MAX_KEPT_CLAIM_SPEC_BYTES, MAX_KEPT_CLAIM_SPECS)


def _request(obj: JsonObject) -> DeviceRequest:
    name = text(obj["name"])
    alternatives = obj.get("firstAvailable") or ()
    if alternatives:
        choices = tuple(_choice(text(each["name"]), name, each) for each in alternatives)
        return DeviceRequest(name, choices, prioritized=True)
    return DeviceRequest(name, (_choice(name, "", obj["exactly"]),), prioritized=False)


def _choice(name: str, parent: str, obj: JsonObject) -> Choice:
    return Choice(
        name=name,
        parent=parent,
        class_name=text(obj["deviceClassName"]),
        everything=obj.get("allocationMode") == ALL,
        count=whole_number(obj.get("count") or 1),
        admin_access=bool(obj.get("adminAccess")),
        selectors=selector_expressions(obj),
        tolerations=parse_tolerations(obj.get("tolerations")),
        written_tolerations=obj.get("tolerations") or (),
        capacity=parse_amounts((obj.get("capacity") or {}).get("requests")),
    )


def _constraint(obj: JsonObject) -> DeviceConstraint:
    match, distinct = obj.get("matchAttribute"), obj.get("distinctAttribute")
    attribute = text_or_empty(match) or text(distinct)
    return DeviceConstraint(attribute, not match, frozenset(texts(obj.get("requests"))))


def selector_expressions(obj: Mapping[str, Sequence[JsonObject]]) -> tuple[str, ...]:
    """The CEL selectors of a request, or of a DeviceClass."""
    return tuple(text(each["cel"]["expression"]) for each in obj.get("selectors") or ())


# --- status -------------------------------------------------------------------------------------


def is_allocated(claim: JsonObject) -> bool:
    """Whether the API shows an allocation."""
    return bool((claim.get("status") or {}).get("allocation"))


def uid_of(claim: JsonObject) -> str:
    """The claim's uid; one without, as in recorded cases, is known by its name."""
    metadata = claim["metadata"]
    return str(metadata.get("uid") or f"{metadata.get('namespace') or ''}/{metadata['name']}")


def key_of(claim: JsonObject) -> str:
    """The claim's namespace/name."""
    return f"{claim['metadata'].get('namespace') or ''}/{claim['metadata']['name']}"


def reserved_for(claim: JsonObject) -> list[JsonObject]:
    """The entries of status.reservedFor: the pods and groups that may use the claim."""
    return list((claim.get("status") or {}).get("reservedFor") or ())


def is_reserved_for(claim: JsonObject, consumer: JsonObject) -> bool:
    """Whether the consumer, by its uid, is among those that the claim is reserved for."""
    return any(each.get("uid") == consumer["uid"] for each in reserved_for(claim))


# --- binding conditions -------------------------------------------------------------------------


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


def failure_of(claim: JsonObject) -> str:
    """The failure of a device in kube-scheduler's words; empty: there is none."""
    for result, conditions in _waiting(claim):
        for condition in result.get("bindingFailureConditions") or ():
            failed = conditions.get(condition)
            if failed is not None and failed.get("status") == "True":
                return (
                    f"{BINDING_FAILED}: claim={claim['metadata']['name']}, "
                    f"reason={failed.get('reason') or ''}, "
                    f"message={json.dumps(failed.get('message') or '')}"
                )
    return ""


def is_late(claim: JsonObject, now: datetime, timeout_seconds: float) -> bool:
    """Whether the claim was allocated more than `timeout_seconds` ago; False if unknown."""
    written = ((claim.get("status") or {}).get("allocation") or {}).get("allocationTimestamp")
    if not written:
        return False
    try:
        allocated = parse_moment(written)
    except ValueError:
        return False
    return (now - allocated).total_seconds() > timeout_seconds


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
