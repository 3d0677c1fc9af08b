"""Manifests of users as the API server would store them: kinds, fields, names and defaults.

`simulate`, `plan`, `decide` and `what-if` read files with it. Invariant: a kind is known by its
group and name; of the kinds that a command uses, a field that does not exist is refused, as the API
server refuses it with strict validation, and what is left out has its default; objects of all other
kinds are there to be counted.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import cache
from typing import Final

from stellwerk.models.api_kinds import newest_form
from stellwerk.models.pod_group import COSCHEDULING_API
from stellwerk.models.volumes import BIND_COMPLETED
from stellwerk.profiles.spec.profile import KIND as PROFILE
from stellwerk_kube.admission import Admission, AdmissionError, check_values
from stellwerk_kube.errors import ConfigurationError
from stellwerk_kube.json_values import JsonObject
from stellwerk_kube.taints import NO_SCHEDULE, UNSCHEDULABLE_TAINT_KEY
from stellwerk_kube.yaml_file import TEMPLATE, is_template

_FIELDS: Final = frozenset({"apiVersion", "kind", "metadata", "spec", "status"})
"""Fields of an object of this scheduler's own kinds, whose specs refuse unknown fields
themselves."""
_CLAIM: Final = "PersistentVolumeClaim"
_MORE_GROUPS: Final = {"PodGroup": COSCHEDULING_API}
"""Groups beside those of Kubernetes whose kinds of the same name are read, too."""
MAX_SHOWN_NAME_CHARACTERS: Final = 80
"""Characters of a name that a message shows."""
MAX_GENERATED_BASE: Final = 58
"""Characters of `generateName` that a made name keeps, as kube-apiserver keeps them
(`maxGeneratedNameLength`): five more must fit."""


def admitted(at: str, objects: Iterable[JsonObject], used: AbstractSet[str]) -> list[JsonObject]:
    """The objects as the API server would store them; `at` begins messages.

    What has a uid was read from a cluster and stays as it is. An object of another group whose kind
    is named like one of Kubernetes is called by both, such as `Job.batch.volcano.sh`.

    Raises:
        ConfigurationError: an object of a kind that is used has an unknown field, a value of
            another type than its field, or no name.
    """
    found, names = [], _Names()
    for each in objects:
        obj, kind = each, str(each.get("kind") or "")
        group = str(each.get("apiVersion") or "").rpartition("/")[0]
        if _is_foreign(kind, group, str(each.get("apiVersion") or "")):
            kind = f"{kind}.{group}" if group else f"{kind} of {each['apiVersion']}"
            obj = {**each, "kind": kind}
        metadata = obj.get("metadata")
        is_read = isinstance(metadata, dict) and bool(metadata.get("uid"))
        if kind in used and not is_read:
            obj = names.named(_defaulted(at, obj))
        found.append(obj)
    return found


def counted(objects: Iterable[JsonObject], used: AbstractSet[str]) -> str:
    """The objects of other kinds, such as "2 ConfigMap, 1 Ingress"; empty: there is none."""
    kinds = Counter(str(obj.get("kind") or "object without a kind") for obj in objects)
    return ", ".join(f"{kinds[kind]} {kind}" for kind in sorted(kinds.keys() - used))


def check_fields(at: str, obj: JsonObject) -> JsonObject:
    """The object in the form in which the API server decodes it; `at` begins messages.

    Raises:
        ConfigurationError: it has a field that its kind does not have, or a value of another type
            than its field.
    """
    from stellwerk_kube.schema.decoder import decode  # noqa: PLC0415 large tables
    from stellwerk_kube.schema.mismatches import DecodeError  # noqa: PLC0415 as above

    type_name = _type_of(obj)
    if not type_name:
        if obj.get("kind") == PROFILE:
            _refuse(at, sorted({*obj} - _FIELDS))
        return obj
    try:
        decoded, unknown = decode(type_name, obj)
    except DecodeError as error:
        if is_template(json.dumps(obj, default=str)):
            raise ConfigurationError(f"{at}: the {obj.get('kind')} is {TEMPLATE}") from error
        raise ConfigurationError(f"{at}: {error}") from error
    _refuse(at, unknown)
    return decoded


def _refuse(at: str, unknown: Sequence[str]) -> None:
    if unknown:
        fields = ", ".join(f'"{path}"' for path in unknown)
        raise ConfigurationError(f"{at}: unknown field {fields}")


def _defaulted(at: str, obj: JsonObject) -> JsonObject:
    from stellwerk_kube.schema.defaults import default_of, merge_label_keys  # noqa: PLC0415 as above

    decoded = check_fields(f"{at}, {_called(obj)}", obj)
    metadata = decoded.get("metadata") or {}
    if is_template(str(metadata.get("name") or metadata.get("generateName") or "")):
        raise ConfigurationError(f"{at}: the {obj.get('kind')} is {TEMPLATE}")
    if not _type_of(obj):
        return obj
    if not (metadata.get("name") or metadata.get("generateName")):
        raise ConfigurationError(f"{at}: a {obj.get('kind')} has no metadata.name")
    newest = newest_form(decoded)
    if newest is not decoded:
        decoded = {**newest, "apiVersion": "resource.k8s.io/v1"}
    default_of(_type_of(decoded))(decoded)
    match obj.get("kind"):
        case "Pod":
            merge_label_keys(decoded)
        case "PersistentVolume" if not (obj.get("status") or {}).get("phase"):
            # The controller of volumes offers a new one to claims.
            claimed = (decoded.get("spec") or {}).get("claimRef")
            decoded["status"]["phase"] = "Bound" if claimed else "Available"
        case "Node":
            _check_node(at, decoded)
            if (decoded.get("spec") or {}).get("unschedulable"):
                _taint(decoded["spec"])
        case _:
            pass
    return decoded


def _called(obj: JsonObject) -> str:
    """Kind and name of an object, for messages on a file that has many."""
    metadata = obj.get("metadata")
    names = metadata if isinstance(metadata, Mapping) else {}
    name = str(names.get("name") or names.get("generateName") or "without a name")
    return f"{obj.get('kind')} {name[:MAX_SHOWN_NAME_CHARACTERS]}"


def _check_node(at: str, node: JsonObject) -> None:
    try:
        check_values(node.get("spec") or {})
    except AdmissionError as error:
        reason = f"the API server would refuse {_called(node)}: {error}"
        raise ConfigurationError(f"{at}: {reason}") from error


def _taint(node_spec: JsonObject) -> None:
    """Give a cordoned node the taint that the node controller gives it."""
    taints = node_spec.get("taints") or []
    if all(taint.get("key") != UNSCHEDULABLE_TAINT_KEY for taint in taints):
        cordoned = {"key": UNSCHEDULABLE_TAINT_KEY, "effect": NO_SCHEDULE}
        node_spec["taints"] = [*taints, cordoned]


def settled(objects: Sequence[JsonObject], used: AbstractSet[str]) -> list[JsonObject]:
    """The objects as they are once kubectl, admission and the controller of volumes have acted.

    They are in the namespace `default` if they name none and can have one. Pods and claims, where
    their kinds are `used`, are admitted with the other objects in place. Claims that name their
    volume are bound to it. What has a uid was read from a cluster and stays as it is.

    Raises:
        ConfigurationError: the API server would refuse a pod or a claim.
    """
    objects = [_in_namespace(obj) for obj in objects]
    admission = Admission(objects)
    for obj in objects:
        if obj.get("kind") == "Pod" and "Pod" in used:
            admission.pod(obj)
        elif obj.get("kind") == _CLAIM and _CLAIM in used:
            admission.claim(obj)
    volumes = {
        obj["metadata"]["name"]
        for obj in objects
        if obj.get("kind") == "PersistentVolume" and "name" in (obj.get("metadata") or {})
    }
    return [_bound(obj) if _names_one_of(obj, volumes) else obj for obj in objects]


def _in_namespace(obj: JsonObject) -> JsonObject:
    metadata = obj.get("metadata")
    if obj.get("kind") not in _namespaced() or not isinstance(metadata, dict):
        return obj
    return (
        obj
        if metadata.get("namespace")
        else {**obj, "metadata": {"namespace": "default", **metadata}}
    )


@cache
def _namespaced() -> frozenset[str]:
    from stellwerk_kube.schema.tables import object_types  # noqa: PLC0415 large tables

    return frozenset(each.kind for each in object_types() if each.namespaced)


def _names_one_of(obj: JsonObject, volumes: AbstractSet[str]) -> bool:
    if obj.get("kind") != _CLAIM or (obj.get("metadata") or {}).get("uid"):
        return False
    return (obj.get("spec") or {}).get("volumeName") in volumes


def _bound(claim: JsonObject) -> JsonObject:
    metadata = claim["metadata"]
    annotations = {**(metadata.get("annotations") or {}), BIND_COMPLETED: "yes"}
    return {
        **claim,
        "metadata": {**metadata, "annotations": annotations},
        "status": {**(claim.get("status") or {}), "phase": "Bound"},
    }


class _Names:
    """Names for objects that only say how theirs begins."""

    def __init__(self) -> None:
        self._numbers: Counter[tuple[str, str]] = Counter()

    def named(self, obj: JsonObject) -> JsonObject:
        """The object with a name. Numbers stand for kube-apiserver's random letters."""
        metadata = obj.get("metadata")
        base = metadata.get("generateName") if isinstance(metadata, Mapping) else None
        if not isinstance(base, str) or not base or obj["metadata"].get("name"):
            return obj
        base = base[:MAX_GENERATED_BASE]
        self._numbers[str(obj.get("kind")), base] += 1
        number = self._numbers[str(obj.get("kind")), base]
        return {**obj, "metadata": {**obj["metadata"], "name": f"{base}{number:05}"}}


