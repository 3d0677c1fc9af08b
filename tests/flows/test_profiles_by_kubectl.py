"""Profiles as kubectl shows them and the API server refuses them; the way to a port by kubectl."""

import asyncio
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from stellwerk.client.lease import PUBLIC_KEY_ANNOTATION
from stellwerk_cli.commands.operator_port import open_port
from stellwerk_cli.commands.port_arguments import PortAddress
from stellwerk_cluster.cluster import ClusterOptions, EmbeddedCluster
from stellwerk_kube.errors import SchedulerError
from stellwerk_kube.json_values import JsonObject
from tests.support.in_process import make_profile
from tests.support.kstatus import kstatus
from tests.support.kubectls import Done, Kubectl, newest, program_of
from tests.support.rights import ENFORCED
from tests.support.running_operator import install, is_active, operator_on, profile_status, until

QUIET = ClusterOptions(controllers=False, kubelet=None, heartbeats=False)
ALONE = replace(QUIET, identity=ENFORCED)


def kubectl_on(cluster: EmbeddedCluster, home: Path) -> Kubectl:
    cluster.write_kubeconfig(home / "admin")
    return Kubectl(program_of(newest()), home, home / "admin")


async def run(kubectl: Kubectl, *arguments: str, stdin: str = "") -> Done:
    return await asyncio.to_thread(kubectl.run, *arguments, stdin=stdin)


def profile_of(name: str, **spec: Any) -> JsonObject:
    """A profile as a user writes it."""
    return {**make_profile(name, **spec), "metadata": {"name": name}}


def weighted(*plugins: tuple[str, int]) -> JsonObject:
    enabled = [{"name": name, "weight": weight} for name, weight in plugins]
    return {"plugins": {"score": {"enabled": enabled}}}


def fit_args(**args: Any) -> JsonObject:
    return {"pluginConfig": [{"name": "NodeResourcesFit", "args": args}]}


REFUSED = {
    "a negative weight": (weighted(("ImageLocality", -1)), "greater than or equal to 0"),
    "one plugin twice": (
        weighted(("ImageLocality", 1), ("ImageLocality", 2)),
        "Duplicate value",
    ),
    "no queue sort": (
        {"plugins": {"queueSort": {"disabled": [{"name": "*"}]}}},
        "needs exactly one plugin",
    ),
    "no binder": ({"plugins": {"bind": {"disabled": [{"name": "*"}]}}}, "at least one plugin"),
    "a plugin that was removed": (
        weighted(("EBSLimits", 1)),
        "was removed; NodeVolumeLimits replaces it",
    ),
    "a strategy that does not exist": (
        fit_args(scoringStrategy={"type": "Fullest"}),
        "must be one of the scoring strategies",
    ),
    "backoff that shrinks": (
        {"podInitialBackoffSeconds": 9, "podMaxBackoffSeconds": 1},
        "must be at least podInitialBackoffSeconds",
    ),
}


async def test_the_api_server_refuses_what_the_operator_would(tmp_path: Path) -> None:
    async with EmbeddedCluster(1, options=QUIET) as cluster:
        install(cluster)
        kubectl = kubectl_on(cluster, tmp_path)
        refused = [
            profile_of(f"p{number}", **spec) for number, (spec, _) in enumerate(REFUSED.values())
        ]
        manifests = yaml.safe_dump_all([*refused, profile_of("mine")])
        done = await run(kubectl, "create", "-f", "-", stdin=manifests)
        assert done.code == 1
        assert [line.split()[0] for line in done.stdout.splitlines()] == [
            "schedulerprofile.scheduling.stellwerk.dev/mine"
        ]
        complaints = done.stderr.split("SchedulerProfile.scheduling.stellwerk.dev ")
        for number, (name, (_, words)) in enumerate(REFUSED.items()):
            own = [each for each in complaints if each.startswith(f'"p{number}"')]
            assert any(words in each for each in own), f"{name}: {own}"
        renamed = '{"spec": {"schedulerName": "other"}}'
        arguments = ("patch", "schedulerprofile", "mine", "--type=merge", "-p", renamed)
        done = await run(kubectl, *arguments)
        assert "schedulerName is immutable; create a new profile" in done.stderr


