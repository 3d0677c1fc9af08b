"""`stellwerk cluster`: the embedded cluster as a process of its own.

Called by the command line. Invariant: the kubeconfig appears only once the port answers, and is
removed with the process.
"""

import asyncio
import gc
import secrets
import signal
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from stellwerk.models.scheduling_spec import DEFAULT_SCHEDULER_NAME
from stellwerk.profiles.spec.crd import crd_manifest
from stellwerk.profiles.spec.profile import (
    DEFAULT_PROFILE_MANIFEST,
    GROUP,
    PLURAL,
    TAKEOVER_PROFILE_MANIFEST,
)
from stellwerk_cluster.access_flags import AccessFlags
from stellwerk_cluster.admission.plugins import (
    NODE_RESTRICTION,
    SERVICE_ACCOUNT,
    PluginFlags,
    plugin_flags,
)
from stellwerk_cluster.apimachinery.failures import StatusError
from stellwerk_cluster.apimachinery.feature_gates import (
    GENERIC_WORKLOAD,
    default_gates,
    feature_gates,
)
from stellwerk_cluster.apimachinery.kinds import KindTable, kinds_of_release
from stellwerk_cluster.apimachinery.releases import (
    DEFAULT_RELEASE,
    RELEASES,
    SERVED_GATES,
    RuntimeConfig,
    holds,
    runtime_config,
)
from stellwerk_cluster.cluster import ClusterOptions, EmbeddedCluster
from stellwerk_cluster.faults.plan import FaultPlan
from stellwerk_cluster.faults.table import read_fault_table
from stellwerk_cluster.hollow.device_descriptions import read_description
from stellwerk_cluster.hollow.eviction_thresholds import parse_configuration
from stellwerk_cluster.hollow.kubelet import KubeletOptions
from stellwerk_cluster.hollow.lifecycle import parse_stages
from stellwerk_cluster.kubeconfig import CONTEXT, KubeconfigFile
from stellwerk_cluster.registry.data_directory import DataDirectory
from stellwerk_cluster.registry.field_manager import as_applied
from stellwerk_kube.clock import SystemClock
from stellwerk_kube.errors import ConfigurationError, cannot_listen
from stellwerk_kube.schema.decoder import decode
from stellwerk_kube.schema.mismatches import DecodeError
from stellwerk_kube.schema.tables import object_types
from stellwerk_kube.yaml_file import read_objects, read_one_yaml

_LARGEST_CLUSTER: Final = 100_000
_MAX_DIGITS: Final = len(str(_LARGEST_CLUSTER))
_SEEDS: Final = 1 << 32
_STORAGE_CLASS: Final = {
    "metadata": {
        "name": "standard",
        "annotations": {"storageclass.kubernetes.io/is-default-class": "true"},
    },
    "provisioner": "stellwerk.dev/hollow",
    "volumeBindingMode": "WaitForFirstConsumer",
}


@dataclass(frozen=True, slots=True)
class ApiFeatures:
    """The release of a cluster, and what flags switch in its API."""

    plugins: PluginFlags = PluginFlags()  # noqa: RUF009  (a tuple)
    gates: frozenset[str] | None = None
    """None: those that the release has on."""
    release: str = DEFAULT_RELEASE
    runtime: RuntimeConfig = RuntimeConfig()  # noqa: RUF009  (frozen)
    storage_class: bool = False
    """Whether there is a default StorageClass; with it claims bind, and pods wait for them."""
    gang_scheduling: bool = False
    """Whether the profiles that the cluster comes with place groups as groups."""
    tls: bool = False
    """Whether it is served over HTTPS, where no `AccessFlags` say so."""

    def groups_of_pods(self) -> str:
        """The sentence on which version of PodGroups and Workloads is served."""
        gates = default_gates(self.release) if self.gates is None else self.gates
        served = [
            row.api_version
            for row in KindTable(gates, self.release, self.runtime)
            if row.kind == "PodGroup"
        ]
        if served:
            what = f"{' and '.join(served)} (PodGroups, Workloads)"
            return f"Kubernetes {self.release}; {what} is served"
        return f"Kubernetes {self.release}; PodGroups and Workloads are not served"


