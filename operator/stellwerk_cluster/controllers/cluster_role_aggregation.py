"""ClusterRoles that sum up others: their rules are those of all roles that a selector chooses.

Invariant: the rules of a sum follow from the roles present, each rule once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from typing_extensions import override

from stellwerk_cluster.apimachinery.objects import labels_of
from stellwerk_cluster.work import Worker, WorkQueue
from stellwerk_kube.selectors import parse_label_selector

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator

    from stellwerk_cluster.registry.api import Api
    from stellwerk_cluster.registry.entries import StoreEvent
    from stellwerk_kube.json_values import JsonObject

_GROUP: Final = "rbac.authorization.k8s.io"
_STORAGE: Final = f"clusterroles.{_GROUP}"


class ClusterRoleAggregationController(Worker):
    """Writes the rules of ClusterRoles that have an aggregationRule."""

    def __init__(self, api: Api) -> None:
        """Follow the ClusterRoles in the store of `api`."""
        self._api = api
        self._kind = api.kinds.resource("clusterroles", _GROUP)
        self.queue = WorkQueue(api.clock)
        # Not those of the collection: asking for that would make the roles of a fresh cluster.
        api.store.listeners.append(self._on_change)
        if _STORAGE in api.store.names():
            self._queue_sums()

    def _on_change(self, storage_name: str, _event: StoreEvent) -> None:
        if storage_name == _STORAGE:
            self._queue_sums()

    def _queue_sums(self) -> None:
        for role in self._api.all(_STORAGE):
            if role.get("aggregationRule"):
                self.queue.add(role["metadata"]["name"])

    @override
    def reconcile(self, key: Hashable) -> None:
        """Bring the rules of one sum up to date."""
        role = self._api.find(_STORAGE, "", str(key))
        if role is None or not role.get("aggregationRule"):
            return
        rules = list(self._summed(role))
        if rules != (role.get("rules") or []):
            self._api.modify(self._kind, ("", str(key)), lambda obj: {**obj, "rules": rules})

    def _summed(self, role: JsonObject) -> Iterator[JsonObject]:
        seen: list[JsonObject] = []
        for selector in role["aggregationRule"].get("clusterRoleSelectors") or ():
            chosen = parse_label_selector(selector)
            for other in self._api.all(_STORAGE):
                same = other["metadata"]["name"] == role["metadata"]["name"]
                if same or chosen is None or not chosen.matches(labels_of(other)):
                    continue
                for rule in other.get("rules") or ():
                    if rule not in seen:
                        seen.append(rule)
                        yield rule
