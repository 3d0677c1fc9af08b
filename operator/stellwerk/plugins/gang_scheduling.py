"""GangScheduling: keeps members out of the queue until their group is worth an attempt.

The queue asks before it lets a pod into activeQ or backoffQ; a profile that has the plugin decides
groups in group cycles. It has no Permit: members wait for each other after PreBind, in
`scheduler.gangs.group_permit`. Invariant: a pod that belongs to no group is never gated here, and
what is gated says what it waits for.
"""

from collections.abc import Sequence
from typing import ClassVar

from typing_extensions import override

from stellwerk.framework.events import (
    Action,
    ClusterChange,
    ClusterEventWithHint,
    HintScope,
    QueueingHint,
    Resource,
    queue_if,
)
from stellwerk.framework.interface import EnqueueExtensions, PreEnqueuePlugin
from stellwerk.framework.services import Handle
from stellwerk.framework.types import OK, Status, unresolvable
from stellwerk.models.pod import PodInfo
from stellwerk.profiles.spec.defaults import GANG_SCHEDULING
from stellwerk.profiles.spec.plugin_args import GangSchedulingArgs
from stellwerk_kube.compatibility import ReleaseRule


class GangScheduling(PreEnqueuePlugin, EnqueueExtensions):
    """Gates members whose group does not exist, or has fewer pods than it needs."""

    name: ClassVar[str] = GANG_SCHEDULING
    args_model: ClassVar[type[GangSchedulingArgs]] = GangSchedulingArgs

    def __init__(self, handle: Handle, _args: GangSchedulingArgs) -> None:
        self._groups = handle.pod_groups
        owner = "pod's" if ReleaseRule.POD_HAS_ONE_GROUP in handle.compatibility else "pods's"
        speaks = ReleaseRule.GATES_SPEAK_AS_UPSTREAM in handle.compatibility
        self._as_upstream = owner if speaks else ""

    @override
    def pre_enqueue(self, pod: PodInfo) -> Status:
        if pod.group is None:
            return OK
        reason = self._groups.why_gated(pod, as_upstream=self._as_upstream)
        return unresolvable(self.name, reason) if reason else OK

    @override
    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        # What opens a group is known when its object or its pods change, and wakes its members
        # alone. (kube-scheduler asks every gated pod about every pod that is added.) A group that
        # no placement was found for waits for labels or, if minResources lack, for a new node.
        actions = Action.ADD | Action.UPDATE_NODE_LABEL
        return (ClusterEventWithHint(Resource.NODE, actions, self._labelled, HintScope.POD),)

    def _labelled(self, pod: PodInfo, _: ClusterChange) -> QueueingHint:
        return queue_if(self._groups.lacks_placement(pod))
