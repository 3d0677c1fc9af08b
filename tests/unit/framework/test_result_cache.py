"""How much the columns that are kept between attempts may take."""

from collections.abc import Iterator

from stellwerk.framework.result_cache import ResultCache
from stellwerk.framework.types import CycleState
from stellwerk.models.pod import parse_pod
from stellwerk.models.scheduling_spec import SchedulingSpec
from stellwerk.plugins.node_unschedulable import NodeUnschedulable
from stellwerk.snapshot.columns import VerdictColumn
from stellwerk.snapshot.snapshot import NodeView, Snapshot
from stellwerk_kube.node import parse_node
from tests.support.builders import make_cache, make_node, make_pod
from tests.support.plugin_runs import make_plugin

FEW = 8
ROOM_BYTES = 1 << 20


def specs(entries: int) -> Iterator[SchedulingSpec]:
    """Different ones, each with so many entries in its nodeSelector."""
    for number in range(FEW):
        selector = {f"key-{number}-{entry}": "value" for entry in range(entries)}
        yield parse_pod(make_pod(f"p-{number}", nodeSelector=selector)).spec


def kept(entries: int) -> int:
    """How many of a few specs are found again, the oldest first."""
    cache = ResultCache(Snapshot(), ROOM_BYTES)
    first = {spec: cache.columns(spec) for spec in specs(entries)}
    # The newest first: to look for one that is gone makes it anew, and drops another.
    return sum(cache.columns(spec) is columns for spec, columns in reversed(first.items()))


def test_specs_count_with_their_columns() -> None:
    assert kept(entries=1) == FEW
    assert kept(entries=1_500) < FEW


def found_again(cache: ResultCache, snapshot: Snapshot, names: range) -> list[bool]:
    """Ask for keys as one pod each, the newest first; whether their columns were there."""
    there = []
    for name in reversed(names):
        snapshot.usage_changes.append(0)
        columns = cache.columns(name)
        there.append(columns.kept)
    return there


def test_keys_that_no_second_pod_asks_for_have_a_quarter_of_the_room_and_push_nothing_out() -> None:
    snapshot = make_cache(make_node(f"n{number}") for number in range(100)).snapshot
    room = 40 * 40 * snapshot.size  # for forty keys, ten of them new
    cache = ResultCache(snapshot, room)
    usual = range(20)
    for few in (usual[:10], usual[10:]):
        found_again(cache, snapshot, few)
        assert all(found_again(cache, snapshot, few))
    for name in range(1000, 1200):
        snapshot.usage_changes.append(0)
        cache.columns(name)
    assert all(found_again(cache, snapshot, usual))
    assert sum(found_again(cache, snapshot, range(1000, 1200))) == 10


def test_nothing_is_kept_for_the_first_pod_of_a_spec() -> None:
    cache = make_cache(make_node(f"n{number}") for number in range(3))
    plugin, results = make_plugin(NodeUnschedulable), ResultCache(cache.snapshot)
    asked: list[int] = []

    def fits(name: str) -> list[bool]:
        pod = parse_pod(make_pod(name))

        def ask(_: int, nodes: NodeView) -> VerdictColumn:
            asked.append(nodes.size)
            return plugin.filter(CycleState(), pod, nodes).codes

        return [bool(fit) for fit in results.fits(pod, [plugin], ask)]

    assert fits("first") == fits("second") == fits("third") == [True] * 3
    assert asked == [3, 3]
    cache.set_node(parse_node(make_node("n1", unschedulable=True)))
    cache.update_snapshot()
    assert fits("fourth") == [True, False, True]
    assert asked == [3, 3, 1]
