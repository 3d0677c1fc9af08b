"""Every slice of the cluster, and the pools that each node has of them.

Each DynamicResources instance has one, which follows the object store. Invariant: after `refresh`,
the pools of a node are those of the slices that the store shows; `changed_nodes` names every node
whose pools may be others than before.
"""

import logging
from collections.abc import Iterable
from typing import Final, TypeVar

from stellwerk.framework.services import ObjectStore
from stellwerk.models.json_values import JsonObject
from stellwerk.models.node import NodeInfo
from stellwerk.plugins.devices.pools import NodePools, Pool, pool_of, pools_of
from stellwerk.plugins.devices.slices import PoolKey, Slice, parse_slice
from stellwerk.snapshot.changes import ChangeCursor, Changes

Key = TypeVar("Key")

logger = logging.getLogger(__name__)

KIND: Final = "ResourceSlice"
EVERY_NODE: Final = ""
"""In place of a node's name: any node may be affected."""


class Inventory:
    """Slices by name, by pool and by node; pools by node, made when they are asked for."""

    def __init__(self, objects: ObjectStore) -> None:
        """Follow the slices of a store."""
        self._objects = objects
        self._cursor = ChangeCursor(objects.changes(KIND))
        self._slices: dict[str, Slice] = {}
        self._by_pool: dict[PoolKey, dict[str, Slice]] = {}
        self._by_node: dict[str, dict[str, Slice]] = {}
        self._shared: dict[str, Slice] = {}
        """Slices that name no node."""
        self._counting: dict[PoolKey, dict[str, Slice]] = {}
        """Slices with counters, which every node takes into account."""
        self._strays: dict[PoolKey, Pool] = {}
        """Pools that are unusable wherever nothing but their counters is seen."""
        self._pools: dict[str, NodePools] = {}
        self.changes: Changes[str] = Changes()
        """Nodes whose pools may have changed, by name."""

    def refresh(self) -> None:
        """Take over what the store shows now."""
        if self._cursor.current:
            return
        changed = self._cursor.advance()
        if changed is None:
            shown = {obj["metadata"]["name"]: obj for obj in self._objects.list(KIND)}
            names: Iterable[str] = {*self._slices, *shown}
        else:
            names = {name for _, name in changed}
        for name in names:
            self._replace(name, self._objects.get(KIND, "", name))

    def pools(self, node: NodeInfo) -> NodePools:
        """The pools of a node."""
        found = self._pools.get(node.name)
        if found is None or (found.node is not node and found.node.labels != node.labels):
            found = self._pools[node.name] = self._gathered(node)
        return found

    def _gathered(self, node: NodeInfo) -> NodePools:
        local = self._by_node.get(node.name, {})
        slices = {
            name: each
            for name, each in (*local.items(), *self._shared.items())
            if each.includes(node)
        }
        for pool in {each.pool for each in slices.values()}:
            slices.update(self._counting.get(pool, {}))
        return pools_of(node, slices.values(), self._by_pool, self._strays)

    def nodes_of(self, pool: PoolKey) -> Iterable[str]:
        """The nodes that a pool is for, as far as its slices name them; else EVERY_NODE."""
        slices = self._by_pool.get(pool, {}).values()
        return {each.reach.node_name if each.local else EVERY_NODE for each in slices}

    def _replace(self, name: str, obj: JsonObject | None) -> None:
        before = self._slices.pop(name, None)
        after = None if obj is None else _parsed(obj)
        for each in (before, after):
            if each is not None:
                self._forget_pools(self.nodes_of(each.pool))
        if before is not None:
            _remove(self._by_pool, before.pool, name)
            _remove(self._by_node, before.reach.node_name, name)
            _remove(self._counting, before.pool, name)
            self._shared.pop(name, None)
        if after is not None:
            self._slices[name] = after
            self._by_pool.setdefault(after.pool, {})[name] = after
            if after.counter_sets:
                self._counting.setdefault(after.pool, {})[name] = after
            if after.local:
                self._by_node.setdefault(after.reach.node_name, {})[name] = after
            else:
                self._shared[name] = after
            self._forget_pools(self.nodes_of(after.pool))
        for pool in {each.pool for each in (before, after) if each is not None}:
            self._judge_stray(pool)

    def _judge_stray(self, key: PoolKey) -> None:
        """Look at what nodes see of a pool that has nothing but counters for them."""
        before = self._strays.pop(key, None)
        slices = self._counting.get(key)
        after = None if not slices else pool_of(key, slices.values(), self._by_pool[key].values())
        if after is not None and not after.usable:
            self._strays[key] = after
        if before is not None or key in self._strays:
            self._forget_pools((EVERY_NODE,))

    def _forget_pools(self, node_names: Iterable[str]) -> None:
        for node_name in node_names:
            if node_name == EVERY_NODE:
                self._pools.clear()
            else:
                self._pools.pop(node_name, None)
            self.changes.append(node_name)


def _remove(table: dict[Key, dict[str, Slice]], key: Key, name: str) -> None:
    entries = table.get(key)
    if entries is not None and entries.pop(name, None) is not None and not entries:
        del table[key]


def _parsed(obj: JsonObject) -> Slice | None:
    """The slice; None: it is malformed, and as good as absent."""
    try:
        return parse_slice(obj)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        name = obj["metadata"]["name"]
        logger.warning("ResourceSlice %s is left out: %s %s", name, type(error).__name__, error)
        return None
