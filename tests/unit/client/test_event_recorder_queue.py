"""Which of the events that wait is written next, and which never."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stellwerk.client.event_recorder import EVENTS_PER_WARNING, EventQueue


def taken(queue: EventQueue[str]) -> list[str]:
    return [queue.take() for _ in range(len(queue))]


def test_what_went_well_is_written_before_warnings() -> None:
    queue: EventQueue[str] = EventQueue()
    for event in ("unschedulable 1", "bound 1", "unschedulable 2", "bound 2"):
        queue.put(event, event, warning=event.startswith("unschedulable"))
    assert taken(queue) == ["bound 1", "bound 2", "unschedulable 1", "unschedulable 2"]


def test_warnings_have_a_share_however_much_goes_well() -> None:
    queue: EventQueue[str] = EventQueue()
    for number in range(10 * EVENTS_PER_WARNING):
        queue.put(("bound", number), "bound", warning=False)
        queue.put(("unschedulable", number), "unschedulable", warning=True)
    first = [queue.take() for _ in range(10 * EVENTS_PER_WARNING)]
    assert first.count("unschedulable") == 10


def test_the_newest_about_a_topic_has_the_place_of_the_first() -> None:
    queue: EventQueue[str] = EventQueue()
    assert queue.put("web", "no cpu", warning=True) is None
    queue.put("db", "no disk", warning=True)
    assert queue.put("web", "no memory", warning=True) == "no cpu"
    assert queue.holds("web")
    assert taken(queue) == ["no memory", "no disk"]
    assert not queue.holds("web")


def test_namespaces_take_turns_in_each_line() -> None:
    queue: EventQueue[str] = EventQueue()
    for number in range(100):
        queue.put(number, f"many {number}", warning=True, namespace="many")
    queue.put("b", "other", warning=True, namespace="other")
    queue.put("c", "third", warning=True, namespace="third")
    assert taken(queue)[:5] == ["many 0", "other", "third", "many 1", "many 2"]


def test_a_full_queue_gives_up_the_newest_of_the_namespace_that_has_most() -> None:
    queue: EventQueue[str] = EventQueue()
    for number in range(3):
        queue.put(number, f"many {number}", warning=number > 0, namespace="many")
    assert queue.displace("many") is None
    assert queue.displace("other") == "many 2"
    queue.put("b", "other", warning=False, namespace="other")
    assert queue.displace("other") is None  # it has one, and the one with most two
    assert not queue.holds(2)
    assert taken(queue) == ["many 0", "other", "many 1"]
    queue.put("b", "other", warning=False, namespace="other")
    assert queue.displace("third") is None


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.booleans()), max_size=60))
def test_the_one_with_most_is_found_whatever_came_and_went(
    steps: list[tuple[str, bool]],
) -> None:
    queue: EventQueue[str] = EventQueue()
    waiting: list[str] = []
    for number, (namespace, comes) in enumerate(steps):
        if comes or not waiting:
            queue.put(number, namespace, warning=True, namespace=namespace)
            waiting.append(namespace)
        else:
            waiting.remove(queue.take())
        counts = Counter(waiting)
        displaced = queue.displace("other")
        most = max(counts.values(), default=0)
        assert (displaced is not None) == (most > 1)
        if displaced is not None:
            assert counts[displaced] == most
            waiting.remove(displaced)
    assert len(queue) == len(waiting)


def test_nothing_comes_out_of_an_empty_one() -> None:
    with pytest.raises(KeyError):
        EventQueue[str]().take()
