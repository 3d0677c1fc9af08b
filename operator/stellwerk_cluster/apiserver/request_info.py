"""From a path to what it names, and from a query to the options of a write.

Called by the HTTP layer. Invariant: a path that is parsed here names a kind that is served.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from stellwerk_cluster.apimachinery.failures import (
    FieldError,
    bad_value,
    forbidden_field,
    invalid_as,
    no_such_resource,
    not_found,
    required,
    too_long,
    unsupported,
)
from stellwerk_cluster.apimachinery.kinds import subresources
from stellwerk_cluster.registry.write_options import WriteOptions

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stellwerk_cluster.apimachinery.kinds import KindTable, ResourceKind
    from stellwerk_cluster.apimachinery.objects import Key

_JSON: Final = "application/json"
_YAML: Final = "application/yaml"
_JSON_TYPES: Final = {bool: "bool", int: "number", float: "number", list: "array", dict: "object"}
_MAX_MANAGER_BYTES: Final = 128
"""Bytes of a field manager's name (`FieldManagerMaxLength`)."""
_MAX_SHOWN_BYTES: Final = 200
"""Bytes of a request's text that a message about it shows."""
_VALIDATIONS: Final = ("", "Ignore", "Strict", "Warn")


@dataclass(frozen=True, slots=True)
class RequestInfo:
    """The kind, object and subresource that a path names."""

    kind: ResourceKind
    namespace: str | None
    """None: across all namespaces, or a cluster-scoped kind; empty: the path names an empty one."""
    name: str = ""
    subresource: str = ""
    watch: bool = False
    """Whether the path itself asks for a watch, in the old style."""

    @property
    def key(self) -> Key:
        """The key of the object it names."""
        return self.namespace or "", self.name


def path_parts(path: str) -> list[str]:
    """The parts of a path that are not empty, and an empty namespace, which lists as none does."""
    parts = path.strip("/").split("/")
    at = 3 if parts[0] == "api" else 4
    kept = [part for part in parts if part]
    if (
        parts.count("") == 1
        and parts[at - 1 : at + 1] == ["namespaces", ""]
        and parts[at + 1] not in ("status", "finalize")
        and not path.startswith("//")
    ):
        kept.insert(at, "")
    return kept


def parse_path(parts: list[str], kinds: KindTable) -> RequestInfo | None:
    """The resource that the parts of a path name; None if the group is not served.

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
    if namespace is None and kind.namespaced and "list" not in kind.verbs:
        raise no_such_resource()
    name = rest[1] if len(rest) > 1 else ""
    # Behind a proxy, the path is that of the server which it leads to.
    subresource = "proxy" if rest[2:3] == ["proxy"] else "/".join(rest[2:])
    if subresource and kind.subresource(subresource) is None:
        if kind.custom and subresource in subresources():
            raise not_found(kind, name)
        raise no_such_resource()
    return RequestInfo(kind, namespace, name, subresource, watch)


def write_options(
    query: Mapping[str, str], verb: str, user_agent: str = "", *, applies: bool = False
) -> WriteOptions:
    """The options of a create, update or patch; without a manager, the client's name is one.

    Raises:
        StatusError: an option has a value it may not have (422).
    """
    errors = []
    if query.get("dryRun", "All") not in ("All", ""):
        shown = [query["dryRun"]]
        errors.append(unsupported("dryRun", shown, ("All",)))
    manager = query.get("fieldManager", "")
    force = query.get("force", "")
    if applies and not manager:
        errors.append(required("fieldManager", "is required for apply patch"))
    elif verb == "Patch" and force and not applies:
        errors.append(forbidden_field("force", "may not be specified for non-apply patch"))
    if len(manager.encode()) > _MAX_MANAGER_BYTES:
        errors.append(too_long("fieldManager", _MAX_MANAGER_BYTES))
    errors += _unprintable(manager)
    validation = query.get("fieldValidation", "")
    if validation not in _VALIDATIONS:
        errors.append(unsupported("fieldValidation", validation, _VALIDATIONS))
    if errors:
        raise invalid_as(f"{verb}Options", "meta.k8s.io", "", errors)
    return WriteOptions(
        dry_run=query.get("dryRun") == "All",
        field_validation=validation or "Warn",
        manager=manager or _client_name(user_agent),
        force=force.lower() not in ("", "0", "f", "false"),
    )


def _unprintable(manager: str) -> list[FieldError]:
    for position, character in enumerate(manager):
        if not character.isprintable():
            text = f"invalid character U+{ord(character):04X} (at position {position})"
            return [bad_value("fieldManager", manager, text)]
    return []


def _client_name(user_agent: str) -> str:
    """The manager of a client that names none: the beginning of its User-Agent."""
    name = "".join(each for each in user_agent.partition("/")[0] if each.isprintable())
    while len(name.encode()) > _MAX_MANAGER_BYTES:
        name = name[:-1]
    return name or "unknown"
