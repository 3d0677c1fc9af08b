"""`make soak-partly-bound`: leaders that are killed between the bindings of a gang, on full nodes.

`python -m tests.soak.partly_bound --minutes N --seed S` runs three replicas of the operator under
leader election on an embedded cluster. In each round a gang comes that fills all nodes; the leader
is killed when some of its members are bound, and single pods of the same priority come all the
time, whose names come before the gang's. At times the standbys are killed with it and others
started, which list all pods by name, or the next leader is killed likewise, a pod of a
higher priority takes a node for some seconds, or a member is made anew after a while. A round is
wrong if a single pod is bound while the gang is bound in part (of the room of a member that is
missing it may, and ends after some seconds), or if the gang is not whole in the end. It
prints a line for each round; the exit status is 1 if any was wrong.
"""

import argparse
import asyncio
import random
import signal
import statistics
import sys
import tempfile
import time
from collections import Counter
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from stellwerk_cluster.apimachinery.feature_gates import GANGS
from stellwerk_cluster.cluster import ClusterOptions, EmbeddedCluster
from stellwerk_cluster.registry.deletion import DeleteOptions, delete
from stellwerk_cluster.registry.entries import StoreEvent
from stellwerk_kube.json_values import JsonObject
from tests.support.builders import make_node, make_pod
from tests.support.in_process import make_profile
from tests.support.pod_groups import make_group, make_member
from tests.support.replicas import OWN_LEASE, History, Replica, replica
from tests.support.rights import ENFORCED
from tests.support.running_operator import install

SIZE: Final = 8
REPLICAS: Final = 3
WAITING_SINGLES: Final = 12
"""Single pods that come in the moment in which the leader is killed."""
SINGLES_PER_SECOND: Final = 5.0
SINGLE_SECONDS: Final = 5.0
"""Time after which a single pod ends that has the room of a missing member."""
PATIENCE_SECONDS: Final = 120.0
"""Time in which a gang has to be whole: two leases, the longest backoff, and a busy machine."""
FLAGS: Final = (
    "--leader-elect=true",
    "--leader-elect-lease-duration=7s",
    "--leader-elect-renew-deadline=5.5s",
    "--leader-elect-retry-period=1s",
    *OWN_LEASE,
)
ALL_KILLED: Final = "all killed"
"""The standbys, too: those that follow find single pods and gang in one list, by name."""
KINDS: Final = (
    *("killed", "killed twice", ALL_KILLED, ALL_KILLED),
    *("a higher priority", "a member made anew"),
)
HIGH: Final = "high"


