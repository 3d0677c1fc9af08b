"""A profile's editor, who may read no Secret, gets none by naming it beside an address of his own.

Both addresses are granted, and the operator may read the Secret: it is the Secret's owner who says
where it may go.
"""

import base64
from functools import partial
from pathlib import Path
from typing import Any

from aiohttp import web
from aiohttp.test_utils import TestServer

from stellwerk.profiles.spec.profile import GROUP, PLURAL
from stellwerk_cluster.cluster import EmbeddedCluster
from stellwerk_kube.destinations import HOSTS_ANNOTATION, UrlPrefix
from stellwerk_kube.json_values import JsonObject
from tests.flows.test_ending import cluster_for_operator
from tests.flows.test_files_and_addresses import condition, create, pod_condition
from tests.support.builders import make_pod
from tests.support.fake_extender import fake_extender
from tests.support.in_process import make_profile
from tests.support.running_operator import is_active, operator_on, until

SECRET = {"namespace": "stellwerk", "name": "stellwerk-extenders"}
"""The one that the operator may read."""


def by_load(name: str, address: str) -> JsonObject:
    """A profile that reads the usage of nodes from a Prometheus, with the Secret's token."""
    provider = {"type": "Prometheus", "address": address, "secretRef": SECRET}
    return make_profile(
        name,
        plugins={"score": {"enabled": [{"name": "TargetLoadPacking", "weight": 1}]}},
        pluginConfig=[{"name": "TargetLoadPacking", "args": {"metricProvider": provider}}],
    )


async def test_credentials_go_to_no_address_of_a_profiles_editor(tmp_path: Path) -> None:
    strangers: list[Any] = []

    async def stranger(request: web.Request) -> web.Response:
        strangers.append((str(request.url), dict(request.headers)))
        return web.json_response({"nodenames": ["n1"]})

    application = web.Application()
    application.router.add_route("*", "/{anything:.*}", stranger)
    listening = TestServer(application)
    await listening.start_server()
    evil = str(listening.make_url("")).rstrip("/")
    async with (
        cluster_for_operator(tmp_path) as (cluster, _),
        fake_extender({"filter": {"nodenames": ["n1"]}}) as victim,
        operator_on(
            cluster,
            tmp_path,
            extender_allow=tuple(
                map(UrlPrefix.parse, (victim.url, evil, evil.replace("http", "https")))
            ),
        ),
    ):
        make_secret(cluster, victim.url)
        good = victim.url.removeprefix("http://")
        attacks = {
            "plain": {"urlPrefix": evil, "secretRef": SECRET},
            "path": {"urlPrefix": f"{evil}/{good}", "secretRef": SECRET},
            "certificate": {
                "urlPrefix": evil.replace("http", "https"),
                "tlsConfig": {"secretRef": SECRET},
            },
        }
        create(cluster, "victim", urlPrefix=victim.url, secretRef=SECRET)
        profiles = cluster.api.kinds.resource(PLURAL, GROUP)
        for name, extender in attacks.items():
            create(cluster, name, **extender)
        cluster.api.create(profiles, "", by_load("load", evil))
        pods = cluster.api.kinds.resource("pods")
        for name in ("victim", *attacks):
            await until(partial(is_active, cluster, name))
            cluster.api.create(pods, "default", make_pod(f"of-{name}", scheduler_name=name))

        await until(lambda: bound(cluster, "of-victim"))
        assert victim.calls[0].headers["Authorization"] == "Basic dXNlcjpodW50ZXIy"
        for name in (*attacks, "load"):
            await until(partial(condition, cluster, name, "SecretsUsable"))
            said = condition(cluster, name, "SecretsUsable")
            assert (said["status"], said["reason"]) == ("False", "NotAllowed")
            assert f"{HOSTS_ANNOTATION} has to name " in said["message"]
            assert str(listening.port) in said["message"]
            assert good not in said["message"] or name == "path"
        for name in attacks:
            await until(partial(is_refused, cluster, f"of-{name}"))
        assert not condition(cluster, "victim", "SecretsUsable")

        # The owner takes the address back: the open connection is used no more.
        write_hosts(cluster, "")
        await until(lambda: condition(cluster, "victim", "SecretsUsable"))
        calls = len(victim.calls)
        cluster.api.create(pods, "default", make_pod("late", scheduler_name="victim"))
        await until(lambda: is_refused(cluster, "late"))
        assert len(victim.calls) == calls

        # And grants it again, with the condition gone within the same time.
        write_hosts(cluster, victim.url)
        await until(lambda: condition(cluster, "victim", "SecretsUsable")["status"] == "True")
    await listening.close()
    assert strangers == []


def make_secret(cluster: EmbeddedCluster, url: str) -> None:
    texts = {"username": "user", "password": "hunter2", "token": "hunter2"}
    data = {key: base64.b64encode(text.encode()).decode() for key, text in texts.items()}
    metadata = {**SECRET, "annotations": {HOSTS_ANNOTATION: url}}
    kind = cluster.api.kinds.resource("secrets")
    cluster.api.create(kind, "stellwerk", {"metadata": metadata, "data": data})


def write_hosts(cluster: EmbeddedCluster, hosts: str) -> None:
    kind = cluster.api.kinds.resource("secrets")
    patch = {"metadata": {"annotations": {HOSTS_ANNOTATION: hosts}}}
    cluster.api.patch(kind, ("stellwerk", SECRET["name"]), patch)


def is_refused(cluster: EmbeddedCluster, pod: str) -> bool:
    """Whether the pod's condition says what the owner of the Secret has to write."""
    return "has to name" in pod_condition(cluster, pod)


def bound(cluster: EmbeddedCluster, name: str) -> bool:
    pod = cluster.api.find("pods", "default", name) or {}
    return bool((pod.get("spec") or {}).get("nodeName"))
