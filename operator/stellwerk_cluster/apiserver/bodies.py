"""Decoding of request bodies: from bytes to the object or options in them.

Called by the HTTP layer. Invariant: whatever the bytes are, the answer is a value of the form that
was asked for, or a refusal in the API server's words. The search for fields that stand twice costs
a body without any two counts of its quotation marks, and no second parse.
"""

from __future__ import annotations

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from typing import TYPE_CHECKING, Final, NamedTuple

import orjson

from stellwerk_cluster.apimachinery import json_patch, patching, protobuf
from stellwerk_cluster.apimachinery.failures import bad_request, too_many_parts, unsupported_body
from stellwerk_cluster.apimachinery.json_text import JsonError, read_json
from stellwerk_cluster.apimachinery.messages import has_message
from stellwerk_cluster.apimachinery.objects import MAX_OBJECT_PARTS, check_object_parts
from stellwerk_cluster.apiserver.yaml_bodies import (
    TooManyParts,
    YamlError,
    check_parts,
    doubled_text,
    read_yaml,
)
from stellwerk_cluster.registry.decoding import other_kind, strict_texts, unknown_conversion
from stellwerk_kube.schema.decoder import decode
from stellwerk_kube.schema.mismatches import DecodeError, json_name
from stellwerk_kube.schema.types import types

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stellwerk_cluster.apimachinery.kinds import KindTable, ResourceKind
    from stellwerk_cluster.registry.write_options import WriteOptions
    from stellwerk_kube.json_values import JsonObject, JsonValue

_JSON: Final = "application/json"
_YAML: Final = "application/yaml"
_MAX_SHOWN_BYTES: Final = 30
"""Bytes of a body that a message about it shows."""
_PARSE_ERROR: Final = "couldn't get version/kind; json parse error: "
_HEAD_TYPE: Final = (
    'struct { APIVersion string "json:\\"apiVersion,omitempty\\""; '
    'Kind string "json:\\"kind,omitempty\\"" }'
)
_MAX_SLASHES: Final = 1
"""Slashes of an apiVersion: one, between group and version."""
_PLAIN_KINDS: Final = {
    "Binding": ("core", ("v1",)),
    "Eviction": ("policy", ("policy/v1", "policy/v1beta1")),
    "Scale": ("autoscaling", ("autoscaling/v1",)),
    "TokenRequest": ("authentication", ("authentication.k8s.io/v1",)),
}
"""Kinds that subresources take: the Go package and the versions, the first where none is named."""
_DELETE_OPTIONS: Final = "DeleteOptions"
_META_SCHEME: Final = "pkg/apis/meta/internalversion/scheme/register.go:27"


_MIN_THREAD_BYTES: Final = 64 << 10
"""Bytes of a body from which it is parsed in a thread, because it would hold the event loop."""
_KNOWN: Final[ContextVar[_Known | None]] = ContextVar("body that was read ahead", default=None)
_THREAD: Final = ThreadPoolExecutor(1, thread_name_prefix="long body")


class _Known(NamedTuple):
    """A body that the task of its request has read already, and what came of it."""

    content: bytes
    yaml: bool
    outcome: tuple[JsonValue, list[str]] | JsonError | YamlError


async def read_ahead(content: bytes, media_type: str) -> None:
    """Read a long body that costs much in a thread, for the functions below to find.

    That is YAML, and what is not JSON, whose first wrong character is looked for.

    Raises:
        StatusError: 413 for a body that holds more than `MAX_OBJECT_PARTS`.
    """
    if len(content) <= _MIN_THREAD_BYTES:
        return
    is_yaml = media_type == _YAML
    if not is_yaml:
        if media_type == protobuf.MEDIA_TYPE:
            return
        try:
            value = orjson.loads(content)
        except orjson.JSONDecodeError:
            is_yaml = media_type == patching.APPLY_PATCH
        else:
            check_object_parts(value)
            _KNOWN.set(_Known(content, yaml=False, outcome=(value, [])))
            return
    loop = asyncio.get_running_loop()
    try:
        known = await loop.run_in_executor(_THREAD, _read_known, content, is_yaml)
    except TooManyParts:
        raise too_many_parts(MAX_OBJECT_PARTS) from None
    _KNOWN.set(known)


