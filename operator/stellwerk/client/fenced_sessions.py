"""The fence for writes that go through an aiohttp session: extenders' bindings, and proxies.

`extender` and `credentials` open such sessions. A session waits for credentials and for a
connection of its own accord, so that a look before the request is not the last one before its bytes
leave. Invariant: a request that names an act is sent in the instant in which the fence was found
open, as far as the session knows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import aiohttp

if TYPE_CHECKING:
    from types import SimpleNamespace

    from stellwerk.client.fence import Fence


def fence_traces(fence: Fence) -> list[aiohttp.TraceConfig]:
    """Return what looks at the fence once more when a request has its connection.

    Requests that only the holder of the lease may send name their act as `trace_request_ctx`.
    """
    if not fence.guarding:
        return []

    async def look(_: aiohttp.ClientSession, request: SimpleNamespace, __: object) -> None:
        if request.trace_request_ctx is not None:
            fence.check(request.trace_request_ctx)

    trace = aiohttp.TraceConfig()
    trace.on_connection_create_end.append(look)
    trace.on_connection_reuseconn.append(look)
    return [trace]
