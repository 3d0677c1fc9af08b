"""Arguments of NodeResourceTopologyMatch, as of the upstream plugin of that name."""

from typing import Annotated, Literal

from pydantic import Field

from stellwerk.plugin_api import ConfigModel, Items

Strategy = Literal["MostAllocated", "BalancedAllocation", "LeastAllocated", "LeastNUMANodes"]


class ZoneResourceWeight(ConfigModel):
    """The weight of a resource; 0 and less is 1, as is that of resources without one."""

    name: Annotated[str, Field(min_length=1)]
    weight: int = 1


class ZoneScoring(ConfigModel):
    """The scoring of zones."""

    type: Strategy
    resources: Items[ZoneResourceWeight] = ()


class TopologyCache(ConfigModel):
    """The rules by which a node's topology is unusable until its exporter has written it again."""

    foreign_pods_detect: Literal["None", "All", "OnlyExclusiveResources"] = "All"
    resync_method: Literal["Autodetect", "All", "OnlyExclusiveResources"] = "Autodetect"
    informer_mode: Literal["Dedicated", "Shared"] = "Dedicated"
    resync_scope: Literal["All", "OnlyResources"] = "All"


class NodeResourceTopologyMatchArgs(ConfigModel):
    """The arguments; of `preemptionMode` there is no other than `Disabled`."""

    scoring_strategy: ZoneScoring = ZoneScoring(type="LeastAllocated")
    cache_resync_period_seconds: Annotated[int, Field(ge=0, le=2**63 - 1)] = 0
    """0: topologies as they are; more: pods are counted into zones from their decision on."""
    discard_reserved_nodes: bool = False
    """Whether nodes are left out while a pod is being bound there."""
    cache: TopologyCache = TopologyCache()
    preemption_mode: Literal["Disabled"] = "Disabled"

    @property
    def over_reserves(self) -> bool:
        """Whether decisions count in zones before an exporter has seen them."""
        return self.cache_resync_period_seconds > 0 and not self.discard_reserved_nodes
