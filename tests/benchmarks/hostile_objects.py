"""What one object may cost at 5,000 nodes: `python -m tests.benchmarks.hostile_objects [--write]`.

Each object is shown some times; the worst stall of the loop makes a row of a table in
docs/reliability-hostile.md, which `--write` puts between its markers. With `--memory` each is shown
once more under tracemalloc, which takes several times as long.
"""

import argparse
import asyncio
import gc
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import orjson

from stellwerk.garbage import collect_seldom
from stellwerk_kube.json_values import JsonObject
from tests.support.hostile_fields import NODE_FIELDS, OTHER_FIELDS, POD_FIELDS
from tests.support.hostile_objects import OBJECTS
from tests.support.hostile_world import hostile_world

PAGE: Final = Path(__file__).parents[2] / "docs" / "reliability-hostile.md"
_BEGIN: Final = "<!-- hostile objects: begin -->"
_END: Final = "<!-- hostile objects: end -->"


def objects() -> Iterator[tuple[str, JsonObject]]:
    """(what it is, the object) of every row."""
    for name, build in OBJECTS.items():
        yield name, build()
    for name, field in POD_FIELDS.items():
        yield f"a pod's {name}", field.filled()
        if field.bindable:
            yield f"a pod's {name}, bound", field.filled(node_name="n0")
    for name, field in NODE_FIELDS.items():
        yield f"a node's {name}", field.filled()
    for name, field in OTHER_FIELDS.items():
        yield name, field.filled()


async def rows(arguments: argparse.Namespace) -> list[str]:
    """The table, row by row."""
    memory = arguments.memory
    table = [
        f"| object | KiB | longest stall, ms |{' left in memory, MiB |' * memory}",
        f"|---|---|---|{'---|' * memory}",
    ]
    async with hostile_world(arguments.nodes) as world:
        for name, obj in objects():
            if arguments.only not in name:
                continue
            # As the operator does once its caches are filled.
            gc.collect()
            gc.freeze()
            costs = [
                await world.cost_of(obj, memory=memory and turn == arguments.turns - 1)
                for turn in range(arguments.turns)
            ]
            gc.unfreeze()
            stall_ms = max(cost.stall_ms for cost in costs)
            left = f" {max(0, costs[-1].left_mib):.1f} |" if memory else ""
            kib = len(orjson.dumps(obj)) >> 10
            table.append(f"| {name} | {kib:,} | {stall_ms:.0f} |{left}")
            print(table[-1], flush=True)
    return table


def main() -> None:
    """Measure, print, and write if asked to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--only", default="", help="objects whose name contains this")
    parser.add_argument("--turns", type=int, default=2, help="how often each is shown")
    parser.add_argument("--memory", action="store_true", help="trace allocations, too")
    parser.add_argument("--write", action="store_true", help="put the table into the page")
    arguments = parser.parse_args()
    logging.disable(logging.CRITICAL)
    collect_seldom()
    table = asyncio.run(rows(arguments))
    if arguments.write:
        page = PAGE.read_text()
        before, _, rest = page.partition(_BEGIN)
        after = rest.partition(_END)[2]
        PAGE.write_text("\n".join([before + _BEGIN, *table, _END]) + after)


if __name__ == "__main__":
    main()
