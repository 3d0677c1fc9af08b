"""`python -m tests.benchmarks.bench_observe`: what observing costs, and what a burst does to it.

First an operator serves pods at a steady rate; then another one observes it doing the same. Both
are processes beside the embedded cluster's API, and the CPU time of each is divided by the pods.
Then, in this process and without an API, 10,000 bindings are delivered as fast as they are taken:
printed are the longest time for which the event loop was held, the memory, the time until all are
compared. One JSON line for each. CPU times hold on a busy machine; other times do not.
"""

import argparse
import asyncio
import json
import shlex
import socket
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import uvloop
from typing_extensions import override

from stellwerk import garbage
from stellwerk.app import RunOptions
from stellwerk.backend.queued_pod import Place
from stellwerk.client.credentials import load_credentials
from stellwerk.framework.offline import Offline
from stellwerk.metrics import Metrics
from stellwerk.profiles.spec.profile import API_VERSION, PLURAL
from stellwerk.wiring import Operator
from stellwerk_kube.clock import SystemClock
from stellwerk_kube.json_values import JsonObject
from stellwerk_simulation.workloads import node_name, posted_node, posted_pod
from tests.benchmarks.bench_drain import stellwerk
from tests.benchmarks.drain import Api, Load, Scheduler, drain
from tests.benchmarks.embedded_api import embedded_api
from tests.benchmarks.provenance import provenance
from tests.benchmarks.scheduler_process import running
from tests.support.in_process import make_profile

_EVENTS_PER_SLICE: Final = 100
"""Events that the watch delivers in one turn of the loop (`handlers.delivery`)."""
_SERVED: Final = "stellwerk"
_FEW: Final = 100
"""Nodes that a burst fills one after the other, of many."""


