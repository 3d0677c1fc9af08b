"""What one object may cost at 5,000 nodes: `python -m tests.benchmarks.hostile_objects [--write]`.

Each object is shown three times; the worst stall and what stays in memory after the last time make
a row of the table in docs/reliability-hostile.md, which `--write` puts between its markers.
"""

import argparse
import asyncio
import gc
from pathlib import Path
from typing import Final

import orjson

from stellwerk.garbage import collect_seldom
from tests.support.hostile_objects import BEYOND_THE_GOAL, OBJECTS, hostile_world

PAGE: Final = Path(__file__).parents[2] / "docs" / "reliability-hostile.md"
_BEGIN: Final = "<!-- hostile objects: begin -->"
_END: Final = "<!-- hostile objects: end -->"
_REPETITIONS: Final = 3


async def rows(nodes: int, only: str) -> list[str]:
    """The table, row by row."""
    table = ["| object | KiB | longest stall, ms | left in memory, MiB |", "|---|---|---|---|"]
    for name, build in (OBJECTS | BEYOND_THE_GOAL).items():
        if only not in name:
            continue
        gc.unfreeze()
        async with hostile_world(nodes) as world:
            obj = build()
            # As the operator does once its caches are filled.
            gc.collect()
            gc.freeze()
            costs = [
                await world.cost_of(obj, memory=turn == _REPETITIONS - 1)
                for turn in range(_REPETITIONS)
            ]
        stall = max(cost.stall_ms for cost in costs)
        kib = len(orjson.dumps(obj)) >> 10
        table.append(f"| {name} | {kib:,} | {stall:.0f} | {max(0, costs[-1].left_mib):.1f} |")
        print(table[-1], flush=True)
    return table


def main() -> None:
    """Measure, print, and write if asked to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--only", default="", help="objects whose name contains this")
    parser.add_argument("--write", action="store_true", help="put the table into the page")
    arguments = parser.parse_args()
    collect_seldom()
    table = asyncio.run(rows(arguments.nodes, arguments.only))
    if arguments.write:
        page = PAGE.read_text()
        before, _, rest = page.partition(_BEGIN)
        after = rest.partition(_END)[2]
        PAGE.write_text("\n".join([before + _BEGIN, *table, _END]) + after)


if __name__ == "__main__":
    main()
