"""All controllers of the embedded cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stellwerk.embedded.controllers.daemon_set import DaemonSetController
from stellwerk.embedded.controllers.deployment import DeploymentController
from stellwerk.embedded.controllers.disruption import DisruptionController
from stellwerk.embedded.controllers.garbage import GarbageCollector
from stellwerk.embedded.controllers.index import Index
from stellwerk.embedded.controllers.job import JobController
from stellwerk.embedded.controllers.namespaces import NamespaceController
from stellwerk.embedded.controllers.node_lifecycle import NodeLifecycleController
from stellwerk.embedded.controllers.replica_set import (
    ReplicaSetController,
    ReplicationControllerController,
)
from stellwerk.embedded.controllers.stateful_set import StatefulSetController

if TYPE_CHECKING:
    from stellwerk.embedded.apiserver.api import Api
    from stellwerk.embedded.work import Worker


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
        GarbageCollector(api, index),
        NamespaceController(api),
        NodeLifecycleController(api, index),
    ]
