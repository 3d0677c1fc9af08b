"""The kinds that are served: under which path, with which verbs, and how their storage behaves.

Read by storage, verbs, discovery, OpenAPI and tables. `kinds.toml` is the one list of the built-in
kinds; CustomResourceDefinitions add rows while the server runs. Invariant: nothing about a kind is
decided by comparing its name elsewhere when a column of this table can say it.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stellwerk.models.json_values import JsonObject

ALL_VERBS: Final = (
    "create",
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "update",
    "watch",
)
METADATA_FIELDS: Final = ("metadata.name", "metadata.namespace")
_KINDS_FILE: Final = "kinds.toml"
_SUBRESOURCES: Final = "subresources"


@dataclass(frozen=True, slots=True)
class Subresource:
    """A path below an object, such as `status` or `binding`, with verbs of its own."""

    name: str
    verbs: tuple[str, ...]
    kind: str = ""
    """Kind of its bodies; empty: that of the object itself."""
    group: str = ""
    version: str = ""


@dataclass(frozen=True, slots=True)
class ResourceKind:
    """A kind of object and the resource it is served as: one row of the table."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    subresources: tuple[Subresource, ...] = ()
    fields: tuple[str, ...] = METADATA_FIELDS
    """Field selectors that the kind supports."""
    generation: bool = False
    """Whether metadata.generation counts changes of the specification."""
    answers_delete_with_object: bool = False
    """Whether a delete answers with the last state of the object instead of a Status."""
    create_on_update: bool = False
    """Whether an update of a missing object creates it."""
    needs_version_on_update: bool = False
    """Whether an update without a resourceVersion is refused."""
    verbs: tuple[str, ...] = ALL_VERBS
    schema: str = ""
    """Name of its type in types.txt; empty: same as the kind."""
    storage: str = ""
    """Resource under whose name it is stored; empty: its own. Two rows with one storage are two
    views of it.
    """
    watch_cache: bool = True
    """Whether watches can go back behind a compaction, as the API server's watch cache allows."""
    singular: str = ""
    """Name of one object for kubectl; empty: the kind in lower case."""
    list_kind: str = ""
    """Kind of a list; empty: the kind and `List`."""
    custom: bool = False
    """Whether a CustomResourceDefinition added the kind."""

    @property
    def api_version(self) -> str:
        """The apiVersion that its objects carry."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def qualified_resource(self) -> str:
        """The resource with its group, as messages name it: `leases.coordination.k8s.io`."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def storage_name(self) -> str:
        """The collection that holds its objects."""
        return self.storage or self.qualified_resource

    @property
    def type_name(self) -> str:
        """Its type in types.txt."""
        return self.schema or self.kind

    @property
    def list_name(self) -> str:
        """The kind of a list of it."""
        return self.list_kind or f"{self.kind}List"

    @property
    def singular_name(self) -> str:
        """What kubectl calls one of them."""
        return self.singular or self.kind.lower()

    def subresource(self, name: str) -> Subresource | None:
        """The subresource of that name, if the kind has it."""
        return next((each for each in self.subresources if each.name == name), None)


@cache
def subresources() -> dict[str, Subresource]:
    """The subresources of kinds.toml by name."""
    found = _kinds_file()[_SUBRESOURCES]
    return {name: Subresource(name, **_checked(name, facts)) for name, facts in found.items()}


@cache
def built_in_kinds() -> tuple[ResourceKind, ...]:
    """The kinds of kinds.toml, in the order of the file.

    Raises:
        ValueError: a kind names a verb or a subresource that does not exist.
        TypeError: a kind has a key that no kind has.
    """
    return tuple(
        _built_in_kind(api_version, plural, facts)
        for api_version, kinds in _kinds_file().items()
        if api_version != _SUBRESOURCES
        for plural, facts in kinds.items()
    )


def _built_in_kind(api_version: str, plural: str, facts: JsonObject) -> ResourceKind:
    group, _, version = api_version.rpartition("/")
    known = subresources()
    unknown = set(facts.get(_SUBRESOURCES, ())) - set(known)
    if unknown:
        raise ValueError(f"{_KINDS_FILE}: {plural} has unknown subresources: {sorted(unknown)}")
    below = tuple(known[name] for name in facts.get(_SUBRESOURCES, ()))
    return ResourceKind(group, version, plural, **{**_checked(plural, facts), _SUBRESOURCES: below})


def _checked(name: str, facts: JsonObject) -> JsonObject:
    """The facts with tuples in place of lists, once the verbs among them are known ones."""
    unknown = set(facts.get("verbs", ())) - set(ALL_VERBS)
    if unknown:
        raise ValueError(f"{_KINDS_FILE}: {name} has unknown verbs: {sorted(unknown)}")
    return {key: tuple(value) if isinstance(value, list) else value for key, value in facts.items()}


@cache
def _kinds_file() -> JsonObject:
    text = (
        resources.files("stellwerk_cluster.apimachinery").joinpath(_KINDS_FILE).read_text("utf-8")
    )
    return tomllib.loads(text)


class KindTable:
    """All kinds that are served now: the built-in ones and those of CustomResourceDefinitions."""

    def __init__(self) -> None:
        """Start with the built-in kinds."""
        self._by_resource: dict[tuple[str, str, str], ResourceKind] = {}
        self.changes = 0
        """Grows with every change, so that documents derived from the table can be cached."""
        for row in built_in_kinds():
            self.add(row)

    def __iter__(self) -> Iterator[ResourceKind]:
        """All rows, in the order they were added."""
        return iter(self._by_resource.values())

    def add(self, row: ResourceKind) -> None:
        """Serve a kind, in place of an earlier row for the same path."""
        self._by_resource[row.group, row.version, row.plural] = row
        self.changes += 1

    def remove(self, row: ResourceKind) -> None:
        """Serve a kind no longer."""
        if self._by_resource.pop((row.group, row.version, row.plural), None) is not None:
            self.changes += 1

    def find(self, group: str, version: str, plural: str) -> ResourceKind | None:
        """The kind served under a path."""
        return self._by_resource.get((group, version, plural))

    def named(self, group: str, kind: str) -> ResourceKind | None:
        """The kind of that name, whatever its version."""
        return next((row for row in self if row.group == group and row.kind == kind), None)

    def resource(self, plural: str, group: str = "") -> ResourceKind:
        """The kind of a resource that is known to be served.

        Raises:
            KeyError: it is not.
        """
        for row in self:
            if row.plural == plural and row.group == group:
                return row
        raise KeyError(plural)

    def groups(self) -> dict[str, list[str]]:
        """The versions of every group, in the order of the table."""
        found: dict[str, list[str]] = {}
        for row in self:
            versions = found.setdefault(row.group, [])
            if row.version not in versions:
                versions.append(row.version)
        return found
