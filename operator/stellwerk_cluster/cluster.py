"""The embedded cluster as one object: API server, controllers and hollow nodes.

`stellwerk cluster`, the demo, flows and benchmarks use `EmbeddedCluster`. Invariant: when `start`
returns, the port answers and the nodes exist; when `stop` returns, nothing of the cluster runs any
more.
"""

from __future__ import annotations

import asyncio
import contextlib
import random  # noqa: TID251  (the composition root makes the generator it injects)
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Self

from aiohttp import web

from stellwerk_cluster.admission.plugins import DEFAULT_PLUGINS
from stellwerk_cluster.apimachinery.feature_gates import default_gates
from stellwerk_cluster.apimachinery.kinds import KindTable
from stellwerk_cluster.apimachinery.objects import micro_timestamp
from stellwerk_cluster.apimachinery.releases import RECORDED_RELEASE, RuntimeConfig
from stellwerk_cluster.apiserver.auth_filters import AuthFilters
from stellwerk_cluster.apiserver.computed_kinds import (
    COMPONENT_STATUSES,
    CONTROLLER_MANAGER_PORT,
    SCHEDULER_PORT,
    ComponentStatuses,
    port_health,
)
from stellwerk_cluster.apiserver.event_ttl import EventExpiry
from stellwerk_cluster.apiserver.http import MAX_BODY_BYTES, ApiServer, while_connected
from stellwerk_cluster.apiserver.non_resource_paths import NonResourcePaths
from stellwerk_cluster.apiserver.openapi import OpenApi
from stellwerk_cluster.apiserver.pod_logs import PodLogs
from stellwerk_cluster.apiserver.rendering import Renderer
from stellwerk_cluster.apiserver.tables import TableConvertors
from stellwerk_cluster.apiserver.watching import WatchServer
from stellwerk_cluster.controllers.catalogue import CONTROLLERS, make_controllers
from stellwerk_cluster.controllers.index import UsageOf, unknown_usage
from stellwerk_cluster.faults.injector import FaultInjector
from stellwerk_cluster.hollow.container_logs import pod_log
from stellwerk_cluster.hollow.device_publisher import DevicePublisher
from stellwerk_cluster.hollow.eviction_manager import NodePressure
from stellwerk_cluster.hollow.eviction_thresholds import KubeletConfiguration
from stellwerk_cluster.hollow.heartbeat import NodeHeartbeat
from stellwerk_cluster.hollow.kubelet import HollowKubelet, KubeletOptions
from stellwerk_cluster.hollow.metrics import NODE_METRICS, POD_METRICS, NodeMetrics, PodMetrics
from stellwerk_cluster.hollow.nodes import hollow_nodes, register_nodes
from stellwerk_cluster.identity.assembly import IdentityOptions, make_identity
from stellwerk_cluster.identity.secret_files import SecretFiles
from stellwerk_cluster.identity.service_accounts import (
    VOID_AUTHORITY,
    publish_client_authority,
    publish_token_tracking,
)
from stellwerk_cluster.kubeconfig import kubeconfig, write_kubeconfig
from stellwerk_cluster.registry.api import Api
from stellwerk_cluster.registry.definition_lifecycle import DefinitionLifecycle
from stellwerk_cluster.registry.store import MAX_KEPT_EVENTS, Store
from stellwerk_cluster.validation.scheduling import SYSTEM_CLASSES
from stellwerk_cluster.work import Worker, WorkLoop
from stellwerk_kube.clock import SystemClock
from stellwerk_kube.listening.limits import Limits
from stellwerk_kube.listening.port_use import PortUse
from stellwerk_kube.listening.site import LimitedSite

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path
    from ssl import SSLContext
    from types import TracebackType

    from stellwerk_cluster.faults.plan import FaultPlan
    from stellwerk_cluster.identity.certificates import CertificateAuthority
    from stellwerk_cluster.registry.data_directory import DataDirectory
    from stellwerk_kube.clock import Clock
    from stellwerk_kube.json_values import JsonObject


_SHUTDOWN_SECONDS: Final = 1.0
"""Time that requests get to end when the cluster does."""
_SECRETS: Final = "secrets"
"""In a data directory, where the keys are."""
_LIMITS: Final = Limits(
    methods=frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}),
    header_fields=128,
    header_bytes=64 << 10,
    body_bytes=None,
    idle_seconds=90.0,
    stalled_seconds=None,
    connections=1000,
    address_connections=None,
    unidentified_connections=256,
)
"""Connections stay open without requests as long as kube-apiserver's do; a watch has no limit.
Bodies have theirs in `apiserver.bodies`; a peer is known once it has asked with credentials, or
where none are needed.
"""


