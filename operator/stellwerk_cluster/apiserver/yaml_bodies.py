"""YAML in request bodies, read as the API server reads it: the YAML that JSON can say.

Called for bodies in YAML and for applied objects. Dates stay texts, `1:30` is no number, a key that
stands twice is noted. Invariant: a short text cannot become a large value: aliases that say much
more than was sent are refused, and so are values that contain themselves or nest too deeply.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import yaml
from yaml.composer import Composer

from stellwerk.models.yaml_file import check_depth

if TYPE_CHECKING:
    from stellwerk.models.json_values import JsonValue

_MOST_FREE_PARTS: Final = 100_000
_MOST_TIMES: Final = 10
"""Aliases may multiply what was sent by so much, once it has more than the free parts."""

_PLAIN_INTEGER: Final = re.compile(r"[-+]?(?:0b[01_]+|0x[0-9a-fA-F_]+|0o?[0-7_]+|0|[1-9][0-9_]*)$")
_TIMESTAMP: Final = "tag:yaml.org,2002:timestamp"
_INTEGER: Final = "tag:yaml.org,2002:int"
_FLOAT: Final = "tag:yaml.org,2002:float"
_BOOLEAN: Final = "tag:yaml.org,2002:bool"
_SEXAGESIMAL: Final = ":"


class YamlError(ValueError):
    """A text that is no YAML, or none that a body may hold."""


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    yaml_implicit_resolvers = {  # noqa: RUF012  (as its base class has it)
        first: [(tag, pattern) for tag, pattern in resolvers if tag != _TIMESTAMP]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def __init__(self, content: bytes) -> None:
        super().__init__(content)
        self.doubled: list[str] = []

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:  # noqa: FBT001, FBT002
        found: dict[Any, Any] = {}
        self.flatten_mapping(node)
        for key_node, value_node in node.value:
            key = _key(self.construct_object(key_node, deep=True))
            if key in found:
                line = key_node.start_mark.line + 1
                self.doubled.append(f'line {line}: key "{key}" already set in map')
            found[key] = self.construct_object(value_node, deep=deep)
        return found


class _YieldingLoader(_Loader):
    """The same, composed in Python: another thread has its turn in between.

    libyaml composes a whole document without one.
    """

    check_node = Composer.check_node
    get_node = Composer.get_node
    compose_document = Composer.compose_document
    compose_node = Composer.compose_node
    compose_scalar_node = Composer.compose_scalar_node
    compose_sequence_node = Composer.compose_sequence_node
    compose_mapping_node = Composer.compose_mapping_node

    def __init__(self, content: bytes) -> None:
        super().__init__(content)
        self.anchors: dict[str, yaml.Node] = {}


def _integer(_loader: _Loader, node: yaml.ScalarNode) -> JsonValue:
    if _SEXAGESIMAL in node.value:
        return node.value
    text = node.value.replace("_", "")
    if re.fullmatch(r"[-+]?0[0-7]+", text):
        return int(text, 8)
    return int(text, 0)


def _float(loader: _Loader, node: yaml.ScalarNode) -> JsonValue:
    if _SEXAGESIMAL in node.value:
        return node.value
    return loader.construct_yaml_float(node)


def _boolean(_loader: _Loader, node: yaml.ScalarNode) -> JsonValue:
    return node.value.lower() in ("y", "yes", "true", "on")


for _each in (_Loader, _YieldingLoader):
    _each.add_implicit_resolver(_BOOLEAN, re.compile("[yYnN]$"), list("yYnN"))
    _each.add_constructor(_BOOLEAN, _boolean)
    _each.add_constructor(_INTEGER, _integer)
    _each.add_constructor(_FLOAT, _float)


def _key(key: JsonValue) -> str:
    """The key as JSON has it: a text."""
    if isinstance(key, str):
        return key
    if isinstance(key, bool):
        return str(key).lower()
    if isinstance(key, (int, float)):
        return str(key)
    message = f"unsupported map key of type {type(key).__name__}"
    raise YamlError(message)


def read_yaml(content: bytes, *, yielding: bool = False) -> tuple[JsonValue, list[str]]:
    """The value of the first document, and which keys stand twice in it, with their lines.

    `yielding`: it is read in a thread beside others that must go on.

    Raises:
        YamlError: the text is no YAML, or grows too much.
    """
    loader = None
    try:
        check_depth(content)
        loader = (_YieldingLoader if yielding else _Loader)(content)
        # What follows the first document is not looked at.
        value = loader.get_data()
        parts = _parts(value, {})
    except yaml.MarkedYAMLError as error:
        message = f"yaml: {_problem_of(error, content)}"
        raise YamlError(message) from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        message = f"yaml: {error}"
        raise YamlError(message) from error
    finally:
        if loader is not None:
            loader.dispose()
    if parts > _MOST_FREE_PARTS and parts > _MOST_TIMES * len(content):
        message = "yaml: document contains excessive aliasing"
        raise YamlError(message)
    return value, loader.doubled


def _problem_of(error: yaml.MarkedYAMLError, content: bytes) -> str:
    """The error, in the words of Go's YAML.

    It counts a scanner's lines from one and a parser's from zero, and names no line zero.
    """
    mark, line = error.problem_mark, 0
    if isinstance(error, yaml.composer.ComposerError) and mark is not None:
        rest = content.decode("utf-8", "replace").split("\n")[mark.line][mark.column :]
        alias = re.match(r"\*([\w-]+)", rest)
        if alias is not None:
            return f"unknown anchor '{alias[1]}' referenced"
    if isinstance(error, yaml.constructor.ConstructorError) and "base64" in str(error.problem):
        return "!!binary value contains invalid base64 data"
    if mark is not None and mark.line:
        line = mark.line + (not isinstance(error, yaml.parser.ParserError))
    elif error.context_mark is not None:
        line = error.context_mark.line
    return f"line {line}: {error.problem}" if line else str(error.problem)


_WITHIN: Final = -1


def _parts(value: JsonValue, counted: dict[int, int]) -> int:
    """The number of parts of a value with its aliases written out."""
    if not isinstance(value, (dict, list)):
        return 1
    known = counted.get(id(value))
    if known == _WITHIN:
        message = "yaml: anchor value contains itself"
        raise YamlError(message)
    if known is None:
        counted[id(value)] = _WITHIN
        inner = value.values() if isinstance(value, dict) else value
        known = counted[id(value)] = 1 + sum(_parts(each, counted) for each in inner)
    return known


def doubled_text(doubled: list[str]) -> str:
    """The keys that stand twice as one message."""
    return "\n".join(["yaml: unmarshal errors:", *(f"  {each}" for each in doubled)])
