"""Field ownership through the verbs: what `kubectl apply --server-side` rests on."""

from collections.abc import Callable
from typing import Any

import pytest

from stellwerk_cluster.apimachinery.failures import StatusError
from stellwerk_cluster.apimachinery.patching import (
    JSON_PATCH,
    MERGE_PATCH,
    STRATEGIC_PATCH,
)
from stellwerk_cluster.cluster import ClusterOptions, EmbeddedCluster
from stellwerk_cluster.registry.api import Api
from stellwerk_cluster.registry.scale import apply_scale, patch_scale
from stellwerk_cluster.registry.server_side_apply import apply
from stellwerk_cluster.registry.write_options import WriteOptions
from stellwerk_kube.clock import VirtualClock

LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
KEY = ("default", "web")


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def api(clock: VirtualClock) -> Api:
    options = ClusterOptions(controllers=False, kubelet=None, heartbeats=False)
    return EmbeddedCluster(1, clock=clock, options=options).api


def deployment(replicas: int | None = 2, **changes: Any) -> dict[str, Any]:
    container = {"name": "c", "image": "registry.example/web:1", **changes}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web"},
        "spec": {
            **({} if replicas is None else {"replicas": replicas}),
            "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {"containers": [container]},
            },
        },
    }


def config_map(**data: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "web"}, "data": data}


def applied(
    api: Api,
    body: dict[str, Any],
    manager: str = "kubectl",
    plural: str = "configmaps",
    **more: Any,
) -> dict[str, Any]:
    group = "apps" if plural == "deployments" else ""
    kind = api.kinds.resource(plural, group)
    options = WriteOptions(manager=manager, force=more.pop("force", False), **more)
    return apply(api, kind, KEY, body, options).entry.obj


def owners(obj: dict[str, Any]) -> list[tuple[str, str, str]]:
    return [
        (each["manager"], each["operation"], each.get("subresource", ""))
        for each in obj["metadata"].get("managedFields", ())
    ]


def refused(act: Callable[[], Any]) -> StatusError:
    with pytest.raises(StatusError) as caught:
        act()
    return caught.value


def test_a_scaled_deployment_conflicts_in_the_name_of_its_scale(api: Api) -> None:
    applied(api, deployment(2), plural="deployments")
    kind = api.kinds.resource("deployments", "apps")
    patch = {"spec": {"replicas": 3}}
    patch_scale(api, kind, KEY, patch, MERGE_PATCH, WriteOptions(manager="kubectl"))
    error = refused(lambda: applied(api, deployment(4), plural="deployments"))
    assert error.code == 409
    assert error.message == (
        'Apply failed with 1 conflict: conflict with "kubectl" with subresource "scale" '
        "using apps/v1: .spec.replicas"
    )
    # Who does not name the number has nothing against it.
    obj = applied(api, deployment(None), plural="deployments")
    assert obj["spec"]["replicas"] == 3
    assert owners(obj) == [("kubectl", "Apply", ""), ("kubectl", "Update", "scale")]


def test_several_conflicts_are_listed_by_manager(api: Api) -> None:
    applied(api, config_map(a="1", b="1"), "one")
    applied(api, config_map(c="1"), "two")
    error = refused(lambda: applied(api, config_map(a="2", b="2", c="2"), "three"))
    assert error.message == (
        'Apply failed with 3 conflicts: conflicts with "one":\n- .data.a\n- .data.b\n'
        'conflicts with "two":\n- .data.c'
    )
    assert error.details is not None
    assert error.details["causes"][0] == {
        "reason": "FieldManagerConflict",
        "message": 'conflict with "one"',
        "field": ".data.a",
    }


