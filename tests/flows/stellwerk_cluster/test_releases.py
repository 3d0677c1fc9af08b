"""The embedded API as Kubernetes 1.36, 1.37 and 1.38: what differs, rule by rule, over HTTP."""

import json
import re
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

from stellwerk_cli.embedded_cluster import api_features
from stellwerk_cluster.apimachinery.failures import StatusError
from stellwerk_cluster.apimachinery.feature_gates import feature_gates
from stellwerk_cluster.apimachinery.kinds import kinds_of_release
from stellwerk_cluster.apimachinery.objects import with_value
from stellwerk_cluster.apimachinery.releases import runtime_config
from stellwerk_cluster.cluster import ClusterOptions, EmbeddedCluster
from stellwerk_cluster.registry.data_directory import DataDirectory
from stellwerk_cluster.registry.eviction import evict
from stellwerk_kube.errors import ConfigurationError
from stellwerk_kube.pod_amounts import qos_class
from tests.support.cluster_driver import Driver
from tests.support.served_cluster import send, served

GROUP = "scheduling.k8s.io"
GANG = {"schedulingPolicy": {"gang": {"minCount": 3}}}
OPTIONS: dict[str, Any] = {"controllers": False, "kubelet": None, "heartbeats": False}


def cluster_of(release: str, gates: str = "GenericWorkload=true", **more: Any) -> EmbeddedCluster:
    every = runtime_config("api/all=true", {kind.api_version for kind in kinds_of_release(release)})
    options = ClusterOptions(
        release=release,
        feature_gates=feature_gates(gates, release),
        runtime_config=every,
        **OPTIONS,
        **more,
    )
    return EmbeddedCluster(1, options=options)


@pytest.fixture(scope="module")
def old() -> Iterator[str]:
    with served(cluster_of("1.36")) as cluster:
        yield cluster.url


@pytest.fixture(scope="module")
def new() -> Iterator[str]:
    with served(cluster_of("1.37")) as cluster:
        yield cluster.url


@pytest.fixture(scope="module")
def newest() -> Iterator[str]:
    with served(cluster_of("1.38")) as cluster:
        yield cluster.url


@pytest.fixture(scope="module")
def all_gates() -> Iterator[str]:
    with served(cluster_of("1.37", "AllAlpha=true,AllBeta=true")) as cluster:
        yield cluster.url


def ask(
    url: str, method: str, path: str, body: Any = None, media: str = "application/json"
) -> tuple[int, Any]:
    content = None if body is None else json.dumps(body).encode()
    status, answer = send(url, method, path, content, {"Content-Type": media})
    try:
        return status, json.loads(answer)
    except json.JSONDecodeError:
        return status, answer.decode()


def place(version: str, plural: str = "podgroups", name: str = "") -> str:
    return f"/apis/{GROUP}/{version}/namespaces/default/{plural}" + (f"/{name}" if name else "")


def group(name: str, **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {**GANG, **spec}}


# Versions.


@pytest.mark.parametrize("path", ["v1alpha2/podgroups", "v1alpha2/workloads"])
def test_the_older_version_is_gone(old: str, new: str, path: str) -> None:
    assert ask(old, "GET", f"/apis/{GROUP}/{path}")[0] == 200
    assert ask(new, "GET", f"/apis/{GROUP}/{path}")[0] == 404


def test_the_version_and_the_documents_are_of_the_release(old: str, new: str) -> None:
    for url, release in ((old, "v1.36."), (new, "v1.37.")):
        assert ask(url, "GET", "/version")[1]["gitVersion"].startswith(release)
        document = ask(url, "GET", "/openapi/v3/api/v1")[1]
        assert document["info"]["version"].startswith(release)
        node = ask(url, "GET", "/api/v1/nodes/node-1")[1]
        assert node["status"]["nodeInfo"]["kubeletVersion"].startswith(release)


def test_what_is_written_in_one_version_is_read_in_the_other(new: str) -> None:
    assert (
        ask(new, "POST", place("v1alpha3"), group("both"))[1]["apiVersion"] == f"{GROUP}/v1alpha3"
    )
    status, found = ask(new, "GET", place("v1beta1", name="both"))
    assert (status, found["apiVersion"]) == (200, f"{GROUP}/v1beta1")
    for version in ("v1beta1", "v1alpha3"):
        (listed,) = [
            each
            for each in ask(new, "GET", place(version))[1]["items"]
            if each["metadata"]["name"] == "both"
        ]
        assert listed["spec"] == found["spec"]
        assert listed["metadata"]["uid"] == found["metadata"]["uid"]


def test_v1_shows_the_groups_of_v1beta1(newest: str) -> None:
    made = ask(newest, "POST", place("v1"), group("same"))[1]
    assert (made["apiVersion"], made["spec"]["disruptionMode"]) == (f"{GROUP}/v1", {"single": {}})
    beta = ask(newest, "GET", place("v1beta1", name="same"))[1]
    assert beta["apiVersion"] == f"{GROUP}/v1beta1"
    assert beta["metadata"]["uid"] == made["metadata"]["uid"]
    assert {**beta, "apiVersion": ""} == {**made, "apiVersion": ""}
    listed = ask(newest, "GET", place("v1"))[1]
    assert (listed["kind"], listed["apiVersion"]) == ("PodGroupList", f"{GROUP}/v1")


