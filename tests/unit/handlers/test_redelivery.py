"""What was read goes through the memory of the watches, so that later events are understood."""

from typing import Any
from unittest.mock import Mock

from stellwerk.framework.watch_handlers import WatchHandlers
from stellwerk.handlers.delivery import Delivery
from stellwerk.handlers.redelivery import Redelivery
from stellwerk.handlers.watched import WATCHED
from stellwerk.metrics import Metrics

WEB = {"metadata": {"uid": "u1", "namespace": "default", "name": "web", "resourceVersion": "7"}}


class Bench:
    """A delivery of pods, and the way into it."""

    def __init__(self) -> None:
        events = Mock(WatchHandlers)
        self.delivery = Delivery(WATCHED[0], events, Metrics(), lambda *_: None)
        self.redelivery = Redelivery()
        self.redelivery.attach([self.delivery])
        self._events = events

    def seen(self) -> list[tuple[Any, str]]:
        """(event type, uid) of what the handlers were given."""
        calls = self._events.on_pod.mock_calls
        return [(call.args[0], call.args[1]["metadata"]["uid"]) for call in calls]


def test_a_missed_object_is_known_from_then_on() -> None:
    bench = Bench()
    bench.redelivery.put("Pod", WEB)
    bench.delivery.deliver("DELETED", WEB)
    assert bench.seen() == [("ADDED", "u1"), ("DELETED", "u1")]


def test_an_object_is_passed_on_again_in_the_version_that_is_known() -> None:
    bench = Bench()
    bench.delivery.deliver("ADDED", WEB)
    bench.redelivery.put("Pod", WEB)
    bench.delivery.deliver("MODIFIED", WEB)
    assert bench.seen() == [("ADDED", "u1"), ("MODIFIED", "u1")]


def test_a_deletion_is_passed_on_whether_the_object_was_known_or_not() -> None:
    bench = Bench()
    bench.delivery.deliver("ADDED", WEB)
    bench.redelivery.gone("Pod", "u1", "default", "web")
    bench.redelivery.gone("Pod", "u2", "default", "other")
    assert bench.seen() == [("ADDED", "u1"), ("DELETED", "u1"), ("DELETED", "u2")]
    assert bench.delivery.known == 0
