"""What an administrator does with Stellwerk by hand, on a cluster of theirs: `make e2e`.

The steps run one after the other in the order of this file, in real time, against the API server
that KUBECONFIG and E2E_CONTEXT name. On hollow nodes, which run no containers, a few are skipped,
each with its reason.
"""

import json
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from stellwerk_kube.json_values import JsonObject
from tests.e2e.site import (
    DEPLOYMENT,
    MADE_HERE,
    NAMESPACE,
    OPERATORS_NAMESPACE,
    Installation,
    Site,
)

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(900),
    pytest.mark.usefixtures("installation", "real_nodes"),
]

NOBODYS_LABEL = {"stellwerk-e2e/nowhere": "true"}
HOST_NAME = "kubernetes.io/hostname"
SECONDS_TO_END = 6
UNSCHEDULABLE_PODS = 10
REPLICAS = 2


def condition_of(obj: JsonObject, kind: str) -> JsonObject:
    """A condition of an object; empty: it has none."""
    conditions: list[JsonObject] = obj.get("status", {}).get("conditions") or []
    return next((each for each in conditions if each["type"] == kind), {})


def on_node(node: JsonObject) -> dict[str, str]:
    return {HOST_NAME: node["metadata"]["labels"][HOST_NAME]}


def events(site: Site, pod: str, reason: str) -> list[JsonObject]:
    selector = f"--field-selector=involvedObject.name={pod},reason={reason}"
    found: list[JsonObject] = site.get("events", "-n", NAMESPACE, selector)["items"]
    return found


# --- one pod --------------------------------------------------------------------------------------


def test_a_pod_that_names_stellwerk_runs(site: Site) -> None:
    site.apply(site.pod_manifest("hello", command="echo hello from $(hostname); sleep 3600"))
    site.wait("condition=Ready", "pod/hello")
    assert len(site.until("an event of hello", lambda: events(site, "hello", "Scheduled"))) == 1


def test_its_log_is_read(site: Site) -> None:
    text = site.until("a line in the log", lambda: site.run("logs", "hello", "-n", NAMESPACE))
    # Hollow nodes tell the story of the container, which says nothing by itself.
    assert site.is_hollow or text == "hello from hello\n"


@pytest.mark.needs_containers("have no container in which a program could run")
def test_a_program_runs_in_it(site: Site) -> None:
    assert site.run("exec", "hello", "-n", NAMESPACE, "--", "hostname") == "hello\n"


def test_commands_explain_it_list_the_queue_and_try_another_pod(site: Site, tmp_path: Path) -> None:
    node = site.pod("hello")["spec"]["nodeName"]
    explained = site.stellwerk("explain", f"pod/{NAMESPACE}/hello")
    assert node in json.dumps(explained)
    site.apply(site.pod_manifest("waits", nodeSelector=NOBODYS_LABEL))
    site.wait("condition=PodScheduled=false", "pod/waits")
    assert f"{NAMESPACE}/waits" in json.dumps(site.stellwerk("queue", "--all-namespaces"))
    file = tmp_path / "pod.json"
    file.write_text(json.dumps(site.pod_manifest("supposed")))
    supposed = json.dumps(site.stellwerk("what-if", "--pod", str(file)))
    assert any(f'"{each["metadata"]["name"]}"' in supposed for each in site.nodes())
    assert not [each for each in site.pods() if each["metadata"]["name"] == "supposed"]
    site.delete(site.pod("waits"))


# --- profiles -------------------------------------------------------------------------------------


