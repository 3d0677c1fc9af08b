"""Files and addresses that profiles name cost their profile alone: none is read or called unasked.

The operator is a process with `--extender-files-dir` and `--extender-allow`; what holds in a pod is
in tests/unit/stellwerk_kube/test_destinations.py.
"""

import asyncio
import os
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from stellwerk.profiles.spec.profile import GROUP, PLURAL
from stellwerk_cluster.cluster import EmbeddedCluster
from stellwerk_kube.destinations import UrlPrefix
from stellwerk_kube.json_values import JsonObject
from tests.flows.test_ending import cluster_for_operator
from tests.support.builders import make_pod
from tests.support.fake_extender import fake_extender
from tests.support.findings import hold
from tests.support.in_process import make_profile
from tests.support.machine_speed import without_cpu_seconds
from tests.support.processes import Process, running
from tests.support.running_operator import (
    is_active,
    operator_on,
    profile_status,
    until,
)


def odd_files(folder: Path) -> dict[str, str]:
    """Names of profiles, and what each of them names as its caFile."""
    (folder / "directory").mkdir()
    os.mkfifo(folder / "pipe")
    (folder / "sparse").touch()
    os.truncate(folder / "sparse", 8 << 30)
    (folder / "out").symlink_to("/etc/hostname")
    (folder / "zero").symlink_to("/dev/zero")
    return {
        "zero": "/dev/zero",
        "environ": "/proc/self/environ",
        "output": "/proc/self/fd/1",
        "up": f"{folder}/../secret",
        **{name: str(folder / name) for name in ("directory", "pipe", "sparse", "out")},
        "linked-zero": str(folder / "zero"),
    }


ADDRESSES = {
    "metadata": "http://169.254.169.254/latest",
    "six": "http://[::1]:{port}",
    "decimal": "http://2130706433:{port}",
    "mapped": "http://[::ffff:127.0.0.1]:{port}",
    "named": "http://localhost:{port}",
    "folder": "http://127.0.0.1:{port}/granted/../other",
    "user": "http://127.0.0.1:1@localhost:{port}",
    "stranger": "http://extender.stranger.example",
    "stranger-with-tls": "https://extender.stranger.example",
}


def stopwatch(operator: Process) -> Callable[[], float]:
    """Milliseconds from now on, but for those in which the operator or this test has no CPU."""

    def without() -> tuple[float, float]:
        return without_cpu_seconds(operator.process.pid), without_cpu_seconds()

    began, before = time.monotonic(), without()

    def milliseconds() -> float:
        # The two may wait at the same time.
        waited = max(now - then for now, then in zip(without(), before, strict=True))
        return 1000 * (time.monotonic() - began - waited)

    return milliseconds


def condition(cluster: EmbeddedCluster, profile: str, type_: str) -> JsonObject:
    found = [
        each
        for each in profile_status(cluster, profile).get("conditions") or ()
        if each["type"] == type_
    ]
    return found[0] if found else {}


def milliseconds_since(started: float) -> float:
    return 1000 * (asyncio.get_running_loop().time() - started)


def create(cluster: EmbeddedCluster, name: str, **extender: Any) -> None:
    profiles = cluster.api.kinds.resource(PLURAL, GROUP)
    call = {"filterVerb": "filter", "nodeCacheCapable": True, **extender}
    cluster.api.create(profiles, "", make_profile(name, extenders=[call]))


