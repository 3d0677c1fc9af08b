"""Entries on troubleshooting: each has one place, and a message leads to the one that is meant."""

import pytest

from stellwerk.models.troubleshooting import entry_of, sections


def test_every_entry_has_a_place_of_its_own() -> None:
    anchors = [entry.anchor for section in sections() for entry in section.entries]
    assert len(anchors) > 100
    assert len(set(anchors)) == len(anchors)


def test_every_row_has_a_cell_for_each_column() -> None:
    for section in sections():
        assert {len(entry.cells) for entry in section.entries} == {len(section.columns)}


@pytest.mark.parametrize(
    ("message", "plugin", "anchor"),
    [
        ("Insufficient cpu", "NodeResourcesFit", "insufficient"),
        ("Too many pods", "NodeResourcesFit", "insufficient"),
        ("Insufficient cpu", "NodePorts", None),
        ("Insufficient cpu", "SomebodysOwn", None),
        ('persistentvolumeclaim "a" not found', "VolumeBinding", "persistentvolumeclaim-not-found"),
        ("waiting for scheduling gates: [a b]", "SchedulingGates", "waiting-for-scheduling-gates"),
        (
            "node(s) didn't match pod topology spread constraints (missing required label)",
            "PodTopologySpread",
            "node-s-didn-t-match-pod-topology-spread-constraints-missing",
        ),
    ],
)
def test_a_message_leads_to_its_entry(message: str, plugin: str, anchor: str | None) -> None:
    entry = entry_of(message, plugin)
    assert (entry.anchor if entry is not None else None) == anchor
