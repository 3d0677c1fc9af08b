"""YAML in request bodies, read as the API server reads it: the YAML that JSON can say.

Called for bodies in YAML and for applied objects. Dates stay texts, `1:30` is no number, a key that
stands twice is noted. Invariant: a short text cannot become a large value: aliases that say much
more than was sent are refused, and so are values that contain themselves or nest too deeply.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import yaml
from typing_extensions import override
from yaml.composer import Composer

from stellwerk_kube.yaml_file import ApiValues, NestedTooDeeply, check_depth, check_growth

if TYPE_CHECKING:
    from stellwerk_kube.json_values import JsonValue


class YamlError(ValueError):
    """A text that is no YAML, or none that a body may hold."""


class TooManyParts(ValueError):  # noqa: N818 - said of a body
    """A text holds more values than an object may have."""


_BOOLEAN: Final = "tag:yaml.org,2002:bool"


class _Loader(ApiValues, getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    def __init__(self, content: bytes) -> None:
        super().__init__(content)  # type: ignore[call-arg]
        self.doubled: list[str] = []

    @override
    def saw_key(self, key: str, node: yaml.Node, *, is_again: bool) -> None:
        if is_again:
            line = node.start_mark.line + 1
            self.doubled.append(f'line {line}: key "{key}" already set in map')


_Loader.add_implicit_resolver(_BOOLEAN, re.compile("[yYnN]$"), list("yYnN"))


class _YieldingLoader(_Loader):
    """A loader that composes in Python: another thread may run in between.

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


def check_parts(content: bytes, max_parts: int) -> None:
    """Refuse a text that holds many values, as soon as it is seen: to make them costs far more.

    Raises:
        TooManyParts: the first document holds more.
    """
    parts = 0
    try:
        check_depth(content)  # libyaml's time grows with the square of the depth
        for event in yaml.parse(content, getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
            parts += isinstance(event, yaml.NodeEvent)
            if parts > max_parts:
                raise TooManyParts
            if isinstance(event, yaml.DocumentEndEvent):
                return
    except (yaml.YAMLError, NestedTooDeeply):
        return  # `read_yaml` says what is wrong


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
        check_growth(value, len(content))
    except yaml.MarkedYAMLError as error:
        message = f"yaml: {_problem_of(error, content)}"
        raise YamlError(message) from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        message = f"yaml: {error}"
        raise YamlError(message) from error
    finally:
        if loader is not None:
            loader.dispose()
    return value, loader.doubled


def _problem_of(error: yaml.MarkedYAMLError, content: bytes) -> str:
    """The error, in the words of Go's YAML.

    It counts a scanner's lines from one and a parser's from zero, and names no line zero. Only the
    number in what it says of nesting is ours: it reads 10,000 levels.
    """
    mark, line = error.problem_mark, 0
    if isinstance(error, NestedTooDeeply):
        where = f"line {error.line + 1}: " if error.line else ""
        return f"{where}exceeded max depth of {error.max_depth}"
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


def doubled_text(doubled: list[str]) -> str:
    """The keys that stand twice as one message."""
    return "\n".join(["yaml: unmarshal errors:", *(f"  {each}" for each in doubled)])