def test_a_plain_server_of_1_38_serves_v1_alone() -> None:
    with served(EmbeddedCluster(1, options=ClusterOptions(release="1.38", **OPTIONS))) as cluster:
        served_versions = ask(cluster.url, "GET", f"/apis/{GROUP}")[1]["versions"]
        assert [each["version"] for each in served_versions] == ["v1"]
        resources = ask(cluster.url, "GET", f"/apis/{GROUP}/v1")[1]["resources"]
        names = {"podgroups", "podgroups/status", "workloads", "priorityclasses"}
        assert {each["name"] for each in resources} == names
        status, made = ask(cluster.url, "POST", place("v1"), group("g"))
        assert status == 201
        assert made["metadata"]["finalizers"] == ["scheduling.k8s.io/podgroup-protection"]
        schema = ask(cluster.url, "GET", f"/openapi/v3/apis/{GROUP}/v1")[1]["components"]["schemas"]
        assert "io.k8s.api.scheduling.v1.PodGroup" in schema


@pytest.mark.parametrize("path", ["/apis/nobody.example", "/apis/nobody.example/v1", "/apis/a/b/c"])
def test_a_path_that_names_nothing_is_said_as_a_status(new: str, newest: str, path: str) -> None:
    assert ask(new, "GET", path) == (404, "404 page not found\n")
    status, answer = ask(newest, "GET", path)
    assert (status, answer["kind"], answer["reason"]) == (404, "Status", "NotFound")


@pytest.mark.parametrize("release", ["new", "newest"])
def test_the_older_form_of_discovery_is_not_served(
    release: str, request: pytest.FixtureRequest
) -> None:
    url = request.getfixturevalue(release)
    older = {"Accept": "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList"}
    assert send(url, "GET", "/apis", headers=older)[0] == 406


def test_a_status_says_the_version_of_what_was_written(new: str, newest: str) -> None:
    spec = {"containers": [{"name": "c", "image": "i"}]}
    target = {"kind": "Node", "name": "node-1"}
    binding = {"metadata": {"name": "bound"}, "target": target}
    pods = "/api/v1/namespaces/default/pods"
    for url in (new, newest):
        for name in ("bound", "evicted"):
            body = {"metadata": {"name": name}, "spec": spec}
            assert ask(url, "POST", pods, body)[0] == 201
        maps = "/api/v1/namespaces/default/configmaps"
        assert ask(url, "POST", maps, {"metadata": {"name": "m"}})[0] == 201
        eviction = {"metadata": {"name": "evicted"}}
        answers = [
            ask(url, "POST", f"{pods}/bound/binding", binding)[1],
            ask(url, "POST", f"{pods}/evicted/eviction", eviction)[1],
            ask(url, "DELETE", f"{maps}/m")[1],
        ]
        assert [each["status"] for each in answers] == ["Success"] * 3
        if url == new:
            assert [each["metadata"] for each in answers] == [{}] * 3
            continue
        bound = ask(url, "GET", f"{pods}/bound")[1]["metadata"]["resourceVersion"]
        versions = [each["metadata"]["resourceVersion"] for each in answers]
        assert versions[0] == bound
        # Each write is later than the one before: a client may wait for the version by its watch.
        assert int(versions[0]) < int(versions[1]) < int(versions[2])


# Groups of pods.


@pytest.mark.parametrize(
    ("spec", "status"),
    [
        pytest.param({"schedulingPolicy": {"gang": {"minCount": 0}}}, 422, id="minCount of none"),
        pytest.param(
            {"schedulingPolicy": {"basic": {}, "gang": {"minCount": 1}}}, 422, id="two policies"
        ),
        pytest.param({"schedulingPolicy": {}}, 422, id="no policy"),
        pytest.param({**GANG, "disruptionMode": {"all": {}, "single": {}}}, 422, id="two modes"),
        pytest.param({**GANG, "disruptionMode": {}}, 422, id="no mode"),
        pytest.param({**GANG, "disruptionMode": "PodGroup"}, 400, id="a mode as a text"),
        pytest.param({**GANG, "priority": 1_000_000_001}, 403, id="a priority of no class"),
        pytest.param({**GANG, "preemptionPolicy": "Never"}, 422, id="a policy without its gate"),
        pytest.param(
            {**GANG, "parentCompositePodGroupName": "p", "workloadRef": {}}, 422, id="a parent"
        ),
        pytest.param(
            {**GANG, "workloadRef": {"workloadName": "UPPER", "templateName": "t"}},
            422,
            id="a name that is none",
        ),
        pytest.param(
            {**GANG, "workloadRef": {"workloadName": "absent", "templateName": "t"}},
            201,
            id="a workload that is not there",
        ),
        pytest.param({"schedulingPolicy": {"basic": {}}}, 201, id="a basic policy"),
        pytest.param({**GANG, "disruptionMode": {"all": {}}}, 201, id="a mode"),
    ],
)
@pytest.mark.parametrize("version", ["v1beta1", "v1alpha3"])
def test_a_new_group_is_judged(
    new: str, newest: str, version: str, spec: dict[str, Any], status: int
) -> None:
    body = {"metadata": {"name": "judged"}, "spec": spec}
    for url, path in ((new, place(version)), (newest, place(version)), (newest, place("v1"))):
        got, answer = ask(url, "POST", f"{path}?dryRun=All", body)
        assert got == status, answer


