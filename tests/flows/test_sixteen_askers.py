"""Sixteen askers at once, with the dearest questions there are: the lease is never lost.

Each probe is answered in time, but for what the operator waits for a CPU that others have: the
askers, the cluster and whatever else runs on this machine.
"""

import asyncio
import os
import socket
import time
from dataclasses import dataclass, field
from datetime import datetime
from itertools import cycle, pairwise
from pathlib import Path

import aiohttp
import orjson
import pytest
import yaml

from tests.flows.live_probe import Probe, probes_in
from tests.flows.test_costs_of_questions import eight_bodies, questions
from tests.support.enforced_process import enforced_cluster
from tests.support.findings import hold
from tests.support.limited_ports import LimitedPort
from tests.support.processes import Process, running, trusting, until
from tests.support.replicas import OWN_LEASE

ASKERS = 16
LEASE = (
    "--leader-elect=true",
    "--leader-elect-lease-duration=3s",
    "--leader-elect-renew-deadline=2s",
    "--leader-elect-retry-period=500ms",
    *OWN_LEASE,
)
_LEASE = "/apis/coordination.k8s.io/v1/namespaces/stellwerk/leases/stellwerk"
_LARGEST = 256 << 10
_RENEW_SECONDS = 2.0


def status(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1]) if answer else 0


def resident_mib(process: Process) -> float:
    pages = int(Path(f"/proc/{process.process.pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


@dataclass
class Renewals:
    """The holder of the lease, and when it was renewed, as others see it."""

    holders: set[str] = field(default_factory=set)
    times: list[datetime] = field(default_factory=list)

    async def follow(self, server: str, token: str) -> None:
        """Look again and again."""
        headers = {"Authorization": f"Bearer {token}"}
        connector = aiohttp.TCPConnector(ssl=trusting())
        async with aiohttp.ClientSession(connector=connector, headers=headers) as session:
            while True:
                async with session.get(f"{server}{_LEASE}") as answer:
                    spec = (await answer.json())["spec"]
                self.holders.add(spec["holderIdentity"])
                renewed = datetime.fromisoformat(spec["renewTime"])
                if renewed not in self.times:
                    self.times.append(renewed)
                await asyncio.sleep(0.1)

    @property
    def longest_seconds(self) -> float:
        """Between two renewals."""
        return max((after - before).total_seconds() for before, after in pairwise(self.times))


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        number: int = free.getsockname()[1]
    return number


async def answers(port: LimitedPort) -> bool:
    try:
        return status(await port.answer(port.get("/readyz"))) == 200
    except OSError:
        return False


def judge(probes: list[Probe], renewals: Renewals, seconds: float) -> None:
    """Hold probes and renewals to their bounds."""
    shown = []
    for each in (sorted(p.seconds for p in probes), sorted(p.own_seconds for p in probes)):
        shares = [each[len(each) * share // 100] for share in (50, 95, 99)]
        shown.append(", ".join(f"{1000 * wait:.0f}" for wait in [*shares, each[-1]]))
    print(  # noqa: T201 figures
        f"/livez in ms at 50, 95, 99 and 100 % of {len(probes)}: {shown[0]}; without waits for a "
        f"CPU: {shown[1]}; {len(renewals.times)} renewals, at most "
        f"{renewals.longest_seconds:.1f} s apart"
    )
    assert len(probes) >= seconds
    hold("askers probes", 1000 * max(probe.own_seconds for probe in probes))
    assert len(renewals.holders) == 1
    assert len(renewals.times) >= seconds / _RENEW_SECONDS
    assert renewals.longest_seconds <= _RENEW_SECONDS


@pytest.mark.parametrize(
    "seconds",
    [
        pytest.param(20, marks=pytest.mark.long),
        pytest.param(600, marks=[pytest.mark.soak, pytest.mark.timeout(900)]),
    ],
)
async def test_sixteen_askers_never_cost_the_lease(tmp_path: Path, seconds: int) -> None:
    number = free_port()
    port = LimitedPort(number, tls=True, live="/livez")
    bodies = [orjson.dumps(each) for each in (*eight_bodies(), *questions().values())]
    asked = cycle([body for body in bodies if len(body) <= _LARGEST])
    found: dict[int, int] = {}
    renewals = Renewals()
    async with enforced_cluster(tmp_path, "--nodes", "1000") as enforced:
        admin = yaml.safe_load((tmp_path / "admin.kubeconfig").read_text("utf-8"))
        token = admin["users"][0]["user"]["token"]
        options = (
            "--kubeconfig",
            str(enforced.kubeconfig),
            "--bind-address",
            f"127.0.0.1:{number}",
        )
        async with running(tmp_path / "run.log", "run", *options, *LEASE) as operator:
            await until(lambda: answers(port), operator)
            await asyncio.sleep(3)
            before = resident_mib(operator)
            most, ends = before, time.monotonic() + seconds

            async def ask(address: str) -> None:
                while time.monotonic() < ends:
                    request = port.get("/what-if", token, method="POST", body=next(asked))
                    try:
                        told = status(await port.answer(request, address))
                    except (OSError, TimeoutError):  # others of this user come first
                        continue
                    found[told] = found.get(told, 0) + 1
                    if told == 429:
                        await asyncio.sleep(0.5)

            asking = [asyncio.create_task(ask(f"127.0.3.{each + 1}")) for each in range(ASKERS)]
            following = asyncio.create_task(renewals.follow(enforced.server, token))
            probed = (str(number), str(operator.process.pid))
            module = "tests.flows.live_probe"
            async with running(tmp_path / "probes.log", *probed, module=module) as probing:
                while time.monotonic() < ends:
                    most = max(most, resident_mib(operator))
                    probing.check_alive()
                    assert not following.done(), following.result()
                    await asyncio.sleep(0.1)
                probing.process.kill()
            await asyncio.gather(*asking)
            following.cancel()
            operator.check_alive()
            logged = operator.log.read_text(encoding="utf-8")
            assert await operator.stop() == 0
    assert found.keys() <= {200, 400, 413, 422, 429}
    assert found.get(200, 0) > 0
    hold("askers leases", sum("lost" in line and "lease" in line for line in logged.splitlines()))
    hold("askers memory", most - before)
    print(f"answers {found}, RSS {before:.0f} {most:.0f} MiB", end=", ")  # noqa: T201 figures
    judge(probes_in(tmp_path / "probes.log"), renewals, seconds)
