"""The way of one pod, wire to wire: which modules it goes through until it is bound.

`python -m tests.structure.pod_way` prints the way, module by module, and what it counts. An
operator, started as `stellwerk run` starts it, schedules pods of an embedded cluster over a socket;
counted is each time control enters a named function of `stellwerk` or `stellwerk_kube` (a coroutine
also when it goes on) from the bytes of the stream that show the pod to the bytes of the socket that
carry its binding and its event, and the MODIFIED event that confirms it. Comprehensions, generator
expressions and lambdas have no name and are not counted, nor are returns, nor what the embedded
cluster calls. Of several pods that are alike it is the shortest way, without the modules that only
some go through: by a timer, or where chance decides between equal nodes.
A module counts once however often the way comes back to it; a change of module is two entries in a
row in different modules, those of plugins, models, metrics and `stellwerk_kube` among them.
"""

import asyncio
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby, pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType
from typing import Final

from stellwerk_cluster.cluster import ClusterOptions, EmbeddedCluster
from tests.support.builders import make_node, make_pod
from tests.support.rights import ENFORCED
from tests.support.running_operator import install, is_active, operator_on, until

BESIDE: Final = (
    "stellwerk.plugins",
    "stellwerk.models",
    "stellwerk.metrics",
    "stellwerk.series",
    "stellwerk_kube",
)
"""What the way cannot avoid, and a reader looks up when needed: each plugin is a module."""

_PACKAGES: Final = ("stellwerk.", "stellwerk_kube.")
_OTHERS: Final = ("stellwerk_cluster", "tests.", "stellwerk_kube.listening")
"""Whose calls are not the operator's: the API server listens in the same process."""
_NAME: Final = "stellwerk"
_PROFILE: Final = {
    "apiVersion": "scheduling.stellwerk.dev/v1alpha1",
    "kind": "SchedulerProfile",
    "metadata": {"name": _NAME},
    "spec": {"schedulerName": _NAME},
}
_STILL: Final = ClusterOptions(controllers=False, kubelet=None, heartbeats=False, identity=ENFORCED)
_NODES: Final = 3
_WARM_UP_PODS: Final = 6
"""After these, everything is made and cached that the first pods of a kind make."""
_PODS: Final = 12
_QUIET_SECONDS: Final = 0.03
"""Between two pods: nothing of the one before is under way any more."""


@dataclass(frozen=True, slots=True)
class PodWay:
    """The functions that one pod's way enters, in order."""

    entered: Sequence[tuple[str, str]]
    """(module, function)."""

    @property
    def modules(self) -> list[str]:
        """Every module, in the order in which the way first comes to it."""
        return list(dict.fromkeys(module for module, _ in self.entered))

    @property
    def modules_to_read(self) -> list[str]:
        """The modules beside plugins, models, metrics and `stellwerk_kube`."""
        return [module for module in self.modules if not module.startswith(BESIDE)]

    @property
    def changes(self) -> int:
        """How often the way goes from one module to another."""
        return sum(before != after for (before, _), (after, _) in pairwise(self.entered))


def pod_way() -> PodWay:
    """Profile some pods, one after the other; the way that they have in common.

    Raises:
        TimeoutError: a pod is not bound, or no event says so.
    """
    with TemporaryDirectory() as directory:
        return asyncio.run(_common(Path(directory)))


async def _common(directory: Path) -> PodWay:
    # Without zones, whose labels the API would write into each pod that is bound.
    nodes = [make_node(f"node-{number}") for number in range(_NODES)]
    cluster = EmbeddedCluster(nodes, options=_STILL)
    install(cluster, _PROFILE)
    async with cluster, operator_on(cluster, directory, is_prompt=False):
        await until(lambda: is_active(cluster, _NAME))
        for number in range(_WARM_UP_PODS):
            await _schedule(cluster, f"before-{number}")
        ways = []
        for number in range(_PODS):
            await asyncio.sleep(_QUIET_SECONDS)
            entered: list[tuple[str, str]] = []
            with _profiled(entered):
                await _schedule(cluster, f"web-{number}")
            ways.append(PodWay(entered))
    shortest = min(ways, key=lambda way: len(way.entered))
    common = set(shortest.modules).intersection(*(way.modules for way in ways))
    return PodWay([entry for entry in shortest.entered if entry[0] in common])


async def _schedule(cluster: EmbeddedCluster, name: str) -> None:
    """Create a pod; wait until it is bound, an event says so, and the operator knows of both."""
    pods = cluster.api.kinds.resource("pods")
    cluster.api.create(pods, "default", make_pod(name, cpu="100m", scheduler_name=_NAME))

    def reported() -> bool:
        bound = cluster.api.get(pods, "default", name).obj["spec"].get("nodeName")
        events = cluster.api.store.collection("events").entries()
        return bool(bound) and any(event.obj["involvedObject"]["name"] == name for event in events)

    await until(reported)
    await asyncio.sleep(_QUIET_SECONDS)


@contextmanager
def _profiled(entered: list[tuple[str, str]]) -> Iterator[None]:
    def profile(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and not frame.f_code.co_name.startswith("<"):
            module = frame.f_globals.get("__name__", "")
            is_own = module.startswith(_PACKAGES) and not module.startswith(_OTHERS)
            if is_own and not _called_by_others(frame):
                entered.append((module, frame.f_code.co_qualname.rpartition("<locals>.")[2]))

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        yield
    finally:
        sys.setprofile(before)


def _called_by_others(frame: FrameType) -> bool:
    """Whether the cluster or the test called, at whatever distance within one callback."""
    caller = frame.f_back
    while caller is not None:
        name = caller.f_globals.get("__name__", "")
        if name == "asyncio.events":
            return False
        if name.startswith(_OTHERS):
            return True
        caller = caller.f_back
    return False


def lines(way: PodWay) -> Iterator[str]:
    """A line for each stay in one module, with the functions entered; last, what is counted."""
    for module, stay in groupby(way.entered, key=lambda entry: entry[0]):
        yield f"{module.removeprefix('stellwerk.'):38} {' '.join(name for _, name in stay)}"
    yield (
        f"{len(way.modules_to_read)} modules beside {', '.join(BESIDE)}; "
        f"{len(way.modules)} in all; {way.changes} changes of module"
    )


if __name__ == "__main__":
    sys.stdout.writelines(f"{line}\n" for line in lines(pod_way()))
