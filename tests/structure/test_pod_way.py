"""The way of one pod stays short. `python -m tests.structure.pod_way` prints it."""

from typing import Final

import pytest

from tests.structure.pod_way import PodWay, pod_way

MODULES: Final = 34
"""Beside plugins, models, metrics and `stellwerk_kube`; docs/the-way-of-a-pod.md numbers them.

There were 24 while six modules held what stands in sixteen now: the phases of the framework, the
parts of the scheduling queue, the reflector, the limiter of requests, the tasks of bindings and the
throttle.
"""
CHANGES: Final = 255
"""It is 241 on an idle machine. A machine that holds an attempt up adds up to twelve: the throttle
counts the attempt, tasks go on in another order. It was 244 when the modules were 24, and 279 when
they had just been parted."""


@pytest.fixture(scope="module")
def way() -> PodWay:
    return pod_way()


def test_one_pod_goes_through_few_modules_and_changes_between_them_seldom(way: PodWay) -> None:
    assert len(way.modules_to_read) <= MODULES, "\n".join(way.modules_to_read)
    assert way.changes <= CHANGES, "`make pod-way` prints them"


def test_it_begins_at_the_stream_and_ends_at_the_socket(way: PodWay) -> None:
    assert way.modules[0] == "stellwerk.handlers.watching"
    assert "stellwerk.client.connection" in way.modules
    assert way.entered[-1][0].startswith("stellwerk.client.")


def test_the_limits_of_ports_cost_a_pod_nothing(way: PodWay) -> None:
    assert not [module for module in way.modules if module.startswith("stellwerk_kube.listening")]


def test_the_way_is_the_same_each_time(way: PodWay) -> None:
    assert sorted(pod_way().modules) == sorted(way.modules)


def test_a_way_counts_modules_once_and_changes_each_time() -> None:
    modules = (
        "stellwerk.app",
        "stellwerk.app",
        "stellwerk_kube.clock",
        "stellwerk.app",
        "stellwerk.models.pod",
    )
    way = PodWay([(module, "run") for module in modules])
    assert way.modules == ["stellwerk.app", "stellwerk_kube.clock", "stellwerk.models.pod"]
    assert way.modules_to_read == ["stellwerk.app"]
    assert way.changes == 3
