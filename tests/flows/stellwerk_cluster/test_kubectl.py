"""kubectl works on the embedded cluster, command by command."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from stellwerk_cli.embedded_cluster import open_cluster
from stellwerk_cluster.cluster import EmbeddedCluster
from tests.support.kubectls import Kubectl, newest, program_of
from tests.support.repository import ROOT
from tests.support.served_cluster import served

DEPLOYMENT = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      nodeName: node-1
      containers: [{name: c, image: registry.example/web:1, resources: {requests: {cpu: 100m}}}]
"""


@pytest.fixture(scope="module")
def kubectl(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubectl]:
    program, home = program_of(newest()), tmp_path_factory.mktemp("kubectl")
    with served(EmbeddedCluster(3)) as cluster:
        cluster.write_kubeconfig(home / "kubeconfig")
        yield Kubectl(program, home, home / "kubeconfig")


def test_get_wide_shows_ready_nodes_in_three_zones(kubectl: Kubectl) -> None:
    rows = kubectl("get", "nodes", "-o", "wide", "-L", "topology.kubernetes.io/zone").splitlines()
    assert [row.split()[:2] for row in rows[1:]] == [[f"node-{n}", "Ready"] for n in (1, 2, 3)]
    assert {row.split()[-1] for row in rows[1:]} == {"zone-a", "zone-b", "zone-c"}


def test_apply_is_idempotent_and_the_deployment_rolls_out(kubectl: Kubectl) -> None:
    assert "created" in kubectl("apply", "-f", "-", stdin=DEPLOYMENT)
    assert "unchanged" in kubectl("apply", "-f", "-", stdin=DEPLOYMENT)
    kubectl("rollout", "status", "deployment/web", "--timeout=20s")
    assert kubectl("get", "deployment", "web", "--no-headers").split()[1] == "2/2"
    kubectl("scale", "deployment", "web", "--replicas=1")
    kubectl("set", "image", "deployment/web", "c=registry.example/web:2")
    kubectl("rollout", "status", "deployment/web", "--timeout=20s")
    assert "registry.example/web:2" in kubectl("describe", "deployment", "web")
    kubectl("delete", "deployment", "web")
    kubectl("wait", "--for=delete", "pod", "-l", "app=web", "--timeout=20s")


def test_nodes_can_be_labelled_tainted_and_cordoned(kubectl: Kubectl) -> None:
    kubectl("label", "node", "node-2", "disk=ssd")
    kubectl("taint", "node", "node-2", "dedicated=x:NoSchedule")
    kubectl("cordon", "node-2")
    described = kubectl("describe", "node", "node-2")
    assert "disk=ssd" in described
    assert "dedicated=x:NoSchedule" in described
    assert "SchedulingDisabled" in kubectl("get", "node", "node-2")
    kubectl("uncordon", "node-2")
    kubectl("taint", "node", "node-2", "dedicated-")
    kubectl("label", "node", "node-2", "disk-")


def test_a_namespace_and_what_is_in_it_can_be_deleted(kubectl: Kubectl) -> None:
    namespace = '{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}}'
    kubectl("create", "-f", "-", stdin=namespace)
    kubectl("run", "job", "-n", "team", "--image=registry.example/job:1")
    kubectl("annotate", "pod", "-n", "team", "job", "note=yes")
    kubectl("delete", "namespace", "team", "--timeout=20s")
    assert "team" not in kubectl("get", "namespaces")


def test_explain_knows_built_in_kinds(kubectl: Kubectl) -> None:
    assert "<map[string]string>" in kubectl("explain", "pod.spec.nodeSelector")
    assert "containers" in kubectl("explain", "deployment.spec.template.spec")
    csi = kubectl("explain", "pod.spec.volumes.csi")
    assert "A volume that a CSI driver makes for this pod." in csi
    assert "File system of the volume, such as ext4." in csi
    assert "fsType" in kubectl("explain", "pod.spec.volumes", "--recursive")


def test_a_custom_kind_can_be_defined_explained_and_used(kubectl: Kubectl) -> None:
    definition = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: gears.lab.example}
spec:
  group: lab.example
  scope: Cluster
  names: {plural: gears, kind: Gear, shortNames: [gr]}
  versions:
  - name: v1
    served: true
    storage: true
    additionalPrinterColumns: [{name: Size, type: integer, jsonPath: .spec.size}]
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            description: What the gear is like.
            properties: {size: {type: integer, minimum: 1, default: 3}}
"""
    kubectl("apply", "-f", "-", stdin=definition)
    kubectl("wait", "--for=condition=Established", "crd/gears.lab.example", "--timeout=5s")
    gear = "apiVersion: lab.example/v1\nkind: Gear\nmetadata: {name: one}\nspec: {}\n"
    kubectl("apply", "-f", "-", stdin=gear)
    assert kubectl("get", "gr", "one", "--no-headers").split()[1] == "3"
    assert "What the gear is like." in kubectl("explain", "gear.spec")
    kubectl("delete", "crd", "gears.lab.example")


def test_apply_takes_what_the_command_has_made_for_its_own(tmp_path: Path) -> None:
    with served(open_cluster(1)) as cluster:
        cluster.write_kubeconfig(tmp_path / "kubeconfig")
        kubectl = Kubectl(program_of(newest()), tmp_path, tmp_path / "kubeconfig")
        for file in ("crds", "manifests/profiles/default.yaml"):
            answer = kubectl("apply", "-f", str(ROOT / file))
            assert answer.split()[-1] == "unchanged"
