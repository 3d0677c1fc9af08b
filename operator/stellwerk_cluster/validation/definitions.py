"""The rules of CustomResourceDefinitions: names, versions, schemas, CEL rules, conversion.

Called through their strategy. Invariant: what a definition brings about is not decided here, but in
`registry.definition_lifecycle`; the order of the errors is that of the API server, which places
what all versions have in common at the top of the specification; a default that passes is itself
what its schema asks for, and a schema whose rules pass compiles into a `RuleTree`.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import orjson

from stellwerk_cluster.apimachinery.failures import (
    FieldError,
    bad_value,
    forbidden_field,
    required,
    unsupported,
)
from stellwerk_cluster.apimachinery.names import dns_1035_errors, subdomain_errors
from stellwerk_cluster.apimachinery.objects import EMPTY
from stellwerk_cluster.apimachinery.rule_types import with_root_fields
from stellwerk_cluster.apimachinery.rules import (
    RULES,
    Environments,
    RuleError,
    compile_message,
    compile_rule,
    environments,
    field_path,
)
from stellwerk_cluster.apimachinery.structural import (
    UNNAMED,
    list_type_errors,
    pattern_error,
    prune,
    validate,
)
from stellwerk_cluster.validation.embedded_objects import EMBEDDED, embedded_errors

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stellwerk_kube.json_values import JsonObject, JsonValue

_MAX_MESSAGE_CHARACTERS: Final = 2048
"""Characters of the message of a rule."""
_REASONS: Final = (
    "FieldValueDuplicate",
    "FieldValueForbidden",
    "FieldValueInvalid",
    "FieldValueRequired",
)
_LINE_BREAK: Final = re.compile(r"[\n\r]")
_SHOWN_FIELDS: Final = (
    ("Rule", "rule", ""),
    ("Message", "message", ""),
    ("MessageExpression", "messageExpression", ""),
    ("Reason", "reason", None),
    ("FieldPath", "fieldPath", ""),
    ("OptionalOldSelf", "optionalOldSelf", None),
)
_SCOPES: Final = ("Cluster", "Namespaced")
_COLUMN_TYPES: Final = ("boolean", "date", "integer", "number", "string")
_COLUMN_FORMATS: Final = (
    "byte",
    "date",
    "date-time",
    "double",
    "float",
    "int32",
    "int64",
    "password",
)
_REQUIRED_NAMES: Final = ("plural", "singular", "kind", "listKind")
_SHARED: Final = ("schema", "subresources", "additionalPrinterColumns", "selectableFields")
_LIST_TYPE: Final = "x-kubernetes-list-type"
_LIST_KEYS: Final = "x-kubernetes-list-map-keys"
_MAP_TYPE: Final = "x-kubernetes-map-type"
_LIST_TYPES: Final = ("atomic", "set", "map")
_STRATEGIES: Final = ("None", "Webhook")
_SPEC: Final = ".spec."
_STATUS: Final = ".status."
_TYPES: Final = ("array", "boolean", "integer", "number", "object", "string")


def validate_definition(definition: JsonObject) -> list[FieldError]:
    """Errors of a definition."""
    spec, name = definition["spec"], definition["metadata"].get("name", "")
    errors: list[FieldError] = []
    if name != f"{spec['names']['plural']}.{spec['group']}":
        errors.append(bad_value("metadata.name", name, 'must be spec.names.plural+"."+spec.group'))
    errors += head_errors(spec)
    versions = spec.get("versions") or []
    for position, version in enumerate(versions):
        errors += version_errors(version, versions, f"spec.versions[{position}]")
        if not is_shared(versions, "schema"):
            errors += _schema_errors(version, f"spec.versions[{position}].schema.openAPIV3Schema")
    errors += list_errors(versions)
    errors += name_errors(spec["names"])
    if versions and is_shared(versions, "schema"):
        errors += _schema_errors(versions[0], "spec.validation.openAPIV3Schema")
    errors += shared_errors(versions)
    errors += conversion_errors(spec["conversion"])
    if not any(each["storage"] for each in versions) and not _stored_versions(definition):
        text = "must have at least one stored version"
        errors.append(bad_value("status.storedVersions", None, text))
    return [*errors, *_protected_group_errors(definition)]


def validate_definition_update(
    new: JsonObject, old: JsonObject, subresource: str
) -> list[FieldError]:
    """As for a new definition, and every version that objects may be stored in stays."""
    errors = [] if subresource == "status" else validate_definition(new)
    if subresource != "status":
        established = any(
            each["type"] == "Established" and each["status"] == "True"
            for each in (old.get("status") or EMPTY).get("conditions") or ()
        )
        errors += immutable_errors(new["spec"], old["spec"], established=established)
    versions = {each["name"] for each in new["spec"].get("versions") or ()}
    stored = (new.get("status") or EMPTY).get("storedVersions") or ()
    for position, name in enumerate(stored):
        if name not in versions:
            text = (
                f"missing from spec.versions; {name} was previously a storage version, and must "
                "remain in spec.versions until a storage migration ensures no data remains "
                f"persisted in {name} and removes {name} from status.storedVersions"
            )
            errors.append(bad_value(f"status.storedVersions[{position}]", name, text))
    if not stored and (old.get("status") or EMPTY).get("storedVersions"):
        errors.append(
            bad_value("status.storedVersions", [], "must have at least one stored version")
        )
    return errors


def _stored_versions(definition: JsonObject) -> list[str]:
    stored: list[str] = (definition.get("status") or EMPTY).get("storedVersions") or []
    return stored


def _schema_errors(version: JsonObject, path: str) -> Iterator[FieldError]:
    schema = (version.get("schema") or EMPTY).get("openAPIV3Schema")
    if schema is None:
        return
    if not schema.get("type"):
        yield required(f"{path}.type", "must not be empty at the root")
    elif schema["type"] != "object":
        yield bad_value(f"{path}.type", schema["type"], "must be object at the root")
    yield from _pattern_errors(schema, path)
    yield from _untyped_errors(schema, path)
    yield from topology_errors(schema, path)
    yield from rule_errors(schema, path)
    yield from default_errors(schema, path)


def _pattern_errors(schema: JsonObject, path: str) -> Iterator[FieldError]:
    """Patterns that Go's regexp, which is RE2, cannot run, wherever in a schema they stand."""
    pattern = schema.get("pattern")
    if isinstance(pattern, str) and (error := pattern_error(pattern)):
        text = f"must be a valid regular expression, but isn't: {error}"
        yield bad_value(f"{path}.pattern", pattern, text)
    for name, inner in sorted(schema.items()):
        if name in {"properties", "patternProperties", "definitions"} and isinstance(inner, dict):
            for key, part in inner.items():
                yield from _pattern_errors(part, f"{path}.{name}[{key}]")
        elif name in {"allOf", "anyOf", "oneOf"} and isinstance(inner, list):
            for position, part in enumerate(inner):
                yield from _pattern_errors(part, f"{path}.{name}[{position}]")
        elif name in {"items", "additionalProperties", "not"} and isinstance(inner, dict):
            yield from _pattern_errors(inner, f"{path}.{name}")


