"""kubectl shows groups of pods: the API's own, and those of the coscheduling plugin."""

from collections.abc import Iterator

import pytest

from stellwerk_cluster.apimachinery.feature_gates import GANGS
from stellwerk_cluster.cluster import ClusterOptions, EmbeddedCluster
from tests.support.kubectls import Kubectl, newest, program_of
from tests.support.repository import ROOT
from tests.support.served_cluster import served

DEFINITION = ROOT / "manifests" / "coscheduling" / "podgroups.yaml"
GROUPS = """
apiVersion: scheduling.k8s.io/v1alpha2
kind: Workload
metadata: {name: training}
spec:
  podGroupTemplates: [{name: workers, schedulingPolicy: {gang: {minCount: 4}}}]
---
apiVersion: scheduling.k8s.io/v1alpha2
kind: PodGroup
metadata: {name: workers}
spec:
  podGroupTemplateRef: {workload: {workloadName: training, podGroupTemplateName: workers}}
  schedulingPolicy: {gang: {minCount: 4}}
  schedulingConstraints: {topology: [{key: topology.kubernetes.io/zone}]}
---
apiVersion: scheduling.k8s.io/v1alpha2
kind: PodGroup
metadata: {name: rest}
spec: {schedulingPolicy: {basic: {}}}
"""
STATUS = (
    '{"status": {"conditions": [{"type": "PodGroupScheduled", "status": "False", "message": "m", '
    '"reason": "Unschedulable", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}}'
)
COSCHEDULED = """
apiVersion: scheduling.x-k8s.io/v1alpha1
kind: PodGroup
metadata: {name: mpi}
spec: {minMember: 3, minResources: {cpu: 3, memory: 6Gi}, scheduleTimeoutSeconds: 30}
"""


@pytest.fixture(scope="module")
def kubectl(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubectl]:
    program, home = program_of(newest()), tmp_path_factory.mktemp("kubectl")
    with served(EmbeddedCluster(1, options=ClusterOptions(feature_gates=GANGS))) as cluster:
        cluster.write_kubeconfig(home / "kubeconfig")
        yield Kubectl(program, home, home / "kubeconfig")


def words(row: str) -> list[str]:
    """A row of a table without the age."""
    return row.split()[:-1]


def test_groups_and_workloads_are_applied_shown_explained_and_deleted(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=GROUPS)
    assert "unchanged" in kubectl("apply", "-f", "-", stdin=GROUPS)
    kubectl("patch", "podgroup", "workers", "--subresource=status", "--type=merge", "-p", STATUS)
    header, *rows = kubectl("get", "podgroups").splitlines()
    assert header.split() == ["NAME", "POLICY", "WORKLOAD", "STATUS", "AGE"]
    assert [words(row) for row in rows] == [
        ["rest", "Basic", "<none>", "Pending"],
        ["workers", "Gang", "training", "Unschedulable"],
    ]
    assert words(kubectl("get", "workloads", "--no-headers")) == ["training"]
    assert "Min Count:  4" in kubectl("describe", "podgroup", "workers")
    explained = kubectl("explain", "podgroup.spec.schedulingPolicy.gang")
    assert "How many pods must fit at the same time" in explained
    listed = kubectl("api-resources", "--api-group=scheduling.k8s.io", "-o", "name").split()
    assert {"podgroups.scheduling.k8s.io", "workloads.scheduling.k8s.io"} <= set(listed)
    kubectl("delete", "podgroups,workloads", "--all", "--timeout=20s")
    assert kubectl("get", "podgroups", "--no-headers") == ""


def test_groups_of_the_coscheduling_plugin_show_phase_and_counters(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", str(DEFINITION))
    kubectl("wait", "--for=condition=Established", "crd/podgroups.scheduling.x-k8s.io")
    kubectl("apply", "-f", "-", stdin=COSCHEDULED)
    status = '{"status": {"phase": "Running", "running": 3, "succeeded": 1, "failed": 0}}'
    kubectl("patch", "pg", "mpi", "--subresource=status", "--type=merge", "-p", status)
    header, row = kubectl("get", "pg").splitlines()
    assert header.split() == [
        *("NAME", "PHASE", "MINMEMBER", "RUNNING", "SUCCEEDED", "FAILED", "AGE"),
    ]
    assert words(row) == ["mpi", "Running", "3", "3", "1", "0"]
    kubectl("patch", "pg", "mpi", "--type=merge", "-p", '{"spec": {"minMember": 2}}')
    refused = kubectl.run("patch", "pg", "mpi", "--type=merge", "-p", '{"spec": {"minMember": 0}}')
    assert "spec.minMember" in refused.stderr
    kubectl("delete", "crd", "podgroups.scheduling.x-k8s.io", "--timeout=20s")