def test_a_profile_is_edited_while_it_is_served(site: Site) -> None:
    first, second = (site.nodes() * 2)[:2]
    profile = {
        "apiVersion": "scheduling.stellwerk.dev/v1alpha1",
        "kind": "SchedulerProfile",
        "metadata": {"name": NAMESPACE},
    }

    def edit(node: JsonObject) -> None:
        named = {"key": HOST_NAME, "operator": "In", "values": list(on_node(node).values())}
        terms = {"nodeSelectorTerms": [{"matchExpressions": [named]}]}
        added = {"requiredDuringSchedulingIgnoredDuringExecution": terms}
        args = {"addedAffinity": added}
        plugins = [{"name": "NodeAffinity", "args": args}]
        site.apply({**profile, "spec": {"schedulerName": NAMESPACE, "pluginConfig": plugins}})

        def is_served() -> bool:
            found = site.get("schedulerprofile", NAMESPACE)
            seen = found.get("status", {}).get("observedGeneration")
            active = condition_of(found, "Active").get("status")
            return bool(seen == found["metadata"]["generation"] and active == "True")

        site.until("the profile is active", is_served)

    for number, node in enumerate((first, second)):
        edit(node)
        pod = f"profile-{number}"
        site.apply(site.pod_manifest(pod, scheduler=NAMESPACE))
        site.wait("condition=Ready", f"pod/{pod}")
        assert site.pod(pod)["spec"]["nodeName"] == node["metadata"]["name"]
    site.delete(profile, *(site.pod(f"profile-{number}") for number in range(2)))


# --- preemption -----------------------------------------------------------------------------------


def test_a_pod_of_higher_priority_waits_for_a_container_that_takes_6_seconds_to_end(
    site: Site,
) -> None:
    node = max(site.nodes(), key=site.free_cpu_millis)
    most_of_it = f"{site.free_cpu_millis(node) * 6 // 10}m"
    # Below all others: no pod of the cluster's own is ever a victim of the preemptor.
    humble = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": f"{NAMESPACE}-humble", "labels": MADE_HERE},
        "value": -1000,
    }
    slow = f"trap 'sleep {SECONDS_TO_END}; exit 0' TERM; while true; do sleep 0.1; done"
    victim = site.pod_manifest(
        "victim",
        command=slow,
        cpu=most_of_it,
        nodeSelector=on_node(node),
        terminationGracePeriodSeconds=60,
        priorityClassName=f"{NAMESPACE}-humble",
        annotations={"stellwerk.dev/stop-seconds": str(SECONDS_TO_END)},
    )
    site.apply(humble, victim)
    site.wait("condition=Ready", "pod/victim")
    preemptor = site.pod_manifest("preemptor", cpu=most_of_it, nodeSelector=on_node(node))
    site.apply(preemptor)
    began = time.monotonic()

    def victim_is_ending() -> bool:
        return "deletionTimestamp" in site.pod("victim")["metadata"]

    site.until("the victim is asked to end", victim_is_ending, seconds=30)
    waiting = site.pod("preemptor")
    assert waiting["status"].get("nominatedNodeName") == node["metadata"]["name"]
    assert not waiting["spec"].get("nodeName"), "bound while the victim still runs"
    target = condition_of(site.pod("victim"), "DisruptionTarget")
    assert target.get("reason") == "PreemptionByScheduler"
    site.wait("condition=Ready", "pod/preemptor")
    assert time.monotonic() - began > SECONDS_TO_END - 1
    gone = site.run("get", "pod", "victim", "-n", NAMESPACE, "--ignore-not-found", "-o", "name")
    assert not gone.strip(), "the preemptor runs beside its victim"
    site.delete(preemptor, humble)


# --- workloads ------------------------------------------------------------------------------------


def workload(kind: str, name: str, template: JsonObject, **spec: object) -> JsonObject:
    labels = {"workload": name}
    selected = {} if kind == "Job" else {"selector": {"matchLabels": labels}}
    return {
        "apiVersion": "batch/v1" if kind == "Job" else "apps/v1",
        "kind": kind,
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            **selected,
            "template": {"metadata": {"labels": labels}, "spec": template},
            **spec,
        },
    }


