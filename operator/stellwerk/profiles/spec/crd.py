"""The CustomResourceDefinition of SchedulerProfile, made from the pydantic models.

`python -m stellwerk.profiles.spec.crd > crds/schedulerprofiles.yaml` writes the file that users
apply; the embedded cluster and the demo take `crd_manifest()`. With `--for-editors` it writes the
JSON Schema of the docs site (docs/static/schedulerprofile.schema.json). Invariant: the schema is
structural, its rules stay within the API server's cost limits, and the files equal what this module
says.
"""

import ast
import inspect
import json
import sys
from collections.abc import Mapping
from itertools import pairwise
from textwrap import dedent
from typing import Any, Final

import yaml
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core.core_schema import ModelSchema
from typing_extensions import override

from stellwerk.profiles.spec.config_model import INT32_MAX, INT64_MAX, ConfigModel
from stellwerk.profiles.spec.crd_rules import RULES, Rule
from stellwerk.profiles.spec.plugin_args import (
    MAX_SCORED_RESOURCES,
    DefaultPreemptionArgs,
    PodTopologySpreadArgs,
    RequestedToCapacityRatioParam,
    ResourceSpec,
)
from stellwerk.profiles.spec.profile import GROUP, KIND, PLURAL, VERSION
from stellwerk.profiles.spec.spec_fields import SchedulerProfileSpec
from stellwerk.profiles.spec.status_fields import SchedulerProfileStatus

Schema = dict[str, Any]

_HEADER: Final = """\
# Generated from operator/stellwerk/profiles/spec; do not edit.
# python -m stellwerk.profiles.spec.crd > crds/schedulerprofiles.yaml
"""

_MAP_KEYS: Final[Mapping[str, str]] = {
    "enabled": "name",
    "disabled": "name",
    "pluginConfig": "name",
    "managedResources": "name",
    "conditions": "type",
    "shape": "utilization",
}
"""Lists whose items have a key: the API server refuses duplicates, and server-side apply merges."""

_SETS: Final = frozenset({"schedulerNames"})
"""Lists of texts in which none may stand twice."""


_OWN_ARGUMENTS: Final[Mapping[str, tuple[type[ConfigModel], tuple[str, ...]]]] = {
    "DefaultPreemption": (
        DefaultPreemptionArgs,
        ("minRunSeconds", "spareDaemonSetPods", "orderByDeletionCost"),
    ),
    "PodTopologySpread": (PodTopologySpreadArgs, ("giveWayAfterSeconds",)),
}
"""Arguments that kube-scheduler's plugins do not have there; those that have one type alone."""
_OWN: Final = "Stellwerk only"
"""The beginning of the descriptions of such arguments."""

_SHAPE_POINTS: Final = 101
"""Utilization rises in whole percent, so that a longer shape cannot be valid."""

PENDING_STATUS: Final[Mapping[str, Any]] = {
    "conditions": [
        {
            "type": type_,
            "status": status,
            "reason": "Pending",
            "message": "no operator has judged this profile yet",
            "lastTransitionTime": "1970-01-01T00:00:00Z",
        }
        for type_, status in (("Ready", "Unknown"), ("Reconciling", "True"))
    ]
}
"""The status of an object that no operator has written yet, as the API server shows it. Without it
kstatus takes a new profile for one that is ready."""

_COLUMNS: Final[tuple[tuple[str, str, str, str] | tuple[str, str, str, str, int], ...]] = (
    ("Scheduler", "string", ".spec.schedulerName", "schedulerName of the pods it schedules"),
    ("Mode", "string", ".spec.mode", "Whether it schedules its pods, or observes them", 1),
    ("Shadows", "string", ".spec.shadowOf", "The profile that it shadows", 1),
    (
        "Accepted",
        "string",
        '.status.conditions[?(@.type=="Accepted")].status',
        "Whether the newest version is valid and free of conflicts",
    ),
    (
        "Active",
        "string",
        '.status.conditions[?(@.type=="Active")].status',
        "Whether it schedules pods, perhaps with an older version",
    ),
    (
        "Ready",
        "string",
        '.status.conditions[?(@.type=="Ready")].status',
        "Whether the newest version acts as written",
        1,
    ),
    (
        "Reason",
        "string",
        '.status.conditions[?(@.type=="Accepted")].reason',
        "Why it is accepted or not; kubectl describe says more",
    ),
    ("Pending", "integer", ".status.pendingPods.total", "Pods that wait for a node"),
    ("Scheduled", "integer", ".status.scheduledPods", "Pods bound since the operator started"),
    ("Age", "date", ".metadata.creationTimestamp", ""),
)


