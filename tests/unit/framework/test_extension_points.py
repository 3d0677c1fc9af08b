"""The table of extension points agrees with the protocols, and says which points a plugin has."""

from typing import Any

import pytest

from stellwerk.framework.extension_points import (
    ENQUEUE_EXTENSIONS,
    NORMALIZE_SCORE,
    POINTS,
    PRE_BIND_PRE_FLIGHT,
    PRE_FILTER_EXTENSIONS,
    UNRESERVE,
    Extensions,
    Point,
    points_of,
)
from stellwerk.plugins.registry import IN_TREE
from stellwerk.profiles.spec.plugin_description import ExtensionPoint

METHODS = (*POINTS, UNRESERVE, PRE_BIND_PRE_FLIGHT)
WAITING = {"permit", "pre_bind", "bind", "post_bind"}


@pytest.mark.parametrize("point", METHODS, ids=lambda point: point.label)
def test_a_point_names_a_method_of_its_protocol(point: Point[Any, Any]) -> None:
    assert point.method in vars(point.protocol)
    assert point.awaited == (point.method in WAITING)


def test_every_point_that_plugins_may_have_is_in_the_table_once() -> None:
    listed = [point.point for point in POINTS]
    assert len(listed) == len(set(listed))
    assert set(listed) == set(ExtensionPoint)


@pytest.mark.parametrize("extensions", [ENQUEUE_EXTENSIONS, PRE_FILTER_EXTENSIONS, NORMALIZE_SCORE])
def test_extensions_are_all_methods_of_their_protocol(extensions: Extensions[Any]) -> None:
    methods = {name for name in vars(extensions.protocol) if not name.startswith("_")}
    assert set(extensions.methods) == methods


@pytest.mark.parametrize("plugin", IN_TREE, ids=lambda plugin: plugin.name)
def test_a_plugin_has_the_points_whose_protocols_it_inherits(plugin: type[Any]) -> None:
    inherited = {point.point for point in POINTS if point.protocol in plugin.__mro__}
    assert points_of(plugin) == inherited


class HalfAnExtension:
    name = "Half"

    def add_pods(self) -> None: ...


def test_half_of_the_extensions_count_for_nothing() -> None:
    assert not PRE_FILTER_EXTENSIONS.implemented_by(HalfAnExtension())
    assert points_of(HalfAnExtension()) == frozenset()
