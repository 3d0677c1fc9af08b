"""Endpoints and EndpointSlices: the pods behind each Service with a selector, and their ports.

Invariant: a terminating pod is in no Endpoints, and in a slice it is marked so; slices and
Endpoints that users made for a Service without a selector are left alone. A pod without an address,
or one that has finished, is behind no Service.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

import orjson
from typing_extensions import override

from stellwerk_cluster.apimachinery.objects import EMPTY, Key, is_terminating, key_of, labels_of
from stellwerk_cluster.apimachinery.pods import is_finished, is_ready
from stellwerk_cluster.registry.deletion import DeleteOptions, delete
from stellwerk_cluster.registry.entries import ADDED, DELETED, StoreEvent
from stellwerk_cluster.work import Worker, WorkQueue

if TYPE_CHECKING:
    from collections.abc import Hashable

    from stellwerk_cluster.controllers.index import Index
    from stellwerk_cluster.registry.api import Api
    from stellwerk_cluster.registry.entries import Entry
    from stellwerk_kube.json_values import JsonObject

_SERVICES: Final = "services"
_ENDPOINTS: Final = "endpoints"
_SLICES: Final = "endpointslices.discovery.k8s.io"
_SERVICE_NAME: Final = "kubernetes.io/service-name"
_MANAGED_BY: Final = "endpointslice.kubernetes.io/managed-by"
_MANAGER: Final = "endpointslice-controller.k8s.io"
_MAX_ENDPOINTS_OF_A_SLICE: Final = 100
"""Endpoints of a slice (`--max-endpoints-per-slice`)."""
_ZONE: Final = "topology.kubernetes.io/zone"
_BATCH_SECONDS: Final = 0.2
"""Pods that change within this time are looked at once: a rollout changes many."""


class _ServiceFollower(Worker):
    """Looks at a Service again when it, one of its pods, or what was written for it has changed."""

    output = ""
    """The resource that the controller writes."""

    def __init__(self, api: Api, index: Index) -> None:
        """Follow Services and pods in the store of `api`."""
        self.api = api
        self.index = index
        self.queue = WorkQueue(api.clock)
        self._waiting: set[Key] = set()
        services = api.store.collection(_SERVICES)
        services.listeners.append(lambda event: self.queue.add(event.entry.key))
        api.store.collection("pods").listeners.append(self._on_pod)
        self._is_writing = False
        api.store.collection(self.output).listeners.append(self._on_output)
        for entry in services.entries():
            self.queue.add(entry.key)

    def _on_pod(self, event: StoreEvent) -> None:
        services = self.api.store.collection(_SERVICES).entries(event.entry.key[0])
        if not services:
            return
        before = event.previous
        changed = before is not None and event.type not in (ADDED, DELETED)
        if changed and before and facts_of(before.obj) == facts_of(event.entry.obj):
            return
        states = [event.entry.labels, *([before.labels] if before else [])]
        for service in services:
            if any(chooses(service.obj, labels) for labels in states):
                self._look_at(service.key)

    def _on_output(self, event: StoreEvent) -> None:
        """Correct what another client has written or deleted."""
        key = None if self._is_writing else self.service_of(event.entry)
        if key is not None and self.api.find(_SERVICES, *key) is not None:
            self.queue.add(key)

    def service_of(self, entry: Entry) -> Key | None:
        """The key of the Service that an output is for; None: the output is another client's."""
        raise NotImplementedError

    def _look_at(self, key: Key) -> None:
        if key not in self._waiting:
            self._waiting.add(key)
            self.queue.add_after(key, _BATCH_SECONDS)

    @override
    def reconcile(self, key: Hashable) -> None:
        """Write what is behind one Service."""
        assert isinstance(key, tuple)  # noqa: S101  (this queue holds store keys only)
        self._waiting.discard(key)
        self._is_writing = True
        try:
            self._bring_up_to_date(key)
        finally:
            self._is_writing = False

    def _bring_up_to_date(self, key: Key) -> None:
        service = self.api.find(_SERVICES, *key)
        if service is None:
            self.forget(key)
        elif service["spec"].get("selector") and not is_terminating(service):
            backends = [
                backend
                for entry in self.api.store.collection("pods").entries(key[0])
                if chooses(service, entry.labels) and (backend := backend_of(entry.obj)) is not None
            ]
            self.write(service, backends)

    def write(self, service: JsonObject, backends: list[Backend]) -> None:
        """Bring the objects of a Service up to date."""
        raise NotImplementedError

    def forget(self, key: Key) -> None:
        """The Service is gone."""
        raise NotImplementedError


