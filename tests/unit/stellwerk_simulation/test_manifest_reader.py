"""Manifests of users as the API server would store them."""

import re
from typing import Any

import pytest
import yaml

from stellwerk_cluster.registry.kind_strategy import strategy_of
from stellwerk_kube.errors import ConfigurationError
from stellwerk_kube.schema.tables import object_types
from stellwerk_simulation.manifest_reader import admitted, counted, settled

USED = frozenset({each.kind for each in object_types()} | {"SchedulerProfile"})


def read(text: str) -> list[dict[str, Any]]:
    return admitted("f.yaml", list(yaml.safe_load_all(text)), USED)


def test_limits_are_requests_and_the_host_network_sets_host_ports() -> None:
    [pod] = read("""
kind: Pod
metadata: {name: p}
spec:
  hostNetwork: true
  initContainers:
  - {name: i, resources: {limits: {cpu: 3}}}
  containers:
  - name: c
    ports: [{containerPort: 80}, {containerPort: 81, hostPort: 81}]
    resources: {limits: {cpu: 1, example.com/gpu: 2}, requests: {cpu: 500m}}
""")
    [init], [container] = pod["spec"]["initContainers"], pod["spec"]["containers"]
    assert init["resources"]["requests"] == {"cpu": "3"}
    assert container["resources"]["requests"] == {"cpu": "500m", "example.com/gpu": "2"}
    assert [port["hostPort"] for port in container["ports"]] == [80, 81]
    assert {port["protocol"] for port in container["ports"]} == {"TCP"}


def test_limits_of_the_pod_are_requests_and_label_keys_become_selectors() -> None:
    [pod] = read("""
kind: Pod
metadata: {name: p, labels: {rev: "1"}}
spec:
  resources: {limits: {memory: 1Gi}}
  containers: [{name: c}]
  affinity:
    podAntiAffinity:
      requiredDuringSchedulingIgnoredDuringExecution:
      - {topologyKey: zone, labelSelector: {matchLabels: {a: b}}, matchLabelKeys: [rev]}
""")
    assert pod["spec"]["resources"]["requests"] == {"memory": "1Gi"}
    [term] = pod["spec"]["affinity"]["podAntiAffinity"].popitem()[1]
    expressions = [{"key": "rev", "operator": "In", "values": ["1"]}]
    assert term["labelSelector"]["matchExpressions"] == expressions


def test_what_was_read_from_a_cluster_stays_as_it_is() -> None:
    text = "kind: Pod\nmetadata: {name: p, uid: u}\nspec: {containers: [{ofTomorrow: 1}]}"
    assert read(text) == list(yaml.safe_load_all(text))


def test_other_kinds_with_defaults_that_decisions_read() -> None:
    node, cordoned, volume, storage_class, controller, claim = read("""
kind: Node
metadata: {name: n}
status: {capacity: {cpu: 4, memory: 8Gi}, allocatable: {cpu: 3}}
---
kind: Node
metadata: {name: c}
spec: {unschedulable: true}
---
kind: PersistentVolume
metadata: {name: v}
---
kind: StorageClass
metadata: {name: s}
provisioner: p
---
kind: ReplicationController
metadata: {name: r}
spec: {template: {metadata: {labels: {app: r}}, spec: {containers: [{name: c}]}}}
---
apiVersion: resource.k8s.io/v1beta1
kind: ResourceClaim
metadata: {name: d}
spec: {devices: {requests: [{name: gpu, deviceClassName: gpu}]}}
""")
    assert node["status"]["allocatable"] == {"cpu": "3", "memory": "8Gi"}
    [taint] = cordoned["spec"]["taints"]
    assert (taint["key"], taint["effect"]) == ("node.kubernetes.io/unschedulable", "NoSchedule")
    assert volume["status"]["phase"] == "Available"
    assert storage_class["volumeBindingMode"] == "Immediate"
    assert controller["spec"]["selector"] == {"app": "r"}
    [request] = claim["spec"]["devices"]["requests"]
    assert request["exactly"]["count"] == 1


@pytest.mark.parametrize("kind", ["Pod", "Node", "StorageClass", "CSIDriver", "DeviceClass"])
def test_the_embedded_cluster_has_the_same_defaults(kind: str) -> None:
    spec = "provisioner: p" if kind == "StorageClass" else "spec: {}"
    [obj] = read(f"kind: {kind}\nmetadata: {{name: x}}\n{spec}")
    before = yaml.safe_dump(obj)
    strategy_of(kind).default(obj)
    assert yaml.safe_dump(obj) == before


