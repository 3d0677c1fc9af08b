"""Kinds whose objects are stored nowhere: they are computed when they are read.

`cluster.EmbeddedCluster` adds them, and the HTTP server reads them. Invariant: these objects can be
read, and listed with selectors and in pages; they cannot be watched or written.
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Final, Protocol

from typing_extensions import override

from stellwerk_cluster.apimachinery.failures import method_not_allowed, not_found
from stellwerk_cluster.apimachinery.kinds import computed_kind
from stellwerk_cluster.apiserver.listing import ListPage, list_page
from stellwerk_cluster.registry.entries import Entry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from stellwerk_cluster.apimachinery.kinds import ResourceKind
    from stellwerk_cluster.apimachinery.objects import Key
    from stellwerk_cluster.apiserver.listing import ListOptions
    from stellwerk_cluster.registry.api import Api
    from stellwerk_kube.json_values import JsonObject


class ComputedObjects(Protocol):
    """The objects of one kind, as they are at this moment."""

    def one(self, key: Key) -> JsonObject | None:
        """One object; None: there is none."""
        ...

    def all(self, namespace: str | None) -> Iterable[JsonObject]:
        """Those of a namespace, or (None) all."""
        ...


class ObjectReader:
    """Reads objects of all kinds: stored ones from the store, computed ones where they are made."""

    def __init__(self, api: Api) -> None:
        """Read from the store of `api` what nothing computes."""
        self._api = api
        self._computed: dict[ResourceKind, ComputedObjects] = {}

    def add(self, kind: ResourceKind, objects: ComputedObjects) -> None:
        """Serve a kind whose objects are computed."""
        self._api.kinds.add(kind)
        self._computed[kind] = objects

    def one(self, kind: ResourceKind, key: Key) -> Entry:
        """One object.

        Raises:
            StatusError: it does not exist (404).
        """
        computed = self._computed.get(kind)
        if computed is None:
            self._api.lease_cache.before_read(kind, *key, watch=False)
            return self._api.get(kind, *key)
        found = computed.one(key)
        if found is None:
            raise not_found(kind, key[1])
        return Entry(key, found, self._api.store.revision)

    def check_watch(self, kind: ResourceKind) -> None:
        """Raises StatusError (405) for kinds that cannot be watched."""
        if kind in self._computed:
            raise method_not_allowed()

    def page(self, kind: ResourceKind, options: ListOptions) -> ListPage:
        """The objects that a list shows.

        Raises:
            StatusError: as for `list_page`.
        """
        computed, revision = self._computed.get(kind), self._api.store.revision
        if computed is None:
            return list_page(self._api.store, kind, options)
        selection = options.selection
        entries = (
            Entry((obj["metadata"].get("namespace", ""), obj["metadata"]["name"]), obj, revision)
            for obj in computed.all(selection.namespace)
        )
        return ListPage([each for each in entries if selection.selects(each)], revision)


COMPONENT_STATUSES: Final = computed_kind("ComponentStatus")
SCHEDULER_PORT: Final = 10259
CONTROLLER_MANAGER_PORT: Final = 10257
_CONNECT_SECONDS: Final = 0.2
"""On loopback a port answers or refuses at once."""


def port_health(port: int) -> str:
    """The failure of a component that serves its health on this port; empty: it is well."""
    try:
        socket.create_connection(("127.0.0.1", port), _CONNECT_SECONDS).close()
    except OSError as error:
        why = "connection refused" if isinstance(error, ConnectionRefusedError) else str(error)
        at = f"127.0.0.1:{port}"
        return f'Get "https://{at}/healthz": dial tcp {at}: connect: {why}'
    return ""


class ComponentStatuses(ComputedObjects):
    """The components by name, in the order in which the API server lists them.

    Each look asks anew; what runs in this process is asked itself, what would run beside it by
    whether its port of old takes connections.
    """

    def __init__(self, health: Mapping[str, Callable[[], str]]) -> None:
        """`health` says of each component what is wrong with it; the empty text: nothing."""
        self._health = health

    @override
    def one(self, key: Key) -> JsonObject | None:
        health = self._health.get(key[1])
        return None if health is None else _status(key[1], health())

    @override
    def all(self, namespace: str | None) -> Iterable[JsonObject]:
        return [_status(name, health()) for name, health in self._health.items()]


def _status(name: str, wrong: str) -> JsonObject:
    condition = {"type": "Healthy", "status": str(not wrong), "message": wrong or "ok"}
    return {
        "kind": "ComponentStatus",
        "apiVersion": "v1",
        "metadata": {"name": name},
        "conditions": [condition],
    }
