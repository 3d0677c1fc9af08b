"""The roles and bindings that a cluster has before its first client: bootstrap_roles.txt.

Called once, where RBAC is enforced. Invariant: the file is the one list; roles that sum up others
are summed here once, and kept so by their controller.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib import resources
from typing import TYPE_CHECKING, Final

from stellwerk_cluster.identity.rbac import RBAC_GROUP

if TYPE_CHECKING:
    from collections.abc import Collection

    from stellwerk.models.json_values import JsonObject
    from stellwerk_cluster.registry.api import Api

_READ: Final = ("get", "list", "watch")
_WRITE: Final = ("create", "delete", "deletecollection", "patch", "update")
_VERBS: Final = {"read": _READ, "write": _WRITE, "all": tuple(sorted((*_READ, *_WRITE)))}
_LABELS: Final = {"kubernetes.io/bootstrapping": "rbac-defaults"}
_ANNOTATIONS: Final = {"rbac.authorization.kubernetes.io/autoupdate": "true"}
_URL_COLUMNS: Final = 2


@dataclass(slots=True)
class BootstrapRole:
    """One role of the file, and how it is bound."""

    kind: str
    namespace: str
    name: str
    labels: list[str] = field(default_factory=list)
    sums: str = ""
    """The label of the roles that it sums up."""
    rules: list[JsonObject] = field(default_factory=list)
    binding: str = ""
    subjects: list[JsonObject] = field(default_factory=list)

    def role(self) -> JsonObject:
        """The role as an object."""
        labels = {f"{RBAC_GROUP}/{each}": "true" for each in self.labels}
        found: JsonObject = {
            "metadata": {
                "name": self.name,
                "labels": {**_LABELS, **labels},
                "annotations": dict(_ANNOTATIONS),
            },
            "rules": self.rules or None,
        }
        if self.sums:
            selector = {"matchLabels": {f"{RBAC_GROUP}/{self.sums}": "true"}}
            found["aggregationRule"] = {"clusterRoleSelectors": [selector]}
        return found

    def role_binding(self) -> JsonObject:
        """The binding as an object."""
        return {
            "metadata": {
                "name": self.binding,
                "labels": dict(_LABELS),
                "annotations": dict(_ANNOTATIONS),
            },
            "roleRef": {"apiGroup": RBAC_GROUP, "kind": self.kind, "name": self.name},
            "subjects": self.subjects,
        }


def bootstrap_roles(gates: Collection[str] = ()) -> list[BootstrapRole]:
    """The roles of bootstrap_roles.txt, in its order, with the rules of these feature gates."""
    directory = resources.files("stellwerk_cluster.identity")
    return parse_roles(directory.joinpath("bootstrap_roles.txt").read_text("utf-8"), gates)


def parse_roles(text: str, gates: Collection[str] = ()) -> list[BootstrapRole]:
    """The roles of a file like bootstrap_roles.txt."""
    found: list[BootstrapRole] = []
    for line in text.splitlines():
        words = line.split()
        if not words or line.startswith("#"):
            continue
        if words[0].startswith("?") and words.pop(0)[1:] not in gates:
            continue
        if not line.startswith(" "):
            found.append(_role(*words))
        elif words[0] in ("to", "as"):
            role = found[-1]
            role.binding = role.name if words[0] == "to" else words[1]
            role.subjects = [_subject(word) for word in words[words.index("to") + 1 :]]
        else:
            found[-1].rules.append(_rule(words))
    return found


def create_roles(api: Api) -> None:
    """Store the roles and bindings of a fresh cluster that a restored one has not kept."""
    roles = bootstrap_roles(api.features)
    for each in roles:
        plural = "roles" if each.namespace else "clusterroles"
        api.ensure(api.kinds.resource(plural, RBAC_GROUP), each.namespace, each.role())
    for each in roles:
        if each.binding:
            plural = "rolebindings" if each.namespace else "clusterrolebindings"
            api.ensure(api.kinds.resource(plural, RBAC_GROUP), each.namespace, each.role_binding())


def _role(kind: str, name: str, *marks: str) -> BootstrapRole:
    namespace, _, name = name.rpartition("/")
    labels = [mark[1:] for mark in marks if mark.startswith("+")]
    sums = "".join(mark[1:] for mark in marks if mark.startswith("="))
    return BootstrapRole(kind, namespace, name, labels, sums)


def _rule(words: list[str]) -> JsonObject:
    verbs = list(_VERBS.get(words[0], words[0].split(",")))
    if len(words) == _URL_COLUMNS:
        return {"verbs": verbs, "nonResourceURLs": words[1].split(",")}
    groups = ["" if group == "core" else group for group in words[2].split(",")]
    rule: JsonObject = {"verbs": verbs, "apiGroups": groups, "resources": words[1].split(",")}
    if words[3:]:
        rule["resourceNames"] = words[3].split(",")
    return rule


def _subject(word: str) -> JsonObject:
    kind, _, name = word.partition(":")
    if kind == "ServiceAccount":
        namespace, _, name = name.partition("/")
        return {"kind": kind, "name": name, "namespace": namespace}
    return {"kind": kind, "apiGroup": RBAC_GROUP, "name": name}
