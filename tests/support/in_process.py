"""A whole operator without watches and sockets: told what it sees, asked what it did."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from random import Random
from typing import Any

from typing_extensions import override

from stellwerk.app import RunOptions
from stellwerk.framework.handle import RandomNumbers
from stellwerk.framework.services import Recorder
from stellwerk.metrics import Metrics
from stellwerk.models.object_reference import ObjectReference
from stellwerk.models.scheduling_spec import DEFAULT_SCHEDULER_NAME
from stellwerk.profiles.spec.profile import API_VERSION, KIND, PLURAL
from stellwerk.scheduler.observers.recording import Recording
from stellwerk.wiring import Operator
from stellwerk_kube.clock import VirtualClock
from stellwerk_kube.json_values import JsonObject
from tests.support.memory_client import MemoryClient, check_preconditions
from tests.support.rights import check_granted
from tests.support.skipped_time import skips_time

_PATHS = {
    "PersistentVolumeClaim": "/api/v1/namespaces/{namespace}/persistentvolumeclaims/{name}",
    "PersistentVolume": "/api/v1/persistentvolumes/{name}",
    "Node": "/api/v1/nodes/{name}",
    "Namespace": "/api/v1/namespaces/{name}",
    "Pod": "/api/v1/namespaces/{namespace}/pods/{name}",
    "PodGroup": "/apis/scheduling.k8s.io/v1alpha2/namespaces/{namespace}/podgroups/{name}",
    KIND: f"/apis/{API_VERSION}/{PLURAL}/{{name}}",
    "ResourceClaim": "/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims/{name}",
    "ResourceSlice": "/apis/resource.k8s.io/v1/resourceslices/{name}",
    "DeviceClass": "/apis/resource.k8s.io/v1/deviceclasses/{name}",
    "PodDisruptionBudget": "/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets/{name}",
}


STRATEGIC = "application/strategic-merge-patch+json"


class Store(MemoryClient):
    """A MemoryClient that knows the status subresource, and merges conditions by type.

    It refuses what the manifests give the operator no right to.
    """

    @override
    async def replace(self, path: str, body: Mapping[str, Any]) -> JsonObject:
        check_granted("update", path)
        return await super().replace(path, body)

    @override
    async def create(self, path: str, body: Mapping[str, Any]) -> JsonObject:
        check_granted("create", path)
        return await super().create(path, body)

    @override
    async def patch(
        self,
        path: str,
        body: Mapping[str, Any],
        *,
        content_type: str = "application/merge-patch+json",
    ) -> JsonObject:
        check_granted("patch", path)
        path = path.removesuffix("/status")
        if content_type == STRATEGIC and "conditions" in body.get("status", {}):
            stored = await self.get(path)
            check_preconditions(stored, body)
            known = stored.get("status", {}).get("conditions", [])
            merged = {each["type"]: each for each in known}
            for each in body["status"]["conditions"]:
                merged[each["type"]] = {**merged.get(each["type"], {}), **each}
            body = {**body, "status": {"conditions": list(merged.values())}}
        return await super().patch(path, body)

    @override
    async def get(self, path: str) -> JsonObject:
        check_granted("list" if "?" in path else "get", path)
        return await super().get(path)

    @override
    async def list(self, path: str, *, limit: int = 500) -> tuple[list[JsonObject], str]:
        check_granted("list", path)
        if path == "/api/v1/pods":
            pods = [obj for obj in self.objects.values() if obj["kind"] == "Pod"]
            return pods, str(self._version)
        return await super().list(path, limit=limit)

    @override
    async def bind(self, namespace: str, name: str, uid: str, node_name: str) -> None:
        check_granted("create", f"/api/v1/namespaces/{namespace}/pods/{name}/binding")
        await super().bind(namespace, name, uid, node_name)

    @override
    async def patch_pod_status(
        self, namespace: str, name: str, patch: Mapping[str, Any], *, urgent: bool = True
    ) -> None:
        path = f"/api/v1/namespaces/{namespace}/pods/{name}"
        check_granted("patch", f"{path}/status")
        status = {key: value for key, value in patch["status"].items() if not key.startswith("$")}
        stored = self._stored(f"patch {path}", path)
        merged = {each["type"]: each for each in stored.get("status", {}).get("conditions", [])}
        for each in status.get("conditions", ()):
            merged[each["type"]] = {**merged.get(each["type"], {}), **each}
        if merged:
            status["conditions"] = list(merged.values())
        await super().patch(path, {**patch, "status": status})

    @override
    async def delete_pod(self, namespace: str, name: str, uid: str) -> bool:
        check_granted("delete", f"/api/v1/namespaces/{namespace}/pods/{name}")
        return await super().delete_pod(namespace, name, uid)

    @override
    async def delete(self, path: str, uid: str) -> None:
        check_granted("delete", path)
        await super().delete(path, uid)


class Notes(Recorder):
    """A Recorder that keeps the events."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str, str, str]] = []
        """(name of the object, type, reason, note)."""

    @override
    def event(
        self,
        regarding: ObjectReference,
        type_: str,
        reason: str,
        action: str,
        note: str,
        *,
        reporting_controller: str,
        related: ObjectReference | None = None,
    ) -> None:
        self.events.append((regarding.name, type_, reason, note))

    def about(self, name: str) -> list[tuple[str, str, str]]:
        return [event[1:] for event in self.events if event[0] == name]


