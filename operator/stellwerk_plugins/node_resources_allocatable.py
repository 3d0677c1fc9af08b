"""NodeResourcesAllocatable: small nodes first, or large ones, whatever they hold."""

from typing import Annotated, ClassVar, Final, Literal

import numpy as np
from pydantic import Field
from typing_extensions import override

from stellwerk.plugin_api import (
    ConfigModel,
    CycleState,
    Handle,
    IntColumn,
    Items,
    NodeView,
    NormalizeScorePlugin,
    PodInfo,
    Reuse,
    ScorePlugin,
    is_scalar_resource,
)
from stellwerk_plugins.spread_scores import SpreadScores

_NATIVE: Final = frozenset({"cpu", "memory", "ephemeral-storage"})


class ResourceWeight(ConfigModel):
    """The worth of one unit of a resource: of a millicore, a byte, a device."""

    name: str
    weight: Annotated[int, Field(ge=1, le=2**63 - 1)]


class NodeResourcesAllocatableArgs(ConfigModel):
    """As of the upstream plugin of that name; a millicore is worth a MiB."""

    mode: Literal["Least", "Most"] = "Least"
    resources: Items[ResourceWeight] = (
        ResourceWeight(name="cpu", weight=1 << 20),
        ResourceWeight(name="memory", weight=1),
    )


class NodeResourcesAllocatable(SpreadScores, ScorePlugin, NormalizeScorePlugin):
    """Scores nodes by the weighted sum of what they offer; what pods use does not count."""

    name: ClassVar[str] = "NodeResourcesAllocatable"
    args_model: ClassVar[type[ConfigModel]] = NodeResourcesAllocatableArgs
    score_reuse: ClassVar[Reuse] = Reuse.NODE

    def __init__(self, _: Handle, args: NodeResourcesAllocatableArgs) -> None:
        self._sign = 1 if args.mode == "Most" else -1
        self._resources = args.resources or NodeResourcesAllocatableArgs().resources

    @override
    def score(self, _: CycleState, __: PodInfo, nodes: NodeView) -> IntColumn:
        """(n,) int64, weighted mean of what nodes offer; negative where less is better."""
        total: IntColumn = np.zeros(len(nodes), np.int64)
        weights = sum(resource.weight for resource in self._resources)
        for resource in self._resources:
            if resource.name in _NATIVE or is_scalar_resource(resource.name):
                # Large weights on bytes overflow, as they do upstream.
                with np.errstate(over="ignore"):
                    total += nodes.allocatable(resource.name) * resource.weight
        # Truncated toward zero, whatever the sign.
        raw: IntColumn = np.sign(total) * (np.abs(total) // min(weights, 2**63 - 1)) * self._sign
        return raw
