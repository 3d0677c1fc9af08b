"""docs/security-writers.md has a row for each place that writes to a Kubernetes API, and no other.

A writer is a module with a call of a writing verb of a client. A new one fails here until it has a
row that says how it knows its object, and a test that changes the object before the write.
"""

import ast
import re
from collections.abc import Iterator
from typing import Final

import pytest

from tests.support.repository import ROOT

PAGE: Final = (ROOT / "docs" / "security-writers.md").read_text(encoding="utf-8")
VERBS: Final = frozenset(
    {"bind", "create", "delete", "delete_pod", "patch", "patch_event", "patch_pod_status"}
    | {"replace", "update", "write_event"}
)
_CLIENT: Final = re.compile(r"(^|[._])(client|http|sink|lease|api)$")
"""The end of an expression that is a client of the API, or an extender."""
_FUNCTIONS: Final = frozenset({"annotate", "replace_profile"})
"""Functions that write for a module that calls them."""
_STORES: Final = ("stellwerk/client/kubernetes.py", "stellwerk_cli/demo/")
"""The client itself, and the demo, which fills an embedded cluster of its own in process."""
ROWS: Final = {
    "stellwerk/client/elector.py": "elector",
    "stellwerk/client/event_recorder.py": "event_recorder",
    "stellwerk/client/reading.py": "reading",
    "stellwerk/client/reviews.py": "reviews",
    "stellwerk/plugins/default_binder.py": "default_binder",
    "stellwerk/plugins/dynamic_resources/bind_claim.py": "bind_claim",
    "stellwerk/plugins/gpu_share.py": "gpu_share",
    "stellwerk/plugins/volume_binding/plugin.py": "volume_binding",
    "stellwerk/profiles/default_profile.py": "default_profile",
    "stellwerk/profiles/history.py": "history",
    "stellwerk/profiles/status_writer.py": "status_writer",
    "stellwerk/scheduler/binding_cycle.py": "binding_cycle",
    "stellwerk/scheduler/extenders/profile_extenders.py": "profile_extenders",
    "stellwerk/scheduler/gangs/group_conditions.py": "group_conditions",
    "stellwerk/scheduler/gangs/submit_group_result.py": "submit_group_result",
    "stellwerk/scheduler/preemption.py": "preemption",
    "stellwerk/scheduler/status_reports.py": "status_reports",
    "stellwerk_plugins/numa/faults.py": "numa",
    "stellwerk_plugins/quotas/status.py": "quotas",
    "stellwerk_cli/commands/bench.py": "bench",
    "stellwerk_cli/commands/bench_objects.py": "bench",
    "stellwerk_cli/commands/cluster.py": "cluster",
    "stellwerk_cli/commands/diagnosis/survey.py": "doctor",
    "stellwerk_cli/commands/leave.py": "leave",
    "stellwerk_cli/commands/moving.py": "plan defrag --apply",
    "stellwerk_cli/profile_revisions.py": "profile rollback",
    "stellwerk_cli/promotion.py": "promote",
}
"""Module → the name that a row of the page begins with."""
WITHOUT_TEST: Final = {
    "profile_extenders": "the extender compares",
    "reading": "it passes on reviews, which store nothing, and refuses every write",
    "reviews": "nothing is stored",
    "doctor": "nothing is stored",
    "cluster": "the user names a hollow object",
    "group_conditions": "no uid, and overwritten",
    "quotas": "no uid, and overwritten",
    "numa": "no uid, and overwritten",
}
"""Rows that need no test of their own, and why."""


def writers() -> Iterator[str]:
    """The modules with a call of a writing verb."""
    for package in ("stellwerk", "stellwerk_plugins", "stellwerk_cli"):
        for file in sorted((ROOT / "operator" / package).rglob("*.py")):
            name = str(file.relative_to(ROOT / "operator"))
            if name.startswith(_STORES):
                continue
            if any(map(is_write, ast.walk(ast.parse(file.read_text(encoding="utf-8"))))):
                yield name


def is_write(node: ast.AST) -> bool:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        return node.func.id in _FUNCTIONS
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
        return False
    receiver = ast.unparse(node.func.value)
    return node.func.attr in VERBS and _CLIENT.search(receiver) is not None


def named(table: str) -> set[str]:
    """The names in backticks in the first column of a table's rows."""
    rows = [row.split("|")[1] for row in table.splitlines() if row.startswith("| ")]
    return {name for row in rows for name in re.findall(r"`([^`]+)`", row)}


def tables() -> tuple[str, str]:
    """The tables of writers, and the one of tests."""
    rows, _, tests = PAGE.partition("\n## Tests that change")
    return rows, tests


def test_each_writer_has_a_row_and_each_row_a_writer() -> None:
    assert set(writers()) == ROWS.keys()
    rows, _ = tables()
    also = {"bench --clean", "--cordon", "run", "plan defrag --apply --cordon"}
    assert named(rows) - also == set(ROWS.values())


def test_each_row_has_a_test_that_is_there() -> None:
    _, tests = tables()
    tested = named(tests)
    missing = set(ROWS.values()) - tested - WITHOUT_TEST.keys()
    assert missing == set()
    for path in re.findall(r"`(tests/[\w/]+\.py)`", tests):
        assert (ROOT / path).is_file(), path


@pytest.mark.parametrize("name", sorted(WITHOUT_TEST))
def test_what_needs_no_test_has_a_row(name: str) -> None:
    assert name in named(tables()[0])
