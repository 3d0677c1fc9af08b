"""Collections of the API, page by page: the one place that follows `continue` tokens.

Invariant: a page is asked for when the one before it has been dealt with, so that one at a time is
in memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlencode

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from stellwerk.models.json_values import JsonObject


async def pages(
    get: Callable[[str], Awaitable[JsonObject]], path: str, *, limit: int
) -> AsyncIterator[JsonObject]:
    """Give the pages of a collection, each as the API answers it.

    Args:
        get: reads a path of the API.
        path: of the collection, perhaps with a query.
        limit: the most items of a page; 0 asks for all in one.

    Raises:
        ApiError: what `get` raises; 410 (Gone) where the pages have expired meanwhile.
    """
    query = {"limit": str(limit)} if limit else {}
    joint = "&" if "?" in path else "?"
    while True:
        page = await get(f"{path}{joint}{urlencode(query)}" if query else path)
        yield page
        token = (page.get("metadata") or {}).get("continue")
        if not token:
            return
        query["continue"] = token
