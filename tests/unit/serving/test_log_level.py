"""The level of the log, read and changed over the operator's port."""

import logging
from collections.abc import AsyncIterator, Iterator

import aiohttp
import pytest

from stellwerk.serving.http import HttpServer, Probes
from stellwerk.serving.log_level import LONGEST_BODY, PATH, log_level_routes


@pytest.fixture
def root_level() -> Iterator[logging.Logger]:
    root = logging.getLogger()
    before = root.level
    yield root
    root.setLevel(before)


@pytest.fixture
async def url() -> AsyncIterator[str]:
    server = HttpServer(Probes(), bytes, list, routes=log_level_routes())
    port = await server.start("127.0.0.1:0")
    yield f"http://127.0.0.1:{port}{PATH}"
    await server.close()


async def put(url: str, body: bytes) -> tuple[int, str]:
    async with aiohttp.ClientSession() as session, session.put(url, data=body) as answer:
        return answer.status, await answer.text()


async def test_a_level_holds_from_the_answer_on(url: str, root_level: logging.Logger) -> None:
    assert await put(url, b"debug") == (200, "the log level is debug from here on\n")
    assert root_level.level == logging.DEBUG
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        assert await answer.text() == "debug\n"


@pytest.mark.parametrize("body", [b"", b"loud", b"\xff\xfe", b"debug" * 1000], ids=len)
async def test_another_body_changes_nothing(
    url: str, root_level: logging.Logger, body: bytes
) -> None:
    root_level.setLevel(logging.WARNING)
    assert (await put(url, body))[0] == (413 if len(body) > LONGEST_BODY else 400)
    assert root_level.level == logging.WARNING
