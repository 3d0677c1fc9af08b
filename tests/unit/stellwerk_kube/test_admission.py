"""Admission of pods in files: the same manifests give the same pods as in a cluster."""

import re
from typing import Any

import pytest
import yaml

from stellwerk.backend.priority_classes import PriorityClasses
from stellwerk.models.pod import parse_pod
from stellwerk_cluster.apimachinery.failures import StatusError
from stellwerk_kube.admission import KINDS, Admission
from stellwerk_kube.errors import ConfigurationError
from stellwerk_simulation.cluster_objects import USED, not_read
from stellwerk_simulation.manifest_reader import admitted, settled
from stellwerk_simulation.pod_templates import pods_of
from tests.support.embedded_rules import Rules

Object = dict[str, Any]

BESIDE = """
{apiVersion: v1, kind: Namespace, metadata: {name: team}}
---
apiVersion: v1
kind: LimitRange
metadata: {name: b, namespace: team}
spec:
  limits:
  - {type: Container, default: {cpu: 1}, defaultRequest: {cpu: 250m, memory: 64Mi}}
---
apiVersion: v1
kind: LimitRange
metadata: {name: a, namespace: team}
spec:
  limits:
  - {type: Container, max: {cpu: 4}, min: {cpu: 10m}, defaultRequest: {cpu: 125m}}
  - {type: Pod, max: {memory: 8Gi}}
---
apiVersion: node.k8s.io/v1
kind: RuntimeClass
metadata: {name: sandboxed}
handler: kata
overhead: {podFixed: {cpu: 250m, memory: 120Mi}}
scheduling:
  nodeSelector: {runtime: kata}
  tolerations: [{key: sandbox, operator: Exists, effect: NoSchedule}]
---
apiVersion: node.k8s.io/v1
kind: RuntimeClass
metadata: {name: plain}
handler: runc
---
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: polite}
value: 1000
preemptionPolicy: Never
---
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: usual}
value: 7
globalDefault: true
"""
"""A namespace with limits, two runtimes, and priority classes, one of which is the default."""


def with_limit(**resources: Any) -> Object:
    return {"name": "c", "image": "i", "resources": {"limits": {"memory": "1Gi"}, **resources}}


SPECS: dict[str, Object] = {
    "nothing is said": {"containers": [with_limit()]},
    "a limit is the request before defaults come": {
        "containers": [with_limit(limits={"cpu": "2", "memory": "1Gi"})],
    },
    "an initial container": {
        "initContainers": [
            {"name": "i", "image": "i", "resources": {"limits": {"cpu": "3"}}},
            {"name": "j", "image": "i"},
        ],
        "containers": [with_limit()],
    },
    "resources of the pod": {
        "resources": {"limits": {"cpu": "4", "memory": "2Gi"}},
        "containers": [with_limit()],
    },
    "a runtime with overhead": {
        "runtimeClassName": "sandboxed",
        "nodeSelector": {"disk": "ssd"},
        "tolerations": [{"key": "node.kubernetes.io/not-ready", "operator": "Exists"}],
        "containers": [with_limit()],
    },
    "a runtime without overhead": {"runtimeClassName": "plain", "containers": [with_limit()]},
    "a class that never preempts": {
        "priorityClassName": "polite",
        "containers": [with_limit()],
    },
    "a system class": {
        "priorityClassName": "system-node-critical",
        "containers": [with_limit()],
    },
}
READ = (
    "containers",
    "initContainers",
    "resources",
    "overhead",
    "nodeSelector",
    "tolerations",
    "priorityClassName",
)
"""The fields of a pod's spec that admission changes or reads, but for priorities."""
WORKLOADS = {
    "Pod": "",
    "Deployment": "apps/v1",
    "ReplicaSet": "apps/v1",
    "StatefulSet": "apps/v1",
    "Job": "batch/v1",
    "DaemonSet": "apps/v1",
}
NODE = {"kind": "Node", "metadata": {"name": "n", "labels": {"disk": "ssd", "runtime": "kata"}}}


