"""Pods that Permit plugins hold between the scheduling cycle and their binding.

The scheduler adds a pod when Permit answers Wait, its binding task waits on it, and other plugins
(or preemption) allow or reject it through the Handle. Invariant: a waiting pod gets exactly one
answer: all plugins allowed it, one rejected it, or the earliest timeout passed.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence

from typing_extensions import override

from stellwerk.framework.handle import WaitingPods
from stellwerk.framework.interface import WaitingPod
from stellwerk.framework.status import OK, Status, unschedulable
from stellwerk.models.pod import PodInfo


class HeldPod(WaitingPod):
    """One waiting pod; its answer is a future."""

    def __init__(self, pod: PodInfo, waits: Mapping[str, float]) -> None:
        self._pod = pod
        self._waits = dict(waits)
        self._answer: asyncio.Future[Status] = asyncio.get_running_loop().create_future()

    @property
    @override
    def pod(self) -> PodInfo:
        return self._pod

    @property
    @override
    def pending_plugins(self) -> Sequence[str]:
        return tuple(self._waits)

    @override
    def allow(self, plugin: str) -> None:
        self._waits.pop(plugin, None)
        if not self._waits:
            self._decide(OK)

    @override
    def reject(self, plugin: str, message: str) -> None:
        self._decide(unschedulable(plugin, message))

    async def answer(self) -> Status:
        """Wait for the answer; the plugin with the shortest timeout rejects when it passes."""
        plugin, seconds = min(self._waits.items(), key=lambda wait: wait[1], default=("", 0.0))
        if not plugin:
            return OK
        try:
            async with asyncio.timeout(seconds):
                return await asyncio.shield(self._answer)
        except TimeoutError:
            return unschedulable(
                plugin, f"rejected due to timeout after waiting {seconds:g}s at plugin {plugin}"
            )

    def _decide(self, status: Status) -> None:
        if not self._answer.done():
            self._answer.set_result(status)


class PermitRoom(WaitingPods):
    """All waiting pods, by uid."""

    def __init__(self) -> None:
        self._held: dict[str, HeldPod] = {}

    def hold(self, pod: PodInfo, waits: Mapping[str, float]) -> HeldPod:
        """Let a pod wait."""
        held = self._held[pod.uid] = HeldPod(pod, waits)
        return held

    def held(self, uid: str) -> HeldPod | None:
        """The waiting pod, for its binding task."""
        return self._held.get(uid)

    def release(self, uid: str) -> None:
        """The pod waits no more."""
        self._held.pop(uid, None)

    @override
    def all(self) -> Iterable[WaitingPod]:
        return list(self._held.values())

    @override
    def get_waiting(self, uid: str) -> WaitingPod | None:
        return self._held.get(uid)
