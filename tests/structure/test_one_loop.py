"""There is one scheduling loop, which names no event loop; the operator's activeQ is asyncio's."""

import ast
import asyncio
from pathlib import Path

from stellwerk.scheduler.scheduler import ActiveQueue
from tests.support.repository import ROOT

OPERATOR = ROOT / "operator"
LOOP = OPERATOR / "stellwerk/world/loop.py"


def named_in(source: str) -> list[str]:
    """The modules whose code holds this text."""
    modules = sorted(OPERATOR.rglob("*.py"))
    return [path.name for path in modules if source in path.read_text(encoding="utf-8")]


def imported_by(path: Path) -> set[str]:
    """The first names of the modules that a module imports."""
    nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    plain = {name.name for node in nodes if isinstance(node, ast.Import) for name in node.names}
    of = {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}
    return {name.partition(".")[0] for name in plain | of}


def test_pods_are_popped_by_the_queue_and_the_loop_alone() -> None:
    assert named_in("pop_from_backoff") == ["scheduling_queue.py", "loop.py"]


def test_the_loop_names_no_event_loop() -> None:
    assert imported_by(LOOP) == {"collections", "stellwerk", "typing"}


async def test_activeq_is_a_priority_queue_of_asyncio() -> None:
    assert isinstance(ActiveQueue(), asyncio.PriorityQueue)
