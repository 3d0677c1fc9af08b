"""`make soak-observe`: an operator that serves and observes, beside one that serves, for long.

`python -m tests.soak.observed --minutes N` runs a cluster of hollow nodes and two operators, each a
process. The first serves the schedulerName `stellwerk`. The second serves `mine`, and observes the
first. Pods of both come and go, at times many at once, and nodes are cordoned. In the end every pod
of the first that was created must have been compared, in one class; `/livez` must have answered at
once, and the memory of the second must not grow. The exit status is 1 if anything was wrong.
"""

import argparse
import asyncio
import json
import random
import shlex
import socket
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import aiohttp

from stellwerk.client.credentials import load_credentials
from stellwerk.profiles.spec.profile import API_VERSION, OPERATOR_LABEL, PLURAL
from stellwerk_kube.json_values import JsonObject
from stellwerk_simulation.workloads import KINDS, posted_pod
from tests.benchmarks.drain import PODS, Api
from tests.benchmarks.provenance import caption, provenance
from tests.benchmarks.scheduler_process import SchedulerProcess, running
from tests.support.in_process import make_profile

OBSERVED: Final = "stellwerk"
SERVED: Final = "mine"
NAME: Final = "both"
MAX_PODS: Final = 1500
"""Bound pods that stay; older ones are deleted."""
BURST_PODS: Final = 400
BURST_EVERY_SECONDS: Final = 30.0
CORDON_EVERY_SECONDS: Final = 10.0
LOOK_EVERY_SECONDS: Final = 5.0
MAX_LIVEZ_SECONDS: Final = 5.0
"""Kubelets ask every 10 s and give up after a few; a busy machine may need some of it."""
MAX_GROWTH_MIB: Final = 100.0
"""From a third of the time on. An audit of 1,500 pods takes 25 MiB that the allocator keeps, and
pods of which no two are alike fill the cached columns' room (`framework.result_cache`): 32 MiB in
each of three frameworks."""
PATIENCE_SECONDS: Final = 180.0