def _untyped_errors(schema: JsonObject, path: str) -> Iterator[FieldError]:
    for name, part in (schema.get("properties") or EMPTY).items():
        where = f"{path}.properties[{name}]"
        free = part.get("x-kubernetes-int-or-string") or part.get(
            "x-kubernetes-preserve-unknown-fields"
        )
        if not part.get("type") and not free:
            yield required(f"{where}.type", "must not be empty for specified object fields")
        elif part.get("type") and part["type"] not in _TYPES:
            yield unsupported(f"{where}.type", part["type"], _TYPES)
        yield from _untyped_errors(part, where)
        if isinstance(part.get("items"), dict):
            yield from _untyped_errors(part["items"], f"{where}.items")


def topology_errors(schema: JsonObject, path: str) -> Iterator[FieldError]:
    """Errors of what a schema says of its lists and maps: of what, and how they are merged."""
    type_, items = schema.get("type"), schema.get("items")
    if type_ == "array" and not isinstance(items, dict):
        yield required(f"{path}.items", "must be specified")
    yield from _list_errors(schema, items if isinstance(items, dict) else None, path)
    map_type = schema.get(_MAP_TYPE)
    if map_type is not None and map_type not in ("atomic", "granular"):
        yield unsupported(f"{path}.{_MAP_TYPE}", map_type, ("atomic", "granular"))
    elif map_type is not None and type_ != "object":
        yield _other_type(type_, path, f"must be object if {_MAP_TYPE} is specified")
    for name, part in sorted((schema.get("properties") or EMPTY).items()):
        yield from topology_errors(part, f"{path}.properties[{name}]")
    for name in ("additionalProperties", "items"):
        if isinstance(schema.get(name), dict):
            yield from topology_errors(schema[name], f"{path}.{name}")


