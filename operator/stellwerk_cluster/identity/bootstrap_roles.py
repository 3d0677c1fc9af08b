"""The roles and bindings that a cluster has before its first client: bootstrap_roles.txt.

Called once for each cluster. Invariant: the file is the one list. What a write makes of it is
worked out once in a process, and stored in a cluster when its roles or bindings are first asked
for: most clusters never are.
"""

from __future__ import annotations

import random  # noqa: TID251  (of uids that every cluster replaces by its own)
import uuid
from dataclasses import dataclass, field
from functools import cache, partial
from importlib import resources
from typing import TYPE_CHECKING, Final

from stellwerk_cluster.apimachinery.kinds import KindTable
from stellwerk_cluster.apimachinery.objects import timestamp
from stellwerk_cluster.apimachinery.releases import RELEASES, exists
from stellwerk_cluster.identity.rbac import RBAC_GROUP
from stellwerk_cluster.registry.api import Api
from stellwerk_cluster.registry.store import Store
from stellwerk_kube.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from stellwerk_kube.json_values import JsonObject

_READ: Final = ("get", "list", "watch")
_WRITE: Final = ("create", "delete", "deletecollection", "patch", "update")
_VERBS: Final = {"read": _READ, "write": _WRITE, "all": tuple(sorted((*_READ, *_WRITE)))}
_LABELS: Final = {"kubernetes.io/bootstrapping": "rbac-defaults"}
_ANNOTATIONS: Final = {"rbac.authorization.kubernetes.io/autoupdate": "true"}
_URL_COLUMNS: Final = 2
"""Words of a line that grants a path and not a kind."""


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


@cache
def bootstrap_roles(gates: frozenset[str] = frozenset()) -> list[BootstrapRole]:
    """The roles of bootstrap_roles.txt, in its order, with the rules of gates and of a release."""
    directory = resources.files("stellwerk_cluster.identity")
    return parse_roles(directory.joinpath("bootstrap_roles.txt").read_text("utf-8"), gates)


def parse_roles(text: str, gates: Collection[str] = ()) -> list[BootstrapRole]:
    """The roles of a file like bootstrap_roles.txt."""
    found: list[BootstrapRole] = []
    left_out = False
    for line in text.splitlines():
        words = line.split()
        if not words or line.startswith("#"):
            continue
        begins = not line.startswith(" ")
        gated = words[0].startswith("?") and words.pop(0)[1:] not in gates
        if begins:
            left_out = gated
        if gated or left_out:
            continue
        if begins:
            found.append(_role(*words))
        elif words[0] in ("to", "as"):
            role = found[-1]
            role.binding = role.name if words[0] == "to" else words[1]
            role.subjects = [_subject(word) for word in words[words.index("to") + 1 :]]
        else:
            found[-1].rules.append(_rule(words))
    return found


def create_roles(api: Api) -> None:
    """Let a cluster have the roles and bindings of a fresh one that a restored one has not kept.

    A cluster that keeps its objects stores them now, any other when a reader first looks.
    """
    marks = api.features | {each for each in RELEASES if exists(api.release, each, "")}
    for storage_name, names in _names(marks).items():
        make = partial(_fresh, marks, storage_name, _Birth.of(api))
        if api.store.journal is None:
            api.store.fill_later(storage_name, len(names), make)
            continue
        collection = api.store.collection(storage_name)
        for obj in make():
            metadata = obj["metadata"]
            if collection.get((metadata.get("namespace", ""), metadata["name"])) is None:
                api.store.create(storage_name, obj)


@dataclass(frozen=True, slots=True)
class _Birth:
    """The facts of a cluster that the objects made for it carry."""

    cluster_uid: str
    time: str

    @classmethod
    def of(cls, api: Api) -> _Birth:
        system = api.find("namespaces", "", "kube-system")
        assert system is not None  # noqa: S101  (bootstrap makes it before)
        return cls(system["metadata"]["uid"], timestamp(api.now()))


def _fresh(gates: frozenset[str], storage_name: str, birth: _Birth) -> Iterator[JsonObject]:
    """The objects of one resource, with the uids and the time of a cluster."""
    space = uuid.UUID(birth.cluster_uid)
    for obj in _prepared(gates)[storage_name]:
        metadata = obj["metadata"]
        place = f"{storage_name}/{metadata.get('namespace', '')}/{metadata['name']}"
        own = {
            **metadata,
            "uid": str(uuid.uuid5(space, place)),
            "resourceVersion": "",
            "creationTimestamp": birth.time,
            "managedFields": [{**each, "time": birth.time} for each in metadata["managedFields"]],
        }
        yield {**obj, "metadata": own}


@cache
def _names(gates: frozenset[str]) -> dict[str, list[str]]:
    """The names of all roles and bindings by resource."""
    found: dict[str, list[str]] = {}
    for each in bootstrap_roles(gates):
        found.setdefault(_storage(each, bound=False), []).append(each.name)
        if each.binding:
            found.setdefault(_storage(each, bound=True), []).append(each.binding)
    return found


@cache
def _prepared(gates: frozenset[str]) -> dict[str, list[JsonObject]]:
    """All roles and bindings as a write stores them, by resource."""
    api = Api(Store(), KindTable(gates), SystemClock(), random.Random(0)).written_by(
        "kube-apiserver"
    )
    api.plugins = frozenset()
    roles = bootstrap_roles(gates)
    for each in roles:
        plural = "roles" if each.namespace else "clusterroles"
        api.create(api.kinds.resource(plural, RBAC_GROUP), each.namespace, each.role())
    for each in roles:
        if each.binding:
            plural = "rolebindings" if each.namespace else "clusterrolebindings"
            kind = api.kinds.resource(plural, RBAC_GROUP)
            api.create(kind, each.namespace, each.role_binding())
    return {name: list(api.all(name)) for name in _names(gates)}


def _storage(role: BootstrapRole, *, bound: bool) -> str:
    scope = "" if role.namespace else "cluster"
    return f"{scope}role{'binding' if bound else ''}s.{RBAC_GROUP}"


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