def test_a_daemon_set_runs_on_every_node(site: Site) -> None:
    made = workload("DaemonSet", "everywhere", site.template())
    site.apply(made)

    def is_ready() -> bool:
        status = site.get("daemonset", "everywhere", "-n", NAMESPACE).get("status", {})
        wanted = status.get("desiredNumberScheduled", 0)
        # It runs on cordoned nodes, too.
        return bool(wanted == status.get("numberReady", 0) and wanted >= len(site.nodes()))

    site.until("a pod is ready on every node", is_ready)
    site.delete(made)


def test_a_job_completes(site: Site) -> None:
    template = site.template("exit 0", more={"restartPolicy": "Never"})
    made = workload("Job", "three-times", template, completions=3, parallelism=2)
    site.apply(made)
    site.wait("condition=Complete", "job/three-times")
    site.delete(made)


def test_a_stateful_set_gets_local_volumes_that_wait_for_their_first_pod(site: Site) -> None:
    nodes = site.nodes()[:REPLICAS]
    storage_class = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": f"{NAMESPACE}-local", "labels": MADE_HERE},
        "provisioner": "kubernetes.io/no-provisioner",
        "volumeBindingMode": "WaitForFirstConsumer",
    }
    volumes = [local_volume(f"{NAMESPACE}-{number}", node) for number, node in enumerate(nodes)]
    template = site.template("sleep 3600", more={"terminationGracePeriodSeconds": 1})
    template["containers"][0]["volumeMounts"] = [{"name": "data", "mountPath": "/data"}]
    claim = {
        "metadata": {"name": "data"},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": f"{NAMESPACE}-local",
            "resources": {"requests": {"storage": "1Mi"}},
        },
    }
    made = workload(
        *("StatefulSet", "with-volumes", template),
        serviceName="with-volumes",
        replicas=len(nodes),
        volumeClaimTemplates=[claim],
    )
    try:
        site.apply(storage_class, *volumes, made)

        def is_ready() -> bool:
            status = site.get("statefulset", "with-volumes", "-n", NAMESPACE).get("status", {})
            return bool(status.get("readyReplicas") == len(nodes))

        site.until("every pod of the set is ready", is_ready)
        by_volume = {
            volume["metadata"]["name"]: node["metadata"]["name"]
            for volume, node in zip(volumes, nodes, strict=True)
        }
        for number in range(len(nodes)):
            bound = site.get(
                "persistentvolumeclaim", f"data-with-volumes-{number}", "-n", NAMESPACE
            )
            assert bound["status"]["phase"] == "Bound"
            on = site.pod(f"with-volumes-{number}")["spec"]["nodeName"]
            assert on == by_volume[bound["spec"]["volumeName"]]
    finally:
        site.delete(made)
        claims = [f"data-with-volumes-{number}" for number in range(len(nodes))]
        site.run("delete", "persistentvolumeclaims", "-n", NAMESPACE, "--ignore-not-found", *claims)
        site.delete(*volumes, storage_class)


def local_volume(name: str, node: JsonObject) -> JsonObject:
    """A volume on a directory that every node has; nothing is written there."""
    named = {"key": HOST_NAME, "operator": "In", "values": list(on_node(node).values())}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name, "labels": MADE_HERE},
        "spec": {
            "capacity": {"storage": "1Mi"},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": f"{NAMESPACE}-local",
            "persistentVolumeReclaimPolicy": "Retain",
            "local": {"path": "/tmp"},  # noqa: S108 of the node, mounted and not written to
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [named]}]}},
        },
    }


def test_ten_pods_that_fit_nowhere_say_why_and_hold_up_nobody(site: Site) -> None:
    names = [f"nowhere-{number}" for number in range(UNSCHEDULABLE_PODS)]
    pods = [site.pod_manifest(name, nodeSelector=NOBODYS_LABEL) for name in names]
    site.apply(*pods)
    site.wait("condition=PodScheduled=false", *(f"pod/{name}" for name in names))
    for name in names:
        condition = condition_of(site.pod(name), "PodScheduled")
        assert condition["reason"] == "Unschedulable"
        assert "didn't match Pod's node affinity/selector" in condition["message"]
    site.apply(site.pod_manifest("between"))
    site.wait("condition=Ready", "pod/between")
    listed = json.dumps(site.stellwerk("queue", "--all-namespaces"))
    assert [name for name in names if f"{NAMESPACE}/{name}" not in listed] == []
    site.delete(*pods, site.pod("between"))


