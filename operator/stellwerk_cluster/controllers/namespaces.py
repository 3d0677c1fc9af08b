"""The end of a namespace: its pods are deleted, then everything else, then its finalizer.

Invariant: a namespace keeps its finalizer while an object is left in it, and its conditions say
what is left.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from typing_extensions import override

from stellwerk_cluster.apimachinery.objects import EMPTY, is_terminating, meta, with_value
from stellwerk_cluster.controllers.workload import merged_conditions, stamped_conditions
from stellwerk_cluster.registry.deletion import DeleteOptions, delete
from stellwerk_cluster.work import Worker, WorkQueue

if TYPE_CHECKING:
    from collections.abc import Hashable

    from stellwerk_cluster.apimachinery.kinds import ResourceKind
    from stellwerk_cluster.registry.api import Api
    from stellwerk_cluster.registry.entries import StoreEvent
    from stellwerk_kube.json_values import JsonObject

_RECHECK_SECONDS: Final = 0.5
"""Pause before a namespace is looked at again whose objects are not gone yet."""
_NOTHING_WRONG: Final = (
    (
        "NamespaceDeletionDiscoveryFailure",
        "ResourcesDiscovered",
        "All resources successfully discovered",
    ),
    (
        "NamespaceDeletionGroupVersionParsingFailure",
        "ParsedGroupVersions",
        "All legacy kube types successfully parsed",
    ),
    (
        "NamespaceDeletionContentFailure",
        "ContentDeleted",
        "All content successfully deleted, may be waiting on finalization",
    ),
)


class NamespaceController(Worker):
    """Deletes what a terminating namespace holds, and then its finalizer."""

    def __init__(self, api: Api) -> None:
        """Follow the namespaces in the store of `api`."""
        self._api = api
        self._kind = api.kinds.resource("namespaces")
        self.queue = WorkQueue(api.clock)
        namespaces = api.store.collection("namespaces")
        namespaces.listeners.append(self._on_namespace)
        for entry in namespaces.entries():
            if is_terminating(entry.obj):
                self.queue.add(entry.key[1])

    def _on_namespace(self, event: StoreEvent) -> None:
        begins = event.previous is None or not is_terminating(event.previous.obj)
        if is_terminating(event.entry.obj) and begins:
            self.queue.add(event.entry.key[1])

    @override
    def reconcile(self, key: Hashable) -> None:
        """Take one terminating namespace a step further."""
        name = str(key)
        namespace = self._api.find("namespaces", "", name)
        if namespace is None or not is_terminating(namespace):
            return
        left, finalizers = self._delete_content(name)
        if left:
            self._write_conditions(namespace, left, finalizers)
            self.queue.add_after(name, _RECHECK_SECONDS)
        else:
            self._api.modify(
                self._kind, ("", name), lambda obj: with_value(obj, ("spec", "finalizers"), None)
            )

    def _delete_content(self, namespace: str) -> tuple[Counter[str], Counter[str]]:
        """Delete what is in the namespace; what is left by resource, and by finalizer.

        While a pod is left, nothing else goes: a pod must not lose its network policies, secrets
        and quotas while it runs (kube-controller-manager's OrderedNamespaceDeletion, v1.34).
        """
        pods = self._api.kinds.resource("pods")
        left, finalizers = self._delete_kinds(namespace, [pods])
        if not left:
            left, finalizers = self._delete_kinds(namespace, list(self._api.kinds))
        return left, finalizers

    def _delete_kinds(
        self, namespace: str, kinds: list[ResourceKind]
    ) -> tuple[Counter[str], Counter[str]]:
        left: Counter[str] = Counter()
        finalizers: Counter[str] = Counter()
        seen: set[str] = set()
        for kind in kinds:
            if not kind.namespaced or kind.storage_name in seen or "delete" not in kind.verbs:
                continue
            seen.add(kind.storage_name)
            collection = self._api.store.collection(kind.storage_name)
            for entry in collection.entries(namespace):
                if not is_terminating(entry.obj):
                    delete(self._api, kind, entry.key, DeleteOptions(propagation="Background"))
                present = collection.get(entry.key)
                if present is not None:
                    left[f"{kind.plural}.{kind.group}"] += 1
                    finalizers.update(meta(present.obj).get("finalizers") or ())
        return left, finalizers

    def _write_conditions(
        self, namespace: JsonObject, left: Counter[str], finalizers: Counter[str]
    ) -> None:
        status = namespace.get("status") or EMPTY
        wanted = [_condition(*each, holds=False) for each in _NOTHING_WRONG]
        words = ", ".join(f"{name} has {count} resource instances" for name, count in left.items())
        text = f"Some resources are remaining: {words}"
        wanted.append(
            _condition("NamespaceContentRemaining", "SomeResourcesRemain", text, holds=True)
        )
        words = ", ".join(
            f"{name} in {count} resource instances" for name, count in finalizers.items()
        )
        kept = f"Some content in the namespace has finalizers remaining: {words}"
        why = (
            ("SomeFinalizersRemain", kept)
            if finalizers
            else (
                "ContentHasNoFinalizers",
                "All content-preserving finalizers finished",
            )
        )
        wanted.append(_condition("NamespaceFinalizersRemaining", *why, holds=bool(finalizers)))
        before = status.get("conditions") or []
        stamped = stamped_conditions(before, wanted, self._api.now())
        conditions = merged_conditions(before, stamped, ())
        self._api.modify(
            self._kind,
            ("", namespace["metadata"]["name"]),
            lambda obj: with_value(obj, ("status", "conditions"), conditions),
            owned_under="status",
        )


def _condition(type_: str, reason: str, message: str, *, holds: bool) -> JsonObject:
    return {"type": type_, "status": str(holds), "reason": reason, "message": message}