def forget_ahead() -> None:
    """Let go of what the task has read ahead: connections outlive their requests."""
    _KNOWN.set(None)


def _read_known(content: bytes, is_yaml: bool) -> _Known:  # noqa: FBT001  (for an executor)
    try:
        if is_yaml:
            check_parts(content, MAX_OBJECT_PARTS)
            return _Known(content, is_yaml, read_yaml(content, yielding=True))
        return _Known(content, is_yaml, (read_json(content), []))
    except (JsonError, YamlError) as error:
        return _Known(content, is_yaml, error)


def _known_outcome(content: bytes, *, is_yaml: bool) -> tuple[JsonValue, list[str]] | None:
    known = _KNOWN.get()
    if known is None or known.content is not content or known.yaml != is_yaml:
        return None
    if isinstance(known.outcome, ValueError):
        raise known.outcome
    return known.outcome


def yaml_of(content: bytes) -> tuple[JsonValue, list[str]]:
    """The value of a body in YAML, and the keys that stand in it twice; raises YamlError."""
    return _known_outcome(content, is_yaml=True) or read_yaml(content)


def json_of(content: bytes) -> JsonValue:
    """The value of a body in JSON; raises JsonError."""
    known = _known_outcome(content, is_yaml=False)
    return read_json(content) if known is None else known[0]


class _BodyError(ValueError):
    """A body in which not even kind and version can be read."""


def object_body(
    content: bytes, media_type: str, kind: ResourceKind, kinds: KindTable
) -> JsonObject:
    """The object in the body of a create or update, whose kind and apiVersion, if given, fit.

    Raises:
        StatusError: it is malformed or of another kind (400), or in another format (415).
    """
    try:
        if media_type == protobuf.MEDIA_TYPE and not kind.custom and has_message(kind.type_name):
            return _protobuf_object(content, kind, kinds)
        body = _mapping(content, media_type)
    except (_BodyError, protobuf.MalformedError) as error:
        raise _unrecognized(kind.kind, error, content) from None
    _check_kind(body, kind, kinds)
    for name in ("metadata", *(("target",) if kind.kind == "Binding" else ())):
        if not isinstance(body.get(name), (dict, type(None))):
            type_name = "ObjectMeta" if name == "metadata" else "ObjectReference"
            why = (
                f"json: cannot unmarshal {json_name(body[name])} into Go struct field "
                f"{kind.kind}.{name} of type v1.{type_name}"
            )
            raise _unhandled(kind.kind, kind.version, kind.kind, why)
    return body


def plain_body(
    content: bytes, media_type: str, type_name: str, kinds: KindTable, options: WriteOptions
) -> JsonObject:
    """The object in a body that is no object of a resource: a scale, an eviction, a binding.

    Raises:
        StatusError: it is malformed or of another kind (400), or in another format (415).
    """
    try:
        body = _plain_mapping(content, media_type, type_name)
    except (_BodyError, protobuf.MalformedError) as error:
        raise _unrecognized(type_name, error, content) from None
    package, versions = _PLAIN_KINDS[type_name]
    given: str = body.get("kind") or type_name
    api_version: str = body.get("apiVersion") or versions[0]
    version = api_version.rpartition("/")[2]
    if given != type_name or api_version not in versions:
        why = unknown_conversion(given, api_version, f"{package}.{type_name}", kinds)
        raise _unhandled(given, version, type_name, why)
    note_duplicates(content, media_type, body, options)
    if type_name not in types():
        return body
    try:
        decoded, unknown = decode(type_name, body)
    except DecodeError as error:
        raise _unhandled(type_name, version, type_name, error) from error
    texts = (
        []
        if options.field_validation == "Ignore"
        else strict_texts(unknown, options, in_order=True)
    )
    if texts and options.field_validation == "Strict":
        why = f"strict decoding error: {', '.join(texts)}"
        raise _unhandled(type_name, version, type_name, why)
    options.warnings.extend(texts)
    return decoded


def delete_options_body(content: bytes, media_type: str) -> JsonObject:
    """The options in the body of a delete.

    Raises:
        StatusError: it is malformed or of another kind (400), or in another format (415).
    """
    try:
        options = _plain_mapping(content, media_type, _DELETE_OPTIONS)
        given = options.get("kind") or _DELETE_OPTIONS
        if given != _DELETE_OPTIONS:
            version = options.get("apiVersion") or "meta.k8s.io/v1"
            unknown = f'no kind "{given}" is registered for version "{version}"'
            raise bad_request(f'{unknown} in scheme "{_META_SCHEME}"')
        return decode(_DELETE_OPTIONS, options)[0]
    except (_BodyError, protobuf.MalformedError, DecodeError) as error:
        raise bad_request(str(error)) from None


