"""Services without a cluster, for `decide`, explanations and tests.

Invariant: nothing is read from or written to an API server; a plugin that tries is refused.
"""

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any

from typing_extensions import override

from stellwerk.framework.handle import (
    STANDING_CLOCK,
    NoPodGroups,
    RandomNumbers,
    Services,
    WaitingPods,
)
from stellwerk.framework.services import (
    ClusterClient,
    Nominations,
    ObjectStore,
    PodGroups,
    Recorder,
    WaitingPod,
)
from stellwerk.models.object_reference import ObjectReference
from stellwerk.models.pod import PodInfo
from stellwerk.snapshot.snapshot import Snapshot
from stellwerk_kube.compatibility import AS_RECORDED, Compatibility
from stellwerk_kube.errors import SchedulerError
from stellwerk_kube.json_values import JsonObject


class Offline(ClusterClient, Recorder, WaitingPods):
    """No cluster: every read and write is refused, no event is recorded, no pod waits."""

    @override
    async def bind(self, namespace: str, name: str, uid: str, node_name: str) -> None:
        raise OfflineError(f"bind {namespace}/{name}")

    @override
    async def patch_pod_status(
        self, namespace: str, name: str, patch: Mapping[str, Any], *, urgent: bool = True
    ) -> None:
        raise OfflineError(f"patch the status of {namespace}/{name}")

    @override
    async def delete_pod(self, namespace: str, name: str, uid: str) -> bool:
        raise OfflineError(f"delete {namespace}/{name}")

    @override
    async def get(self, path: str) -> JsonObject:
        raise OfflineError(f"get {path}")

    @override
    async def list(self, path: str, *, limit: int = 500) -> tuple[list[JsonObject], str]:
        raise OfflineError(f"list {path}")

    @override
    async def create(self, path: str, body: Mapping[str, Any]) -> JsonObject:
        raise OfflineError(f"create in {path}")

    @override
    async def replace(self, path: str, body: Mapping[str, Any]) -> JsonObject:
        raise OfflineError(f"replace {path}")

    @override
    async def delete(self, path: str, uid: str) -> None:
        raise OfflineError(f"delete {path}")

    @override
    async def patch(
        self,
        path: str,
        body: Mapping[str, Any],
        *,
        content_type: str = "application/merge-patch+json",
    ) -> JsonObject:
        raise OfflineError(f"patch {path}")

    @override
    def event(
        self,
        regarding: ObjectReference,
        type_: str,
        reason: str,
        action: str,
        note: str,
        *,
        reporting_controller: str,
        related: ObjectReference | None = None,
    ) -> None:
        """There is nothing to record it in."""

    @override
    def all(self) -> Iterable[WaitingPod]:
        return ()

    @override
    def get_waiting(self, uid: str) -> WaitingPod | None:
        return None

    async def wait_until(self, predicate: Callable[[], bool], timeout_seconds: float) -> bool:  # noqa: ARG002 the contract
        """Nothing changes without a cluster, so the answer is the present one."""
        return predicate()


class OfflineError(SchedulerError):
    """A plugin tried to read from or write to a cluster that is not there."""

    def __init__(self, act: str) -> None:
        super().__init__(f"cannot {act}: there is no cluster behind this decision")


def offline_services(
    snapshot: Snapshot,
    objects: ObjectStore,
    nominations: Nominations,
    random: RandomNumbers,
    now: Callable[[], datetime] = STANDING_CLOCK.now,
    pod_groups: PodGroups | None = None,
    compatibility: Compatibility = AS_RECORDED,
) -> Services:
    """Services for `decide`, explain and what-if."""
    offline = Offline()
    return Services(
        snapshot=snapshot,
        objects=objects,
        nominations=nominations,
        client=offline,
        recorder=offline,
        now_seconds=lambda: 0.0,
        now=now,
        random=random,
        activate=_activate_none,
        waiting_pods=offline,
        wait_until=offline.wait_until,
        pod_groups=pod_groups or NoPodGroups(),
        compatibility=compatibility,
    )


def _activate_none(_: Iterable[PodInfo]) -> None:
    """There is no queue."""