class EndpointsController(_ServiceFollower):
    """Keeps one Endpoints object for each Service."""

    output = _ENDPOINTS

    def __init__(self, api: Api, index: Index) -> None:
        """Follow Services and pods in the store of `api`."""
        super().__init__(api, index)
        self._kind = api.kinds.resource(_ENDPOINTS)

    @override
    def service_of(self, entry: Entry) -> Key:
        return entry.key

    @override
    def write(self, service: JsonObject, backends: list[Backend]) -> None:
        subsets = _subsets(service, backends)
        metadata = service["metadata"]
        headless = {"service.kubernetes.io/headless": ""} if _is_headless(service) else {}
        managed = {"endpoints.kubernetes.io/managed-by": "endpoint-controller"}
        labels = {**labels_of(service), **managed, **headless}
        found = self.api.find(_ENDPOINTS, *key_of(service))
        if found is None:
            body = {"metadata": {"name": metadata["name"], "labels": labels}, "subsets": subsets}
            self.api.create(self._kind, metadata["namespace"], body)
        elif (found.get("subsets") or []) != subsets or labels_of(found) != labels:
            changed = {**found, "metadata": {**found["metadata"], "labels": labels}}
            changed = {**changed, "subsets": subsets}
            self.api.modify(self._kind, key_of(service), lambda _: changed, owned_under="")

    @override
    def forget(self, key: Key) -> None:
        found = self.api.find(_ENDPOINTS, *key)
        managed = labels_of(found or EMPTY).get("endpoints.kubernetes.io/managed-by")
        if found is not None and managed:
            delete(self.api, self._kind, key, DeleteOptions())


class EndpointSliceController(_ServiceFollower):
    """Keeps the EndpointSlices of each Service, a hundred pods in each."""

    output = _SLICES

    def __init__(self, api: Api, index: Index) -> None:
        """Follow Services and pods in the store of `api`."""
        super().__init__(api, index)
        self._kind = api.kinds.resource("endpointslices", "discovery.k8s.io")

    @override
    def service_of(self, entry: Entry) -> Key | None:
        labels = labels_of(entry.obj)
        if labels.get(_MANAGED_BY) != _MANAGER or _SERVICE_NAME not in labels:
            return None
        return entry.key[0], labels[_SERVICE_NAME]

    @override
    def forget(self, key: Key) -> None:
        """Slices go with their owner, the Service, through garbage collection."""

    @override
    def write(self, service: JsonObject, backends: list[Backend]) -> None:
        owned = [
            each
            for each in self.index.owned(service["metadata"]["uid"], _SLICES)
            if labels_of(each).get(_MANAGED_BY) == _MANAGER and not is_terminating(each)
        ]
        wanted = self._contents(service, backends)
        for present, content in zip(owned, wanted, strict=False):
            has = {"ports": present.get("ports"), "endpoints": present.get("endpoints")}
            if has != content:
                self.api.modify(
                    self._kind, key_of(present), partial(_with, content), owned_under=""
                )
        for content in wanted[len(owned) :]:
            self._create(service, content)
        for present in owned[len(wanted) :]:
            delete(self.api, self._kind, key_of(present), DeleteOptions())

    def _contents(self, service: JsonObject, backends: list[Backend]) -> list[JsonObject]:
        """Ports and endpoints of all slices: pods whose ports differ do not share one."""
        by_ports: dict[bytes, tuple[list[JsonObject], list[JsonObject]]] = {}
        for backend in backends:
            ports = [{"name": "", **each} for each in ports_of(service, backend.pod)]
            group = by_ports.setdefault(orjson.dumps(ports), (ports, []))
            group[1].append(self._endpoint(service, backend))
        contents = [
            {"ports": ports, "endpoints": endpoints[first : first + _MAX_ENDPOINTS_OF_A_SLICE]}
            for ports, endpoints in by_ports.values()
            for first in range(0, len(endpoints), _MAX_ENDPOINTS_OF_A_SLICE)
        ]
        return contents or [{"ports": [], "endpoints": []}]

    def _endpoint(self, service: JsonObject, backend: Backend) -> JsonObject:
        node_name = backend.pod["spec"].get("nodeName", "")
        zone = labels_of(self.api.find("nodes", "", node_name) or EMPTY).get(_ZONE)
        always = service["spec"].get("publishNotReadyAddresses", False)
        ready = always or (backend.serving and not backend.terminating)
        return {
            "addresses": [backend.address],
            "conditions": {
                "ready": ready,
                "serving": backend.serving,
                "terminating": backend.terminating,
            },
            **hostname_of(service, backend.pod),
            **({"nodeName": node_name} if node_name else {}),
            "targetRef": target_of(backend.pod),
            **({"zone": zone} if zone else {}),
        }

    def _create(self, service: JsonObject, content: JsonObject) -> None:
        metadata = service["metadata"]
        labels = {**labels_of(service), _SERVICE_NAME: metadata["name"], _MANAGED_BY: _MANAGER}
        owner = {
            "apiVersion": "v1",
            "kind": "Service",
            "name": metadata["name"],
            "uid": metadata["uid"],
            "controller": True,
            "blockOwnerDeletion": True,
        }
        body = {
            "metadata": {
                "generateName": f"{metadata['name']}-",
                "labels": labels,
                "ownerReferences": [owner],
            },
            "addressType": "IPv4",
            **content,
        }
        self.api.create(self._kind, metadata["namespace"], body)


