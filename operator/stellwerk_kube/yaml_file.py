"""The one reader of YAML: files of users, read whole, and the Kubernetes objects in them.

Everything that reads YAML asks `parse_yaml`, or has a loader with `ApiValues`. Objects come as
documents, as Lists, as the stream of `kubectl cluster-info dump`, and as an export of
kube-scheduler-simulator. Invariant: a value is one of JSON, as the API server has it: a date is a
text, and so is `1:30`. A short text becomes no large value. A file that cannot be read is one line
that names it, and the line where it is no YAML, or says what the file is.
"""

import base64
import binascii
import contextlib
import errno
import json
import math
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import orjson
import yaml
from typing_extensions import override

from stellwerk_kube.errors import ConfigurationError
from stellwerk_kube.file_limits import (
    MAX_DOCUMENTS,
    MAX_OBJECTS_FILE_BYTES,
    allowed,
    as_utf8,
    not_utf8,
    read_stream,
    too_much,
)
from stellwerk_kube.json_values import JsonObject, JsonValue
from stellwerk_kube.pod_templates import counted_pods, is_counted

MAX_DEPTH: Final = 400
"""Levels of nesting in a body or in a file of objects. Python reads YAML with two calls a level, of
which it allows 1,000, and libyaml since 0.2.6 refuses more than 1,000 levels in words of its own.
"""
MAX_DEPTH_OF_A_FILE: Final = 200
"""Levels of nesting in users' own files. PyYAML takes a second for a thousand levels."""
STANDARD_INPUT: Final = "-"
MAX_SMALL_FILE_BYTES: Final = 2 << 20
"""Bytes of a file that is no list of objects: settings, kubeconfigs, devices. They are written by
hand; a kubeconfig of 200 clusters has one MiB.
"""
MAX_PLAIN_BYTES: Final = 64 << 10
"""Bytes of a text that PyYAML reads in Python, whose errors say more. It takes a second for each
100 KiB; libyaml reads what is longer.
"""
MAX_FREE_VALUES: Final = 200_000
"""Values in a YAML text that are read however short it is. Each costs about 6 µs."""
MIN_BYTES_PER_VALUE: Final = 10
"""Bytes of a YAML text for each value beyond `MAX_FREE_VALUES`; manifests have about 20."""
MAX_NUMBER_CHARACTERS: Final = 400
"""Characters of a number. The largest one that the API knows has 309 digits, and Python takes time
with the square of them, and refuses to print more than 4,300.
"""
MAX_FREE_PARTS: Final = 100_000
"""Parts of a document that aliases and merged keys may always make."""
MAX_PARTS_PER_BYTE: Final = 10
"""Parts that aliases may make for each byte of a text, beyond `MAX_FREE_PARTS`."""
MAX_FREE_JSON_VALUES: Final = 500_000
"""Values in a JSON text that are read however short it is. Each may take 150 bytes in memory."""
MIN_BYTES_PER_JSON_VALUE: Final = 12
"""Bytes of a JSON text for each value beyond `MAX_FREE_JSON_VALUES`; manifests have about 20."""
_OPENERS: Final = b"[{-:?"
"""Each level of nesting has one of these at least."""
_MAX_LOOKAHEAD: Final = 4096
"""Characters behind the last event in which libyaml can have met its own limit of nesting: it looks
1,024 characters ahead for the colon of a key.
"""
TEMPLATE: Final = (
    "a template ({{ … }}), which is not a manifest yet: render it first, as with `helm template`"
)
_TEMPLATE_MARKS: Final = ("{{", "{%")
_LOGS_BEGIN: Final = b"==== START logs for "
_LOGS: Final = rf"{_LOGS_BEGIN.decode()}.*?(?:\n==== END logs for [^\n]*|\Z)"
"""The logs of a container in the stream of `kubectl cluster-info dump`."""
_BETWEEN: Final = re.compile(rf"\s*(?:{_LOGS}\s*)*", re.DOTALL)
"""Space and logs between the objects of such a stream."""
_LOGS_IN_YAML: Final = re.compile(rf"^{_LOGS}$", re.DOTALL | re.MULTILINE)
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
_RECORD_FIELDS: Final = frozenset({"time", "event", "resource"})
ABOUT_RECORD: Final = (
    "a record of kube-scheduler-simulator, which holds changes instead of objects: "
    "`stellwerk record` records for replays, and `kubectl get -o yaml` lists objects"
)
MAX_NAMED_TEMPLATES: Final = 3
"""Templates of a scheduler_perf configuration that a message names; more make no better line."""
MAX_SHOWN_CHARACTERS: Final = 60
"""Characters of a text that a message shows where an object is expected."""
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


