"""What makes two nodes equal for a task: then one of them is searched, and both have the answer.

`finder` has one per task. Invariant: nodes with equal outlines give the same verdict, score and
result positions; an outline holds everything that a search reads of a node: the order of pools and
devices, what selectors and constraints read of each, and what is in use.
"""

from collections.abc import Hashable, Sequence
from typing import Final, TypeAlias

from stellwerk.models.node import NodeInfo
from stellwerk.models.resource_slice import Slice
from stellwerk.plugins.devices.allocated import Allocated
from stellwerk.plugins.devices.pools import CommonPools, NodePools, Pool
from stellwerk.plugins.devices.task import Task

Outline: TypeAlias = tuple[Hashable, ...]

_ATTRIBUTES: Final = "attributes"
_MOST_NUMBERS: Final = 1024


class Outlines:
    """Outlines of nodes for one task."""

    def __init__(self, task: Task, allocated: Allocated) -> None:
        """`allocated` says what is in use."""
        self._allocated = allocated
        self._attributes = attributes_read(task)
        self._columns: dict[str, tuple[str, ...]] = {}
        """By driver: the columns in which the attributes lie."""
        self._common: dict[CommonPools, Hashable] = {}
        """A number for each outline of pools that nodes have alike, as of `_position`."""
        self._numbers: dict[Outline, int] = {}
        self._last_number = 1  # unlike the outlines of pools that are not usable
        self._position = -1

    def of(self, pools: NodePools) -> Outline:
        """The outline of a node."""
        if self._position != self._allocated.changes.position:
            self._position = self._allocated.changes.position
            self._common.clear()
        common, node = pools.common, pools.node
        if not pools.own:
            return (self._common_outline(common, node),)
        if not common.pools and len(pools.own) == 1:
            return (self._pool(pools.own[0], node),)
        own = sorted(pools.own, key=Pool.order)
        placed = [(common.place(pool), self._pool(pool, node)) for pool in own]
        return (self._common_outline(common, node), *placed)

    def _common_outline(self, common: CommonPools, node: NodeInfo) -> Hashable:
        found = self._common.get(common)
        if found is None:
            outline = tuple([self._pool(pool, node) for pool in common.pools])
            if any(each.per_device for pool in common.pools for each in pool.slices):
                return outline
            if len(self._numbers) >= _MOST_NUMBERS:
                self._numbers.clear()
            # Numbers are never used again: a kept answer may have the number of what is forgotten.
            found = self._numbers.get(outline)
            if found is None:
                self._last_number += 1
                found = self._numbers[outline] = self._last_number
            self._common[common] = found
        return found

    def _pool(self, pool: Pool, node: NodeInfo) -> Hashable:
        return self._seen(pool, node) if pool.usable else pool.invalid

    def _seen(self, pool: Pool, node: NodeInfo) -> Hashable:
        slices = [self._slice(each, node) for each in pool.slices]
        return pool.key[0], tuple(slices), self._counters(pool), self._use(pool)

    def _slice(self, each: Slice, node: NodeInfo) -> Hashable:
        columns = each.columns
        read: list[Hashable]
        if self._attributes is None:
            read = [(name, columns[name]) for name in sorted(columns)]
        else:
            read = [columns.get(name) for name in self._columns_of(each.pool[0])]
        if not each.per_device:
            return each.traits, *read
        included = [traits.reach.includes(node) for traits in each.traits.values]
        return each.traits, tuple(included), *read

    def _columns_of(self, driver: str) -> tuple[str, ...]:
        found = self._columns.get(driver)
        if found is None:
            found = self._columns[driver] = tuple(
                name
                for domain, short in self._attributes or ()
                for name in (f"{domain}/{short}" if domain else short, short)
                if name != short or not domain or domain == driver
            )
        return found

    def _counters(self, pool: Pool) -> Hashable:
        """What the pool has of each counter, less what devices for other nodes take."""
        if not pool.counter_sets:
            return None
        return tuple(
            [
                (counter_set, name, amount)
                for counter_set, counters in pool.counter_sets.items()
                for name, amount in counters.items()
            ]
        )

    def _use(self, pool: Pool) -> Hashable:
        """What is in use of the pool."""
        held = self._allocated.in_pool.get(pool.key)
        if not held:
            return None
        whole, consumed = self._allocated.devices, self._allocated.consumed
        used: list[Hashable] = []
        for position, device in enumerate(pool.devices()):
            key = device.key
            if key in held:
                parts = consumed.get(key)
                used.append((position, key in whole, parts and frozenset(parts.items())))
        if pool.counter_sets and pool.elsewhere:
            used += [
                (traits, held[key])
                for each in pool.elsewhere
                for name, traits in zip(each.names.values, each.traits.values, strict=True)
                if (key := (*pool.key, name)) in held
            ]
        return tuple(used)


def attributes_read(task: Task) -> Sequence[tuple[str, str]] | None:
    """(domain, name) of every attribute that a search reads; None: perhaps any."""
    found: dict[tuple[str, str], None] = {}
    for part in task.parts:
        for constraint in part.demand.constraints:
            domain, slash, name = constraint.attribute.partition("/")
            found[(domain, name) if slash else ("", domain)] = None
        for wanted in (each for choices in part.wanted for each in choices):
            for selector in wanted.selectors:
                if selector.paths is None:
                    return None
                found |= {
                    (path[1], path[2]): None for path in selector.paths if path[0] == _ATTRIBUTES
                }
    return tuple(found)