def _with(content: JsonObject, endpoint_slice: JsonObject) -> JsonObject:
    return {**endpoint_slice, **content}


def _is_headless(service: JsonObject) -> bool:
    return bool(service["spec"].get("clusterIP") == "None")


def _subsets(service: JsonObject, backends: list[Backend]) -> list[JsonObject]:
    """Addresses by their ports, ready ones apart from the others."""
    always = service["spec"].get("publishNotReadyAddresses", False)
    by_ports: dict[bytes, JsonObject] = {}
    for backend in backends:
        if backend.terminating and not always:
            continue
        ports = ports_of(service, backend.pod)
        subset = by_ports.setdefault(orjson.dumps(ports), {"ports": ports})
        kind = "addresses" if backend.serving or always else "notReadyAddresses"
        address = {
            "ip": backend.address,
            **hostname_of(service, backend.pod),
            "nodeName": backend.pod["spec"].get("nodeName", ""),
            "targetRef": target_of(backend.pod),
        }
        subset.setdefault(kind, []).append(address)
    order = ("addresses", "notReadyAddresses", "ports")
    return [
        {name: subset[name] for name in order if subset.get(name)} for subset in by_ports.values()
    ]


@dataclass(frozen=True, slots=True)
class Backend:
    """A pod behind a Service."""

    pod: JsonObject
    address: str
    serving: bool
    """The pod is ready, be it terminating or not."""
    terminating: bool


def backend_of(pod: JsonObject) -> Backend | None:
    """The pod as a backend; None: it cannot be one."""
    address = pod["status"].get("podIP")
    if not address or is_finished(pod):
        return None
    return Backend(pod, address, is_ready(pod), is_terminating(pod))


def chooses(service: JsonObject, labels: dict[str, str]) -> bool:
    """Whether the selector of a Service chooses pods with these labels."""
    selector = service["spec"].get("selector")
    if not selector or service["spec"].get("type") == "ExternalName":
        return False
    return all(labels.get(key) == value for key, value in selector.items())


def ports_of(service: JsonObject, pod: JsonObject) -> list[JsonObject]:
    """The ports of a Service at a pod; named ones that the pod does not have are left out."""
    found = []
    for port in service["spec"].get("ports") or ():
        number = _number(port, pod)
        if number:
            named = {"name": port["name"]} if port.get("name") else {}
            protocol = port.get("appProtocol")
            app = {"appProtocol": protocol} if protocol else {}
            found.append({**named, "port": number, "protocol": port["protocol"], **app})
    return found


def _number(port: JsonObject, pod: JsonObject) -> int:
    target = port.get("targetPort", port["port"])
    if isinstance(target, int):
        return target or int(port["port"])
    for container in pod["spec"]["containers"]:
        for each in container.get("ports") or ():
            if each.get("name") == target and each.get("protocol", "TCP") == port["protocol"]:
                return int(each["containerPort"])
    return 0


def facts_of(pod: JsonObject) -> tuple[object, ...]:
    """The facts about a pod that its Services see: while none changes, they need no sync."""
    status = pod["status"]
    return (
        labels_of(pod),
        status.get("podIP"),
        is_ready(pod),
        is_terminating(pod),
        is_finished(pod),
        pod["spec"].get("nodeName"),
    )


def target_of(pod: JsonObject) -> JsonObject:
    """The reference by which an endpoint names its pod."""
    metadata = pod["metadata"]
    return {
        "kind": "Pod",
        "name": metadata["name"],
        "namespace": metadata["namespace"],
        "uid": metadata["uid"],
    }


def hostname_of(service: JsonObject, pod: JsonObject) -> JsonObject:
    """The host name of a pod whose subdomain is the Service."""
    spec = pod.get("spec") or EMPTY
    same = spec.get("subdomain") == service["metadata"]["name"]
    return {"hostname": spec["hostname"]} if same and spec.get("hostname") else {}