async def test_what_profiles_name_is_refused_in_conditions_and_holds_up_nothing(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    strangers: list[str] = []

    async def stranger(request: web.Request) -> web.Response:
        strangers.append(str(request.url))
        return web.json_response({"nodenames": ["n1"]})

    async def elsewhere(_: web.Request) -> web.Response:
        raise web.HTTPTemporaryRedirect(str(listening.make_url("/filter")))

    application = web.Application()
    application.router.add_post("/granted/redirect/filter", elsewhere)
    application.router.add_route("*", "/{anything:.*}", stranger)
    listening = TestServer(application)
    await listening.start_server()
    port = listening.port
    async with (
        cluster_for_operator(tmp_path) as (cluster, arguments),
        fake_extender({"filter": {"nodenames": ["n1"]}}) as granted,
    ):
        secure = granted.url.replace("http", "https")
        flags = (
            f"--extender-files-dir={folder}",
            f"--extender-allow={granted.url}",
            f"--extender-allow={secure}",
            f"--extender-allow=http://127.0.0.1:{port}/granted",
        )
        async with running(tmp_path / "run.log", "run", *arguments, *flags) as operator:
            await until(lambda: is_active(cluster, "default-scheduler"))
            pods = cluster.api.kinds.resource("pods")
            files = odd_files(folder)
            milliseconds = stopwatch(operator)
            for name, path in files.items():
                create(cluster, name, urlPrefix=secure, tlsConfig={"caFile": path})
            for name, url in ADDRESSES.items():
                create(cluster, name, urlPrefix=url.format(port=port))
            create(cluster, "good", urlPrefix=granted.url)
            create(cluster, "redirected", urlPrefix=f"http://127.0.0.1:{port}/granted/redirect")
            for name in ("good", "redirected", *ADDRESSES, *files):
                cluster.api.create(pods, "default", make_pod(f"of-{name}", scheduler_name=name))

            def refused(name: str) -> bool:
                said = condition(cluster, name, "Accepted")
                return said.get("reason") == "ExtenderNotAllowed"

            def unusable(name: str) -> bool:
                return condition(cluster, name, "ExtenderFilesUsable").get("status") == "False"

            await until(lambda: granted.calls)
            hold("other extender", milliseconds())
            await until(lambda: all(map(refused, ADDRESSES)))
            hold("addresses refused", milliseconds())
            await until(lambda: all(map(unusable, files)))
            hold("files refused", milliseconds())
            for name in ADDRESSES:
                assert "--extender-allow" in condition(cluster, name, "Accepted")["message"]
            for name in files:
                said = condition(cluster, name, "ExtenderFilesUsable")["message"]
                assert "--extender-files-dir" in said, said
            await until(
                lambda: "code 307" in pod_condition(cluster, "of-redirected"),
            )
            hold("strangers called", len(strangers))
            started = asyncio.get_running_loop().time()
            operator.process.terminate()
            assert await operator.process.wait() == 0
            hold("files ending", milliseconds_since(started))
    await listening.close()


def pod_condition(cluster: EmbeddedCluster, name: str) -> str:
    pod = cluster.api.find("pods", "default", name) or {}
    said = (pod.get("status") or {}).get("conditions") or ()
    return " ".join(each.get("message", "") for each in said)


async def test_a_name_that_leads_elsewhere_when_it_is_called_is_not_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    strangers: list[str] = []

    async def stranger(request: web.Request) -> web.Response:
        strangers.append(str(request.url))
        return web.json_response({"nodenames": ["n1"]})

    application = web.Application()
    application.router.add_route("*", "/{anything:.*}", stranger)
    listening = TestServer(application)
    await listening.start_server()
    url = f"http://turning.example:{listening.port}"
    answers = ["10.1.2.3"]
    resolve = type(asyncio.get_running_loop()).getaddrinfo

    async def turning(loop: Any, host: str, port: int, **options: Any) -> Any:
        if host != "turning.example":
            return await resolve(loop, host, port, **options)
        address = answers.pop() if answers else "127.0.0.1"
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))]

    monkeypatch.setattr(type(asyncio.get_running_loop()), "getaddrinfo", turning)
    granted = (UrlPrefix.parse(url),)
    async with (
        cluster_for_operator(tmp_path) as (cluster, _),
        operator_on(cluster, tmp_path, extender_allow=granted),
    ):
        create(cluster, "turning", urlPrefix=url)
        await until(lambda: is_active(cluster, "turning"))
        assert not condition(cluster, "turning", "ExtenderAddressesAllowed")
        assert not answers, "it was resolved, and might have been called there"
        pod = make_pod("of-turning", scheduler_name="turning")
        cluster.api.create(cluster.api.kinds.resource("pods"), "default", pod)
        await until(lambda: "127.0.0.1" in pod_condition(cluster, "of-turning"))
        await until(lambda: condition(cluster, "turning", "ExtenderAddressesAllowed"))
        said = condition(cluster, "turning", "ExtenderAddressesAllowed")
        assert (said["status"], "127.0.0.1" in said["message"]) == ("False", True)
    await listening.close()
    hold("strangers called", len(strangers))
