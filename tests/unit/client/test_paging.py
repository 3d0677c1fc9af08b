"""A collection is read page by page, each asked for when it is wanted."""

import asyncio
from contextlib import aclosing
from http import HTTPStatus
from urllib.parse import parse_qs, urlsplit

import pytest

from stellwerk.client.paging import MAX_PAGES_SECONDS, pages
from stellwerk_kube.errors import AnswerTooLarge, ApiError, NotAList
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


async def test_pages_that_are_too_large_become_smaller_from_the_same_place_on() -> None:
    asked: list[tuple[str, int]] = []

    async def get(path: str) -> JsonObject:
        query = parse_qs(urlsplit(path).query)
        start, limit = query.get("continue", ["0"])[0], int(query["limit"][0])
        asked.append((start, limit))
        await asyncio.sleep(0)
        if start != "0" and limit > 4:
            raise AnswerTooLarge("list pods", HTTPStatus.OK, "AnswerTooLarge", "too large")
        end = int(start) + limit
        items = list(range(int(start), min(end, 300)))
        return {"items": items, "metadata": {"continue": str(end) if end < 300 else ""}}

    async with aclosing(pages(get, "/pods", limit=256, ahead=True)) as found:
        items = [item async for page in found for item in page["items"]]
    assert items == list(range(300))
    assert asked[:4] == [("0", 256), ("256", 256), ("256", 32), ("256", 4)]


async def test_an_object_that_is_too_large_ends_the_list() -> None:
    async def get(path: str) -> JsonObject:
        raise AnswerTooLarge(path, HTTPStatus.OK, "AnswerTooLarge", "too large")

    with pytest.raises(AnswerTooLarge, match="limit=1:"):
        await anext(pages(get, "/pods", limit=0))


async def test_a_page_that_continues_with_itself_ends_the_list() -> None:
    async def get(_: str) -> JsonObject:
        return {"items": [], "metadata": {"continue": "again"}}

    with pytest.raises(NotAList, match="a page of the list continues with itself"):
        _ = [page async for page in pages(get, "/pods", limit=2)]


@pytest.mark.skips_time
async def test_pages_without_end_are_given_up() -> None:
    numbers = iter(range(10_000))

    async def get(_: str) -> JsonObject:
        await asyncio.sleep(1)
        return {"items": [], "metadata": {"continue": str(next(numbers))}}

    with pytest.raises(NotAList, match="has not ended after 600 s"):
        _ = [page async for page in pages(get, "/pods", limit=2)]
    assert MAX_PAGES_SECONDS <= next(numbers) < MAX_PAGES_SECONDS + 10
