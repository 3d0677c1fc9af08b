"""kube-apiserver and etcd as processes of this benchmark, from binaries that the user names.

`bench_api_cost` measures schedulers against them, and reads what the two processes cost. The
cluster has no controllers and no kubelets: nothing but the scheduler and the benchmark changes an
object. The SchedulerProfile CRD is there, as users install it; without it the operator waits for it
at its start. Two admission plugins are off, because the controllers that they count on do not run:
ServiceAccount (accounts of namespaces) and TaintNodesByCondition (the taint of new nodes).
"""

import json
import secrets
import socket
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.client import HTTPResponse
from pathlib import Path
from typing import Final, NamedTuple

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from stellwerk.profiles.spec.crd import crd_manifest
from stellwerk_kube.json_values import JsonObject

_START_SECONDS: Final = 180.0
"""Time for kube-apiserver to become ready; it takes 10 s of CPU."""
_STOP_SECONDS: Final = 30.0
_POLL_SECONDS: Final = 0.2
_CRDS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


class Binaries(NamedTuple):
    """Paths of the programs that make a control plane."""

    kube_apiserver: Path
    etcd: Path


class RealApi(NamedTuple):
    """A running API server: how to reach it, and its processes."""

    kubeconfig: Path
    api_server_pid: int
    etcd_pid: int


@contextmanager
def real_api(binaries: Binaries, directory: Path) -> Iterator[RealApi]:
    """Serve an empty cluster from files in `directory` while the block lasts.

    Raises:
        RuntimeError: one of the two does not start; its log is part of the message.
    """
    etcd_port, peer_port, port = (_free_port() for _ in range(3))
    token = secrets.token_hex(16)
    (directory / "tokens.csv").write_text(f"{token},admin,admin,system:masters\n")
    key = ec.generate_private_key(ec.SECP256R1()).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )
    (directory / "accounts.key").write_bytes(key)
    etcd_url, peer_url = (f"http://127.0.0.1:{each}" for each in (etcd_port, peer_port))
    with ExitStack() as stack:
        etcd = stack.enter_context(
            _process(
                directory / "etcd.log",
                str(binaries.etcd),
                f"--data-dir={directory / 'etcd'}",
                f"--listen-client-urls={etcd_url}",
                f"--advertise-client-urls={etcd_url}",
                f"--listen-peer-urls={peer_url}",
                f"--initial-advertise-peer-urls={peer_url}",
                f"--initial-cluster=default={peer_url}",
                "--quota-backend-bytes=8589934592",
                # The disk's speed would decide how many writes one transaction takes.
                "--unsafe-no-fsync",
            )
        )
        server = stack.enter_context(
            _process(
                directory / "kube-apiserver.log",
                str(binaries.kube_apiserver),
                f"--etcd-servers={etcd_url}",
                "--bind-address=127.0.0.1",
                f"--secure-port={port}",
                f"--cert-dir={directory / 'certificates'}",
                f"--token-auth-file={directory / 'tokens.csv'}",
                "--authorization-mode=RBAC",
                "--service-account-issuer=https://kubernetes.default.svc",
                f"--service-account-key-file={directory / 'accounts.key'}",
                f"--service-account-signing-key-file={directory / 'accounts.key'}",
                "--service-cluster-ip-range=10.0.0.0/24",
                "--disable-admission-plugins=ServiceAccount,TaintNodesByCondition",
            )
        )
        address = f"https://127.0.0.1:{port}"
        _wait_until_ready(address, token, server, directory / "kube-apiserver.log")
        with _answer(address, token, _CRDS, crd_manifest()):
            pass
        kubeconfig = directory / "real.kubeconfig"
        kubeconfig.write_text(json.dumps(_kubeconfig(address, token)))
        yield RealApi(kubeconfig, server.pid, etcd.pid)


@contextmanager
def _process(log: Path, *command: str) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_until_ready(address: str, token: str, server: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while server.poll() is None and time.monotonic() < deadline:
        try:
            with _answer(address, token, "/readyz"):
                return
        except (OSError, urllib.error.HTTPError):
            time.sleep(_POLL_SECONDS)
    tail = log.read_text(encoding="utf-8", errors="replace")[-2000:]
    raise RuntimeError(f"kube-apiserver does not become ready:\n{tail}")


def _answer(address: str, token: str, path: str, created: JsonObject | None = None) -> HTTPResponse:
    """The answer to a GET, or to the POST that creates an object; raises where it is a refusal."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # it has made its certificate itself
    request = urllib.request.Request(  # noqa: S310 the address is that of the server we started
        address + path,
        data=None if created is None else json.dumps(created).encode(),
        headers={"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
    )
    answer: HTTPResponse = urllib.request.urlopen(request, context=context, timeout=5)  # noqa: S310 as above
    return answer


def _kubeconfig(address: str, token: str) -> dict[str, object]:
    cluster = {"server": address, "insecure-skip-tls-verify": True}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "real", "cluster": cluster}],
        "users": [{"name": "admin", "user": {"token": token}}],
        "contexts": [{"name": "real", "context": {"cluster": "real", "user": "admin"}}],
        "current-context": "real",
    }


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port
