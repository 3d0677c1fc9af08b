"""The rules for giving back a device that a search refuses or takes back: repaired, or as recorded.

`allocator` asks one of the two for every device that it does not keep; what is written to claims is
taken back by `bind_claim`. kube-scheduler v1.36.0 to v1.36.2 keep counters taken that no device has
(kubernetes#140431), and decisions that follow these releases keep the fault. Invariant: the search
itself does not know which of the two it uses.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

from typing_extensions import override

from stellwerk.plugins.dynamic_resources.allocating_state import AllocatingState
from stellwerk.plugins.dynamic_resources.claims import RequestData
from stellwerk.plugins.dynamic_resources.constraints import ConstraintState
from stellwerk.plugins.dynamic_resources.resource_pools import Pool
from stellwerk_kube.device_capacity import Amounts
from stellwerk_kube.resource_slice import Device

DeviceInPool: TypeAlias = tuple[Device, Pool]


@dataclass(frozen=True, slots=True)
class RefusedDevice:
    """A device that a claim does not get, after counters were taken for it."""

    claim_index: int
    wanted: RequestData
    candidate: DeviceInPool
    is_charged: bool
    """Whether the device has taken counters."""


class Returns(Protocol):
    """The three moments at which a search gives something back."""

    def after_refusal(
        self, allocating: AllocatingState, candidate: DeviceInPool, *, is_charged: bool
    ) -> None:
        """A taint or a constraint refuses a device, which may have taken counters."""
        ...

    def after_lack_of_room(
        self,
        allocating: AllocatingState,
        refusal: RefusedDevice,
        constraints: Sequence[ConstraintState],
    ) -> None:
        """The device has too little capacity left. All constraints have taken it up."""
        ...

    def after_share(
        self,
        allocating: AllocatingState,
        candidate: DeviceInPool,
        consumed: Amounts,
        *,
        is_charged: bool,
    ) -> None:
        """A share of a shared device is taken back."""
        ...


class RepairedReturns(Returns):
    """Everything is given back, as from v1.36.3 on."""

    @override
    def after_refusal(
        self, allocating: AllocatingState, candidate: DeviceInPool, *, is_charged: bool
    ) -> None:
        if is_charged:
            allocating.refund(*candidate)

    @override
    def after_lack_of_room(
        self,
        allocating: AllocatingState,
        refusal: RefusedDevice,
        constraints: Sequence[ConstraintState],
    ) -> None:
        for constraint in constraints:
            constraint.remove(refusal.wanted.choice)
        if refusal.is_charged:
            allocating.refund(*refusal.candidate)

    @override
    def after_share(
        self,
        allocating: AllocatingState,
        candidate: DeviceInPool,
        consumed: Amounts,
        *,
        is_charged: bool,
    ) -> None:
        if not allocating.release(candidate[0], consumed):
            allocating.forget_shares(candidate[0])
        if is_charged:
            allocating.refund(*candidate)


class RecordedReturns(Returns):
    """Some things stay taken until the search ends, as in v1.36.0 to v1.36.2.

    These are the counters of a device that is refused, those of a shared device, and a device
    without room with its place in the constraints.
    """

    @override
    def after_refusal(
        self, allocating: AllocatingState, candidate: DeviceInPool, *, is_charged: bool
    ) -> None:
        pass

    @override
    def after_lack_of_room(
        self,
        allocating: AllocatingState,
        refusal: RefusedDevice,
        constraints: Sequence[ConstraintState],
    ) -> None:
        device = refusal.candidate[0]
        if not device.traits.shareable:
            allocating.take(device, refusal.claim_index)

    @override
    def after_share(
        self,
        allocating: AllocatingState,
        candidate: DeviceInPool,
        consumed: Amounts,
        *,
        is_charged: bool,
    ) -> None:
        device = candidate[0]
        allocating.release(device, consumed)
        if consumed and allocating.consumes_nothing(device):
            # A device without capacities counts as shared until the search ends.
            allocating.forget_shares(device)


REPAIRED: Final = RepairedReturns()
RECORDED: Final = RecordedReturns()
