"""Label columns: made for keys that some node has, and dropped with the last of them."""

from stellwerk.snapshot.columns import ABSENT
from stellwerk.snapshot.node_labels import NodeLabels
from stellwerk_kube.node import NodeInfo, parse_node
from tests.support.builders import make_node


def node(name: str, **labels: str) -> NodeInfo:
    return parse_node(make_node(name, labels=labels))


def labels_of(*nodes: NodeInfo) -> NodeLabels:
    labels = NodeLabels()
    labels.grow(8)
    for row, each in enumerate(nodes):
        labels.write_node(row, None, each)
    return labels


def test_keys_that_no_node_has_share_a_column_and_a_topology() -> None:
    labels = labels_of(node("n0", disk="ssd"), node("n1"))
    assert labels.column("made-up") is labels.column("also-made-up")
    assert labels.topology("made-up") is labels.topology("also-made-up")
    assert labels.column("made-up").ids.tolist() == [ABSENT] * 8
    assert labels.topology("made-up").domain_count == 0


def test_a_key_that_appears_gets_a_column_and_one_that_leaves_loses_it() -> None:
    bare, labelled = node("n0"), node("n0", disk="ssd")
    labels = labels_of(bare)
    nowhere = labels.topology("disk")
    labels.write_node(0, bare, labelled)
    assert not nowhere.valid
    assert labels.column("disk").values == ["ssd"]
    assert labels.topology("disk").domain_count == 1
    labels.write_node(0, labelled, bare)
    assert labels.column("disk") is labels.column("made-up")


def test_values_that_no_node_has_any_more_are_dropped_in_time() -> None:
    before = node("n0", disk="0")
    labels = labels_of(before)
    for number in range(1, 5000):
        labels.column("disk")
        after = node("n0", disk=str(number))
        labels.write_node(0, before, after)
        before = after
    column = labels.column("disk")
    assert len(column.values) < 2000
    assert column.values[column.ids[0]] == "4999"