@pytest.mark.parametrize(
    ("before", "after", "valid"),
    [
        pytest.param(GANG, {"schedulingPolicy": {"gang": {"minCount": 1}}}, True, id="minCount"),
        pytest.param(GANG, {"schedulingPolicy": {"gang": {"minCount": 0}}}, False, id="to nothing"),
        pytest.param(GANG, {"schedulingPolicy": {"basic": {}}}, False, id="the policy"),
        pytest.param({"schedulingPolicy": {"basic": {}}}, GANG, False, id="the policy, back"),
        pytest.param(GANG, {**GANG, "disruptionMode": {"all": {}}}, False, id="the mode"),
        pytest.param(GANG, {**GANG, "disruptionMode": {"single": {}}}, True, id="to the default"),
        pytest.param(GANG, {**GANG, "priority": 7}, False, id="the priority"),
        pytest.param(
            GANG,
            {**GANG, "workloadRef": {"workloadName": "w", "templateName": "t"}},
            False,
            id="the workload",
        ),
    ],
)
def test_of_a_group_only_min_count_changes(
    new: str, newest: str, before: dict[str, Any], after: dict[str, Any], *, valid: bool
) -> None:
    for url, version in ((new, "v1beta1"), (newest, "v1")):
        made = ask(url, "POST", place(version), {"metadata": {"name": "c"}, "spec": before})[1]
        body = {"metadata": {"name": "c"}, "spec": after}
        try:
            status, answer = ask(url, "PUT", place(version, name="c"), body)
            assert status == (200 if valid else 422), answer
            if valid and after != before and answer["spec"] != made["spec"]:
                assert answer["metadata"]["generation"] == 2
        finally:
            ask(url, "DELETE", place(version, name="c"))
            none = {"metadata": {"finalizers": None}}
            ask(url, "PATCH", place(version, name="c"), none, "application/merge-patch+json")


def test_defaults_of_a_group(old: str, new: str) -> None:
    status, made = ask(new, "POST", place("v1beta1"), group("plain"))
    assert status == 201
    assert made["spec"]["disruptionMode"] == {"single": {}}
    assert made["spec"]["priority"] == 0
    assert "preemptionPolicy" not in made["spec"]
    assert ask(old, "POST", place("v1alpha2"), group("plain"))[1]["spec"]["disruptionMode"] == "Pod"


OLD_REFERENCE = {"workloadName": "shown", "podGroupTemplateName": "t"}


def test_a_table_names_the_workload_in_each_form(old: str, new: str) -> None:
    accept = {"Accept": "application/json;as=Table;g=meta.k8s.io;v=v1"}
    template = {"name": "t", **GANG}
    for url, version, spec in (
        (old, "v1alpha2", {"podGroupTemplateRef": {"workload": OLD_REFERENCE}}),
        (new, "v1beta1", {"workloadRef": {"workloadName": "shown", "templateName": "t"}}),
    ):
        workload = {"metadata": {"name": "shown"}, "spec": {"podGroupTemplates": [template]}}
        assert ask(url, "POST", place(version, "workloads"), workload)[0] == 201
        assert ask(url, "POST", place(version), group("shown", **spec))[0] == 201
        table = json.loads(send(url, "GET", place(version, name="shown"), headers=accept)[1])
        names = [each["name"] for each in table["columnDefinitions"]]
        cells = dict(zip(names, table["rows"][0]["cells"], strict=True))
        assert (cells["Policy"], cells["Workload"]) == ("Gang", "shown")


def test_a_template_has_no_default_mode(new: str) -> None:
    body = {"metadata": {"name": "w"}, "spec": {"podGroupTemplates": [{"name": "t", **GANG}]}}
    status, made = ask(new, "POST", place("v1beta1", "workloads"), body)
    assert status == 201
    assert "disruptionMode" not in made["spec"]["podGroupTemplates"][0]


