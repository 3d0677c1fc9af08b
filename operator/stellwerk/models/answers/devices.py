"""Devices and resource claims, as they are answered: who has which, and who waits for what.

`explain.devices` makes them, the page shows them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from stellwerk.models.answers.answer import PortAnswer
from stellwerk.models.answers.suggestion import TaintFields


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceFields(PortAnswer):
    """A device that a driver offers."""

    device: str
    """DRIVER/POOL/DEVICE."""
    node: str | None = None
    """The one node that it is for; absent: there are several."""
    attributes: Mapping[str, str]
    capacity: Mapping[str, str]
    taints: Sequence[TaintFields]
    claims: Sequence[str]
    """NAMESPACE/NAME of the claims that hold it, or a part of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DevicesPage(PortAnswer):
    """Devices, by driver, pool and name."""

    total: int
    held: int
    """So many of them are held by a claim."""
    items: Sequence[DeviceFields]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimRequest(PortAnswer):
    """A request of a claim, or one of its alternatives."""

    request: str
    device_class: str
    count: int | Literal["All"]
    selectors: Sequence[str]
    """CEL expressions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimExplanation(PortAnswer):
    """A resource claim: what it asks for, what it has, and whose it is."""

    claim: str
    state: Literal["needed", "allocated"]
    requests: Sequence[ClaimRequest]
    problem: str | None = None
    """Why its requests cannot be read."""
    devices: Sequence[str]
    """The devices that it has been given: DRIVER/POOL/DEVICE."""
    reserved_for: Sequence[str]
    """NAMESPACE/NAME of the pods that it is reserved for."""
    waiting: Sequence[str]
    """Waiting pods that name it, some of them."""
