"""The CEL rules of a custom kind: `x-kubernetes-validations` at every level of its schema.

`compile_rule` compiles one, also for the definition's own validation; a `RuleTree` holds those of
all levels and validates objects. Called by `admission.definition_rules` and
`registry.custom_kinds`. Invariant: one validation spends at most `cost.MAX_VALIDATION_COST`, one
rule at most `cost.MAX_CALL_COST`.
"""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from stellwerk_cluster.apimachinery.failures import FieldError, bad_value, forbidden_field, required
from stellwerk_cluster.apimachinery.objects import EMPTY
from stellwerk_cluster.apimachinery.rule_types import (
    converter,
    declared_type,
    with_root_fields,
)
from stellwerk_kube.cel.cost import MAX_VALIDATION_COST
from stellwerk_kube.cel.environment import Environment
from stellwerk_kube.cel.errors import CompileError, CostLimitError, EvaluationError
from stellwerk_kube.cel.types import BOOL, STRING, optional_of
from stellwerk_kube.cel.values import NONE, Optional

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from stellwerk_cluster.apimachinery.rule_types import Converter
    from stellwerk_kube.cel.environment import Program
    from stellwerk_kube.cel.types import Type
    from stellwerk_kube.cel.values import Value
    from stellwerk_kube.json_values import JsonObject, JsonValue

RULES: Final = "x-kubernetes-validations"

_OUT_OF_BUDGET: Final = (
    "validation failed due to running out of cost budget, no further validation rules will be run"
)
_MAX_MESSAGE_BYTES: Final = 5 * 1024
"""Bytes of a message that a rule makes by an expression (`messageExpression`). A longer one is not
shown."""


class RuleError(Exception):
    """A rule or its messageExpression cannot be used; the text says why."""


@dataclass(frozen=True, slots=True)
class ValidationRule:
    """One compiled rule."""

    text: str
    message: str
    reason: str
    path: str
    """The place of errors, below the value that the rule is about."""
    optional: bool
    """Whether it runs without an old value, and sees the old value as an optional."""
    uses_old: bool
    program: Program
    message_program: Program | None

    @property
    def shown(self) -> str:
        """The name of the rule in errors."""
        return self.message.strip() or self.text.strip()


@dataclass(slots=True)
class Environments:
    """The variables of the rules at one level of a schema."""

    plain: Environment
    optional: Environment

    @classmethod
    def of(cls, declared: Type) -> Environments:
        """Environments in which `self` and `oldSelf` have a type."""
        return cls(
            Environment({"self": declared, "oldSelf": declared}),
            Environment({"self": declared, "oldSelf": optional_of(declared)}),
        )


def environments(schema: JsonObject) -> Environments | None:
    """The environments of the rules of a schema; None if rules do not see such values."""
    declared = declared_type(schema)
    return Environments.of(declared) if declared is not None else None


def compile_rule(written: JsonObject, schema: JsonObject, found: Environments) -> ValidationRule:
    """The rule as it runs.

    Raises:
        RuleError: it does not compile, or is not about true and false.
    """
    optional = bool(written.get("optionalOldSelf"))
    environment = found.optional if optional else found.plain
    try:
        program = environment.compile(written["rule"])
    except CompileError as error:
        raise RuleError(f"compilation failed: {error}") from None
    if program.result_type != BOOL:
        raise RuleError("cel expression must evaluate to a bool")
    return ValidationRule(
        written["rule"],
        written.get("message", ""),
        written.get("reason", ""),
        field_path(written.get("fieldPath", ""), schema) or "",
        optional,
        "oldSelf" in program.variables,
        program,
        _message_program(written, environment),
    )


def compile_message(written: JsonObject, found: Environments) -> Program | None:
    """The program of a rule's messageExpression; None if it has none.

    Raises:
        RuleError: it does not compile, or gives no text.
    """
    if not written.get("messageExpression"):
        return None
    environment = found.optional if written.get("optionalOldSelf") else found.plain
    try:
        program = environment.compile(written["messageExpression"])
    except CompileError as error:
        raise RuleError(f"messageExpression compilation failed: {error}") from None
    if program.result_type != STRING:
        raise RuleError("messageExpression must evaluate to a string")
    return program