@pytest.mark.parametrize(
    ("templates", "error"),
    [
        ([{"name": "t", "schedulingPolicy": {"gang": {"minCount": 9}}}], ""),
        ([{"name": "t", **GANG}, {"name": "more", **GANG}], "items may not be added"),
        ([{"name": "other", **GANG}], "items may not be removed"),
        ([{"name": "t", "schedulingPolicy": {"basic": {}}}], "field cannot be cleared once set"),
        ([{"name": "t", **GANG, "priorityClassName": "p"}], "field is immutable"),
    ],
)
def test_templates_neither_come_nor_go(new: str, templates: Any, error: str) -> None:
    name = f"w-{abs(hash(error)) % 10**6}"
    body = {"metadata": {"name": name}, "spec": {"podGroupTemplates": [{"name": "t", **GANG}]}}
    assert ask(new, "POST", place("v1beta1", "workloads"), body)[0] == 201
    changed = {**body, "spec": {"podGroupTemplates": templates}}
    status, answer = ask(new, "PUT", place("v1beta1", "workloads", name), changed)
    assert status == (422 if error else 200), answer
    assert error in answer.get("message", "")


def test_the_class_gives_a_group_its_priority_and_policy(new: str, all_gates: str) -> None:
    path = f"/apis/{GROUP}/v1/priorityclasses"
    body = {"metadata": {"name": "high"}, "value": 77, "preemptionPolicy": "Never"}
    for url, policy in ((new, None), (all_gates, "Never")):
        assert ask(url, "POST", path, body)[0] == 201
        status, made = ask(url, "POST", place("v1beta1"), group("classy", priorityClassName="high"))
        assert status == 201
        assert made["spec"]["priority"] == 77
        assert made["spec"].get("preemptionPolicy") == policy


def test_only_what_the_first_gate_brings_is_served_of_groups_unless_others_are_named() -> None:
    spec = {
        "schedulingConstraints": {"topology": [{"key": "zone"}]},
        "disruptionMode": "PodGroup",
        "priorityClassName": "system-cluster-critical",
        "priority": 7,
        "resourceClaims": [{"name": "shared", "resourceClaimName": "gpus"}],
    }
    pod = {
        "metadata": {"name": "member"},
        "spec": {
            "containers": [{"name": "c", "image": "i"}],
            "schedulingGroup": {"podGroupName": "g"},
        },
    }
    options = ClusterOptions(feature_gates=api_features().gates, **OPTIONS)
    with served(EmbeddedCluster(1, options=options)) as cluster:
        status, made = ask(cluster.url, "POST", place("v1alpha2"), group("g", **spec))
        assert status == 201
        assert made["spec"] == {**GANG, "disruptionMode": "Pod", "podGroupTemplateRef": None}
        status, made = ask(cluster.url, "POST", "/api/v1/namespaces/default/pods", pod)
        assert (status, made["spec"]["schedulingGroup"]) == (201, {"podGroupName": "g"})
        assert ask(cluster.url, "GET", place("v1alpha2", "workloads"))[0] == 200


def test_gates_that_went_are_unknown() -> None:
    for name in ("GangScheduling", "WorkloadAwarePreemption"):
        with pytest.raises(ValueError, match=rf"no gate {name} in 1\.37"):
            feature_gates(f"{name}=true", "1.37")
        feature_gates(f"GenericWorkload=true,GangScheduling=true,{name}=true")
    with pytest.raises(ValueError, match=r"no gate PodGroupPreemptionPolicy in 1\.36"):
        feature_gates("PodGroupPreemptionPolicy=true")


# Groups of groups.

REFERENCE = {"workloadName": "w", "templateName": "t"}
TREE = {"schedulingPolicy": {"gang": {"minGroupCount": 2}}, "workloadRef": REFERENCE}


def parent(name: str, **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {**TREE, **spec}}


@pytest.fixture(scope="module")
def trees() -> Iterator[str]:
    gates = "CompositePodGroup=true,TopologyAwareWorkloadScheduling=true"
    with served(cluster_of("1.38", gates)) as cluster:
        yield cluster.url


def test_groups_of_groups_are_off_unless_their_gate_and_their_version_are_on(
    newest: str, trees: str
) -> None:
    path = place("v1beta1", "compositepodgroups")
    assert ask(newest, "GET", path)[0] == 404
    status, made = ask(trees, "POST", path, parent("root"))
    assert (status, made["metadata"]["generation"], made["spec"]["priority"]) == (201, 1, 0)
    assert made["metadata"]["finalizers"] == ["scheduling.k8s.io/compositepodgroup-protection"]
    child = group("child", parentCompositePodGroupName="root", workloadRef=REFERENCE)
    assert ask(trees, "POST", place("v1"), child)[0] == 201
    assert ask(newest, "POST", place("v1"), child)[0] == 422