def open_cluster(
    nodes: str | int | list[dict[str, Any]],
    port: int = 0,
    faults: FaultPlan | None = None,
    data_directory: DataDirectory | None = None,
    access: AccessFlags | None = None,
    features: ApiFeatures | None = None,
    kubelet: KubeletOptions | None = None,
) -> EmbeddedCluster:
    """A cluster that knows SchedulerProfiles, with that many hollow nodes, or these manifests.

    A text is a number, or names a file of manifests. The cluster has the default profile, and one
    for the pods that name no scheduler: no other scheduler serves them here, and the manifests of
    the Kubernetes documentation run unedited.

    Raises:
        ConfigurationError: the file cannot be read, or a manifest in it is refused.
    """
    manifests = _node_manifests(nodes) if isinstance(nodes, str) else nodes
    features = features or ApiFeatures()
    if access is None and features.tls:
        access = AccessFlags(tls=True)
    plugins = features.plugins.applied(
        enforced=access is not None and access.enforced, release=features.release
    )
    options = ClusterOptions(
        faults=faults,
        data_directory=data_directory,
        admission_plugins=plugins,
        release=features.release,
        feature_gates=features.gates,
        runtime_config=features.runtime,
        kubelet=kubelet or KubeletOptions(),
    )
    if access is not None:
        options = access.applied(options)
    identity = replace(
        options.identity,
        service_accounts=SERVICE_ACCOUNT in plugins,
        node_restriction=NODE_RESTRICTION in plugins,
    )
    options = replace(options, identity=identity)
    try:
        cluster = EmbeddedCluster(manifests, port=port, options=options)
    except StatusError as error:
        kind = (error.details or {}).get("kind")
        flag = "--devices" if kind in {"ResourceSlice", "DeviceClass"} else "--nodes"
        raise ConfigurationError(f"{flag}: {error}") from error
    install_profiles(cluster, gang_scheduling=features.gang_scheduling)
    if features.storage_class:
        classes = cluster.api.kinds.resource("storageclasses", "storage.k8s.io")
        cluster.api.ensure(classes, "", _copied(_STORAGE_CLASS))
    return cluster


def install_profiles(cluster: EmbeddedCluster, *, gang_scheduling: bool = False) -> None:
    """Create the CustomResourceDefinition and both profiles, unless the cluster has kept them.

    `kubectl apply` takes them for its own, as if an earlier one had made them, but for
    gangScheduling and allowBeside: a manifest that does not name them leaves them as they are.
    """
    api = cluster.api
    definitions = api.kinds.resource("customresourcedefinitions", "apiextensions.k8s.io")
    api.ensure(definitions, "", as_applied(crd_manifest()))
    profiles = api.kinds.resource(PLURAL, GROUP)
    for manifest in (DEFAULT_PROFILE_MANIFEST, TAKEOVER_PROFILE_MANIFEST):
        profile = as_applied(_copied(manifest))
        if gang_scheduling:
            profile["spec"]["gangScheduling"] = True
        if profile["spec"]["schedulerName"] == DEFAULT_SCHEDULER_NAME:
            # No kube-scheduler is here, whose lease an operator could wait for.
            profile["spec"]["allowBeside"] = True
        api.ensure(profiles, "", profile)


def api_features(
    enabled: str = "",
    disabled: str = "",
    gates: str = "",
    release: str = DEFAULT_RELEASE,
    runtime: str = "",
) -> ApiFeatures:
    """A release with the admission plugins, feature gates and versions that flags leave on.

    PodGroups and Workloads are on unless a flag turns them off; kube-apiserver has them off.

    Raises:
        ConfigurationError: a flag names no plugin, gate or version, or leaves out what a gate
            needs.
    """
    if release not in RELEASES:
        listed = ", ".join(RELEASES)
        raise ConfigurationError(f"--kubernetes-version {release}: there are {listed}")
    try:
        admitting = plugin_flags(enabled, disabled, release)
    except ValueError as error:
        raise ConfigurationError(f"admission plugins: {error}") from error
    try:
        on = feature_gates(gates, release, default_gates(release) | {GENERIC_WORKLOAD})
    except ValueError as error:
        raise ConfigurationError(f"--feature-gates: {error}") from error
    try:
        versions = {kind.api_version for kind in kinds_of_release(release)}
        features = ApiFeatures(admitting, on, release, runtime_config(runtime, versions))
    except ValueError as error:
        raise ConfigurationError(f"--runtime-config: {error}") from error
    if holds(SERVED_GATES, release):
        _check_served(features, {each.partition("=")[0].strip() for each in gates.split(",")})
    return features


def _check_served(features: ApiFeatures, named: Collection[str]) -> None:
    """Refuse a gate that a flag turns on while --runtime-config serves none of its kinds.

    A gate that is on by default may be without them, as in kube-apiserver (`apirequirements`).
    """
    on = features.gates or frozenset()
    served = {row.plural for row in KindTable(on, features.release, features.runtime)}
    for gate in sorted(on.intersection(named)):
        kinds = {row.plural for row in kinds_of_release(features.release) if row.gate == gate}
        if lacking := sorted(kinds - served):
            raise ConfigurationError(
                f"--feature-gates: {gate} is enabled, but --runtime-config serves no version of "
                f"{', '.join(lacking)}"
            )


