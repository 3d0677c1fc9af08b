"""The page and the commands ask with the user's own token: over TLS, and as far as the roles go."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from stellwerk.answers.answer import PortAnswer
from stellwerk.answers.decisions import DecisionsPage
from stellwerk.answers.dump import CacheDump
from stellwerk.answers.nodes import NodesPage
from stellwerk.answers.pod import PodExplanation
from stellwerk.answers.profiles import ProfilesPage
from stellwerk.answers.queue import QueueHistoryPage, QueuePage
from stellwerk.answers.what_if import WhatIf
from stellwerk.app import RunOptions, run
from stellwerk.client.operator_port import PortRefusal
from stellwerk.serving.port import PortOptions
from stellwerk_cli.commands.operator_port import LeaderPort, open_port
from stellwerk_cli.commands.port_arguments import PortAddress
from stellwerk_cli.page.server import open_page
from stellwerk_cluster.cluster import ClusterOptions, EmbeddedCluster
from stellwerk_cluster.identity.rbac import RBAC_GROUP
from stellwerk_kube.errors import SchedulerError
from tests.support.in_process import make_profile
from tests.support.rights import (
    ENFORCED,
    NAMESPACE,
    token_of,
    with_token,
    write_operator_kubeconfig,
)
from tests.support.running_operator import install, is_active, until

QUIET = ClusterOptions(controllers=False, kubelet=None, heartbeats=False, identity=ENFORCED)
ROLE = "stellwerk-explanations-reader"
KINDS: Mapping[str, type[PortAnswer]] = {
    "/queue": QueuePage,
    "/queue/history": QueueHistoryPage,
    "/decisions": DecisionsPage,
    "/profiles": ProfilesPage,
    "/nodes": NodesPage,
}


@asynccontextmanager
async def operator_over_tls(cluster: EmbeddedCluster, directory: Path) -> AsyncIterator[str]:
    """The URL of its port, which has a certificate that it made itself."""
    kubeconfig = directory / "operator"
    write_operator_kubeconfig(cluster, kubeconfig)
    port: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    options = RunOptions(kubeconfig=str(kubeconfig), port=PortOptions("127.0.0.1:0"))
    task = asyncio.create_task(run(options, port.set_result))
    try:
        yield f"https://127.0.0.1:{await asyncio.wait_for(port, 60)}"
    finally:
        task.cancel()
        await asyncio.wait({task})


def user(cluster: EmbeddedCluster, name: str, directory: Path) -> Path:
    """The kubeconfig of a new user: a service account, whose tokens the cluster knows."""
    accounts = cluster.api.kinds.resource("serviceaccounts")
    cluster.api.create(accounts, NAMESPACE, {"metadata": {"name": name}})
    kubeconfig = directory / name
    cluster.write_kubeconfig(kubeconfig)
    kubeconfig.write_text(with_token(kubeconfig.read_text(), token_of(cluster, name)))
    return kubeconfig


def allow(cluster: EmbeddedCluster, name: str, role: str = ROLE) -> None:
    bindings = cluster.api.kinds.resource("clusterrolebindings", RBAC_GROUP)
    binding = {
        "metadata": {"name": f"{name}-reads"},
        "roleRef": {"apiGroup": RBAC_GROUP, "kind": "ClusterRole", "name": role},
        "subjects": [{"kind": "ServiceAccount", "namespace": NAMESPACE, "name": name}],
    }
    cluster.api.create(bindings, "", binding)


async def page_of(url: str, kubeconfig: Path) -> tuple[int, str]:
    """Status and text of the page of profiles, as one user sees it."""
    address = PortAddress(kubeconfig=str(kubeconfig), url=url, verify=False)
    jar = aiohttp.CookieJar(unsafe=True)
    async with (
        LeaderPort(address) as leader,
        open_page(leader) as page,
        aiohttp.ClientSession(cookie_jar=jar) as browser,
    ):
        await (await browser.get(page)).read()
        async with browser.get(f"{page.partition('/?')[0]}/profiles") as answer:
            return answer.status, await answer.text()


async def test_each_user_sees_what_the_roles_allow(tmp_path: Path) -> None:
    async with EmbeddedCluster(2, options=QUIET) as cluster:
        install(cluster, make_profile("mine"))
        async with operator_over_tls(cluster, tmp_path) as url:
            await until(lambda: is_active(cluster, "mine"))
            reader, stranger = (user(cluster, each, tmp_path) for each in ("ann", "bob"))
            allow(cluster, "ann")
            status, text = await page_of(url, reader)
            assert (status, "Accepted: True" in text) == (200, True)
            status, text = await page_of(url, stranger)
            assert status == 403
            assert "system:serviceaccount:stellwerk:bob" in text
            address = PortAddress(kubeconfig=str(reader), url=url, verify=False)
            async with LeaderPort(address) as leader:
                for path, kind in KINDS.items():
                    assert isinstance(await leader.get(path, kind), kind)
                answer = await leader.post("/what-if", {"drain": "node-1"}, WhatIf)
                assert answer.drained == "node-1"
                with pytest.raises(PortRefusal, match="there is no pod") as refused:
                    await leader.get("/explain/default/none", PodExplanation)
                assert refused.value.status == 404
            async with open_port(address) as port:
                assert await port.ask_json("/openapi/v3")
                with pytest.raises(PortRefusal) as refused:
                    await port.ask_json("/debug/dump")
                assert refused.value.status == 403
            dumper = user(cluster, "carol", tmp_path)
            allow(cluster, "carol", "stellwerk-dump-reader")
            address = PortAddress(kubeconfig=str(dumper), url=url, verify=False)
            async with open_port(address) as port:
                assert (await port.get("/debug/dump", CacheDump)).compared
                with pytest.raises(PortRefusal):
                    await port.ask_json("/queue")
            # Its certificate is its own: who does not say so gets no further, and sends no token.
            with pytest.raises(SchedulerError, match="certificate"):
                await ask_verified(url, reader)


async def ask_verified(url: str, kubeconfig: Path) -> None:
    async with LeaderPort(PortAddress(kubeconfig=str(kubeconfig), url=url)) as leader:
        await leader.get("/queue", QueuePage)