@pytest.mark.parametrize(
    ("spec", "error"),
    [
        pytest.param({}, "", id="whole"),
        pytest.param({"parentCompositePodGroupName": "above"}, "", id="within another"),
        pytest.param({"workloadRef": None}, "spec.workloadRef: Required", id="without a workload"),
        pytest.param(
            {"schedulingPolicy": {"gang": {"minGroupCount": 0}}}, "minGroupCount", id="of none"
        ),
        pytest.param({"schedulingPolicy": {}}, "spec.schedulingPolicy", id="without a policy"),
        pytest.param(
            {"schedulingPolicy": {"basic": {}, "gang": {"minGroupCount": 1}}},
            "spec.schedulingPolicy",
            id="with two",
        ),
        pytest.param({"disruptionMode": {"all": {}, "single": {}}}, "disruptionMode", id="modes"),
        pytest.param({"preemptionPolicy": "Never"}, "preemptionPolicy", id="another gate's"),
    ],
)
def test_a_group_of_groups_is_judged(trees: str, spec: dict[str, Any], error: str) -> None:
    path = f"{place('v1beta1', 'compositepodgroups')}?dryRun=All"
    status, answer = ask(trees, "POST", path, parent("judged", **spec))
    assert status == (422 if error else 201), answer
    assert error in answer.get("message", "")


@pytest.mark.parametrize(
    ("after", "error"),
    [
        pytest.param({"schedulingPolicy": {"gang": {"minGroupCount": 1}}}, "", id="minGroupCount"),
        pytest.param({"schedulingPolicy": {"basic": {}}}, "cannot be cleared", id="the policy"),
        pytest.param({"parentCompositePodGroupName": "p"}, "immutable", id="the parent"),
        pytest.param({"disruptionMode": {"all": {}}}, "immutable", id="the mode"),
    ],
)
def test_of_a_group_of_groups_only_min_group_count_changes(
    trees: str, after: dict[str, Any], error: str, request: pytest.FixtureRequest
) -> None:
    name = f"c-{request.node.callspec.id.replace(' ', '-').lower()}"
    assert ask(trees, "POST", place("v1beta1", "compositepodgroups"), parent(name))[0] == 201
    path = place("v1beta1", "compositepodgroups", name)
    status, answer = ask(trees, "PUT", path, parent(name, **after))
    assert status == (422 if error else 200), answer
    assert error in answer.get("message", "")
    if not error:
        assert answer["metadata"]["generation"] == 2
        now = "2026-01-01T00:00:00Z"
        said = {"type": "CompositePodGroupInitiallyScheduled", "status": "True"}
        condition = {**said, "reason": "Scheduled", "message": "", "lastTransitionTime": now}
        patch = {"status": {"conditions": [condition]}}
        media = "application/merge-patch+json"
        status, answer = ask(trees, "PATCH", f"{path}/status", patch, media)
        assert (status, answer["status"]["conditions"]) == (200, [condition])


def test_templates_of_trees_are_refused_with_and_without_their_gate(new: str, trees: str) -> None:
    templates = {"podGroupTemplates": [{"name": "t", **GANG}], "compositePodGroupTemplates": [{}]}
    body = {"metadata": {"name": "tree"}, "spec": templates}
    for url in (new, trees):
        status, answer = ask(url, "POST", place("v1beta1", "workloads"), body)
        assert status == 422
        assert "spec.compositePodGroupTemplates: Forbidden" in answer["message"]


def test_a_child_of_a_tree_names_its_workload(trees: str) -> None:
    status, answer = ask(
        trees, "POST", place("v1"), group("orphan", parentCompositePodGroupName="root")
    )
    assert status == 422
    assert "spec.workloadRef: Required value" in answer["message"]


# Devices.

CLASS = {"metadata": {"name": "c"}, "spec": {}}
DEVICES = "/apis/resource.k8s.io"


@pytest.mark.parametrize("release", ["old", "new"])
def test_claims_of_older_versions_are_those_of_the_newest(
    release: str, request: pytest.FixtureRequest
) -> None:
    url = request.getfixturevalue(release)
    path = "namespaces/default/resourceclaims"
    request_ = {"name": "r", "deviceClassName": "c", "count": 2, "allocationMode": "ExactCount"}
    sub = {"name": "a", "deviceClassName": "c"}
    requests = [request_, {"name": "s", "firstAvailable": [sub]}]
    body = {"metadata": {"name": "claim"}, "spec": {"devices": {"requests": requests}}}
    status, made = ask(url, "POST", f"{DEVICES}/v1beta1/{path}", body)
    assert (status, made["apiVersion"]) == (201, "resource.k8s.io/v1beta1"), made
    assert made["spec"]["devices"]["requests"][0] == request_
    found = ask(url, "GET", f"{DEVICES}/v1/{path}/claim")[1]
    first, second = found["spec"]["devices"]["requests"]
    assert first["exactly"] == {key: value for key, value in request_.items() if key != "name"}
    assert second["firstAvailable"][0]["deviceClassName"] == "c"
    assert "exactly" not in second
    assert ask(url, "GET", f"{DEVICES}/v1beta2/{path}/claim")[1]["spec"] == found["spec"]
    slices: dict[str, Any] = {
        "metadata": {"name": "slice"},
        "spec": {
            "driver": "d.example.com",
            "nodeName": "node-1",
            "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": "gpu", "basic": {"attributes": {"a": {"int": 1}}}}],
        },
    }
    status, made = ask(url, "POST", f"{DEVICES}/v1beta1/resourceslices", slices)
    assert status == 201, made
    found = ask(url, "GET", f"{DEVICES}/v1/resourceslices/slice")[1]
    assert found["spec"]["devices"] == [{"name": "gpu", "attributes": {"a": {"int": 1}}}]
    again = ask(url, "GET", f"{DEVICES}/v1beta1/resourceslices/slice")[1]
    assert again["spec"]["devices"] == slices["spec"]["devices"]