def crd_manifest() -> dict[str, Any]:
    """Return the CustomResourceDefinition as the object to apply."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{PLURAL}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Cluster",
            "names": {
                "kind": KIND,
                "listKind": f"{KIND}List",
                "plural": PLURAL,
                "singular": KIND.lower(),
                "shortNames": ["sprof"],
            },
            "versions": [
                {
                    "name": VERSION,
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "additionalPrinterColumns": [_column(*column) for column in _COLUMNS],
                    "schema": {"openAPIV3Schema": _object_schema()},
                }
            ],
        },
    }


def crd_yaml() -> str:
    """Return the text of crds/schedulerprofiles.yaml."""
    return _HEADER + yaml.safe_dump(crd_manifest(), sort_keys=False, width=100)


def _column(
    name: str, type_: str, path: str, description: str, priority: int = 0
) -> dict[str, Any]:
    """A column of kubectl's table; `priority` 1: of `-o wide` alone."""
    column: dict[str, Any] = {"name": name, "type": type_, "jsonPath": path}
    if description:
        column["description"] = description
    return {**column, "priority": priority} if priority else column


def _object_schema() -> Schema:
    return {
        "type": "object",
        "description": "A SchedulerProfile says how pods with one schedulerName are scheduled. "
        "It can be edited at any time; an edit applies to the next pod.",
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string", "description": "Version of this schema."},
            "kind": {"type": "string", "description": KIND},
            "metadata": {"type": "object"},
            "spec": model_schema(SchedulerProfileSpec),
            "status": {**model_schema(SchedulerProfileStatus), "default": PENDING_STATUS},
        },
    }


def model_schema(model: type[ConfigModel]) -> Schema:
    """Return the structural schema of a model, without references."""
    schema = model.model_json_schema(by_alias=True, schema_generator=_DocumentedSchema)
    return _structural(schema, schema.get("$defs", {}), model.__name__)


class _DocumentedSchema(GenerateJsonSchema):
    """Pydantic's schema, with the docstrings of fields as their descriptions.

    Pydantic can find them itself, but does so whenever the models are imported (`run` wants none).
    """

    @override
    def model_schema(self, schema: ModelSchema) -> Schema:
        result = super().model_schema(schema)
        model = schema["cls"]
        for name, text in _field_docstrings(model).items():
            field = result["properties"][model.model_fields[name].alias or name]
            field.setdefault("description", text)
        return result


def _field_docstrings(model: type[object]) -> dict[str, str]:
    """Return the string below each field of a model, its bases' included, by the field's name."""
    texts: dict[str, str] = {}
    for part in reversed(model.__mro__):
        if not issubclass(part, ConfigModel):
            continue
        definition = ast.parse(dedent(inspect.getsource(part))).body[0]
        for field, text in pairwise(getattr(definition, "body", ())):
            match field, text:
                case (
                    ast.AnnAssign(target=ast.Name(id=name)),
                    ast.Expr(value=ast.Constant(value=str(content))),
                ):
                    texts[name] = inspect.cleandoc(content)
                case _:
                    pass  # validators, and fields that need no words
    return texts


def _structural(node: Schema, definitions: Mapping[str, Schema], name: str) -> Schema:
    """Return a node of pydantic's JSON schema as Kubernetes wants it.

    `name` is where its rules are found: the model, or the model and the field.
    """
    node, model = _dereferenced(node, definitions)
    result: Schema = {"description": " ".join(node.get("description", "").split())}
    result["type"] = node["type"]
    match node["type"]:
        case "object":
            result |= _object(node, definitions, model or name)
        case "array":
            result |= _array(node, definitions, name)
        case _:
            result |= _scalar(node)
    if node.get("default"):
        result["default"] = node["default"]
    rules = (*RULES.get(name, ()), *RULES.get(model, ()))
    if rules:
        result["x-kubernetes-validations"] = [_written(rule) for rule in rules]
    return {key: value for key, value in result.items() if value != ""}


def _dereferenced(node: Schema, definitions: Mapping[str, Schema]) -> tuple[Schema, str]:
    """Follow a reference, and `X or null` to X; what the field itself says goes first."""
    model = ""
    for keyword in ("anyOf", "allOf"):
        for option in node.get(keyword, ()):
            if option.get("type") != "null":
                node = {**option, **{key: value for key, value in node.items() if key != keyword}}
    if "$ref" in node:
        model = str(node["$ref"]).rpartition("/")[2]
        node = {**definitions[model], **node}
        # A default object is what the absent fields say anyway; nothing to write into the store.
        node.pop("default", None)
    return node, model


def _object(node: Schema, definitions: Mapping[str, Schema], name: str) -> Schema:
    if "properties" not in node:
        return _map(node, definitions, name)
    properties = {
        field: _property(field, child, definitions, name)
        for field, child in node["properties"].items()
    }
    required = {"required": node["required"]} if node.get("required") else {}
    return {**required, "properties": properties}


def _property(field: str, child: Schema, definitions: Mapping[str, Schema], name: str) -> Schema:
    schema = _structural(child, definitions, f"{name}.{field}")
    if name == "PluginConfig" and field == "args":
        schema["properties"] = _known_args()
    if schema["type"] == "array":
        schema |= _list_type(field)
    return schema


def _map(node: Schema, definitions: Mapping[str, Schema], name: str) -> Schema:
    values = node.get("additionalProperties")
    if not isinstance(values, dict):
        return {"x-kubernetes-preserve-unknown-fields": True}
    bounds = {"maxProperties": node["maxProperties"]} if "maxProperties" in node else {}
    return {**bounds, "additionalProperties": _structural(values, definitions, f"{name}.*")}


