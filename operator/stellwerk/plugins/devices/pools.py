"""The pools of a node: which slices apply, whether they are whole, and in which order they count.

`inventory` builds one `NodePools` per node and keeps it. Invariant: it depends on the slices and on
the node's name and labels alone. Source: GatherPools of the allocator that is in use by default in
v1.36.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from stellwerk.models.node import NodeInfo
from stellwerk.plugins.devices.slices import Counters, Device, PoolKey, Slice

CounterSets: TypeAlias = Mapping[str, Counters]
"""What a pool has of each counter, by counter set and counter."""


@dataclass(frozen=True, slots=True, eq=False)
class Pool:
    """The devices of a pool that a node may use."""

    key: PoolKey
    incomplete: bool = False
    """Slices of this generation are missing: it is being updated."""
    invalid: bool = False
    """It contradicts itself."""
    devices: tuple[Device, ...] = ()
    """Those of all slices for this node, by the slice's name, in the slice's order."""
    other_devices: tuple[Device, ...] = ()
    """Devices of the pool in slices for other nodes, which share its counters."""
    counter_sets: CounterSets | None = None
    per_device: frozenset[Device] = frozenset()
    """The devices that say themselves for which nodes they are."""

    @property
    def usable(self) -> bool:
        """Whether devices are taken from it."""
        return not self.incomplete and not self.invalid

    @property
    def name(self) -> str:
        """driver/pool."""
        return "/".join(self.key)


@dataclass(frozen=True, slots=True, eq=False)
class NodePools:
    """All pools of one node."""

    node: NodeInfo
    pools: tuple[Pool, ...]
    """In the order in which they are searched."""
    devices: tuple[tuple[Device, Pool], ...]
    """The devices of the usable ones."""
    invalid: bool
    """Whether any of them contradicts itself."""


def pools_of(
    node: NodeInfo,
    slices: Iterable[Slice],
    whole: Mapping[PoolKey, Mapping[str, Slice]],
    strays: Mapping[PoolKey, Pool],
) -> NodePools:
    """The pools of a node.

    Args:
        node: whose they are.
        slices: those for the node, with all counters of their pools.
        whole: every slice of the cluster, by pool and name.
        strays: pools that are unusable on nodes for which they have nothing but counters.
    """
    by_pool: dict[PoolKey, list[Slice]] = {}
    for each in slices:
        by_pool.setdefault(each.pool, []).append(each)
    found = (pool_of(key, applying, whole[key].values()) for key, applying in by_pool.items())
    pools = [pool for pool in found if pool is not None]
    pools += [pool for key, pool in strays.items() if key not in by_pool]
    pools.sort(key=lambda pool: (any(map(_is_bound_late, pool.devices)), pool.key))
    return NodePools(
        node,
        tuple(pools),
        tuple((device, pool) for pool in pools if pool.usable for device in pool.devices),
        any(pool.invalid for pool in pools),
    )


def _is_bound_late(device: Device) -> bool:
    return bool(device.binding_conditions)


def pool_of(key: PoolKey, slices: Collection[Slice], whole: Collection[Slice]) -> Pool | None:
    """The pool that these slices are for a node; None: they are out of date."""
    newest = max(each.generation for each in slices)
    applying = sorted(
        (each for each in slices if each.generation == newest), key=lambda each: each.name
    )
    generation, expected = applying[0].generation, applying[0].slice_count
    others: list[Slice] = []
    if len(applying) != expected:
        if any(each.generation > generation for each in whole):
            return None
        current = [each for each in whole if each.generation == generation]
        if len(current) != expected:
            return Pool(key, incomplete=True)
        names = {each.name for each in applying}
        others = [each for each in current if each.name not in names]
    with_devices = [each for each in applying if not each.counter_sets]
    devices = tuple(device for each in with_devices for device in each.devices)
    elsewhere = tuple(device for each in others for device in each.devices)
    counter_sets = _counter_sets(applying)
    if (
        counter_sets is None
        or len({device.key for device in devices}) != len(devices)
        or not _counters_exist(counter_sets, devices)
        or not _counters_exist(counter_sets, elsewhere)
    ):
        return Pool(key, invalid=True)
    own = frozenset(device for each in with_devices if each.per_device for device in each.devices)
    return Pool(
        key,
        devices=devices,
        other_devices=elsewhere,
        counter_sets=counter_sets,
        per_device=own,
    )


def _counter_sets(slices: Iterable[Slice]) -> CounterSets | None:
    """The counters of all sets; None: a set occurs twice."""
    found: dict[str, Counters] = {}
    for each in slices:
        for name, counters in each.counter_sets:
            if name in found:
                return None
            found[name] = counters
    return found


def _counters_exist(sets: CounterSets, devices: Iterable[Device]) -> bool:
    return all(
        name in sets and sets[name].keys() >= counters.keys()
        for device in devices
        for name, counters in device.consumes
    )
