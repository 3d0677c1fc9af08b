"""YAML files of users, read whole, and the Kubernetes objects in them.

Commands, simulations and the embedded cluster read manifests, stages and tables of faults with it.
Objects come as documents, as Lists, as the stream of `kubectl cluster-info dump`, and as an export
of kube-scheduler-simulator. Invariant: a file that cannot be read is one line that names it, and
the line where it is no YAML, or says what the file is.
"""

import contextlib
import json
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import yaml
from typing_extensions import override

from stellwerk.errors import ConfigurationError
from stellwerk.models.json_values import JsonObject

MAX_DEPTH: Final = 400
"""Levels of nesting in a body or in a file of objects. Python reads YAML with two calls a level, of
which it allows 1,000, and libyaml since 0.2.6 refuses more than 1,000 levels in words of its own.
"""
MAX_DEPTH_OF_A_FILE: Final = 200
"""Levels of nesting in users' own files. PyYAML takes a second for a thousand levels."""
STANDARD_INPUT: Final = "-"
_LARGEST_FILE: Final = 1 << 30
_OPENERS: Final = b"[{-:?"
"""Each level of nesting has one of these at least."""
_MAX_LOOKAHEAD: Final = 4096
"""Characters behind the last event in which libyaml can have met its own limit of nesting: it looks
1,024 characters ahead for the colon of a key.
"""
TEMPLATE: Final = (
    "a template ({{ … }}), which is no manifest yet: render it first, as with `helm template`"
)
_TEMPLATE_MARKS: Final = ("{{", "{%")
_BETWEEN: Final = re.compile(
    r"\s*(?:==== START logs for .*?(?:\n==== END logs for [^\n]*|\Z)\s*)*", re.DOTALL
)
"""Space, and the logs of containers, between the objects of `kubectl cluster-info dump`."""
_SIMULATOR_KINDS: Final = {
    "pods": "Pod",
    "nodes": "Node",
    "pvs": "PersistentVolume",
    "pvcs": "PersistentVolumeClaim",
    "storageClasses": "StorageClass",
    "priorityClasses": "PriorityClass",
    "namespaces": "Namespace",
}
"""The lists in an export of kube-scheduler-simulator, whose objects need not say their kinds."""
SIMULATOR_CONFIG: Final = "schedulerConfig"
"""The field of such an export that holds a KubeSchedulerConfiguration."""
MAX_NAMED_TEMPLATES: Final = 3
"""Templates of a scheduler_perf configuration that a message names; more make no better line."""
_PERF_FIELDS: Final = frozenset({"workloadTemplate", "workloads"})
"""Fields of a test case of kube-scheduler's scheduler_perf."""


class NestedTooDeeply(yaml.MarkedYAMLError):
    """A text has more levels of nesting than are read here."""

    def __init__(self, max_depth: int, line: int, column: int) -> None:
        """Say the limit, and where the text goes beyond it, counted from zero."""
        super().__init__(problem=f"nested more than {max_depth} deep")
        self.max_depth, self.line, self.column = max_depth, line, column

    @override
    def __str__(self) -> str:
        return f"{self.problem}, in line {self.line + 1}, column {self.column + 1}"


SIGNS_OF_YAML: Final = ("tag:yaml.org,2002:value", "tag:yaml.org,2002:merge")
"""The tags of the plain scalars `=` and `<<`. As values they are texts, as for Go's reader of YAML;
`<<` merges as a key alone.
"""


class _PlainLoader(yaml.SafeLoader):
    """Says in its errors where in a small file they are."""


class UserLoader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """Reads YAML of users, which may be large, as kubectl does."""


def scalar_text(_loader: Any, node: yaml.ScalarNode) -> str:  # noqa: ANN401  (any loader)
    """The text of a plain scalar, for loaders that take `SIGNS_OF_YAML` for texts."""
    return str(node.value)


for _tag in SIGNS_OF_YAML:
    _PlainLoader.add_constructor(_tag, scalar_text)
    UserLoader.add_constructor(_tag, scalar_text)


def is_template(text: str) -> bool:
    """Whether a text has places that a template engine is to fill in."""
    return any(mark in text for mark in _TEMPLATE_MARKS)


