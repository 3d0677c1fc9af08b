import time
from typing import Any

import pytest

from stellwerk_cluster.apimachinery.failures import StatusError
from stellwerk_cluster.apimachinery.json_patch import json_patch
from stellwerk_cluster.apimachinery.patching import (
    JSON_PATCH,
    MERGE_PATCH,
    STRATEGIC_PATCH,
    merge_patch,
    patched,
    strategic_patch,
)


def condition(type_: str, status: str = "True") -> dict[str, Any]:
    return {"type": type_, "status": status}


def test_merge_patch_removes_with_null_and_replaces_lists() -> None:
    target = {"a": {"b": 1, "c": 2}, "l": [1, 2]}
    assert merge_patch(target, {"a": {"b": None, "d": 3}, "l": [9]}) == {
        "a": {"c": 2, "d": 3},
        "l": [9],
    }
    assert target == {"a": {"b": 1, "c": 2}, "l": [1, 2]}


def test_json_patch_applies_its_operations_in_order() -> None:
    patch = [
        {"op": "test", "path": "/a", "value": 1},
        {"op": "add", "path": "/l/0", "value": 0},
        {"op": "add", "path": "/l/-", "value": 9},
        {"op": "move", "from": "/a", "path": "/b~1c"},
        {"op": "copy", "from": "/l/0", "path": "/d"},
        {"op": "remove", "path": "/l/1"},
        {"op": "replace", "path": "/d", "value": 7},
    ]
    assert json_patch({"a": 1, "l": [5]}, patch) == {"l": [0, 9], "b/c": 1, "d": 7}


@pytest.mark.parametrize(
    "operation",
    [
        pytest.param({"op": "test", "path": "/a", "value": 2}, id="failing test"),
        pytest.param({"op": "remove", "path": "/none"}, id="missing path"),
        pytest.param({"op": "fly", "path": "/a"}, id="unknown operation"),
        pytest.param({"op": "replace", "path": "/l/7", "value": 1}, id="beyond the list"),
        pytest.param({"op": "add", "path": "/l/1_0", "value": 1}, id="no index"),
        pytest.param({"op": "test", "path": "/a", "value": True}, id="true is not 1"),
        pytest.param({"path": "/a"}, id="no operation"),
        pytest.param(None, id="nothing"),
    ],
)
def test_a_json_patch_that_cannot_be_applied_is_invalid(operation: dict[str, Any]) -> None:
    with pytest.raises(StatusError) as caught:
        json_patch({"a": 1, "l": []}, [operation])
    assert caught.value.code == 422


@pytest.mark.parametrize(
    ("media_type", "patch", "why"),
    [
        (JSON_PATCH, {}, "object into Go value of type []handlers.jsonPatchOp"),
        (JSON_PATCH, ["x"], "string into Go value of type handlers.jsonPatchOp"),
        (JSON_PATCH, [{"op": 5}], "number into Go struct field jsonPatchOp.op of type string"),
        (MERGE_PATCH, [1], "array into Go value of type map[string]interface {}"),
        (STRATEGIC_PATCH, "x", "string into Go value of type map[string]interface {}"),
    ],
)
def test_a_patch_of_another_form_cannot_be_decoded(media_type: str, patch: Any, why: str) -> None:
    with pytest.raises(StatusError) as caught:
        patched({"kind": "Pod"}, patch, media_type, "Pod")
    assert caught.value.code == 400
    # A strategic patch is decoded elsewhere, and its errors stand alone.
    head = "" if media_type == STRATEGIC_PATCH else "error decoding patch: "
    assert caught.value.message == f"{head}json: cannot unmarshal {why}"


def test_a_patch_of_null_changes_nothing_or_is_none() -> None:
    assert patched({"kind": "Pod"}, None, JSON_PATCH, "Pod") == {"kind": "Pod"}
    assert patched({"kind": "Pod"}, None, STRATEGIC_PATCH, "Pod") == {"kind": "Pod"}
    with pytest.raises(StatusError, match="Invalid JSON Patch"):
        patched({"kind": "Pod"}, None, MERGE_PATCH, "Pod")


def test_strategic_patch_merges_conditions_by_type_and_puts_new_ones_first() -> None:
    pod = {"status": {"conditions": [condition("Ready")]}}
    patch = {
        "status": {"conditions": [{"type": "Ready", "status": "False"}, condition("PodScheduled")]}
    }
    merged = strategic_patch(pod, patch, "Pod")["status"]["conditions"]
    assert merged == [condition("Ready", "False"), condition("PodScheduled")]
    lone = strategic_patch(pod, {"status": {"conditions": [condition("New")]}}, "Pod")
    assert [each["type"] for each in lone["status"]["conditions"]] == ["New", "Ready"]


