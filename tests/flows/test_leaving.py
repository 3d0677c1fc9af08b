"""`stellwerk leave`: the replicas end and the lease is free, before their rights go."""

import asyncio
import signal
import subprocess
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache
from itertools import count, pairwise
from pathlib import Path

import orjson
import pytest
import yaml

from stellwerk.client.lease import HOLDER_ANNOTATION, POD_ANNOTATION
from stellwerk_cluster.cluster import ClusterOptions, EmbeddedCluster
from stellwerk_cluster.hollow.kubelet import KubeletOptions
from stellwerk_cluster.identity.assembly import IdentityOptions
from stellwerk_cluster.registry.deletion import DeleteOptions, delete
from stellwerk_kube.json_values import JsonObject
from tests.support.builders import make_pod
from tests.support.kubectls import helm, newest, program_of
from tests.support.lease_scheduler import IDENTITY, Placements, kube_scheduler
from tests.support.pod_processes import pod_processes
from tests.support.processes import command
from tests.support.repository import ROOT
from tests.support.rights import token_of, with_token
from tests.support.running_operator import until
from tests.support.shell_steps import Command, shell

INSTALL = (
    "helm install stellwerk charts/stellwerk --namespace stellwerk --create-namespace "
    "--set takeOverDefaultScheduler=true --wait --timeout 60s"
)
UNINSTALL = "helm uninstall stellwerk --namespace stellwerk --wait --timeout 60s"


def cluster_of_an_administrator() -> EmbeddedCluster:
    return EmbeddedCluster(
        3,
        options=ClusterOptions(
            identity=IdentityOptions("rbac", service_accounts=True),
            tls=True,
            kubelet=KubeletOptions(respect_grace=False),
        ),
    )


async def create_steadily(cluster: EmbeddedCluster) -> None:
    """Pods that name no scheduler, ten a second."""
    for number in count():
        pod = make_pod(f"arriving-{number}", cpu="1m")
        del pod["metadata"]["uid"]
        cluster.api.create(cluster.api.kinds.resource("pods"), "default", pod)
        await asyncio.sleep(0.1)