_ONCE_PER_OBJECT: Final = ("apiVersion", "kind")
"""Keys that stand twice in a document if a line `---` is missing between two objects."""
_BOOLEAN: Final = "tag:yaml.org,2002:bool"
_INTEGER: Final = "tag:yaml.org,2002:int"
_FLOAT: Final = "tag:yaml.org,2002:float"
_TIMESTAMP: Final = "tag:yaml.org,2002:timestamp"
_BINARY: Final = "tag:yaml.org,2002:binary"
_MERGE: Final = "tag:yaml.org,2002:merge"
_NOT_OF_JSON: Final = tuple(f"tag:yaml.org,2002:{each}" for each in ("set", "omap", "pairs"))
_SEXAGESIMAL: Final = ":"
_OCTAL: Final = re.compile(r"[-+]?0[0-7]+")


class UnreadableYaml(yaml.YAMLError):
    """A text that is YAML, and says what is not read here."""


def scalar_text(loader: Any, node: yaml.ScalarNode) -> str:  # noqa: ANN401  (any loader)
    """The text of a plain scalar, for loaders that take `SIGNS_OF_YAML` for texts."""
    return str(loader.construct_scalar(node))


def _number(loader: Any, node: yaml.ScalarNode) -> str:  # noqa: ANN401  (any loader)
    written: str = loader.construct_scalar(node)
    if len(written) > MAX_NUMBER_CHARACTERS:
        problem = f"a number of {len(written)} characters, {MAX_NUMBER_CHARACTERS} are read"
        raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark)
    return written.replace("_", "")


def _integer(loader: Any, node: yaml.ScalarNode) -> JsonValue:  # noqa: ANN401  (any loader)
    written = _number(loader, node)
    if _SEXAGESIMAL in written:
        return str(node.value)
    return int(written, 8 if _OCTAL.fullmatch(written) else 0)


def _float(loader: Any, node: yaml.ScalarNode) -> JsonValue:  # noqa: ANN401  (any loader)
    if _SEXAGESIMAL in _number(loader, node):
        return str(node.value)
    value: float = loader.construct_yaml_float(node)
    if not math.isfinite(value):
        problem = f"{node.value} is not a number that JSON can hold"
        raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark)
    return value


def _boolean(loader: Any, node: yaml.ScalarNode) -> JsonValue:  # noqa: ANN401  (any loader)
    return str(loader.construct_scalar(node)).lower() in ("y", "yes", "true", "on")


def _binary(loader: Any, node: yaml.ScalarNode) -> JsonValue:  # noqa: ANN401  (any loader)
    try:
        return base64.b64decode(loader.construct_scalar(node)).decode()
    except (binascii.Error, ValueError):
        problem = "!!binary is not base64"
        raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark) from None


def _key(key: JsonValue) -> str:
    """The key as JSON has it: a text."""
    if isinstance(key, str):
        return key
    if isinstance(key, bool):
        return str(key).lower()
    if isinstance(key, (int, float)):
        return str(key)
    raise UnreadableYaml(f"unsupported map key of type {type(key).__name__}")


