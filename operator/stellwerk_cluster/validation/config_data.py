"""The rules of ConfigMaps and Secrets: keys, sizes, types, and that some do not change.

Called through their strategies. Invariant: what is immutable stays so.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Final

from stellwerk_cluster.apimachinery.failures import (
    FieldError,
    bad_value,
    forbidden_field,
    required,
    too_long,
)
from stellwerk_cluster.apimachinery.json_text import JsonError, read_json
from stellwerk_cluster.apimachinery.objects import EMPTY
from stellwerk_cluster.validation.checks import config_key, immutable
from stellwerk_kube.schema.mismatches import json_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from stellwerk_kube.json_values import JsonObject

_MAX_DATA_BYTES: Final = 1 << 20
"""Bytes of all values of a ConfigMap or Secret (`MaxSecretSize`)."""
_ACCOUNT: Final = "kubernetes.io/service-account.name"
_REQUIRED_KEYS: Final = {
    "kubernetes.io/dockercfg": (".dockercfg",),
    "kubernetes.io/dockerconfigjson": (".dockerconfigjson",),
    "kubernetes.io/tls": ("tls.crt", "tls.key"),
}
_JSON_TYPES: Final = ("kubernetes.io/dockercfg", "kubernetes.io/dockerconfigjson")


def validate_config_map(config_map: JsonObject) -> Iterator[FieldError]:
    """Errors of a config map."""
    data, binary = config_map.get("data") or EMPTY, config_map.get("binaryData") or EMPTY
    for key in data:
        yield from config_key(key, f"data[{key}]")
        if key in binary:
            yield bad_value(f"data[{key}]", key, "duplicate of key present in binaryData")
    for key in binary:
        yield from config_key(key, f"binaryData[{key}]")
    size = sum(len(text.encode()) for text in data.values()) + _decoded_bytes(binary)
    if size > _MAX_DATA_BYTES:
        yield too_long("[]", _MAX_DATA_BYTES)


def _decoded_bytes(data: JsonObject) -> int:
    return sum(len(text) * 3 // 4 - text[-2:].count("=") for text in data.values())


def validate_secret(secret: JsonObject) -> Iterator[FieldError]:
    """Errors of a secret."""
    data, kind = secret.get("data") or EMPTY, secret.get("type", "")
    for key in data:
        yield from config_key(key, f"data[{key}]")
    if _decoded_bytes(data) > _MAX_DATA_BYTES:
        yield too_long("data", _MAX_DATA_BYTES)
    annotations = secret["metadata"].get("annotations") or EMPTY
    if kind == "kubernetes.io/service-account-token" and not annotations.get(_ACCOUNT):
        yield required(f"metadata.annotations[{_ACCOUNT}]")
    for key in _REQUIRED_KEYS.get(kind, ()):
        if key not in data:
            yield required(f"data[{key}]")
        elif kind in _JSON_TYPES:
            yield from _json_errors(data[key], f"data[{key}]")
    if kind == "kubernetes.io/basic-auth" and not data.keys() & {"username", "password"}:
        yield required("data[username]")
        yield required("data[password]")
    if kind == "kubernetes.io/ssh-auth" and not data.get("ssh-privatekey"):
        yield required("data[ssh-privatekey]")


def _json_errors(text: str, field: str) -> Iterator[FieldError]:
    try:
        found = read_json(base64.b64decode(text))
    except JsonError as error:
        yield bad_value(field, "<secret contents redacted>", str(error))
        return
    if not isinstance(found, (dict, type(None))):
        into = "Go value of type map[string]interface {}"
        why = f"json: cannot unmarshal {json_name(found)} into {into}"
        yield bad_value(field, "<secret contents redacted>", why)


def validate_config_map_update(
    new: JsonObject, old: JsonObject, _subresource: str
) -> Iterator[FieldError]:
    """Errors of a change of a config map."""
    yield from _immutable_errors(new, old, ("data", "binaryData"))
    yield from validate_config_map(new)


def validate_secret_update(
    new: JsonObject, old: JsonObject, _subresource: str
) -> Iterator[FieldError]:
    """Errors of a change of a secret."""
    yield from immutable(new.get("type", ""), old.get("type", ""), "type")
    yield from _immutable_errors(new, old, ("data",))
    yield from validate_secret(new)


def _immutable_errors(
    new: JsonObject, old: JsonObject, names: Sequence[str]
) -> Iterator[FieldError]:
    if not old.get("immutable"):
        return
    text = "field is immutable when `immutable` is set"
    if not new.get("immutable"):
        yield forbidden_field("immutable", text)
    for name in names:
        if (new.get(name) or EMPTY) != (old.get(name) or EMPTY):
            yield forbidden_field(name, text)