def test_an_apply_to_the_scale_owns_the_number_alone(api: Api) -> None:
    applied(api, deployment(None), plural="deployments")
    kind = api.kinds.resource("deployments", "apps")
    scale = {
        "apiVersion": "autoscaling/v1",
        "kind": "Scale",
        "metadata": {"name": "web"},
        "spec": {"replicas": 7},
    }
    options = WriteOptions(manager="scaler", force=True)
    assert apply_scale(api, kind, KEY, scale, options)["spec"] == {"replicas": 7}
    entries = api.get(kind, *KEY).obj["metadata"]["managedFields"]
    mine = next(each for each in entries if each["manager"] == "scaler")
    assert (mine["subresource"], mine["fieldsV1"]) == ("scale", {"f:spec": {"f:replicas": {}}})


@pytest.mark.parametrize(
    ("media_type", "patch"),
    [
        (JSON_PATCH, [{"op": "replace", "path": "/spec/replicas", "value": 5}]),
        (MERGE_PATCH, {"spec": {"replicas": 5}}),
        (STRATEGIC_PATCH, {"spec": {"replicas": 5}}),
    ],
)
def test_a_scale_takes_patches_of_any_sort(api: Api, media_type: str, patch: Any) -> None:
    applied(api, deployment(2), plural="deployments")
    kind = api.kinds.resource("deployments", "apps")
    scale = patch_scale(api, kind, KEY, patch, media_type, WriteOptions())
    assert scale["spec"] == {"replicas": 5}


@pytest.mark.parametrize(
    ("patch", "code", "why"),
    [
        ({"spec": {"replicas": "x"}}, 422, "cannot unmarshal string into Go struct field"),
        ({"spec": 5}, 422, "cannot unmarshal number into Go struct field"),
        ({"spec": {"replicas": -1}}, 422, "must be greater than or equal to 0"),
        ({"metadata": {"name": "other"}}, 400, "does not match the name on the URL (web)"),
    ],
)
def test_a_patch_that_leaves_no_scale_is_refused(api: Api, patch: Any, code: int, why: str) -> None:
    applied(api, deployment(2), plural="deployments")
    kind = api.kinds.resource("deployments", "apps")
    error = refused(lambda: patch_scale(api, kind, KEY, patch, MERGE_PATCH, WriteOptions()))
    assert error.code == code
    assert why in error.message


def test_one_empty_entry_resets_ownership_until_the_next_apply(api: Api) -> None:
    applied(api, config_map(a="1"), "one")
    kind = api.kinds.resource("configmaps")
    patch: dict[str, Any] = {"metadata": {"managedFields": [{}]}}
    assert owners(api.patch(kind, KEY, patch, options=WriteOptions(manager="x")).obj) == []
    # An object without entries stays without them when it is updated.
    changed = api.patch(kind, KEY, {"data": {"b": "2"}}, options=WriteOptions(manager="x"))
    assert owners(changed.obj) == []
    obj = applied(api, config_map(a="1"), "two")
    assert owners(obj) == [("two", "Apply", ""), ("before-first-apply", "Update", "")]
    error = refused(lambda: applied(api, config_map(b="3"), "two"))
    assert 'conflict with "before-first-apply" using v1: .data.b' in error.message


def test_entries_that_make_no_sense_change_nothing(api: Api) -> None:
    before = owners(applied(api, config_map(a="1"), "one"))
    kind = api.kinds.resource("configmaps")
    for entries in (
        [{"manager": "x"}],
        [{"manager": "x", "operation": "Eat", "apiVersion": "v1", "fieldsType": "FieldsV1"}],
        [{"manager": "x", "operation": "Apply", "apiVersion": "v1", "fieldsType": "FieldsV2"}],
        [
            {
                "manager": "x",
                "operation": "Apply",
                "apiVersion": "v1",
                "fieldsType": "FieldsV1",
                "fieldsV1": {"nonsense": 5},
            }
        ],
    ):
        patch = {"metadata": {"managedFields": entries}}
        assert owners(api.patch(kind, KEY, patch, options=WriteOptions(manager="x")).obj) == before


