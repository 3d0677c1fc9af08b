"""The kinds that are served: under which path, with which verbs, and how their storage behaves.

Read by storage, verbs, discovery, OpenAPI and tables. The tables of `schema` have the built-in
kinds; CustomResourceDefinitions add rows while the server runs. Invariant: nothing about a kind is
decided by comparing its name elsewhere when a word of its block can say it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, fields, replace
from functools import cache
from itertools import chain
from typing import TYPE_CHECKING, Final

from stellwerk_cluster.apimachinery.releases import RECORDED_RELEASE, RuntimeConfig, exists
from stellwerk_kube.schema.tables import tables, words_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from stellwerk_kube.json_values import JsonObject
    from stellwerk_kube.schema.tables import KindBlock, Tables

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
_VERSION_NAME: Final = re.compile(r"v([1-9][0-9]*)(?:(alpha|beta)([1-9][0-9]*))?")
METADATA_FIELDS: Final = ("metadata.name", "metadata.namespace")


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
    later_fields: tuple[str, ...] = ()
    """Field selectors that a later release has first, each behind it: 1.37:spec.pool.name."""
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
    """Name of its type in the tables; empty: same as the kind."""
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
    warning: str = ""
    """The warning in every answer about the kind."""
    inert: bool = False
    """Whether its objects are only stored: nothing acts on them, and writes say so."""
    gate: str = ""
    """The feature gate that serves it; empty: it is always served."""
    since: str = ""
    """The first release that has it; empty: all have."""
    until: str = ""
    """The last release that has it."""
    off: bool = False
    """Whether it is served only where --runtime-config says so."""
    off_since: str = ""
    """The release from which on `off` holds: an older release serves it by default."""
    stored: str = ""
    """The version of the same kind that its objects are stored in; empty: its own."""
    computed: bool = False
    """Whether its objects are computed when they are asked for, and never stored."""
    custom: bool = False
    """Whether a CustomResourceDefinition added the kind."""
    scale_paths: tuple[str, str, str] = (".spec.replicas", ".status.replicas", "")
    """Paths in a custom kind: the replicas that are wanted, those there are, and their selector."""
    converted: bool = False
    """Whether stored objects may have another form than that of the version: there are several
    versions, or the definition has changed.
    """
    version_schema: JsonObject = field(default_factory=dict, compare=False, repr=False)
    storage_version: str = ""
    storage_schema: JsonObject = field(default_factory=dict, compare=False, repr=False)

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
        """Its type in the tables."""
        return self.schema or self.kind

    @property
    def list_name(self) -> str:
        """The kind of a list of it."""
        return self.list_kind or f"{self.kind}List"

    @property
    def singular_name(self) -> str:
        """The singular by which kubectl knows the kind."""
        return self.singular or self.kind.lower()

    def subresource(self, name: str) -> Subresource | None:
        """The subresource of that name, if the kind has it."""
        return next((each for each in self.subresources if each.name == name), None)


def subresources() -> dict[str, Subresource]:
    """The subresources by name."""
    return _parsed()[0]


def built_in_kinds() -> tuple[ResourceKind, ...]:
    """The kinds of the tables, in their order."""
    return tuple(kind for kind in _parsed()[1] if not kind.computed)


def kinds_of_release(release: str) -> tuple[ResourceKind, ...]:
    """The kinds of the tables that a release has, whatever serves them."""
    return tuple(
        _of_release(kind, release)
        for kind in built_in_kinds()
        if exists(release, kind.since, kind.until)
    )


def _of_release(kind: ResourceKind, release: str) -> ResourceKind:
    """The kind with the field selectors that the release has, and off where it is off there."""
    if kind.off_since and exists(release, kind.off_since, ""):
        kind = replace(kind, off=True)
    later = (each.partition(":") for each in kind.later_fields)
    added = tuple(name for since, _, name in later if exists(release, since, ""))
    return replace(kind, fields=(*kind.fields, *added)) if added else kind


def computed_kind(name: str) -> ResourceKind:
    """A kind whose objects are computed and not stored.

    Raises:
        KeyError: there is no such kind.
    """
    return {kind.kind: kind for kind in _parsed()[1] if kind.computed}[name]


@cache
def _parsed() -> tuple[dict[str, Subresource], tuple[ResourceKind, ...]]:
    return kinds_of(tables())


def kinds_of(content: Tables) -> tuple[dict[str, Subresource], tuple[ResourceKind, ...]]:
    """The subresources and the kinds that tables have.

    Raises:
        ValueError: a kind has a word, a verb or a subresource that does not exist.
    """
    below = {
        name: Subresource(name, **_facts(name, words, Subresource))
        for name, words in content.subresources.items()
    }
    blocks = [block for block in content.kinds if block.plural != "*"]
    return below, tuple(_kind(block, words_of(block, blocks), below) for block in blocks)


def _kind(block: KindBlock, words: dict[str, str], below: dict[str, Subresource]) -> ResourceKind:
    group, _, version = block.api_version.rpartition("/")
    facts = _facts(block.plural, words, ResourceKind)
    names = facts.get("subresources", ())
    unknown = [name for name in names if name not in below]
    if unknown:
        raise ValueError(f"{block.plural}: unknown subresources: {', '.join(unknown)}")
    if names:
        # The options of a proxy are a type of their own for each kind.
        facts["subresources"] = tuple(
            replace(below[name], kind=below[name].kind.replace("*", block.kind)) for name in names
        )
    return ResourceKind(group, version, block.plural, block.kind, **facts)


def _facts(name: str, words: dict[str, str], of: type[Subresource | ResourceKind]) -> JsonObject:
    """The words as values of the fields of the same names."""
    types = {each.name: str(each.type) for each in fields(of)}
    unknown = [word for word in words if word not in types]
    if unknown:
        raise ValueError(f"{name}: unknown words: {', '.join(unknown)}")
    facts: JsonObject = {}
    for word, value in words.items():
        if types[word] == "bool":
            facts[word] = value != "no"
        elif types[word].startswith("tuple"):
            facts[word] = tuple(value.split(","))
        else:
            facts[word] = value
    unknown = [verb for verb in facts.get("verbs", ()) if verb not in ALL_VERBS]
    if unknown:
        raise ValueError(f"{name}: unknown verbs: {', '.join(unknown)}")
    return facts


class KindTable:
    """All kinds that are served now: the built-in ones and those of CustomResourceDefinitions."""

    def __init__(
        self,
        gates: Collection[str] = (),
        release: str = RECORDED_RELEASE,
        runtime: RuntimeConfig | None = None,
    ) -> None:
        """Start with the built-in kinds of a release, as gates and --runtime-config serve them."""
        self.release = release
        runtime = runtime or RuntimeConfig()
        self._by_resource: dict[tuple[str, str, str], ResourceKind] = {}
        self.changes = 0
        """Grows with every change, so that documents derived from the table can be cached."""
        self._unserved: list[ResourceKind] = []
        for row in kinds_of_release(release):
            if row.gate and row.gate not in gates:
                continue
            if runtime.serves(row.api_version, row.plural, default=not row.off):
                self.add(row)
            else:
                self._unserved.append(row)

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
        """The kind of a resource that the cluster has, also where no client is served it.

        Raises:
            KeyError: it has not.
        """
        for row in chain(self, self._unserved):
            if row.plural == plural and row.group == group:
                return row
        raise KeyError(plural)

    def served(self, group: str, version: str) -> list[ResourceKind]:
        """The kinds of a group and version, in the order of the table."""
        return [row for row in self if (row.group, row.version) == (group, version)]

    def groups(self) -> dict[str, list[str]]:
        """The versions of every group, in the order of the table."""
        found: dict[str, list[str]] = {}
        for row in self:
            versions = found.setdefault(row.group, [])
            if row.version not in versions:
                versions.append(row.version)
        for group in {row.group for row in self if row.custom}:
            found[group].sort(key=version_rank, reverse=True)
        return found


def version_rank(version: str) -> tuple[int, int, int, str]:
    """Sorts versions by their stability and number, highest last, and other names before them."""
    match = _VERSION_NAME.fullmatch(version)
    if match is None:
        return 0, 0, 0, "".join(chr(0x10FFFF - ord(letter)) for letter in version) + chr(0x10FFFF)
    stability = {None: 3, "beta": 2, "alpha": 1}[match[2]]
    return stability, int(match[1]), int(match[3] or 0), ""