def _known_args() -> Schema:
    """Return the part of `args` that the API server and editors know.

    Rules look at the first two: CEL does not see fields that the schema lacks. The others are
    Stellwerk's own, which no documentation of kube-scheduler explains.
    """
    ratio = model_schema(RequestedToCapacityRatioParam)
    shape = ratio["properties"]["shape"]
    shape["maxItems"] = _SHAPE_POINTS
    # The key of a list must be there; upstream reads an absent one as 0.
    shape["items"]["properties"]["utilization"]["default"] = 0
    kept = {"x-kubernetes-preserve-unknown-fields": True}
    return {
        "hardPodAffinityWeight": {
            "type": "integer",
            "format": "int32",
            "description": "InterPodAffinity: weight of required terms of placed pods, 0 to 100.",
        },
        "scoringStrategy": {
            "type": "object",
            "description": "NodeResourcesFit: how nodes are scored.",
            "x-kubernetes-preserve-unknown-fields": True,
            "properties": {
                "type": {
                    "type": "string",
                    "maxLength": 64,
                    "description": "LeastAllocated, MostAllocated or RequestedToCapacityRatio.",
                },
                "resources": {
                    "type": "array",
                    "description": "The resources that count, and how much.",
                    "maxItems": MAX_SCORED_RESOURCES,
                    "items": {**model_schema(ResourceSpec), **kept},
                    "x-kubernetes-list-type": "atomic",
                },
                "requestedToCapacityRatio": {
                    **ratio,
                    **kept,
                },
            },
        },
        **_own_arguments(),
    }


def _own_arguments() -> Schema:
    """Return the schemas of the arguments in `_OWN_ARGUMENTS`, each said to be its plugin's."""
    found: Schema = {}
    for plugin, (model, fields) in _OWN_ARGUMENTS.items():
        schema = model.model_json_schema(by_alias=True, schema_generator=_DocumentedSchema)
        for field in fields:
            found[field] = _structural(schema["properties"][field], {}, f"{plugin}.{field}")
            text = found[field]["description"].removeprefix(f"{_OWN}: ")
            found[field]["description"] = f"{plugin}, in {_OWN}: {text}"
    return found


def _array(node: Schema, definitions: Mapping[str, Schema], name: str) -> Schema:
    bounds: Schema = {key: node[key] for key in ("minItems", "maxItems") if key in node}
    return {**bounds, "items": _structural(node["items"], definitions, f"{name}[]")}


def _list_type(field: str) -> Schema:
    if field in _SETS:
        return {"x-kubernetes-list-type": "set"}
    if field in _MAP_KEYS:
        return {
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": [_MAP_KEYS[field]],
        }
    return {"x-kubernetes-list-type": "atomic"}


_SCALAR_KEYWORDS: Final[tuple[str, ...]] = (
    "format",
    "enum",
    "pattern",
    "minLength",
    "maxLength",
    "minimum",
)


def _scalar(node: Schema) -> Schema:
    result: Schema = {key: node[key] for key in _SCALAR_KEYWORDS if key in node}
    if node["type"] != "integer":
        return result
    maximum = node.get("maximum", INT64_MAX)
    result["format"] = "int32" if maximum <= INT32_MAX else "int64"
    if maximum < INT32_MAX:
        result["maximum"] = maximum
    return result


def _written(rule: Rule) -> dict[str, str]:
    written = {"rule": rule.rule, "message": rule.message}
    return {**written, "fieldPath": rule.field} if rule.field else written


def json_schema(schema: Schema, *, described: bool = False) -> Schema:
    """A structural schema in the words of JSON Schema: fields that it does not name are refused.

    `described`: with the descriptions and formats, which an editor shows.
    """
    left_out = ("x-kubernetes-",) if described else ("description", "format", "x-kubernetes-")
    made = {key: value for key, value in schema.items() if not key.startswith(left_out)}
    for key in ("items", "additionalProperties"):
        if isinstance(made.get(key), dict):
            made[key] = json_schema(made[key], described=described)
    if "properties" in made:
        made["properties"] = {
            name: json_schema(each, described=described)
            for name, each in made["properties"].items()
        }
        if not schema.get("x-kubernetes-preserve-unknown-fields"):
            made["additionalProperties"] = False
        elif described:
            made["additionalProperties"] = True
    return made


def editor_schema() -> str:
    """Return the text of docs/static/schedulerprofile.schema.json, for editors of manifests."""
    schema = json_schema(_object_schema(), described=True)
    fields = schema["properties"]
    fields["apiVersion"]["enum"] = [f"{GROUP}/{VERSION}"]
    fields["kind"]["enum"] = [KIND]
    fields["metadata"]["additionalProperties"] = True
    fields["status"] = {
        "type": "object",
        "description": "Written by the operator.",
        "additionalProperties": True,
    }
    made = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": KIND,
        **schema,
        "required": ["apiVersion", "kind", "metadata", "spec"],
    }
    return json.dumps(made, indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    sys.stdout.write(editor_schema() if sys.argv[1:] == ["--for-editors"] else crd_yaml())