def test_names_are_made_of_their_beginnings() -> None:
    text = "kind: Pod\nmetadata: {generateName: web-}\nspec: {}"
    found = read(f"{text}\n---\n{text}\n---\nkind: Node\nmetadata: {{generateName: {'n' * 70}}}")
    names = [obj["metadata"]["name"] for obj in found]
    assert names == ["web-00001", "web-00002", f"{'n' * 58}00001"]


def test_kinds_are_told_by_their_group() -> None:
    found = read("""
{apiVersion: batch/v1, kind: Job, metadata: {name: a}, spec: {}}
---
{apiVersion: batch.volcano.sh/v1alpha1, kind: Job, metadata: {name: b}, spec: {tasks: []}}
---
{apiVersion: extensions/v1beta1, kind: Deployment, metadata: {name: c}, spec: {rollbackTo: {}}}
---
{apiVersion: scheduling.x-k8s.io/v1alpha1, kind: PodGroup, metadata: {name: d}}
---
{apiVersion: v1, kind: Deployment, metadata: {name: e}, spec: {}}
---
{kind: Job, metadata: {name: f}, spec: {}}
""")
    assert [obj["kind"] for obj in found] == [
        "Job",
        "Job.batch.volcano.sh",
        "Deployment.extensions",
        "PodGroup",
        "Deployment of v1",
        "Job",
    ]
    foreign = "1 Deployment of v1, 1 Deployment.extensions, 1 Job.batch.volcano.sh"
    assert counted(found, USED) == foreign


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "kind: Pod\nmetadata: {name: p}\nspec: {contianers: []}",
            'f.yaml, Pod p: unknown field "spec.contianers"',
        ),
        ("kind: Pod\nspec: {hostNetwork: 7}", "f.yaml, Pod without a name: "),
        (
            "kind: RuntimeClass\nmetadata: {name: r}\noverhead: {podFixed: {cpu: much}}",
            "f.yaml, RuntimeClass r: quantities must match",
        ),
        ("kind: Pod\nmetadata: 5", "cannot unmarshal"),
        ("kind: Node\nmetadata: {name: '{{ n }}'}", "the Node is a template"),
    ],
)
def test_what_is_read_is_held_to_its_fields(text: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        read(text)


def test_claims_that_name_their_volume_are_bound() -> None:
    claim, other = settled(
        read("""
kind: PersistentVolumeClaim
metadata: {name: c}
spec: {volumeName: v}
---
kind: PersistentVolume
metadata: {name: v}
"""),
        USED,
    )
    assert claim["status"]["phase"] == "Bound"
    assert claim["metadata"]["namespace"] == "default"
    assert claim["metadata"]["annotations"] == {"pv.kubernetes.io/bind-completed": "yes"}
    assert "namespace" not in other["metadata"]


@pytest.mark.parametrize("kind", ["Pod", "Node", "Deployment"])
@pytest.mark.parametrize("metadata", [{}, {"metadata": {}}, {"metadata": None}])
def test_an_object_without_a_name_is_refused(kind: str, metadata: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=f"^f: a {kind} has no metadata.name$"):
        admitted("f", [{"kind": kind, **metadata, "spec": {}}], USED)


@pytest.mark.parametrize(
    ("kind", "spec", "field"),
    [
        ("Node", {"taints": [{"key": "a", "effect": "NoSched"}]}, "taints[0].effect"),
        ("Pod", {"tolerations": [{"operator": "Exist"}]}, "tolerations[0].operator"),
        (
            "Pod",
            {"topologySpreadConstraints": [{"maxSkew": 1, "whenUnsatisfiable": "Never"}]},
            "topologySpreadConstraints[0].whenUnsatisfiable",
        ),
    ],
)
def test_a_value_that_the_api_server_does_not_know_is_refused(
    kind: str, spec: dict[str, Any], field: str
) -> None:
    obj = {"kind": kind, "metadata": {"name": "a"}, "spec": spec}
    with pytest.raises(ConfigurationError, match=re.escape(f"spec.{field}: Unsupported value")):
        settled(admitted("f", [obj], USED), USED)
    # What was read from a cluster stays as it is.
    settled(admitted("f", [{**obj, "metadata": {"name": "a", "uid": "u"}}], USED), USED)