def test_taint_rules_are_served_by_the_newer_release_alone() -> None:
    for release, versions in (("1.36", []), ("1.37", ["v1"])):
        cluster = EmbeddedCluster(0, options=ClusterOptions(release=release, **OPTIONS))
        found = [row.version for row in cluster.api.kinds if row.kind == "DeviceTaintRule"]
        assert found == versions


@pytest.mark.parametrize(
    ("release", "version"), [("old", "v1beta2"), ("new", "v1"), ("new", "v1alpha3")]
)
def test_a_taint_says_since_when_it_has_its_effect(
    release: str, version: str, request: pytest.FixtureRequest
) -> None:
    url, path = request.getfixturevalue(release), f"{DEVICES}/{version}/devicetaintrules"
    taint = {
        "key": "example.com/broken",
        "effect": "NoSchedule",
        "timeAdded": "2020-01-01T00:00:00Z",
    }
    name = f"rule-{version}"
    body = {"metadata": {"name": name}, "spec": {"deviceSelector": {"pool": "p"}, "taint": taint}}
    status, made = ask(url, "POST", path, body)
    assert (status, made["apiVersion"]) == (201, f"resource.k8s.io/{version}"), made
    assert made["spec"]["taint"] == taint
    made["spec"]["taint"] = {**taint, "effect": "NoExecute"}
    changed = ask(url, "PUT", f"{path}/{name}", made)[1]
    assert changed["spec"]["taint"]["timeAdded"] > taint["timeAdded"]
    wrong = {"metadata": {"name": "wrong"}, "spec": {"taint": {"key": "k", "effect": "Never"}}}
    assert ask(url, "POST", path, wrong)[0] == 422


def test_slices_are_selected_by_their_pool(old: str, new: str) -> None:
    path = f"{DEVICES}/v1/resourceslices?fieldSelector=spec.pool.name=p"
    assert ask(old, "GET", path)[0] == 400
    assert ask(new, "GET", path)[0] == 200


# Volumes, bindings, status.


def test_a_driver_says_whether_nodes_without_it_are_left_out(old: str, new: str) -> None:
    path, name = "/apis/storage.k8s.io/v1/csidrivers", "preventPodSchedulingIfMissing"
    for given, at_old, at_new in (({name: True}, None, True), ({}, None, False)):
        body = {"metadata": {"name": f"d{len(given)}.example.com"}, "spec": given}
        assert ask(old, "POST", path, body)[1]["spec"].get(name) == at_old
        assert ask(new, "POST", path, body)[1]["spec"].get(name) == at_new


@pytest.mark.parametrize(
    ("target", "refused"),
    [("node-1", False), ("Node-1", True), ("a.b-c.example", False), ("a_b", True), ("-a", True)],
)
def test_the_target_of_a_binding_is_the_name_of_a_node(
    old: str, new: str, target: str, *, refused: bool
) -> None:
    pods = "/api/v1/namespaces/default/pods"
    spec = {"containers": [{"name": "c", "image": "registry.example/x:1"}]}
    for url, expected in ((old, 201), (new, 500 if refused else 201)):
        made = ask(url, "POST", pods, {"metadata": {"generateName": "p-"}, "spec": spec})[1]
        name = made["metadata"]["name"]
        body = {"metadata": {"name": name}, "target": {"kind": "Node", "name": target}}
        status, answer = ask(url, "POST", f"{pods}/{name}/binding", body)
        assert status == expected, answer
        if status == 500:
            assert answer["message"].startswith(f'target.name: Invalid value: "{target}": ')
            assert "nodeName" not in ask(url, "GET", f"{pods}/{name}")[1]["spec"]


def test_a_status_without_claims_keeps_those_that_are_stored(old: str, new: str) -> None:
    pods = "/api/v1/namespaces/default/pods"
    spec = {
        "containers": [{"name": "c", "image": "registry.example/x:1"}],
        "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "t"}],
    }
    claims = [{"name": "gpu", "resourceClaimName": "made"}]
    for url, kept in ((old, None), (new, claims)):
        ask(url, "POST", pods, {"metadata": {"name": "claims"}, "spec": spec})
        path = f"{pods}/claims/status"
        pod = ask(url, "GET", f"{pods}/claims")[1]
        pod["status"]["resourceClaimStatuses"] = claims
        assert ask(url, "PUT", path, pod)[1]["status"]["resourceClaimStatuses"] == claims
        pod["status"].pop("resourceClaimStatuses")
        pod["metadata"].pop("resourceVersion")
        assert ask(url, "PUT", path, pod)[1]["status"].get("resourceClaimStatuses") == kept


