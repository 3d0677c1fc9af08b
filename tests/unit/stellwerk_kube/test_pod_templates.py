"""Templates of pods: which kinds have one, how many pods they run, and what a pod of them has."""

from typing import Any

import pytest

from stellwerk_kube.json_values import JsonObject
from stellwerk_kube.pod_templates import counted_pods, is_counted, template_of

SPEC: JsonObject = {"containers": [{"name": "main", "image": "app:1"}]}
TEMPLATE: JsonObject = {"metadata": {"labels": {"app": "web"}}, "spec": SPEC}


def controller(kind: str, **spec: Any) -> JsonObject:
    return {
        "apiVersion": "batch/v1" if kind.endswith("Job") else "apps/v1",
        "kind": kind,
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {"template": TEMPLATE, **spec},
    }


CRON: JsonObject = {
    "kind": "CronJob",
    "metadata": {"name": "web", "namespace": "shop"},
    "spec": {"jobTemplate": {"spec": {"parallelism": 4, "completions": 9, "template": TEMPLATE}}},
}


@pytest.mark.parametrize(
    ("obj", "count"),
    [
        pytest.param(controller("Deployment", replicas=7), 7, id="a Deployment"),
        pytest.param(controller("ReplicaSet"), 1, id="a ReplicaSet that does not say"),
        pytest.param(controller("StatefulSet", replicas=0), 0, id="scaled to nothing"),
        pytest.param(controller("Job", parallelism=5, completions=3), 3, id="few completions"),
        pytest.param(controller("Job", parallelism=5), 5, id="a Job that works off a queue"),
        pytest.param(controller("Job", completions=5), 1, id="a Job that runs one by one"),
        pytest.param(CRON, 4, id="one run of a CronJob"),
        pytest.param({"kind": "PodTemplate", "template": TEMPLATE}, 1, id="a PodTemplate"),
        pytest.param({"kind": "Pod", "spec": SPEC}, 1, id="a pod"),
        pytest.param(TEMPLATE, 1, id="a template without a kind"),
    ],
)
def test_a_controller_runs_as_many_pods_at_once_as_it_says(obj: JsonObject, count: int) -> None:
    template = template_of(obj, "default")
    assert template.count == count
    assert template.pod["spec"] == SPEC


def test_a_pod_of_a_deployment_belongs_to_the_replica_set_that_its_controller_makes() -> None:
    selector = {"matchLabels": {"app": "web"}}
    template = template_of(controller("Deployment", replicas=2, selector=selector), "default")
    (replica_set,) = template.controllers
    metadata = template.pod["metadata"]
    assert metadata["ownerReferences"][0]["name"] == replica_set["metadata"]["name"]
    assert replica_set["kind"] == metadata["ownerReferences"][0]["kind"] == "ReplicaSet"
    assert replica_set["spec"]["selector"]["matchLabels"] == metadata["labels"]
    assert metadata["labels"].items() > {"app": "web"}.items()
    assert metadata["namespace"] == replica_set["metadata"]["namespace"] == "shop"


def test_copies_of_a_live_pod_are_further_pods_of_its_controller() -> None:
    owners = [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-1", "controller": True}]
    live = {
        "kind": "Pod",
        "metadata": {"name": "web-1-x", "uid": "u", "ownerReferences": owners},
        "spec": SPEC,
        "status": {"phase": "Running", "nominatedNodeName": "n"},
    }
    pod = template_of(live, "shop").pod
    assert pod["metadata"] == {"name": "web-1-x", "namespace": "shop", "ownerReferences": owners}
    assert "status" not in pod


@pytest.mark.parametrize(
    "template",
    [
        pytest.param(TEMPLATE, id="a template without a kind"),
        pytest.param({"kind": "Pod", **TEMPLATE}, id="a pod"),
        pytest.param(controller("Deployment", replicas=3), id="a Deployment"),
        pytest.param(controller("Job", parallelism=4, completions=2), id="a Job"),
        pytest.param(CRON, id="a CronJob"),
    ],
)
def test_a_document_of_a_template_and_a_count_is_a_controller(template: JsonObject) -> None:
    document = {"template": template, "count": 500}
    assert is_counted(document)
    counted = template_of(counted_pods(document), "default")
    assert counted.count == 500
    assert counted.pod["spec"].items() >= SPEC.items()
    assert counted.pod["metadata"]["labels"].items() >= {("app", "web")}


@pytest.mark.parametrize("count", [-1, "5", True, 1.5])
def test_a_count_that_is_no_number_is_refused(count: object) -> None:
    with pytest.raises(ValueError, match="count: a number"):
        counted_pods({"template": TEMPLATE, "count": count})
