"""The objects of a live cluster that decisions read, as one list.

`stellwerk decide --kubeconfig` reads them. Invariant: it only lists; kinds beside nodes and pods
that the cluster lacks, or does not show this user, are left out and named in one warning (but for
profiles where Stellwerk is not installed). A client is loaded only when a cluster is asked.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from stellwerk.models.api_kinds import API_KINDS
from stellwerk.models.pod_group import COSCHEDULING_API

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from stellwerk.client.kubernetes import KubernetesClient
    from stellwerk_kube.json_values import JsonObject

logger = logging.getLogger(__name__)

_PATHS: Final = {
    "Node": "/api/v1/nodes",
    "Pod": "/api/v1/pods",
    "Namespace": "/api/v1/namespaces",
    "Service": "/api/v1/services",
    "ReplicationController": "/api/v1/replicationcontrollers",
    "PersistentVolume": "/api/v1/persistentvolumes",
    "PersistentVolumeClaim": "/api/v1/persistentvolumeclaims",
    "ReplicaSet": "/apis/apps/v1/replicasets",
    "StatefulSet": "/apis/apps/v1/statefulsets",
    "StorageClass": "/apis/storage.k8s.io/v1/storageclasses",
    "CSINode": "/apis/storage.k8s.io/v1/csinodes",
    "CSIDriver": "/apis/storage.k8s.io/v1/csidrivers",
    "CSIStorageCapacity": "/apis/storage.k8s.io/v1/csistoragecapacities",
    "VolumeAttachment": "/apis/storage.k8s.io/v1/volumeattachments",
    "PodDisruptionBudget": "/apis/policy/v1/poddisruptionbudgets",
    "PriorityClass": "/apis/scheduling.k8s.io/v1/priorityclasses",
}
_TEMPLATE: Final = replace(
    API_KINDS["ResourceClaim"], kind="ResourceClaimTemplate", plural="resourceclaimtemplates"
)
_NEGOTIATED: Final = (
    *(API_KINDS[kind] for kind in ("DeviceClass", "ResourceSlice", "ResourceClaim", "PodGroup")),
    _TEMPLATE,
)
_VERSIONED: Final = {
    **{each.kind: (each.group, each.versions, each.plural) for each in _NEGOTIATED},
    "CoschedulingPodGroup": (COSCHEDULING_API, ("v1alpha1",), "podgroups"),
}
"""Kinds that clusters serve in one of several versions, or not at all."""
_OF_PLANS: Final = {"DaemonSet": ("apps", ("v1",), "daemonsets")}
_NONE: Final[Mapping[str, tuple[str, Sequence[str], str]]] = {}
_INDISPENSABLE: Final = frozenset({"Node", "Pod"})


class ObjectsOfServer(list["JsonObject"]):
    """The objects of a live cluster, with the version of its API server."""

    server_version: str = ""
    """As `/version` has it, such as v1.37.0; decisions follow its release."""


def read_live_objects(kubeconfig: str | None, context: str | None) -> ObjectsOfServer:
    """Every object, each with its kind.

    Raises:
        ConfigurationError: the cluster cannot be reached as configured.
        ApiError: a list failed.
    """
    import asyncio  # noqa: PLC0415

    from stellwerk_cli.commands.cluster_client import with_client  # noqa: PLC0415 aiohttp

    return asyncio.run(with_client(kubeconfig, context, _read))


def read_objects_to_simulate(kubeconfig: str | None, context: str | None) -> ObjectsOfServer:
    """Read the objects, with groups of pods and claims for devices as far as the cluster has them.

    Raises:
        ConfigurationError: the cluster cannot be reached as configured.
        ApiError: a list failed.
    """
    import asyncio  # noqa: PLC0415

    from stellwerk_cli.commands.cluster_client import with_client  # noqa: PLC0415 as above

    return asyncio.run(with_client(kubeconfig, context, _read_to_simulate))


def read_objects_to_plan(kubeconfig: str | None, context: str | None) -> ObjectsOfServer:
    """Every object, and the DaemonSets, whose pods each new node gets.

    Raises:
        ConfigurationError: the cluster cannot be reached as configured.
        ApiError: a list failed.
    """
    import asyncio  # noqa: PLC0415

    from stellwerk_cli.commands.cluster_client import with_client  # noqa: PLC0415 as above

    return asyncio.run(with_client(kubeconfig, context, _read_to_plan))


async def _read_to_plan(client: KubernetesClient) -> ObjectsOfServer:
    return await _read(client, _OF_PLANS)


async def _read_to_simulate(client: KubernetesClient) -> ObjectsOfServer:
    return await _read(client, _VERSIONED)


async def _read(
    client: KubernetesClient, versioned: Mapping[str, tuple[str, Sequence[str], str]] = _NONE
) -> ObjectsOfServer:
    from stellwerk.profiles.spec.profile import API_VERSION, KIND, PLURAL  # noqa: PLC0415 pydantic
    from stellwerk_kube.errors import Forbidden, NotFound  # noqa: PLC0415

    found = ObjectsOfServer()
    found.server_version = str((await client.get("/version")).get("gitVersion") or "")
    absent: list[str] = []
    for kind, path in {**_PATHS, KIND: f"/apis/{API_VERSION}/{PLURAL}"}.items():
        try:
            items, _ = await client.list(path)
        except (NotFound, Forbidden) as error:
            if kind in _INDISPENSABLE:
                raise
            logger.info("decided without any %s: %s", kind, error)
            if kind != KIND or isinstance(error, Forbidden):
                absent.append(kind)
            continue
        found += ({**item, "kind": kind} for item in items)
    for kind, (group, versions, plural) in versioned.items():
        for version in versions:
            try:
                items, _ = await client.list(f"/apis/{group}/{version}/{plural}")
            except NotFound:
                continue
            except Forbidden:
                absent.append(kind)
                break
            served = {"kind": kind, "apiVersion": f"{group}/{version}"}
            found += ({**item, **served} for item in items)
            break
    if absent:
        why = "the cluster lacks them, or this user may not list them"
        logger.warning("decided without any %s: %s", ", ".join(absent), why)
    return found
