"""A cluster that is only read: every write is refused before a request is made.

`stellwerk record` and the commands that read or follow a cluster in place of an operator
(`stellwerk_cli.reading`) give it to an Operator. Invariant: it sends GET requests, and the question
what the caller may do, which stores nothing; no other request.
"""

from collections.abc import Mapping
from typing import Any, Final

from typing_extensions import override

from stellwerk.client.kubernetes import KubernetesClient
from stellwerk.client.reviews import SELF_ACCESS
from stellwerk.framework.offline import Offline
from stellwerk_kube.json_values import JsonObject

_PAGE_ITEMS: Final = 500
"""Objects on a page of a list, as `ClusterClient.list` asks for them by default."""


class ReadOnlyClient(Offline):
    """The reading half of a client."""

    def __init__(self, client: KubernetesClient) -> None:
        self._client = client

    @override
    async def get(self, path: str) -> JsonObject:
        return await self._client.get(path)

    @override
    async def list(self, path: str, *, limit: int = _PAGE_ITEMS) -> tuple[list[JsonObject], str]:
        return await self._client.list(path, limit=limit)

    @override
    async def create(self, path: str, body: Mapping[str, Any]) -> JsonObject:
        if path != SELF_ACCESS:
            return await super().create(path, body)
        return await self._client.create(path, body)
