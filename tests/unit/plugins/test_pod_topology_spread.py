"""PodTopologySpread on small clusters: documented examples, and rules that are easily missed."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pytest

from stellwerk.backend.object_store import IndexedObjectStore
from stellwerk.framework.interface import SKIP_FILTER
from stellwerk.framework.types import SKIP, Code, CycleState
from stellwerk.models.pod import PodInfo, parse_pod
from stellwerk.plugins.pod_topology_spread import PodTopologySpread
from stellwerk.profiles.spec.plugin_args import PodTopologySpreadArgs
from stellwerk.snapshot.snapshot import NodeView
from stellwerk_kube.clock import VirtualClock
from stellwerk_kube.json_values import JsonObject
from stellwerk_kube.node import parse_node
from tests.support.builders import make_cache, make_node, make_pod, pod_info
from tests.support.plugin_runs import PluginHandle, make_plugin, raw_scores, reasons_on, statuses

if TYPE_CHECKING:
    from stellwerk.framework.services import Handle

SKEWED = "node(s) didn't match pod topology spread constraints"
NO_LABEL = f"{SKEWED} (missing required label)"
FOO = {"matchLabels": {"foo": "bar"}}


def node(name: str, zone: str | None = None, **fields: Any) -> JsonObject:
    labels = {"node": name, **({"zone": zone} if zone else {}), **fields.pop("labels", {})}
    return make_node(name, labels=labels, **fields)


def placed(*node_names: str, **fields: Any) -> list[JsonObject]:
    """One pod of the group on each of these nodes."""
    labels = {"foo": "bar"}
    return [
        make_pod(f"{name}-{index}", labels=labels, node_name=name, **fields)
        for index, name in enumerate(node_names)
    ]


def constraint(key: str, max_skew: int = 1, **fields: Any) -> JsonObject:
    return {
        "maxSkew": max_skew,
        "topologyKey": key,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": FOO,
        **fields,
    }


def mypod(*constraints: JsonObject, **fields: Any) -> PodInfo:
    fields = {"labels": {"foo": "bar"}, **fields}
    return pod_info("mypod", topologySpreadConstraints=list(constraints), **fields)


def fitting(pod: PodInfo, nodes: Sequence[JsonObject], pods: Sequence[JsonObject]) -> set[str]:
    rejected = reasons_on(PodTopologySpread, pod, nodes, pods)
    return {each["metadata"]["name"] for each in nodes} - rejected.keys()


FOUR = [node("node1", "A"), node("node2", "A"), node("node3", "B"), node("node4", "B")]
THREE = FOUR[:3]
NODE5 = node("node5", "C")
ON_123 = placed("node1", "node2", "node3")
CONFLICT = placed("node1", "node1", "node2", "node3", "node3")
NOT_IN_C = {
    "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [
                {"matchExpressions": [{"key": "zone", "operator": "NotIn", "values": ["C"]}]}
            ]
        }
    }
}


@pytest.mark.parametrize(
    ("pod", "nodes", "pods", "expected"),
    [
        pytest.param(
            mypod(constraint("zone")),
            [node("a", "A"), node("b", "B"), node("c", "C")],
            placed("a", "a", "b", "b", "c"),
            {"c"},
            id="of domains with 2, 2 and 1 pods only the third fits",
        ),
        pytest.param(
            mypod(constraint("zone")), FOUR, ON_123, {"node3", "node4"}, id="spread over zones"
        ),
        pytest.param(
            mypod(constraint("zone", 2)),
            FOUR,
            ON_123,
            {"node1", "node2", "node3", "node4"},
            id="maxSkew 2 lets all zones in",
        ),
        pytest.param(mypod(constraint("node")), FOUR, ON_123, {"node4"}, id="spread over nodes"),
        pytest.param(
            mypod(constraint("zone"), constraint("node")),
            FOUR,
            ON_123,
            {"node4"},
            id="two constraints are both kept",
        ),
        pytest.param(
            mypod(constraint("zone")), THREE, CONFLICT, {"node3"}, id="conflict: zone wants node3"
        ),
        pytest.param(
            mypod(constraint("node")), THREE, CONFLICT, {"node2"}, id="conflict: node wants node2"
        ),
        pytest.param(
            mypod(constraint("zone"), constraint("node")),
            THREE,
            CONFLICT,
            set(),
            id="conflict: both together fit nowhere",
        ),
        pytest.param(
            mypod(constraint("zone", 2), constraint("node")),
            THREE,
            CONFLICT,
            {"node2"},
            id="conflict: a zone maxSkew of 2 solves it",
        ),
        pytest.param(
            mypod(constraint("zone"), constraint("node", 2)),
            THREE,
            CONFLICT,
            {"node3"},
            id="conflict: a node maxSkew of 2 solves it",
        ),
        pytest.param(
            mypod(constraint("zone"), constraint("node")),
            THREE,
            placed("node1", "node1", "node2", "node3"),
            {"node3"},
            id="conflict: deleting a pod solves it",
        ),
        pytest.param(
            mypod(constraint("zone")),
            [*FOUR, NODE5],
            ON_123,
            {"node5"},
            id="an empty zone takes the pod",
        ),
        pytest.param(
            mypod(constraint("zone"), affinity=NOT_IN_C),
            [*FOUR, NODE5],
            ON_123,
            {"node3", "node4", "node5"},
            id="a zone that node affinity excludes is no domain (NodeAffinity rejects node5)",
        ),
        pytest.param(
            mypod(constraint("zone")),
            [node("node1"), *FOUR[1:]],
            ON_123,
            {"node2", "node3", "node4"},
            id="a node without the label takes no pod and its pods do not count",
        ),
        pytest.param(
            mypod(constraint("zone")),
            [node("node1"), *FOUR[1:]],
            placed("node1", "node1", "node3"),
            {"node2"},
            id="pods on a node without the label leave its zone empty",
        ),
        pytest.param(
            mypod(constraint("zone")),
            [*FOUR, node("node5", labels={"zone-typo": "C"})],
            ON_123,
            {"node3", "node4"},
            id="a misspelt label makes no domain",
        ),
        pytest.param(
            mypod(constraint("zone"), labels={"foo": "other"}),
            FOUR,
            ON_123,
            {"node1", "node2", "node3", "node4"},
            id="a pod that its own selector does not match adds nothing",
        ),
        pytest.param(
            mypod(constraint("zone", minDomains=3)),
            FOUR,
            placed("node1", "node3"),
            set(),
            id="with fewer domains than minDomains the minimum is 0",
        ),
        pytest.param(
            mypod(constraint("zone", minDomains=2)),
            FOUR,
            placed("node1", "node3"),
            {"node1", "node2", "node3", "node4"},
            id="with minDomains domains the emptiest one is the minimum",
        ),
        pytest.param(
            mypod(constraint("zone")),
            FOUR,
            [
                *ON_123[1:],
                make_pod("leaving", labels={"foo": "bar"}, node_name="node1")
                | {
                    "metadata": {
                        "name": "leaving",
                        "labels": {"foo": "bar"},
                        "deletionTimestamp": "2026-01-01T00:00:00Z",
                    }
                },
            ],
            {"node1", "node2", "node3", "node4"},
            id="terminating pods do not count",
        ),
        pytest.param(
            mypod(constraint("zone")),
            FOUR,
            placed("node1", "node2", "node3", namespace="other"),
            {"node1", "node2", "node3", "node4"},
            id="pods of other namespaces do not count",
        ),
        pytest.param(
            mypod(constraint("zone", labelSelector={})),
            FOUR,
            ON_123,
            {"node1", "node2", "node3", "node4"},
            id="an empty selector counts no placed pod",
        ),
        pytest.param(
            mypod(constraint("zone", matchLabelKeys=["rev"]), labels={"foo": "bar", "rev": "2"}),
            FOUR,
            ON_123,
            {"node1", "node2", "node3", "node4"},
            id="matchLabelKeys spreads each revision by itself",
        ),
    ],
)
def test_the_nodes_that_fit(
    pod: PodInfo, nodes: list[JsonObject], pods: list[JsonObject], expected: set[str]
) -> None:
    assert fitting(pod, nodes, pods) == expected


TAINTED = node("node5", "C", taints=[{"key": "k", "effect": "NoSchedule"}])


@pytest.mark.parametrize(
    ("policies", "expected"),
    [
        pytest.param({}, {"node5"}, id="taints are ignored by default"),
        pytest.param({"nodeTaintsPolicy": "Ignore"}, {"node5"}, id="ignored when told so"),
        pytest.param(
            {"nodeTaintsPolicy": "Honor"}, {"node3", "node4", "node5"}, id="honoured when told so"
        ),
    ],
)
def test_node_taints_policy(policies: JsonObject, expected: set[str]) -> None:
    assert fitting(mypod(constraint("zone", **policies)), [*FOUR, TAINTED], ON_123) == expected


def test_node_affinity_policy_ignore_counts_nodes_that_the_pod_cannot_use() -> None:
    ignoring = mypod(constraint("zone", nodeAffinityPolicy="Ignore"), affinity=NOT_IN_C)
    assert fitting(ignoring, [*FOUR, NODE5], ON_123) == {"node5"}


def test_the_two_reasons_and_their_codes() -> None:
    cache = make_cache([*FOUR, node("node5")], ON_123)
    plugin = make_plugin(PodTopologySpread, cache.snapshot)
    found = statuses(plugin, mypod(constraint("zone")), NodeView(cache.snapshot))
    assert {name: (status.code, status.reasons) for name, status in found.items()} == {
        "node1": (Code.UNSCHEDULABLE, (SKEWED,)),
        "node2": (Code.UNSCHEDULABLE, (SKEWED,)),
        "node5": (Code.UNSCHEDULABLE_AND_UNRESOLVABLE, (NO_LABEL,)),
    }


def test_prefilter_skips_pods_without_hard_constraints() -> None:
    cache = make_cache(FOUR)
    plugin = make_plugin(PodTopologySpread, cache.snapshot)
    pod = mypod(constraint("zone", whenUnsatisfiable="ScheduleAnyway"))
    result = plugin.pre_filter(CycleState(), pod, NodeView(cache.snapshot))
    assert result.status.code is Code.SKIP


def test_an_overlay_is_one_hypothesis_per_node() -> None:
    cache = make_cache(FOUR, ON_123)
    plugin = make_plugin(PodTopologySpread, cache.snapshot)
    pod, state = mypod(constraint("zone")), CycleState()
    plugin.pre_filter(state, pod, NodeView(cache.snapshot))
    view = NodeView(cache.snapshot, np.arange(4)).with_overlay()
    assert view.overlay is not None
    on_node1 = parse_pod(ON_123[0])
    view.overlay.remove_pod(0, on_node1)
    assert plugin.filter(state, pod, view).codes.tolist() == [0, 1, 0, 0]
    view.overlay.add_pod(0, on_node1)
    view.overlay.remove_pod(2, parse_pod(ON_123[2]))
    assert plugin.filter(state, pod, view).codes.tolist() == [1, 1, 0, 0]


def test_an_overlay_that_fills_the_emptiest_domain_raises_the_minimum() -> None:
    cache = make_cache(FOUR, ON_123)
    plugin = make_plugin(PodTopologySpread, cache.snapshot)
    pod, state = mypod(constraint("zone")), CycleState()
    plugin.pre_filter(state, pod, NodeView(cache.snapshot))
    view = NodeView(cache.snapshot, np.arange(4)).with_overlay()
    assert view.overlay is not None
    view.overlay.add_pod(2, parse_pod(ON_123[0]))
    # With one pod more on node3 both zones have two; on node4 nothing has changed.
    assert plugin.filter(state, pod, view).codes.tolist() == [1, 1, 0, 0]
    view.overlay.add_pod(2, parse_pod(ON_123[1]))
    assert plugin.filter(state, pod, view).codes.tolist() == [1, 1, 1, 0]


def test_eligible_nodes_follow_their_taints() -> None:
    always_tainted = node("node6", "D", taints=[{"key": "k", "effect": "NoExecute"}])
    cache = make_cache([*FOUR, TAINTED, always_tainted], ON_123)
    plugin = make_plugin(PodTopologySpread, cache.snapshot)
    pod = mypod(constraint("zone", nodeTaintsPolicy="Honor"))
    found = []
    for present in (TAINTED, NODE5, TAINTED):
        cache.set_node(parse_node(present))
        cache.update_snapshot()
        found.append(set(statuses(plugin, pod, NodeView(cache.snapshot))))
    # The empty zone is a domain only while the pod may go there.
    zone_a = {"node1", "node2"}
    assert found == [zone_a, {*zone_a, "node3", "node4"}, zone_a]


# --- scores -------------------------------------------------------------------------------------


def scores(
    pod: PodInfo,
    nodes: Sequence[JsonObject],
    pods: Sequence[JsonObject],
    args: Mapping[str, Any] | None = None,
    objects: IndexedObjectStore | None = None,
) -> dict[str, int] | None:
    """Normalised scores by node; None if PreScore skips."""
    cache = make_cache(nodes, pods)
    plugin = make_plugin(
        PodTopologySpread, cache.snapshot, args, objects=objects or IndexedObjectStore()
    )
    state, view = CycleState(), NodeView(cache.snapshot)
    if plugin.pre_score(state, pod, view).skip:
        return None
    normalized = plugin.normalize(state, pod, plugin.score(state, pod, view))
    return dict(zip(cache.snapshot.names(range(len(nodes))), normalized.tolist(), strict=True))


def test_scheduling_anyway_prefers_the_emptier_zone() -> None:
    pod = mypod(constraint("zone", whenUnsatisfiable="ScheduleAnyway"))
    assert scores(pod, FOUR, ON_123) == {"node1": 33, "node2": 33, "node3": 100, "node4": 100}


def test_nodes_that_lack_a_label_score_nothing() -> None:
    pod = mypod(constraint("zone", whenUnsatisfiable="ScheduleAnyway"))
    found = scores(pod, [*FOUR, node("node5")], ON_123)
    assert found is not None
    assert found["node5"] == 0


def test_all_domains_alike_score_the_most() -> None:
    pod = mypod(constraint("zone", whenUnsatisfiable="ScheduleAnyway"))
    assert scores(pod, FOUR, []) == dict.fromkeys(["node1", "node2", "node3", "node4"], 100)


def test_a_raw_score_grows_with_the_number_of_domains() -> None:
    """1 pod × log(3 nodes + 2) rounds to 2, and × log(2 nodes + 2) to 1."""
    soft = constraint("kubernetes.io/hostname", whenUnsatisfiable="ScheduleAnyway")
    for count, expected in ((3, 2), (2, 1)):
        cache = make_cache(FOUR[:count], ON_123[:1])
        plugin = make_plugin(PodTopologySpread, cache.snapshot)
        found = raw_scores(plugin, mypod(soft), NodeView(cache.snapshot))
        assert found is not None
        assert found["node1"] == expected


ZONE = "topology.kubernetes.io/zone"
ZONED = [make_node("a", zone="A"), make_node("b", zone="B"), make_node("c")]
SERVICE = {"metadata": {"name": "s", "namespace": "default"}, "spec": {"selector": {"foo": "bar"}}}
LIST_ZONE = {
    "defaultingType": "List",
    "defaultConstraints": [
        {"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "ScheduleAnyway"}
    ],
}


def store(kind: str, obj: JsonObject) -> IndexedObjectStore:
    objects = IndexedObjectStore()
    objects.set(kind, obj)
    return objects


def test_system_defaults_also_score_nodes_without_a_zone() -> None:
    found = scores(mypod(), ZONED, placed("a"), objects=store("Service", SERVICE))
    assert found is not None
    assert found["a"] < found["b"]
    assert found["c"] > found["a"]


def test_nodes_without_a_zone_are_one_domain_to_system_defaults() -> None:
    """2 pods on a: by hostname 2 × log(3 + 2) + 2, by zone 2 × log(3 + 2) + 4, together 12.4."""
    cache = make_cache(ZONED, placed("a", "a"))
    plugin = make_plugin(PodTopologySpread, cache.snapshot, objects=store("Service", SERVICE))
    found = raw_scores(plugin, mypod(), NodeView(cache.snapshot))
    assert found == {"a": 12, "b": 6, "c": 2}


def test_list_defaults_leave_nodes_without_the_label_out() -> None:
    found = scores(mypod(), ZONED, placed("a"), LIST_ZONE, store("Service", SERVICE))
    assert found == {"a": 0, "b": 100, "c": 0}


@pytest.mark.parametrize(
    ("kind", "owner", "selector"),
    [
        ("ReplicaSet", "apps/v1", {"matchLabels": {"foo": "bar"}}),
        ("StatefulSet", "apps/v1", {"matchLabels": {"foo": "bar"}}),
        ("ReplicationController", "v1", {"foo": "bar"}),
    ],
)
def test_the_controller_gives_the_default_selector(
    kind: str, owner: str, selector: JsonObject
) -> None:
    objects = store(
        kind,
        {"metadata": {"name": "x", "namespace": "default"}, "spec": {"selector": selector}},
    )
    pod = make_pod("mypod", labels={"foo": "bar"})
    pod["metadata"]["ownerReferences"] = [
        {"apiVersion": owner, "kind": kind, "name": "x", "uid": "u", "controller": True}
    ]
    assert scores(parse_pod(pod), ZONED, placed("a"), LIST_ZONE, objects) == {
        "a": 0,
        "b": 100,
        "c": 0,
    }


@pytest.mark.parametrize(
    ("args", "objects"),
    [
        pytest.param({}, IndexedObjectStore(), id="no service or controller selects the pod"),
        pytest.param(
            {"defaultingType": "List", "defaultConstraints": []},
            store("Service", SERVICE),
            id="an empty list turns default spreading off",
        ),
        pytest.param(
            {},
            store("Service", {**SERVICE, "spec": {"selector": {"foo": "other"}}}),
            id="the service selects other pods",
        ),
        pytest.param(
            {},
            store("Service", {**SERVICE, "metadata": {"name": "s", "namespace": "other"}}),
            id="the service is in another namespace",
        ),
    ],
)
def test_prescore_skips(args: JsonObject, objects: IndexedObjectStore) -> None:
    assert scores(mypod(), ZONED, placed("a"), args, objects) is None


def test_a_new_service_is_seen_at_once() -> None:
    cache, objects = make_cache(ZONED, placed("a")), IndexedObjectStore()
    plugin = make_plugin(PodTopologySpread, cache.snapshot, objects=objects)
    pod, view = mypod(), NodeView(cache.snapshot)
    assert plugin.pre_score(CycleState(), pod, view).skip
    objects.set("Service", SERVICE)
    assert plugin.pre_score(CycleState(), pod, view).ok


# --- constraints that give way ------------------------------------------------------------------

GIVES_WAY = PodTopologySpreadArgs.model_validate({"giveWayAfterSeconds": 300})
NOW = datetime(2026, 1, 1, 0, 30, tzinfo=UTC)


def waiting(*constraints: JsonObject, minute: str | None, **condition: Any) -> PodInfo:
    """The pod, refused at a minute of the hour before which it is half past."""
    pod = make_pod("mypod", labels={"foo": "bar"}, topologySpreadConstraints=list(constraints))
    if minute is not None:
        pod["status"]["conditions"] = [
            {
                "type": "PodScheduled",
                "status": "False",
                "reason": "Unschedulable",
                "lastTransitionTime": f"2026-01-01T00:{minute}:00Z",
                **condition,
            }
        ]
    return parse_pod(pod)


def giving_way(pods: Sequence[JsonObject], args: PodTopologySpreadArgs = GIVES_WAY) -> Any:
    cache = make_cache(FOUR, pods)
    handle = PluginHandle(cache.snapshot, now=lambda: NOW)
    return PodTopologySpread(cast("Handle", handle), args), NodeView(cache.snapshot)


@pytest.mark.parametrize(
    ("minute", "condition", "gives_way"),
    [
        pytest.param("25", {}, True, id="after exactly as long"),
        pytest.param("26", {}, False, id="not before"),
        pytest.param("59", {}, False, id="refused in the future: a clock was set back"),
        pytest.param(None, {}, False, id="not in the first attempt"),
        pytest.param("01", {"reason": "SchedulingGated"}, False, id="a gated pod does not wait"),
        pytest.param("01", {"reason": "SchedulerError"}, True, id="an error is a refusal"),
        pytest.param("01", {"lastTransitionTime": None}, False, id="since when is not known"),
        pytest.param("01", {"lastTransitionTime": "noon"}, False, id="since when makes no sense"),
        pytest.param("01", {"status": "True"}, False, id="it is scheduled"),
    ],
)
def test_when_a_constraint_gives_way(
    minute: str | None,
    condition: dict[str, Any],
    gives_way: bool,  # noqa: FBT001 the case
) -> None:
    plugin, nodes = giving_way(ON_123)
    pod = waiting(constraint("zone"), minute=minute, **condition)
    state = CycleState()
    skipped = plugin.pre_filter(state, pod, nodes) is SKIP_FILTER
    assert skipped is gives_way
    assert bool(state.remarks) is gives_way
    scored = plugin.pre_score(state, pod, nodes).ok
    assert scored is gives_way


def test_without_the_argument_it_never_does() -> None:
    plugin, nodes = giving_way(ON_123, PodTopologySpreadArgs())
    pod = waiting(constraint("zone"), minute="01")
    assert plugin.pre_filter(CycleState(), pod, nodes) is not SKIP_FILTER
    assert plugin.explain(CycleState(), pod, nodes) is None


def test_an_attempt_sees_one_moment_and_the_next_one_another() -> None:
    """Nothing of what a pod was refused for is kept."""
    cache, clock = make_cache(FOUR, ON_123), VirtualClock(NOW)
    handle = PluginHandle(cache.snapshot, now=clock.now)
    plugin = PodTopologySpread(cast("Handle", handle), GIVES_WAY)
    pod, nodes = waiting(constraint("zone"), minute="26"), NodeView(cache.snapshot)
    state = CycleState()
    assert plugin.pre_filter(state, pod, nodes) is not SKIP_FILTER
    clock.advance(60)
    assert plugin.pre_score(state, pod, nodes) is SKIP
    assert plugin.pre_filter(CycleState(), pod, nodes) is SKIP_FILTER


@pytest.mark.parametrize(
    ("minute", "line", "seconds"),
    [
        pytest.param("29", "gives way in 240 s, to ScheduleAnyway", 240, id="before"),
        pytest.param(
            "24",
            "has given way 60 s ago, and counts as ScheduleAnyway",
            0,
            id="after",
        ),
        pytest.param(
            None,
            "gives way 300 s after the pod is first refused",
            None,
            id="first",
        ),
    ],
)
def test_it_says_when_it_gives_way(minute: str | None, line: str, seconds: int | None) -> None:
    plugin, nodes = giving_way(ON_123)
    facts = plugin.explain(CycleState(), waiting(constraint("zone"), minute=minute), nodes)
    assert facts is not None
    assert facts.lines == (f"DoNotSchedule over zone {line}",)
    assert facts.fields is not None
    assert facts.fields.get("givesWayInSeconds") == seconds


def test_the_queue_is_told_when_a_pod_is_due() -> None:
    plugin, _ = giving_way(ON_123)
    due = plugin.rejection_ends_at(waiting(constraint("zone"), minute="26"))
    assert due == (NOW + timedelta(minutes=1)).timestamp()
    assert plugin.rejection_ends_at(waiting(minute="26")) is None
    soft = constraint("zone", whenUnsatisfiable="ScheduleAnyway")
    assert plugin.rejection_ends_at(waiting(soft, minute="26")) is None