def read_yaml(file: Path) -> list[object]:
    """The documents of a file; JSON is YAML, too.

    Raises:
        ConfigurationError: it cannot be opened, or is not YAML.
    """
    try:
        content = file.read_bytes()
        check_depth(content, MAX_DEPTH_OF_A_FILE)
        return list(yaml.load_all(content.decode("utf-8"), _PlainLoader))
    except OSError as error:
        raise ConfigurationError(f"cannot read {file}: {error.strerror}") from error
    except NestedTooDeeply as error:
        raise ConfigurationError(f"{file}: {error}") from error
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError, ValueError) as error:
        raise ConfigurationError(f"{file}: not YAML: {' '.join(str(error).split())}") from error


def read_objects(path: Path) -> list[JsonObject]:
    """The objects in a file ("-": standard input): one, several documents, or a List.

    Raises:
        ConfigurationError: the file cannot be read.
    """
    try:
        if str(path) == STANDARD_INPUT:
            content = sys.stdin.buffer.read(_LARGEST_FILE + 1)
        else:
            with path.open("rb") as file:
                content = file.read(_LARGEST_FILE + 1)
        if len(content) > _LARGEST_FILE:
            raise ConfigurationError(f"cannot read {path}: more than {_LARGEST_FILE >> 20} MiB")
        documents = _documents(path, content)
    except OSError as error:
        raise ConfigurationError(f"cannot read {path}: {error.strerror}") from error
    except json.JSONDecodeError as error:
        place = f"{path}, line {error.lineno}, column {error.colno}"
        raise ConfigurationError(f"{place}: not JSON: {error.msg}") from error
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise ConfigurationError(f"{path}, line {line}: not UTF-8") from error
    except RecursionError as error:
        raise ConfigurationError(f"{path}: nested too deeply") from error
    except yaml.YAMLError as error:
        if is_template(content.decode("utf-8", "replace")):
            raise ConfigurationError(f"{path}: {TEMPLATE}") from error
        raise ConfigurationError(f"{path}{_place(error)}") from error
    return [
        each
        for document in documents
        if document is not None
        for each in flattened(str(path), document)
    ]


def read_kinds(at: str, file: Path, kinds: Sequence[str]) -> list[JsonObject]:
    """All objects in a file ("-": standard input), which are to be of these kinds.

    Raises:
        ConfigurationError: it cannot be read, is empty, or holds another kind; then `at` begins the
            message.
    """
    found = read_objects(file)
    if not found:
        raise ConfigurationError(f"{at}: there is no manifest in it")
    for obj in found:
        kind = obj.get("kind")
        if not kind:
            raise ConfigurationError(f"{at}: a manifest has no kind, {either(kinds)} is expected")
        if kind not in kinds:
            raise ConfigurationError(f"{at}: a {kind} is no {either(kinds)}")
    return found


def either(kinds: Sequence[str]) -> str:
    """One of the kinds, in words."""
    return kinds[0] if len(kinds) == 1 else f"{', '.join(kinds[:-1])} or {kinds[-1]}"


def _documents(path: Path, content: bytes) -> Iterable[Any]:
    text = content.decode("utf-8-sig")
    if path.suffix == ".json":
        return json_stream(text)
    if text.lstrip()[:1] == "{":
        with contextlib.suppress(json.JSONDecodeError):
            return json_stream(text)
    check_depth(content)
    return list(yaml.load_all(text, UserLoader))


def json_stream(text: str) -> list[object]:
    """The JSON values of a text, one behind the other, without the logs of containers between them.

    Raises:
        json.JSONDecodeError: a value is no JSON, or there is none.
    """
    decoder, found, end = json.JSONDecoder(), list[object](), 0
    while True:
        between = _BETWEEN.match(text, end)
        end = between.end() if between else end
        if found and end == len(text):
            return found
        value, end = decoder.raw_decode(text, end)
        found.append(value)


