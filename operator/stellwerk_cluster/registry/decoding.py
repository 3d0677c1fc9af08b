"""Decoding of the bodies of writes: canonical form, unknown fields, bodies of another kind.

The verbs of `api` begin with it. Invariant: an object that leaves here has the fields of its kind
alone, kind and apiVersion first; a kind and a version that a body does not name are those of the
path.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stellwerk_cluster.apimachinery import patching
from stellwerk_cluster.apimachinery.conversion import to_storage
from stellwerk_cluster.apimachinery.failures import bad_request
from stellwerk_cluster.registry.write_rules import bad_patch, cannot_handle
from stellwerk_kube.schema.decoder import decode
from stellwerk_kube.schema.mismatches import DecodeError, json_name

if TYPE_CHECKING:
    from stellwerk_cluster.apimachinery.kinds import KindTable, ResourceKind
    from stellwerk_cluster.registry.custom_kinds import CustomKinds
    from stellwerk_cluster.registry.write_options import WriteOptions
    from stellwerk_kube.json_values import JsonObject, JsonValue

_SCHEME: Final = "pkg/api/legacyscheme/scheme.go:30"


def decode_body(
    custom: CustomKinds,
    kind: ResourceKind,
    body: JsonObject,
    options: WriteOptions,
    *,
    patch: JsonValue = None,
    media_type: str = "",
) -> JsonObject:
    """The canonical form of a body; unknown fields become warnings or, if strict, errors.

    Raises:
        StatusError: the body is no object of the kind (400; 422 for a patch).
    """
    try:
        if kind.custom:
            obj, unknown = custom.decode(kind, body, as_given=patch is None)
        else:
            obj, unknown = decode(kind.type_name, body)
    except DecodeError as error:
        if patch is not None:
            strategic = media_type == patching.STRATEGIC_PATCH
            shown = patch if strategic else patching.as_patched(body, patch)
            why = error.in_a_map if strategic else str(error)
            raise bad_patch(shown, why, as_map=strategic) from error
        raise cannot_handle(kind, str(error)) from error
    # Kind and apiVersion come first: rendering cuts them off the bytes of list items.
    obj.pop("kind", None)
    obj.pop("apiVersion", None)
    obj = {"kind": kind.kind, "apiVersion": kind.api_version, **obj}
    if (unknown or options.strict_errors) and options.field_validation != "Ignore":
        texts = strict_texts(unknown, options, in_order=not kind.custom and patch is None)
        if options.field_validation == "Strict":
            text = f"strict decoding error: {', '.join(texts)}"
            if patch is None:
                raise cannot_handle(kind, text)
            strategic = media_type == patching.STRATEGIC_PATCH
            shown = patch if strategic else patching.as_patched(body, patch)
            raise bad_patch(shown, text, as_map=strategic)
        options.warnings.extend(texts)
    given = body.get("apiVersion") or kind.api_version
    if kind.custom and patch is None and given != kind.api_version:
        raise bad_request(
            f"the API version in the data ({given}) does not match the expected API "
            f"version ({kind.api_version})"
        )
    return to_storage(kind, obj)


def strict_texts(unknown: list[str], options: WriteOptions, *, in_order: bool) -> list[str]:
    """The complaints of strict decoding about fields that stand twice, and about unknown ones.

    `in_order`: as they stand in the body, as Go's decoder reports them of kinds with types of their
    own. It looks at nothing in a field that it does not know, nor at that field twice.
    """
    noted = options.strict_errors
    if in_order and noted and unknown:
        inner = tuple(f'duplicate field "{path}{end}' for path in unknown for end in '".[')
        noted = [text for text in noted if not text.startswith(inner)]
    texts = [*noted, *(f'unknown field "{path}"' for path in unknown)]
    if in_order:
        texts.sort(key=lambda text: options.strict_order.get(text, 0))
    return texts


def check_patched_kind(
    patched: JsonObject, patch: JsonValue, kind: ResourceKind, kinds: KindTable
) -> None:
    """Refuse a patched object that says it is of another kind.

    Raises:
        StatusError: it does (422).
    """
    for name in ("kind", "apiVersion"):
        if not isinstance(patched.get(name), (str, type(None))):
            why = (
                "couldn't get version/kind; json parse error: json: cannot unmarshal "
                f"{json_name(patched[name])} into Go struct field .{name} of type string"
            )
            raise bad_patch(patching.as_patched(patched, patch), why)
    why = other_kind(patched, kind, kinds)
    if why:
        raise bad_patch(patching.as_patched(patched, patch), why)


def other_kind(body: JsonObject, kind: ResourceKind, kinds: KindTable) -> str:
    """The error of a body of another kind, in the API server's words; empty if it is of this one.

    The rules of a custom kind say what is wrong with another one's name.
    """
    given_kind: str = body.get("kind") or kind.kind
    given_version: str = body.get("apiVersion") or kind.api_version
    if given_version == kind.api_version and (given_kind == kind.kind or kind.custom):
        return ""
    return unknown_conversion(given_kind, given_version, f"{_internal(kind)}.{kind.kind}", kinds)


def unknown_conversion(given: str, version: str, wanted: str, kinds: KindTable) -> str:
    """The error of a body of a kind and version that is none of the wanted Go type."""
    group, _, _ = version.rpartition("/")
    known = kinds.named(group, given)
    if known is not None and known.api_version == version:
        return f"converting ({known.version}.{known.kind}) to ({wanted}): unknown conversion"
    return f'no kind "{given}" is registered for version "{version}" in scheme "{_SCHEME}"'


def _internal(kind: ResourceKind) -> str:
    """The Go package of the kind's form without a version."""
    if kind.kind == "Event":
        return "core"
    return kind.group.partition(".")[0] or "core"
