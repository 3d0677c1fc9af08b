"""A second operator beside that of a VirtualCluster: it observes, and its requests are counted.

Invariant: both see every change of the store at once and in order, and neither knows of the other.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final

from typing_extensions import override

from stellwerk.answers.observed import ObservedProfile
from stellwerk.app import RunOptions
from stellwerk.handlers.delivery import handle_event
from stellwerk.metrics import Metrics
from stellwerk.profiles.spec.profile import OPERATOR_LABEL
from stellwerk.wiring import Operator
from stellwerk_cluster.cluster import ClusterOptions
from stellwerk_cluster.registry.entries import StoreEvent
from stellwerk_kube.clock import VirtualClock
from stellwerk_kube.json_values import JsonObject
from tests.support.in_process import Notes, make_profile
from tests.support.virtual_cluster import StoreClient, VirtualCluster, loaded, open_virtual_cluster

OBSERVED: Final = "default-scheduler"
_NAME: Final = "observer"


class CountingClient(StoreClient):
    """A StoreClient that keeps every request that it was asked for."""

    requests: list[tuple[str, str]]
    """(verb, path) in their order."""

    @override
    async def bind(self, namespace: str, name: str, uid: str, node_name: str) -> None:
        self.requests.append(("create", f"{namespace}/{name}/binding"))
        await super().bind(namespace, name, uid, node_name)

    @override
    async def patch_pod_status(
        self, namespace: str, name: str, patch: Mapping[str, Any], *, urgent: bool = True
    ) -> None:
        self.requests.append(("patch", f"{namespace}/{name}/status"))
        await super().patch_pod_status(namespace, name, patch, urgent=urgent)

    @override
    async def delete_pod(self, namespace: str, name: str, uid: str) -> bool:
        self.requests.append(("delete", f"{namespace}/{name}"))
        return await super().delete_pod(namespace, name, uid)

    @override
    async def delete(self, path: str, uid: str) -> None:
        self.requests.append(("delete", path))
        await super().delete(path, uid)

    @override
    async def create(self, path: str, body: Mapping[str, Any]) -> JsonObject:
        self.requests.append(("create", path))
        return await super().create(path, body)

    @override
    async def replace(self, path: str, body: Mapping[str, Any]) -> JsonObject:
        self.requests.append(("update", path))
        return await super().replace(path, body)

    @override
    async def patch(
        self,
        path: str,
        body: Mapping[str, Any],
        *,
        content_type: str = "application/merge-patch+json",
    ) -> JsonObject:
        self.requests.append(("patch", path))
        return await super().patch(path, body, content_type=content_type)


class ObservingOperator:
    """The operator that observes, on the store of a cluster."""

    def __init__(self, world: VirtualCluster) -> None:
        """See what the cluster has, and every change from here on."""
        self._world = world
        self.client = CountingClient(world.api)
        self.client.requests = []
        self.notes = Notes()
        self.operator = Operator(
            self.client, self.notes, Metrics(), world.clock, RunOptions(name=_NAME)
        )
        self._sinks = {
            world.api.kinds.resource(each.plural, each.group).storage_name: partial(
                handle_event, self.operator.handlers, each.kind
            )
            for each in world.watched
        }
        for storage_name, sink in self._sinks.items():
            for entry in world.api.store.collection(storage_name).entries():
                sink(None, loaded(entry.data))
        for each in world.watched:
            self.operator.handlers.on_synced(each.kind)
        world.api.store.listeners.append(self._on_change)

    def _on_change(self, storage_name: str, event: StoreEvent) -> None:
        sink = self._sinks.get(storage_name)
        if sink is not None:
            sink(event.type, loaded(event.entry.data))

    @property
    def report(self) -> ObservedProfile:
        """What was found so far."""
        (found,) = self.operator.observer.described(1000)
        return found

    async def compared(self, bindings: int) -> ObservedProfile:
        """Let time pass until this many bindings were compared."""
        await self._world.until(lambda: self.report.compared == bindings)
        return self.report


@asynccontextmanager
async def observed_cluster(
    clock: VirtualClock,
    *nodes: JsonObject,
    gates: frozenset[str] | None = None,
    **spec: Any,
) -> AsyncIterator[tuple[VirtualCluster, ObservingOperator]]:
    """A cluster whose default-scheduler is one operator, and which another one observes.

    `gates` are of the cluster; `spec` has fields of the profile that observes.
    """
    options = ClusterOptions(seed=1, heartbeats=False, feature_gates=gates)
    async with open_virtual_cluster(clock, nodes, options) as world:
        observed = make_profile("observed", OBSERVED, mode="Observe", **spec)
        observed["metadata"]["labels"] = {OPERATOR_LABEL: _NAME}
        world.apply(observed)
        observing = ObservingOperator(world)
        task = asyncio.create_task(observing.operator.scheduler.run(), name="observing")
        await asyncio.sleep(0.1)
        try:
            yield world, observing
        finally:
            task.cancel()
            await asyncio.wait({task})
            await observing.operator.sources.close()
            await observing.operator.extenders.close()
        if not task.cancelled():
            task.result()
