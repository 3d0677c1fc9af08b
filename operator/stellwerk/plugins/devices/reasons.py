"""Why a device is not taken: each request asked about each device of a node, on its own.

Explanations ask. Invariant: a device without a reason is one that the request could have if it came
first; whether all requests together find enough is known from the search alone.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from stellwerk.models.device_capacity import consumption
from stellwerk.models.node import NodeInfo
from stellwerk.models.resource_slice import Device, DeviceKey, PoolKey
from stellwerk.models.taints import Taint
from stellwerk.plugins.devices.allocated import ClaimKey
from stellwerk.plugins.devices.constraints import device_sets
from stellwerk.plugins.devices.finder import DeviceFinder
from stellwerk.plugins.devices.ledger import Ledger
from stellwerk.plugins.devices.pools import Pool
from stellwerk.plugins.devices.selectors import SelectorError
from stellwerk.plugins.devices.task import Part, Task, Wanted

IN_USE: Final = "in use"
_NO_CAPACITY: Final = "too little of its capacity is left"
_NO_COUNTERS: Final = "too little of the counters that it shares with other devices is left"
_SCARCE: Final = frozenset({_NO_CAPACITY, _NO_COUNTERS})


class Look(NamedTuple):
    """One request looked at one device."""

    claim: int
    wanted: Wanted
    device: Device
    reason: str
    """Why it is not taken; empty: it could be."""
    taints: Sequence[Taint] = ()
    """Those that the request does not tolerate, where that is the reason."""

    @property
    def scarce(self) -> bool:
        """Whether others have taken what the request lacks of the device or its pool."""
        return self.reason in _SCARCE


class Reasons:
    """Reasons for the devices of nodes, for one task."""

    def __init__(self, finder: DeviceFinder, task: Task) -> None:
        """As the finder's state is now."""
        self._finder = finder
        self._task = task
        self.holders: Mapping[DeviceKey, Sequence[ClaimKey]] = finder.allocated.holders()

    def holders_in(self, pool: PoolKey) -> list[ClaimKey]:
        """The claims that hold anything of a pool."""
        held = self._finder.allocated.in_pool.get(pool, {})
        return [claim for device in held for claim in self.holders.get(device, ())]

    def left_out(self, node: NodeInfo) -> Iterator[tuple[str, str]]:
        """The pools of a node from which nothing is taken, and why."""
        for pool in self._finder.inventory.pools(node).pools:
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
        """What every request makes of every device of a node."""
        pools = self._finder.inventory.pools(node)
        for pool in pools.pools:
            for device in pool.devices():
                for claim, part in enumerate(self._task.parts):
                    for choices in part.wanted:
                        for wanted in choices:
                            yield self._look(claim, part, wanted, device, pool, node)

    def _look(
        self, claim: int, part: Part, wanted: Wanted, device: Device, pool: Pool, node: NodeInfo
    ) -> Look:
        reason = self._in_use(wanted, device) or _not_selected(wanted, device)
        if not reason and device.source.per_device and not device.reach.includes(node):
            reason = "it is for other nodes"
        reason = reason or self._lacking(wanted, device, pool)
        if reason:
            return Look(claim, wanted, device, reason)
        taints = wanted.choice.untolerated(device.traits.taints)
        if taints:
            named = ", ".join(f"{each.key}:{each.effect}" for each in taints)
            return Look(claim, wanted, device, f"taint {named} is not tolerated", taints)
        return Look(claim, wanted, device, _not_comparable(part, wanted, device))

    def _in_use(self, wanted: Wanted, device: Device) -> str:
        taken = not wanted.choice.admin_access and device.key in self._finder.allocated.devices
        return IN_USE if taken else ""

    def _lacking(self, wanted: Wanted, device: Device, pool: Pool) -> str:
        """What the device, or its pool, has too little of."""
        ledger, choice, traits = Ledger(self._finder.allocated), wanted.choice, device.traits
        if not ledger.has_room(device, choice.capacity):
            missing = sorted(choice.capacity.keys() - traits.capacities.keys())
            if missing:
                return f"it has no capacity {missing[0]}"
            if consumption(traits.capacities, choice.capacity) is None:
                return "its policy does not allow to ask for so much"
            return _NO_CAPACITY
        if not ledger.counts(device, pool):
            return _NO_COUNTERS
        return ""


def _not_selected(wanted: Wanted, device: Device) -> str:
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


def _not_comparable(part: Part, wanted: Wanted, device: Device) -> str:
    """The attribute that a constraint compares and the device does not have."""
    constraints = part.demand.constraints
    for constraint, devices in zip(constraints, device_sets(constraints), strict=True):
        if not devices.add(wanted.choice, device):
            return f"it has no attribute {constraint.attribute}, which a constraint compares"
    return ""
