"""Plugins that do not return, in a running operator: cut off, or the process is given up."""

import asyncio
import json
import signal
import socket
from pathlib import Path

import pytest

from tests.support.builders import make_pod
from tests.support.enforced_process import enforced_cluster
from tests.support.in_process import make_profile
from tests.support.processes import fetch, running, until

SOURCE = """
import collections
import itertools

from stellwerk.framework.interface import FilterPlugin


class Looping(FilterPlugin):
    name = "Looping"

    def __init__(self, handle, args):
        pass

    def filter(self, state, pod, nodes):
        while True:
            pass


class Blocking(Looping):
    name = "Blocking"

    def filter(self, state, pod, nodes):
        # Never back in Python, where the timer's signal would be heard.
        collections.deque(itertools.repeat(0), maxlen=0)
"""
ENTRY_POINTS = """[stellwerk.plugins]
Looping = bad_plugins:Looping
Blocking = bad_plugins:Blocking
"""


@pytest.fixture
def _bad_plugins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package of bad plugins, installed for the processes that the test starts."""
    site = tmp_path / "site"
    about = site / "bad_plugins-1.0.dist-info"
    about.mkdir(parents=True)
    (site / "bad_plugins.py").write_text(SOURCE)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: bad-plugins\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(ENTRY_POINTS)
    monkeypatch.setenv("PYTHONPATH", str(site), prepend=":")


def free_address() -> str:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{listener.getsockname()[1]}"


async def use(server: str, plugin: str) -> None:
    """A profile with the plugin, and a pod for it."""
    profile = make_profile(plugin.lower(), plugins={"filter": {"enabled": [{"name": plugin}]}})
    for field in ("uid", "generation", "creationTimestamp"):
        del profile["metadata"][field]
    await fetch(f"{server}/apis/scheduling.stellwerk.dev/v1alpha1/schedulerprofiles", profile)
    await create(server, "stuck", plugin.lower())


async def create(server: str, name: str, scheduler_name: str) -> None:
    pod = make_pod(name, cpu="100m", scheduler_name=scheduler_name)
    del pod["metadata"]["uid"]
    await fetch(f"{server}/api/v1/namespaces/default/pods", pod)


async def pods(server: str) -> dict[str, dict[str, object]]:
    listed = json.loads(await fetch(f"{server}/api/v1/namespaces/default/pods"))
    return {pod["metadata"]["name"]: pod for pod in listed["items"]}


@pytest.mark.usefixtures("_bad_plugins")
async def test_a_loop_is_cut_off_and_named_and_everybody_else_is_scheduled(tmp_path: Path) -> None:
    address = free_address()
    words = 'running Filter plugin "Looping": did not return within 0.5 s'
    async with enforced_cluster(tmp_path) as enforced:
        cluster, server, kubeconfig = enforced.process, enforced.server, enforced.kubeconfig
        options = ("--plain-http", "--bind-address", address, "--plugin-timeout", "0.5")
        arguments = ("run", "--kubeconfig", str(kubeconfig), *options)
        async with running(tmp_path / "run.log", *arguments, is_forked=False) as operator:
            await use(server, "Looping")

            async def told() -> bool:
                status = (await pods(server))["stuck"]["status"]
                return words in json.dumps(status).replace('\\"', '"')

            await until(told, cluster, operator)
            await create(server, "fine", "stellwerk")

            async def bound() -> bool:
                return bool((await pods(server))["fine"]["spec"].get("nodeName"))  # type: ignore[attr-defined]

            await until(bound, cluster, operator)
            assert await fetch(f"http://{address}/livez") == b"ok"
            metrics = (await fetch(f"http://{address}/metrics")).decode()
            labels = 'extension_point="Filter",plugin="Looping",profile="looping"'
            assert f"stellwerk_plugin_failures_total{{{labels}}}" in metrics
            operator.process.send_signal(signal.SIGUSR2)
            log = tmp_path / "run.log"

            async def dumped() -> bool:
                text = await asyncio.to_thread(log.read_text)
                return words in text and "unschedulablePods:" in text

            await until(dumped, operator)
            assert "cache compared with the API: no discrepancies" in log.read_text()
            assert await operator.stop() == 0


@pytest.mark.usefixtures("_bad_plugins")
async def test_code_that_never_returns_to_python_fails_the_liveness_probe(tmp_path: Path) -> None:
    address = free_address()
    async with enforced_cluster(tmp_path) as enforced:
        kubeconfig = enforced.kubeconfig
        async with running(
            tmp_path / "run.log",
            *("run", "--kubeconfig", str(kubeconfig), "--bind-address", address),
            *("--plain-http", "--plugin-timeout", "0.5"),
            is_forked=False,
        ) as operator:

            async def live() -> bool:
                try:
                    return await fetch(f"http://{address}/livez") == b"ok"
                except OSError:
                    return False

            await until(live, operator)
            await use(enforced.server, "Blocking")

            async def dead() -> bool:
                try:
                    await asyncio.wait_for(fetch(f"http://{address}/livez"), 1.0)
                except (OSError, TimeoutError):
                    return True
                return False

            await until(dead, operator)
            # The kubelet's next step: SIGTERM is not heard either.
            operator.process.kill()
            await operator.process.wait()
