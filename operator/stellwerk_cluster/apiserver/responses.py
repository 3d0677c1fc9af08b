"""The HTTP answers that every path can give: documents, rendered objects, no such page.

Called by whatever answers a request. Invariant: a document with an entity tag is sent once to a
client that keeps it.
"""

from __future__ import annotations

import asyncio
import hashlib
from itertools import chain
from typing import TYPE_CHECKING, Final, TypeAlias

import orjson
from aiohttp import web

from stellwerk_cluster.apiserver.rendering import JSON, ResponseFormat

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from stellwerk_kube.json_values import JsonObject

Answer: TypeAlias = web.StreamResponse
_BATCH_BYTES: Final = 1 << 20
"""Bytes of small pieces of an answer that are written as one."""


def json_answer(document: JsonObject, status: int = 200) -> web.Response:
    """The answer that carries a document."""
    return web.Response(body=orjson.dumps(document), status=status, headers={"Content-Type": JSON})


def body_answer(content: bytes, form: ResponseFormat, status: int = 200) -> web.Response:
    """The answer that carries rendered objects, in the media type of their form."""
    return web.Response(body=content, status=status, headers={"Content-Type": form.media_type})


async def streamed_answer(
    request: web.BaseRequest, pieces: Iterable[bytes], form: ResponseFormat
) -> web.StreamResponse:
    """The answer that carries rendered objects; what is large leaves piece by piece.

    Other requests get their turn between the pieces, and a slow client costs one piece of memory.
    """
    batches = _batched(pieces)
    first = next(batches, b"")
    second = next(batches, None)
    if second is None or request.method == "HEAD":
        return body_answer(first, form)
    response = web.StreamResponse(headers={"Content-Type": form.media_type})
    response.enable_chunked_encoding()
    await response.prepare(request)
    for batch in chain((first, second), batches):
        await response.write(batch)
        await asyncio.sleep(0)
    await response.write_eof()
    return response


def _batched(pieces: Iterable[bytes]) -> Iterator[bytes]:
    batch, size = [], 0
    for piece in pieces:
        batch.append(piece)
        size += len(piece)
        if size >= _BATCH_BYTES:
            yield b"".join(batch)
            batch, size = [], 0
    if batch:
        yield b"".join(batch)


def tagged_answer(
    request: web.BaseRequest,
    content: bytes,
    content_type: str = JSON,
    headers: Mapping[str, str] | None = None,
) -> web.Response:
    """The answer that carries a document and its entity tag; 304 to a client that has it."""
    tag = etag(content)
    tagged = {"Etag": tag, **(headers or {})}
    if request.headers.get("If-None-Match") == tag:
        return web.Response(status=304, headers=tagged)
    return web.Response(body=content, headers={"Content-Type": content_type, **tagged})


def etag(document: bytes) -> str:
    """The entity tag of a document, by which clients ask whether theirs is still good."""
    return f'"{hashlib.sha512(document).hexdigest().upper()}"'


class NoPageError(Exception):
    """The path names nothing at all, not even a group."""
