"""An embedded cluster that serves in a thread of its own, for clients that block."""

import asyncio
import http.client
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from stellwerk_cluster.cluster import EmbeddedCluster


@contextmanager
def served(cluster: EmbeddedCluster) -> Iterator[EmbeddedCluster]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    asyncio.run_coroutine_threadsafe(cluster.start(), loop).result(10)
    try:
        yield cluster
    finally:
        asyncio.run_coroutine_threadsafe(cluster.stop(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()


def send(
    url: str, method: str, path: str, content: bytes | None = None, headers: Any = None
) -> tuple[int, bytes]:
    """The status and the body of one answer."""
    status, body, _headers = send_for_headers(url, method, path, content, headers)
    return status, body


def send_for_headers(
    url: str, method: str, path: str, content: bytes | None = None, headers: Any = None
) -> tuple[int, bytes, http.client.HTTPMessage]:
    """The same with the headers of the answer."""
    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=10)
    try:
        connection.request(method, path, content, headers or {})
        answer = connection.getresponse()
        return answer.status, answer.read(), answer.headers
    finally:
        connection.close()