def test_strategic_patch_follows_the_given_order_of_elements() -> None:
    pod = {"status": {"conditions": [condition("A"), condition("B")]}}
    patch = {
        "status": {
            "$setElementOrder/conditions": [{"type": "B"}, {"type": "C"}, {"type": "A"}],
            "conditions": [condition("C")],
        }
    }
    merged = strategic_patch(pod, patch, "Pod")["status"]["conditions"]
    assert [each["type"] for each in merged] == ["B", "C", "A"]


def test_strategic_patch_deletes_replaces_and_keeps_atomic_lists() -> None:
    pod = {
        "metadata": {"finalizers": ["a", "b"]},
        "spec": {"containers": [{"name": "c", "image": "i"}], "tolerations": [{"key": "x"}]},
    }
    patch = {
        "metadata": {"$deleteFromPrimitiveList/finalizers": ["a"]},
        "spec": {
            "containers": [{"name": "c", "$patch": "delete"}, {"name": "d"}],
            "tolerations": [{"key": "y"}],
        },
    }
    merged = strategic_patch(pod, patch, "Pod")
    assert merged["metadata"]["finalizers"] == ["b"]
    assert merged["spec"]["containers"] == [{"name": "d"}]
    assert merged["spec"]["tolerations"] == [{"key": "y"}]


def test_strategic_patch_needs_the_merge_key() -> None:
    with pytest.raises(StatusError) as caught:
        strategic_patch({}, {"spec": {"containers": [{"image": "i"}]}}, "Pod")
    assert caught.value.code == 500
    text = "map: map[image:i] does not contain declared merge key: name"
    assert caught.value.message == text


def test_retain_keys_drops_what_is_not_named() -> None:
    deployment = {"spec": {"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}}}}
    patch = {"spec": {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}}}
    assert strategic_patch(deployment, patch, "Deployment")["spec"]["strategy"] == {
        "type": "Recreate"
    }


def test_json_patch_counts_from_the_end_and_takes_a_missing_field_for_null() -> None:
    patch = [
        {"op": "test", "path": "/none", "value": None},
        {"op": "add", "path": "/l/-1", "value": 9},
        {"op": "remove", "path": "/l/-2"},
    ]
    assert json_patch({"l": [1, 2]}, patch) == {"l": [1, 9]}


def test_a_json_patch_of_too_many_operations_is_too_large() -> None:
    with pytest.raises(StatusError) as caught:
        json_patch({}, [{"op": "add", "path": "/a", "value": 1}] * 10_001)
    assert caught.value.code == 413
    assert caught.value.message.endswith("in a JSON patch is 10000, got 10001")


def test_copies_of_copies_do_not_grow_without_end() -> None:
    doubling = [{"op": "copy", "from": "/a", "path": f"/a/{number}"} for number in range(40)]
    with pytest.raises(StatusError) as caught:
        json_patch({"a": {"x": "y"}}, doubling)
    assert caught.value.code == 422


@pytest.mark.parametrize(
    ("patch", "code", "message"),
    [
        pytest.param(
            {"$patch": "fly"},
            500,
            "unknown patch type: fly in map: map[$patch:fly]",
            id="directive",
        ),
        pytest.param(
            {"$retainKeys": "x"}, 400, "invalid patch format of retainKeys", id="keys to retain"
        ),
        pytest.param(
            {"$retainKeys": ["type"], "rollingUpdate": {}},
            422,
            "patch content doesn't match retainKeys list",
            id="more than what is retained",
        ),
        pytest.param(
            {"$deleteFromPrimitiveList/x": 1},
            400,
            "invalid patch format of primitive list",
            id="no list to delete from",
        ),
        pytest.param(
            {"$setElementOrder/x": 1},
            400,
            "invalid patch format of setElementOrder list",
            id="no list for the order",
        ),
    ],
)
def test_directives_that_make_no_sense_are_refused(
    patch: dict[str, Any], code: int, message: str
) -> None:
    with pytest.raises(StatusError) as caught:
        strategic_patch({"spec": {"strategy": {}}}, {"spec": {"strategy": patch}}, "Deployment")
    assert (caught.value.code, caught.value.message) == (code, message)


def test_long_lists_are_merged_without_being_searched_for_each_element() -> None:
    """Searched, two lists of 9,000 take more than a second, in which no request is answered."""
    names = [f"E{number}" for number in range(9000)]
    env = [{"name": name} for name in names]
    target = {"spec": {"containers": [{"name": "c", "env": env}]}}
    order = [{"name": name} for name in reversed(names)]
    changed = [{"name": name, "value": "v"} for name in names[::2]]
    container = {"name": "c", "env": changed, "$setElementOrder/env": order}
    patch = {"spec": {"containers": [container]}}
    began = time.process_time()
    (merged,) = strategic_patch(target, patch, "Pod")["spec"]["containers"]
    assert time.process_time() - began < 0.5
    assert [each["name"] for each in merged["env"]] == names[::-1]