PODS = "/api/v1/namespaces/default/pods"
CONTAINER: dict[str, Any] = {"name": "c", "image": "registry.example/x:1"}


@pytest.mark.parametrize(
    ("broken", "cause", "why"),
    [
        pytest.param(
            {"disruptionsAllowed": -1},
            "DisruptionBudgetNegativeAllowedDisruptions",
            "pdb disruptions allowed is negative",
            id="below nothing",
        ),
        pytest.param(
            {
                "disruptionsAllowed": 1,
                "disruptedPods": {f"p{number}": "2026-01-01T00:00:00Z" for number in range(2001)},
            },
            "DisruptionBudgetTooManyDisruptedPods",
            "DisruptedPods map too big - too many evictions not confirmed by PDB controller",
            id="too many unconfirmed",
        ),
    ],
)
def test_a_broken_budget_is_a_cause_of_its_own(
    broken: dict[str, Any], cause: str, why: str
) -> None:
    for release in ("1.36", "1.37"):
        cluster = cluster_of(release)
        budget: dict[str, Any] = {
            "metadata": {"name": "b"},
            "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "x"}}},
        }
        labelled = {"name": "p", "labels": {"app": "x"}}
        pod = {"metadata": labelled, "spec": {"containers": [CONTAINER], "nodeName": "node-1"}}
        pods = cluster.api.kinds.resource("pods")
        budgets = cluster.api.kinds.resource("poddisruptionbudgets", "policy")
        cluster.api.create(budgets, "default", budget)
        cluster.api.create(pods, "default", pod)
        # No client may write such a status; a controller that errs might.
        spoilt = {"observedGeneration": 1, "currentHealthy": 0, "desiredHealthy": 0, **broken}
        for kind, name, status in ((budgets, "b", spoilt), (pods, "p", {"phase": "Running"})):
            change = partial(with_value, path=("status",), value=status)
            cluster.api.modify(kind, ("default", name), change)
        with pytest.raises(StatusError) as refused:
            evict(cluster.api, pods, ("default", "p"), {}, {})
        assert refused.value.code == 403
        assert str(refused.value) == f'poddisruptionbudget.policy "b" is forbidden: {why}'
        causes = [{"reason": cause, "message": why}] if release == "1.37" else None
        assert (refused.value.details or {}).get("causes") == causes


@pytest.mark.parametrize("release", ["old", "new"])
def test_what_an_update_or_an_apply_creates_is_complete(
    release: str, request: pytest.FixtureRequest
) -> None:
    url = request.getfixturevalue(release)
    lease = "/apis/coordination.k8s.io/v1/namespaces/default/leases/put"
    body = {"metadata": {"name": "put"}, "spec": {}}
    status, made = ask(url, "PUT", lease, body)
    assert status == 201, made
    assert {"uid", "creationTimestamp"} <= made["metadata"].keys()
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [CONTAINER]}}
    applied = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "applied"},
        "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template},
    }
    path = "/apis/apps/v1/namespaces/default/deployments/applied?fieldManager=m"
    status, made = ask(url, "PATCH", path, applied, "application/apply-patch+yaml")
    assert status == 201, made
    assert {"uid", "creationTimestamp"} <= made["metadata"].keys()
    assert made["metadata"]["generation"] == 1


