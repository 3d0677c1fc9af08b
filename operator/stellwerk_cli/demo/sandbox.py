"""An embedded cluster and the operator in one process: what `demo` and `up` show.

Invariant: leaving it stops both and removes what was written, also when either failed.
"""

import asyncio
import socket
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import aiohttp

from stellwerk.answers.pod import PodExplanation
from stellwerk.app import RunOptions, run
from stellwerk.client.lease import URL_ANNOTATION
from stellwerk.client.operator_port import OperatorPort, PortRefusal
from stellwerk.serving.port import PortOptions
from stellwerk_cli.demo.addresses import Addresses
from stellwerk_cli.embedded_cluster import ApiFeatures, kubelet_options, open_cluster
from stellwerk_cli.page.answers import ApiReader
from stellwerk_cli.page.server import open_page
from stellwerk_cli.progress_line import waiting_for
from stellwerk_cluster.cluster import EmbeddedCluster
from stellwerk_cluster.kubeconfig import CONTEXT, KubeconfigFile
from stellwerk_kube.errors import cannot_listen

_NAMESPACE: Final = "stellwerk"
_LEASE: Final = "stellwerk"
"""Both as the manifests have them, where commands look first."""


@dataclass(slots=True)
class Sandbox:
    """A cluster with its scheduler."""

    cluster: EmbeddedCluster
    kubeconfig: Path
    operator: "asyncio.Task[None]"
    url: str
    """The operator's port."""
    context: str
    """To be named to kubectl; empty: the current one."""

    async def explain(self, namespace: str, name: str) -> PodExplanation | None:
        """The operator's explanation of a pod; None: it knows none of that name."""
        async with aiohttp.ClientSession() as session:
            port = OperatorPort(session, self.url)
            try:
                return await port.get(f"/explain/{namespace}/{name}", PodExplanation)
            except PortRefusal:
                return None


@asynccontextmanager
async def open_sandbox(
    nodes: str | int | list[dict[str, Any]],
    file: KubeconfigFile | None = None,
    port: int = 0,
    features: ApiFeatures | None = None,
    devices: Sequence[str] = (),
    operator_port: int = 0,
) -> AsyncIterator[Sandbox]:
    """Yield a cluster of these nodes with the operator on it; `features` are on in its API.

    The lease that commands look up names the operator's port, so that they need the kubeconfig
    alone.

    Raises:
        ConfigurationError: the nodes cannot be read, the operator cannot start, or the kubeconfig
            cannot be written.
    """
    kubelet = replace(kubelet_options(None, None, devices), tells_of_containers=True)
    # The API serves groups of pods, so the profiles place them as groups.
    features = replace(features or ApiFeatures(), storage_class=True, gang_scheduling=True)
    async with AsyncExitStack() as stack:
        if file is None:
            directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="stellwerk-"))
            file = KubeconfigFile(Path(directory) / "kubeconfig")
        stack.callback(file.remove)
        cluster = open_cluster(nodes, port, features=features, kubelet=kubelet)
        try:
            await stack.enter_async_context(cluster)
        except OSError as error:
            raise cannot_listen(f"port {port}", error) from error
        file.write(cluster.kubeconfig())
        serving: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        namespaces = cluster.api.kinds.resource("namespaces")
        cluster.api.ensure(namespaces, "", {"metadata": {"name": _NAMESPACE}})
        options = RunOptions(
            kubeconfig=str(file.path),
            context=CONTEXT,
            port=PortOptions(f"127.0.0.1:{operator_port}", plain_http=True),
            history_namespace=_NAMESPACE,
            is_own_cluster=True,
        )
        operator = asyncio.create_task(run(options, serving.set_result), name="operator")
        cluster.components["scheduler"] = lambda: "the operator has ended" * operator.done()
        stack.push_async_callback(_stop, operator)
        either: set[asyncio.Future[Any]] = {operator, serving}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if operator.done():
            # It ended of its own accord: its error is the sandbox's.
            await operator
        address = f"127.0.0.1:{await serving}"
        url = f"http://{address}"
        _publish(cluster, address, url)
        context = CONTEXT if file.is_shared else ""
        yield Sandbox(cluster, file.path, operator, url, context)


def _publish(cluster: EmbeddedCluster, address: str, url: str) -> None:
    """Name the operator's port in the lease that commands look up."""
    leases = cluster.api.kinds.resource("leases", "coordination.k8s.io")
    lease = {
        "metadata": {"name": _LEASE, "annotations": {URL_ANNOTATION: url}},
        "spec": {"holderIdentity": address},
    }
    cluster.api.create(leases, _NAMESPACE, lease)


async def _stop(operator: "asyncio.Task[None]") -> None:
    operator.cancel()
    await asyncio.wait({operator})


@dataclass(frozen=True, slots=True)
class PageOptions:
    """The page of a sandbox."""

    port: int = 0
    reader_of: Callable[[str, str, str], ApiReader] | None = None
    """Reads the API server, by kubeconfig, context and the operator's namespace."""


ANY_PORT: Final = PageOptions()


async def run_up(
    nodes: str,
    port: int,
    file: KubeconfigFile,
    tell: Callable[[Addresses], None],
    page: PageOptions = ANY_PORT,
    features: ApiFeatures | None = None,
    devices: Sequence[str] = (),
    operator_port: int = 0,
) -> None:
    """Run until the operator ends, which SIGTERM and SIGINT make it do.

    `tell` gets the addresses once all of them answer.
    """
    for each in (page.port, operator_port):
        _check_free(each)
    async with AsyncExitStack() as stack:
        with waiting_for("starting the cluster and its scheduler"):
            sandbox = await stack.enter_async_context(
                open_sandbox(nodes, file, port, features, devices, operator_port)
            )
        session = await stack.enter_async_context(aiohttp.ClientSession())
        of = page.reader_of
        api = None if of is None else of(str(file.path), CONTEXT, _NAMESPACE)
        page_url = await stack.enter_async_context(
            open_page(OperatorPort(session, sandbox.url), page.port, api)
        )
        tell(
            Addresses(
                release=(features or ApiFeatures()).groups_of_pods(),
                cluster=sandbox.cluster.url,
                kubeconfig=str(file.path),
                context=sandbox.context,
                scheduler=sandbox.url,
                page=page_url,
                node=_first_node(sandbox.cluster),
            )
        )
        await sandbox.operator


def _first_node(cluster: EmbeddedCluster) -> str:
    """The name of the first node; empty: there is none."""
    return min((str(each["metadata"]["name"]) for each in cluster.api.all("nodes")), default="")


def _check_free(port: int) -> None:
    """Refuse a port that is taken before a cluster is started.

    Raises:
        ConfigurationError: it is taken.
    """
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            taken.bind(("127.0.0.1", port))
        except OSError as error:
            raise cannot_listen(f"127.0.0.1:{port}", error) from error
