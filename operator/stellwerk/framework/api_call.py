"""A write that a plugin wants carried out in the cluster, and does not wait for.

Plugins make them, the scheduler carries them out. Invariant: nothing depends on when, or whether,
one is carried out but the object that it is about.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from stellwerk.models.json_values import JsonObject


class ClusterWriter(Protocol):
    """The requests that such a write may make of the API server; a ClusterClient is one."""

    async def get(self, path: str) -> JsonObject:
        """Return an object."""
        ...

    async def replace(self, path: str, body: Mapping[str, Any]) -> JsonObject:
        """Replace an object; returns it as stored."""
        ...

    async def patch(
        self, path: str, body: Mapping[str, Any], *, content_type: str = ...
    ) -> JsonObject:
        """Patch an object; returns it as stored."""
        ...

    async def delete(self, path: str, uid: str) -> None:
        """Delete exactly this object."""
        ...


@dataclass(frozen=True, slots=True)
class APICall:
    """The write, and what it is about."""

    act: str
    """For logs: "deallocate default/gpu"."""
    carry_out: Callable[[ClusterWriter], Awaitable[None]]