def _plain_mapping(content: bytes, media_type: str, type_name: str) -> JsonObject:
    if media_type == protobuf.MEDIA_TYPE and has_message(type_name):
        envelope = protobuf.open_envelope(content)
        if envelope.kind != type_name:
            message = f"expected {type_name}, found {envelope.kind or 'no kind'}"
            raise _BodyError(message)
        return protobuf.read_message(type_name, envelope.raw)
    return _mapping(content, media_type)


def _mapping(content: bytes, media_type: str) -> JsonObject:
    """The object in a body of JSON or YAML whose kind and apiVersion, if given, are texts."""
    if media_type not in (_JSON, "", _YAML):
        raise unsupported_body()
    try:
        body = yaml_of(content)[0] if media_type == _YAML else json_of(content)
    except JsonError as error:
        raise _BodyError(f"{_PARSE_ERROR}{error}") from error
    except YamlError as error:
        raise _BodyError(str(error)) from error
    if body is None:
        return {}
    if not isinstance(body, dict):
        raise _BodyError(
            f"{_PARSE_ERROR}json: cannot unmarshal {json_name(body)} into Go value of type "
            f"{_HEAD_TYPE}"
        )
    for name in ("kind", "apiVersion"):
        given = body.get(name)
        if given is not None and not isinstance(given, str):
            raise _BodyError(
                f"{_PARSE_ERROR}json: cannot unmarshal {json_name(given)} into Go struct field "
                f".{name} of type string"
            )
    version = body.get("apiVersion") or ""
    if version.count("/") > _MAX_SLASHES:
        message = f"unexpected GroupVersion string: {version}"
        raise _BodyError(message)
    return body


def _protobuf_object(content: bytes, kind: ResourceKind, kinds: KindTable) -> JsonObject:
    envelope = protobuf.open_envelope(content)
    named: JsonObject = {"kind": envelope.kind, "apiVersion": envelope.api_version}
    _check_kind(named, kind, kinds)
    try:
        obj = protobuf.read_message(kind.type_name, envelope.raw)
    except protobuf.MalformedError as error:
        raise _unhandled(kind.kind, kind.version, kind.kind, error) from None
    return {**named, **obj}


def _unrecognized(kind_name: str, why: Exception, content: bytes) -> Exception:
    return bad_request(
        f"the object provided is unrecognized (must be of type {kind_name}): {why} "
        f"({_summary(content)})"
    )


def _summary(content: bytes) -> str:
    if not content:
        return "<empty>"
    first = content[:_MAX_SHOWN_BYTES]
    shown = first.decode("utf-8", "replace") if first.startswith(b"{") else first.hex()
    return f"{shown} ..." if content[_MAX_SHOWN_BYTES:] else shown


def _unhandled(given: str, version: str, wanted: str, why: object) -> Exception:
    return bad_request(f'{given} in version "{version}" cannot be handled as a {wanted}: {why}')


def _check_kind(body: JsonObject, kind: ResourceKind, kinds: KindTable) -> None:
    # What a custom kind makes of a body of another version is said once its fields are looked at.
    why = "" if kind.custom else other_kind(body, kind, kinds)
    if why:
        version = (body.get("apiVersion") or kind.api_version).rpartition("/")[2]
        raise _unhandled(body.get("kind") or kind.kind, version, kind.kind, why)


def apply_body(content: bytes, options: WriteOptions) -> JsonValue:
    """The object in the body of an apply, in YAML or JSON.

    Raises:
        StatusError: it is malformed, or names a field twice under strict validation (400).
    """
    try:
        config, doubled = _applied_value(content)
    except ValueError as error:
        raise bad_request(f"error decoding YAML: error converting YAML to JSON: {error}") from error
    if doubled and options.field_validation != "Ignore":
        text = f"error converting YAML to JSON: {doubled_text(doubled)}"
        if options.field_validation == "Strict":
            raise bad_request(f"error strict decoding YAML: {text}")
        options.warnings.append(text)
    return config


