"""The objects of a cluster before the first one of a client.

These are namespaces, the system priority classes, the API's own service and lease. Called once by
`cluster.EmbeddedCluster`. Invariant: everything is written through the API, under its rules.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stellwerk_cluster.apimachinery.objects import micro_timestamp
from stellwerk_cluster.validation.scheduling import SYSTEM_CLASSES

if TYPE_CHECKING:
    from stellwerk_cluster.registry.api import Api

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
_LEASE_SECONDS: Final = 3600


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
            "leaseDurationSeconds": _LEASE_SECONDS,
            "renewTime": micro_timestamp(api.now()),
        },
    }
    api.ensure(kinds.resource("leases", "coordination.k8s.io"), "kube-system", lease)
