"""The embedded cluster and the operator in one event loop, store to handlers, without sockets.

Flows use it: they apply manifests as a user would, let time pass (`tests.support.skipped_time`) and
look at what became of the pods. Invariant: the operator sees every change of the store at once and
in order, and writes only through the API, so that admission, validation and controllers count.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any
from unittest.mock import patch
from urllib.parse import parse_qsl

import orjson
import yaml
from typing_extensions import override

from stellwerk.app import RunOptions
from stellwerk.framework.handle import RandomNumbers
from stellwerk.framework.services import ClusterClient
from stellwerk.framework.watch_handlers import Lack
from stellwerk.handlers.delivery import handle_event
from stellwerk.handlers.watched_kinds import WATCHED, WatchedKind
from stellwerk.metrics import Metrics
from stellwerk.profiles.spec.plugin_description import PluginKind
from stellwerk.scheduler.observers.recording import Recording
from stellwerk.serving.exposition import exposition
from stellwerk.wiring import Operator
from stellwerk_cli import embedded_cluster as command
from stellwerk_cli.convert.conversion import convert_text
from stellwerk_cluster.apimachinery.failures import StatusError
from stellwerk_cluster.apimachinery.kinds import ResourceKind
from stellwerk_cluster.apimachinery.patching import STRATEGIC_PATCH
from stellwerk_cluster.apiserver.listing import parse_list_options
from stellwerk_cluster.apiserver.request_info import RequestInfo, parse_path
from stellwerk_cluster.cluster import ClusterOptions, EmbeddedCluster
from stellwerk_cluster.registry.api import Api
from stellwerk_cluster.registry.binding import bind
from stellwerk_cluster.registry.deletion import DeleteOptions, delete
from stellwerk_cluster.registry.entries import StoreEvent
from stellwerk_kube.clock import VirtualClock
from stellwerk_kube.errors import api_error
from stellwerk_kube.json_values import JsonObject
from tests.support.definitions import profile_definition
from tests.support.in_process import Notes
from tests.support.invariants import check_invariants, check_unaltered
from tests.support.rights import Right, granted

if TYPE_CHECKING:
    from collections.abc import Iterator

_CONFIGURATIONS = ([".config"], [".policy"])
"""What stands before the ending of a file's name that `stellwerk convert` reads."""
_DEADLINE_SECONDS = 60.0


class StoreClient(ClusterClient):
    """A ClusterClient that calls the API's verbs where the real one sends requests.

    It has the rights of the manifests' ClusterRole; the lease and Secrets are met over HTTP alone.
    """

    def __init__(self, api: Api, also_granted: frozenset[Right] = frozenset()) -> None:
        self._api = api
        self._granted = granted() | also_granted
        self.absent: set[tuple[str, str]] = set()
        """Group and plural of kinds that the API does not serve to the operator."""

    @override
    async def bind(self, namespace: str, name: str, uid: str, node_name: str) -> None:
        binding = {"metadata": {"name": name, "uid": uid}, "target": {"name": node_name}}
        with _translated(f"bind {namespace}/{name} to {node_name}"):
            self._check_right("", "pods/binding", "create")
            bind(self._api, self._api.kinds.resource("pods"), (namespace, name), binding)

    @override
    async def patch_pod_status(
        self, namespace: str, name: str, patch: Mapping[str, Any], *, urgent: bool = True
    ) -> None:
        pods = self._api.kinds.resource("pods")
        with _translated(f"patch the status of {namespace}/{name}"):
            self._check_right("", "pods/status", "patch")
            self._api.patch(
                pods, (namespace, name), dict(patch), STRATEGIC_PATCH, subresource="status"
            )

    @override
    async def delete_pod(self, namespace: str, name: str, uid: str) -> bool:
        pods = self._api.kinds.resource("pods")
        with _translated(f"delete {namespace}/{name}"):
            self._check_right("", "pods", "delete")
            return delete(self._api, pods, (namespace, name), DeleteOptions(uid=uid)).gone

    @override
    async def delete(self, path: str, uid: str) -> None:
        with _translated(f"delete {path}"):
            target = self._target(path, "delete")
            delete(self._api, target.kind, target.key, DeleteOptions(uid=uid))

    @override
    async def get(self, path: str) -> JsonObject:
        collection, _, query = path.partition("?")
        if query:
            items, version = await self.list(collection)
            return {"items": items, "metadata": {"resourceVersion": version}}
        with _translated(f"get {path}"):
            target = self._target(path, "get")
            return loaded(self._api.get(target.kind, *target.key).data)

    @override
    async def list(self, path: str, *, limit: int = 500) -> tuple[list[JsonObject], str]:
        collection_path, _, query = path.partition("?")
        with _translated(f"list {path}"):
            target = self._target(collection_path, "list")
            asked = dict(parse_qsl(query))
            options = parse_list_options(target.kind, target.namespace, "", asked)
            collection = self._api.store.collection(target.kind.storage_name)
            items = [
                loaded(entry.data)
                for entry in collection.entries(target.namespace)
                if options.selection.selects(entry)
            ]
            return items, str(self._api.store.revision)

    @override
    async def create(self, path: str, body: Mapping[str, Any]) -> JsonObject:
        with _translated(f"create in {path}"):
            target = self._target(path, "create")
            return loaded(self._api.create(target.kind, target.key[0], dict(body)).data)

    @override
    async def replace(self, path: str, body: Mapping[str, Any]) -> JsonObject:
        with _translated(f"replace {path}"):
            target = self._target(path, "update")
            entry = self._api.update(
                target.kind, target.key, dict(body), subresource=target.subresource
            )
            return loaded(entry.data)

    @override
    async def patch(
        self,
        path: str,
        body: Mapping[str, Any],
        *,
        content_type: str = "application/merge-patch+json",
    ) -> JsonObject:
        with _translated(f"patch {path}"):
            target = self._target(path, "patch")
            entry = self._api.patch(
                target.kind, target.key, dict(body), content_type, subresource=target.subresource
            )
            return loaded(entry.data)

    def end(self) -> None:
        """Refuse everything from now on: the process that called has ended."""
        self._granted = frozenset()

    def _target(self, path: str, verb: str) -> RequestInfo:
        target = parse_path([part for part in path.split("/") if part], self._api.kinds)
        if target is None:
            raise StatusError(404, "NotFound", f"{path} is not served")
        if (target.kind.group, target.kind.plural) in self.absent:
            raise StatusError(404, "NotFound", "the server could not find the requested resource")
        kind, part = target.kind, f"/{target.subresource}" if target.subresource else ""
        self._check_right(kind.group, f"{kind.plural}{part}", verb)
        return target

    def _check_right(self, group: str, resource: str, verb: str) -> None:
        """Refuse what neither the manifests allow nor the flow."""
        if (group, resource, verb) not in self._granted:
            text = f"the manifests give no right to {verb} {resource}.{group}"
            raise StatusError(403, "Forbidden", text)


