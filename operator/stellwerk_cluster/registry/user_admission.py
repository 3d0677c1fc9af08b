"""Admission by user: the interfaces of what refuses writes and deletions for who asks for them.

`Api` asks them, beside the strategy of the kind, once the object is complete and before it is
validated. Invariant: what the cluster writes itself has no user, and passes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from stellwerk_cluster.apimachinery.kinds import ResourceKind
    from stellwerk_cluster.apimachinery.users import User
    from stellwerk_kube.json_values import JsonObject


class WriteAdmission(Protocol):
    """Changes or refuses an object that is about to be written."""

    def admit(
        self, kind: ResourceKind, obj: JsonObject, old: JsonObject | None, user: User | None
    ) -> None:
        """Let a created (`old` is None) or changed object pass, or raise StatusError."""
        ...


class DeleteAdmission(Protocol):
    """Refuses deletions for who asks for them."""

    def admit_delete(
        self, kind: ResourceKind, obj: JsonObject, user: User | None, *, evicts: bool
    ) -> None:
        """Let an object be deleted, or (`evicts`) a pod be evicted, or raise StatusError."""
        ...