def manifest(kind: str, spec: Object) -> Object:
    metadata = {"name": "p", "namespace": "team"}
    if kind == "Pod":
        return {"apiVersion": "v1", "kind": kind, "metadata": metadata, "spec": spec}
    template = {"metadata": {"labels": {"app": "p"}}, "spec": spec}
    api_version = WORKLOADS[kind]
    return {
        "apiVersion": api_version,
        "kind": kind,
        "metadata": metadata,
        "spec": {"template": template},
    }


def read(*objects: Object) -> list[Object]:
    copied = yaml.safe_load_all(yaml.safe_dump_all(objects))
    return settled(admitted("f.yaml", list(copied), USED), USED)


def beside() -> list[Object]:
    return list(yaml.safe_load_all(BESIDE))


def pod_in_file(kind: str, spec: Object) -> Object:
    *others, written = read(*beside(), manifest(kind, spec))
    [pod] = pods_of(written, "default", 1, [NODE], Admission(others))
    return pod


def pod_in_cluster(spec: Object) -> Object:
    rules = Rules()
    for obj in [*beside(), manifest("Pod", spec)]:
        group = obj["apiVersion"].rpartition("/")[0]
        plural = f"{obj['kind'].lower()}{'es' if obj['kind'].endswith('s') else 's'}"
        kind = rules.api.kinds.resource(plural, group)
        stored = rules.api.create(kind, obj["metadata"].get("namespace", ""), obj)
    return stored.obj


def seen(pod: Object) -> Object:
    classes = PriorityClasses()
    for obj in beside():
        if obj["kind"] == "PriorityClass":
            classes.set(obj)
    parsed = parse_pod(pod, classes.resolve)
    told = {name: pod["spec"][name] for name in READ if name in pod["spec"]}
    priority = (parsed.priority, parsed.spec.preemption_policy)
    return told | {"priority": priority, "qosClass": pod["status"]["qosClass"]}


@pytest.mark.parametrize("kind", WORKLOADS)
@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
def test_a_file_makes_the_pods_that_it_makes_in_a_cluster(kind: str, spec: Object) -> None:
    in_file, in_cluster = seen(pod_in_file(kind, spec)), seen(pod_in_cluster(spec))
    if kind == "DaemonSet":
        # Its controller adds tolerations to the template, in the cluster, too.
        ours, theirs = in_file.pop("tolerations"), in_cluster.pop("tolerations")
        given = [each for each in theirs if "tolerationSeconds" not in each]
        assert [each for each in given if each not in ours] == []
    assert in_file == in_cluster


def test_defaults_are_those_of_the_pods_own_namespace() -> None:
    obj = manifest("Pod", SPECS["nothing is said"])
    obj["metadata"]["namespace"] = "other"
    *_, pod = read(*beside(), obj)
    assert pod["spec"]["containers"][0]["resources"]["requests"] == {"memory": "1Gi"}
    assert pod["spec"]["priority"] == 7


