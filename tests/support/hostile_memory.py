"""The resident memory of a process that hostile objects come to and leave, again and again.

`python -m tests.support.hostile_memory [repetitions] [nodes]` prints MiB after each repetition:
every object of `hostile_objects`, and some full fields, have been created and deleted once more.
"""

import asyncio
import gc
import logging
import sys
from pathlib import Path
from resource import getpagesize
from typing import Final

from stellwerk.garbage import collect_seldom
from stellwerk_kube.json_values import JsonObject
from tests.support.hostile_fields import NODE_FIELDS, POD_FIELDS
from tests.support.hostile_objects import OBJECTS
from tests.support.hostile_world import MIB, LoopMeter, hostile_world

FIELDS: Final = (
    "containers with requests",
    "sidecars with resources of their own",
    "disks",
    "required anti-affinity with keys of their own",
    "required anti-affinity that matches, by hostname",
    "labels",
)


def resident_mib() -> float:
    """Of this process, now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * getpagesize() / MIB


def objects() -> list[JsonObject]:
    """What comes and goes in a repetition."""
    return [
        *(build() for build in OBJECTS.values()),
        *(POD_FIELDS[name].filled(node_name="n0") for name in FIELDS),
        *(NODE_FIELDS[name].filled() for name in ("labels", "images", "allocatable")),
    ]


async def repeat(repetitions: int, nodes: int) -> None:
    """Print the resident memory after each repetition."""
    shown = objects()
    async with hostile_world(nodes) as world:
        gc.collect()
        gc.freeze()
        for _ in range(repetitions):
            for obj in shown:
                await world.live_through(obj, LoopMeter())
            world.messages.clear()
            world.world.notes.events.clear()
            gc.collect()
            sys.stdout.write(f"{resident_mib():.1f}\n")


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    collect_seldom()
    repetitions, nodes_shown = map(int, sys.argv[1:] or ("6", "200"))
    asyncio.run(repeat(repetitions, nodes_shown))
