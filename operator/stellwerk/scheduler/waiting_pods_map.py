"""The pods that wait on Permit, and the answer to each (kube-scheduler's `waiting_pods_map.go`).

`BindingCycle` adds a pod when a Permit plugin has answered Wait, and waits for the answer. Plugins
allow or reject waiting pods through their Handle; preemption and the deletion of a pod also end the
wait, the end of its node does not. Invariant: a waiting pod gets exactly one answer: all plugins
have allowed it, one has rejected it, or the time of one is up.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from typing_extensions import override

from stellwerk.framework.handle import WaitingPods
from stellwerk.framework.services import WaitingPod
from stellwerk.framework.types import OK, Status, error, unschedulable
from stellwerk.models.pod import PodInfo

_SCHEDULER: Final = "scheduler"
"""The name under which the scheduler itself, and no plugin, ends a wait."""
_UNITS: Final = ((3600, "h"), (60, "m"), (1, "s"))
"""(seconds, letter) of the units in a Go duration, the longest first."""


class PermitWaitingPod(WaitingPod):
    """One waiting pod; its answer is a future."""

    def __init__(self, pod: PodInfo, waits: Mapping[str, float]) -> None:
        """Begin to wait: `waits` are the seconds that each plugin grants from now on."""
        loop = asyncio.get_running_loop()
        self._pod = pod
        self._answer: asyncio.Future[Status] = loop.create_future()
        self._timers = {
            plugin: loop.call_later(seconds, self._timed_out, plugin, seconds)
            for plugin, seconds in waits.items()
        }

    @property
    @override
    def pod(self) -> PodInfo:
        return self._pod

    @property
    @override
    def pending_plugins(self) -> Sequence[str]:
        return tuple(self._timers)

    @override
    def allow(self, plugin: str) -> None:
        timer = self._timers.pop(plugin, None)
        if timer is not None:
            timer.cancel()
        if not self._timers:
            self._decide(OK)

    @override
    def reject(self, plugin: str, message: str) -> None:
        self._decide(unschedulable(plugin, message))

    def preempt(self, plugin: str, message: str) -> bool:
        """Send the pod back without calling it unschedulable; False if it is decided already."""
        return self._decide(error(plugin, message))

    async def answer(self) -> Status:
        """Wait for the answer."""
        return await asyncio.shield(self._answer)

    def close(self) -> None:
        """Stop the timers: the wait is over."""
        for timer in self._timers.values():
            timer.cancel()

    def _timed_out(self, plugin: str, seconds: float) -> None:
        waited = go_duration(seconds)
        self.reject(plugin, f"rejected due to timeout after waiting {waited} at plugin {plugin}")

    def _decide(self, status: Status) -> bool:
        if self._answer.done():
            return False
        self._answer.set_result(status)
        self.close()
        return True


class WaitingPodsMap(WaitingPods):
    """All waiting pods, by uid."""

    def __init__(self) -> None:
        self._pods: dict[str, PermitWaitingPod] = {}

    def add(self, pod: PodInfo, waits: Mapping[str, float]) -> PermitWaitingPod:
        """Begin to wait for the plugins' answers to a pod."""
        waiting = self._pods[pod.uid] = PermitWaitingPod(pod, waits)
        return waiting

    def remove(self, uid: str) -> None:
        """End the wait of a pod, and stop its timers."""
        waiting = self._pods.pop(uid, None)
        if waiting is not None:
            waiting.close()

    def send_back(self, uid: str, message: str) -> None:
        """End the wait of a pod with an error; its attempt goes back to the queue."""
        waiting = self._pods.get(uid)
        if waiting is not None:
            waiting.preempt(_SCHEDULER, message)

    @override
    def all(self) -> Iterable[WaitingPod]:
        return list(self._pods.values())

    @override
    def get_waiting(self, uid: str) -> PermitWaitingPod | None:
        return self._pods.get(uid)


def go_duration(seconds: float) -> str:
    """A duration as Go prints it, for example 1m30s or 500ms: kube-scheduler's texts have it so."""
    if 0 < seconds < 1:
        return f"{seconds * 1000:g}ms"
    text, rest = "", seconds
    for size, unit in _UNITS:
        if unit == "s":
            return f"{text}{round(rest, 9):g}s"
        count, left = divmod(rest, size)
        if count or text:
            text += f"{count:g}{unit}"
        rest = left
    return text
