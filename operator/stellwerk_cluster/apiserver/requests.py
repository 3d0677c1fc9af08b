"""From a path to what it names, and from a body to an object.

Called by the HTTP layer. Invariant: a path that is parsed here names a kind that is served.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import orjson

from stellwerk_cluster.apimachinery import protobuf
from stellwerk_cluster.apimachinery.failures import (
    Cause,
    bad_request,
    bad_value,
    forbidden_field,
    invalid_as,
    no_such_resource,
    not_found,
    required,
    too_long,
    unsupported,
    unsupported_body,
)
from stellwerk_cluster.apimachinery.kinds import subresources
from stellwerk_cluster.apimachinery.messages import has_message
from stellwerk_cluster.apimachinery.schema import DecodeError, decode, json_name, types
from stellwerk_cluster.apiserver.duplicates import duplicate_fields
from stellwerk_cluster.apiserver.yaml_bodies import doubled_text, read_yaml
from stellwerk_cluster.registry.write_options import WriteOptions

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stellwerk.models.json_values import JsonObject
    from stellwerk_cluster.apimachinery.kinds import KindTable, ResourceKind
    from stellwerk_cluster.apimachinery.objects import JsonValue, Key

_JSON: Final = "application/json"
_YAML: Final = "application/yaml"
_JSON_TYPES: Final = {bool: "bool", int: "number", float: "number", list: "array", dict: "object"}
_OBJECTS: Final = ("metadata", "target", "deleteOptions", "preconditions", "spec")
_LONGEST_MANAGER: Final = 128
_SHOWN_BYTES: Final = 200
_VALIDATIONS: Final = ("", "Ignore", "Strict", "Warn")


@dataclass(frozen=True, slots=True)
class Target:
    """The kind, object and subresource that a path names."""

    kind: ResourceKind
    namespace: str | None
    """None: across all namespaces, or a cluster-scoped kind."""
    name: str = ""
    subresource: str = ""
    watch: bool = False
    """Whether the path itself asks for a watch, in the old style."""

    @property
    def key(self) -> Key:
        """The key of the object it names."""
        return self.namespace or "", self.name


def parse_path(parts: list[str], kinds: KindTable) -> Target | None:
    """What the parts of a path name; None if the group is not served.

    Raises:
        StatusError: the version is served, but has no such resource (404).
    """
    if parts[0] == "api":
        group, version, rest = "", parts[1], parts[2:]
    else:
        group, version, rest = parts[1], parts[2], parts[3:]
    if version not in kinds.groups().get(group, ()):
        if group in kinds.groups():
            raise no_such_resource()
        return None
    watch = rest[0] == "watch"
    rest = rest[1:] if watch else rest
    if not rest:
        raise no_such_resource()
    namespace: str | None = None
    # /namespaces/NAME and /namespaces/NAME/(status|finalize) are about the namespace itself.
    if rest[0] == "namespaces" and rest[2:] and rest[2] not in ("status", "finalize"):
        namespace, rest = rest[1], rest[2:]
    kind = kinds.find(group, version, rest[0])
    if kind is None or (namespace is not None and not kind.namespaced):
        raise no_such_resource()
    name = rest[1] if len(rest) > 1 else ""
    subresource = "/".join(rest[2:])
    if subresource and kind.subresource(subresource) is None:
        if kind.custom and subresource in subresources():
            raise not_found(kind, name)
        raise no_such_resource()
    return Target(kind, namespace, name, subresource, watch)


def parse_body(content: bytes, media_type: str, type_name: str = "") -> JsonValue:
    """The value in a body; in protobuf, it must be an object of the type.

    Raises:
        StatusError: the media type is not read here (415).
        ValueError: the body is malformed.
    """
    if media_type == protobuf.MEDIA_TYPE and has_message(type_name):
        envelope = protobuf.open_envelope(content)
        if envelope.kind != type_name:
            message = f"expected {type_name}, found {envelope.kind or 'no kind'}"
            raise protobuf.MalformedError(message)
        return protobuf.read_message(type_name, envelope.raw)
    if media_type in (_JSON, ""):
        return orjson.loads(content)
    if media_type == _YAML:
        return read_yaml(content)[0]
    raise unsupported_body()


def plain_body(content: bytes, media_type: str, type_name: str) -> JsonObject:
    """The object in a body that is no object of a resource: options, a scale, an eviction.

    Raises:
        StatusError: it is malformed (400), or in another format (415).
    """
    try:
        body = parse_body(content, media_type, type_name)
    except ValueError as error:
        raise bad_request(f"the object provided is unrecognized: {error}") from error
    if not isinstance(body, dict):
        message = "the object provided is unrecognized"
        raise bad_request(message)
    if type_name not in types():
        return body
    try:
        return decode(type_name, body)[0]
    except DecodeError as error:
        raise bad_request(
            f'{type_name} in version "v1" cannot be handled as a {type_name}: {error}'
        ) from error


def object_body(
    content: bytes, media_type: str, kind: ResourceKind, kinds: KindTable
) -> JsonObject:
    """The object in the body of a create or update, whose kind and apiVersion, if given, fit.

    Raises:
        StatusError: it is malformed or of another kind (400), or in another format (415).
    """
    if media_type == protobuf.MEDIA_TYPE and not kind.custom and has_message(kind.type_name):
        return _protobuf_object(content, kind, kinds)
    try:
        body = parse_body(content, media_type)
    except ValueError:
        raise _unrecognized(
            kind, "unexpected end of JSON input", content.decode("utf-8", "replace")
        ) from None
    if not isinstance(body, dict):
        why = (
            "json: cannot unmarshal array into Go value of type struct { APIVersion string "
            '"json:\\"apiVersion,omitempty\\""; Kind string "json:\\"kind,omitempty\\"" }'
        )
        raise _unrecognized(kind, why, content.hex())
    _check_kind(body, kind, kinds)
    for name in ("metadata", *(("target",) if kind.kind == "Binding" else ())):
        if not isinstance(body.get(name) or {}, dict):
            found = _JSON_TYPES.get(type(body[name]), "string")
            why = f"json: cannot unmarshal {found} into Go struct field {kind.kind}.{name}"
            raise bad_request(f"the object provided is unrecognized: {why}")
    return body


def _protobuf_object(content: bytes, kind: ResourceKind, kinds: KindTable) -> JsonObject:
    try:
        envelope = protobuf.open_envelope(content)
    except protobuf.MalformedError as error:
        shown = f"{content[:_SHOWN_BYTES].hex()} ..." if content[_SHOWN_BYTES:] else content.hex()
        raise bad_request(
            f"the object provided is unrecognized (must be of type {kind.kind}): {error} "
            f"({shown or '<empty>'})"
        ) from None
    named: JsonObject = {"kind": envelope.kind, "apiVersion": envelope.api_version}
    _check_kind(named, kind, kinds)
    try:
        obj = protobuf.read_message(kind.type_name, envelope.raw)
    except protobuf.MalformedError as error:
        raise bad_request(
            f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: {error}'
        ) from None
    return {**named, **obj}


def _unrecognized(kind: ResourceKind, why: str, shown: str) -> Exception:
    return bad_request(
        f"the object provided is unrecognized (must be of type {kind.kind}): couldn't get "
        "version/kind; "
        f"json parse error: {why} ({shown or '<empty>'})"
    )


def _check_kind(body: JsonObject, kind: ResourceKind, kinds: KindTable) -> None:
    for name in ("kind", "apiVersion"):
        if not isinstance(body.get(name) or "", str):
            found = _JSON_TYPES[type(body[name])]
            why = f"json: cannot unmarshal {found} into Go struct field .{name} of type string"
            shown = orjson.dumps(body)[:_SHOWN_BYTES].decode("utf-8", "replace")
            raise _unrecognized(kind, why, shown)
    given_kind, given_version = (
        body.get("kind") or kind.kind,
        body.get("apiVersion") or kind.api_version,
    )
    for name, given in (("apiVersion", given_version), ("kind", given_kind)):
        if not isinstance(given, str):
            why = (
                f"json: cannot unmarshal {json_name(given)} into Go struct field .{name} "
                "of type string"
            )
            raise _unrecognized(kind, why, orjson.dumps(body).decode())
    if given_version == kind.api_version and (given_kind == kind.kind or kind.custom):
        return  # the rules of a custom kind say what is wrong with another one's name
    group, _, _version = given_version.rpartition("/")
    known = kinds.named(group, given_kind)
    if known is not None and known.api_version == given_version:
        why = (
            f"converting ({_go_package(known)}.{known.kind}) to "
            f"({_internal(kind)}.{kind.kind}): unknown conversion"
        )
    else:
        why = (
            f'no kind "{given_kind}" is registered for version "{given_version}" '
            'in scheme "pkg/api/legacyscheme/scheme.go:30"'
        )
    message = f'{given_kind} in version "{given_version}" cannot be handled as a {kind.kind}: {why}'
    raise bad_request(message)


def _go_package(kind: ResourceKind) -> str:
    return kind.version


def _internal(kind: ResourceKind) -> str:
    return kind.group.partition(".")[0] or "core"


def write_options(
    query: Mapping[str, str], verb: str, user_agent: str = "", *, applies: bool = False
) -> WriteOptions:
    """The options of a create, update or patch; without a manager, the client's name is one.

    Raises:
        StatusError: an option has a value it may not have (422).
    """
    causes = []
    if query.get("dryRun", "All") not in ("All", ""):
        shown = [query["dryRun"]]
        causes.append(unsupported("dryRun", shown, ("All",)))
    manager = query.get("fieldManager", "")
    force = query.get("force", "")
    if applies and not manager:
        causes.append(required("fieldManager", "is required for apply patch"))
    elif verb == "Patch" and force and not applies:
        causes.append(forbidden_field("force", "may not be specified for non-apply patch"))
    if len(manager.encode()) > _LONGEST_MANAGER:
        causes.append(too_long("fieldManager", _LONGEST_MANAGER))
    causes += _unprintable(manager)
    validation = query.get("fieldValidation", "")
    if validation not in _VALIDATIONS:
        causes.append(unsupported("fieldValidation", validation, _VALIDATIONS))
    if causes:
        raise invalid_as(f"{verb}Options", "meta.k8s.io", "", causes)
    return WriteOptions(
        dry_run=query.get("dryRun") == "All",
        field_validation=validation or "Warn",
        manager=manager or _client_name(user_agent),
        force=force.lower() not in ("", "0", "f", "false"),
    )


def _unprintable(manager: str) -> list[Cause]:
    for position, character in enumerate(manager):
        if not character.isprintable():
            text = f"invalid character U+{ord(character):04X} (at position {position})"
            return [bad_value("fieldManager", manager, text)]
    return []


def _client_name(user_agent: str) -> str:
    """The manager of a client that names none: the beginning of its User-Agent."""
    name = "".join(each for each in user_agent.partition("/")[0] if each.isprintable())
    while len(name.encode()) > _LONGEST_MANAGER:
        name = name[:-1]
    return name or "unknown"


def apply_body(content: bytes, options: WriteOptions) -> JsonValue:
    """The object in the body of an apply, in YAML or JSON.

    Raises:
        StatusError: it is malformed, or names a field twice under strict validation (400).
    """
    try:
        config, doubled = _applied_value(content)
    except ValueError as error:
        raise bad_request(
            f"error decoding patch: error converting YAML to JSON: {error}"
        ) from error
    if doubled and options.field_validation != "Ignore":
        text = f"error converting YAML to JSON: {doubled_text(doubled)}"
        if options.field_validation == "Strict":
            raise bad_request(f"error strict decoding patch: {text}")
        options.warnings.append(text)
    return config


def _applied_value(content: bytes) -> tuple[JsonValue, list[str]]:
    # Most clients send JSON, which is YAML and is read a hundred times as fast.
    if content.lstrip().startswith(b"{"):
        try:
            value = orjson.loads(content)
        except orjson.JSONDecodeError:
            return read_yaml(content)
        if not duplicate_fields(content, value):
            return value, []
    return read_yaml(content)


def note_duplicates(
    content: bytes, media_type: str, body: JsonValue, options: WriteOptions
) -> None:
    """Put the fields that stand twice in a body into the options of its write."""
    if options.field_validation == "Ignore" or media_type == protobuf.MEDIA_TYPE:
        return
    if media_type == _YAML:
        doubled = read_yaml(content)[1]
        options.strict_errors += [doubled_text(doubled)] if doubled else []
        return
    paths = duplicate_fields(content, body)
    prefix = "json patch " if isinstance(body, list) else ""
    options.strict_errors += [f'{prefix}duplicate field "{path}"' for path in paths]