@pytest.mark.long
@pytest.mark.parametrize(
    "options",
    [pytest.param("", id="with the hook"), pytest.param(" --no-hooks", id="without the hook")],
)
async def test_the_scheduler_that_stands_by_takes_the_lease_at_once(
    options: str, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    (tmp_path / "charts").symlink_to(ROOT / "charts")
    async with cluster_of_an_administrator() as cluster:
        kubeconfig = tmp_path / "kubeconfig"
        cluster.write_kubeconfig(kubeconfig)
        placements = Placements(cluster)
        async with (
            kube_scheduler(cluster) as other,
            pod_processes(cluster, tmp_path) as processes,
            shell(
                tmp_path, {"KUBECONFIG": str(kubeconfig)}, program_of(newest()), helm()
            ) as opened,
        ):
            await opened.take(Command(INSTALL))
            await opened.take(
                Command(
                    "kubectl label namespace stellwerk "
                    "pod-security.kubernetes.io/enforce=restricted"
                )
            )
            await other.stop()
            await until(lambda: other.holder not in {"", IDENTITY})
            await other.start()  # stands by
            arriving = asyncio.create_task(create_steadily(cluster))
            await until(lambda: len(placements.of) > 20)
            placements.at_seconds.clear()
            before = len(other.bound)
            await opened.take(Command(UNINSTALL + options))
            await until(lambda: len(other.bound) > before + 10, 90)
            arriving.cancel()
            await asyncio.wait({arriving})
            await until(lambda: not placements.waiting())
            await until(lambda: not processes.running)
            assert other.holder == IDENTITY
            record_property("seconds without a placement", gap_seconds(placements))
            assert other.ran_out == (1 if options else 0), processes.log()
            assert ("expires by itself" in processes.log()) == bool(options)
            _, left = await opened.run(
                "kubectl get jobs,pods,sa,roles,rolebindings -A -o name | grep stellwerk"
            )
            assert left.strip() == ""
        assert set(placements.of.values()) == {1}
        assert set(processes.statuses) <= {0, 1, -signal.SIGTERM}


def gap_seconds(placements: Placements) -> float:
    """The longest time in which no pod was given a node."""
    return max(later - earlier for earlier, later in pairwise(placements.at_seconds))


# --- the command ----------------------------------------------------------------------------------

CHART = ROOT / "charts" / "stellwerk"
LEASES, LEASE = "leases.coordination.k8s.io", ("stellwerk", "stellwerk")


@cache
def _templated() -> bytes:
    """The chart's objects with its hooks, as JSON."""
    shown = [str(helm()), "template", "stellwerk", str(CHART), "-n", "stellwerk", "--skip-tests"]
    text = subprocess.run(shown, capture_output=True, text=True, check=True).stdout
    return orjson.dumps([each for each in yaml.safe_load_all(text) if each is not None])


def of_chart(kind: str, name: str) -> JsonObject:
    """An object of the chart."""
    objects: list[JsonObject] = orjson.loads(_templated())
    (found,) = [
        each for each in objects if (each["kind"], each["metadata"]["name"]) == (kind, name)
    ]
    return found


@dataclass
class Installed:
    """A cluster with the chart's Deployment, whose pods wait for a node, and the hook's rights."""

    cluster: EmbeddedCluster
    kubeconfig: Path

    def create(self, plural: str, obj: JsonObject, group: str = "") -> None:
        api = self.cluster.api
        api.create(api.kinds.resource(plural, group), obj["metadata"].get("namespace", ""), obj)

    def pods(self) -> list[JsonObject]:
        return list(self.cluster.api.all("pods", "stellwerk"))

    def replicas(self) -> int:
        deployment = self.cluster.api.find("deployments.apps", "stellwerk", "stellwerk")
        assert deployment is not None
        return int(deployment["spec"]["replicas"])

    def hold(self, holder: str, pod: str = "") -> None:
        """Have the lease held by somebody, who may say which pod it is."""
        namespace, name = LEASE
        said = {POD_ANNOTATION: pod, HOLDER_ANNOTATION: holder} if pod else {}
        metadata = {"name": name, "namespace": namespace, "annotations": said}
        spec = {"holderIdentity": holder, "leaseDurationSeconds": 15, "leaseTransitions": 3}
        self.create("leases", {"metadata": metadata, "spec": spec}, "coordination.k8s.io")

    def holder(self) -> str:
        lease = self.cluster.api.find(LEASES, *LEASE)
        return "" if lease is None else str(lease["spec"]["holderIdentity"])

    async def leave(self, *options: str) -> tuple[int, str, str]:
        return await command("leave", "--yes", "--kubeconfig", str(self.kubeconfig), *options)


@asynccontextmanager
async def installed(directory: Path, without: Sequence[str] = ()) -> AsyncIterator[Installed]:
    """The chart's, `without` the rights to some resources."""
    options = ClusterOptions(identity=IdentityOptions("rbac"), kubelet=KubeletOptions())
    async with EmbeddedCluster(1, options=options) as cluster:
        site = Installed(cluster, directory / "kubeconfig")
        site.create("namespaces", {"metadata": {"name": "stellwerk"}})
        site.create("serviceaccounts", of_chart("ServiceAccount", "stellwerk-leave"))
        role = of_chart("Role", "stellwerk-leave")
        role["rules"] = [each for each in role["rules"] if each["resources"] != [*without]]
        rbac = "rbac.authorization.k8s.io"
        site.create("roles", role, rbac)
        site.create("rolebindings", of_chart("RoleBinding", "stellwerk-leave"), rbac)
        site.create("serviceaccounts", of_chart("ServiceAccount", "stellwerk"))
        site.create("deployments", of_chart("Deployment", "stellwerk"), "apps")
        await until(lambda: len(site.pods()) == 2)
        cluster.write_kubeconfig(site.kubeconfig)
        token = token_of(cluster, "stellwerk-leave")
        site.kubeconfig.write_text(with_token(site.kubeconfig.read_text(), token))
        yield site


async def test_a_lease_that_a_pod_has_left_behind_is_released(tmp_path: Path) -> None:
    async with installed(tmp_path) as site:
        site.hold(f"{site.pods()[0]['metadata']['name']}_uuid")
        status, said, _ = await site.leave()
        assert status == 0
        assert "deployment stellwerk/stellwerk is scaled to 0" in said
        assert "lease stellwerk/stellwerk, left behind by stellwerk-" in said
        assert (site.pods(), site.holder()) == ([], "")


async def test_a_pod_in_the_network_of_its_host_is_known_by_what_it_wrote(tmp_path: Path) -> None:
    async with installed(tmp_path) as site:
        site.hold("node-1_uuid", f"stellwerk/{site.pods()[0]['metadata']['name']}")
        status, said, _ = await site.leave()
        assert status == 0
        assert "left behind by node-1_uuid, was released" in said
        assert (site.pods(), site.holder()) == ([], "")


async def test_a_pod_of_another_namespace_keeps_its_lease(tmp_path: Path) -> None:
    async with installed(tmp_path) as site:
        name = site.pods()[0]["metadata"]["name"]
        site.hold(f"{name}_uuid", f"other/{name}")
        status, said, _ = await site.leave()
        assert (status, site.holder()) == (0, f"{name}_uuid")
        assert "which is not one of these pods" in said


@pytest.mark.parametrize(
    "holder", ["kube-scheduler-node-1_uuid", "stellwerk_uuid", "stellwerk-7d9c-abcde_uuid"]
)
async def test_the_lease_of_another_holder_is_left_as_it_is(holder: str, tmp_path: Path) -> None:
    async with installed(tmp_path) as site:
        site.hold(holder)
        status, said, _ = await site.leave()
        assert status == 0
        assert f"is held by {holder}, which is not one of these pods" in said
        assert (site.pods(), site.holder()) == ([], holder)


async def test_while_a_pod_is_there_its_lease_is_not_touched(tmp_path: Path) -> None:
    async with installed(tmp_path) as site:
        name = site.pods()[0]["metadata"]["name"]
        pods = site.cluster.api.kinds.resource("pods")
        finalizers = {"metadata": {"finalizers": ["example.com/stays"]}}
        site.cluster.api.patch(pods, ("stellwerk", name), finalizers)
        site.hold(f"{name}_uuid")
        status, _, complaint = await site.leave("--timeout", "1s")
        assert status == 1
        assert f"after 1 s there is still {name} in stellwerk; the lease" in complaint
        assert site.holder() == f"{name}_uuid"


async def test_what_is_not_stellwerks_is_left_alone(tmp_path: Path) -> None:
    async with installed(tmp_path) as site:
        kind = site.cluster.api.kinds.resource("deployments", "apps")
        containers = [{"name": "stellwerk", "image": "other:1", "args": ["serve"]}]
        template = {"spec": {"template": {"spec": {"containers": containers}}}}
        site.cluster.api.patch(kind, ("stellwerk", "stellwerk"), template)
        status, _, complaint = await site.leave()
        assert (status, site.replicas()) == (2, 2)
        assert "no container with the argument `run`" in complaint


async def test_a_dry_run_changes_nothing(tmp_path: Path) -> None:
    async with installed(tmp_path) as site:
        status, said, _ = await site.leave("--dry-run")
        assert (status, site.replicas()) == (0, 2)
        assert "would be scaled to 0, which ends 2 pods" in said


async def test_without_a_deployment_there_is_nothing_to_do(tmp_path: Path) -> None:
    async with installed(tmp_path) as site:
        kind = site.cluster.api.kinds.resource("deployments", "apps")
        delete(site.cluster.api, kind, ("stellwerk", "stellwerk"), DeleteOptions())
        status, said, _ = await site.leave()
        assert (status, "nothing to leave" in said) == (0, True)


@pytest.mark.parametrize("resource", ["deployments", "deployments/scale", "pods", "leases"])
async def test_the_hook_has_no_right_that_it_does_not_need(resource: str, tmp_path: Path) -> None:
    async with installed(tmp_path, without=[resource]) as site:
        site.hold(f"{site.pods()[0]['metadata']['name']}_uuid")
        status, _, complaint = await site.leave()
        assert status == 1
        assert ": 403 " in complaint


def test_the_hook_is_allowed_where_pod_security_is_restricted() -> None:
    hook = of_chart("Job", "stellwerk-leave")["spec"]["template"]["spec"]
    pod = of_chart("Deployment", "stellwerk")["spec"]["template"]["spec"]
    assert hook["securityContext"] == pod["securityContext"]
    (leaving,), (running,) = hook["containers"], pod["containers"]
    assert leaving["securityContext"] == running["securityContext"]
    assert leaving["image"] == running["image"]