@dataclass(frozen=True, slots=True)
class ClusterOptions:
    """The options of a cluster: what runs beside its API, and how much of its past it keeps."""

    controllers: bool = True
    chosen_controllers: tuple[str, ...] = CONTROLLERS
    """Controllers that run, where `controllers` are wanted."""
    kubelet: KubeletOptions | None = field(default_factory=KubeletOptions)
    """None: bound pods stay Pending and deleted pods stay terminating, as without any kubelet."""
    heartbeats: bool = True
    """Whether nodes, those created later too, are reported Ready and renew their leases."""
    event_window: int = MAX_KEPT_EVENTS
    compaction_seconds: float | None = None
    """The period after which older changes are forgotten; None: only the window limits them."""
    seed: int | None = None
    """The seed of generated names and uids; None: different in every run."""
    admission_plugins: frozenset[str] = DEFAULT_PLUGINS
    release: str = RECORDED_RELEASE
    """The release of Kubernetes that the cluster is."""
    feature_gates: frozenset[str] | None = None
    """Gates that are on, with all that they need (`apimachinery.feature_gates`); None: those that
    the release has on.
    """
    runtime_config: RuntimeConfig = field(default_factory=RuntimeConfig)
    """Versions that are served beside those that are anyway, or are not."""
    faults: FaultPlan | None = None
    """Faults between clients and the API; `arm` it."""
    identity: IdentityOptions = field(default_factory=IdentityOptions)
    tls: bool = False
    """Whether the API is served over TLS, under a certificate authority of the cluster's own."""
    client_authorities: bytes = b""
    """Further authorities, as PEM, whose client certificates name users."""
    data_directory: DataDirectory | None = None
    """The directory that keeps the objects over a restart; None: they go with the process."""