# --- replicas -------------------------------------------------------------------------------------


def test_pods_get_their_nodes_while_the_leader_is_deleted(site: Site) -> None:
    before = site.until("a leader", site.leader)
    with site.stream("deleted") as created:
        site.until("some pods", lambda: len(created) >= REPLICAS)
        site.run("delete", "pod", before, "-n", OPERATORS_NAMESPACE, "--wait=false")
        site.until("another replica leads", lambda: site.leader() not in {"", before})
        after = len(created)
        site.until("some more pods", lambda: len(created) >= after + REPLICAS)


def test_pods_get_their_nodes_while_the_leader_is_killed(site: Site) -> None:
    before = site.until("a leader", site.leader)
    identity = site.holder()
    with site.stream("killed") as created:
        site.until("some pods", lambda: len(created) >= REPLICAS)
        kill(site, before)
        # The container may start again in time and lead again, by another name in the lease.
        site.until(
            "a process that was not killed leads", lambda: site.holder() not in {"", identity}
        )
        after = len(created)
        site.until("some more pods", lambda: len(created) >= after + REPLICAS)


def kill(site: Site, pod: str) -> None:
    """End the operator's process on its node by SIGKILL, which leaves it no time for anything."""
    if site.is_hollow:
        end_now = "stellwerk.dev/end-now=137"
        site.run("annotate", "pod", pod, end_now, "-n", OPERATORS_NAMESPACE)
        return
    # Process 1 of a container cannot be killed from inside; from the node it can. The runtime gives
    # the pod's name to each of its processes.
    command = (
        "killed=1; for each in /proc/[0-9]*; do "
        f"if tr '\\0' '\\n' < $each/environ | grep -q -x HOSTNAME={pod}; "
        "then kill -9 ${each#/proc/} && killed=0; fi; done; exit $killed"
    )
    killer = site.pod_manifest(
        "killer",
        command=command,
        scheduler="",
        nodeName=site.get("pod", pod, "-n", OPERATORS_NAMESPACE)["spec"]["nodeName"],
        hostPID=True,
        restartPolicy="Never",
        tolerations=[{"operator": "Exists"}],
    )
    killer["spec"]["containers"][0]["securityContext"] = {"privileged": True}
    site.apply(killer)
    site.wait("jsonpath={.status.phase}=Succeeded", "pod/killer")
    site.delete(killer)


def test_pods_get_their_nodes_while_the_replicas_are_replaced(
    site: Site, installation: Installation
) -> None:
    before = {pod["metadata"]["name"] for pod in site.pods(namespace=OPERATORS_NAMESPACE)}
    with site.stream("rolling"):
        site.run("rollout", "restart", DEPLOYMENT, "-n", OPERATORS_NAMESPACE)
        installation.rolled_out()
        site.until("a new replica leads", lambda: site.leader() not in {"", *before})


# --- in kube-scheduler's place --------------------------------------------------------------------


