"""All controllers of the embedded cluster.

Called by `cluster.EmbeddedCluster`. Invariant: they share one `Index`, which is updated with each
change before they see it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stellwerk_cluster.apimachinery.feature_gates import COMPOSITE, GENERIC_WORKLOAD
from stellwerk_cluster.controllers.cluster_role_aggregation import (
    ClusterRoleAggregationController,
)
from stellwerk_cluster.controllers.cron_job import CronJobController
from stellwerk_cluster.controllers.daemon_set import DaemonSetController
from stellwerk_cluster.controllers.deployment import DeploymentController
from stellwerk_cluster.controllers.disruption import DisruptionController
from stellwerk_cluster.controllers.endpoints import (
    EndpointsController,
    EndpointSliceController,
)
from stellwerk_cluster.controllers.ephemeral_volumes import EphemeralVolumeController
from stellwerk_cluster.controllers.garbage_collector import GarbageCollector
from stellwerk_cluster.controllers.horizontal_pod_autoscaler import (
    HorizontalPodAutoscalerController,
)
from stellwerk_cluster.controllers.index import Index, UsageOf, unknown_usage
from stellwerk_cluster.controllers.job import JobController
from stellwerk_cluster.controllers.namespaces import NamespaceController
from stellwerk_cluster.controllers.node_lifecycle import NodeLifecycleController
from stellwerk_cluster.controllers.persistent_volume_binder import PersistentVolumeBinder
from stellwerk_cluster.controllers.pod_gc import PodGarbageCollector
from stellwerk_cluster.controllers.pod_group_protection import (
    CompositePodGroupProtectionController,
    PodGroupProtectionController,
)
from stellwerk_cluster.controllers.replica_set import (
    ReplicaSetController,
    ReplicationControllerController,
)
from stellwerk_cluster.controllers.resource_claim import ResourceClaimController
from stellwerk_cluster.controllers.resource_quota import ResourceQuotaController
from stellwerk_cluster.controllers.stateful_set import StatefulSetController
from stellwerk_cluster.controllers.taint_eviction import (
    DeviceTaintEvictionController,
    TaintEvictionController,
)
from stellwerk_cluster.controllers.ttl_after_finished import TtlAfterFinishedController
from stellwerk_cluster.controllers.volume_protection import (
    ClaimProtectionController,
    VolumeProtectionController,
)
from stellwerk_cluster.identity.service_accounts import (
    VOID_AUTHORITY,
    RootCertificatePublisher,
    ServiceAccountController,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from stellwerk_cluster.registry.api import Api
    from stellwerk_cluster.work import Worker


_MAKERS: Final[dict[str, Callable[[Api, Index], Worker]]] = {
    "deployment-controller": DeploymentController,
    "replicaset-controller": ReplicaSetController,
    "replicationcontroller-controller": ReplicationControllerController,
    "statefulset-controller": StatefulSetController,
    "daemonset-controller": DaemonSetController,
    "job-controller": JobController,
    "cronjob-controller": CronJobController,
    "ttl-after-finished-controller": TtlAfterFinishedController,
    "disruption-controller": DisruptionController,
    "resourcequota-controller": lambda api, _index: ResourceQuotaController(api),
    "resourceclaim-controller": lambda api, _index: ResourceClaimController(api),
    "garbage-collector-controller": GarbageCollector,
    "pod-garbage-collector-controller": PodGarbageCollector,
    "persistentvolume-binder-controller": PersistentVolumeBinder,
    "persistentvolumeclaim-protection-controller": ClaimProtectionController,
    "persistentvolume-protection-controller": VolumeProtectionController,
    "podgroup-protection-controller": PodGroupProtectionController,
    "compositepodgroup-protection-controller": CompositePodGroupProtectionController,
    "ephemeral-volume-controller": EphemeralVolumeController,
    "endpoints-controller": EndpointsController,
    "endpointslice-controller": EndpointSliceController,
    "namespace-controller": lambda api, _index: NamespaceController(api),
    "node-lifecycle-controller": lambda api, _index: NodeLifecycleController(api),
    "taint-eviction-controller": lambda api, _index: TaintEvictionController(api),
    "device-taint-eviction-controller": lambda api, _index: DeviceTaintEvictionController(api),
    "horizontal-pod-autoscaler-controller": HorizontalPodAutoscalerController,
    "serviceaccount-controller": lambda api, _index: ServiceAccountController(api),
    "clusterrole-aggregation-controller": lambda api, _index: ClusterRoleAggregationController(api),
}
ROOT_CERTIFICATES: Final = "root-ca-certificate-publisher-controller"
"""The controller that also needs to know the certificate of the API."""
_GATES: Final = {
    "podgroup-protection-controller": GENERIC_WORKLOAD,
    "compositepodgroup-protection-controller": COMPOSITE,
}
"""Controllers that need a feature gate."""
CONTROLLERS: Final = (*_MAKERS, ROOT_CERTIFICATES)
"""Their names, which are those in kube-controller-manager."""


def make_controllers(
    api: Api,
    chosen: Collection[str] = CONTROLLERS,
    used: UsageOf = unknown_usage,
    certificate: str = VOID_AUTHORITY,
) -> list[Worker]:
    """Those of the names that are chosen, as far as gates allow, following the store of `api`.

    `used`: what a running pod uses; `certificate`: what the API is checked by, as PEM.
    """
    index = Index(api, used)
    wanted = [
        name
        for name in _MAKERS
        if name in chosen and (name not in _GATES or api.feature(_GATES[name]))
    ]
    workers = [_MAKERS[name](api, index) for name in wanted]
    if ROOT_CERTIFICATES in chosen:
        workers.append(RootCertificatePublisher(api, certificate))
    return workers