@cache
def _types() -> Mapping[str, Mapping[str, str]]:
    """The type of each kind of Kubernetes, by apiVersion."""
    from stellwerk_kube.schema.tables import object_types  # noqa: PLC0415 large tables

    found: dict[str, dict[str, str]] = {}
    for each in object_types():
        found.setdefault(each.kind, {})[each.api_version] = each.type_name
    return found


def _is_foreign(kind: str, group: str, api_version: str) -> bool:
    """Whether an object's kind is named like one of Kubernetes, and is of another group."""
    known = _types().get(kind)
    if known is None or not api_version:
        return False
    groups = {each.rpartition("/")[0] for each in known} | {_MORE_GROUPS.get(kind, "")}
    is_core = any("/" not in each for each in known)
    return group not in groups if group else not is_core


def _type_of(obj: JsonObject) -> str:
    """The type of an object in the tables: of its version, else of its group; empty: none."""
    known = _types().get(str(obj.get("kind")), {})
    api_version = str(obj.get("apiVersion") or "")
    if not known or api_version in known:
        return known.get(api_version, "")
    group = api_version.rpartition("/")[0]
    same = [name for version, name in known.items() if version.rpartition("/")[0] == group]
    if api_version and not same:
        return ""
    return same[0] if same else next(iter(known.values()))
