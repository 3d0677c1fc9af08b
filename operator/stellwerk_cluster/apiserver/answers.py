"""The HTTP answers that every path can give: documents, rendered objects, no such page.

Called by whatever answers a request. Invariant: a document with an entity tag is sent once to a
client that keeps it.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, TypeAlias

import orjson
from aiohttp import web

from stellwerk_cluster.apiserver.rendering import JSON, Form

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stellwerk.models.json_values import JsonObject

Answer: TypeAlias = web.StreamResponse


def json_answer(document: JsonObject, status: int = 200) -> web.Response:
    """The answer that carries a document."""
    return web.Response(body=orjson.dumps(document), status=status, headers={"Content-Type": JSON})


def body_answer(content: bytes, form: Form, status: int = 200) -> web.Response:
    """The answer that carries rendered objects, in the media type of their form."""
    return web.Response(body=content, status=status, headers={"Content-Type": form.media_type})


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


def no_page() -> web.Response:
    """The answer to a path that names nothing at all, not even a group."""
    return web.Response(text="404 page not found\n", status=404)
