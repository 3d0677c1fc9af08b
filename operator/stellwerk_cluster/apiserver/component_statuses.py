"""`kubectl get componentstatuses`: whether scheduler, controllers and storage are well.

Served by `cluster.EmbeddedCluster`. Invariant: each look asks anew; what runs in this process is
asked itself, what would run beside it by whether its port of old takes connections.
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Final

from typing_extensions import override

from stellwerk_cluster.apimachinery.kinds import computed_kind
from stellwerk_cluster.apiserver.computed_kinds import ComputedObjects

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from stellwerk.models.json_values import JsonObject
    from stellwerk_cluster.apimachinery.objects import Key

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
    """The components by name, in the order in which the API server lists them."""

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
