"""Bodies that say they are of another kind than the path.

Called when a body or a patched object is read. Invariant: a kind and a version that a body does not
name are those of the path.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from stellwerk.models.json_values import JsonObject
    from stellwerk_cluster.apimachinery.kinds import KindTable, ResourceKind

_SCHEME: Final = "pkg/api/legacyscheme/scheme.go:30"


def other_kind(body: JsonObject, kind: ResourceKind, kinds: KindTable) -> str:
    """The error of a body of another kind, in the API server's words; empty if it is of this one.

    The rules of a custom kind say what is wrong with another one's name.
    """
    given_kind: str = body.get("kind") or kind.kind
    given_version: str = body.get("apiVersion") or kind.api_version
    if given_version == kind.api_version and (given_kind == kind.kind or kind.custom):
        return ""
    group, _, _ = given_version.rpartition("/")
    known = kinds.named(group, given_kind)
    if known is not None and known.api_version == given_version:
        return (
            f"converting ({known.version}.{known.kind}) to "
            f"({_internal(kind)}.{kind.kind}): unknown conversion"
        )
    return (
        f'no kind "{given_kind}" is registered for version "{given_version}" in scheme "{_SCHEME}"'
    )


def _internal(kind: ResourceKind) -> str:
    """The Go package of the kind's form without a version."""
    if kind.kind == "Event":
        return "core"
    return kind.group.partition(".")[0] or "core"
