"""The rules of CustomResourceDefinitions: defaults, conversion, names, immutability.

Called through their strategy. Invariant: what a definition brings about is not decided here, but in
`registry.definition_lifecycle`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stellwerk_cluster.admission.definition_rules import rule_causes
from stellwerk_cluster.apimachinery.failures import Cause, bad_value, required, unsupported
from stellwerk_cluster.apimachinery.objects import EMPTY

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stellwerk.models.json_values import JsonObject
    from stellwerk_cluster.admission.strategy import Reader

_SCOPES: Final = ("Cluster", "Namespaced")


def default_definition(definition: JsonObject) -> None:
    """Names that follow from the kind, and the default conversion."""
    spec = definition["spec"]
    names = spec["names"]
    names.setdefault("singular", names["kind"].lower())
    if not names["singular"]:
        names["singular"] = names["kind"].lower()
    names.setdefault("listKind", f"{names['kind']}List")
    spec.setdefault("conversion", {"strategy": "None"})


def prepare_definition(definition: JsonObject, _cluster: Reader) -> None:
    """A new definition is neither accepted nor established."""
    stored = [each["name"] for each in definition["spec"].get("versions") or () if each["storage"]]
    definition["status"] = {
        "conditions": None,
        "acceptedNames": {"plural": "", "kind": ""},
        "storedVersions": stored or None,
    }


def validate_definition(definition: JsonObject) -> list[Cause]:
    """What is wrong with a definition."""
    spec, name = definition["spec"], definition["metadata"].get("name", "")
    causes: list[Cause] = []
    if name != f"{spec['names']['plural']}.{spec['group']}":
        causes.append(bad_value("metadata.name", name, 'must be spec.names.plural+"."+spec.group'))
    if spec["scope"] not in _SCOPES:
        causes.append(unsupported("spec.scope", spec["scope"], _SCOPES))
    versions = spec.get("versions") or []
    if sum(1 for each in versions if each["storage"]) != 1:
        text = "must have exactly one version marked as storage version"
        causes.append(bad_value("spec.versions", versions, text))
    for position, version in enumerate(versions):
        schema = (version.get("schema") or EMPTY).get("openAPIV3Schema")
        if schema is None:
            causes.append(required(f"spec.versions[{position}].schema.openAPIV3Schema"))
        else:
            path = _schema_path(versions, position)
            causes += [*_untyped_causes(schema, path), *rule_causes(schema, path)]
    return [*causes, *_protected_group_causes(definition)]


def _schema_path(versions: list[JsonObject], position: int) -> str:
    """Where errors place the schema of a version; all versions may share one."""
    schemas = [each.get("schema") for each in versions]
    if all(each == schemas[0] for each in schemas):
        return "spec.validation.openAPIV3Schema"
    return f"spec.versions[{position}].schema.openAPIV3Schema"


def _untyped_causes(schema: JsonObject, path: str) -> Iterator[Cause]:
    for name, part in (schema.get("properties") or EMPTY).items():
        where = f"{path}.properties[{name}]"
        free = part.get("x-kubernetes-int-or-string") or part.get(
            "x-kubernetes-preserve-unknown-fields"
        )
        if not part.get("type") and not free:
            yield required(f"{where}.type", "must not be empty for specified object fields")
        yield from _untyped_causes(part, where)
        if isinstance(part.get("items"), dict):
            yield from _untyped_causes(part["items"], f"{where}.items")


def _protected_group_causes(definition: JsonObject) -> Iterator[Cause]:
    group = definition["spec"]["group"]
    approval = "api-approved.kubernetes.io"
    if group.endswith((".k8s.io", ".kubernetes.io")) and not (
        definition["metadata"].get("annotations") or EMPTY
    ).get(approval):
        text = (
            f'protected groups must have approval annotation "{approval}", '
            "see https://github.com/kubernetes/enhancements/pull/1111"
        )
        yield required(f"metadata.annotations[{approval}]", text)


def prepare_definition_update(new: JsonObject, _old: JsonObject, subresource: str) -> None:
    """The storage version joins those in which objects may be stored."""
    if subresource == "status":
        return
    status = new["status"] = dict(new.get("status") or EMPTY)
    stored = list(status.get("storedVersions") or ())
    now = [each["name"] for each in new["spec"].get("versions") or () if each["storage"]]
    status["storedVersions"] = [*stored, *(name for name in now if name not in stored)] or None


def validate_definition_update(new: JsonObject, old: JsonObject, subresource: str) -> list[Cause]:
    """As for a new definition, and every version that objects may be stored in stays."""
    causes = [] if subresource == "status" else validate_definition(new)
    versions = {each["name"] for each in new["spec"].get("versions") or ()}
    stored = (new.get("status") or EMPTY).get("storedVersions") or ()
    for position, name in enumerate(stored):
        if name not in versions:
            text = (
                f"missing from spec.versions; {name} was previously a storage version, and must "
                "remain in spec.versions until a storage migration ensures no data remains "
                f"persisted in {name} and removes {name} from status.storedVersions"
            )
            causes.append(bad_value(f"status.storedVersions[{position}]", name, text))
    if not stored and (old.get("status") or EMPTY).get("storedVersions"):
        causes.append(
            bad_value("status.storedVersions", [], "must have at least one stored version")
        )
    return causes
