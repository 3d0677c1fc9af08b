"""The strategy of a kind: the rules of its writes, which the verbs ask for.

`registry.api` calls the functions of a `KindStrategy` in a fixed order: default, prepare, admit,
validate. `registry.kind_strategy` makes it of the tables of `schema`. Invariant: every function may
change the fresh object it is given in place, never the stored one beside it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from stellwerk_cluster.apimachinery.names import subdomain_errors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from datetime import datetime

    from stellwerk_cluster.apimachinery.failures import FieldError
    from stellwerk_cluster.apimachinery.kinds import ResourceKind
    from stellwerk_kube.json_values import JsonObject


class Reader(Protocol):
    """The other objects and the clock, as far as admission may read them."""

    def find(self, storage_name: str, namespace: str, name: str) -> JsonObject | None:
        """The present object of that name, or None."""
        ...

    def all(self, storage_name: str, namespace: str | None = None) -> Iterable[JsonObject]:
        """All present objects of a resource."""
        ...

    def enabled(self, plugin: str) -> bool:
        """Whether an admission plugin is on."""
        ...

    def feature(self, gate: str) -> bool:
        """Whether a feature gate is on."""
        ...

    @property
    def release(self) -> str:
        """The release of Kubernetes that the cluster is."""
        ...

    def now(self) -> datetime:
        """The wall-clock time."""
        ...


def _nothing(*_: object) -> None:
    return None


def _no_errors(*_: object) -> list[FieldError]:
    return []


def _no_warnings(*_: object) -> list[str]:
    return []


@dataclass(frozen=True, slots=True, kw_only=True)
class KindStrategy:
    """The functions that a write of one kind goes through; each has a neutral default."""

    default: Callable[[JsonObject], None] = _nothing
    """Fills in defaults; runs on create and on update."""
    prepare_create: Callable[[JsonObject, Reader], None] = _nothing
    """Clears what a client may not set."""
    admit_create: Callable[[JsonObject, Reader, ResourceKind], None] = _nothing
    """Changes or refuses (raises StatusError) with a look at other objects."""
    check_create: Callable[[JsonObject, Reader, ResourceKind], None] = _nothing
    """Refuses a valid object with a look at other objects (raises StatusError)."""
    validate: Callable[[JsonObject], Iterable[FieldError]] = _no_errors
    prepare_update: Callable[[JsonObject, JsonObject, str], None] = _nothing
    """(new, stored, subresource)"""
    admit_update: Callable[[JsonObject, JsonObject, Reader, ResourceKind], None] = _nothing
    validate_update: Callable[[JsonObject, JsonObject, str], Iterable[FieldError]] = _no_errors
    """(new, stored, subresource)"""
    warn: Callable[[JsonObject, JsonObject | None], Iterable[str]] = _no_warnings
    """(new, stored; None for a new object) What is allowed and deserves a word."""
    metadata_layers: tuple[int, int] = (1, 1)
    """The number of looks that an update takes at changed metadata, and at metadata as such."""
    admit_delete: Callable[[JsonObject, Reader, ResourceKind], None] = _nothing
    name_errors: Callable[[str], Sequence[str]] = subdomain_errors
    status_in_create: bool = False
    """Whether the status of a create body is kept."""
    kept_by_status: tuple[str, ...] | None = None
    """Fields of the metadata that a write of the status leaves alone; None: all of them."""
