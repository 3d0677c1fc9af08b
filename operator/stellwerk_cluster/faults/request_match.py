"""The attributes of a request that entries of the fault table match: verb, resource, name.

`injector` parses each request once, `plan` compares it with the table. Invariant: method,
path and query are all it needs, so that a proxy can match requests to a real API, too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

if TYPE_CHECKING:
    from collections.abc import Mapping

_METHODS: Final = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_OF_NAMESPACES: Final = ("status", "finalize")
_NAMESPACED_PARTS: Final = 3


@dataclass(frozen=True, slots=True)
class RequestAttributes:
    """A request in RBAC's words."""

    verb: str
    resource: str
    """Plural, with its subresource; of what is no resource, the path."""
    namespace: str = ""
    name: str = ""
    revision: str = ""
    """The resourceVersion that a list or watch gives."""
    user_agent: str = ""

    @property
    def identity(self) -> str:
        """The text that equal requests share."""
        return f"{self.verb} {self.resource} {self.namespace}/{self.name}"


def parse_request(
    method: str, path: str, query: Mapping[str, str], user_agent: str = ""
) -> RequestAttributes:
    """The attributes of a request."""
    parts = [unquote(part) for part in path.split("/") if part]
    rest = _below_version(parts)
    if not rest:
        return RequestAttributes(_METHODS.get(method, "get"), path, user_agent=user_agent)
    namespace = ""
    if rest[0] == "namespaces" and len(rest) >= _NAMESPACED_PARTS and rest[2] not in _OF_NAMESPACES:
        namespace, rest = rest[1], rest[2:]
    name = rest[1] if len(rest) > 1 else ""
    return RequestAttributes(
        _verb(method, name, query),
        "/".join([rest[0], *rest[2:]]),
        namespace,
        name,
        query.get("resourceVersion", ""),
        user_agent,
    )


def _below_version(parts: list[str]) -> list[str]:
    """The parts behind the group and version; none if the path names no resource."""
    match parts:
        case ["api", _, *rest] | ["apis", _, _, *rest]:
            return rest
        case _:
            return []


def _verb(method: str, name: str, query: Mapping[str, str]) -> str:
    if method in {"GET", "HEAD"}:
        if query.get("watch", "false").lower() not in {"false", "0", "f"}:
            return "watch"
        return "get" if name else "list"
    if method == "DELETE" and not name:
        return "deletecollection"
    return _METHODS.get(method, "get")
