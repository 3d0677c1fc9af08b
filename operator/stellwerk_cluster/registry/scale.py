"""The scale subresource of workloads: their number of replicas and nothing else.

Called by the HTTP layer. Invariant: a write of a scale is a patch of the workload, under the rules
of its kind.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stellwerk_cluster.apimachinery.failures import (
    StatusError,
    bad_value,
    invalid_as,
    unsupported_patch,
)
from stellwerk_cluster.apimachinery.objects import EMPTY, pick, with_value
from stellwerk_cluster.apimachinery.patching import STRATEGIC_PATCH, as_patched, patched
from stellwerk_cluster.apimachinery.selectors import selector_text
from stellwerk_cluster.registry.field_manager import invalid_type
from stellwerk_cluster.registry.server_side_apply import apply
from stellwerk_cluster.registry.write_rules import (
    bad_patch,
    check_body_name,
    check_body_namespace,
)
from stellwerk_kube.schema.decoder import decode
from stellwerk_kube.schema.mismatches import DecodeError

if TYPE_CHECKING:
    from stellwerk_cluster.apimachinery.kinds import ResourceKind
    from stellwerk_cluster.apimachinery.objects import Key
    from stellwerk_cluster.registry.api import Api
    from stellwerk_cluster.registry.write_options import WriteOptions
    from stellwerk_kube.json_values import JsonObject, JsonValue


def read_scale(kind: ResourceKind, obj: JsonObject) -> JsonObject:
    """The Scale of a workload."""
    metadata = {
        name: obj["metadata"][name]
        for name in ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
        if name in obj["metadata"]
    }
    if kind.custom:
        return {
            "kind": "Scale",
            "apiVersion": "autoscaling/v1",
            "metadata": metadata,
            **_custom_scale(kind, obj),
        }
    selector = obj["spec"].get("selector") or EMPTY
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": metadata,
        "spec": {"replicas": obj["spec"]["replicas"]} if obj["spec"].get("replicas") else {},
        "status": {
            "replicas": (obj.get("status") or EMPTY).get("replicas", 0),
            "selector": selector_text(selector, plain=kind.kind == "ReplicationController"),
        },
    }


def _custom_scale(kind: ResourceKind, obj: JsonObject) -> JsonObject:
    wanted, present, selector = (
        pick(obj, _path(path)) if path else None for path in kind.scale_paths
    )
    if wanted is None:
        text = f'the spec replicas field "{kind.scale_paths[0]}" does not exist'
        details: JsonObject = {"causes": [{"message": text}]}
        raise StatusError(500, "InternalError", f"Internal error occurred: {text}", details=details)
    status: JsonObject = {"replicas": present or 0}
    if selector:
        status["selector"] = selector
    return {"spec": {"replicas": wanted} if wanted else {}, "status": status}


def _path(path: str) -> tuple[str, ...]:
    return tuple(path.removeprefix(".").split("."))


def write_scale(
    api: Api, kind: ResourceKind, key: Key, body: JsonObject, options: WriteOptions
) -> JsonObject:
    """Replace the scale of a workload; the answer is the new Scale.

    Raises:
        StatusError: as for update; 422 for a negative number.
    """
    metadata = body.get("metadata") or EMPTY
    check_body_namespace(key[0], metadata)
    check_body_name(key[1], metadata.get("name", ""))
    replicas = (body.get("spec") or EMPTY).get("replicas") or 0
    if replicas < 0:
        error = bad_value("spec.replicas", replicas, "must be greater than or equal to 0")
        raise invalid_as("Scale", "autoscaling", key[1], [error])
    patch: JsonObject = {"spec": {"replicas": replicas}}
    if kind.custom:
        patch = with_value({}, _path(kind.scale_paths[0]), replicas)
    if metadata.get("resourceVersion"):
        patch["metadata"] = {"resourceVersion": metadata["resourceVersion"]}
    options.shown_subresource = "scale"
    return read_scale(kind, api.patch(kind, key, patch, options=options).obj)


def patch_scale(
    api: Api,
    kind: ResourceKind,
    key: Key,
    patch: JsonValue,
    media_type: str,
    options: WriteOptions,
) -> JsonObject:
    """Change the scale of a workload by a patch of any sort; the answer is the new Scale.

    Raises:
        StatusError: as for a patch of the workload; 422 when no Scale comes of it.
    """
    shown = read_scale(kind, api.get(kind, *key).obj)
    scale = patched(shown, patch, media_type, "" if kind.custom else "Scale")
    if scale is None:
        raise unsupported_patch(kind)
    try:
        scale, unknown = decode("Scale", scale)
    except DecodeError as error:
        strategic = media_type == STRATEGIC_PATCH
        quoted = patch if strategic else as_patched(scale, patch)
        why = error.in_a_map if strategic else str(error)
        raise bad_patch(quoted, why, as_map=strategic) from error
    if options.field_validation == "Warn":
        options.warnings.extend(f'unknown field "{path}"' for path in unknown)
    return write_scale(api, kind, key, scale, options)


def apply_scale(
    api: Api, kind: ResourceKind, key: Key, config: JsonValue, options: WriteOptions
) -> JsonObject:
    """Apply the number of replicas; the answer is the new Scale.

    Raises:
        StatusError: as for an apply to the workload, and when the body is no Scale (400).
    """
    api.get(kind, *key)
    body = config if isinstance(config, dict) else EMPTY
    if (body.get("apiVersion"), body.get("kind")) != ("autoscaling/v1", "Scale"):
        raise invalid_type(body)
    workload: JsonObject = {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": body.get("metadata") or EMPTY,
    }
    replicas = (body.get("spec") or EMPTY).get("replicas")
    if replicas is not None:
        path = _path(kind.scale_paths[0]) if kind.custom else ("spec", "replicas")
        workload = with_value(workload, path, replicas)
    options.shown_subresource = "scale"
    return read_scale(kind, apply(api, kind, key, workload, options).entry.obj)