class VirtualCluster:
    """A cluster with its operator; made by `open_virtual_cluster`."""

    def __init__(
        self,
        clock: VirtualClock,
        nodes: Sequence[JsonObject],
        options: ClusterOptions,
        recording: Recording | None = None,
        numbers: Callable[[int | None], RandomNumbers] = Random,
        also_granted: frozenset[Right] = frozenset(),
    ) -> None:
        """`numbers` breaks ties; `also_granted`: rights of the operator beside the manifests'."""
        self.clock = clock
        self.cluster = EmbeddedCluster(nodes, clock=clock, options=options)
        self.api = self.cluster.api
        with patch.object(command, "crd_manifest", profile_definition):
            command.install_profiles(self.cluster)
        self._applied: dict[tuple[str, tuple[str, str]], JsonObject] = {}
        self.notes = Notes()
        self._recording, self._numbers, self._also_granted = recording, numbers, also_granted
        self.client, self.operator = self._new_operator()
        served = {(kind.group, kind.plural) for kind in self.api.kinds}
        self.watched = [each for each in WATCHED if (each.group, each.plural) in served]
        self._sinks: dict[str, Callable[[str | None, JsonObject], object]] = {}
        self._list()
        self._watch_for_plugins()
        self.api.store.listeners.append(self._on_change)

    def _new_operator(self) -> tuple[StoreClient, Operator]:
        client = StoreClient(self.api, self._also_granted)
        return client, Operator(
            client,
            self.notes,
            Metrics(),
            self.clock,
            RunOptions(),
            recording=self._recording,
            numbers=self._numbers,
        )

    def start_operator(self) -> None:
        """Let the operator schedule."""
        self._scheduling = asyncio.create_task(self.operator.scheduler.run(), name="scheduler")

    @property
    def is_scheduling(self) -> bool:
        """Whether the scheduling coroutine runs."""
        return not self._scheduling.done()

    async def stop_operator(self) -> None:
        """End the operator.

        Raises:
            Exception: what ended the scheduling coroutine before.
        """
        self._scheduling.cancel()
        await asyncio.wait({self._scheduling})
        await self.operator.sources.close()
        await self.operator.extenders.close()
        if not self._scheduling.cancelled():
            self._scheduling.result()

    async def restart_operator(self) -> None:
        """The operator ends at once, and another one finds what it has left behind."""
        self.client.end()
        await self.stop_operator()
        self.begin_operator()

    def begin_operator(self) -> None:
        """Another operator finds what the one that has ended has left behind."""
        self.client, self.operator = self._new_operator()
        self._list()
        self._watch_for_plugins()
        self.start_operator()

    # --- what a user does -----------------------------------------------------------------------

    def apply(self, *objects: JsonObject) -> None:
        """`kubectl apply`: create objects, or patch them, fields that were applied before away."""
        for obj in objects:
            kind, key = self._place(obj)
            if self.api.store.collection(kind.storage_name).get(key) is None:
                self.api.create(kind, key[0], _copied(obj))
            else:
                applied = self._applied.get((kind.storage_name, key), {})
                self.api.patch(kind, key, _with_removals(applied, obj))
            self._applied[kind.storage_name, key] = obj

    def apply_file(self, path: Path) -> None:
        """Apply a file; a configuration of kube-scheduler goes through `stellwerk convert`."""
        self.apply(*read_manifests(path))

    def patch(self, plural: str, name: str, patch: JsonObject, group: str = "") -> None:
        """`kubectl patch`, with a merge patch."""
        kind = self.api.kinds.resource(plural, group)
        self.api.patch(kind, ("default" if kind.namespaced else "", name), patch)

    def patch_status(self, plural: str, name: str, patch: JsonObject, group: str = "") -> None:
        """What a kubelet or controller reports, with a strategic merge patch."""
        kind = self.api.kinds.resource(plural, group)
        key = ("default" if kind.namespaced else "", name)
        self.api.patch(kind, key, patch, STRATEGIC_PATCH, subresource="status")

    def delete(self, plural: str, name: str, group: str = "") -> None:
        """`kubectl delete`."""
        kind = self.api.kinds.resource(plural, group)
        key = ("default" if kind.namespaced else "", name)
        delete(self.api, kind, key, DeleteOptions(propagation="Background"))

    def withdraw(self, kind: str) -> None:
        """The API serves a kind no more; the operator hears of it when it looks (`notice`)."""
        watched = self._watched_as(kind)
        self.client.absent.add((watched.group, watched.plural))
        del self._sinks[self._storage_name(watched)]

    def notice(self, kind: str) -> None:
        """The operator finds that a kind is served no more: its objects are gone."""
        watched, handlers = self._watched_as(kind), self.operator.handlers
        handlers.on_lack(kind, Lack(f"the API serves no {watched.plural} of {watched.group}"))
        for entry in self.api.store.collection(self._storage_name(watched)).entries():
            metadata = loaded(entry.data)["metadata"]
            known = ("uid", "name", "namespace", "resourceVersion")
            left = {name: metadata[name] for name in known if name in metadata}
            handle_event(handlers, kind, "DELETED", {"metadata": left})

    def lag(self, kind: str, seconds: float) -> None:
        """The watch of a kind is so much behind from here on."""
        storage_name = self._storage_name(self._watched_as(kind))
        sink, loop = self._sinks[storage_name], asyncio.get_running_loop()

        def later(event_type: str | None, obj: JsonObject) -> None:
            loop.call_later(seconds, sink, event_type, obj)

        self._sinks[storage_name] = later

    def restore(self, kind: str) -> None:
        """The API serves a kind, or does so again; the operator sees the objects that it has."""
        if all(each.kind != kind for each in self.watched):
            self.watched += [each for each in WATCHED if each.kind == kind]
        watched = self._watched_as(kind)
        self.client.absent.discard((watched.group, watched.plural))
        self._list_kind(watched)
        self.operator.handlers.on_lack(kind, None)

    # --- what a user sees -----------------------------------------------------------------------

    @property
    def pods(self) -> dict[str, JsonObject]:
        """The pods of the default namespace by name."""
        return {pod["metadata"]["name"]: pod for pod in self.api.all("pods", "default")}

    def node_of(self, name: str) -> str | None:
        """Where a pod is bound."""
        node: str | None = self.pods[name]["spec"].get("nodeName")
        return node

    def why_pending(self, name: str) -> tuple[str, str] | None:
        """(reason, message) of a pod's PodScheduled condition while it is False."""
        for condition in self.pods[name]["status"].get("conditions") or ():
            if condition["type"] == "PodScheduled" and condition["status"] == "False":
                return condition["reason"], condition.get("message", "")
        return None

    def phase_of(self, name: str) -> str:
        """status.phase of a pod."""
        return str(self.pods[name]["status"].get("phase"))

    def metrics(self) -> bytes:
        """The text of /metrics."""
        return exposition(self.operator.metrics)

    async def until(self, condition: Callable[[], Any], seconds: float = _DEADLINE_SECONDS) -> None:
        """Let time pass until something is true; fails when it takes too long."""
        deadline = self.clock.monotonic() + seconds
        while not condition():
            assert self.clock.monotonic() < deadline, self._where_pods_are()
            await asyncio.sleep(0.1)

    async def settle(self) -> None:
        """Let every pod be bound and running, or told why it cannot be."""
        await self.until(lambda: all(map(_is_settled, self.pods.values())))

    def _where_pods_are(self) -> str:
        return "\n".join(
            f"{name}: {pod['spec'].get('nodeName')} {pod['status']}"
            for name, pod in self.pods.items()
        )

    # --- how it hangs together ------------------------------------------------------------------

    def _place(self, obj: JsonObject) -> tuple[ResourceKind, tuple[str, str]]:
        group = obj["apiVersion"].rpartition("/")[0]
        kind = self.api.kinds.named(group, obj["kind"])
        assert kind is not None, f"{obj['apiVersion']} {obj['kind']} is not served"
        metadata = obj["metadata"]
        namespace = metadata.get("namespace", "default") if kind.namespaced else ""
        return kind, (namespace, metadata["name"])

    def _watched_as(self, kind: str) -> WatchedKind:
        return next(each for each in self.watched if each.kind == kind)

    def _storage_name(self, watched: WatchedKind) -> str:
        return self.api.kinds.resource(watched.plural, watched.group).storage_name

    def _list(self) -> None:
        self._sinks = {}
        for watched in self.watched:
            self._list_kind(watched)

    def _list_kind(self, watched: WatchedKind) -> None:
        storage_name = self._storage_name(watched)
        sink = partial(handle_event, self.operator.handlers, watched.kind)
        for entry in self.api.store.collection(storage_name).entries():
            sink(None, loaded(entry.data))
        self._sinks[storage_name] = sink
        self.operator.handlers.on_synced(watched.kind)

    def _watch_for_plugins(self) -> None:
        """Kinds of plugins are watched from the moment in which one asks for them."""
        sources = self.operator.sources

        def watch(kind: PluginKind) -> None:
            watched = WatchedKind(kind.kind, kind.group, kind.version, kind.plural, optional=True)
            if (kind.group, kind.plural) in {(each.group, each.plural) for each in self.api.kinds}:
                self.watched.append(watched)
                self._list_kind(watched)
            else:
                self.operator.handlers.on_synced(kind.kind)

        for kind in sources.kinds:
            watch(kind)
        sources.on_kind = watch

    def _on_change(self, storage_name: str, event: StoreEvent) -> None:
        sink = self._sinks.get(storage_name)
        if sink is not None:
            sink(event.type, loaded(event.entry.data))


