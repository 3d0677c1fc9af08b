"""Sixteen askers at once, with the dearest questions there are: the lease is never lost."""

import asyncio
import os
import socket
import time
from itertools import cycle
from pathlib import Path

import orjson
import pytest
import yaml

from tests.flows.test_costs_of_questions import eight_bodies, questions
from tests.support.enforced_process import enforced_cluster
from tests.support.findings import hold
from tests.support.limited_ports import ELSEWHERE, LimitedPort
from tests.support.processes import Process, running, until
from tests.support.replicas import OWN_LEASE

ASKERS = 16
LEASE = (
    "--leader-elect=true",
    "--leader-elect-lease-duration=3s",
    "--leader-elect-renew-deadline=2s",
    "--leader-elect-retry-period=500ms",
    *OWN_LEASE,
)
_LARGEST = 256 << 10


def status(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1]) if answer else 0


def resident_mib(process: Process) -> float:
    pages = int(Path(f"/proc/{process.process.pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


async def live_seconds(port: LimitedPort) -> float:
    began = time.monotonic()
    assert status(await port.answer(port.get("/livez"), ELSEWHERE)) == 200
    return time.monotonic() - began


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
    waits: list[float] = []
    failed = 0
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
            alone = sorted([await live_seconds(port) for _ in range(15)])[7]
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
            while time.monotonic() < ends:
                try:
                    waits.append(await live_seconds(port))
                except OSError:
                    failed += 1
                most = max(most, resident_mib(operator))
                await asyncio.sleep(0.1)
            await asyncio.gather(*asking)
            operator.check_alive()
            logged = operator.log.read_text(encoding="utf-8")
            assert await operator.stop() == 0
    waits.sort()
    shown = [f"{waits[len(waits) * share // 100]:.3f}" for share in (50, 95, 99)]
    rss = f"RSS {before:.0f} {most:.0f} MiB"
    print(f"answers {found}, {rss}, /livez {alone:.3f} {shown}, {failed} failed")  # noqa: T201 figures
    assert found.keys() <= {200, 400, 413, 422, 429}
    assert found.get(200, 0) > 0
    hold("askers leases", sum("lost" in line and "lease" in line for line in logged.splitlines()))
    hold("askers memory", most - before)
    # A machine that is busy with other things makes a probe wait without any asker.
    assert waits[len(waits) // 2] < max(0.1, 4 * alone)
    assert failed <= len(waits) // 50
