"""The resource claims of a pod, and why devices were not taken, as they are answered.

Explanations and `stellwerk decide` say it. Invariant: a line for people says nothing that is not in
the fields.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from stellwerk.models.answers.answer import PortAnswer

_MOST_REASONS: Final = 6
_MOST_EXAMPLES: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimState(PortAnswer):
    """A resource claim of the pod."""

    claim: str
    state: Literal["missing", "needed", "allocated"]
    devices: Sequence[str] | None = None
    """The devices that it has been given: DRIVER/POOL/DEVICE."""
    reserved_for: Sequence[str] | None = None
    """The names of the pods that it is reserved for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DevicesNotTaken(PortAnswer):
    """Devices that have the same first reason against them."""

    reason: str
    devices: int
    examples: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceError(PortAnswer):
    """An error that ended the search on some nodes."""

    claim: str
    request: str
    error: str
    nodes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceRequestState(PortAnswer):
    """One request of a claim, and the devices that it could take, seen alone."""

    claim: str
    request: str
    device_class: str
    count: int | Literal["All"]
    """How many devices are asked for."""
    considered: int
    free: int
    nodes: int
    nodes_with_enough: int
    """Nodes on which the request finds enough, alone."""
    not_taken: Sequence[DevicesNotTaken]
    errors: Sequence[DeviceError] | None = None

    def lines(self) -> Iterator[str]:
        """The request in words."""
        plural = "" if self.count == 1 else "s"
        wanted = "all devices" if self.count == "All" else f"{self.count} device{plural}"
        yield (
            f"Request {self.request} of {self.claim} asks for {wanted} of class "
            f"{self.device_class}: {self.considered} considered, {self.free} could be taken; "
            f"{self.nodes_with_enough} of {self.nodes} nodes have enough for it alone."
        )
        for each in self.not_taken[:_MOST_REASONS]:
            examples = ", ".join(each.examples[:_MOST_EXAMPLES])
            yield f"  {each.devices} not taken: {each.reason} ({examples})"
        for error in self.errors or ():
            yield f"  on {error.nodes} nodes: {error.error}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolLeftOut(PortAnswer):
    """A pool from which nothing is taken."""

    pool: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DevicesOfPod(PortAnswer):
    """The devices that a pod has, or asks for."""

    claims: Sequence[ClaimState]
    requests: Sequence[DeviceRequestState] | None = None
    pools_left_out: Sequence[PoolLeftOut] | None = None

    def lines(self) -> Iterator[str]:
        """The claims, and for each request why devices were not taken, for people."""
        for claim in self.claims:
            given = f": {', '.join(claim.devices)}" if claim.devices else ""
            yield f"Claim {claim.claim} is {claim.state}{given}."
        for pool in self.pools_left_out or ():
            yield f"Pool {pool.pool} is left out: {pool.reason}."
        for request in self.requests or ():
            yield from request.lines()