async def test_get_shows_accepted_active_and_the_reason(tmp_path: Path) -> None:
    unknown = weighted(("NoSuchPlugin", 1))
    async with EmbeddedCluster(1, options=ALONE) as cluster:
        install(cluster, make_profile("good"), make_profile("bad", **unknown))
        kubectl = kubectl_on(cluster, tmp_path)
        fresh = {"metadata": {"generation": 1}, "status": profile_status(cluster, "good")}
        assert kstatus(fresh) == "InProgress", "no operator has judged it"
        async with operator_on(cluster, tmp_path):
            await until(lambda: is_active(cluster, "good"))
            await until(lambda: profile_status(cluster, "bad").get("conditions"))
            shown = await run(kubectl, "get", "schedulerprofiles")
            header, *rows = (line.split() for line in shown.stdout.splitlines())
            assert header[:5] == ["NAME", "SCHEDULER", "ACCEPTED", "ACTIVE", "REASON"]
            by_name = {row[0]: row[1:5] for row in rows}
            assert by_name["good"] == ["good", "True", "True", "Valid"]
            assert by_name["bad"] == ["bad", "False", "False", "Invalid"]
            waiting = ("wait", "--for=condition=Ready", "--timeout=30s", "schedulerprofile/good")
            assert (await run(kubectl, *waiting)).code == 0
            stalled = ("wait", "--for=condition=Stalled", "--timeout=30s", "schedulerprofile/bad")
            assert (await run(kubectl, *stalled)).code == 0
            # What CEL cannot say is said by an event at once.
            arguments = ("events", "--for", "schedulerprofile/bad", "--types=Warning")

            async def warned() -> bool:
                return "NoSuchPlugin" in (await run(kubectl, *arguments)).stdout

            async with asyncio.timeout(60):
                while not await warned():  # noqa: ASYNC110 the API has no event to wait for
                    await asyncio.sleep(0.1)


async def test_a_real_kubectl_forwards_to_the_holder_s_pod_and_says_why_it_cannot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hollow nodes forward no port: the way is right as far as to the kubelet."""
    async with EmbeddedCluster(1) as cluster:
        kubectl = kubectl_on(cluster, tmp_path)
        program = tmp_path / "kubectl"
        program.symlink_to(kubectl.program)
        monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
        pods = cluster.api.kinds.resource("pods")
        container = {"name": "c", "image": "registry.example/stellwerk:1"}
        spec = {"nodeName": "node-1", "containers": [container]}
        pod = {"metadata": {"name": "stellwerk-7d-x2"}, "spec": spec}
        cluster.api.create(pods, "default", {"apiVersion": "v1", "kind": "Pod", **pod})
        leases = cluster.api.kinds.resource("leases", "coordination.k8s.io")
        lease = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {
                "name": "stellwerk",
                "namespace": "default",
                "annotations": {PUBLIC_KEY_ANNOTATION: "c2hvd24gYnkgdGhlIGhvbGRlcg=="},
            },
            "spec": {"holderIdentity": "stellwerk-7d-x2_4f0c", "leaseDurationSeconds": 15},
        }
        cluster.api.create(leases, "default", lease)
        await until(
            lambda: (
                cluster.api.get(pods, "default", "stellwerk-7d-x2").obj["status"]["phase"]
                == "Running"
            )
        )
        address = PortAddress(kubeconfig=str(tmp_path / "admin"), lease_namespace="default")
        with pytest.raises(SchedulerError) as raised:
            async with open_port(address) as port:
                await port.ask_json("/queue")
        message = str(raised.value)
        assert message.startswith("cannot forward a port to pod default/stellwerk-7d-x2: "), message
        assert "ports to forward" in message


BY_LABELS = """\
apiVersion: scheduling.stellwerk.dev/v1alpha1
kind: SchedulerProfile
metadata: {name: batch}
spec:
  schedulerName: batch
  allowBeside: true
  selector:
    namespaceSelector: {matchLabels: {team: batch}}