def test_a_limit_range_without_a_namespace_is_in_the_one_of_its_pods() -> None:
    limit = {"type": "Container", "defaultRequest": {"cpu": "2"}}
    obj = {"kind": "LimitRange", "metadata": {"name": "l"}, "spec": {"limits": [limit]}}
    spec = {"containers": [{"name": "c", "image": "i"}]}
    written = {"kind": "Pod", "metadata": {"name": "p"}, "spec": spec}
    _, pod = read(obj, written)
    assert pod["spec"]["containers"][0]["resources"] == {"requests": {"cpu": "2"}}
    pod = {**written, "spec": yaml.safe_load(yaml.safe_dump(spec)), "status": {}}
    Admission([obj], "team").pod(pod)
    assert pod["spec"]["containers"][0]["resources"] == {"requests": {"cpu": "2"}}


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        pytest.param(
            {"containers": [with_limit(limits={"cpu": "5"})]},
            "maximum cpu usage per Container is 4, but limit is 5",
            id="more than a container may have",
        ),
        pytest.param(
            {"containers": [with_limit(limits={"memory": "9Gi"})]},
            "maximum memory usage per Pod is 8Gi, but limit is 9Gi",
            id="more than a pod may have",
        ),
        pytest.param(
            {
                "runtimeClassName": "sandboxed",
                "nodeSelector": {"runtime": "runc"},
                "containers": [with_limit()],
            },
            "conflict: runtimeClass.scheduling.nodeSelector[runtime] = kata",
            id="nodes that do not have the runtime",
        ),
        pytest.param(
            {
                "runtimeClassName": "sandboxed",
                "overhead": {"cpu": "1"},
                "containers": [with_limit()],
            },
            "Pod's Overhead doesn't match",
            id="an overhead of its own",
        ),
        pytest.param(
            {"priorityClassName": "polite", "priority": 5, "containers": [with_limit()]},
            "the integer value of priority (5) must not be provided",
            id="another priority",
        ),
    ],
)
@pytest.mark.parametrize("kind", ["Pod", "Deployment"])
def test_what_an_api_server_refuses_is_refused_with_its_reason(
    kind: str, spec: Object, reason: str
) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(reason)) as caught:
        pod_in_file(kind, spec)
    assert "the API server would refuse pod team/p" in str(caught.value)
    with pytest.raises(StatusError, match=re.escape(reason)):
        pod_in_cluster(spec)


def test_classes_that_the_file_does_not_have_change_nothing() -> None:
    spec = {"runtimeClassName": "gvisor", "priorityClassName": "gold", "containers": [with_limit()]}
    pod = pod_in_file("Deployment", spec)
    assert "overhead" not in pod["spec"]
    assert "priority" not in pod["spec"]


def test_what_was_read_from_a_cluster_is_not_admitted_again() -> None:
    obj = manifest("Pod", SPECS["a runtime with overhead"])
    obj["metadata"]["uid"] = "u"
    *_, pod = read(*beside(), obj)
    assert pod == obj


def test_a_claim_without_a_class_gets_the_default_one_and_keeps_to_the_limits() -> None:
    mark = {"storageclass.kubernetes.io/is-default-class": "true"}
    fast = {"kind": "StorageClass", "metadata": {"name": "fast", "annotations": mark}}
    fast["provisioner"] = "csi.example.com"
    limit = {"type": "PersistentVolumeClaim", "max": {"storage": "10Gi"}}
    limits = {"kind": "LimitRange", "metadata": {"name": "l"}, "spec": {"limits": [limit]}}

    def claim(size: str, **spec: Any) -> Object:
        asked = {"resources": {"requests": {"storage": size}}, **spec}
        return {"kind": "PersistentVolumeClaim", "metadata": {"name": "c"}, "spec": asked}

    *_, found = read(fast, limits, claim("1Gi"))
    assert found["spec"]["storageClassName"] == "fast"
    *_, found = read(fast, limits, claim("1Gi", storageClassName=""))
    assert found["spec"]["storageClassName"] == ""
    message = "refuse claim default/c: maximum storage usage per PersistentVolumeClaim is 10Gi"
    with pytest.raises(ConfigurationError, match=message):
        read(fast, limits, claim("11Gi"))


def test_a_malformed_object_of_a_cluster_is_one_line() -> None:
    broken = {"kind": "LimitRange", "metadata": {"name": "l", "uid": "u"}, "spec": 5}
    pod = {"kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [{"name": "c"}]}}
    with pytest.raises(ConfigurationError, match=r"cannot admit pod default/p: .* is malformed"):
        read(broken, pod)


def test_quotas_are_counted_among_what_is_left_out() -> None:
    objects = [{"kind": "ResourceQuota", "metadata": {"name": "q"}}, *beside()]
    assert not_read(objects) == "1 ResourceQuota"
    assert USED >= KINDS