def kubelet_options(
    stages: Path | None, configuration: Path | None, devices: Iterable[str] = ()
) -> KubeletOptions:
    """The content of the files of `--stages`, `--kubelet-config` and `--devices`.

    Raises:
        ConfigurationError: a file cannot be read, or says what it may not.
    """
    return KubeletOptions(
        stages=() if stages is None else tuple(parse_stages(read_one_yaml(stages), str(stages))),
        configuration=None
        if configuration is None
        else parse_configuration(read_one_yaml(configuration), str(configuration)),
        devices=tuple(map(read_description, devices)),
    )


async def serve_cluster(
    nodes: str,
    port: int,
    file: KubeconfigFile,
    faults: Path | None,
    data_directory: Path | None = None,
    access: AccessFlags | None = None,
    features: ApiFeatures | None = None,
    kubelet: KubeletOptions | None = None,
) -> None:
    """Serve until SIGTERM or SIGINT, with the faults of a file, and keep the state in a directory.

    Raises:
        ConfigurationError: the nodes, the port, the data directory, or a
            file of faults, tokens or certificates cannot be used; the kubeconfig cannot be
            written.
    """
    plan = None if faults is None else _fault_plan(faults)
    data = None if data_directory is None else DataDirectory(data_directory)
    cluster = open_cluster(nodes, port, plan, data, access, features, kubelet)
    for note in () if data is None else data.notes:
        print(note)
    # Objects live as long as the cluster: the collector need not look at them again and again.
    gc.freeze()
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    try:
        await cluster.start()
    except OSError as error:
        raise cannot_listen(f"port {port}", error) from error
    try:
        file.write(cluster.kubeconfig())
        print((features or ApiFeatures()).groups_of_pods())
        kubectl = f"kubectl --kubeconfig {file.path}{f' --context {CONTEXT}' * file.is_shared}"
        print(f"serving a cluster at {cluster.url}; try: {kubectl} get nodes", flush=True)
        if plan is not None:
            plan.arm()
            print(f"faults of {faults} are in force; seed {plan.seed}", flush=True)
        await stop.wait()
    finally:
        await cluster.stop()
        file.remove()
        print(_last_words(cluster, data))
    if plan is not None:
        for title, times in plan.counts():
            print(f"fault {title} struck {times} times")


def _last_words(cluster: EmbeddedCluster, data: DataDirectory | None) -> str:
    """Close the data directory; the answer says what is kept, and what is gone."""
    store = cluster.store
    objects = sum(len(store.collection(name)) for name in store.names())
    if data is None:
        return f"lost with the process: {objects} objects; --data-dir would keep them"
    try:
        data.close()
    except OSError as error:
        return f"the last changes may not be in {data.path}: {error.strerror}"
    return (
        f"kept in {data.path}: {objects} objects at version {store.revision}. The history of "
        "changes is gone, so watches and paged lists start again"
    )


def _fault_plan(file: Path) -> FaultPlan:
    table = read_fault_table(file)
    seed = secrets.randbelow(_SEEDS) if table.seed is None else table.seed
    return FaultPlan(table, seed, SystemClock())


def _node_manifests(nodes: str) -> int | list[dict[str, Any]]:
    """A number, or the Node manifests of a YAML or JSON file."""
    if nodes.isascii() and nodes.isdecimal():
        count = int(nodes[:_MAX_DIGITS])
        if len(nodes) > _MAX_DIGITS or count > _LARGEST_CLUSTER:
            raise ConfigurationError(
                f"--nodes {nodes[:_MAX_DIGITS]}: a number from 0 to {_LARGEST_CLUSTER}"
            )
        return count
    if nodes.removeprefix("-").isdigit():
        raise ConfigurationError(f"--nodes {nodes}: a number from 0 to {_LARGEST_CLUSTER}")
    file = Path(nodes)
    if not file.exists() or file.is_dir():
        raise ConfigurationError(
            f"--nodes {nodes}: neither a number from 0 to {_LARGEST_CLUSTER} nor a file"
        )
    found = read_objects(file)
    others = {str(kind) for obj in found if (kind := obj.get("kind") or "Node") != "Node"}
    if others:
        message = f"expected Node manifests, found {', '.join(sorted(others))}"
        raise ConfigurationError(f"{nodes}: {message}")
    (type_name,) = (each.type_name for each in object_types() if each.kind == "Node")
    read: list[dict[str, Any]] = []
    for obj in found:
        try:
            node, _ = decode(type_name, obj)  # null is absent then, as for the API server
        except DecodeError as error:
            raise ConfigurationError(f"{nodes}: {error}") from error
        if not (node.get("metadata") or {}).get("name"):
            raise ConfigurationError(f"{nodes}: a Node has no metadata.name")
        read.append(node)
    return read


def _copied(manifest: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: dict(value) if isinstance(value, Mapping) else value for key, value in manifest.items()
    }
