"""An API server that lies or half answers: the operator says so, within its memory, and gets well.

Each case strikes from the operator's start on, or once it is ready, for some seconds. Looked at are
its probes and its memory meanwhile, and a pod that must be bound after the fault has ended.
"""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import aiohttp
import pytest

from stellwerk_cluster.cluster import ClusterOptions, EmbeddedCluster
from stellwerk_cluster.faults.plan import FaultPlan
from stellwerk_cluster.faults.table import FaultTable
from stellwerk_kube.clock import SystemClock
from tests.support.builders import make_node, make_pod
from tests.support.impatient import LIST_SECONDS
from tests.support.impatient import MEMORY_MIB as MEMORY_VARIABLE
from tests.support.in_process import make_profile
from tests.support.processes import Process, running
from tests.support.rights import ENFORCED, write_operator_kubeconfig
from tests.support.running_operator import install
from tests.support.supervised_operator import free_port

pytestmark = [pytest.mark.long, pytest.mark.timeout(240)]

PROFILE: Final = "default-scheduler"
MEMORY_MIB: Final = 300
"""The limit within which the operator believes to be (`impatient`); idle it takes 95."""
RECOVERY_SECONDS: Final = 60.0
PODS: Final = {"resources": ["pods"]}
LISTS: Final = {**PODS, "verbs": ["list"]}
REFUSED_STREAM: Final = {"fault": "streamError", "code": 400, "ofLists": True, **PODS}
"""Has the list read by pages."""
GOING: Final = {"fault": "endWatch", "afterSeconds": 0.5, **PODS}
"""Has the watch opened again and again."""


@dataclass(frozen=True)
class Lie:
    """A table of faults, and what the operator may say while they last."""

    faults: tuple[dict[str, Any], ...]
    unready: str = ""
    """A pattern that `/readyz` shows at some time; empty: it is ready as soon as it would be."""
    logged: str = ""
    """A pattern that the log shows."""
    seconds: float = 12.0
    memory_mib: int = MEMORY_MIB
    list_seconds: float = 4.0
    when_ready: bool = False
    """Whether the faults begin when the operator is ready; otherwise they are there before it."""


@dataclass
class Seen:
    """What the operator showed while the faults lasted."""

    unready: set[str] = field(default_factory=set)
    dead: set[str] = field(default_factory=set)
    peak_mib: float = 0.0


CASES: Final = {
    "a list without end": Lie(
        ({"fault": "endlessList", "perSecond": 500, **PODS},),
        unready=r"Pod \([\d,]+ objects so far\)|no end after [\d,]+ objects",
        logged=r"list Pod objects: no end after",
    ),
    "a list that would fill the memory": Lie(
        ({"fault": "endlessList", "perSecond": 100_000, **PODS},),
        unready=r"given up after [\d,]+ objects, with \d+ of 130 MiB of memory",
        logged=r"given up after",
        seconds=30.0,
        memory_mib=130,
        list_seconds=60.0,
    ),
    "a later list that would fill the memory": Lie(
        (
            {"fault": "streamError", "code": 410, **PODS, "times": 1},
            {"fault": "endlessList", "perSecond": 100_000, **PODS},
        ),
        logged=r"given up after [\d,]+ objects, with \d+ of 200 MiB of memory",
        seconds=20.0,
        memory_mib=200,
        list_seconds=60.0,
        when_ready=True,
    ),
    "a bookmark that never comes": Lie(
        ({"fault": "noBookmarks", **PODS},),
        unready="Pod",
        logged="no end after|the stream ended before the list did",
    ),
    "versions that go back": Lie(
        ({"fault": "olderVersions", "by": 50, "share": 0.5, **PODS}, GOING),
    ),
    "objects twice": Lie(({"fault": "twins", **PODS}, GOING)),
    "lines of 10 MB": Lie(({"fault": "longLines", "bytes": 10_000_000, **PODS},)),
    "lines that are longer than any event": Lie(
        ({"fault": "longLines", "bytes": 25_000_000, "share": 0.1, **PODS},),
        logged="a line has more than 20 MiB",
    ),
    "bytes one at a time": Lie(
        ({"fault": "drip", **PODS, "verbs": ["list", "watch"]},), unready="Pod", seconds=8.0
    ),
    "gzip that grows, in place of a stream and of pages": Lie(
        ({"fault": "gzipBomb", **PODS, "verbs": ["list", "watch"]},), unready="Pod"
    ),
    "gzip that grows, in place of all answers": Lie(
        ({"fault": "gzipBomb"},), unready="apiServer failed: waiting for", seconds=8.0
    ),
    "half an answer": Lie(
        (REFUSED_STREAM, {"fault": "halfAnswer", **LISTS}),
        unready="Pod",
        seconds=33.0,
    ),
    "half a line of a watch": Lie(
        ({"fault": "halfAnswer", **PODS, "verbs": ["watch"]}, GOING),
        unready="Pod",
        seconds=29.0,
    ),
    "events of another kind": Lie(
        ({"fault": "otherKind", **PODS},),
        logged="of another kind in the stream|an item of the kind 'ConfigMap'",
        when_ready=True,
    ),
    "pages without end": Lie(
        (REFUSED_STREAM, {"fault": "endlessPages", **LISTS}),
        unready=r"Pod \(.*objects so far|the list has not ended after",
        logged="the list has not ended after",
    ),
    "a page of HTML": Lie(
        ({"fault": "answer", "code": 200, "body": "<html>sign in</html>"},),
        unready="apiServer failed: waiting for",
        seconds=8.0,
    ),
    "a page of HTML in place of one kind's answers": Lie(
        ({"fault": "answer", "code": 200, "body": "<html>sign in</html>", **PODS},),
        unready="Pod",
        logged="watching pods.* failed",
    ),
}


