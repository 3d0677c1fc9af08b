"""`stellwerk up`: says where the cluster and the scheduler are, and what to try.

The command line calls `run_up`. Invariant: the commands that are printed work as they are printed.
"""

import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from shlex import quote
from typing import TextIO

import aiohttp

from stellwerk.client.operator_port import OperatorPort
from stellwerk.demo.sandbox import open_sandbox, own_command
from stellwerk.errors import cannot_listen
from stellwerk.page.server import open_page
from stellwerk_cluster.command import ApiFeatures


async def run_up(
    nodes: str,
    port: int,
    kubeconfig: Path,
    page_port: int = 0,
    features: ApiFeatures | None = None,
    devices: Sequence[str] = (),
    operator_port: int = 0,
    output: TextIO | None = None,
) -> None:
    """Run until the operator ends, which SIGTERM and SIGINT make it do."""
    output = output or sys.stdout
    for each in (page_port, operator_port):
        _check_free(each)
    async with (
        open_sandbox(nodes, kubeconfig, port, features, devices, operator_port) as sandbox,
        aiohttp.ClientSession() as session,
        open_page(OperatorPort(session, sandbox.url), page_port) as page,
    ):
        command, file = own_command(), sandbox.kubeconfig
        print((features or ApiFeatures()).groups_of_pods(), file=output)
        print(f"Cluster:    {sandbox.cluster.url}", file=output)
        print(f"Kubeconfig: {file}", file=output)
        print(f"Scheduler:  {sandbox.url}", file=output)
        print(f"Page:       {page}", file=output)
        print("\nTry, in another terminal:", file=output)
        print(f"  export KUBECONFIG={quote(str(file))}", file=output)
        print("  kubectl run hello --image=registry.k8s.io/pause:3.10", file=output)
        print(f"  {command} explain pod hello", file=output)
        print(f"  {command} what-if --drain node-1", file=output)
        print("\nStop: Ctrl-C", file=output, flush=True)
        await sandbox.operator


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