@asynccontextmanager
async def open_virtual_cluster(
    clock: VirtualClock,
    nodes: Iterable[JsonObject],
    options: ClusterOptions | None = None,
    recording: Recording | None = None,
    numbers: Callable[[int | None], RandomNumbers] = Random,
    also_granted: frozenset[Right] = frozenset(),
) -> AsyncIterator[VirtualCluster]:
    """A cluster and its operator, both running until the block ends."""
    options = options or ClusterOptions(seed=1, heartbeats=False)
    world = VirtualCluster(clock, list(nodes), options, recording, numbers, also_granted)
    controllers = asyncio.create_task(world.cluster.work.run(), name="controllers")
    world.start_operator()
    try:
        yield world
        await asyncio.sleep(1)
        await check_invariants(world.operator, world.client)
        check_unaltered(world.cluster.store)
    finally:
        controllers.cancel()
        await asyncio.wait({controllers})
        await world.stop_operator()
    if not controllers.cancelled():
        controllers.result()


def read_manifests(path: Path) -> list[JsonObject]:
    """The objects of a file; a configuration of kube-scheduler as `stellwerk convert` writes it."""
    text = path.read_text(encoding="utf-8")
    if path.suffixes[:-1] in _CONFIGURATIONS:
        return [dict(manifest) for manifest in convert_text(text).manifests]
    return [obj for obj in yaml.safe_load_all(text) if obj]


def _is_settled(pod: JsonObject) -> bool:
    status = pod["status"]
    if pod["spec"].get("nodeName"):
        return bool(status.get("phase") != "Pending")
    return any(
        condition["type"] == "PodScheduled" and condition["status"] == "False"
        for condition in status.get("conditions") or ()
    )


def _with_removals(before: JsonObject, after: JsonObject) -> JsonObject:
    """`after` as a merge patch that also takes away what only `before` has."""
    patch: JsonObject = dict.fromkeys(before.keys() - after.keys())
    for key, value in after.items():
        inner = before.get(key)
        if isinstance(value, dict):
            patch[key] = _with_removals(inner if isinstance(inner, dict) else {}, value)
        else:
            patch[key] = value
    return patch


@contextmanager
def _translated(act: str) -> "Iterator[None]":
    """The API's refusals as the client's errors."""
    try:
        yield
    except StatusError as error:
        raise api_error(act, error.code, error.reason, error.message) from error


def loaded(data: bytes) -> JsonObject:
    """An object of its own from what the store keeps."""
    obj: JsonObject = orjson.loads(data)
    return obj


def _copied(obj: JsonObject) -> JsonObject:
    return loaded(orjson.dumps(obj))