@pytest.mark.parametrize("name", CASES)
async def test_the_operator_says_what_is_wrong_and_gets_well(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lie = CASES[name]
    monkeypatch.setenv(MEMORY_VARIABLE, str(lie.memory_mib))
    monkeypatch.setenv(LIST_SECONDS, str(lie.list_seconds))
    plan = FaultPlan(FaultTable.model_validate({"faults": lie.faults}), 1, SystemClock())
    async with _cluster(plan) as cluster, aiohttp.ClientSession() as session:
        port, pods = free_port(), cluster.api.kinds.resource("pods")
        if not lie.when_ready:
            plan.arm()
        async with _operator(cluster, tmp_path, port) as process:
            seen = Seen()
            if lie.when_ready:
                await _until_bound(cluster, session, port, process, "before")
                plan.arm()
            watching = asyncio.create_task(_watch(session, port, process, seen))
            try:
                for number in range(int(lie.seconds)):
                    await asyncio.sleep(1)
                    cluster.api.create(pods, "default", make_pod(f"meanwhile{number}"))
                plan.disarm()
                log = process.log.read_text(encoding="utf-8")
                await _until_bound(cluster, session, port, process, "after")
            finally:
                watching.cancel()
                await asyncio.wait({watching})
        said = "\n".join(sorted(seen.unready))
        # Figures for docs/faults.md: `pytest -s -m long tests/flows/test_lying_server.py`.
        print(f"{name}: at most {seen.peak_mib:.0f} MiB, {dict(plan.counts())}")  # noqa: T201
        assert not seen.dead
        assert seen.peak_mib < lie.memory_mib
        assert re.search(lie.unready, said), said
        assert re.search(lie.logged, log), log


@asynccontextmanager
async def _cluster(plan: FaultPlan) -> AsyncIterator[EmbeddedCluster]:
    options = ClusterOptions(
        controllers=False, kubelet=None, heartbeats=False, faults=plan, identity=ENFORCED
    )
    nodes = [make_node(f"n{number}", cpu="100") for number in range(3)]
    async with EmbeddedCluster(nodes, options=options) as cluster:
        install(cluster, make_profile(PROFILE))
        pods = cluster.api.kinds.resource("pods")
        for number in range(30):
            cluster.api.create(pods, "default", make_pod(f"old{number}", node_name="n1"))
        yield cluster


@asynccontextmanager
async def _operator(cluster: EmbeddedCluster, directory: Path, port: int) -> AsyncIterator[Process]:
    kubeconfig = directory / "kubeconfig"
    write_operator_kubeconfig(cluster, kubeconfig)
    arguments = ("run", "--kubeconfig", str(kubeconfig), "--bind-address", f"127.0.0.1:{port}")
    log = directory / "run.log"
    module = "tests.support.impatient"
    async with running(log, *arguments, "--plain-http", module=module) as process:
        yield process


async def _watch(session: aiohttp.ClientSession, port: int, process: Process, seen: Seen) -> None:
    """Ask both probes and the kernel again and again, until cancelled."""
    while True:
        process.check_alive()
        seen.peak_mib = max(seen.peak_mib, _peak_mib(process.process.pid))
        for probe in ("livez", "readyz"):
            try:
                async with session.get(f"http://127.0.0.1:{port}/{probe}") as answer:
                    text = await answer.text()
            except aiohttp.ClientConnectorError:
                continue  # it is starting
            if answer.status != 200:
                failed = [line for line in text.splitlines() if line.startswith("[-]")]
                (seen.dead if probe == "livez" else seen.unready).update(failed)
        await asyncio.sleep(0.1)


def _peak_mib(pid: int) -> float:
    """The largest resident memory that a process has had."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    (peak_kib,) = re.findall(r"VmHWM:\s+(\d+)", status)
    return int(peak_kib) / 1024


async def _until_bound(
    cluster: EmbeddedCluster,
    session: aiohttp.ClientSession,
    port: int,
    process: Process,
    name: str,
) -> None:
    """Wait until a new pod is bound, and the operator is ready."""
    pods = cluster.api.kinds.resource("pods")
    cluster.api.create(pods, "default", make_pod(name))

    async def is_well() -> bool:
        if not cluster.api.get(pods, "default", name).obj["spec"].get("nodeName"):
            return False
        async with session.get(f"http://127.0.0.1:{port}/readyz") as answer:
            return answer.status == 200

    try:
        async with asyncio.timeout(RECOVERY_SECONDS):
            while not await is_well():  # noqa: ASYNC110 any condition
                await asyncio.sleep(0.1)
    except TimeoutError:
        raise AssertionError(process.log.read_text(encoding="utf-8")[-5000:]) from None