class ApiValues(yaml.constructor.SafeConstructor):
    """The values that a loader makes of nodes: those of JSON, as the API server reads YAML.

    A loader has it before its base. The class attributes are looked up there first.
    """

    yaml_implicit_resolvers: Any = {  # noqa: RUF012  (as its base class has it)
        first: [(tag, pattern) for tag, pattern in resolvers if tag != _TIMESTAMP]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    merged_parts = 0
    """Pairs of mappings that were merged into others so far."""

    def saw_key(self, key: str, node: yaml.Node, *, is_again: bool) -> None:
        """Take notice of a key; `is_again`: it stands twice in its mapping. The last one counts."""

    @override
    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        if not isinstance(node, yaml.MappingNode):
            problem = f"expected a mapping node, but found {node.id}"
            raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark)
        found: dict[Any, Any] = {}
        self.flatten_mapping(node)
        for key_node, value_node in node.value:
            key = _key(self.construct_object(key_node, deep=True))
            self.saw_key(key, key_node, is_again=key in found)
            found[key] = self.construct_object(value_node, deep=deep)
        return found

    @override
    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        """Replace the keys `<<` by what they name.

        PyYAML's own method has no limit: mappings that merge one another twice, which do so in
        turn, double at each level.
        """
        merged: list[tuple[yaml.Node, yaml.Node]] = []
        own = []
        for key_node, value_node in node.value:
            if key_node.tag != _MERGE:
                own.append((key_node, value_node))
                continue
            is_list = isinstance(value_node, yaml.SequenceNode)
            for source in reversed(value_node.value) if is_list else [value_node]:
                if not isinstance(source, yaml.MappingNode):
                    problem = f"expected mappings to merge, but found {source.id}"
                    raise yaml.constructor.ConstructorError(None, None, problem, source.start_mark)
                self.flatten_mapping(source)
                self.merged_parts += len(source.value)
                if self.merged_parts > MAX_FREE_PARTS:
                    raise UnreadableYaml(f"merged keys make more than {MAX_FREE_PARTS:,} fields")
                merged += source.value
        node.value = merged + own


def _refused(_loader: Any, node: yaml.Node) -> JsonValue:  # noqa: ANN401  (any loader)
    raise yaml.constructor.ConstructorError(
        None, None, f"{node.tag.rpartition(':')[2]} is not a value of JSON", node.start_mark
    )


for _tag in (*SIGNS_OF_YAML, _TIMESTAMP):
    ApiValues.add_constructor(_tag, scalar_text)
ApiValues.add_constructor(_BOOLEAN, _boolean)
ApiValues.add_constructor(_INTEGER, _integer)
ApiValues.add_constructor(_FLOAT, _float)
ApiValues.add_constructor(_BINARY, _binary)
for _tag in _NOT_OF_JSON:
    ApiValues.add_constructor(_tag, _refused)


class _OneObject(ApiValues):
    """Refuses a document in which two objects follow each other without `---`.

    Of a key that stands twice the last one counts, as for kubectl: the first object would be lost.
    """

    @override
    def construct_document(self, node: yaml.Node) -> Any:
        if isinstance(node, yaml.MappingNode):
            lines: dict[str, int] = {}
            for key_node, _ in node.value:
                key, line = key_node.value, key_node.start_mark.line + 1
                if key not in _ONCE_PER_OBJECT:
                    continue
                if key in lines:
                    problem = (
                        f'"{key}" occurs twice in one document, first in line {lines[key]}: '
                        "objects are separated by a line ---"
                    )
                    raise yaml.constructor.ConstructorError(
                        None, None, problem, key_node.start_mark
                    )
                lines[key] = line
        return super().construct_document(node)


class _PlainLoader(_OneObject, yaml.SafeLoader):
    """Says in its errors where in a small file they are."""