class InProcess:
    """An operator and the cluster it sees; what it writes comes back to it as from a watch."""

    def __init__(
        self,
        clock: VirtualClock | None = None,
        recording: Recording | None = None,
        numbers: Callable[[int | None], RandomNumbers] = Random,
        store: type[Store] = Store,
    ) -> None:
        """`numbers` makes what breaks ties, from a seed or from none."""
        self.client = store(self._seen)
        self.clock = clock or VirtualClock()
        self.notes = Notes()
        self.metrics = Metrics()
        self.operator = Operator(
            self.client,
            self.notes,
            self.metrics,
            self.clock,
            RunOptions(),
            recording=recording,
            numbers=numbers,
        )
        self.cache = self.operator.world.cache
        self.queue = self.operator.world.queue
        self.profiles = self.operator.world.profiles
        self.status = self.operator.profile_status

    def apply(self, *objects: JsonObject) -> None:
        """Store objects as a user would; the operator sees them."""
        for obj in objects:
            self.client.put(_path(obj), obj)

    def delete(self, kind: str, name: str, namespace: str = "default") -> None:
        """Delete an object; the operator sees it go."""
        path = _PATHS[kind].format(namespace=namespace, name=name)
        obj = self.client.objects.pop(path)
        self._tell("DELETED", obj)

    def pod(self, name: str) -> JsonObject:
        """A pod as stored."""
        return self.client.objects[f"/api/v1/namespaces/default/pods/{name}"]

    def node_of(self, name: str) -> str | None:
        """Where a pod is bound."""
        node: str | None = self.pod(name)["spec"].get("nodeName")
        return node

    def condition(self, name: str) -> tuple[str, str] | None:
        """(reason, message) of a pod's PodScheduled condition while it is False."""
        for condition in self.pod(name).get("status", {}).get("conditions", ()):
            if condition["type"] == "PodScheduled" and condition["status"] == "False":
                return condition["reason"], condition["message"]
        return None

    def profile(self, name: str) -> JsonObject:
        """The status of a profile as stored."""
        status: JsonObject = self.client.objects[f"/apis/{API_VERSION}/{PLURAL}/{name}"].get(
            "status", {}
        )
        return status

    def _seen(self, obj: JsonObject) -> None:
        self._tell("MODIFIED", obj)

    def _tell(self, event_type: str, obj: JsonObject) -> None:
        handlers = self.operator.handlers
        if obj["kind"] == "Pod":
            handlers.on_pod(event_type, obj)
        elif obj["kind"] == "Node":
            handlers.on_node(event_type, obj)
        else:
            handlers.on_object(obj["kind"], event_type, obj)


@asynccontextmanager
async def running(
    clock: VirtualClock | None = None,
    recording: Recording | None = None,
    numbers: Callable[[int | None], RandomNumbers] = Random,
) -> AsyncIterator[InProcess]:
    """An operator whose scheduling coroutine runs until the block ends."""
    world = InProcess(clock, recording, numbers)
    task = asyncio.create_task(world.operator.scheduler.run())
    try:
        yield world
    finally:
        task.cancel()
        await asyncio.wait({task})
        await world.operator.extenders.close()
    if not task.cancelled():
        task.result()


async def eventually(condition: Callable[[], Any], seconds: float | None = None) -> None:
    """Wait until something is true; in real time, for as long as a busy machine may need."""
    if seconds is None:
        seconds = 10.0 if skips_time() else 60.0
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 any condition, without an event to wait for
            await asyncio.sleep(0.005)


async def quiet(turns: int = 50) -> None:
    """Let everything that can happen now happen."""
    for _ in range(turns):
        await asyncio.sleep(0)


def make_profile(
    name: str,
    scheduler_name: str | None = None,
    *,
    created: int = 0,
    generation: int = 1,
    **spec: Any,
) -> JsonObject:
    """A SchedulerProfile; `created` orders profiles by age.

    One for pods that name no scheduler is allowed beside kube-scheduler, which no test has.
    """
    name_served = scheduler_name or name
    if name_served == DEFAULT_SCHEDULER_NAME:
        spec.setdefault("allowBeside", True)
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {
            "name": name,
            "uid": f"profile-{name}",
            "generation": generation,
            "creationTimestamp": f"2026-01-01T00:00:{created:02}Z",
        },
        "spec": {"schedulerName": name_served, **spec},
    }


def _path(obj: JsonObject) -> str:
    metadata = obj["metadata"]
    return _PATHS[obj["kind"]].format(
        namespace=metadata.get("namespace", "default"), name=metadata["name"]
    )