def _other_type(type_: JsonValue, path: str, text: str) -> FieldError:
    return bad_value(f"{path}.type", type_, text) if type_ else required(f"{path}.type", text)


def _list_errors(schema: JsonObject, items: JsonObject | None, path: str) -> Iterator[FieldError]:
    type_, list_type = schema.get("type"), schema.get(_LIST_TYPE)
    keys = schema.get(_LIST_KEYS) or []
    if list_type is not None and list_type not in _LIST_TYPES:
        yield unsupported(f"{path}.{_LIST_TYPE}", list_type, _LIST_TYPES)
    elif list_type is not None and type_ != "array":
        yield _other_type(type_, path, f"must be array if {_LIST_TYPE} is specified")
    elif keys and list_type != "map":
        text = f"must be map if {_LIST_KEYS} is non-empty"
        yield required(f"{path}.{_LIST_TYPE}", text)
    elif list_type == "map":
        if not keys:
            text = f"must not be empty if {_LIST_TYPE} is map"
            yield required(f"{path}.{_LIST_KEYS}", text)
        if items is None:
            yield required(f"{path}.items", f"must have a schema if {_LIST_TYPE} is map")
        else:
            yield from _keyed_item_errors(items, keys, path)
    elif list_type == "set" and items is not None:
        yield from _set_item_errors(items, f"{path}.items")


def _keyed_item_errors(items: JsonObject, keys: list[str], path: str) -> Iterator[FieldError]:
    """Errors of the items of a list that is a map: objects that always have its scalar keys."""
    if items.get("type") != "object":
        text = f"must be object if parent array's {_LIST_TYPE} is map"
        yield _other_type(items.get("type"), f"{path}.items", text)
        return
    properties = items.get("properties") or EMPTY
    if not set(keys) <= properties.keys():
        text = "entries must all be names of item properties"
        yield bad_value(f"{path}.{_LIST_KEYS}", keys, text)
        return
    among = f"this property is in {_LIST_KEYS}, so it"
    for key in keys:
        part, where = properties[key], f"{path}.items.properties[{key}]"
        if part.get("type") in ("array", "object"):
            text = f"must be a scalar type if parent array's {_LIST_TYPE} is map"
            yield bad_value(f"{where}.type", part["type"], text)
        if part.get("default") is None and key not in (items.get("required") or ()):
            yield required(
                f"{where}.default", f"{among} must have a default or be a required property"
            )
        if part.get("nullable"):
            yield forbidden_field(f"{where}.nullable", f"{among} cannot be nullable")
    if len(set(keys)) < len(keys):
        yield bad_value(f"{path}.{_LIST_KEYS}", keys, "must not contain duplicate entries")


def _set_item_errors(items: JsonObject, path: str) -> Iterator[FieldError]:
    """Errors of the items of a list that is a set: values that are compared as wholes."""
    if items.get("nullable"):
        yield forbidden_field(f"{path}.nullable", f"cannot be nullable when {_LIST_TYPE} is set")
    atomic = f"must be atomic as item of a list with {_LIST_TYPE}=set"
    if items.get("type") == "object" and items.get(_MAP_TYPE) != "atomic":
        yield bad_value(f"{path}.{_MAP_TYPE}", items.get(_MAP_TYPE), atomic)
    if items.get("type") == "array" and items.get(_LIST_TYPE) not in (None, "atomic"):
        yield bad_value(f"{path}.{_LIST_TYPE}", items[_LIST_TYPE], atomic)


