"""A collection is read page by page, each asked for when it is wanted."""

import asyncio
from contextlib import aclosing
from http import HTTPStatus
from urllib.parse import parse_qs, urlsplit

import pytest

from stellwerk.client.paging import pages
from stellwerk_kube.errors import ApiError
from stellwerk_kube.json_values import JsonObject

PAGES: dict[str, tuple[str, str | None]] = {"": ("ab", "2+/="), "2+/=": ("c", "3"), "3": ("d", "")}
"""Token → items, and the token of the next page."""


class Collection:
    """A collection in three pages, and the paths that were asked for."""

    def __init__(self, *, expires: bool = False) -> None:
        self.asked: list[str] = []
        self._expires = expires

    async def get(self, path: str) -> JsonObject:
        self.asked.append(path)
        token = parse_qs(urlsplit(path).query).get("continue", [""])[0]
        if token and self._expires:
            raise ApiError(f"list {path}", HTTPStatus.GONE, "Expired", "too old")
        items, following = PAGES[token]
        return {"items": list(items), "metadata": {"continue": following}}


async def test_pages_follow_the_token_to_the_end() -> None:
    get = Collection().get
    items = [item async for page in pages(get, "/pods", limit=2) for item in page["items"]]
    assert items == ["a", "b", "c", "d"]


async def test_a_page_is_asked_for_when_the_one_before_is_dealt_with() -> None:
    collection = Collection()
    counts = [len(collection.asked) async for _ in pages(collection.get, "/pods", limit=2)]
    assert counts == [1, 2, 3]


@pytest.mark.parametrize(
    ("path", "limit", "asked"),
    [
        pytest.param("/pods", 5, "/pods?limit=5", id="with a limit"),
        pytest.param("/pods", 0, "/pods", id="without a limit all at once"),
        pytest.param("/pods?a=b", 5, "/pods?a=b&limit=5", id="a query of the path's own is kept"),
    ],
)
async def test_limit_and_query_of_the_first_page(path: str, limit: int, asked: str) -> None:
    collection = Collection()
    _ = [page async for page in pages(collection.get, path, limit=limit)]
    assert collection.asked[0] == asked


async def test_an_answer_without_metadata_is_the_last_page() -> None:
    async def get(_: str) -> JsonObject:
        return {"items": None, "metadata": None}

    assert len([page async for page in pages(get, "/pods", limit=5)]) == 1


async def test_pages_that_expire_half_way_are_an_error_after_those_before() -> None:
    reading = aiter(pages(Collection(expires=True).get, "/pods", limit=2))
    assert (await anext(reading))["items"] == ["a", "b"]
    with pytest.raises(ApiError, match="410"):
        await anext(reading)


async def test_ahead_the_next_page_comes_while_one_is_dealt_with() -> None:
    collection = Collection()
    counts = []
    async for _ in pages(collection.get, "/pods", limit=2, ahead=True):
        await asyncio.sleep(0)
        counts.append(len(collection.asked))
    assert counts == [2, 3, 3]


async def test_ahead_an_error_of_the_next_page_comes_when_one_is_dealt_with() -> None:
    collection, dealt_with = Collection(expires=True), []

    async def read() -> None:
        async for page in pages(collection.get, "/pods", limit=2, ahead=True):
            await asyncio.sleep(0)
            dealt_with.extend(page["items"])

    with pytest.raises(ApiError):
        await read()
    assert dealt_with == ["a", "b"]


@pytest.mark.parametrize("expires", [False, True])
async def test_ahead_a_list_that_is_given_up_leaves_no_request(*, expires: bool) -> None:
    collection = Collection(expires=expires)
    async with aclosing(pages(collection.get, "/pods", limit=2, ahead=True)) as found:
        async for _ in found:
            await asyncio.sleep(0)
            break
    assert asyncio.all_tasks() == {asyncio.current_task()}
