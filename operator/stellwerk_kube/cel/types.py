"""Static types, and how they fit together.

Used by `checker` and `signatures`. Invariant: types are immutable; what a type variable stands for
is kept by the `Unifier` of one check.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Final

from typing_extensions import override

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


@dataclass(frozen=True, slots=True)
class Type:
    """A type: a name, and the types it is made of."""

    name: str
    parameters: tuple[Type, ...] = ()

    @override
    def __str__(self) -> str:
        inner = ", ".join(map(str, self.parameters))
        return f"{self.name}({inner})" if inner else self.name


@dataclass(frozen=True, slots=True, eq=False)
class ObjectType(Type):
    """A type with named fields, such as what a schema describes."""

    fields: Mapping[str, Type] = field(default_factory=dict)


DYN: Final = Type("dyn")
ERROR: Final = Type("!error!")
BOOL, INT, UINT, DOUBLE = Type("bool"), Type("int"), Type("uint"), Type("double")
STRING, BYTES, NULL = Type("string"), Type("bytes"), Type("null")
TIMESTAMP, DURATION = Type("timestamp"), Type("duration")
_NULLABLE: Final = frozenset({"timestamp", "duration", "optional_type"})


def list_of(element: Type) -> Type:
    """`list(element)`."""
    return Type("list", (element,))


def map_of(key: Type, value: Type) -> Type:
    """`map(key, value)`."""
    return Type("map", (key, value))


def optional_of(value: Type) -> Type:
    """`optional_type(value)`."""
    return Type("optional_type", (value,))


_TOKEN: Final = re.compile(r"[\w.!]+|[(),]")


@cache
def parse_type(text: str) -> Type:
    """The type that a text such as `list(int)` says; one capital letter is a type parameter."""
    return _parsed(iter([*_TOKEN.findall(text), ""]))[0]


def _parsed(tokens: Iterator[str]) -> tuple[Type, str]:
    """The type that begins here, and the token after it."""
    name, after = next(tokens), next(tokens)
    if after != "(":
        return Type(name), after
    parameters = []
    while after != ")":
        parameter, after = _parsed(tokens)
        parameters.append(parameter)
    return Type(name, tuple(parameters)), next(tokens)


class Unifier:
    """The substitution of type variables in one check."""

    def __init__(self) -> None:
        """Know nothing of any variable."""
        self._bound: dict[str, Type] = {}
        self._made = 0

    def variable(self) -> Type:
        """A fresh type variable."""
        self._made += 1
        return Type(f"!{self._made}")

    def fresh(self, types: tuple[Type, ...]) -> list[Type]:
        """The types of a signature, with variables for its parameters."""
        variables: dict[str, Type] = {}
        return [self._instantiated(each, variables) for each in types]

    def _instantiated(self, declared: Type, variables: dict[str, Type]) -> Type:
        if len(declared.name) == 1 and declared.name.isupper():
            if declared.name not in variables:
                variables[declared.name] = self.variable()
            return variables[declared.name]
        if not declared.parameters:
            return declared
        inner = tuple(self._instantiated(each, variables) for each in declared.parameters)
        return Type(declared.name, inner)

    def resolve(self, found: Type) -> Type:
        """The type with variables replaced by what they stand for; a free one is dyn."""
        found = self._root(found)
        if _is_variable(found):
            return DYN
        if not found.parameters or isinstance(found, ObjectType):
            return found
        return Type(found.name, tuple(self.resolve(each) for each in found.parameters))

    def mark(self) -> dict[str, Type]:
        """The present substitution, for `restore`."""
        return dict(self._bound)

    def restore(self, mark: dict[str, Type]) -> None:
        """Forget what was learnt since `mark`."""
        self._bound = mark

    def _root(self, found: Type) -> Type:
        while found.name in self._bound:
            found = self._bound[found.name]
        return found

    def assignable(self, source: Type, target: Type) -> bool:  # noqa: PLR0911  (one way out for each rule)
        """Whether a value of type `source` may stand where `target` is wanted; binds variables."""
        source, target = self._root(source), self._root(target)
        if source is target or source == target or source.name == target.name == "type":
            return True  # types compare with each other, whatever they are types of
        for variable, other in ((target, source), (source, target)):
            if _is_variable(variable):
                if self._occurs(variable, other):
                    return False
                self._bound[variable.name] = other
                return True
        if {"dyn", "!error!"} & {source.name, target.name}:
            return True
        if source.name == "null":
            return target.name in _NULLABLE or target.name.startswith(("kubernetes.", "net."))
        if isinstance(source, ObjectType) or isinstance(target, ObjectType):
            return False
        if source.name != target.name or len(source.parameters) != len(target.parameters):
            return False
        pairs = zip(source.parameters, target.parameters, strict=True)
        return all(self.assignable(mine, other) for mine, other in pairs)

    def _occurs(self, variable: Type, found: Type) -> bool:
        found = self._root(found)
        return found == variable or any(self._occurs(variable, each) for each in found.parameters)


def _is_variable(found: Type) -> bool:
    return found.name.startswith("!") and found.name != "!error!"