class _FastLoader(_OneObject, getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """Reads manifests, which may be large."""


def parse_yaml(
    content: bytes | str, max_depth: int = MAX_DEPTH_OF_A_FILE, *, is_fast: bool = False
) -> list[Any]:
    """The documents of a text; `is_fast`: libyaml reads it, whose errors say less.

    Raises:
        yaml.YAMLError: the text is no YAML, or is none that is read here.
    """
    try:
        raw = content if isinstance(content, bytes) else content.encode("utf-8", "surrogatepass")
        text = raw.decode("utf-8-sig")
        values = allowed(MAX_FREE_VALUES + len(raw) // MIN_BYTES_PER_VALUE)
        check_depth(raw, max_depth, max_values=values)
        is_fast = is_fast or len(raw) > MAX_PLAIN_BYTES
        most, documents = allowed(MAX_DOCUMENTS), list[Any]()
        for document in yaml.load_all(text, _FastLoader if is_fast else _PlainLoader):
            documents.append(document)
            if len(documents) > most:
                raise UnreadableYaml(too_much(f"{most:,} documents"))
        check_growth(documents, len(raw), max_depth)
        # A half of a pair of surrogates can be written in YAML's escapes, and in no answer.
        if b"\\u" in raw or b"\\U" in raw:
            json.dumps(documents, ensure_ascii=False).encode()
    except RecursionError as error:
        raise UnreadableYaml("nested too deeply") from error
    except UnicodeDecodeError as error:
        raise UnreadableYaml(not_utf8(error)) from error
    except (ValueError, OverflowError) as error:
        raise UnreadableYaml(" ".join(str(error).split())) from error
    return documents


def is_template(text: str) -> bool:
    """Whether a text has places that a template engine is to fill in."""
    return any(mark in text for mark in _TEMPLATE_MARKS)


_WITHIN: Final = -1


def check_growth(value: JsonValue, size_bytes: int, max_depth: int = MAX_DEPTH) -> int:
    """Refuse what says much more than was sent, as aliases of aliases do; returns its parts.

    Raises:
        UnreadableYaml: it does, or contains itself, or its aliases nest too deeply.
    """
    parts = _parts(value, {}, max_depth + 1)
    if parts > MAX_FREE_PARTS and parts > MAX_PARTS_PER_BYTE * size_bytes:
        raise UnreadableYaml("document contains excessive aliasing")
    return parts


def _parts(value: JsonValue, counted: dict[int, int], levels: int) -> int:
    """The number of parts of a value with its aliases written out."""
    if not isinstance(value, (dict, list)):
        return 1
    known = counted.get(id(value))
    if known == _WITHIN:
        raise UnreadableYaml("anchor value contains itself")
    if known is None:
        if levels < 0:
            raise UnreadableYaml("aliases nest too deeply")
        counted[id(value)] = _WITHIN
        inner = value.values() if isinstance(value, dict) else value
        known = counted[id(value)] = 1 + sum(_parts(each, counted, levels - 1) for each in inner)
    return known


def read_yaml(file: Path) -> list[object]:
    """The documents of a file; JSON is YAML, too.

    Raises:
        ConfigurationError: it cannot be opened, or is not YAML.
    """
    try:
        return parse_yaml(read_small_file(file))
    except OSError as error:
        raise ConfigurationError(f"cannot read {file}: {error.strerror}") from error
    except NestedTooDeeply as error:
        raise ConfigurationError(f"{file}: {error}") from error
    except yaml.YAMLError as error:
        raise ConfigurationError(f"{file}: not YAML: {yaml_problem(error)}") from error


def read_small_file(file: Path, max_bytes: int = MAX_SMALL_FILE_BYTES) -> bytes:
    """The bytes of a file that is no list of objects, in UTF-8.

    Raises:
        OSError: it cannot be opened, is larger, or is compressed.
    """
    if "\0" in str(file):
        raise OSError(errno.EINVAL, "no file has such a name")
    most = allowed(max_bytes)
    with file.open("rb") as opened:
        content = opened.read(most + 1)
    if len(content) > most:
        raise OSError(errno.EFBIG, too_much(f"{most >> 20} MiB"))
    return as_utf8(content)


def read_objects(path: Path) -> list[JsonObject]:
    """The objects in a file ("-": standard input): one, several documents, or a List.

    Raises:
        ConfigurationError: the file cannot be read.
    """
    try:
        if str(path) == STANDARD_INPUT:
            content = read_stream(str(path), sys.stdin.buffer)
        else:
            with path.open("rb") as file:
                content = read_stream(str(path), file, MAX_OBJECTS_FILE_BYTES)
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
        raise ConfigurationError(f"{at}: it contains no manifest")
    for obj in found:
        kind = obj.get("kind")
        if not kind:
            raise ConfigurationError(f"{at}: a manifest has no kind, {either(kinds)} is expected")
        if kind not in kinds:
            raise ConfigurationError(f"{at}: a {kind} is not a {either(kinds)}")
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
    return parse_stream(content)


def parse_stream(content: bytes) -> list[Any]:
    """The documents of a file of objects in YAML, without the logs of containers between them.

    Raises:
        yaml.YAMLError: as `parse_yaml`.
    """
    if _LOGS_BEGIN in content:
        # Lines stay where they are, for messages that name one.
        text = content.decode("utf-8-sig", "surrogateescape")
        text = _LOGS_IN_YAML.sub(lambda logs: "\n" * logs[0].count("\n"), text)
        content = text.encode("utf-8", "surrogateescape")
    return parse_yaml(content, MAX_DEPTH, is_fast=True)


def json_stream(text: str) -> list[object]:
    """The JSON values of a text, one behind the other, without the logs of containers between them.

    Raises:
        json.JSONDecodeError: a value is not JSON, or there is none, or very many for the length.
        RecursionError: a value nests too deeply.
    """
    if (reason := too_many_values(text.count(","), len(text))) is not None:
        raise json.JSONDecodeError(reason, text, 0)
    with contextlib.suppress(orjson.JSONDecodeError):
        return [orjson.loads(text)]
    decoder, found, end = json.JSONDecoder(parse_constant=_no_json), list[object](), 0
    while True:
        between = _BETWEEN.match(text, end)
        end = between.end() if between else end
        if found and end == len(text):
            break
        try:
            value, end = decoder.raw_decode(text, end)
        except json.JSONDecodeError:
            raise
        except ValueError as error:  # a number of thousands of digits, or NaN
            raise json.JSONDecodeError(str(error), text, end) from error
        found.append(value)
        if len(found) > allowed(MAX_DOCUMENTS):
            reason = too_much(f"{allowed(MAX_DOCUMENTS):,} documents")
            raise json.JSONDecodeError(reason, text, end)
    if "\\u" in text:
        try:  # a half of a pair of surrogates can be written in JSON's escapes, and in no answer
            json.dumps(found, ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            raise json.JSONDecodeError("a half of a surrogate pair", text, 0) from error
    return found


def too_many_values(commas: int, size: int) -> str | None:
    """Return why a JSON text is not parsed that has so many commas for its size; None: it is."""
    most = allowed(MAX_FREE_JSON_VALUES + size // MIN_BYTES_PER_JSON_VALUE)
    return too_much(f"{most:,} values in {size >> 10} KiB") if commas > most else None


def _no_json(constant: str) -> object:
    raise ValueError(f"{constant} is not JSON")


def check_depth(
    content: bytes, max_depth: int = MAX_DEPTH, *, max_values: int | None = None
) -> None:
    """Refuse a text that nests too deeply, or has too many values or documents.

    libyaml's composer would end the process: it calls itself once a level, on the stack of C. The
    parser beneath it does not, and takes a sixth of the time that it takes to make the values.

    Raises:
        NestedTooDeeply: it nests deeper than `max_depth`.
        yaml.YAMLError: it is no YAML, or has too many values or documents.
    """
    is_flat = sum(content.count(opener) for opener in _OPENERS) <= max_depth
    separators = 0 if max_values is None else content.count(b",") + content.count(b"\n")
    if is_flat and separators <= MAX_FREE_VALUES:
        return
    depth, documents, most = 0, 0, allowed(MAX_DOCUMENTS)
    values = 0
    last: Any = yaml.Mark("", 0, 0, 0, "", 0)
    try:
        for event in yaml.parse(content, getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
            documents += isinstance(event, yaml.DocumentStartEvent)
            values += isinstance(event, yaml.NodeEvent)
            depth += isinstance(event, yaml.CollectionStartEvent)
            depth -= isinstance(event, yaml.CollectionEndEvent)
            if documents > most:
                raise UnreadableYaml(too_much(f"{most:,} documents"))
            if max_values is not None and values > max_values:
                reason = f"{max_values:,} values in {len(content) >> 10} KiB"
                raise UnreadableYaml(too_much(reason))
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
    return f", line {mark.line + 1}, column {mark.column + 1}: not YAML: {_problem(error)}"


def yaml_problem(error: yaml.YAMLError) -> str:
    """The mistake in a text, and its place, without the lines that PyYAML quotes."""
    mark = getattr(error, "problem_mark", None)
    if mark is None:
        return " ".join(str(error).split())
    return f"line {mark.line + 1}, column {mark.column + 1}: {_problem(error)}"


def _problem(error: yaml.YAMLError) -> str:
    return getattr(error, "problem", None) or "cannot be read"


def check_form(at: str, obj: JsonObject) -> JsonObject:
    """Return an object whose kind is a text and whose metadata are an object, if it has them.

    Raises:
        ConfigurationError: they are something else; `at` begins the message.
    """
    for name in ("kind", "apiVersion"):
        if not isinstance(obj.get(name, ""), str | None):
            raise ConfigurationError(f"{at}: the {name} of an object is not a string")
    if not isinstance(obj.get("metadata"), dict | None):
        kind = obj.get("kind") or "object"
        raise ConfigurationError(f"{at}, {kind} without a name: its metadata is not an object")
    return obj


def flattened(at: str, document: object) -> Iterator[JsonObject]:
    """The objects of a document: itself, the items of a List, or the lists of an export.

    A document `{template, count}` is a controller that runs so many pods.
    """
    if not isinstance(document, dict):
        raise ConfigurationError(f"{at}: {about_document(document)}")
    if is_export(document):
        yield from objects_of_export(document)
    elif _is_record(document):
        raise ConfigurationError(f"{at}: {ABOUT_RECORD}")
    elif isinstance(document.get("items"), list):
        kind = str(document.get("kind", "")).removesuffix("List")
        typed = {"apiVersion": document["apiVersion"]} if kind and "apiVersion" in document else {}
        for item in document["items"]:
            if not isinstance(item, dict):
                raise ConfigurationError(f"{at}: an item of a List is not an object")
            yield from flattened(at, {"kind": kind} | typed | item)
    elif document.get("items", 0) is None and str(document.get("kind", "")).endswith("List"):
        return
    elif is_counted(document):
        try:
            yield counted_pods(document)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ConfigurationError(f"{at}: {error}") from error
    else:
        yield check_form(at, document)


def is_export(document: JsonObject) -> bool:
    """Whether a document is an export of kube-scheduler-simulator, which may be of nothing."""
    known = {*_SIMULATOR_KINDS, SIMULATOR_CONFIG}
    return {"pods", "nodes"} <= document.keys() and not document.keys() - known


def _is_record(document: JsonObject) -> bool:
    """Whether a document is a line of a record of kube-scheduler-simulator."""
    return document.keys() >= _RECORD_FIELDS and "kind" not in document


def is_of_objects(document: object) -> bool:
    """Whether `flattened` is for a document; it may be a case that `decide` reads otherwise."""
    return isinstance(document, dict) and (
        "kind" in document or is_export(document) or _is_record(document) or is_counted(document)
    )


def objects_of_export(document: JsonObject) -> list[JsonObject]:
    """The objects of an export of kube-scheduler-simulator, with kinds."""
    found: list[JsonObject] = []
    for field, kind in _SIMULATOR_KINDS.items():
        listed = document.get(field) or ()
        found += [{"kind": kind} | each for each in listed if isinstance(each, dict)]
    config = document.get(SIMULATOR_CONFIG)
    if isinstance(config, dict):
        found.append({"kind": "KubeSchedulerConfiguration"} | config)
    return found


def about_document(document: object) -> str:
    """The kind of a document that is not an object, for the message that refuses it."""
    if isinstance(document, list):
        if any(isinstance(each, dict) and each.keys() & _PERF_FIELDS for each in document):
            return _about_perf(document)
        parts = "1 part" if len(document) == 1 else f"{len(document)} parts"
        return f"a document must be an object, not a list of {parts}"
    if not isinstance(document, str):
        return f"a document must be an object, not {json.dumps(document)}"
    text = " ".join(document[: 2 * MAX_SHOWN_CHARACTERS].split())[:MAX_SHOWN_CHARACTERS]
    hint = "; traces in CSV are read by simulate and plan" if text.count(",") > 1 else ""
    return f"a document must be an object, not the text {text!r}{hint}"


def _about_perf(cases: list[object]) -> str:
    """The description of a scheduler_perf configuration, with the manifests that it names."""
    named = dict.fromkeys(re.findall(r"'(\S+\.yaml)'", repr(cases)))
    files = f", here {', '.join(list(named)[:MAX_NAMED_TEMPLATES])}" if named else ""
    return (
        "a configuration of scheduler_perf, which holds no objects: pass the manifests that its "
        f"templates name{files}"
    )