def test_kubectl_takes_over_what_it_applied_on_the_clients_side(api: Api) -> None:
    kind = api.kinds.resource("configmaps")
    text = '{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"web"},"data":{"a":"1"}}'
    body = config_map(a="1")
    body["metadata"]["annotations"] = {LAST_APPLIED: text}
    api.create(kind, "default", body, WriteOptions(manager="kubectl-client-side-apply"))
    refused(lambda: applied(api, config_map(a="2"), "another"))
    obj = applied(api, config_map(a="2"))
    assert obj["data"] == {"a": "2"}
    assert '"a":"2"' in obj["metadata"]["annotations"][LAST_APPLIED]
    # What somebody changed since is not kubectl's any longer.
    api.patch(kind, KEY, {"data": {"a": "3"}}, options=WriteOptions(manager="kubectl-edit"))
    error = refused(lambda: applied(api, config_map(a="4")))
    assert 'conflict with "kubectl-edit" using v1: .data.a' in error.message


def test_only_ten_managers_of_updates_are_kept_apart(api: Api, clock: VirtualClock) -> None:
    kind = api.kinds.resource("configmaps")
    api.create(kind, "default", config_map(a="0"), WriteOptions(manager="m00"))
    for number in range(1, 14):
        clock.advance(1)
        patch = {"data": {f"k{number}": "1"}}
        api.patch(kind, KEY, patch, options=WriteOptions(manager=f"m{number:02}"))
    names = [name for name, _, _ in owners(api.get(kind, *KEY).obj)]
    assert names == ["ancient-changes", *(f"m{number:02}" for number in range(5, 14))]


def test_a_manager_that_changes_nothing_owns_nothing_and_keeps_the_version(api: Api) -> None:
    kind = api.kinds.resource("configmaps")
    created = api.create(kind, "default", config_map(a="1"), WriteOptions(manager="one"))
    same = api.patch(kind, KEY, {"data": {"a": "1"}}, options=WriteOptions(manager="two"))
    assert (same.revision, owners(same.obj)) == (created.revision, [("one", "Update", "")])


def test_pods_of_one_template_share_what_their_creator_owns(api: Api) -> None:
    kind = api.kinds.resource("pods")
    shown = []
    for name, image in (("a", "x:1"), ("b", "x:2")):
        pod = {
            "metadata": {"name": name, "labels": {"app": name}},
            "spec": {"containers": [{"name": "c", "image": image}]},
        }
        entry = api.create(kind, "default", pod, WriteOptions(manager="one"))
        shown.append(entry.obj["metadata"]["managedFields"][0]["fieldsV1"])
    assert shown[0] == shown[1]
    assert "f:priority" not in shown[0]["f:spec"], "admission is not the client's"
    assert "f:image" in shown[0]["f:spec"]["f:containers"]['k:{"name":"c"}']


@pytest.mark.parametrize(
    ("changes", "code", "message"),
    [
        pytest.param(
            {"kind": "Secret"}, 400, "invalid object type: /v1, Kind=Secret", id="another kind"
        ),
        pytest.param(
            {"metadata": {}},
            400,
            "the name of the object (web based on URL) was undeterminable: name must be provided",
            id="no name",
        ),
        pytest.param(
            {"data": {"a": 5}},
            500,
            "failed to create typed patch object (/web; /v1, Kind=ConfigMap): .data.a: expected "
            "string, got &value.valueUnstructured{Value:5}",
            id="a number for a text",
        ),
        pytest.param(
            {"data": [1]},
            500,
            "failed to create typed patch object (/web; /v1, Kind=ConfigMap): .data: expected map, "
            "got [1]",
            id="a list for a map",
        ),
    ],
)
def test_what_is_no_object_of_the_kind_is_refused(
    api: Api, changes: dict[str, Any], code: int, message: str
) -> None:
    error = refused(lambda: applied(api, {**config_map(a="1"), **changes}))
    assert (error.code, error.message) == (code, message)


