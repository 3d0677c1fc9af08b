"""An observer lives with the rights of its overlay, uses every one, and writes nothing else.

RBAC is enforced, and `stellwerk run --observe` comes with a token of its own service account, with
the roles of manifests/overlays/observe. Another scheduler, played by the test, binds pods.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import aiohttp
import pytest

from stellwerk.app import RunOptions, run
from stellwerk.client.allowed_writes import AllowedWrites
from stellwerk.profiles.spec.profile import GROUP, PLURAL
from stellwerk.serving.port import PortOptions
from stellwerk_cluster.cluster import EmbeddedCluster
from stellwerk_cluster.identity.rbac import RBAC_GROUP
from stellwerk_cluster.registry.binding import bind as bind_in_store
from stellwerk_kube.errors import Forbidden
from stellwerk_kube.json_values import JsonObject
from tests.flows.test_least_privilege import (
    LATER,
    LEASE,
    bound,
    create,
    create_pod,
    define_kinds,
    enforced,
    free_address,
    pod,
    read_again,
    restricted_operator,
)
from tests.support.rights import (
    Asked,
    access_manifests,
    apply_access,
    asked_rights,
    observer_manifests,
    rights_in,
    rules_of_operator,
    token_of,
    with_token,
)
from tests.support.running_operator import profile_status, prompt, until

OBSERVED = "default-scheduler"
WRITES = {
    ("coordination.k8s.io", "leases", "create"),
    ("coordination.k8s.io", "leases", "update"),
    (GROUP, "schedulerprofiles/status", "patch"),
}
"""Everything that an observer writes."""
QUESTIONS = {
    ("authentication.k8s.io", "tokenreviews", "create"),
    ("authorization.k8s.io", "subjectaccessreviews", "create"),
    ("authorization.k8s.io", "selfsubjectaccessreviews", "create"),
}
"""What it asks by a POST: they store nothing."""
READING = {"get", "list", "watch"}


def make_profile(name: str, **spec: Any) -> JsonObject:
    return {"metadata": {"name": name}, "spec": {"schedulerName": name, **spec}}


@asynccontextmanager
async def observer(
    cluster: EmbeddedCluster, token: str, directory: Path, address: str = "127.0.0.1:0"
) -> AsyncIterator[list[str]]:
    """Run an observer until the block ends; yields the acts that its client has refused."""
    kubeconfig = directory / "kubeconfig"
    cluster.write_kubeconfig(kubeconfig)
    kubeconfig.write_text(with_token(kubeconfig.read_text(), token))
    options = RunOptions(
        kubeconfig=str(kubeconfig),
        port=PortOptions(address),
        leader_election=LEASE,
        history_namespace="stellwerk",
        observe_only=True,
    )
    refused, check = list[str](), AllowedWrites.check

    def noting(
        self: AllowedWrites, method: str, path: str, body: Mapping[str, Any] | None, act: str
    ) -> None:
        try:
            check(self, method, path, body, act)
        except Forbidden:
            refused.append(act)
            raise

    with prompt(), patch.object(AllowedWrites, "check", noting):
        task = asyncio.create_task(run(options), name="observer")
        try:
            yield refused
        finally:
            task.cancel()
            await asyncio.wait({task})
    if not task.cancelled():
        task.result()


def conditions(cluster: EmbeddedCluster, name: str) -> dict[str, tuple[str, str]]:
    """(status, reason) by type of the conditions of a profile."""
    found = profile_status(cluster, name).get("conditions", ())
    return {each["type"]: (each["status"], each["reason"]) for each in found}


def bind(cluster: EmbeddedCluster, name: str, node_name: str) -> None:
    """Bind a pod, as the other scheduler does."""
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": name, "namespace": "default"},
        "target": {"kind": "Node", "name": node_name},
    }
    kind = cluster.api.kinds.resource("pods")
    bind_in_store(cluster.api, kind, ("default", name), binding)


async def watch_another_scheduler(cluster: EmbeddedCluster) -> None:
    """Pods that fit, that fit nowhere, and that the other scheduler binds."""
    create(cluster, PLURAL, make_profile(OBSERVED, mode="Observe"), GROUP)
    create(cluster, PLURAL, make_profile("own"), GROUP)
    await until(lambda: conditions(cluster, OBSERVED).get("Active") == ("True", "Observing"))
    await until(lambda: conditions(cluster, "own").get("Ready") == ("False", "ObserveOnly"))
    for name, cpu in (("taken", "100m"), ("waiting", "100m"), ("huge", "500")):
        create_pod(cluster, name, cpu=cpu, scheduler_name=OBSERVED)
    create_pod(cluster, "of-own", scheduler_name="own")
    create_pod(cluster, "nobodys", scheduler_name="nobody")
    bind(cluster, "taken", "node-0000")
    await until(lambda: bound(cluster, "taken"))
    await asyncio.sleep(1)  # time for what must not happen


def written(asked: Asked) -> set[tuple[str, str, str]]:
    """The writes that were asked of the API server."""
    return {each for each in asked.allowed | asked.refused if each[2] not in READING}


async def test_every_right_of_the_overlay_is_used_and_no_other_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with asked_rights(monkeypatch) as asked:
        async with enforced() as cluster:
            token = apply_access(cluster, observer_manifests())
            define_kinds(cluster)
            async with observer(cluster, token, tmp_path) as refused:
                await watch_another_scheduler(cluster)
                await read_again(tmp_path / "kubeconfig")
                for name in ("waiting", "huge", "of-own", "nobodys"):
                    seen = pod(cluster, name)
                    assert "nodeName" not in seen["spec"]
                    assert "conditions" not in seen.get("status", {}), name
                events = [
                    each
                    for namespace in ("default", "stellwerk", "kube-system")
                    for each in cluster.api.all("events", namespace)
                    if each.get("reportingController", "") != "kubelet"
                    and each.get("source", {}).get("component") != "kubelet"
                ]
                assert events == []
                assert list(cluster.api.all("controllerrevisions.apps", "stellwerk")) == []
                names = [each["metadata"]["name"] for each in cluster.api.all(f"{PLURAL}.{GROUP}")]
                assert sorted(names) == [OBSERVED, "own"], "no default profile is made"
            assert refused == [], "the client had nothing to hold back"
    assert asked.refused == set()
    assert sorted(rights_in(observer_manifests()) - asked.allowed - LATER) == []
    assert written(asked) - QUESTIONS == WRITES


@pytest.mark.long
async def test_with_more_rights_an_observer_writes_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifests = observer_manifests()
    for role in manifests:
        if rules_of_operator(role):
            everything = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}
            role["rules"] = [everything]
    with asked_rights(monkeypatch) as asked:
        async with enforced() as cluster:
            token = apply_access(cluster, manifests)
            define_kinds(cluster)
            async with observer(cluster, token, tmp_path) as refused:
                await watch_another_scheduler(cluster)
            assert refused == []
    assert written(asked) - QUESTIONS == WRITES


@pytest.mark.long
async def test_a_profile_that_schedules_waits_for_the_right_to_bind(tmp_path: Path) -> None:
    """The role is an observer's, and the process no observer: one step of a change-over is left."""
    full = next(each for each in access_manifests() if rules_of_operator(each))
    async with enforced() as cluster:
        token = apply_access(cluster, observer_manifests())
        define_kinds(cluster)
        create(cluster, PLURAL, make_profile("own", mode="Observe"), GROUP)
        async with restricted_operator(cluster, token, tmp_path):
            await until(lambda: conditions(cluster, "own").get("Active") == ("True", "Observing"))
            create_pod(cluster, "a", cpu="100m", scheduler_name="own")
            profiles = cluster.api.kinds.resource(PLURAL, GROUP)
            cluster.api.patch(profiles, ("", "own"), {"spec": {"mode": "Schedule"}})
            await until(lambda: conditions(cluster, "own")["Ready"] == ("False", "RightMissing"))
            assert conditions(cluster, "own")["Active"] == ("True", "LastGoodVersion")
            assert not bound(cluster, "a")
            roles = cluster.api.kinds.resource("clusterroles", RBAC_GROUP)
            cluster.api.patch(roles, ("", "stellwerk"), {"rules": full["rules"]})
            await until(lambda: bound(cluster, "a"))
            await until(lambda: conditions(cluster, "own")["Ready"] == ("True", "Serving"))


@pytest.mark.long
async def test_the_port_of_an_observer_knows_its_callers(tmp_path: Path) -> None:
    address = free_address()
    async with enforced() as cluster:
        token = apply_access(cluster, observer_manifests())
        define_kinds(cluster)
        create(cluster, PLURAL, make_profile(OBSERVED, mode="Observe"), GROUP)
        async with observer(cluster, token, tmp_path, address) as refused:
            await until(lambda: conditions(cluster, OBSERVED).get("Ready", ("",))[0] == "True")
            # The observer's own account may not read its port: it is known, and refused.
            assert await answer(address, token_of(cluster, "stellwerk")) == 403
            assert await answer(address, "wrong") == 401
        assert refused == []


async def answer(address: str, token: str) -> int:
    """The status of the observer's metrics for a bearer of that token."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    headers = {"Authorization": f"Bearer {token}"}
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"https://{address}/metrics", headers=headers, ssl=context) as response,
    ):
        return response.status
