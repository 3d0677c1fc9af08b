"""The devices that drivers offer, as a list, and one device explained.

The operator's port serves both (`stellwerk devices`, `stellwerk explain device/NAME`). Invariant:
devices are those that the API has shown: what is being allocated at the moment counts as free.
"""

from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from stellwerk.answers.devices import (
    DeviceCounter,
    DeviceExplanation,
    DeviceFields,
    DeviceHolder,
    DevicesPage,
)
from stellwerk.answers.suggestion import TaintFields
from stellwerk.explain.lists.claims import allocation_results, device_of, devices_of, pods_of
from stellwerk.explain.lists.page import (
    MAX_ENTRIES_PER_STEP,
    MAX_MATCHES_PER_STEP,
    Page,
    natural_order,
)
from stellwerk.explain.steps import Steps
from stellwerk.models.pod_claims import RESOURCE_CLAIM
from stellwerk.plugins.shared.device_taint_rules import TaintRules
from stellwerk.world.world import World
from stellwerk_kube.errors import ConfigurationError
from stellwerk_kube.quantity import quantity_text
from stellwerk_kube.resource_claim import key_of
from stellwerk_kube.resource_slice import PARSED, Attribute, Device, Slice

_RESOURCE_SLICE: Final = "ResourceSlice"
_MAX_NAMED_NODES: Final = 100
"""Nodes that are named of those that a device is for."""
_NONE: Final = Fraction(0)


@dataclass(frozen=True, slots=True)
class DevicesAsked:
    """A filter of devices."""

    text: str = ""
    """A part of DRIVER/POOL/DEVICE; empty: any."""
    node: str = ""
    """The node that they are for; empty: any."""
    state: str = ""
    """`held` or `free`; empty: any."""

    def __post_init__(self) -> None:
        """Check the state.

        Raises:
            ConfigurationError: there is no such state.
        """
        if self.state not in {"", "held", "free"}:
            raise ConfigurationError(f'a device is held or free, not "{self.state}"')

    def matches(self, name: str, *, is_held: bool) -> bool:
        """Whether a device that is for the node is wanted."""
        return self.text in name and self.state in {"", "held" if is_held else "free"}


def devices_page(world: World, page: Page, asked: DevicesAsked) -> Steps[DevicesPage]:
    """Devices of the newest generation of each pool, with the claims that hold them."""
    holders: dict[str, list[str]] = {}
    for number, claim in enumerate(list(world.objects.list(RESOURCE_CLAIM))):
        if number % MAX_ENTRIES_PER_STEP == 0:
            yield
        for given in devices_of(claim):
            holders.setdefault(given, []).append(key_of(claim))
    node = world.cache.node(asked.node) if asked.node else None
    slices = [] if asked.node and node is None else _newest_slices(world)
    rules = _taint_rules(world)
    yield
    items: list[DeviceFields] = []
    total = held = seen = 0
    for each in slices:
        if node is not None and not each.includes(node):
            continue
        for device in rules.applied_to(each).devices():
            seen += 1
            if seen % MAX_ENTRIES_PER_STEP == 0:
                yield
            name = "/".join(device.key)
            elsewhere = node is not None and each.per_device and not device.reach.includes(node)
            if elsewhere or not asked.matches(name, is_held=name in holders):
                continue
            if page.offset <= total < page.offset + page.limit:
                items.append(_fields_of_device(device, holders.get(name, ())))
            total, held = total + 1, held + (name in holders)
    return DevicesPage(total=total, held=held, items=items)


def _newest_slices(world: World) -> list[Slice]:
    """The slices of the newest generation of each pool, in the order of the pools' names."""
    slices = [
        each[PARSED] for each in world.objects.list(_RESOURCE_SLICE) if each.get(PARSED) is not None
    ]
    newest: dict[tuple[str, str], int] = {}
    for each in slices:
        newest[each.pool] = max(each.generation, newest.get(each.pool, each.generation))
    found = [each for each in slices if each.generation == newest[each.pool]]
    return sorted(found, key=lambda each: (natural_order("/".join(each.pool)), each.name))


def _taint_rules(world: World) -> TaintRules:
    """The DeviceTaintRules as they are now, where the release has them."""
    rules = TaintRules(world.objects, world.profiles.compatibility)
    rules.refresh()
    return rules