def check_depth(content: bytes, max_depth: int = MAX_DEPTH) -> None:
    """Refuse a text that nests too deeply: libyaml's composer would end the process.

    The composer calls itself once a level, on the stack of C; the parser beneath it does not.

    Raises:
        NestedTooDeeply: it nests deeper than `max_depth`.
        yaml.YAMLError: it is no YAML.
    """
    if sum(content.count(opener) for opener in _OPENERS) <= max_depth:
        return
    depth = 0
    last: Any = yaml.Mark("", 0, 0, 0, "", 0)
    try:
        for event in yaml.parse(content, getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
            if isinstance(event, yaml.CollectionStartEvent):
                depth += 1
            elif isinstance(event, yaml.CollectionEndEvent):
                depth -= 1
            if depth > max_depth:
                start: Any = event.start_mark
                raise NestedTooDeeply(max_depth, start.line, start.column)
            last = event.end_mark
    except yaml.scanner.ScannerError:
        # libyaml may have refused brackets that it met while it looked ahead, before any event told
        # of them.
        ahead = content.decode("utf-8", "replace")[last.index : last.index + _MAX_LOOKAHEAD]
        beyond = _bracket_beyond(max_depth - depth, ahead)
        if beyond is None:
            raise
        line, column = beyond
        column += 0 if line else last.column
        raise NestedTooDeeply(max_depth, last.line + line, column) from None


def _bracket_beyond(levels: int, text: str) -> tuple[int, int] | None:
    """Line and column of the bracket that leads more than so many levels deeper, if there is one.

    The scanner in Python looks for it, which has no limit of its own.
    """
    with contextlib.suppress(yaml.YAMLError):
        for token in yaml.scan(text, yaml.SafeLoader):
            if isinstance(token, (yaml.FlowSequenceStartToken, yaml.FlowMappingStartToken)):
                levels -= 1
            elif isinstance(token, (yaml.FlowSequenceEndToken, yaml.FlowMappingEndToken)):
                levels += 1
            if levels < 0:
                return token.start_mark.line, token.start_mark.column
    return None


def read_one_yaml(file: Path) -> object:
    """The only document of a file; None where it is empty.

    Raises:
        ConfigurationError: as `read_yaml`; there are several.
    """
    documents = read_yaml(file)
    if len(documents) > 1:
        raise ConfigurationError(f"{file}: {len(documents)} documents, one is expected")
    return documents[0] if documents else None


def _place(error: yaml.YAMLError) -> str:
    """The place at which a file is no YAML, with the reason."""
    mark = getattr(error, "problem_mark", None)
    if isinstance(error, NestedTooDeeply):
        return f": {error}"
    if mark is None:
        return f": not YAML: {' '.join(str(error).split())}"
    problem = getattr(error, "problem", None) or "cannot be read"
    return f", line {mark.line + 1}, column {mark.column + 1}: not YAML: {problem}"


def flattened(at: str, document: object) -> Iterator[JsonObject]:
    """The objects of a document: itself, the items of a List, or the lists of an export."""
    if isinstance(document, list) and any(
        isinstance(each, dict) and each.keys() & _PERF_FIELDS for each in document
    ):
        raise ConfigurationError(f"{at}: {_about_perf(document)}")
    if not isinstance(document, dict):
        raise ConfigurationError(f"{at}: a document is no object")
    if exported := objects_of_export(document):
        yield from exported
    elif isinstance(document.get("items"), list):
        kind = str(document.get("kind", "")).removesuffix("List")
        typed = {"apiVersion": document["apiVersion"]} if kind and "apiVersion" in document else {}
        for item in document["items"]:
            if not isinstance(item, dict):
                raise ConfigurationError(f"{at}: an item of a List is no object")
            yield from flattened(at, {"kind": kind} | typed | item)
    elif document.get("items", 0) is None and str(document.get("kind", "")).endswith("List"):
        return
    else:
        yield document


def objects_of_export(document: JsonObject) -> list[JsonObject]:
    """The objects of an export of kube-scheduler-simulator, with kinds; empty: it is none."""
    known = {*_SIMULATOR_KINDS, SIMULATOR_CONFIG}
    if "kind" in document or not {"pods", "nodes"} <= document.keys() or document.keys() - known:
        return []
    found: list[JsonObject] = []
    for field, kind in _SIMULATOR_KINDS.items():
        listed = document.get(field) or ()
        found += [{"kind": kind} | each for each in listed if isinstance(each, dict)]
    config = document.get(SIMULATOR_CONFIG)
    if isinstance(config, dict):
        found.append({"kind": "KubeSchedulerConfiguration"} | config)
    return found


def _about_perf(cases: list[object]) -> str:
    """The description of a scheduler_perf configuration, with the manifests that it names."""
    named = dict.fromkeys(re.findall(r"'(\S+\.yaml)'", repr(cases)))
    files = f", here {', '.join(list(named)[:MAX_NAMED_TEMPLATES])}" if named else ""
    return (
        "a configuration of scheduler_perf, which holds no objects: give the manifests that its "
        f"templates name{files}"
    )