def test_stellwerk_takes_kube_schedulers_place_and_gives_it_back(
    site: Site, installation: Installation
) -> None:
    if os.environ.get("E2E_TAKE_OVER") != "1":
        pytest.skip("kube-scheduler of this cluster is stopped only with E2E_TAKE_OVER=1")
    scheduler = KubeScheduler(site)
    if not scheduler.can_be_stopped:
        pytest.skip(
            "no static pod of kube-scheduler is here, nor do E2E_STOP_SCHEDULER and "
            "E2E_START_SCHEDULER name commands"
        )
    installation.take_over()
    lease = ("kube-scheduler", "kube-system")
    with scheduler.stopped():
        replicas = [pod["metadata"]["name"] for pod in site.pods(namespace=OPERATORS_NAMESPACE)]
        site.until("a replica leads", lambda: site.leader(*lease) in replicas)
        site.wait("condition=Ready", "schedulerprofile/default-scheduler")
        site.apply(site.pod_manifest("in-place", scheduler=""))
        site.wait("condition=Ready", "pod/in-place")
        node = site.pod("in-place")["spec"]["nodeName"]
        assert node in json.dumps(site.stellwerk("explain", f"pod/{NAMESPACE}/in-place"))
        ours = site.holder(*lease)
    # kube-scheduler stands by now. New pods of the Deployment would need one that leads.
    site.run("scale", DEPLOYMENT, "--replicas=0", "-n", OPERATORS_NAMESPACE)
    site.wait(
        *("delete", "pod", "--selector=app.kubernetes.io/name=stellwerk"),
        namespace=OPERATORS_NAMESPACE,
    )
    site.until("kube-scheduler leads", lambda: site.holder(*lease) not in {"", ours})
    installation.give_back()
    site.apply(site.pod_manifest("given-back", scheduler=""), site.pod_manifest("beside"))
    site.wait("condition=Ready", "pod/given-back", "pod/beside")
    site.delete(*(site.pod(name) for name in ("in-place", "given-back", "beside")))


class KubeScheduler:
    """The cluster's own scheduler, stopped and started by commands of the user or as a static pod.

    kubeadm and kind have its file in /etc/kubernetes/manifests of each node of the control plane.
    """

    def __init__(self, site: Site) -> None:
        self._site = site
        self._commands = [os.environ.get(f"E2E_{verb}_SCHEDULER", "") for verb in ("STOP", "START")]
        found = site.pods("component=kube-scheduler", namespace="kube-system")
        self._nodes = [pod["spec"]["nodeName"] for pod in found]

    @property
    def can_be_stopped(self) -> bool:
        return all(self._commands) or bool(self._nodes)

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """No kube-scheduler runs inside; whatever happens there, it is started again."""
        kept, away = "/kubernetes/manifests/kube-scheduler.yaml", "/kubernetes/kube-scheduler.yaml"
        try:
            self._do(self._commands[0], f"mv {kept} {away}")
            if self._nodes:
                self._site.until("kube-scheduler is stopped", lambda: not self._runs())
            yield
        finally:
            self._do(self._commands[1], f"if [ -e {away} ]; then mv {away} {kept}; fi")
            if self._nodes:
                self._site.until("kube-scheduler runs", self._runs)

    def _runs(self) -> bool:
        return bool(self._site.pods("component=kube-scheduler", namespace="kube-system"))

    def _do(self, command: str, on_node: str) -> None:
        if command:
            subprocess.run(command, shell=True, check=True)  # noqa: S602 the user's own command
            return
        for number, node in enumerate(self._nodes):
            mover = self._site.pod_manifest(
                f"mover-{number}",
                command=on_node,
                scheduler="",
                nodeName=node,
                restartPolicy="Never",
                tolerations=[{"operator": "Exists"}],
                volumes=[{"name": "kubernetes", "hostPath": {"path": "/etc/kubernetes"}}],
            )
            mounted = [{"name": "kubernetes", "mountPath": "/kubernetes"}]
            mover["spec"]["containers"][0]["volumeMounts"] = mounted
            self._site.apply(mover)
            self._site.wait("jsonpath={.status.phase}=Succeeded", f"pod/mover-{number}")
            self._site.delete(mover)


# --- the end --------------------------------------------------------------------------------------


def test_uninstalling_leaves_nothing(site: Site, installation: Installation) -> None:
    installation.uninstall()
    assert sorted(site.marks() - site.marks_before) == []
