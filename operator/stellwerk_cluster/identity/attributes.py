"""The attributes of a request: verb, group, resource, name, namespace.

They come from the method and the path alone, before the server checks whether it serves the path.
So a refusal does not show which paths exist. Invariant: equal requests have equal attributes, so
these can be keys.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from stellwerk_cluster.apimachinery.failures import StatusError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_VERBS: Final = {
    "POST": "create",
    "GET": "get",
    "HEAD": "get",
    "PUT": "update",
    "PATCH": "patch",
    "DELETE": "delete",
}
_DEPTH: Final = {"api": 3, "apis": 4}
"""From so many parts on, a path is about a resource."""
_SPECIAL_VERBS: Final = ("proxy", "watch")
_OF_NAMESPACES: Final = ("status", "finalize")
_MARKUP: Final = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})
_NAMED, _BELOW = 2, 3


@dataclass(frozen=True, slots=True)
class Attributes:
    """One act on a resource, or, with a path, on a URL that is none."""

    verb: str
    group: str = ""
    version: str = ""
    resource: str = ""
    subresource: str = ""
    name: str = ""
    namespace: str = ""
    path: str = ""
    """The path of a URL that is no resource; empty for resources."""

    @property
    def full_resource(self) -> str:
        """The resource with its subresource, as rules name it."""
        return f"{self.resource}/{self.subresource}" if self.subresource else self.resource


def request_attributes(
    method: str, parts: Sequence[str], path: str, query: Mapping[str, str]
) -> Attributes:
    """The act that a request asks for; `parts` are those of its path."""
    if len(parts) < _DEPTH.get(parts[0] if parts else "", len(parts) + 1):
        return Attributes(method.lower(), path=path or "/")
    group, version, rest = (
        ("", parts[1], parts[2:]) if parts[0] == "api" else (parts[1], parts[2], parts[3:])
    )
    verb = _VERBS.get(method, "")
    if rest[0] in _SPECIAL_VERBS:
        verb, rest = rest[0], rest[1:]
        if not rest:
            return Attributes(method.lower(), path=path)
    namespace = ""
    if rest[0] == "namespaces" and rest[1:]:
        namespace = rest[1]
        if rest[2:] and rest[2] not in _OF_NAMESPACES:
            rest = rest[2:]
    name = rest[1] if len(rest) >= _NAMED else ""
    subresource = rest[2] if len(rest) >= _BELOW and verb not in _SPECIAL_VERBS else ""
    if not name and verb == "get":
        verb = "watch" if query.get("watch", "0") not in ("0", "false", "") else "list"
        name = _selected_name(query.get("fieldSelector", ""))
    elif not name and verb == "delete":
        verb = "deletecollection"
    return Attributes(verb, group, version, rest[0], subresource, name, namespace)


def _selected_name(selector: str) -> str:
    """The one name that a field selector lets through: rules for that name apply."""
    for clause in selector.split(","):
        field, _, value = clause.partition("=")
        if field.strip() == "metadata.name" and not value.startswith("!"):
            name = value.removeprefix("=").strip()
            return "" if "/" in name or "%" in name or name in (".", "..") else name
    return ""


def refusal(user_name: str, asked: Attributes, reason: str = "") -> StatusError:
    """The answer to a user who may not do that; `reason` says what went wrong on the way."""
    text = f'User "{user_name}" cannot {asked.verb} '
    if asked.path:
        text += f'path "{asked.path}"'
    else:
        where = (
            f'in the namespace "{asked.namespace}"' if asked.namespace else "at the cluster scope"
        )
        text += f'resource "{asked.full_resource}" in API group "{asked.group}" {where}'
    text = text.translate(_MARKUP)
    return _forbidden(asked, f"{text}: {reason}" if reason else text)


def _forbidden(asked: Attributes, why: str) -> StatusError:
    details = {"name": asked.name, "group": asked.group, "kind": asked.resource}
    qualified = f"{asked.resource}.{asked.group}" if asked.group else asked.resource
    if not asked.resource:
        subject = "forbidden"
    elif asked.name:
        subject = f'{qualified} "{asked.name}" is forbidden'
    else:
        subject = f"{qualified} is forbidden"
    return StatusError(
        403,
        "Forbidden",
        f"{subject}: {why}",
        details={key: value for key, value in details.items() if value},
    )
