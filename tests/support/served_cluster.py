"""An embedded cluster that serves in a thread of its own, for clients that block."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

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