def _fields_of_device(device: Device, claims: Iterable[str]) -> DeviceFields:
    return DeviceFields(
        device="/".join(device.key),
        node=device.reach.node_name or None,
        attributes={key: _attribute_text(value) for key, value in device.attributes.items()},
        capacity={
            key: str(written.get("value", ""))
            for key, written in device.traits.written_capacity.items()
        },
        taints=[
            TaintFields(key=each.key, value=each.value, effect=each.effect)
            for each in device.traits.taints
        ],
        claims=sorted(claims),
    )


def _attribute_text(value: Attribute) -> str:
    """An attribute; a version, a bool and a list are pairs with their kind."""
    if not isinstance(value, tuple):
        return str(value)
    inner = value[1]
    if isinstance(inner, tuple):
        return ", ".join(map(str, inner))
    return str(inner).lower() if isinstance(inner, bool) else str(inner)


def explain_device(world: World, name: str) -> Steps[DeviceExplanation] | None:
    """Explain a device, DRIVER/POOL/DEVICE; None: there is none of that name."""
    slices = _newest_slices(world)
    for each in slices:
        last = name.removeprefix("/".join((*each.pool, "")))
        if last != name and last in each.names.values:
            pool = [other for other in slices if other.pool == each.pool]
            return _explained_device(world, name, pool, each)
    return None


def _explained_device(
    world: World, name: str, pool: Sequence[Slice], own: Slice
) -> Steps[DeviceExplanation]:
    """`pool`: its slices, one of which, `own`, has the device."""
    holders, held = [], set[str]()
    for number, claim in enumerate(list(world.objects.list(RESOURCE_CLAIM))):
        if number % MAX_ENTRIES_PER_STEP == 0:
            yield
        for result in allocation_results(claim):
            its_device = device_of(result)
            if not result.get("adminAccess"):
                held.add(its_device)
            if its_device == name:
                holders.append(
                    DeviceHolder(
                        claim=key_of(claim),
                        request=str(result.get("request", "")),
                        consumed=result.get("consumedCapacity") or {},
                        only_looks=bool(result.get("adminAccess")),
                        pods=pods_of(claim),
                    )
                )
    devices = _taint_rules(world).applied_to(own).devices()
    device = next(each for each in devices if "/".join(each.key) == name)
    reaches = (device.reach,) if own.per_device else own.reaches
    nodes = []
    for number, node in enumerate(list(world.cache.nodes())):
        if number % MAX_MATCHES_PER_STEP == 0:
            yield
        if any(reach.includes(node) for reach in reaches):
            nodes.append(node.name)
    return DeviceExplanation(
        device=_fields_of_device(device, {each.claim for each in holders}),
        resource_slice=own.name,
        shared=device.traits.shareable,
        holders=sorted(holders, key=lambda each: (each.claim, each.request)),
        counters=(yield from _counters(device, pool, held)),
        nodes=sorted(nodes, key=natural_order)[:_MAX_NAMED_NODES],
        on_nodes=len(nodes),
    )


def _counters(
    device: Device, pool: Sequence[Slice], held: AbstractSet[str]
) -> Steps[list[DeviceCounter]]:
    """The counters that a device shares with others of its pool, less what is held of them."""
    offered = {
        (counter_set, counter): amount
        for each in pool
        for counter_set, counters in each.counter_sets
        for counter, amount in counters.items()
    }
    free = dict(offered)
    for each in pool if device.traits.consumes else ():
        yield
        for other in each.devices():
            if "/".join(other.key) in held:
                for counter, amount in _consumed(other):
                    free[counter] = free.get(counter, _NONE) - amount
    return [
        DeviceCounter(
            counter_set=counter[0],
            counter=counter[1],
            takes=_amount_text(amount),
            offered=_amount_text(offered.get(counter, _NONE)),
            free=_amount_text(free.get(counter, _NONE)),
        )
        for counter, amount in _consumed(device)
    ]


def _consumed(device: Device) -> Iterator[tuple[tuple[str, str], Fraction]]:
    """Yield the amounts that a device takes of counters, by set and name."""
    for counter_set, counters in device.traits.consumes:
        for counter, amount in counters.items():
            yield (counter_set, counter), amount


def _amount_text(amount: Fraction) -> str:
    """An amount as a quantity, with a binary suffix where that is exact."""
    return quantity_text(amount, "Ki" if amount % 1024 == 0 else "")