def _applied_value(content: bytes) -> tuple[JsonValue, list[str]]:
    # Most clients send JSON, which is YAML and is read a hundred times as fast.
    if content.lstrip().startswith(b"{"):
        try:
            value = orjson.loads(content)
        except orjson.JSONDecodeError:
            return yaml_of(content)
        if not duplicate_fields(content, value):
            return value, []
    return yaml_of(content)


def note_duplicates(
    content: bytes, media_type: str, body: JsonValue, options: WriteOptions
) -> None:
    """Put the fields that stand twice in a body into the options of its write."""
    if options.field_validation == "Ignore" or media_type == protobuf.MEDIA_TYPE:
        return
    if media_type == _YAML:
        doubled = yaml_of(content)[1]
        is_one = bool(doubled) and options.field_validation == "Strict"
        options.strict_errors += [doubled_text(doubled)] if is_one else doubled
        # What is read is the JSON that comes of it, whose keys are sorted.
        for place, path in enumerate(_sorted_paths(body, ""), 1):
            options.strict_order[f'unknown field "{path}"'] = place
        return
    paths = duplicate_fields(content, body, options.strict_order)
    prefix = "json patch " if isinstance(body, list) else ""
    options.strict_errors += [f'{prefix}duplicate field "{path}"' for path in paths]
    if media_type == patching.JSON_PATCH:
        unknown = json_patch.unknown_fields(body)
        options.strict_errors += [f'{prefix}unknown field "{path}"' for path in unknown]


def duplicate_fields(
    content: bytes, value: JsonValue, order: dict[str, int] | None = None
) -> list[str]:
    """The paths of the fields that stand twice in a text whose value is known.

    `order` gets the place in the text of what strict decoding may say of each field.

    Raises:
        StatusError: the text is nested more deeply than can be followed (400).
    """
    if _has_as_many_texts(content, value):
        return []
    try:
        noted = json.loads(content, object_pairs_hook=_noted)
        if order is not None:
            order |= {text: place for place, text in enumerate(_texts(noted, ""))}
        return list(dict.fromkeys(_paths(noted, "")))
    except RecursionError as error:
        message = "error decoding: json: exceeded max depth"
        raise bad_request(message) from error


class _Noting(dict[str, "JsonValue"]):
    """An object that remembers fields that stood in it more than once."""

    pairs: list[tuple[str, JsonValue]]
    """All that stood in it, in order."""


def _noted(pairs: list[tuple[str, JsonValue]]) -> _Noting:
    found = _Noting()
    found.pairs = pairs
    found.update(pairs)
    return found


def _has_as_many_texts(content: bytes, value: JsonValue) -> bool:
    """A field that was overwritten took its quotation marks along."""
    if b"\\u" in content:
        return False
    try:
        return content.count(b'"') == orjson.dumps(value).count(b'"')
    except orjson.JSONEncodeError:  # what is read may be nested more deeply than what is written
        return False


def _paths(value: JsonValue, path: str) -> Iterator[str]:
    if isinstance(value, _Noting):
        seen: set[str] = set()
        for name, item in value.pairs:
            where = f"{path}.{name}" if path else name
            if name in seen:
                yield where
            seen.add(name)
            yield from _paths(item, where)
    elif isinstance(value, list):
        for position, item in enumerate(value):
            yield from _paths(item, f"{path}[{position}]")


def _sorted_paths(value: JsonValue, path: str) -> Iterator[str]:
    if isinstance(value, dict):
        for name in sorted(value):
            where = f"{path}.{name}" if path else name
            yield where
            yield from _sorted_paths(value[name], where)
    elif isinstance(value, list):
        for position, item in enumerate(value):
            yield from _sorted_paths(item, f"{path}[{position}]")


def _texts(value: JsonValue, path: str) -> Iterator[str]:
    """The texts of strict decoding for each field, were it unknown or a repetition, in order."""
    if isinstance(value, _Noting):
        seen: set[str] = set()
        for name, item in value.pairs:
            where = f"{path}.{name}" if path else name
            yield f'{"duplicate" if name in seen else "unknown"} field "{where}"'
            seen.add(name)
            yield from _texts(item, where)
    elif isinstance(value, list):
        for position, item in enumerate(value):
            yield from _texts(item, f"{path}[{position}]")