def _protected_group_errors(definition: JsonObject) -> Iterator[FieldError]:
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


def is_shared(versions: list[JsonObject], field: str) -> bool:
    """Whether all versions say the same there, so that errors place it outside of them."""
    return all(each.get(field) == versions[0].get(field) for each in versions)


def head_errors(spec: JsonObject) -> Iterator[FieldError]:
    """Errors of group and scope, and of versions without a schema."""
    group, scope = spec["group"], spec["scope"]
    if not group:
        yield required("spec.group")
    elif errors := subdomain_errors(group):
        yield bad_value("spec.group", group, ",".join(errors))
    elif "." not in group:
        yield bad_value("spec.group", group, "should be a domain with at least one dot")
    if not scope:
        yield required("spec.scope")
    elif scope not in _SCOPES:
        yield unsupported("spec.scope", scope, _SCOPES)
    for position, version in enumerate(spec.get("versions") or ()):
        if (version.get("schema") or EMPTY).get("openAPIV3Schema") is None:
            yield required(f"spec.versions[{position}].schema.openAPIV3Schema")


def version_errors(
    version: JsonObject, versions: list[JsonObject], field: str
) -> Iterator[FieldError]:
    """Errors of the parts of a version that it does not share with the others."""
    errors = dns_1035_errors(version["name"])
    if errors:
        yield bad_value(f"{field}.name", version["name"], ",".join(errors))
    if not is_shared(versions, "subresources"):
        yield from _subresource_errors(version.get("subresources"), f"{field}.subresources")
    if not is_shared(versions, "additionalPrinterColumns"):
        columns = version.get("additionalPrinterColumns")
        yield from _column_errors(columns, f"{field}.additionalPrinterColumns")


def list_errors(versions: list[JsonObject]) -> Iterator[FieldError]:
    """Errors of the versions together."""
    shown = [_internal(each, versions) for each in versions]
    if len({each["name"] for each in versions}) != len(versions):
        yield bad_value("spec.versions", shown, "must contain unique version names")
    if sum(1 for each in versions if each["storage"]) != 1:
        text = "must have exactly one version marked as storage version"
        yield bad_value("spec.versions", shown, text)


def _internal(version: JsonObject, versions: list[JsonObject]) -> JsonObject:
    """A version as errors quote it: in Go's names, without what it shares with the others."""
    return {
        "Name": version["name"],
        "Served": version["served"],
        "Storage": version["storage"],
        "Deprecated": version.get("deprecated", False),
        "DeprecationWarning": version.get("deprecationWarning"),
        **{
            f"{field[0].upper()}{field[1:]}": (
                None if is_shared(versions, field) else version.get(field)
            )
            for field in _SHARED
        },
    }


def name_errors(names: JsonObject) -> Iterator[FieldError]:
    """Errors of the names of a kind."""
    for name in _REQUIRED_NAMES:
        if not names.get(name):
            yield required(f"spec.names.{name}")
    for name in _REQUIRED_NAMES:
        text = names.get(name) or ""
        mixed = name in ("kind", "listKind")
        errors = dns_1035_errors(text.lower() if mixed else text) if text else ()
        if errors:
            prefix = "may have mixed case, but should otherwise match: " if mixed else ""
            yield bad_value(f"spec.names.{name}", text, prefix + ",".join(errors))
    yield from _label_list_errors(names, "shortNames")
    if names.get("kind") and names["kind"] == names.get("listKind"):
        text = "kind and listKind may not be the same"
        yield bad_value("spec.names.listKind", names["listKind"], text)
    yield from _label_list_errors(names, "categories")


def _label_list_errors(names: JsonObject, field: str) -> Iterator[FieldError]:
    for position, text in enumerate(names.get(field) or ()):
        errors = dns_1035_errors(text)
        if errors:
            yield bad_value(f"spec.names.{field}[{position}]", text, ",".join(errors))