@dataclass
class Soak:
    """What was done, and what was seen."""

    api: Api
    server: str
    """The URL of the second operator's port."""
    process: SchedulerProcess
    random: random.Random
    rate: float
    created: dict[str, int] = field(default_factory=lambda: {OBSERVED: 0, SERVED: 0})
    livez_seconds: list[float] = field(default_factory=list)
    memory_mib: list[float] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    async def run(self, seconds: float) -> JsonObject:
        """Let pods come and go; returns the report in the end."""
        ends = time.monotonic() + seconds
        looking = asyncio.create_task(self._look())
        deleting = asyncio.create_task(self._delete_old())
        cordoning = asyncio.create_task(self._cordon())
        burst_at = time.monotonic() + BURST_EVERY_SECONDS
        while time.monotonic() < ends:
            began = time.monotonic()
            await self._create(OBSERVED, max(1, round(self.rate)))
            await self._create(SERVED, max(1, round(self.rate / 4)))
            if began >= burst_at:
                burst_at = began + BURST_EVERY_SECONDS
                await self._create(OBSERVED, BURST_PODS)
            self.process.check_alive()
            await asyncio.sleep(max(0.0, began + 1 - time.monotonic()))
        cordoning.cancel()
        report = await self._settled()
        for task in (looking, deleting):
            task.cancel()
        await asyncio.wait({looking, deleting, cordoning})
        return report

    async def _create(self, scheduler_name: str, count: int) -> None:
        first = self.created[scheduler_name]
        self.created[scheduler_name] = first + count
        kinds = [each for each in KINDS if each not in {"anti", "prefanti"}]
        bodies = [
            posted_pod(
                self.random.choice(kinds),
                number,
                scheduler_name=scheduler_name,
                prefix=f"{scheduler_name}-",
            )
            for number in range(first, first + count)
        ]
        await self.api.post_all(PODS, bodies)

    async def _delete_old(self) -> None:
        """Delete the oldest bound pods beyond MAX_PODS."""
        while True:
            await asyncio.sleep(2)
            listed = (await self.api.get(f"{PODS}?resourceVersion=0"))["items"]
            bound = [each for each in listed if each["spec"].get("nodeName")]
            bound.sort(key=lambda each: each["metadata"]["creationTimestamp"])
            for pod in bound[: max(0, len(bound) - MAX_PODS)]:
                name = pod["metadata"]["name"]
                await self.api.delete(f"{PODS}/{name}?gracePeriodSeconds=0")

    async def _cordon(self) -> None:
        """Cordon a node, and let the one before take pods again."""
        nodes = [
            each["metadata"]["name"] for each in (await self.api.get("/api/v1/nodes"))["items"]
        ]
        before = ""
        while True:
            chosen = self.random.choice(nodes)
            for name, shut in ((before, False), (chosen, True)):
                if name:
                    body = {"spec": {"unschedulable": shut or None}}
                    path = f"/api/v1/nodes/{name}"
                    await self.api.patch(path, body, "application/merge-patch+json")
            before = chosen
            await asyncio.sleep(CORDON_EVERY_SECONDS)

    async def _look(self) -> None:
        """Ask the second operator whether it lives, and how much memory it has."""
        while True:
            began = time.monotonic()
            async with (
                aiohttp.ClientSession() as session,
                session.get(f"{self.server}/livez") as answer,
            ):
                if answer.status != 200:
                    self.problems.append(f"/livez: {answer.status}")
            self.livez_seconds.append(time.monotonic() - began)
            self.memory_mib.append(self.process.resident_mib())
            await asyncio.sleep(LOOK_EVERY_SECONDS)

    async def report(self) -> JsonObject:
        """What the second operator has found."""
        path = f"{self.server}/observed?limit=1"
        async with aiohttp.ClientSession() as session, session.get(path) as answer:
            items: list[JsonObject] = (await answer.json())["items"]
            return items[0]

    async def _settled(self) -> JsonObject:
        """Wait until everything created was bound and compared."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            report = await self.report()
            if report["compared"] >= self.created[OBSERVED] or time.monotonic() > deadline:
                return report
            await asyncio.sleep(2)

    def check(self, report: JsonObject) -> None:
        """Find what was wrong."""
        if report["compared"] != self.created[OBSERVED]:
            self.problems.append(
                f"{self.created[OBSERVED]} pods were created, {report['compared']} compared"
            )
        if sum(report["counts"].values()) != report["compared"]:
            self.problems.append(f"the classes do not add up: {report['counts']}")
        if report["counts"]["foundNone"]:
            self.problems.append(f"no node found for {report['counts']['foundNone']} bound pods")
        slow = max(self.livez_seconds, default=0.0)
        if slow > MAX_LIVEZ_SECONDS:
            self.problems.append(f"/livez took {slow:.1f} s")
        third = len(self.memory_mib) // 3
        grown = max(self.memory_mib[third:], default=0.0) - self.memory_mib[third]
        if grown > MAX_GROWTH_MIB:
            self.problems.append(f"memory grew by {grown:.0f} MiB")


def _command(*arguments: str) -> str:
    return shlex.join([sys.executable, "-m", "stellwerk_cli", *arguments])


def _free_address() -> str:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{listener.getsockname()[1]}"


async def soak(minutes: float, nodes: int, rate: float, seed: int) -> int:
    """Run for so many minutes; returns the exit status."""
    measured = provenance()
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        kubeconfig = directory / "kubeconfig"
        cluster = _command(
            *("cluster", "--nodes", str(nodes), "--port", "0", "--kubeconfig", str(kubeconfig))
        )
        stack.enter_context(running(cluster, directory / "cluster.log"))
        while not kubeconfig.exists():  # noqa: ASYNC110 a file of another process
            await asyncio.sleep(0.1)
        flags = ("--kubeconfig", str(kubeconfig), "--log-level", "warning", "--bind-address")
        first = _command("run", *flags, _free_address())
        stack.enter_context(running(first, directory / "first.log"))
        api = Api(await load_credentials(str(kubeconfig)))
        for profile in (
            make_profile("observed", OBSERVED, mode="Observe", percentageOfNodesToScore=100),
            make_profile("served", SERVED),
        ):
            metadata = {"name": profile["metadata"]["name"], "labels": {OPERATOR_LABEL: NAME}}
            await api.post(f"/apis/{API_VERSION}/{PLURAL}", {**profile, "metadata": metadata})
        address = _free_address()
        second = _command("run", *flags, address, "--plain-http", "--operator-name", NAME)
        process = stack.enter_context(running(second, directory / "second.log"))
        run = Soak(api, f"http://{address}", process, random.Random(seed), rate)
        await _until_ready(run)
        before = process.usage()
        report = await run.run(60 * minutes)
        run.check(report)
        used = process.usage().cpu_seconds - before.cpu_seconds
        await api.close()
        log = (directory / "second.log").read_text(encoding="utf-8", errors="replace")
    third = len(run.memory_mib) // 3
    figures: dict[str, Any] = {
        "minutes": minutes,
        "observed": run.created[OBSERVED],
        "served": run.created[SERVED],
        "counts": report["counts"],
        "incomparable": report["incomparable"],
        "reasons": report["reasons"][:5],
        "decisions": report["decisions"],
        "skippedDecisions": report["skippedDecisions"],
        "latency": report["latency"],
        "livez_ms": {
            "median": round(1000 * sorted(run.livez_seconds)[len(run.livez_seconds) // 2]),
            "longest": round(1000 * max(run.livez_seconds)),
        },
        "memory_mib": [round(run.memory_mib[third]), round(run.memory_mib[-1])],
        "cpu_ms_per_pod": round(1000 * used / sum(run.created.values()), 2),
    }
    print(json.dumps(figures, indent=1))
    print(caption(measured))
    for line in log.splitlines()[:20]:
        print(f"log: {line}")
    for problem in run.problems:
        print(f"WRONG: {problem}")
    return 1 if run.problems else 0


async def _until_ready(run: Soak) -> None:
    """Wait until the second operator observes."""
    while True:
        run.process.check_alive()
        try:
            ready = f"{run.server}/readyz"
            async with aiohttp.ClientSession() as session, session.get(ready) as answer:
                if answer.status == 200:
                    await run.report()
                    return
        except (aiohttp.ClientError, IndexError, KeyError):
            pass  # it does not listen yet, or has not seen its profiles
        await asyncio.sleep(0.2)


def main() -> None:
    """Run what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--nodes", type=int, default=300)
    parser.add_argument("--rate", type=float, default=20.0, help="observed pods per second")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    sys.exit(asyncio.run(soak(options.minutes, options.nodes, options.rate, options.seed)))


if __name__ == "__main__":
    main()
