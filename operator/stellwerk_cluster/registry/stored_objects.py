"""What is stored now, as admission and the verbs read it.

`Api` adds the writing to it. Invariant: reading changes nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from typing_extensions import override

from stellwerk_cluster.admission.plugins import DEFAULT_PLUGINS
from stellwerk_cluster.apimachinery.failures import not_found
from stellwerk_cluster.apimachinery.strategy import Reader

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from stellwerk.clock import Clock
    from stellwerk.models.json_values import JsonObject
    from stellwerk_cluster.apimachinery.kinds import KindTable, ResourceKind
    from stellwerk_cluster.registry.entries import Entry
    from stellwerk_cluster.registry.store import Store


class StoredObjects(Reader):
    """Objects by kind and name, parsed when they are asked for."""

    def __init__(self, store: Store, kinds: KindTable, clock: Clock) -> None:
        self.store = store
        self.kinds = kinds
        self.clock = clock
        self.plugins = DEFAULT_PLUGINS
        """The admission plugins that are on."""
        self.features: frozenset[str] = frozenset()
        """The feature gates that are on."""

    @override
    def find(self, storage_name: str, namespace: str, name: str) -> JsonObject | None:
        """The present object of that name, or None."""
        entry = self.store.collection(storage_name).get((namespace, name))
        return entry.obj if entry else None

    @override
    def all(self, storage_name: str, namespace: str | None = None) -> Iterable[JsonObject]:
        """All present objects of a resource, parsed one after the other."""
        return (entry.obj for entry in self.store.collection(storage_name).entries(namespace))

    @override
    def enabled(self, plugin: str) -> bool:
        """Whether an admission plugin is on."""
        return plugin in self.plugins

    @override
    def feature(self, gate: str) -> bool:
        """Whether a feature gate is on."""
        return gate in self.features

    @override
    def now(self) -> datetime:
        """The wall-clock time."""
        return self.clock.now()

    def get(self, kind: ResourceKind, namespace: str, name: str) -> Entry:
        """The present version of an object.

        Raises:
            StatusError: it does not exist (404).
        """
        entry = self.store.collection(kind.storage_name).get((namespace, name))
        if entry is None:
            raise not_found(kind, name)
        return entry
