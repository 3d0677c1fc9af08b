"""`stellwerk cluster` as a process that enforces rights, and a kubeconfig for the operator on it.

Invariant: the operator that uses this kubeconfig has the rights that the manifests give, and no
other; the test itself, which shows no credentials, may do everything.
"""

import asyncio
import json
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import yaml

from stellwerk_cluster.identity.rbac import RBAC_GROUP
from stellwerk_kube.json_values import JsonObject
from tests.support.processes import Process, running, server_of, trusting, until
from tests.support.rights import (
    ACCOUNT,
    NAMESPACE,
    PLURALS,
    TESTERS,
    access_manifests,
    with_token,
)

_TOKENS = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{ACCOUNT}/token"


@dataclass(frozen=True)
class EnforcedCluster:
    """The process, where it serves, and the operator's kubeconfig."""

    process: Process
    server: str
    kubeconfig: Path


@asynccontextmanager
async def enforced_cluster(directory: Path, *arguments: str) -> AsyncIterator[EnforcedCluster]:
    """A cluster that runs until the block ends."""
    admin, operator = directory / "admin.kubeconfig", directory / "kubeconfig"
    enforcing = ("--authorization", "rbac", "--kubeconfig", str(admin))
    async with running(directory / "cluster.log", "cluster", *enforcing, *arguments) as process:
        await until(lambda: asyncio.to_thread(admin.exists), process)
        server = server_of(admin)
        await asyncio.to_thread(_give_rights, server, admin, operator)
        yield EnforcedCluster(process, server, operator)


def _give_rights(server: str, admin: Path, operator: Path) -> None:
    token = yaml.safe_load(admin.read_text("utf-8"))["users"][0]["user"]["token"]
    for each in ({"kind": "ClusterRoleBinding", **TESTERS}, *access_manifests()):
        _post(f"{server}{_collection(each)}", each, token)
    answer = _post(f"{server}{_TOKENS}", {"spec": {"audiences": []}}, token)
    operator.write_text(with_token(admin.read_text("utf-8"), answer["status"]["token"]), "utf-8")


def _collection(manifest: JsonObject) -> str:
    version = f"{RBAC_GROUP}/v1" if "Role" in manifest["kind"] else "v1"
    prefix = f"/apis/{version}" if "/" in version else f"/api/{version}"
    namespace = manifest["metadata"].get("namespace")
    place = f"/namespaces/{namespace}" if namespace else ""
    return f"{prefix}{place}/{PLURALS[manifest['kind']]}"


def _post(url: str, body: JsonObject, token: str) -> JsonObject:
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {token}"}
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)  # noqa: S310
    with urllib.request.urlopen(request, timeout=10, context=trusting()) as response:  # noqa: S310
        answer: JsonObject = json.load(response)
    return answer
