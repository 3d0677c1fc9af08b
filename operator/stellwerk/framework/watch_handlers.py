"""The protocol of watch events: one method for pods, one for nodes, one for all other kinds.

`handlers.delivery.handle_event` calls it for every event, `scheduler.event_handlers` implements it.
Invariant: a call returns when the cache and the queue know of the change.
"""

from dataclasses import dataclass
from typing import Protocol

from stellwerk_kube.json_values import JsonObject


@dataclass(frozen=True, slots=True)
class Lack:
    """The reason for which the objects of a kind cannot be seen."""

    reason: str
    unreadable: bool = False
    """The API serves the kind, in no version that this version of Stellwerk reads."""


class Identified(Protocol):
    """The identity and version of an object, as far as deliveries ask for them."""

    @property
    def namespace(self) -> str | None: ...

    @property
    def name(self) -> str: ...

    @property
    def resource_version(self) -> str: ...


class WatchHandlers(Protocol):
    """The takers of watch events; `event_type` is kopf's: None for the items of a list.

    A synthetic DELETED (the object vanished while a watch was broken) carries only metadata.
    """

    def on_pod(self, event_type: str | None, obj: JsonObject) -> Identified | None:
        """Take a pod; returns its record, if it is on a node and so has one that is kept.

        The delivery remembers that in place of an identity of its own: 80 bytes less for each pod.
        """
        ...

    def on_node(self, event_type: str | None, obj: JsonObject) -> None: ...

    def on_object(self, kind: str, event_type: str | None, obj: JsonObject) -> None: ...

    def prepare(self, kind: str, obj: JsonObject) -> object:  # noqa: ARG002 - a default
        """Do in a thread what takes long of handling a large object; the result is kept until then.

        What events say must not change by it.
        """
        return None

    def on_synced(self, kind: str) -> None:
        """The first list of the kind is complete (or the kind is absent, and so empty)."""
        ...

    def on_unlisted(self, kind: str, state: str) -> None:  # noqa: ARG002 - a default
        """The first list of the kind is not complete: how far it is, or what has ended it."""
        return

    def on_lack(self, kind: str, lack: Lack | None) -> None:  # noqa: ARG002 - a default
        """The kind cannot be watched, for this reason; None: it can be, and was listed."""
        return

    def on_version(self, kind: str, version: str) -> None:  # noqa: ARG002 - a default
        """The kind was listed in this group and version, which is in use from here on."""
        return

    def on_relist(self, kind: str, *, applying: bool) -> None:  # noqa: ARG002 - a default
        """A later list of the kind begins to be applied, or is through: nothing is decided between.

        The calls come in pairs.
        """
        return
