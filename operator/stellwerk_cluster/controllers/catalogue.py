"""All controllers of the embedded cluster.

Called by `cluster.EmbeddedCluster`. Invariant: they share one `Index`, which is updated with each
change before they see it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stellwerk_cluster.controllers.daemon_set import DaemonSetController
from stellwerk_cluster.controllers.deployment import DeploymentController
from stellwerk_cluster.controllers.disruption import DisruptionController
from stellwerk_cluster.controllers.garbage import GarbageCollector
from stellwerk_cluster.controllers.index import Index
from stellwerk_cluster.controllers.job import JobController
from stellwerk_cluster.controllers.namespaces import NamespaceController
from stellwerk_cluster.controllers.node_lifecycle import NodeLifecycleController
from stellwerk_cluster.controllers.replica_set import (
    ReplicaSetController,
    ReplicationControllerController,
)
from stellwerk_cluster.controllers.resource_quota import ResourceQuotaController
from stellwerk_cluster.controllers.stateful_set import StatefulSetController

if TYPE_CHECKING:
    from stellwerk_cluster.registry.api import Api
    from stellwerk_cluster.work import Worker


def make_controllers(api: Api) -> list[Worker]:
    """One of each, following the store of `api`."""
    index = Index(api)
    return [
        DeploymentController(api, index),
        ReplicaSetController(api, index),
        ReplicationControllerController(api, index),
        StatefulSetController(api, index),
        DaemonSetController(api, index),
        JobController(api, index),
        DisruptionController(api, index),
        ResourceQuotaController(api),
        GarbageCollector(api, index),
        NamespaceController(api),
        NodeLifecycleController(api, index),
    ]