def _message_program(written: JsonObject, environment: Environment) -> Program | None:
    text = written.get("messageExpression")
    if not text:
        return None
    try:
        return environment.compile(text)
    except CompileError:
        return None


_STEP: Final = re.compile(r"\.([^.\[\]']+)|\['((?:[^'\\]|\\.)*)'\]")
_ESCAPED: Final = re.compile(r"\\(.)")


def field_path(path: str, schema: JsonObject) -> str | None:
    """The path in the words of errors; None if the schema has no such place."""
    place, shown = 0, ""
    while place < len(path):
        step = _STEP.match(path, place)
        if step is None:
            return None
        place = step.end()
        name = step[1] if step[1] is not None else _ESCAPED.sub(r"\1", step[2])
        properties, additional = schema.get("properties"), schema.get("additionalProperties")
        if properties:
            if name not in properties:
                return None
            shown, schema = f"{shown}.{name}", properties[name]
        elif isinstance(additional, dict):
            shown, schema = f"{shown}[{name}]", additional
        else:
            return None
    return shown.removeprefix(".")


@dataclass(slots=True)
class _Run:
    """One validation: what it found, and what it may still spend."""

    budget: int
    errors: list[FieldError] = field(default_factory=list)


class _BudgetSpentError(Exception):
    """No further rule runs in this validation."""


