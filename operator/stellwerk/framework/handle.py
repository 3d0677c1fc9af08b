"""What the scheduler offers to plugins, bound to one profile.

`app` and `decide` fill in the services; the runtime sets itself as `framework`. Invariant: a handle
serves one profile for as long as its framework lives.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from typing_extensions import override

from stellwerk.errors import SchedulerError
from stellwerk.framework.calls import UNMEASURED, Stopwatch
from stellwerk.framework.containment import UNLIMITED, PluginGuard
from stellwerk.framework.cycle_state import CycleState
from stellwerk.framework.interface import (
    ClusterClient,
    Handle,
    Nominations,
    ObjectReference,
    ObjectStore,
    Plugin,
    Recorder,
    WaitingPod,
)
from stellwerk.models.json_values import JsonObject
from stellwerk.models.plugin_description import ExtensionPoint
from stellwerk.models.pod import PodInfo
from stellwerk.snapshot.columns import Mask
from stellwerk.snapshot.node_view import NodeView
from stellwerk.snapshot.snapshot import Snapshot

if TYPE_CHECKING:
    from stellwerk.framework.runtime import Framework
    from stellwerk.framework.verdicts import Verdicts


class RandomNumbers(Protocol):
    """A seeded generator (`random.Random` is one)."""

    def randrange(self, stop: int, /) -> int: ...


class WaitingPods(Protocol):
    """The pods that Permit plugins hold."""

    def all(self) -> Iterable[WaitingPod]: ...

    def get_waiting(self, uid: str) -> WaitingPod | None: ...


class WaitUntil(Protocol):
    """Waits for a predicate that watch events make true."""

    async def __call__(self, predicate: Callable[[], bool], timeout_seconds: float) -> bool: ...


StopwatchOf: TypeAlias = Callable[[str, Mapping[ExtensionPoint, Sequence[Plugin]]], Stopwatch]
"""(schedulerName, its plugins) → who is told how long they take."""


def _unmeasured(_: str, __: Mapping[ExtensionPoint, Sequence[Plugin]]) -> Stopwatch:
    return UNMEASURED


@dataclass(frozen=True, slots=True)
class Services:
    """What all profiles share."""

    snapshot: Snapshot
    objects: ObjectStore
    nominations: Nominations
    client: ClusterClient
    recorder: Recorder
    now_seconds: Callable[[], float]
    random: RandomNumbers
    activate: Callable[[Iterable[PodInfo]], None]
    waiting_pods: WaitingPods
    wait_until: WaitUntil
    is_preempting: Callable[[str], bool] = lambda uid: False  # noqa: ARG005 nobody, for any uid
    """Whether victims are still being sent away for the pod of that uid."""
    guard: PluginGuard = UNLIMITED
    """Limits the time of plugins that do not come with Stellwerk."""
    stopwatch: StopwatchOf = _unmeasured
    """Who measures the plugins of a profile."""


class ProfileHandle(Handle):
    """The Handle of one profile's plugins."""

    def __init__(self, services: Services, profile_name: str) -> None:
        self._services = services
        self._profile_name = profile_name
        self._framework: Framework | None = None

    def serve(self, framework: "Framework") -> None:
        """Name the framework whose plugins hold this handle."""
        self._framework = framework

    @property
    def framework(self) -> "Framework":
        """The framework of the profile.

        Raises:
            LookupError: a plugin asked while it was being made.
        """
        if self._framework is None:
            message = "the framework is not assembled yet"
            raise LookupError(message)
        return self._framework

    @property
    @override
    def profile_name(self) -> str:
        return self._profile_name

    @property
    @override
    def snapshot(self) -> Snapshot:
        return self._services.snapshot

    @property
    @override
    def objects(self) -> ObjectStore:
        return self._services.objects

    @property
    @override
    def nominations(self) -> Nominations:
        return self._services.nominations

    @property
    @override
    def client(self) -> ClusterClient:
        return self._services.client

    @property
    @override
    def recorder(self) -> Recorder:
        return self._services.recorder

    @override
    def now_seconds(self) -> float:
        return self._services.now_seconds()

    @override
    def random(self, below: int) -> int:
        return self._services.random.randrange(below)

    @override
    def activate(self, pods: Iterable[PodInfo]) -> None:
        self._services.activate(pods)

    @override
    def waiting_pods(self) -> Iterable[WaitingPod]:
        return self._services.waiting_pods.all()

    @override
    def waiting_pod(self, uid: str) -> WaitingPod | None:
        return self._services.waiting_pods.get_waiting(uid)

    @override
    def is_preempting(self, uid: str) -> bool:
        return self._services.is_preempting(uid)

    @override
    def feasible(self, pod: PodInfo) -> Mask:
        return self.framework.find_feasible(pod, sample=False).fits

    @override
    def is_row_local(self, state: CycleState, pod: PodInfo) -> bool:
        return self.framework.is_row_local(state, pod)

    @override
    def run_filters(self, state: CycleState, pod: PodInfo, nodes: NodeView) -> "Verdicts":
        return self.framework.run_filters_with_nominated(state, pod, nodes)

    @override
    def add_pods(
        self, state: CycleState, pod: PodInfo, nodes: NodeView, pods: Sequence[tuple[int, PodInfo]]
    ) -> None:
        self.framework.add_pods(state, pod, nodes, pods)

    @override
    def remove_pods(
        self, state: CycleState, pod: PodInfo, nodes: NodeView, pods: Sequence[tuple[int, PodInfo]]
    ) -> None:
        self.framework.remove_pods(state, pod, nodes, pods)

    @override
    async def wait_until(self, predicate: Callable[[], bool], timeout_seconds: float) -> bool:
        return await self._services.wait_until(predicate, timeout_seconds)


class Offline(ClusterClient, Recorder, WaitingPods):
    """A world without a cluster, for decisions that are only thought: nothing can be written."""

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
        """Nobody is there to read it."""

    @override
    def all(self) -> Iterable[WaitingPod]:
        return ()

    @override
    def get_waiting(self, uid: str) -> WaitingPod | None:
        return None

    async def wait_until(self, predicate: Callable[[], bool], timeout_seconds: float) -> bool:  # noqa: ARG002 the contract
        """Nothing changes while nobody watches."""
        return predicate()


class OfflineError(SchedulerError):
    """A plugin tried to write while a decision was only thought."""

    def __init__(self, act: str) -> None:
        super().__init__(f"cannot {act}: there is no cluster behind this decision")


def offline_services(
    snapshot: Snapshot, objects: ObjectStore, nominations: Nominations, random: RandomNumbers
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
        random=random,
        activate=_nobody_waits,
        waiting_pods=offline,
        wait_until=offline.wait_until,
    )


def _nobody_waits(_: Iterable[PodInfo]) -> None:
    """Nothing is queued behind a decision that is only thought."""
