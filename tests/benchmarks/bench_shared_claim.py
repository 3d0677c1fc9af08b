"""Many pods on one claim: `python -m tests.benchmarks.bench_shared_claim`.

As many pods as a claim takes want to be added to it at once, and the API needs 10 ms for a write.
Wall-clock time from the first request until the last pod has its place, and the writes that were
made, the best of three.
"""

import asyncio
import time
from typing import TYPE_CHECKING, cast

from stellwerk.plugins.dynamic_resources.bind_claim import (
    MAX_CONSUMERS,
    ClaimReservations,
    path_of,
)
from stellwerk.scheduler.api_dispatcher import KeyedLocks
from stellwerk_kube.resource_claim import reserved_for
from tests.unit.plugins.dynamic_resources.test_bind_claim import (
    WRITE_SECONDS,
    LocksOnly,
    SlowClient,
)

if TYPE_CHECKING:
    from stellwerk.framework.services import Handle


async def measure() -> tuple[float, int]:
    """(seconds, writes)."""
    client = SlowClient()
    handle = cast("Handle", LocksOnly(client, KeyedLocks().one_at_a_time))
    claim = {
        "metadata": {"name": "shared", "namespace": "default", "uid": "c"},
        "status": {"allocation": {"devices": {"results": []}}},
    }
    stored = client.put(path_of(claim), claim)
    reservations = ClaimReservations(handle)
    consumers = [
        {"resource": "pods", "name": f"p{number}", "uid": f"uid-{number}"}
        for number in range(MAX_CONSUMERS)
    ]
    began_seconds = time.perf_counter()
    await asyncio.gather(*(reservations.add(stored, each) for each in consumers))
    seconds = time.perf_counter() - began_seconds
    assert len(reserved_for(client.objects[path_of(claim)])) == MAX_CONSUMERS
    return seconds, client.written


def main() -> None:
    seconds, writes = min(asyncio.run(measure()) for _ in range(3))
    print(
        f"{MAX_CONSUMERS} pods on one claim, {1000 * WRITE_SECONDS:.0f} ms a write: "
        f"{seconds:.2f} s, {writes} writes"
    )


if __name__ == "__main__":
    main()
