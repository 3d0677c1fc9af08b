"""NodePorts: keeps pods that want the same host port apart.

Invariant: a port wanted on every address (0.0.0.0) conflicts with that port on any address, and a
port wanted on one address with the same address and with 0.0.0.0.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from typing import ClassVar, Final

import numpy as np
from typing_extensions import override

from stellwerk.framework.changes import Change, EditPod, PodPart
from stellwerk.framework.events import (
    QUEUE,
    Action,
    ClusterChange,
    ClusterEventWithHint,
    HintScope,
    QueueingHint,
    Resource,
    queue_if,
)
from stellwerk.framework.interface import (
    GO_ON,
    SKIP_FILTER,
    EnqueueExtensions,
    FilterPlugin,
    PreFilterPlugin,
    PreFilterResult,
    ProposePlugin,
    Reuse,
)
from stellwerk.framework.types import CycleState, FilterResult, unschedulable
from stellwerk.models.pod import PodInfo
from stellwerk.models.scheduling_spec import EVERY_ADDRESS, HostPort
from stellwerk.plugins.shared.hints import had_node
from stellwerk.plugins.shared.row_by_row import RowByRow
from stellwerk.plugins.shared.stateless import StatelessPlugin
from stellwerk.snapshot.columns import Mask
from stellwerk.snapshot.snapshot import NodeOverlay, NodeView

_NAME: Final = "NodePorts"
_TAKEN: Final = unschedulable(_NAME, "node(s) didn't have free ports for the requested pod ports")


class NodePorts(
    RowByRow, StatelessPlugin, PreFilterPlugin, FilterPlugin, EnqueueExtensions, ProposePlugin
):
    """Looks only at the ports in use that conflict with a wanted one."""

    name: ClassVar[str] = _NAME
    filter_reuse: ClassVar[Reuse] = Reuse.USAGE
    needs_pre_filter: ClassVar[bool] = True

    @override
    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: NodeView) -> PreFilterResult:
        return GO_ON if pod.spec.host_ports else SKIP_FILTER

    @override
    def filter(self, state: CycleState, pod: PodInfo, nodes: NodeView) -> FilterResult:
        return FilterResult.of_mask(_conflicts(nodes, pod.spec.host_ports), _TAKEN)

    @override
    def propose(
        self, state: CycleState, pod: PodInfo, row: int | None, nodes: NodeView
    ) -> Iterator[Change]:
        for port in pod.spec.host_ports if row is None else ():
            words = f"drop host port {port.port}/{port.protocol}"
            yield EditPod(words, _without_port(port), PodPart.NEEDS)

    @override
    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        return (
            ClusterEventWithHint(Resource.POD, Action.DELETE, _freed_a_wanted_port, HintScope.SPEC),
            ClusterEventWithHint(Resource.NODE, Action.ADD),
        )


def _conflicts(nodes: NodeView, wanted: Collection[HostPort]) -> Mask:
    """(n,) bool, where a port in use conflicts with a wanted one."""
    in_use = nodes.snapshot.host_ports
    numbers = {port.port for port in wanted}
    taken = {
        port: in_use.rows(port)
        for port in in_use.keys()  # noqa: SIM118 not a mapping
        if port.port in numbers and _conflicts_with_any(port, wanted)
    }
    conflicts: Mask = np.zeros(len(nodes), np.bool_)
    for rows in taken.values():
        conflicts |= nodes.users(rows) > 0
    if nodes.overlay is not None:
        for position, ports in _ports_of_overlay(nodes.overlay, wanted).items():
            row = int(nodes.row_numbers()[position])
            unchanged = any(row in rows for port, rows in taken.items() if port not in ports)
            conflicts[position] = unchanged or any(ports.values())
    return conflicts


def _ports_of_overlay(
    overlay: NodeOverlay, wanted: Collection[HostPort]
) -> dict[int, dict[HostPort, bool]]:
    """By position, whether each conflicting port that was touched is in use now.

    A port has users or none, as in kube-scheduler, which does not count them (`HostPortInfo`,
    v1.36): where two pods on a node use the same port, it is free as soon as one of them goes.
    """
    ports: dict[int, dict[HostPort, bool]] = {}
    for position, pod, change in overlay.log:
        for port in pod.spec.host_ports:
            if _conflicts_with_any(port, wanted):
                ports.setdefault(position, {})[port] = change > 0
    return ports


def _conflicts_with_any(used: HostPort, wanted: Collection[HostPort]) -> bool:
    return any(
        port.port == used.port
        and port.protocol == used.protocol
        and (port.host_ip == used.host_ip or EVERY_ADDRESS in (port.host_ip, used.host_ip))
        for port in wanted
    )


def _freed_a_wanted_port(pod: PodInfo, change: ClusterChange) -> QueueingHint:
    """Whether the deleted pod had (or was nominated to) a node and used a port the pod wants."""
    gone = change.old
    if not isinstance(gone, PodInfo):
        return QUEUE
    return queue_if(
        had_node(gone)
        and any(_conflicts_with_any(port, pod.spec.host_ports) for port in gone.spec.host_ports)
    )


def _without_port(port: HostPort) -> Callable[[PodInfo], PodInfo]:
    def edit(pod: PodInfo) -> PodInfo:
        left = tuple(each for each in pod.spec.host_ports if each != port)
        return replace(pod, spec=replace(pod.spec, host_ports=left))

    return edit
