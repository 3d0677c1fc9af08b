"""Controllers go on whatever status another client writes, and correct what is theirs."""

import contextlib
import copy
from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from stellwerk_cluster.apimachinery.failures import StatusError
from stellwerk_cluster.apimachinery.patching import JSON_PATCH
from stellwerk_cluster.apiserver.tables import TableConvertors
from stellwerk_cluster.hollow.container_logs import pod_log
from tests.support.cluster_driver import TEMPLATE, Driver

SELECTOR = {"selector": {"matchLabels": {"app": "web"}}, "template": TEMPLATE}
CLAIM = {
    "accessModes": ["ReadWriteOnce"],
    "storageClassName": "fast",
    "resources": {"requests": {"storage": "1Gi"}},
}
FAST = {"metadata": {"name": "fast"}, "provisioner": "example.com/disk"}
TARGET = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "a"}
JOB = {"template": {**TEMPLATE, "spec": {**TEMPLATE["spec"], "restartPolicy": "Never"}}}
OBJECTS: dict[str, tuple[str, str, dict[str, Any], tuple[str, ...]]] = {
    "Deployment": (
        "apps",
        "deployments",
        {"replicas": 2, "minReadySeconds": 5, **SELECTOR},
        ("Available", "Progressing", "ReplicaFailure"),
    ),
    "ReplicaSet": ("apps", "replicasets", {"replicas": 2, **SELECTOR}, ("ReplicaFailure",)),
    "ReplicationController": (
        "",
        "replicationcontrollers",
        {"replicas": 2, "selector": {"app": "web"}, "template": TEMPLATE},
        ("ReplicaFailure",),
    ),
    "StatefulSet": (
        "apps",
        "statefulsets",
        {"replicas": 2, "serviceName": "a", "minReadySeconds": 5, **SELECTOR},
        ("Any",),
    ),
    "DaemonSet": ("apps", "daemonsets", {"minReadySeconds": 5, **SELECTOR}, ("Any",)),
    "Job": (
        "batch",
        "jobs",
        {"completions": 1, "activeDeadlineSeconds": 50, "ttlSecondsAfterFinished": 5, **JOB},
        ("Suspended", "SuccessCriteriaMet", "FailureTarget", "Complete", "Failed"),
    ),
    "CronJob": ("batch", "cronjobs", {"schedule": "* * * * *", "jobTemplate": {"spec": JOB}}, ()),
    "PodDisruptionBudget": (
        "policy",
        "poddisruptionbudgets",
        {"minAvailable": 1, "selector": {}},
        ("DisruptionAllowed",),
    ),
    "HorizontalPodAutoscaler": (
        "autoscaling",
        "horizontalpodautoscalers",
        {"maxReplicas": 3, "scaleTargetRef": TARGET},
        ("AbleToScale", "ScalingActive", "ScalingLimited"),
    ),
    "PersistentVolumeClaim": ("", "persistentvolumeclaims", CLAIM, ("Resizing", "Unused")),
    "Pod": (
        "",
        "pods",
        TEMPLATE["spec"],
        ("Ready", "ContainersReady", "Initialized", "PodScheduled", "DisruptionTarget"),
    ),
    "Namespace": (
        "",
        "namespaces",
        {},
        ("NamespaceContentRemaining", "NamespaceDeletionDiscovery"),
    ),
    "Node": ("", "nodes", {}, ("Ready", "MemoryPressure", "DiskPressure")),
    "ResourceQuota": ("", "resourcequotas", {"hard": {"pods": "5"}}, ()),
    "Service": ("", "services", {"selector": {"app": "web"}, "ports": [{"port": 80}]}, ("Any",)),
}
CORRECTED = (
    "Deployment",
    "ReplicaSet",
    "ReplicationController",
    "StatefulSet",
    "DaemonSet",
    "PodDisruptionBudget",
    "HorizontalPodAutoscaler",
    "ResourceQuota",
    "PersistentVolumeClaim",
)
"""Kinds whose controllers write back what another client took away.

A Job counts by its status, and pods, nodes and services have their status from elsewhere.
"""
LEFT = {
    "type",  # a condition of no type is another client's
    "lastUpdateTime",  # without it, the progress of a Deployment counts as long ago
    "capacity",  # of a claim that is Bound already, a driver may have told a smaller one
}
"""Fields that no controller writes back, as in kube-controller-manager."""
_ROUND_SECONDS = {"HorizontalPodAutoscaler": 16}
"""Seconds until a controller looks at its object, where it does so every so often."""
CONDITIONS = [
    pytest.param({}, id="without a time"),
    pytest.param({"lastTransitionTime": None, "lastUpdateTime": None}, id="times are null"),
]


