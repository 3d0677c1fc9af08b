"""The rules for the CEL rules of a definition: their form, their types, their places.

Called by `definitions`. Invariant: a schema whose rules pass here compiles into a `RuleTree`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import orjson

from stellwerk_cluster.apimachinery.failures import FieldError, bad_value, required, unsupported
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

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stellwerk.models.json_values import JsonObject

_LONGEST_MESSAGE: Final = 2048
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
    elif len(message) > _LONGEST_MESSAGE:
        shown = f"{message[:10]}..."
        yield bad_value(
            f"{where}.message",
            shown,
            f"must have a maximum length of {_LONGEST_MESSAGE} characters",
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