def observer(kubeconfig: Path) -> Scheduler:
    """`stellwerk run --observe`, without a lease: it is the only one."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{listener.getsockname()[1]}"
    command = [sys.executable, "-m", "stellwerk_cli", "run", "--observe", "--kubeconfig"]
    command += [str(kubeconfig), "--bind-address", address, "--log-level", "warning"]
    return Scheduler(shlex.join(command), ready_url=f"https://{address}/readyz")


def serving(load: Load) -> JsonObject:
    """The figures of an operator that serves the load."""
    with (
        tempfile.TemporaryDirectory() as name,
        embedded_api(Path(name), load.nodes, load.init, tls=True) as api,
    ):
        log = Path(name) / "operator.log"
        return uvloop.run(drain(api.kubeconfig, stellwerk(api.kubeconfig), load, log))


def observing(load: Load) -> JsonObject:
    """The figures of an operator that observes another one, which serves the load."""

    async def measured(kubeconfig: Path, directory: Path) -> dict[str, Any]:
        api = Api(await load_credentials(str(kubeconfig)))
        profile = _observed()
        del profile["metadata"]["uid"]
        await api.post(f"/apis/{API_VERSION}/{PLURAL}", profile)
        await api.close()
        return await drain(kubeconfig, observer(kubeconfig), load, directory / "observer.log")

    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        api = stack.enter_context(embedded_api(directory, load.nodes, load.init, tls=True))
        scheduler = stellwerk(api.kubeconfig)
        stack.enter_context(running(scheduler.command, directory / "scheduler.log"))
        time.sleep(load.warm_seconds)
        return uvloop.run(measured(api.kubeconfig, directory))


def _observed() -> JsonObject:
    """The profile that observes; the other scheduler is said to score every node."""
    return make_profile("observed", _SERVED, mode="Observe", percentageOfNodesToScore=100)


class _Api(Offline):
    """Takes statuses of profiles, and nothing else: an observer writes no more."""

    @override
    async def patch(
        self,
        path: str,
        body: Mapping[str, Any],
        *,
        content_type: str = "application/merge-patch+json",
    ) -> JsonObject:
        assert PLURAL in path, path
        return dict(body)


class _Turns:
    """The longest time for which the event loop was held, in CPU time."""

    def __init__(self) -> None:
        self.longest_cpu_seconds = 0.0

    async def run(self) -> None:
        """Measure until cancelled."""
        while True:
            began = time.process_time()
            await asyncio.sleep(0.001)
            self.longest_cpu_seconds = max(self.longest_cpu_seconds, time.process_time() - began)


def _seen(obj: JsonObject, uid: str, version: int) -> JsonObject:
    """An object as a watch shows it."""
    metadata = {"namespace": "default", **obj["metadata"], "uid": uid}
    return {**obj, "metadata": {**metadata, "resourceVersion": str(version)}}


def _resident_mib() -> float:
    for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    return 0.0


async def burst(nodes: int, pods: int, used: int) -> JsonObject:
    """Deliver the bindings of many pods at once to an operator that observes them.

    `used`: the nodes that they are bound to in turn. With few of them nearly none is the best, and
    each is compared in several states.
    """
    operator = Operator(_Api(), Offline(), Metrics(), SystemClock(), RunOptions())
    handlers, queue = operator.handlers, operator.world.queue
    handlers.on_object("SchedulerProfile", None, _observed())
    for number in range(nodes):
        handlers.on_node(None, _seen(posted_node(number), f"node-{number}", 1))
    task = asyncio.create_task(operator.scheduler.run())
    await asyncio.sleep(0.1)
    waiting = [_seen(posted_pod("basic", number), f"pod-{number}", 2) for number in range(pods)]
    for number, pod in enumerate(waiting):
        handlers.on_pod("ADDED", pod)
        if number % _EVENTS_PER_SLICE == 0:
            await asyncio.sleep(0)
    while queue.observed(Place.ACTIVE):  # noqa: ASYNC110 there is no event for it
        await asyncio.sleep(0.05)
    # As `stellwerk run` has it once the lists are complete.
    garbage.collect_seldom()
    garbage.freeze()
    before_mib, turns = _resident_mib(), _Turns()
    watching = asyncio.create_task(turns.run())
    began, began_cpu = time.perf_counter(), time.process_time()
    most = 0
    for number, pod in enumerate(waiting):
        bound = {**pod, "spec": {**pod["spec"], "nodeName": node_name(number % used)}}
        handlers.on_pod("MODIFIED", _seen(bound, f"pod-{number}", 3))
        if number % _EVENTS_PER_SLICE == 0:
            await asyncio.sleep(0)
            most = max(most, len(handlers.trail.changes) if handlers.trail else 0)
    delivered = time.perf_counter()
    peak_mib = before_mib
    while True:
        (found,) = operator.observer.described(1)
        peak_mib = max(peak_mib, _resident_mib())
        if found.compared == pods:
            break
        await asyncio.sleep(0.2)
    cpu_seconds = time.process_time() - began_cpu
    watching.cancel()
    task.cancel()
    await asyncio.wait({watching, task})
    return {
        "burst": pods,
        "nodes": nodes,
        "used": used,
        "delivered_s": round(delivered - began, 2),
        "compared_s": round(time.perf_counter() - began, 2),
        "cpu_ms_per_binding": round(1000 * cpu_seconds / pods, 3),
        "longest_turn_cpu_ms": round(1000 * turns.longest_cpu_seconds, 1),
        "changes_waiting_at_most": most,
        "memory_more_mib": round(peak_mib - before_mib, 1),
        "counts": {
            "equal": found.counts.equal,
            "sampled": found.counts.sampled,
            "differs": found.counts.differs,
            "foundNone": found.counts.found_none,
            "notComparable": found.counts.not_comparable,
        },
        "skipped_decisions": found.skipped_decisions,
    }


def main() -> None:
    """Print what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--init", type=int, default=5000, help="pods already bound")
    parser.add_argument("--pods", type=int, default=3000)
    parser.add_argument("--rate", type=float, default=100.0, help="pods per second")
    parser.add_argument("--kind", default="basic", help="workload")
    parser.add_argument("--burst", type=int, default=10_000, help="bindings at once")
    parser.add_argument("--only", choices=("serving", "observing", "burst"))
    options = parser.parse_args()
    print(json.dumps(provenance()))
    load = Load(
        options.kind,
        nodes=options.nodes,
        init=options.init,
        pods=options.pods,
        rate=options.rate,
        warm_seconds=20.0,
        is_prepared=True,
    )
    measured = {"serving": serving, "observing": observing}
    for name, measure in measured.items():
        if options.only in {None, name}:
            print(json.dumps({"operator": name, **measure(load)}), flush=True)
    if options.only in {None, "burst"}:
        print(
            json.dumps(uvloop.run(burst(options.nodes, options.burst, options.nodes))), flush=True
        )
        print(json.dumps(uvloop.run(burst(options.nodes, options.burst, _FEW))), flush=True)


if __name__ == "__main__":
    main()