@dataclass
class Soak:
    """The cluster, its replicas, and what is bound in the round."""

    history: History
    directory: Path
    stack: AsyncExitStack
    random: random.Random
    alive: list[Replica] = field(default_factory=list)
    started: int = 0
    group: str = ""
    bound: set[str] = field(default_factory=set)
    """Members of the gang that are bound."""
    singles: int = 0
    """Single pods that are bound."""
    is_missing: bool = False
    """Whether a member of the gang is to be made anew: single pods may have its room meanwhile."""
    wrong: list[str] = field(default_factory=list)
    kills_all: bool = False
    kill_at: int = 0
    """The number of bound members at which the leader is killed; 0: it is not."""
    kills: int = 0
    lost_leases: int = 0
    """Replicas that ended because a busy machine kept them from renewing their lease."""
    partly: int = 0
    """Rounds in which the gang was bound in part after the kill."""
    killed_at: float = 0.0

    # --- the cluster ----------------------------------------------------------------------------

    def on_change(self, storage_name: str, event: StoreEvent) -> None:
        """Look at each binding when the API server takes it, and kill the leader right then."""
        if storage_name != "pods" or event.previous is None:
            return
        name = event.entry.obj["metadata"]["name"]
        now_on, was_on = (
            each.obj["spec"].get("nodeName") for each in (event.entry, event.previous)
        )
        if event.type == "DELETED":
            self.bound.discard(name)
        if not now_on or now_on == was_on:
            return
        if name.startswith(f"{self.group}-"):
            self.bound.add(name)
            if len(self.bound) == self.kill_at:
                self._kill()
        elif name.startswith("a"):
            self.singles += 1
            if 0 < len(self.bound) < SIZE and self.is_missing:
                asyncio.get_running_loop().call_later(SINGLE_SECONDS, self.remove, name)
            elif 0 < len(self.bound) < SIZE:
                self.wrong.append(f"{name} was bound beside {len(self.bound)} members")

    def _kill(self) -> None:
        self.kill_at, self.killed_at = 0, time.monotonic()
        self._forget_ended()
        for each in list(self.alive):
            # What it has sent and the server has not read yet is lost with it.
            if self.kills_all or self._leads(each):
                each.line.cut()
                each.signal(signal.SIGKILL)
                self.alive.remove(each)
                self.kills += 1

    def _forget_ended(self) -> None:
        """Leave out replicas that ended by themselves: 1 is right, the lease was not renewed."""
        for each in list(self.alive):
            status = each.process.process.returncode
            if status is None:
                continue
            self.alive.remove(each)
            self.lost_leases += 1
            if status != 1:
                self.wrong.append(f"a replica ended with {status}: {each.log()[-500:]}")

    def _leads(self, each: Replica) -> bool:
        log = each.log()
        return "successfully acquired" in log

    async def start(self) -> None:
        """Start a replica; what it sends takes up to a quarter of a second, each piece another."""
        self.started += 1
        name = f"replica-{self.started}"
        made = replica(self.history, self.directory, name, FLAGS, delay_seconds=0.005, spread=50.0)
        self.alive.append(await self.stack.enter_async_context(made))

    def create(self, plural: str, obj: JsonObject, group: str = "") -> None:
        obj["metadata"].pop("uid", None)
        api = self.history.cluster.api
        kind = api.kinds.resource(plural, group)
        api.create(kind, obj["metadata"].get("namespace", "default"), obj)

    def remove(self, *beginnings: str) -> None:
        """`kubectl delete --force` of the pods whose names begin so."""
        api = self.history.cluster.api
        kind = api.kinds.resource("pods")
        for pod in api.all("pods", "default"):
            name = pod["metadata"]["name"]
            if name.startswith(beginnings):
                delete(api, kind, ("default", name), DeleteOptions(grace_period_seconds=0))

    async def until(self, condition: Any, what: str, seconds: float = PATIENCE_SECONDS) -> None:
        """Wait; what does not come in time is wrong."""
        try:
            async with asyncio.timeout(seconds):
                while not condition():  # noqa: ASYNC110 any condition
                    await asyncio.sleep(0.02)
        except TimeoutError:
            self.wrong.append(f"{what} in {seconds:g} s; {len(self.bound)} members are bound")

    async def stream(self, number: int) -> None:
        """Create single pods at a rate."""
        count = 0
        while True:
            self.create("pods", make_pod(f"a{number}-later-{count:04}", cpu="1"))
            count += 1
            await asyncio.sleep(1 / SINGLES_PER_SECOND)

    # --- a round --------------------------------------------------------------------------------

    async def play(self, number: int) -> tuple[str, float]:
        """One round: (its kind, the seconds from the last kill until the gang was whole)."""
        kind = self.random.choice(KINDS)
        self.group, self.wrong = f"m{number}", list[str]()
        self.singles, self.is_missing = 0, False
        self._forget_ended()
        while len(self.alive) < REPLICAS:
            await self.start()
        await self.until(lambda: any(map(self._leads, self.alive)), "nobody leads")
        self.kills_all = kind == ALL_KILLED
        self.kill_at = self.random.randint(1, SIZE - 3)
        group = make_group(self.group, SIZE)
        group["apiVersion"] = "scheduling.k8s.io/v1beta1"
        self.create("podgroups", group, "scheduling.k8s.io")
        for each in range(SIZE):
            name = f"{self.group}-{each}"
            self.create(
                "pods", make_member(name, self.group, cpu="1", scheduler_name="default-scheduler")
            )
        await self.until(lambda: self.kill_at == 0, "no binding is made")
        for each in range(WAITING_SINGLES):
            self.create("pods", make_pod(f"a{number}-{each:02}", cpu="1"))
        at_kill = len(self.bound)
        streaming = asyncio.create_task(self.stream(number))
        try:
            await self._disturb(kind, number)
            await self.until(lambda: len(self.bound) == SIZE, "the gang is not whole")
            seconds = time.monotonic() - self.killed_at
        finally:
            streaming.cancel()
            await asyncio.wait({streaming})
        # What waited behind it goes on as soon as it ends.
        self.remove(f"{self.group}-")
        await self.until(lambda: self.singles >= SIZE, "the single pods are not bound")
        self.remove("a", "z")
        self.partly += at_kill < SIZE
        return f"{kind}, {at_kill} of {SIZE} bound when the leader was killed", seconds

    async def _disturb(self, kind: str, number: int) -> None:
        if kind == ALL_KILLED:
            while len(self.alive) < REPLICAS:
                await self.start()
        elif kind == "killed twice" and len(self.bound) < SIZE - 2:
            self.kill_at = self.random.randint(len(self.bound) + 1, SIZE - 2)
            await self.until(lambda: self.kill_at == 0 or len(self.bound) == SIZE, "no binding")
            self.kill_at = 0
        elif kind == "a higher priority":
            self.create("pods", make_pod(f"z{number}", cpu="1", priorityClassName=HIGH))
            await asyncio.sleep(self.random.uniform(8.0, 25.0))
            self.remove(f"z{number}")
            self.killed_at = time.monotonic()
        elif kind == "a member made anew":
            free = {f"{self.group}-{each}" for each in range(SIZE)} - self.bound
            name = self.random.choice(sorted(free)) if free else ""
            if name:
                self.is_missing = True
                self.remove(name)
                await asyncio.sleep(self.random.uniform(0.0, 12.0))
                again = make_member(
                    f"{name}-again", self.group, cpu="1", scheduler_name="default-scheduler"
                )
                self.create("pods", again)
                # What was decided before is bound by then.
                await asyncio.sleep(2.0)
                self.is_missing = False


