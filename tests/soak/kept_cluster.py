"""An API server that keeps its objects in a directory.

`python -m tests.soak.kept_cluster PORT DIR`: it is there for two kinds of operators, with nodes
and a profile for each, and writes kubeconfigs for operators and for who asks them. Invariant:
started on a directory that was used before, or on an older copy of it, it is what that holds.
"""

import asyncio
import signal
import sys
from pathlib import Path
from typing import Final

import uvloop

from stellwerk.garbage import collect_seldom
from stellwerk.profiles.spec.profile import OPERATOR_LABEL
from stellwerk_cluster.apimachinery.feature_gates import CLAIMS, GANGS
from stellwerk_cluster.cluster import ClusterOptions, EmbeddedCluster
from stellwerk_cluster.faults.plan import FaultPlan
from stellwerk_cluster.faults.table import FaultTable
from stellwerk_cluster.identity.rbac import RBAC_GROUP
from stellwerk_cluster.identity.service_tokens import TokenSpec
from stellwerk_cluster.registry.data_directory import DataDirectory
from stellwerk_kube.clock import SystemClock
from tests.support.builders import make_node
from tests.support.device_cases import DRIVER
from tests.support.in_process import make_profile
from tests.support.rights import ACCOUNT, ENFORCED, NAMESPACE, operator_token, with_token
from tests.support.running_operator import install

SERVER: Final = "tests.soak.kept_cluster"
ASKER: Final = "asker"
OWN: Final = "own"
"""The name of one operator, and of its pods' scheduler and nodes."""
HELD: Final = "default-scheduler"
"""The scheduler of the pods of the unnamed operator."""
SCHEDULERS: Final = (HELD, OWN)
NODES: Final = 12
"""For each scheduler, of four CPUs each."""
_DEVICES: Final = 64
_LATE_BINDINGS: Final = FaultTable.model_validate(
    {
        "faults": [
            {
                "fault": "delay",
                "seconds": [0, 0.3],
                "verbs": ["create"],
                "resources": ["pods/binding"],
                "userAgent": "stellwerk",
            }
        ]
    }
)
"""The members of a group are not bound in one instant, so that a kill comes between them."""


async def serve(port: int, directory: Path) -> None:
    """Be the API server until SIGTERM, with what the directory holds."""
    plan = FaultPlan(_LATE_BINDINGS, 1, SystemClock())
    data = DataDirectory(directory / "data")
    options = ClusterOptions(
        controllers=False,
        kubelet=None,
        heartbeats=False,
        event_window=1000,
        compaction_seconds=300,
        feature_gates=GANGS | {CLAIMS},
        identity=ENFORCED,
        tls=True,
        data_directory=data,
        faults=plan,
    )
    nodes = [
        make_node(f"{name}-{number}", cpu="4", labels={"pool": name})
        for name in SCHEDULERS
        for number in range(NODES)
    ]
    is_first = not (directory / "kubeconfig").exists()
    cluster = EmbeddedCluster(nodes, port=port, options=options)
    if is_first:
        _furnish(cluster)
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    await cluster.start()
    if is_first:
        _write_kubeconfigs(cluster, directory)
    plan.arm()
    await stop.wait()
    await cluster.stop()
    data.close()


def _furnish(cluster: EmbeddedCluster) -> None:
    room = {"maxNodes": "10%", "maxSeconds": 30, "cooldownSeconds": 60}
    args = [{"name": "GangScheduling", "args": {"reservation": room}}]
    profiles = [make_profile(name, gangScheduling=True, pluginConfig=args) for name in SCHEDULERS]
    profiles[1]["metadata"]["labels"] = {OPERATOR_LABEL: OWN}
    install(cluster, *profiles)
    operator_token(cluster)
    api = cluster.api
    for name in ("plain", "gangs", "hostile", "fill"):
        api.create(api.kinds.resource("namespaces"), "", {"metadata": {"name": name}})
    account = {"metadata": {"name": ASKER, "namespace": NAMESPACE}}
    api.create(api.kinds.resource("serviceaccounts"), NAMESPACE, account)
    binding = {
        "metadata": {"name": ASKER},
        "roleRef": {"apiGroup": RBAC_GROUP, "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "ServiceAccount", "name": ASKER, "namespace": NAMESPACE}],
    }
    api.create(api.kinds.resource("clusterrolebindings", RBAC_GROUP), "", binding)
    group = "resource.k8s.io"
    api.create(
        api.kinds.resource("deviceclasses", group), "", {"metadata": {"name": "gpu"}, "spec": {}}
    )
    for name in SCHEDULERS:
        node = f"{name}-0"
        pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
        devices = [{"name": f"gpu-{number}"} for number in range(_DEVICES)]
        spec = {"driver": DRIVER, "nodeName": node, "pool": pool, "devices": devices}
        slices = api.kinds.resource("resourceslices", group)
        api.create(slices, "", {"metadata": {"name": node}, "spec": spec})


def _write_kubeconfigs(cluster: EmbeddedCluster, directory: Path) -> None:
    """For the operators and for the asker, with tokens that outlive the soak."""
    cluster.write_kubeconfig(directory / "admin")
    text = (directory / "admin").read_text("utf-8")
    for name, file in ((ASKER, "asker"), (ACCOUNT, "kubeconfig")):
        account = cluster.api.find("serviceaccounts", NAMESPACE, name)
        assert account is not None
        spec = TokenSpec(account, ("https://kubernetes.default.svc",), 24 * 3600)
        token = cluster.identity.authenticator.tokens.issue(spec)[0]
        (directory / f"{file}.token").write_text(token, "utf-8")
        (directory / file).write_text(with_token(text, token), "utf-8")


if __name__ == "__main__":
    collect_seldom()
    uvloop.run(serve(int(sys.argv[1]), Path(sys.argv[2])))
