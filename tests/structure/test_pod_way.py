"""The way of one pod stays short. `python -m tests.structure.pod_way` prints it."""

from typing import Final

from tests.structure.pod_way import PodWay, pod_way

MODULES: Final = 32
"""Beside plugins, models, metrics and clock."""
CHANGES: Final = 228
"""Half of the 457 of the tree before the rearrangement (516aad6), by this same count; that tree has
43 modules."""


def test_one_pod_goes_through_at_most_32_modules_and_229_changes() -> None:
    way = pod_way()
    assert len(way.modules_to_read) <= MODULES, "\n".join(way.modules_to_read)
    assert way.changes <= CHANGES, "`make pod-way` prints them"


def test_the_way_is_the_same_each_time() -> None:
    assert pod_way().entered == pod_way().entered


def test_a_way_counts_modules_once_and_changes_each_time() -> None:
    modules = ("app", "app", "clock", "app", "models.pod")
    way = PodWay([(f"stellwerk.{module}", "run") for module in modules])
    assert way.modules == ["stellwerk.app", "stellwerk.clock", "stellwerk.models.pod"]
    assert way.modules_to_read == ["stellwerk.app"]
    assert way.changes == 3