class RuleTree:
    """The rules of a schema and of the schemas below it."""

    def __init__(self, schema: JsonObject, *, root: bool = False) -> None:
        """Compile the rules; the root of an object has its kind and metadata, too."""
        if root or schema.get("x-kubernetes-embedded-resource"):
            schema = with_root_fields(schema)
        self._schema = schema
        self._rules: list[ValidationRule] = []
        self._convert: Converter | None = None
        found = environments(schema) if schema.get(RULES) else None
        if found is not None:
            self._rules = [compile_rule(each, schema, found) for each in schema[RULES]]
            self._convert = converter(schema)
        self._items = _subtree(schema.get("items"))
        self._additional = _subtree(schema.get("additionalProperties"))
        self._properties = {
            name: tree
            for name, part in sorted((schema.get("properties") or EMPTY).items())
            if (tree := _subtree(part)) is not None
        }

    @property
    def empty(self) -> bool:
        """Whether there is no rule at all."""
        return not (self._rules or self._items or self._additional or self._properties)

    def validate(
        self, value: JsonValue, old: JsonValue = None, budget: int = MAX_VALIDATION_COST
    ) -> list[FieldError]:
        """The errors that rules find in an object; `old` is the object that it replaces."""
        run = _Run(budget)
        with suppress(_BudgetSpentError):
            self.check(value, old, "", run, unchanged=old is not None and value == old)
        return run.errors

    def check(
        self, value: JsonValue, old: JsonValue, path: str, run: _Run, *, unchanged: bool
    ) -> None:
        """Add to `run` what is wrong with the value at `path`.

        `unchanged` says that the value, or the nearest part around it whose old value is known, is
        as it was.
        """
        if value is None:
            return
        if self._rules:
            self._evaluate(value, old, path, run, unchanged=unchanged)
        if isinstance(value, list):
            if self._items is not None:
                for place, (item, before) in enumerate(self._paired(value, old)):
                    same = unchanged if before is None else item == before
                    self._items.check(item, before, f"{path}[{place}]", run, unchanged=same)
        elif isinstance(value, dict):
            self._validate_fields(value, old, path, run, unchanged=unchanged)

    def _validate_fields(
        self, value: JsonObject, old: JsonValue, path: str, run: _Run, *, unchanged: bool
    ) -> None:
        before = old if isinstance(old, dict) else EMPTY
        known = self._schema.get("properties") or EMPTY
        for name, item in sorted(value.items()):
            tree = self._properties.get(name)
            where = f"{path}.{name}" if path else name
            if tree is None and name not in known:
                tree, where = self._additional, f"{path}[{name}]"
            if tree is not None:
                previous = before.get(name)
                same = unchanged if previous is None else item == previous
                tree.check(item, previous, where, run, unchanged=same)

    def _paired(
        self, value: list[JsonValue], old: JsonValue
    ) -> Iterator[tuple[JsonValue, JsonValue]]:
        """The elements, each with the one that it replaces: only lists with keys can tell."""
        keys = self._schema.get("x-kubernetes-list-map-keys") or ()
        before: dict[str, JsonValue] = {}
        if self._schema.get("x-kubernetes-list-type") == "map" and isinstance(old, list):
            before = {_key(each, keys): each for each in old}
        for each in value:
            yield each, before.get(_key(each, keys)) if before else None

    def _evaluate(
        self, value: JsonValue, old: JsonValue, path: str, run: _Run, *, unchanged: bool
    ) -> None:
        convert = self._convert
        seen = convert(value) if convert else value
        seen_old = convert(old) if convert else old
        plain: dict[str, Value] = {"self": seen}
        if old is not None:
            plain["oldSelf"] = seen_old
        optional = {"self": seen, "oldSelf": NONE if old is None else Optional(seen_old)}
        for rule in self._rules:
            if rule.uses_old and old is None and not rule.optional:
                continue
            variables = optional if rule.optional else plain
            error = self._broken(rule, value, variables, path, run)
            # What was already wrong may stay, as long as it is not touched.
            if error is not None and (rule.uses_old or not unchanged):
                run.errors.append(error)

    def _broken(
        self,
        rule: ValidationRule,
        value: JsonValue,
        variables: Mapping[str, Value],
        path: str,
        run: _Run,
    ) -> FieldError | None:
        """The error of a rule; None if the value keeps it."""
        outcome = rule.program.outcome(variables)
        kind = self._schema.get("type", "")
        where = path or "<nil>"
        run.budget -= outcome.cost
        if run.budget < 0:
            run.errors.append(bad_value(where, kind, _OUT_OF_BUDGET))
            raise _BudgetSpentError
        if isinstance(outcome.error, CostLimitError):
            text = (
                f"'{outcome.error}': no further validation rules will be run due to call cost "
                f"exceeds limit for rule: {rule.shown}"
            )
            run.errors.append(bad_value(where, kind, text))
            raise _BudgetSpentError
        if outcome.error is not None:
            run.errors.append(bad_value(where, kind, _failure(outcome.error, rule)))
            return None
        if outcome.value is True:
            return None
        message = _message(rule, variables, run) or rule.message.strip()
        return self._cause(rule, value, path, message or f"failed rule: {rule.shown}")

    def _cause(self, rule: ValidationRule, value: JsonValue, path: str, message: str) -> FieldError:
        below = rule.path if rule.path.startswith("[") or not path else f".{rule.path}"
        where = f"{path}{below}" if rule.path else path
        where = where or "<nil>"
        match rule.reason:
            case "FieldValueForbidden":
                return forbidden_field(where, message)
            case "FieldValueRequired":
                return required(where, message)
            case "FieldValueDuplicate":
                return FieldError(where, "FieldValueDuplicate", "Duplicate value")
            case _:
                pass
        if self._schema.get("type") in ("object", "array"):
            return FieldError(where, "FieldValueInvalid", f"Invalid value: {message}")
        return bad_value(where, value, message)


def _subtree(schema: JsonValue) -> RuleTree | None:
    if not isinstance(schema, dict):
        return None
    tree = RuleTree(schema)
    return None if tree.empty else tree


def _key(element: JsonValue, keys: tuple[str, ...] | list[str]) -> str:
    return repr([element.get(name) for name in keys]) if isinstance(element, dict) else ""


def _failure(error: EvaluationError, rule: ValidationRule) -> str:
    if str(error).startswith("no such overload"):
        return (
            f"'{error}': call arguments did not match a supported operator, function or macro "
            f"signature for rule: {rule.shown}"
        )
    return f"{error} evaluating rule: {rule.shown}"


def _message(rule: ValidationRule, variables: Mapping[str, Value], run: _Run) -> str:
    """The value of a rule's messageExpression; empty if it fails or is not usable."""
    if rule.message_program is None:
        return ""
    outcome = rule.message_program.outcome(variables)
    run.budget -= outcome.cost
    text = outcome.value
    if not isinstance(text, str):
        return ""
    text = text.strip()
    return "" if len(text.encode()) > _MAX_MESSAGE_BYTES or "\n" in text else text
