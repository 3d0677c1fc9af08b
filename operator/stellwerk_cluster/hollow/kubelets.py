"""All workers that play the kubelets of the nodes.

Called by `cluster.EmbeddedCluster`. Invariant: they agree on how pods live, and on one
configuration.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stellwerk_cluster.hollow.device_publisher import DevicePublisher
from stellwerk_cluster.hollow.eviction_manager import NodePressure
from stellwerk_cluster.hollow.eviction_thresholds import KubeletConfiguration
from stellwerk_cluster.hollow.kubelet import HollowKubelet, KubeletOptions

if TYPE_CHECKING:
    from stellwerk_cluster.registry.api import Api
    from stellwerk_cluster.work import Worker


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
