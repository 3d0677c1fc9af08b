"""The devices that drivers offer and the claims for them, as lists and one by one.

`explain.lists.devices` and `explain.lists.claims` make them.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from stellwerk.answers.answer import PortAnswer
from stellwerk.answers.reading import ClusterReading
from stellwerk.answers.suggestion import TaintFields


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

    TITLES: ClassVar = ("DEVICE", "NODE", "HELD BY", "ATTRIBUTES")
    NONE: ClassVar = "There is no device."

    total: int
    held: int
    """Devices that a claim holds."""
    items: Sequence[DeviceFields]
    read: ClusterReading | None = None
    """The reading that the answer was decided on; absent: an operator gave it."""

    def rows(self) -> Iterator[tuple[str, ...]]:
        """The cells of each device."""
        for each in self.items:
            yield (
                each.device,
                each.node or "several",
                ", ".join(each.claims),
                ", ".join(f"{key}={value}" for key, value in each.attributes.items()),
            )

    def count(self) -> int:
        """The devices that there are, on this page or not."""
        return self.total

    def remarks(self) -> Iterator[str]:
        """No line stands below the table."""
        return iter(())

    def names(self) -> Iterator[str]:
        """The devices."""
        return (f"device/{each.device}" for each in self.items)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceHolder(PortAnswer):
    """A claim that has been given a device, or a part of it."""

    claim: str
    request: str
    """The one of its requests that got the device."""
    consumed: Mapping[str, str]
    """The part that it takes of the capacity of a device that claims share."""
    only_looks: bool
    """It has adminAccess: the device is not taken."""
    pods: Sequence[str]
    """NAMESPACE/NAME of the pods that the claim is reserved for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceCounter(PortAnswer):
    """A counter of a pool that several devices share."""

    counter_set: str
    counter: str
    takes: str
    """The amount that the device takes of it while it is held."""
    offered: str
    """The amount that the pool has of it."""
    free: str
    """The amount that the devices that are held leave of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceExplanation(PortAnswer):
    """A device: what it is, who has it, and on which nodes it can be used."""

    device: DeviceFields
    resource_slice: str
    """The name of the ResourceSlice that offers it."""
    shared: bool
    """Whether several claims may have a part of it each."""
    holders: Sequence[DeviceHolder]
    counters: Sequence[DeviceCounter]
    nodes: Sequence[str]
    """The nodes that it is for, some of them."""
    on_nodes: int
    """The number of these nodes."""
    read: ClusterReading | None = None
    """The reading that the answer was decided on; absent: an operator gave it."""


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
    """The reason for which its requests cannot be read."""
    devices: Sequence[str]
    """The devices that it has been given: DRIVER/POOL/DEVICE."""
    reserved_for: Sequence[str]
    """NAMESPACE/NAME of the pods that it is reserved for."""
    waiting: Sequence[str]
    """Waiting pods that name it, some of them."""
    read: ClusterReading | None = None
    """The reading that the answer was decided on; absent: an operator gave it."""
