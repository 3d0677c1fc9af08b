"""Reasons for which devices are not taken: each request is asked about each device by itself.

Explanations ask. Invariant: a device without a reason is one that the request could have if it came
first; whether all requests together find enough is known from the search alone.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from stellwerk.models.device_capacity import consumption
from stellwerk.models.node import NodeInfo
from stellwerk.models.resource_slice import Device, DeviceKey, PoolKey
from stellwerk.models.taints import Taint
from stellwerk.plugins.dynamic_resources.allocated import ClaimKey
from stellwerk.plugins.dynamic_resources.allocator import AllocatingState, constraint_states
from stellwerk.plugins.dynamic_resources.claims import (
    AllocationRequest,
    ClaimToAllocate,
    RequestData,
)
from stellwerk.plugins.dynamic_resources.node_verdicts import NodeAllocator
from stellwerk.plugins.dynamic_resources.resource_pools import Pool
from stellwerk.plugins.dynamic_resources.selectors import SelectorError

IN_USE: Final = "in use"
_NO_CAPACITY: Final = "too little of its capacity is left"
_NO_COUNTERS: Final = "too little of the counters that it shares with other devices is left"
_SCARCE: Final = frozenset({_NO_CAPACITY, _NO_COUNTERS})


class Look(NamedTuple):
    """One request looked at one device."""

    claim: int
    """Its position in the request."""
    wanted: RequestData
    device: Device
    reason: str
    """The reason for which it is not taken; empty: it could be."""
    taints: Sequence[Taint] = ()
    """Those that the request does not tolerate, where that is the reason."""

    @property
    def scarce(self) -> bool:
        """Whether others have taken what the request lacks of the device or its pool."""
        return self.reason in _SCARCE


class Reasons:
    """Reasons for the devices of nodes, for one request."""

    def __init__(
        self, node_allocator: NodeAllocator, allocation_request: AllocationRequest
    ) -> None:
        """As devices are in use now."""
        self._node_allocator = node_allocator
        self._allocation_request = allocation_request
        self.holders: Mapping[DeviceKey, Sequence[ClaimKey]] = node_allocator.allocated.holders()

    def holders_in(self, pool: PoolKey) -> list[ClaimKey]:
        """The claims that hold anything of a pool."""
        held = self._node_allocator.allocated.in_pool.get(pool, {})
        return [claim for device in held for claim in self.holders.get(device, ())]

    def left_out(self, node: NodeInfo) -> Iterator[tuple[str, str]]:
        """The pools of a node from which nothing is taken, and why."""
        for pool in self._node_allocator.resource_pools.pools(node).pools:
            if pool.incomplete:
                yield pool.name, "it is being updated: slices of its newest generation are missing"
            elif pool.invalid:
                yield (
                    pool.name,
                    (
                        "it contradicts itself: a device or counter set occurs twice, or a device "
                        "consumes from counters that do not exist"
                    ),
                )

    def of_node(self, node: NodeInfo) -> Iterator[Look]:
        """Every request's look at every device of a node."""
        pools = self._node_allocator.resource_pools.pools(node)
        for pool in pools.pools:
            for device in pool.devices():
                for position, claim in enumerate(self._allocation_request.claims):
                    for choices in claim.requests:
                        for wanted in choices:
                            yield self._look(position, claim, wanted, device, pool, node)

    def _look(
        self,
        position: int,
        claim: ClaimToAllocate,
        wanted: RequestData,
        device: Device,
        pool: Pool,
        node: NodeInfo,
    ) -> Look:
        reason = self._in_use(wanted, device) or _not_selected(wanted, device)
        if not reason and device.source.per_device and not device.reach.includes(node):
            reason = "it is for other nodes"
        reason = reason or self._lacking(wanted, device, pool)
        if reason:
            return Look(position, wanted, device, reason)
        taints = wanted.choice.untolerated(device.traits.taints)
        if taints:
            named = ", ".join(f"{each.key}:{each.effect}" for each in taints)
            return Look(position, wanted, device, f"taint {named} is not tolerated", taints)
        return Look(position, wanted, device, _not_comparable(claim, wanted, device))

    def _in_use(self, wanted: RequestData, device: Device) -> str:
        taken = (
            not wanted.choice.admin_access and device.key in self._node_allocator.allocated.devices
        )
        return IN_USE if taken else ""

    def _lacking(self, wanted: RequestData, device: Device, pool: Pool) -> str:
        """The capacity or counter of which the device, or its pool, has too little."""
        allocating, choice, traits = (
            AllocatingState(self._node_allocator.allocated),
            wanted.choice,
            device.traits,
        )
        if not allocating.has_room(device, choice.capacity):
            missing = sorted(choice.capacity.keys() - traits.capacities.keys())
            if missing:
                return f"it has no capacity {missing[0]}"
            if consumption(traits.capacities, choice.capacity) is None:
                return "its policy does not allow to ask for so much"
            return _NO_CAPACITY
        if not allocating.counts(device, pool):
            return _NO_COUNTERS
        return ""


def _not_selected(wanted: RequestData, device: Device) -> str:
    """The selector that does not match, or has no answer."""
    of_class = wanted.device_class.selectors
    for index, selector in enumerate(wanted.selectors):
        if index < len(of_class):
            where = f"selector #{index} of class {wanted.device_class.name}"
            expression = of_class[index]
        else:
            where = f"selector #{index - len(of_class)}"
            expression = wanted.choice.selectors[index - len(of_class)]
        try:
            if not selector.matches(device):
                return f"{where}: {expression:.200}"
        except SelectorError as error:
            return f"{where} fails: {error}"
    return ""


def _not_comparable(claim: ClaimToAllocate, wanted: RequestData, device: Device) -> str:
    """The attribute that a constraint compares and the device does not have."""
    constraints = claim.spec.constraints
    for constraint, devices in zip(constraints, constraint_states(constraints), strict=True):
        if not devices.add(wanted.choice, device):
            return f"it has no attribute {constraint.attribute}, which a constraint compares"
    return ""
