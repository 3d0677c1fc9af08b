"""SchedulingGates: keeps a pod out of the queue for as long as it has scheduling gates.

The queue asks before it lets a pod into activeQ or backoffQ. Invariant: only the pod's own update
that takes its last gate away can change the answer.
"""

from collections.abc import Sequence
from typing import ClassVar

from typing_extensions import override

from stellwerk.framework.events import Action, ClusterEventWithHint, HintScope, Resource
from stellwerk.framework.interface import EnqueueExtensions, PreEnqueuePlugin
from stellwerk.framework.types import OK, Status, unresolvable
from stellwerk.models.pod import PodInfo
from stellwerk.plugins.shared.hints import is_own_update
from stellwerk.plugins.shared.stateless import StatelessPlugin


class SchedulingGates(StatelessPlugin, PreEnqueuePlugin, EnqueueExtensions):
    """Gates a pod with spec.schedulingGates."""

    name: ClassVar[str] = "SchedulingGates"

    @override
    def pre_enqueue(self, pod: PodInfo) -> Status:
        gates = pod.spec.scheduling_gates
        if not gates:
            return OK
        return unresolvable(self.name, f"waiting for scheduling gates: [{' '.join(gates)}]")

    @override
    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        return (
            ClusterEventWithHint(
                Resource.POD,
                Action.UPDATE_POD_SCHEDULING_GATES_ELIMINATED,
                is_own_update,
                HintScope.POD,
            ),
        )
