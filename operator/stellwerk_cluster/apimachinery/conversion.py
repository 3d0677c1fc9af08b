"""Conversion between the stored form of objects and the version of the kind that clients see.

Events are stored in their core/v1 form and shown in either group; autoscalers are stored as
autoscaling/v2 and shown in either version; devices are stored as resource.k8s.io/v1, and groups of
pods in the newest version of the release; custom objects are converted between the versions of
their definition by their apiVersion alone. Called by the verbs on the way in and by rendering on
the way out. Invariant: what is stored has the form of the storage version. Converting an event
there and back loses nothing; of an autoscaler, v1 can say the target of cpu alone, and other
metrics are lost when it is written in v1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stellwerk_cluster.apimachinery.objects import EMPTY, pick, with_value
from stellwerk_cluster.apimachinery.structural import prune, with_defaults

if TYPE_CHECKING:
    from collections.abc import Callable

    from stellwerk_cluster.apimachinery.kinds import ResourceKind
    from stellwerk_kube.json_values import JsonObject

_AUTOSCALING: Final = "autoscaling"
_PERCENT: Final = "targetCPUUtilizationPercentage"
_EVENTS_GROUP: Final = "events.k8s.io"
_CORE_NAME: Final = {
    "note": "message",
    "regarding": "involvedObject",
    "reportingController": "reportingComponent",
    "deprecatedSource": "source",
    "deprecatedFirstTimestamp": "firstTimestamp",
    "deprecatedLastTimestamp": "lastTimestamp",
    "deprecatedCount": "count",
}
_NEW_NAME: Final = {core: new for new, core in _CORE_NAME.items()}
_EMPTY_IN_CORE: Final[JsonObject] = {
    "involvedObject": {},
    "source": {},
    "firstTimestamp": None,
    "lastTimestamp": None,
    "eventTime": None,
    "reportingComponent": "",
    "reportingInstance": "",
}
_EMPTY_IN_NEW: Final[JsonObject] = {
    "eventTime": None,
    "regarding": {},
    "deprecatedSource": {},
    "deprecatedFirstTimestamp": None,
    "deprecatedLastTimestamp": None,
}
_DEVICES_GROUP: Final = "resource.k8s.io"
_OF_EVERY_REQUEST: Final = ("name", "firstAvailable")
_OF_EVERY_OBJECT = ("kind", "apiVersion", "metadata")


def is_converted(kind: ResourceKind) -> bool:
    """Whether objects of the kind are stored in another form than they are shown."""
    return bool(
        kind.converted or kind.stored or kind.group == _EVENTS_GROUP or _is_autoscaler_v1(kind)
    )


def to_storage(kind: ResourceKind, obj: JsonObject) -> JsonObject:
    """The stored form of an object that a client sent."""
    if kind.stored:
        return _retyped(kind, kind.stored, obj, stored=True)
    if kind.group == _EVENTS_GROUP:
        return _core_event(obj)
    return _autoscaler_v2(obj) if _is_autoscaler_v1(kind) else obj


def from_storage(kind: ResourceKind, obj: JsonObject) -> JsonObject:
    """The form of a stored object that clients of the kind see."""
    if kind.converted:
        return _in_version(kind, obj)
    if kind.stored:
        return _retyped(kind, kind.version, obj, stored=False)
    if kind.group == _EVENTS_GROUP:
        return _new_event(obj)
    return _autoscaler_v1(obj) if _is_autoscaler_v1(kind) else obj


def _retyped(kind: ResourceKind, version: str, obj: JsonObject, *, stored: bool) -> JsonObject:
    """An object under another version of its kind, with what that calls otherwise."""
    found = {**obj, "kind": kind.kind, "apiVersion": f"{kind.group}/{version}"}
    if (kind.group, kind.version) == (_DEVICES_GROUP, "v1beta1"):
        _convert_devices(found, _from_v1beta1 if stored else _to_v1beta1)
    return found


def _convert_devices(obj: JsonObject, convert: Callable[[JsonObject, str], JsonObject]) -> None:
    """Convert the requests of a claim or a template, or the devices of a slice, in place."""
    match obj["kind"]:
        case "ResourceClaim":
            path: tuple[str, ...] = ("spec", "devices", "requests")
        case "ResourceClaimTemplate":
            path = ("spec", "spec", "devices", "requests")
        case "ResourceSlice":
            path = ("spec", "devices")
        case _:
            return
    items = pick(obj, path)
    if items:
        part = "basic" if path[-1] == "devices" else "exactly"
        changed = with_value(obj, path, [convert(each, part) for each in items])
        obj.update(changed)


def _from_v1beta1(item: JsonObject, part: str) -> JsonObject:
    """A request or a device of v1: what v1beta1 has in one place is in another."""
    if part == "basic":
        return {"name": item["name"], **(item.get("basic") or EMPTY)}
    own = {name: value for name, value in item.items() if name in _OF_EVERY_REQUEST}
    inner = {name: value for name, value in item.items() if name not in _OF_EVERY_REQUEST}
    if own.get("firstAvailable") and not inner.get("deviceClassName"):
        inner.pop("deviceClassName", None)
    return {**own, part: inner} if inner else own


def _to_v1beta1(item: JsonObject, part: str) -> JsonObject:
    """A request or a device of v1beta1."""
    if part == "basic":
        inner = {name: value for name, value in item.items() if name != "name"}
        return {"name": item["name"], "basic": inner}
    own = {name: value for name, value in item.items() if name != part}
    return {**own, "deviceClassName": "", **(item.get(part) or EMPTY)}


def _is_autoscaler_v1(kind: ResourceKind) -> bool:
    return (kind.group, kind.version) == (_AUTOSCALING, "v1")


def _in_version(kind: ResourceKind, obj: JsonObject) -> JsonObject:
    """A stored object in the version of the kind: its known fields, and its defaults."""
    content = _content(obj, kind.version_schema)
    return _named(kind, kind.api_version, obj, with_defaults(content, kind.version_schema))


def for_storage(kind: ResourceKind, obj: JsonObject) -> JsonObject:
    """An object of the version of the kind as it is stored."""
    if not kind.converted:
        return obj
    api_version = f"{kind.group}/{kind.storage_version}"
    return _named(kind, api_version, obj, _content(obj, kind.storage_schema))


def _content(obj: JsonObject, schema: JsonObject) -> JsonObject:
    content = {name: value for name, value in obj.items() if name not in _OF_EVERY_OBJECT}
    pruned: JsonObject = prune(content, schema, "", [])
    return pruned


def _named(
    kind: ResourceKind, api_version: str, obj: JsonObject, content: JsonObject
) -> JsonObject:
    return {
        "kind": kind.kind,
        "apiVersion": api_version,
        "metadata": obj["metadata"],
        **content,
    }


def _autoscaler_v2(obj: JsonObject) -> JsonObject:
    """The v2 form of an autoscaler in v1."""
    spec = dict(obj.get("spec") or EMPTY)
    percent = spec.pop(_PERCENT, None)
    if percent is not None:
        target = {"type": "Utilization", "averageUtilization": percent}
        spec["metrics"] = [{"type": "Resource", "resource": {"name": "cpu", "target": target}}]
    return {**obj, "apiVersion": f"{_AUTOSCALING}/v2", "spec": spec}


def _autoscaler_v1(obj: JsonObject) -> JsonObject:
    """The v1 form of an autoscaler in v2."""
    spec = dict(obj.get("spec") or EMPTY)
    percents = [
        (metric["resource"].get("target") or EMPTY).get("averageUtilization")
        for metric in spec.pop("metrics", None) or ()
        if (metric.get("resource") or EMPTY).get("name") == "cpu"
    ]
    spec.pop("behavior", None)
    for percent in percents:
        if percent is not None:
            spec[_PERCENT] = percent
    status = dict(obj.get("status") or EMPTY)
    for name in ("conditions", "currentMetrics"):
        status.pop(name, None)
    status = {"currentReplicas": 0, "desiredReplicas": 0, **status}
    return {**obj, "apiVersion": f"{_AUTOSCALING}/v1", "spec": spec, "status": status}


def _core_event(obj: JsonObject) -> JsonObject:
    """The core/v1 form of an event in events.k8s.io."""
    core = {_CORE_NAME.get(name, name): value for name, value in obj.items()}
    # Kind and apiVersion come first: rendering cuts them off the bytes of list items.
    return {"kind": "Event", "apiVersion": "v1", **_EMPTY_IN_CORE, **_without_type(core)}


def _new_event(obj: JsonObject) -> JsonObject:
    """The events.k8s.io form of an event in core/v1."""
    empty = ("reportingComponent", "reportingInstance")
    shown = {
        _NEW_NAME.get(name, name): value
        for name, value in obj.items()
        if value != "" or name not in empty
    }
    type_ = {"kind": "Event", "apiVersion": f"{_EVENTS_GROUP}/v1"}
    return {**type_, **_EMPTY_IN_NEW, **_without_type(shown)}


def _without_type(obj: JsonObject) -> JsonObject:
    return {name: value for name, value in obj.items() if name not in ("kind", "apiVersion")}


def stored_field_path(kind: ResourceKind, name: str) -> tuple[str, ...]:
    """The path of a field selector's value in the stored form."""
    if kind.storage_name == "events":
        if name == "source":
            return ("source", "component")
        head, _, rest = name.partition(".")
        head = _CORE_NAME.get(head, head)
        return (head, rest) if rest else (head,)
    if name == "status.successful":
        return ("status", "succeeded")
    return tuple(name.split("."))