@pytest.mark.parametrize(("release", "version"), [("old", "v1alpha2"), ("new", "v1beta1")])
def test_who_applies_a_groups_status_owns_nothing_else(
    release: str, version: str, request: pytest.FixtureRequest
) -> None:
    url, media = request.getfixturevalue(release), "application/apply-patch+yaml"
    named = {"apiVersion": f"{GROUP}/{version}", "kind": "PodGroup", "metadata": {"name": "owned"}}
    condition = {
        "type": "Made",
        "status": "True",
        "reason": "X",
        "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    path = place(version, name="owned")
    both = {**named, "spec": GANG, "status": {"conditions": [condition]}}
    assert ask(url, "PATCH", f"{path}?fieldManager=s", both, media)[0] == 201
    status, found = ask(url, "PATCH", f"{path}/status?fieldManager=c&force=true", both, media)
    assert status == 200, found
    owned = {
        (each["manager"], each.get("subresource", "")): set(each["fieldsV1"])
        for each in ask(url, "GET", path)[1]["metadata"]["managedFields"]
        if each["manager"] in "sc"
    }
    assert owned == {("s", ""): {"f:spec"}, ("c", "status"): {"f:status"}}


@pytest.mark.parametrize("empty", [{}, {"requests": {}}, {"limits": {}}])
def test_empty_resources_of_a_pod_leave_its_class_to_the_containers(empty: dict[str, Any]) -> None:
    amounts = {"cpu": "1", "memory": "1Gi"}
    container = {**CONTAINER, "resources": {"requests": amounts, "limits": amounts}}
    assert qos_class({"containers": [container], "resources": empty}) == "Guaranteed"
    own = {"requests": {"cpu": "2"}}
    assert qos_class({"containers": [container], "resources": own}) == "Burstable"


@pytest.mark.parametrize("release", ["old", "new"])
def test_an_image_volume_names_its_image_in_templates_too(
    release: str, request: pytest.FixtureRequest
) -> None:
    spec = {"containers": [CONTAINER], "volumes": [{"name": "v", "image": {}}]}
    body = {
        "metadata": {"name": "d"},
        "spec": {
            "selector": {"matchLabels": {"a": "b"}},
            "template": {"metadata": {"labels": {"a": "b"}}, "spec": spec},
        },
    }
    path = "/apis/apps/v1/namespaces/default/deployments?dryRun=All"
    status, answer = ask(request.getfixturevalue(release), "POST", path, body)
    assert status == 422
    assert "volumes[0].image.reference: Required value" in answer["message"]


@pytest.mark.parametrize("path", ["/api/v1/nodes", f"{DEVICES}/v1/resourceslices"])
def test_lists_are_whole_at_once_and_not_compressed(old: str, new: str, path: str) -> None:
    for url in (old, new):
        connection = HTTPConnection(url.removeprefix("http://"))
        connection.request("GET", path, headers={"Accept-Encoding": "gzip"})
        with closing(connection), connection.getresponse() as response:
            assert response.status == 200
            assert response.headers.get("Content-Encoding") is None
            assert json.load(response)["kind"].endswith("List")


@pytest.mark.parametrize("release", ["1.36", "1.37"])
def test_a_pod_tells_that_its_containers_may_start(release: str) -> None:
    driver = Driver(release=release)
    driver.create(
        "pods",
        {"metadata": {"name": "p"}, "spec": {"containers": [CONTAINER], "nodeName": "node-1"}},
    )
    driver.advance(5)
    conditions = driver.get("pods", "p")["status"]["conditions"]
    assert ("PodReadyToStartContainers", "True") in {
        (each["type"], each["status"]) for each in conditions
    }


# Data directories.


def test_a_data_directory_is_of_one_release(tmp_path: Path) -> None:
    directory = DataDirectory(tmp_path)
    cluster = cluster_of("1.36", data_directory=directory)
    kind = cluster.api.kinds.resource("podgroups", GROUP)
    cluster.api.create(kind, "default", {"metadata": {"name": "g"}, "spec": GANG})
    directory.close()
    refused = (
        "holds a cluster of Kubernetes 1.36, and this one is 1.37; to move it, delete its "
        "PodGroups and Workloads with --kubernetes-version 1.36, stop it, and write 1.37 into "
        f"{tmp_path}/release"
    )
    with pytest.raises(ConfigurationError, match=re.escape(refused)):
        cluster_of("1.37", data_directory=DataDirectory(tmp_path))
    (tmp_path / "release").write_text("1.37\n")
    with pytest.raises(ConfigurationError, match=r"podgroups.*default/g is of .*v1alpha2"):
        cluster_of("1.37", data_directory=DataDirectory(tmp_path))


def test_a_data_directory_is_moved_without_groups(tmp_path: Path) -> None:
    directory = DataDirectory(tmp_path)
    cluster = cluster_of("1.36", data_directory=directory)
    maps = cluster.api.kinds.resource("configmaps")
    cluster.api.create(maps, "default", {"metadata": {"name": "m"}})
    directory.close()
    (tmp_path / "release").write_text("1.37\n")
    directory = DataDirectory(tmp_path)
    moved = cluster_of("1.37", data_directory=directory)
    assert moved.api.find("configmaps", "default", "m") is not None
    kind = moved.api.kinds.resource("podgroups", GROUP)
    made = moved.api.create(kind, "default", {"metadata": {"name": "g"}, "spec": GANG})
    assert made.obj["apiVersion"] == f"{GROUP}/v1beta1"
    directory.close()


def test_a_data_directory_of_1_37_keeps_its_groups_in_1_38_and_back(tmp_path: Path) -> None:
    """As an API server converts what is stored: the version is another, the uid stays."""
    uids = set[str]()
    for release, version in (("1.37", "v1beta1"), ("1.38", "v1"), ("1.37", "v1beta1")):
        (tmp_path / "release").write_text(f"{release}\n")
        directory = DataDirectory(tmp_path)
        with served(cluster_of(release, data_directory=directory)) as cluster:
            if not uids:
                assert ask(cluster.url, "POST", place(version), group("g"))[0] == 201
            found = ask(cluster.url, "GET", place(version, name="g"))[1]
            assert found["apiVersion"] == f"{GROUP}/{version}"
            uids.add(found["metadata"]["uid"])
        directory.close()
    assert len(uids) == 1
    refused = "and this one is 1.38; to move it, stop it, and write 1.38 into"
    with pytest.raises(ConfigurationError, match=re.escape(refused)):
        cluster_of("1.38", data_directory=DataDirectory(tmp_path))