def shared_errors(versions: list[JsonObject]) -> Iterator[FieldError]:
    """Errors of the subresources and columns that all versions have in common."""
    if not versions:
        return
    first = versions[0]
    if is_shared(versions, "subresources"):
        yield from _subresource_errors(first.get("subresources"), "spec.subresources")
    if is_shared(versions, "additionalPrinterColumns"):
        columns = first.get("additionalPrinterColumns")
        yield from _column_errors(columns, "spec.additionalPrinterColumns")


def _subresource_errors(subresources: JsonObject | None, field: str) -> Iterator[FieldError]:
    scale = (subresources or EMPTY).get("scale")
    if scale is None:
        return
    for name, prefix in (("specReplicasPath", _SPEC), ("statusReplicasPath", _STATUS)):
        where, path = f"{field}.scale.{name}", scale.get(name) or ""
        if not path:
            yield required(where)
        elif not path.startswith("."):
            yield bad_value(where, path, "must be a simple json path starting with .")
        elif not path.startswith(prefix):
            place = prefix.removesuffix(".")
            yield bad_value(where, path, f"should be a json path under {place}")
    where, path = f"{field}.scale.labelSelectorPath", scale.get("labelSelectorPath") or ""
    if path and not path.startswith("."):
        yield bad_value(where, path, "must be a simple json path starting with .")
    elif path and not path.startswith((_SPEC, _STATUS)):
        yield bad_value(where, path, "should be a json path under either .spec or .status")


def _column_errors(columns: list[JsonObject] | None, field: str) -> Iterator[FieldError]:
    for position, column in enumerate(columns or ()):
        where = f"{field}[{position}]"
        if not column.get("name"):
            yield required(f"{where}.name")
        types = f"must be one of {','.join(_COLUMN_TYPES)}"
        if not column.get("type"):
            yield required(f"{where}.type", types)
        elif column["type"] not in _COLUMN_TYPES:
            yield bad_value(f"{where}.type", column["type"], types)
        if column.get("format") and column["format"] not in _COLUMN_FORMATS:
            text = f"must be one of {','.join(_COLUMN_FORMATS)}"
            yield bad_value(f"{where}.format", column["format"], text)
        path = column.get("jsonPath") or ""
        if not path:
            yield required(f"{where}.JSONPath")
        elif not path.startswith("."):
            text = "must be a simple json path starting with ."
            yield bad_value(f"{where}.JSONPath", path, text)


def definition_warnings(definition: JsonObject, _old: JsonObject | None) -> Iterator[str]:
    """Say what becomes of objects whose versions a webhook would convert."""
    spec = definition["spec"]
    stored = [each["name"] for each in spec.get("versions") or () if each.get("storage")]
    served = [each["name"] for each in spec.get("versions") or () if each.get("served")]
    if (spec.get("conversion") or EMPTY).get("strategy") == "Webhook" and set(served) - {*stored}:
        yield (
            "spec.conversion: no conversion webhook is called in this cluster; objects are "
            "converted by their apiVersion alone, and fields that version "
            f'"{"".join(stored)}" does not have are dropped'
        )


def conversion_errors(conversion: JsonObject) -> Iterator[FieldError]:
    """Errors of the conversion of objects between versions."""
    field, strategy = "spec.conversion", conversion.get("strategy") or ""
    if not strategy:
        yield required(f"{field}.strategy")
    elif strategy not in _STRATEGIES:
        yield unsupported(f"{field}.strategy", strategy, _STRATEGIES)
    webhook = conversion.get("webhook")
    if strategy == "Webhook":
        if (webhook or EMPTY).get("clientConfig") is None:
            text = "required when strategy is set to Webhook"
            yield required(f"{field}.webhookClientConfig", text)
        if not (webhook or EMPTY).get("conversionReviewVersions"):
            yield required(f"{field}.conversionReviewVersions")
    elif webhook is not None:
        text = "should not be set when strategy is not set to Webhook"
        yield forbidden_field(f"{field}.webhookClientConfig", text)