def test_an_item_twice_in_an_applied_list_is_refused(api: Api) -> None:
    body = deployment()
    body["spec"]["template"]["spec"]["containers"] *= 2
    error = refused(lambda: applied(api, body, plural="deployments"))
    assert error.message.endswith(
        '.spec.template.spec.containers: duplicate entries for key [name="c"]'
    )


def test_applied_items_stand_in_their_order_and_others_where_they_stood(api: Api) -> None:
    def containers(*names: str) -> dict[str, Any]:
        body = deployment(None)
        items = [{"name": name, "image": "x"} for name in names]
        body["spec"]["template"]["spec"]["containers"] = items
        return body

    def names(obj: dict[str, Any]) -> str:
        return "".join(each["name"] for each in obj["spec"]["template"]["spec"]["containers"])

    applied(api, containers("a", "b", "c"), "one", "deployments")
    assert names(applied(api, containers("x", "c", "a"), "two", "deployments")) == "bxca"
    assert names(applied(api, containers("c"), "two", "deployments")) == "bca"
    assert names(applied(api, containers("b"), "one", "deployments")) == "bc"


def test_a_dry_run_of_an_apply_stores_nothing(api: Api) -> None:
    applied(api, config_map(a="1"), dry_run=True)
    assert api.find("configmaps", "default", "web") is None
    applied(api, config_map(a="1"))
    assert applied(api, config_map(a="2"), dry_run=True)["data"] == {"a": "2"}
    assert applied(api, config_map(a="1"))["data"] == {"a": "1"}


@pytest.mark.parametrize(
    ("kind", "body", "changed"),
    [
        pytest.param("deployments", deployment(), {"annotations"}, id="labels are kept"),
        pytest.param(
            "persistentvolumeclaims",
            {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "metadata": {"name": "web"},
                "spec": {
                    "accessModes": ["ReadWriteOnce"],
                    "resources": {"requests": {"storage": "1Gi"}},
                },
            },
            {"annotations", "labels"},
            id="no metadata is kept",
        ),
        pytest.param(
            "resourceclaims",
            {
                "apiVersion": "resource.k8s.io/v1",
                "kind": "ResourceClaim",
                "metadata": {"name": "web"},
                "spec": {},
            },
            set(),
            id="all metadata is kept",
        ),
    ],
)
def test_each_kind_says_what_of_the_metadata_its_status_writes(
    api: Api, kind: str, body: dict[str, Any], changed: set[str]
) -> None:
    resource = api.kinds.resource(kind, body["apiVersion"].rpartition("/")[0])
    api.create(resource, "default", body)
    metadata = {"name": "web", "labels": {"by": "status"}, "annotations": {"by": "status"}}
    config = {**body, "metadata": metadata}
    del config["spec"]
    options = WriteOptions(manager="writer")
    obj = apply(api, resource, KEY, config, options, subresource="status").entry.obj
    assert {name for name in ("labels", "annotations") if obj["metadata"].get(name)} == changed
    owned = [
        name.removeprefix("f:")
        for entry in obj["metadata"].get("managedFields") or ()
        if entry["manager"] == "writer"
        for name in entry["fieldsV1"].get("f:metadata", {})
    ]
    assert set(owned) == changed


def test_patch_after_patch_makes_no_object_of_more_parts_than_a_body_may_have(api: Api) -> None:
    """An object of 120,000 keys and values would hold all other requests for half a second."""
    kind = api.kinds.resource("configmaps")

    def keys(first: str) -> dict[str, str]:
        return {f"{first}{number}": "v" for number in range(20_000)}

    entry = api.create(kind, "default", {"metadata": {"name": "many"}, "data": keys("a")})
    with pytest.raises(StatusError, match="more than 60000 keys and values") as caught:
        api.patch(kind, entry.key, {"data": keys("b")}, MERGE_PATCH)
    assert caught.value.code == 413
    entry = api.patch(kind, entry.key, {"data": {"x": "v"}}, MERGE_PATCH)
    assert len(entry.obj["data"]) == 20_001, "managed fields do not count"
