"""The volumes of a pod: their names, and the one source that each has.

Called by the validation of pods and templates. Invariant: `_SOURCES` has the sources in the order
in which the API looks at them; of a volume with several, the first counts and the others are
refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stellwerk_cluster.apimachinery.failures import (
    FieldError,
    bad_value,
    duplicate,
    forbidden_field,
    required,
    unsupported,
)
from stellwerk_cluster.apimachinery.names import subdomain_errors
from stellwerk_cluster.apimachinery.objects import EMPTY
from stellwerk_cluster.validation.checks import (
    MORE_THAN_ONE_SOURCE,
    file_mode,
    label,
    no_backsteps,
    own_path,
)
from stellwerk_cluster.validation.claims import claim_spec_errors
from stellwerk_cluster.validation.pod_environment import (
    VOLUME_FIELDS,
    field_reference_errors,
    resource_reference_errors,
)
from stellwerk_cluster.validation.volume_sources import SHARED_SOURCES
from stellwerk_kube.quantity import parse_quantity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from stellwerk_kube.json_values import JsonObject

_HOST_PATH_TYPES: Final = (
    "",
    "BlockDevice",
    "CharDevice",
    "Directory",
    "DirectoryOrCreate",
    "File",
    "FileOrCreate",
    "Socket",
)
_PULL_POLICIES: Final = ("Always", "IfNotPresent", "Never")
_MIN_TOKEN_SECONDS: Final = 600
"""Shortest lifetime of a projected token."""
_MAX_TOKEN_SECONDS: Final = 1 << 32
"""Longest lifetime of a projected token."""
_CONFLICT: Final = "conflicting duplicate paths"


def volume_errors(
    volumes: Iterable[JsonObject], field: str, pod_name: str
) -> tuple[dict[str, JsonObject], list[FieldError]]:
    """The valid volumes by name, and what is wrong with the others; `pod_name` may be empty."""
    valid: dict[str, JsonObject] = {}
    errors: list[FieldError] = []
    created = {
        f"{pod_name}-{each.get('name', '')}" for each in volumes if pod_name and "ephemeral" in each
    }
    for position, volume in enumerate(volumes):
        where, name = f"{field}[{position}]", volume.get("name", "")
        wrong = list(_source_errors(volume, where))
        wrong += _ephemeral_name_errors(volume, where, pod_name)
        wrong += label(name, f"{where}.name") if name else [required(f"{where}.name")]
        if name in valid:
            wrong.append(duplicate(f"{where}.name", name))
        if not wrong:
            valid[name] = volume
        errors += wrong
        claim = (volume.get("persistentVolumeClaim") or EMPTY).get("claimName", "")
        if claim in created:
            text = "must not reference a PVC that gets created for an ephemeral volume"
            errors.append(bad_value(f"{where}.persistentVolumeClaim.claimName", claim, text))
    return valid, errors


def _source_errors(volume: JsonObject, field: str) -> Iterator[FieldError]:
    found = False
    for name, source_errors in _SOURCES.items():
        source = volume.get(name)
        if source is None:
            continue
        if found:
            shown = _REFUSED_AS.get(name, name)
            yield forbidden_field(f"{field}.{shown}", MORE_THAN_ONE_SOURCE)
        else:
            found = True
            yield from source_errors(source, f"{field}.{_SHOWN_AS.get(name, name)}")
    if not found:
        yield required(field, "must specify a volume type")


def _ephemeral_name_errors(volume: JsonObject, field: str, pod_name: str) -> Iterator[FieldError]:
    name = volume.get("name", "")
    if "ephemeral" in volume and pod_name and name:
        claim = f"{pod_name}-{name}"
        for error in subdomain_errors(claim):
            yield bad_value(f"{field}.name", name, f'PVC name "{claim}": {error}')


def _empty_dir(source: JsonObject, field: str) -> Iterator[FieldError]:
    if parse_quantity(source.get("sizeLimit", "0")) < 0:
        text = "SizeLimit field must be a valid resource quantity"
        yield forbidden_field(f"{field}.sizeLimit", text)


def host_path_errors(source: JsonObject, field: str) -> Iterator[FieldError]:
    """Errors of a directory or file of the node."""
    if not source.get("path"):
        yield required(f"{field}.path")
        return
    yield from no_backsteps(source["path"], f"{field}.path")
    kind = source.get("type", "")
    if kind not in _HOST_PATH_TYPES:
        yield unsupported(f"{field}.type", kind, _HOST_PATH_TYPES)


def _secret(source: JsonObject, field: str) -> Iterator[FieldError]:
    if not source.get("secretName"):
        yield required(f"{field}.secretName")
    yield from file_mode(source, "defaultMode", field)
    yield from _item_errors(source, field)


def _config_map(source: JsonObject, field: str) -> Iterator[FieldError]:
    if not source.get("name"):
        yield required(f"{field}.name")
    yield from file_mode(source, "defaultMode", field)
    yield from _item_errors(source, field)


def _item_errors(source: JsonObject, field: str) -> Iterator[FieldError]:
    for position, item in enumerate(source.get("items") or ()):
        where = f"{field}.items[{position}]"
        if not item.get("key"):
            yield required(f"{where}.key")
        if not item.get("path"):
            yield required(f"{where}.path")
        yield from own_path(item.get("path", ""), f"{where}.path")
        yield from file_mode(item, "mode", where)


def _claim(source: JsonObject, field: str) -> Iterator[FieldError]:
    if not source.get("claimName"):
        yield required(f"{field}.claimName")


def _downward_api(source: JsonObject, field: str) -> Iterator[FieldError]:
    yield from file_mode(source, "defaultMode", field)
    for file in source.get("items") or ():
        yield from _downward_file(file, field)


def _downward_file(file: JsonObject, field: str) -> Iterator[FieldError]:
    if not file.get("path"):
        yield required(f"{field}.path")
    yield from own_path(file.get("path", ""), f"{field}.path")
    reference, resource = file.get("fieldRef"), file.get("resourceFieldRef")
    if reference is not None:
        yield from field_reference_errors(reference, VOLUME_FIELDS, f"{field}.fieldRef")
        if resource is not None:
            text = "fieldRef and resourceFieldRef can not be specified simultaneously"
            yield bad_value(field, "resource", text)
    elif resource is not None:
        where = f"{field}.resourceFieldRef"
        yield from resource_reference_errors(resource, where, in_volume=True)
    else:
        yield required(field, "one of fieldRef and resourceFieldRef is required")
    yield from file_mode(file, "mode", field)


def _projected(source: JsonObject, field: str) -> Iterator[FieldError]:
    yield from file_mode(source, "defaultMode", field)
    paths: set[str] = set()
    for position, part in enumerate(source.get("sources") or ()):
        where = f"{field}.sources[{position}]"
        named = [name for name in _PROJECTIONS if part.get(name) is not None]
        for name in named:
            yield from _PROJECTIONS[name](part[name], f"{where}.{name}", field)
            for path, shown in _projected_paths(name, part[name]):
                if path in paths:
                    yield bad_value(field, shown, _CONFLICT)
                paths.add(path)
        if named[1:]:
            yield forbidden_field(where, "may not specify more than 1 volume type per source")


def _projected_paths(name: str, source: JsonObject) -> Iterator[tuple[str, str]]:
    """The paths of a projection, each with what is shown when it is taken."""
    if name == "clusterTrustBundle":
        yield source.get("path", ""), source.get("path", "")
    for item in source.get("items") or ():
        path = item.get("path", "")
        if path:
            yield path, (path if name == "downwardAPI" else source.get("name", ""))


def _projected_keys(source: JsonObject, field: str, _volume: str) -> Iterator[FieldError]:
    if not source.get("name"):
        yield required(f"{field}.name")
    yield from _item_errors(source, field)


def _projected_fields(source: JsonObject, field: str, _volume: str) -> Iterator[FieldError]:
    for file in source.get("items") or ():
        yield from _downward_file(file, field)


def _projected_token(source: JsonObject, field: str, volume: str) -> Iterator[FieldError]:
    seconds = source.get("expirationSeconds", 0)
    if seconds < _MIN_TOKEN_SECONDS:
        text = "may not specify a duration less than 10 minutes"
        yield bad_value(f"{field}.expirationSeconds", seconds, text)
    if seconds > _MAX_TOKEN_SECONDS:
        text = "may not specify a duration larger than 2^32 seconds"
        yield bad_value(f"{field}.expirationSeconds", seconds, text)
    if not source.get("path"):
        yield required(f"{volume}.path")
    else:
        yield from own_path(source["path"], f"{volume}.path")


def _projected_bundle(source: JsonObject, field: str, _volume: str) -> Iterator[FieldError]:
    if source.get("name") is not None and source.get("signerName") is not None:
        yield bad_value(field, source, "only one of name and signerName may be used")
    elif source.get("name") is None and source.get("signerName") is None:
        yield required(field, "either name or signerName must be specified")
    if not source.get("path"):
        yield required(f"{field}.path")
    yield from own_path(source.get("path", ""), f"{field}.path")


_PROJECTIONS: Final[dict[str, Callable[[JsonObject, str, str], Iterator[FieldError]]]] = {
    "secret": _projected_keys,
    "configMap": _projected_keys,
    "downwardAPI": _projected_fields,
    "serviceAccountToken": _projected_token,
    "clusterTrustBundle": _projected_bundle,
}


def _ephemeral(source: JsonObject, field: str) -> Iterator[FieldError]:
    template = source.get("volumeClaimTemplate")
    if template is None:
        yield required(f"{field}.volumeClaimTemplate")
    else:
        where = f"{field}.volumeClaimTemplate.spec"
        yield from claim_spec_errors(template.get("spec") or EMPTY, where)


def _image(source: JsonObject, field: str) -> Iterator[FieldError]:
    if not source.get("reference"):
        yield required(f"{field}.reference")
    policy = source.get("pullPolicy", "")
    if policy and policy not in _PULL_POLICIES:
        yield unsupported(f"{field}.pullPolicy", policy, _PULL_POLICIES)


_SOURCES: Final[dict[str, Callable[[JsonObject, str], Iterator[FieldError]]]] = {
    "emptyDir": _empty_dir,
    "hostPath": host_path_errors,
    "gitRepo": SHARED_SOURCES["gitRepo"],
    "gcePersistentDisk": SHARED_SOURCES["gcePersistentDisk"],
    "awsElasticBlockStore": SHARED_SOURCES["awsElasticBlockStore"],
    "secret": _secret,
    "nfs": SHARED_SOURCES["nfs"],
    "iscsi": SHARED_SOURCES["iscsi"],
    "glusterfs": SHARED_SOURCES["glusterfs"],
    "flocker": SHARED_SOURCES["flocker"],
    "persistentVolumeClaim": _claim,
    "rbd": SHARED_SOURCES["rbd"],
    "cinder": SHARED_SOURCES["cinder"],
    "cephfs": SHARED_SOURCES["cephfs"],
    "quobyte": SHARED_SOURCES["quobyte"],
    "downwardAPI": _downward_api,
    "fc": SHARED_SOURCES["fc"],
    "flexVolume": SHARED_SOURCES["flexVolume"],
    "configMap": _config_map,
    "azureFile": SHARED_SOURCES["azureFile"],
    "vsphereVolume": SHARED_SOURCES["vsphereVolume"],
    "photonPersistentDisk": SHARED_SOURCES["photonPersistentDisk"],
    "portworxVolume": SHARED_SOURCES["portworxVolume"],
    "azureDisk": SHARED_SOURCES["azureDisk"],
    "storageos": SHARED_SOURCES["storageos"],
    "projected": _projected,
    "scaleIO": SHARED_SOURCES["scaleIO"],
    "csi": SHARED_SOURCES["csi"],
    "ephemeral": _ephemeral,
    "image": _image,
}
_SHOWN_AS: Final = {"gcePersistentDisk": "persistentDisk"}
"""Sources that the API names differently in the fields of its refusals."""
_REFUSED_AS: Final = {"cephfs": "cephFS", "downwardAPI": "downwarAPI"}
