"""Pods that no exporter has reported yet: what counts, and what a trial may not change."""

import pytest

from stellwerk_plugins.numa.topology import Topology, parse_topology
from stellwerk_plugins.numa.zone_book import ZoneBook
from tests.support.builders import pod_info


@pytest.fixture
def book() -> ZoneBook:
    """A book of the profile `default-scheduler` that has been looked at, with a pod on row 0."""
    book = ZoneBook()
    book.own_profiles.add("default-scheduler")
    book.count_pod(0, pod_info("before", cpu="1"), 1)
    book.look()
    return book


def test_pods_that_were_there_are_in_the_exporters_numbers(book: ZoneBook) -> None:
    assert book.taken(0) == {}


def test_a_pod_counts_from_its_decision_on(book: ZoneBook) -> None:
    book.count_pod(0, pod_info("web", cpu="2"), 1)
    assert book.taken(0) == {"cpu": 2 * 10**9}


def test_a_record_that_is_replaced_stays_what_it_was(book: ZoneBook) -> None:
    for name in ("before", "web"):
        pod = pod_info(name, cpu="1")
        if name == "web":
            book.count_pod(0, pod, 1)
            book.look()
        book.count_pod(0, pod, -1)
        book.count_pod(0, pod, 1)
    assert book.taken(0) == {"cpu": 10**9}


def test_pods_of_other_schedulers_make_a_node_dirty_until_it_is_synchronised(
    book: ZoneBook,
) -> None:
    book.count_pod(0, pod_info("other", cpu="1", scheduler_name="other"), 1)
    book.look()
    assert book.is_dirty(0, Topology(), "All")
    assert not book.is_dirty(0, Topology(), "None")
    assert not book.is_dirty(0, Topology(), "OnlyExclusiveResources"), "it takes no whole core"
    book.synchronise(0, Topology())
    assert not book.is_dirty(0, Topology(), "All")


def test_a_fork_is_apart(book: ZoneBook) -> None:
    fork = book.fork()
    fork.count_pod(0, pod_info("web", cpu="2"), 1)
    assert book.taken(0) == {}


def test_zones_that_make_no_sense_are_left_out_and_named() -> None:
    zone = {"type": "Node", "resources": [{"name": "cpu", "available": "4"}]}
    topology = parse_topology(
        {
            "zones": [
                {**zone, "name": "node-64"},
                {**zone, "name": "node-0"},
                {**zone, "name": "node-0"},
                {**zone, "name": "numa-1"},
                {
                    "type": "Node",
                    "name": "node-2",
                    "resources": [{"name": "cpu", "available": "x"}],
                },
                {
                    "type": "Node",
                    "name": "node-3",
                    "resources": [{"name": "cpu", "available": "-1"}],
                },
                "zone",
            ],
            "attributes": ["x", {"name": "topologyManagerMaxNUMANodes", "value": "9" * 30}],
        }
    )
    assert [zone.number for zone in topology.zones] == [0, 2, 3]
    assert topology.zones[2].available == {"cpu": 0}
    assert len(topology.faults) == 5
    assert topology.most_zones == 8