def immutable_errors(
    new: JsonObject, old: JsonObject, *, established: bool
) -> Iterator[FieldError]:
    """Errors of a change of a specification."""
    fields: list[tuple[str, JsonValue, JsonValue]] = []
    if established:
        fields = [
            ("spec.scope", new["scope"], old["scope"]),
            ("spec.names.kind", new["names"]["kind"], old["names"]["kind"]),
        ]
    fields += [
        ("spec.group", new["group"], old["group"]),
        ("spec.names.plural", new["names"]["plural"], old["names"]["plural"]),
    ]
    for field, now, before in fields:
        if now != before:
            yield bad_value(field, now, "field is immutable")


def rule_errors(schema: JsonObject, path: str) -> list[FieldError]:
    """Errors of the rules of a schema and of the schemas below it."""
    return _Inspection().errors(schema, path, root=True, uncorrelatable="")[1]


class _Inspection:
    def errors(
        self, schema: JsonObject, path: str, *, root: bool, uncorrelatable: str
    ) -> tuple[list[FieldError], list[FieldError]]:
        """Errors of form, and all errors; a level below which the form is wrong is not compiled.

        `uncorrelatable` is the path of a list or map around the schema whose elements cannot be
        told from those they replace.
        """
        malformed: list[FieldError] = []
        found: list[FieldError] = []
        for part, where, limit in self._parts(schema, path, uncorrelatable):
            below, all_below = self.errors(part, where, root=False, uncorrelatable=limit)
            malformed += below
            found += all_below
        if not schema.get(RULES):
            return malformed, found
        own = list(self._form_errors(schema, path))
        if not malformed and not own:
            if root or schema.get("x-kubernetes-embedded-resource"):
                schema = with_root_fields(schema)
            own_types = self._type_errors(schema, path, uncorrelatable)
            return [], [*found, *own_types]
        return [*malformed, *own], [*found, *own]

    @staticmethod
    def _parts(schema: JsonObject, path: str, limit: str) -> Iterator[tuple[JsonObject, str, str]]:
        inside = limit or (path if schema.get("x-kubernetes-map-type") == "atomic" else "")
        for name, part in sorted((schema.get("properties") or EMPTY).items()):
            yield part, f"{path}.properties[{name}]", inside
        if isinstance(schema.get("additionalProperties"), dict):
            yield schema["additionalProperties"], f"{path}.additionalProperties", inside
        if isinstance(schema.get("items"), dict):
            keyed = schema.get("x-kubernetes-list-type") == "map"
            yield schema["items"], f"{path}.items", limit if keyed else limit or path

    @staticmethod
    def _form_errors(schema: JsonObject, path: str) -> Iterator[FieldError]:
        for place, rule in enumerate(schema[RULES]):
            yield from _rule_form(rule, schema, f"{path}.{RULES}[{place}]")

    @staticmethod
    def _type_errors(schema: JsonObject, path: str, uncorrelatable: str) -> Iterator[FieldError]:
        found = environments(schema)
        if found is None:
            return
        for place, rule in enumerate(schema[RULES]):
            yield from _compiling(rule, schema, found, f"{path}.{RULES}[{place}]", uncorrelatable)


def _rule_form(rule: JsonObject, schema: JsonObject, where: str) -> Iterator[FieldError]:
    text, message = rule.get("rule", ""), rule.get("message", "")
    if not text.strip():
        yield required(f"{where}.rule", "rule is not specified")
    elif message and not message.strip():
        yield bad_value(f"{where}.message", message, "must be non-empty if specified")
    elif len(message) > _MAX_MESSAGE_CHARACTERS:
        shown = f"{message[:10]}..."
        yield bad_value(
            f"{where}.message",
            shown,
            f"must have a maximum length of {_MAX_MESSAGE_CHARACTERS} characters",
        )
    elif _LINE_BREAK.search(message.strip()):
        yield bad_value(f"{where}.message", message, "must not contain line breaks")
    elif _LINE_BREAK.search(text.strip()) and not message.strip():
        text = "message must be specified if rule contains line breaks"
        yield required(f"{where}.message", text)
    expression = rule.get("messageExpression", "")
    if expression and not expression.strip():
        text = "messageExpression must be non-empty if specified"
        yield required(f"{where}.messageExpression", text)
    if rule.get("reason") and rule["reason"] not in _REASONS:
        yield unsupported(f"{where}.reason", rule["reason"], _REASONS)
    yield from _path_form(rule.get("fieldPath", ""), schema, f"{where}.fieldPath")