async def soak(options: argparse.Namespace) -> int:
    """Play rounds until the time is over; returns the number of wrong ones."""
    rng = random.Random(options.seed)
    random.seed(options.seed)
    nodes = [make_node(f"n{number}", cpu="1") for number in range(SIZE)]
    cluster_options = ClusterOptions(
        kubelet=None, heartbeats=False, identity=ENFORCED, feature_gates=GANGS
    )
    ends, wrong, number = time.monotonic() + 60 * options.minutes, 0, 0
    took, kinds = list[float](), Counter[str]()
    async with AsyncExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        cluster = await stack.enter_async_context(EmbeddedCluster(nodes, options=cluster_options))
        install(cluster, make_profile("default-scheduler", gangScheduling=True))
        standing = Soak(History(cluster), directory, stack, rng)
        cluster.api.store.listeners.append(standing.on_change)
        high = {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": HIGH},
            "value": 1000,
        }
        cluster.api.create(
            cluster.api.kinds.resource("priorityclasses", "scheduling.k8s.io"), "", high
        )
        while time.monotonic() < ends or not number:
            number += 1
            told, seconds = await standing.play(number)
            wrong += bool(standing.wrong)
            took.append(seconds)
            kinds[told.partition(",")[0]] += 1
            verdict = (
                "; ".join(standing.wrong[:3]) if standing.wrong else f"whole after {seconds:.1f} s"
            )
            sys.stdout.write(f"round {number}: {told}: {verdict}\n")
            sys.stdout.flush()
    counts = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))
    sys.stdout.write(
        f"{number} rounds ({counts}), seed {options.seed}: {standing.kills} replicas killed, "
        f"{standing.lost_leases} that lost their lease, "
        f"{standing.partly} gangs bound in part, {wrong} rounds wrong; whole after "
        f"{statistics.median(took):.1f} s (median), {max(took):.1f} s at most\n"
    )
    return wrong


def main() -> int:
    """Run; the exit status is 1 if anything was wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    return int(asyncio.run(soak(parser.parse_args())) > 0)


if __name__ == "__main__":
    sys.exit(main())
