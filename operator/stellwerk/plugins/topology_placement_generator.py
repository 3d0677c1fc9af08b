"""TopologyPlacementGenerator: a group's members share the value of the labels that it names.

Group decisions ask the one PlacementGenerate plugin of a profile; without any, every node is in
the one placement that there is. Invariant: what the group prefers is asked for before what it
requires alone, and that comes last.
"""

from collections.abc import Sequence
from typing import ClassVar

from typing_extensions import override

from stellwerk.framework.interface import PlacementGeneratePlugin
from stellwerk.framework.services import Handle
from stellwerk.models.pod_group import PodGroup


class TopologyPlacementGenerator(PlacementGeneratePlugin):
    """Nodes with the same values are one placement; preferred levels are given up one by one."""

    name: ClassVar[str] = "TopologyPlacementGenerator"

    def __init__(self, _handle: Handle, _args: None = None) -> None:
        pass

    @override
    def placement_keys(self, group: PodGroup) -> Sequence[Sequence[str]]:
        preferred = group.preferred_topology
        return [
            tuple(dict.fromkeys((*group.topology, *preferred[:levels])))
            for levels in range(len(preferred), -1, -1)
        ]