def started(name: str, **options: Any) -> tuple[Driver, str, str]:
    """A cluster with an object `a` of the kind, its group and plural."""
    group, plural, spec, _ = OBJECTS[name]
    driver = Driver(**options)
    driver.create("storageclasses", FAST, group="storage.k8s.io")
    driver.create(plural, {"metadata": {"name": "a"}, "spec": spec}, group=group)
    return driver, group, plural


@pytest.mark.parametrize("status", ["True", "False"])
@pytest.mark.parametrize("times", CONDITIONS)
@pytest.mark.parametrize(
    ("name", "type_"),
    [
        (name, type_)
        for name, row in OBJECTS.items()
        for type_ in (*row[3], "example.com/Mine")
        if name not in ("ResourceQuota", "CronJob")  # they have no conditions
    ],
)
def test_conditions_that_another_client_writes_stop_no_controller(
    name: str, type_: str, times: dict[str, Any], status: str
) -> None:
    driver, group, plural = started(name)
    condition = {"type": type_, "status": status, "reason": "R", "message": "m", **times}
    patch = {"status": {"conditions": [condition]}}
    with contextlib.suppress(StatusError):  # times of some conditions are demanded
        driver.patch(plural, "a", patch, group=group, subresource="status")
    assert driver.cluster.work.busy == []
    driver.run(100)
    assert driver.cluster.work.busy == []


def paths_below(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """The path of the value, and those of all fields and elements in it."""
    yield path
    keys: Iterable[str | int] = value if isinstance(value, dict) else ()
    keys = range(len(value)) if isinstance(value, list) else keys
    for key in keys:
        yield from paths_below(value[key], (*path, key))


def without(value: Any, path: tuple[str | int, ...]) -> Any:
    """The value without the field or element at the path."""
    changed = copy.deepcopy(value)
    at = changed
    for key in path[:-1]:
        at = at[key]
    del at[path[-1]]
    return changed


def _untimed(value: Any) -> Any:
    """The value without times and without the order of lists."""
    if isinstance(value, dict):
        return {key: _untimed(each) for key, each in value.items() if not key.endswith("Time")}
    return sorted(map(_untimed, value), key=str) if isinstance(value, list) else value


def show(driver: Driver) -> None:
    """Print every object as a table, and the log of every container."""
    tables = TableConvertors(driver.clock, driver.api.custom)
    for kind in driver.api.kinds:
        for entry in driver.api.store.collection(kind.storage_name).entries():
            tables.printer(kind).cells(entry.obj)
    for pod in driver.pods():
        for container in pod["spec"]["containers"]:
            pod_log(pod, container["name"], previous=False)


@pytest.mark.parametrize("kubelet", [True, False])
@pytest.mark.parametrize("name", OBJECTS)
def test_a_status_that_another_client_writes_without_some_field_stops_nothing(
    name: str,
    kubelet: bool,  # noqa: FBT001
) -> None:
    driver, group, plural = started(name, **({} if kubelet else {"kubelet": None}))
    driver.run(15)
    kind = driver.api.kinds.resource(plural, group)
    objects = [(kind, "a")]
    pods = driver.api.kinds.resource("pods")
    objects += [(pods, pod["metadata"]["name"]) for pod in driver.pods()[:1] if name != "Pod"]
    for row, object_name in objects:
        key = ("default" if row.namespaced else "", object_name)
        status = (driver.api.find(row.storage_name, *key) or {}).get("status") or {}
        for path in paths_below({"status": status}):
            if not path or driver.api.find(row.storage_name, *key) is None:
                continue
            changed = without({"status": status}, path).get("status") or {}
            patch = [{"op": "add", "path": "/status", "value": changed}]
            with contextlib.suppress(StatusError):  # some fields are demanded
                driver.api.patch(row, key, patch, JSON_PATCH, subresource="status")
            driver.cluster.work.settle()
            show(driver)
            driver.advance(_ROUND_SECONDS.get(name, 1))
            assert driver.cluster.work.busy == [], path
            # The condition of a rollout that has not come to its end stays as it was last written.
            is_under_way = name == "Deployment" and not kubelet
            is_corrected = name in CORRECTED and row is kind and not is_under_way
            if is_corrected and LEFT.isdisjoint(path):
                assert _untimed(driver.get(row.storage_name, object_name)["status"]) == _untimed(
                    status
                ), path
