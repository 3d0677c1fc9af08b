"""Collections of the API, page by page: the one place that follows `continue` tokens.

Invariants: a page is asked for when the one before it has been dealt with, or `ahead` while it is,
so that one at a time is in memory, or two; a list ends, also one whose server always names a next
page.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final
from urllib.parse import urlencode

from stellwerk_kube.errors import AnswerTooLarge, NotAList

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

    from stellwerk_kube.json_values import JsonObject


MAX_PAGES_SECONDS: Final = 600.0
"""Time after which a list by pages is given up. An API server keeps the version that the pages show
for five minutes, so that it refuses a later page itself."""
_SMALLER_PAGES: Final = 8
"""Factor by which pages are made smaller after one that was too large to be read."""
_ITEMS_AFTER_ALL: Final = 250
"""Items of a page where all in one was too large."""


async def pages(
    get: Callable[[str], Awaitable[JsonObject]],
    path: str,
    *,
    limit: int,
    ahead: bool = False,
) -> AsyncGenerator[JsonObject]:
    """Give the pages of a collection, each as the API answers it.

    Args:
        get: reads a path of the API.
        path: of the collection, perhaps with a query.
        limit: the most items of a page; 0 asks for all in one.
        ahead: asks for the next page while the caller deals with one: server and caller then work
            at the same time. To be closed by the caller.

    Raises:
        ApiError: what `get` raises; 410 (Gone) where the pages have expired meanwhile. A page that
            is too large is asked for again in smaller ones, down to single items.
        NotAList: the list does not end.
    """
    give_up_at_seconds = asyncio.get_running_loop().time() + MAX_PAGES_SECONDS
    query = {"limit": str(limit)} if limit else {}
    joint = "&" if "?" in path else "?"

    def ask() -> Awaitable[JsonObject]:
        return get(f"{path}{joint}{urlencode(query)}" if query else path)

    following: asyncio.Future[JsonObject] | None = None
    try:
        while True:
            try:
                page = await (ask() if following is None else following)
            except AnswerTooLarge:
                if limit == 1:
                    raise
                following = None
                limit = max(limit // _SMALLER_PAGES, 1) if limit else _ITEMS_AFTER_ALL
                query["limit"] = str(limit)
                continue
            following, token = None, _next_token(path, page, query, give_up_at_seconds)
            if token:
                query["continue"] = token
                following = asyncio.ensure_future(ask()) if ahead else None
            yield page
            if not token:
                return
            del page  # before the next one is there
    finally:
        if following is not None:
            following.cancel()
            await asyncio.wait({following})
            if not following.cancelled():
                following.exception()  # it is known to have been asked for in vain


def _next_token(path: str, page: object, query: dict[str, str], give_up_at_seconds: float) -> str:
    """Return the token of the next page; empty: there is none, or the caller will find no page.

    Raises:
        NotAList: the list does not end.
    """
    metadata = page.get("metadata") if isinstance(page, dict) else None
    token = metadata.get("continue") if isinstance(metadata, dict) else None
    if not isinstance(token, str) or not token:
        return ""
    if token == query.get("continue"):
        raise NotAList(f"list {path}", "a page of the list continues with itself")
    if asyncio.get_running_loop().time() > give_up_at_seconds:
        raise NotAList(f"list {path}", f"the list has not ended after {MAX_PAGES_SECONDS:.0f} s")
    return token


def checked_page(page: object, kind: str) -> JsonObject:
    """Return a page of the list of a kind as it is, once it is known to be one.

    A proxy, or a server that is not quite up, may answer 200 with something else. Taken for a list,
    it would be an empty one, and everything known would be gone. `items: null` is Go's empty list.

    Raises:
        NotAList: of another kind, without items or version, or with items of another kind.
    """
    act = f"list {kind} objects"
    if not isinstance(page, dict) or page.get("kind") != f"{kind}List":
        named = page.get("kind") if isinstance(page, dict) else type(page).__name__
        raise NotAList(act, f"expected a {kind}List, got {named!r:.80}")
    metadata = page.get("metadata")
    if not isinstance(metadata, dict) or not isinstance(metadata.get("resourceVersion"), str):
        raise NotAList(act, "the list has no resourceVersion")
    if "items" not in page or not isinstance(page["items"], list | None):
        raise NotAList(act, "the list has no items")
    for item in page["items"] or ():
        if isinstance(item, dict) and item.get("kind", kind) != kind:
            raise NotAList(act, f"the list has an item of the kind {item['kind']!r:.80}")
    return page