class EmbeddedCluster:
    """An API server with controllers and hollow nodes, open from `start` to `stop`."""

    def __init__(
        self,
        nodes: int | Sequence[JsonObject] = 3,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        clock: Clock | None = None,
        options: ClusterOptions | None = None,
    ) -> None:
        """Prepare a cluster with that many nodes, or with these manifests; port 0: any free one.

        The API (`api`, `store`) works at once, in process; the port opens with `start`.

        Raises:
            StatusError: a node manifest is invalid, or a device that drivers publish.
            ConfigurationError: the data directory is damaged, or cannot be read or written.
        """
        self.options = options or ClusterOptions()
        self.clock = clock or SystemClock()
        self._host, self._port = host, port
        rng = random.Random(self.options.seed)
        self.store = Store(window=self.options.event_window)
        kept = SecretFiles()
        if self.options.data_directory is not None:
            self.options.data_directory.restore(self.store, self.options.release)
            kept = SecretFiles(self.options.data_directory.path / _SECRETS)
        gates, release = self.options.feature_gates, self.options.release
        gates = default_gates(release) if gates is None else gates
        kinds = KindTable(gates, release, self.options.runtime_config)
        self.api = Api(self.store, kinds, self.clock, rng)
        self.api.plugins = self.options.admission_plugins
        self.api.features = gates
        DefinitionLifecycle(self.api.written_by("kube-apiserver"))
        renderer = Renderer(TableConvertors(self.clock, self.api.custom))
        self._watches = WatchServer(self.store, self.clock, rng, renderer)
        openapi = OpenApi(self.api.kinds, self.api.custom)
        self._non_resource_paths = NonResourcePaths(self.api.kinds, openapi)
        bootstrap(self.api.written_by("kube-apiserver"))
        self.identity = make_identity(
            self.api.written_by("kube-apiserver"), self.options.identity, kept
        )
        self._non_resource_paths.tokens = self.identity.authenticator.tokens
        auth_filters = AuthFilters(self.identity.authenticator, self.identity.authorizer)
        self._server = ApiServer(
            self.api, renderer, self._watches, self._non_resource_paths, auth_filters
        )
        self.components: dict[str, Callable[[], str]] = {
            "scheduler": partial(port_health, SCHEDULER_PORT),
            "controller-manager": self._controllers_health,
            "etcd-0": str,
        }
        """Component → what is wrong with it; of a scheduler in this process, it knows itself."""
        self._server.object_reader.add(COMPONENT_STATUSES, ComponentStatuses(self.components))
        if self.options.kubelet is not None:
            self._server.pod_logs = PodLogs(self.api, pod_log, self._watches)
            self._serve_metrics(self.options.kubelet)
        self.authority = self._make_authority(kept)
        manifests = hollow_nodes(nodes) if isinstance(nodes, int) else list(nodes)
        register_nodes(self.api.written_by("kubelet"), manifests, self.options.kubelet)
        self.work = WorkLoop(self._workers())
        self._runner: web.ServerRunner | None = None
        self._tasks: list[asyncio.Task[None]] = []

    def _controllers_health(self) -> str:
        if not self.options.controllers:
            return port_health(CONTROLLER_MANAGER_PORT)
        running = any(not task.done() for task in self._tasks)
        return "" if running else "the controllers do not run"

    def _serve_metrics(self, kubelet: KubeletOptions) -> None:
        """Serve the metrics that `kubectl top` asks for."""
        pods = PodMetrics(self.api, kubelet.lifecycles())
        self._server.object_reader.add(POD_METRICS, pods)
        self._server.object_reader.add(NODE_METRICS, NodeMetrics(self.api, pods))

    def _usage_of_pods(self) -> UsageOf:
        kubelet = self.options.kubelet
        if kubelet is None:
            return unknown_usage
        return PodMetrics(self.api, kubelet.lifecycles()).used

    def _workers(self) -> list[Worker]:
        workers: list[Worker] = [EventExpiry(self.api)]
        if self.options.controllers:
            controlling = self.api.written_by("kube-controller-manager")
            authority = self.authority
            workers += make_controllers(
                controlling,
                self.options.chosen_controllers,
                self._usage_of_pods(),
                # Over plain HTTP there is nothing to check, and clients still wait for the object.
                VOID_AUTHORITY if authority is None else authority.certificate.decode("ascii"),
            )
        if self.options.kubelet is not None:
            workers += make_kubelets(self.api.written_by("kubelet"), self.options.kubelet)
        if self.options.heartbeats:
            workers.append(NodeHeartbeat(self.api.written_by("kubelet")))
        return workers

    @property
    def url(self) -> str:
        """The URL of the API."""
        scheme = "http" if self.authority is None else "https"
        return f"{scheme}://{self._host}:{self._port}"

    async def start(self) -> None:
        """Open the port and let controllers and kubelets run; after `stop`, the same port again.

        Raises:
            OSError: the port cannot be opened.
        """
        self._watches.open()
        server = self._aiohttp_server()
        self._runner = web.ServerRunner(server, shutdown_timeout=_SHUTDOWN_SECONDS)
        await self._runner.setup()
        context = self._tls_context()
        use = PortUse(_LIMITS)
        tls = None if context is None else lambda: context
        site = LimitedSite(self._runner, self._host, self._port, use, tls=tls)
        await site.start()
        self._port = self._runner.addresses[0][1]
        self._non_resource_paths.address = f"{self._host}:{self._port}"
        self._tasks.append(
            asyncio.create_task(self.work.run(), name="embedded cluster: controllers")
        )
        if self.options.compaction_seconds is not None:
            compaction = self._compact(self.options.compaction_seconds)
            self._tasks.append(asyncio.create_task(compaction, name="embedded cluster: compaction"))
        if self.options.data_directory is not None:
            keeping = self.options.data_directory.keep()
            self._tasks.append(asyncio.create_task(keeping, name="embedded cluster: data"))

    def _aiohttp_server(self) -> web.Server:
        if self.options.faults is None:
            handle = while_connected(self._server.handle)
            return web.Server(handle, request_factory=_request, access_log=None)
        faulty = FaultInjector(self._server.handle, self.options.faults, self.clock, self.store)
        self._tasks.append(
            asyncio.create_task(faulty.run_outages(), name="embedded cluster: outages")
        )
        handle = while_connected(faulty.handle)
        return web.Server(handle, request_factory=faulty.request(_request), access_log=None)

    async def stop(self) -> None:
        """End all watches, close the port and stop controllers and kubelets."""
        self._watches.close()
        for task in self._tasks:
            task.cancel()
        for task in self._tasks:
            with contextlib.suppress(asyncio.CancelledError):
                await task
        self._tasks.clear()
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    def write_kubeconfig(self, path: Path) -> None:
        """Write a kubeconfig that leads here.

        Raises:
            OSError: the file cannot be written.
        """
        write_kubeconfig(path, self.kubeconfig())

    def kubeconfig(self) -> bytes:
        """A kubeconfig that leads here."""
        authority = b"" if self.authority is None else self.authority.certificate
        return kubeconfig(self.url, self.identity.admin_token, authority)

    def _make_authority(self, kept: SecretFiles) -> CertificateAuthority | None:
        api = self.api.written_by("kube-apiserver")
        publish_token_tracking(api)
        if not self.options.tls:
            publish_client_authority(api, VOID_AUTHORITY, VOID_AUTHORITY)
            return None
        from stellwerk_cluster.identity.certificates import (  # noqa: PLC0415  (0.1 s for TLS alone)
            CertificateAuthority,
        )

        authority = CertificateAuthority(self.clock.now(), kept)
        own = authority.certificate.decode("ascii")
        trusted = own + self.options.client_authorities.decode("ascii")
        publish_client_authority(api, trusted, own)
        return authority

    def _tls_context(self) -> SSLContext | None:
        if self.authority is None:
            return None
        return self.authority.serving_context(self._host, self.options.client_authorities)

    async def _compact(self, period_seconds: float) -> None:
        while True:
            horizon = self.store.revision
            await asyncio.sleep(period_seconds)
            self.store.compact(horizon)

    async def __aenter__(self) -> Self:
        """Start."""
        await self.start()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stop."""
        await self.stop()


def _request(*args: Any) -> web.BaseRequest:
    message, payload, protocol, writer, task = args
    return web.BaseRequest(
        message,
        payload,
        protocol,
        writer,
        task,
        asyncio.get_running_loop(),
        client_max_size=MAX_BODY_BYTES,
    )


NAMESPACES: Final = ("kube-system", "kube-public", "default", "kube-node-lease")


_DESCRIPTIONS: Final = {
    "system-cluster-critical": (
        "Used for system critical pods that must run in the cluster, but can be moved to another "
        "node if necessary."
    ),
    "system-node-critical": (
        "Used for system critical pods that must not be moved from their current node."
    ),
}


API_ADDRESS: Final = "10.0.0.1"


_IDENTITY_LEASE_SECONDS: Final = 3600
"""Length of the lease by which an API server says that it is there
(`IdentityLeaseDurationSeconds`)."""


def bootstrap(api: Api) -> None:
    """Create the objects of an empty cluster that a restored one has not kept."""
    kinds = api.kinds
    for name in NAMESPACES:
        api.ensure(kinds.resource("namespaces"), "", {"metadata": {"name": name}})
    classes = kinds.resource("priorityclasses", "scheduling.k8s.io")
    for name, value in SYSTEM_CLASSES.items():
        body = {"metadata": {"name": name}, "value": value, "description": _DESCRIPTIONS[name]}
        api.ensure(classes, "", body)
    service = {
        "metadata": {
            "name": "kubernetes",
            "labels": {"component": "apiserver", "provider": "kubernetes"},
        },
        "spec": {
            "clusterIP": API_ADDRESS,
            "ipFamilyPolicy": "SingleStack",
            "ports": [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": 443}],
        },
    }
    api.ensure(kinds.resource("services"), "default", service)
    lease = {
        "metadata": {
            "name": "apiserver-stellwerk",
            "labels": {
                "apiserver.kubernetes.io/identity": "kube-apiserver",
                "kubernetes.io/hostname": "embedded",
            },
        },
        "spec": {
            "holderIdentity": "apiserver-stellwerk",
            "leaseDurationSeconds": _IDENTITY_LEASE_SECONDS,
            "renewTime": micro_timestamp(api.now()),
        },
    }
    api.ensure(kinds.resource("leases", "coordination.k8s.io"), "kube-system", lease)


def make_kubelets(api: Api, options: KubeletOptions) -> list[Worker]:
    """The lives of pods, the pressure on nodes, and the drivers of devices.

    Raises:
        StatusError: the API refuses what drivers publish.
    """
    configuration = options.configuration or KubeletConfiguration()
    workers: list[Worker] = [
        HollowKubelet(api, options),
        NodePressure(api, options.lifecycles(), configuration),
    ]
    if options.devices:
        workers.append(DevicePublisher(api, options.devices))
    return workers
