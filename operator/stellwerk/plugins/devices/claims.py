"""What a ResourceClaim asks for: parsed once per distinct spec.

Invariant: equal specs give the identical Demand for as long as it is kept, whatever the claims are
called, so that what was found out for one claim serves all that ask the same.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import orjson

from stellwerk.models.device_capacity import Amounts, parse_amounts
from stellwerk.models.json_values import JsonObject, text, text_or_empty, texts, whole_number
from stellwerk.models.taints import Taint, Toleration, parse_tolerations

ALL: Final = "All"
MOST_RESULTS: Final = 32
"""Devices that one claim may be given."""
_KEPT_SPECS: Final = 1024


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
class Request:
    """One request of a claim."""

    name: str
    choices: tuple[Choice, ...]
    """The request itself, or its alternatives, best first."""
    prioritized: bool
    """The choices are alternatives (firstAvailable)."""


@dataclass(frozen=True, slots=True, eq=False)
class Constraint:
    """What the devices of some requests must have in common, or must not."""

    attribute: str
    distinct: bool
    requests: frozenset[str]
    """Empty: all requests."""

    def covers(self, choice: Choice) -> bool:
        """Whether the devices of a request are affected."""
        named = self.requests
        return not named or choice.request in named or choice.full_name in named


@dataclass(frozen=True, slots=True, eq=False)
class Demand:
    """The spec of a claim."""

    requests: tuple[Request, ...]
    constraints: tuple[Constraint, ...]
    config: Sequence[JsonObject]

    @property
    def choices(self) -> list[Choice]:
        """All requests and alternatives in order."""
        return [choice for request in self.requests for choice in request.choices]


def demand_of(claim: JsonObject) -> Demand:
    """The parsed spec of a claim.

    Raises:
        KeyError, TypeError, ValueError, AttributeError: the claim is malformed.
    """
    return _demand(orjson.dumps(claim["spec"].get("devices") or {}))


@lru_cache(maxsize=_KEPT_SPECS)
def _demand(written: bytes) -> Demand:
    devices = orjson.loads(written)
    return Demand(
        tuple(_request(each) for each in devices.get("requests") or ()),
        tuple(_constraint(each) for each in devices.get("constraints") or ()),
        devices.get("config") or (),
    )


def _request(obj: JsonObject) -> Request:
    name = text(obj["name"])
    alternatives = obj.get("firstAvailable") or ()
    if alternatives:
        choices = tuple(_choice(text(each["name"]), name, each) for each in alternatives)
        return Request(name, choices, prioritized=True)
    return Request(name, (_choice(name, "", obj["exactly"]),), prioritized=False)


def _choice(name: str, parent: str, obj: JsonObject) -> Choice:
    return Choice(
        name=name,
        parent=parent,
        class_name=text(obj["deviceClassName"]),
        everything=obj.get("allocationMode") == ALL,
        count=whole_number(obj.get("count") or 1),
        admin_access=bool(obj.get("adminAccess")),
        selectors=expressions(obj),
        tolerations=parse_tolerations(obj.get("tolerations")),
        written_tolerations=obj.get("tolerations") or (),
        capacity=parse_amounts((obj.get("capacity") or {}).get("requests")),
    )


def _constraint(obj: JsonObject) -> Constraint:
    match, distinct = obj.get("matchAttribute"), obj.get("distinctAttribute")
    attribute = text_or_empty(match) or text(distinct)
    return Constraint(attribute, not match, frozenset(texts(obj.get("requests"))))


def expressions(obj: Mapping[str, Sequence[JsonObject]]) -> tuple[str, ...]:
    """The CEL selectors of a request or a class."""
    return tuple(text(each["cel"]["expression"]) for each in obj.get("selectors") or ())
