"""The pools of a node: which slices apply, whether they are whole, and in which order they count.

`inventory` builds one `NodePools` per node and keeps it. Invariant: it depends on the slices and on
the node's name and labels alone. Source: GatherPools of the allocator that is in use by default in
v1.36.
"""

from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from stellwerk.models.node import NodeInfo
from stellwerk.models.resource_slice import Counters, Device, PoolKey, Slice, Traits

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
    slices: tuple[Slice, ...] = ()
    """Those with devices for this node, by name."""
    elsewhere: tuple[Slice, ...] = ()
    """Slices for other nodes, whose devices share the pool's counters."""
    counter_sets: CounterSets | None = None

    @property
    def usable(self) -> bool:
        """Whether devices are taken from it."""
        return not self.incomplete and not self.invalid

    @property
    def name(self) -> str:
        """driver/pool."""
        return "/".join(self.key)

    def order(self) -> tuple[bool, PoolKey]:
        """Sorts pools: those with devices that have to become ready are searched last."""
        return any(traits.binding_conditions for traits in traits_of(self.slices)), self.key

    @property
    def size(self) -> int:
        """How many devices it has for this node."""
        return sum(len(each.names.values) for each in self.slices)

    def devices(self) -> Iterator[Device]:
        """The devices for this node, in order."""
        for each in self.slices:
            yield from each.devices()


class CommonPools:
    """Pools that many nodes have alike, in the order in which they are searched."""

    def __init__(self, pools: Iterable[Pool], keys: Iterable[PoolKey] = ()) -> None:
        """`keys`: of everything that was looked at, also of pools that are out of date."""
        self.pools = tuple(sorted(pools, key=Pool.order))
        self.keys = frozenset((*keys, *(pool.key for pool in self.pools)))
        self.invalid = any(pool.invalid for pool in self.pools)
        self._order = [pool.order() for pool in self.pools]

    def place(self, pool: Pool) -> int:
        """How many of them are searched before another pool."""
        return bisect_left(self._order, pool.order())


@dataclass(frozen=True, slots=True, eq=False)
class NodePools:
    """All pools of one node."""

    node: NodeInfo
    common: CommonPools
    own: tuple[Pool, ...]
    """Those that the node alone has, or has otherwise than others; none of them is common."""

    @property
    def pools(self) -> Sequence[Pool]:
        """In the order in which they are searched."""
        if not self.own:
            return self.common.pools
        return sorted((*self.common.pools, *self.own), key=Pool.order)

    @property
    def invalid(self) -> bool:
        """Whether any of them contradicts itself."""
        return self.common.invalid or any(pool.invalid for pool in self.own)


def traits_of(slices: Iterable[Slice]) -> Iterable[Traits]:
    """What the devices of some slices have, each once."""
    return dict.fromkeys(traits for each in slices for traits in each.traits.values)


def pool_of(key: PoolKey, slices: Collection[Slice], whole: Collection[Slice]) -> Pool | None:
    """The pool that these slices are for a node; None: they are out of date.

    Args:
        key: driver and name.
        slices: those for the node, with all counters of the pool.
        whole: every slice of the pool in the cluster.
    """
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
    counter_sets = _counter_sets(applying)
    if (
        counter_sets is None
        or not _names_differ(with_devices)
        or not _counters_exist(counter_sets, traits_of((*with_devices, *others)))
    ):
        return Pool(key, invalid=True)
    return Pool(key, slices=tuple(with_devices), elsewhere=tuple(others), counter_sets=counter_sets)


def _names_differ(slices: Iterable[Slice]) -> bool:
    names = [name for each in slices for name in each.names.values]
    return len(set(names)) == len(names)


def _counter_sets(slices: Iterable[Slice]) -> CounterSets | None:
    """The counters of all sets; None: a set occurs twice."""
    found: dict[str, Counters] = {}
    for each in slices:
        for name, counters in each.counter_sets:
            if name in found:
                return None
            found[name] = counters
    return found


def _counters_exist(sets: CounterSets, devices: Iterable[Traits]) -> bool:
    return all(
        name in sets and sets[name].keys() >= counters.keys()
        for traits in devices
        for name, counters in traits.consumes
    )
