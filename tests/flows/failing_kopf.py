"""`python -m tests.flows.failing_kopf run …`: the operator with a kopf that ends by itself.

Which no kopf should: one of its tasks raises a second after it was started. The other tasks are
those of the real one.
"""

import asyncio
import sys
from typing import Any

import kopf

from stellwerk_cli.cli import main

_SECONDS = 1.0


def install() -> None:
    """Let whatever starts kopf in this process start this one."""
    spawn = kopf.spawn_tasks

    async def failing(**arguments: Any) -> list[asyncio.Task[Any]]:
        return [*await spawn(**arguments), asyncio.create_task(_fail(), name="kopf's own")]

    setattr(kopf, "spawn_tasks", failing)  # noqa: B010 mypy sees a function


async def _fail() -> None:
    await asyncio.sleep(_SECONDS)
    raise RuntimeError("a defect in kopf")


if __name__ == "__main__":
    install()
    sys.exit(main())