---
apiVersion: scheduling.stellwerk.dev/v1alpha1
kind: SchedulerProfile
metadata: {name: web}
spec:
  schedulerName: web
  allowBeside: true
  selector:
    podSelector: {matchLabels: {app: web}}
"""


def pod_of(name: str, cpu: str = "1m", **labels: str) -> JsonObject:
    """A pod that names no scheduler, as users write them."""
    container = {"name": "c", "image": "pause", "resources": {"requests": {"cpu": cpu}}}
    metadata = {"name": name, "labels": labels}
    spec = {"containers": [container]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


async def test_labels_say_which_profile_has_pods_that_name_none(tmp_path: Path) -> None:
    async with EmbeddedCluster(1, options=ALONE) as cluster:
        install(cluster)
        kubectl = kubectl_on(cluster, tmp_path)

        async def do(*arguments: str, stdin: str = "") -> str:
            done = await run(kubectl, *arguments, stdin=stdin)
            assert done.code == 0, done.stderr
            return done.stdout

        async def create(namespace: str, *pods: JsonObject) -> None:
            text = yaml.safe_dump_all(pods)
            await do("create", "--namespace", namespace, "-f", "-", stdin=text)

        def count(profile: str, *fields: str) -> Any:
            found: Any = profile_status(cluster, profile)
            for field in fields:
                found = found.get(field, {})
            return found

        async with operator_on(cluster, tmp_path):
            await do("apply", "-f", "-", stdin=BY_LABELS)
            await until(lambda: is_active(cluster, "batch") and is_active(cluster, "web"))
            await do("create", "namespace", "jobs")
            await create("jobs", pod_of("waits", cpu="1000"))
            await do("label", "namespace", "jobs", "team=batch")
            await create("jobs", pod_of("one"), pod_of("both", app="web"))
            await create("default", pod_of("two", app="web"), pod_of("unserved"))
            await until(lambda: count("batch", "scheduledPods") == 2)
            await until(lambda: count("web", "scheduledPods") == 1)
            assert count("batch", "pendingPods", "total") == 1
            condition = '{.status.conditions[?(@.type=="Overlapping")].message}'
            for profile, words in (
                ("batch", 'the younger SchedulerProfile "web" also matches 1 pod of this selector'),
                ("web", 'the older SchedulerProfile "batch" got 1 pod of this selector'),
            ):
                await do("wait", "--for=condition=Overlapping", f"schedulerprofile/{profile}")
                said = await do("get", "schedulerprofile", profile, "-o", f"jsonpath={condition}")
                assert said == words
            await do("label", "pod", "waits", "app=web", "--namespace", "jobs")
            await do("label", "namespace", "jobs", "team-")
            await until(lambda: count("web", "pendingPods", "total") == 1)
            await until(lambda: count("batch", "pendingPods", "total") == 0)
            assert (count("batch", "scheduledPods"), count("web", "scheduledPods")) == (2, 1)
            await do("wait", "--for=condition=Overlapping=false", "schedulerprofile/batch")


async def test_a_list_of_profiles_is_applied(tmp_path: Path) -> None:
    """kubectl validates what is in a List itself, by the second version of OpenAPI."""
    on_one_node = {"key": "kubernetes.io/hostname", "operator": "In", "values": ["node-1"]}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [on_one_node]}]}
    args = {"addedAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    profile = profile_of("added", pluginConfig=[{"name": "NodeAffinity", "args": args}])
    async with EmbeddedCluster(1, options=QUIET) as cluster:
        install(cluster)
        listed = {"apiVersion": "v1", "kind": "List", "items": [profile]}
        kubectl = kubectl_on(cluster, tmp_path)
        done = await run(kubectl, "apply", "-f", "-", stdin=yaml.safe_dump(listed))
        assert done.code == 0, done.stderr
        misspelt = {**profile, "spec": {**profile["spec"], "schedulrName": "x"}}
        listed["items"] = [misspelt]
        done = await run(kubectl, "apply", "-f", "-", stdin=yaml.safe_dump(listed))
        assert 'unknown field "schedulrName"' in done.stderr