def _path_form(path: str, schema: JsonObject, where: str) -> Iterator[FieldError]:
    if path and not path.strip():
        yield bad_value(where, path, "must be non-empty if specified")
    if _LINE_BREAK.search(path):
        yield bad_value(where, path, "must not contain line breaks")
    if path and field_path(path, schema) is None:
        yield bad_value(where, path, "must be a valid path")


def _compiling(
    rule: JsonObject, schema: JsonObject, found: Environments, where: str, uncorrelatable: str
) -> Iterator[FieldError]:
    try:
        compiled = compile_rule(rule, schema, found)
    except RuleError as error:
        yield _refused(f"{where}.rule", rule, str(error))
        return
    try:
        compile_message(rule, found)
    except RuleError as error:
        yield _refused(f"{where}.messageExpression", rule, str(error))
    if compiled.uses_old and uncorrelatable:
        text = (
            "oldSelf cannot be used on the uncorrelatable portion of the schema within "
            f"{uncorrelatable}"
        )
        yield bad_value(f"{where}.rule", rule["rule"], text)
    elif not compiled.uses_old and rule.get("optionalOldSelf") is not None:
        text = "may not be set if oldSelf is not used in rule"
        yield bad_value(f"{where}.optionalOldSelf", rule["optionalOldSelf"], text)


def _refused(where: str, rule: JsonObject, why: str) -> FieldError:
    shown = {name: rule.get(key, default) for name, key, default in _SHOWN_FIELDS}
    text = orjson.dumps(shown).decode()
    for sign in "<>&":
        # As Go's encoder writes them.
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return FieldError(where, "FieldValueInvalid", f"Invalid value: {text}: {why}")


def default_errors(schema: JsonObject, path: str) -> Iterator[FieldError]:
    """Errors of the defaults in a schema, and where it says that objects lie in it."""
    if schema.get("default") is not None:
        yield from _errors_of(schema, f"{path}.default")
    if schema.get(EMBEDDED):
        yield from _embedding_errors(schema, path)
    for name, part in sorted((schema.get("properties") or EMPTY).items()):
        yield from default_errors(part, f"{path}.properties[{name}]")
    for name in ("additionalProperties", "items"):
        if isinstance(schema.get(name), dict):
            yield from default_errors(schema[name], f"{path}.{name}")


def _errors_of(schema: JsonObject, path: str) -> Iterator[FieldError]:
    default, unknown = schema["default"], list[str]()
    prune(default, schema, "", unknown)
    if unknown:
        yield bad_value(path, default, "must not have unknown fields")
    embedded = list(embedded_errors(default, schema, path))
    if embedded:
        yield from embedded
        return
    # The texts name the place within the default alone, the fields that of the default, too.
    for error in validate(default, schema, ""):
        place = "" if error.field == UNNAMED else error.field
        yield replace(error, field=f"{path}.{place}" if place else path)
    if isinstance(default, dict):  # a default that is a list itself is not looked at
        yield from list_type_errors(default, schema, path)


def _embedding_errors(schema: JsonObject, path: str) -> Iterator[FieldError]:
    text = f"must be object if {EMBEDDED} is true"
    if not schema.get("type"):
        yield required(f"{path}.type", text)
    elif schema["type"] != "object":
        yield bad_value(f"{path}.type", schema["type"], text)
    if not schema.get("properties") and not schema.get("x-kubernetes-preserve-unknown-fields"):
        yield required(
            f"{path}.properties",
            f"must not be empty if {EMBEDDED} is true without x-kubernetes-preserve-unknown-fields",
        )
