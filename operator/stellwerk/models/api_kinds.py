"""The kinds of which the API server has other versions in other releases, and which can be read.

`handlers` chooses by it what is watched, docs/compatibility.md shows it; what reads and writes
devices has them in one form by `newest_form` and `own_form`. Invariant: this table is the only
place that says which versions are read; a new one goes in front, with whatever its parser and its
writer need to know of it where those read `apiVersion`.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from stellwerk.models.pod_group import WORKLOAD_API
from stellwerk_kube.json_values import JsonObject

_DEVICES: Final = "resource.k8s.io"

Served = Mapping[str, Collection[str]]
"""The plurals of each version of an API group that is served."""


@dataclass(frozen=True, slots=True)
class ApiKind:
    """A kind that releases serve in different versions."""

    kind: str
    group: str
    plural: str
    versions: tuple[str, ...]
    """Those that can be read and written, newest first."""
    parser: str
    """The function that reads its objects, by what their apiVersion says."""
    writer: str
    """The program that writes them; empty: none does."""
    lack: str
    """The capability that is off where it is not served."""


_GROUP_VERSIONS: Final = ("v1", "v1beta1", "v1alpha3", "v1alpha2")
API_KINDS: Final[Mapping[str, ApiKind]] = MappingProxyType(
    {
        each.kind: each
        for each in (
            ApiKind(
                "PodGroup",
                WORKLOAD_API,
                "podgroups",
                _GROUP_VERSIONS,
                "models.pod_group.parse_pod_group",
                "scheduler.gangs.group_conditions",
                "pods that name a group wait, and say so",
            ),
            ApiKind(
                "Workload",
                WORKLOAD_API,
                "workloads",
                (*_GROUP_VERSIONS, "v1alpha1"),
                "",
                "",
                "nothing: other controllers create groups from it",
            ),
            ApiKind(
                "CompositePodGroup",
                WORKLOAD_API,
                "compositepodgroups",
                ("v1beta1", "v1alpha3"),
                "",
                "",
                "nothing: groups in trees are not placed",
            ),
            *(
                ApiKind(
                    kind,
                    _DEVICES,
                    plural,
                    ("v1", "v1beta2", "v1beta1"),
                    "plugins.dynamic_resources",
                    writer,
                    "pods with claims wait",
                )
                for kind, plural, writer in (
                    ("ResourceClaim", "resourceclaims", "plugins.dynamic_resources.bind_claim"),
                    ("ResourceSlice", "resourceslices", ""),
                    ("DeviceClass", "deviceclasses", ""),
                )
            ),
            ApiKind(
                "DeviceTaintRule",
                _DEVICES,
                "devicetaintrules",
                ("v1", "v1beta2", "v1alpha3"),
                "plugins.dynamic_resources",
                "",
                "devices have the taints of their slices alone",
            ),
        )
    }
)
"""By kind."""


def chosen_version(
    plural: str, readable: Sequence[str], served: Served, in_use: str = ""
) -> str | None:
    """The version to use of what a group serves: the newest that can be read; None: there is none.

    A version that is in use is kept for as long as it is served.
    """
    found = [version for version in readable if plural in served.get(version, ())]
    if in_use in found:
        return in_use
    return found[0] if found else None


def unreadable_versions(plural: str, readable: Sequence[str], served: Served) -> list[str]:
    """The versions in which a plural is served and cannot be read."""
    return sorted(
        version
        for version, plurals in served.items()
        if plural in plurals and version not in readable
    )


# --- the form of devices in resource.k8s.io/v1beta1 -----------------------------------------------

_OLD_FORM: Final = f"{_DEVICES}/v1beta1"
_IN_FRONT: Final = ("name", "firstAvailable")
"""Fields of a request beside `exactly`."""


def newest_form(obj: JsonObject) -> JsonObject:
    """An object of devices with the fields of v1, under the version that it says.

    Of v1beta1 alone anything changes: a request had there what is in `exactly` now, and a device
    has what was in `basic`.
    """
    return _in_form(obj, _request_of_v1, _device_of_v1)


def own_form(obj: JsonObject) -> JsonObject:
    """An object in `newest_form` with the fields of the version that it says, to be sent."""
    return _in_form(obj, _request_of_v1beta1, _device_of_v1beta1)


def _in_form(
    obj: JsonObject,
    request: Callable[[JsonObject], JsonObject],
    device: Callable[[JsonObject], JsonObject],
) -> JsonObject:
    spec = obj.get("spec")
    if obj.get("apiVersion") != _OLD_FORM or not isinstance(spec, dict):
        return obj
    devices = spec.get("devices")
    if isinstance(devices, list):  # a slice's
        return {**obj, "spec": {**spec, "devices": [device(each) for each in devices]}}
    if isinstance(devices, dict) and devices.get("requests"):
        requests = [request(each) for each in devices["requests"]]
        return {**obj, "spec": {**spec, "devices": {**devices, "requests": requests}}}
    return obj


def _request_of_v1(old: JsonObject) -> JsonObject:
    own = {name: value for name, value in old.items() if name in _IN_FRONT}
    if own.get("firstAvailable"):
        return own
    return {**own, "exactly": {name: old[name] for name in old if name not in _IN_FRONT}}


def _request_of_v1beta1(new: JsonObject) -> JsonObject:
    own = {name: value for name, value in new.items() if name != "exactly"}
    return {**own, **(new.get("exactly") or {})}


def _device_of_v1(old: JsonObject) -> JsonObject:
    own = {name: value for name, value in old.items() if name != "basic"}
    return {**own, **(old.get("basic") or {})}


def _device_of_v1beta1(new: JsonObject) -> JsonObject:
    return {"name": new.get("name"), "basic": {each: new[each] for each in new if each != "name"}}
