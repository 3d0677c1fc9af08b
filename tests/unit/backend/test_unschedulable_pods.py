"""Which pods a change is worth requeueing, and how often hint functions run for that."""

from collections.abc import Sequence

import pytest

from stellwerk.backend.queued_pod import Place, QueuedPod, QueueingStrategy
from stellwerk.backend.unschedulable_pods import UnschedulablePods
from stellwerk.framework.events import (
    Action,
    ClusterChange,
    ClusterEventWithHint,
    HintScope,
    QueueingHint,
    Resource,
    queue_if,
)
from stellwerk.models.pod import PodInfo
from tests.support.builders import pod_info
from tests.support.queue_driver import Observed

Hints = dict[str, Sequence[ClusterEventWithHint]]


class Recorded:
    """A hint function that records the pods it ran for, and answers Queue for some."""

    def __init__(self, *queued: str) -> None:
        self.pods: list[str] = []
        self.queued = set(queued)

    def __call__(self, pod: PodInfo, change: ClusterChange) -> QueueingHint:
        assert isinstance(change.resource, Resource)
        self.pods.append(pod.name)
        return queue_if(pod.name in self.queued)


def rejected(
    pod: PodInfo, *unschedulable: str, pending: Sequence[str] = (), gate: str = ""
) -> QueuedPod:
    return QueuedPod(
        pod,
        pod,
        pod.spec.scheduler_name,
        0.0,
        Place.GATED if gate else Place.UNSCHEDULABLE,
        unschedulable_plugins=frozenset(unschedulable),
        pending_plugins=frozenset(pending),
        gating_plugin=gate,
    )


def index_of(hints: Hints, *entries: QueuedPod) -> UnschedulablePods:
    index = UnschedulablePods(lambda _: hints)
    for entry in entries:
        index.add_or_update(entry)
    return index


def worth_requeuing(index: UnschedulablePods, change: ClusterChange) -> dict[str, QueueingStrategy]:
    found = [each for _, some in index.ask_hints(change) for each in some]
    return {entry.pod.name: strategy for entry, strategy in found}


NODE_ADDED = ClusterChange(Resource.NODE, Action.ADD)
TAINT_CHANGED = ClusterChange(Resource.NODE, Action.UPDATE_NODE_TAINT)
LABELS_CHANGED = ClusterChange(Resource.NODE, Action.UPDATE_NODE_LABEL)


@pytest.mark.parametrize(
    ("registered", "change", "requeues"),
    [
        pytest.param(
            ClusterEventWithHint(Resource.NODE, Action.ADD), NODE_ADDED, True, id="the same event"
        ),
        pytest.param(
            ClusterEventWithHint(Resource.NODE, Action.UPDATE_NODE_LABEL),
            TAINT_CHANGED,
            False,
            id="another update of the same kind",
        ),
        pytest.param(
            ClusterEventWithHint(Resource.NODE, Action.UPDATE_NODE),
            TAINT_CHANGED,
            True,
            id="a general update takes the specific one",
        ),
        pytest.param(
            ClusterEventWithHint(Resource.POD, Action.UPDATE_POD_LABEL),
            ClusterChange(Resource.UNSCHEDULED_POD, Action.UPDATE_POD_OTHER),
            False,
            id="a specific update does not take the general one",
        ),
        pytest.param(
            ClusterEventWithHint(Resource.POD, Action.DELETE),
            ClusterChange(Resource.ASSIGNED_POD, Action.DELETE),
            True,
            id="Pod stands for assigned pods",
        ),
        pytest.param(
            ClusterEventWithHint(Resource.POD, Action.ALL),
            ClusterChange(Resource.UNSCHEDULED_POD, Action.UPDATE_POD_LABEL),
            True,
            id="and for unscheduled pods",
        ),
        pytest.param(
            ClusterEventWithHint(Resource.ASSIGNED_POD, Action.ALL),
            ClusterChange(Resource.UNSCHEDULED_POD, Action.ADD),
            False,
            id="but the two are told apart",
        ),
        pytest.param(
            ClusterEventWithHint(Resource.PERSISTENT_VOLUME, Action.ADD | Action.UPDATE),
            ClusterChange(Resource.PERSISTENT_VOLUME, Action.UPDATE_OTHER),
            True,
            id="kinds whose updates are not told apart",
        ),
        pytest.param(
            ClusterEventWithHint(Resource.WILDCARD, Action.ALL),
            ClusterChange(Resource.CSI_NODE, Action.DELETE),
            True,
            id="everything",
        ),
        pytest.param(
            ClusterEventWithHint(Resource.NODE, Action.ADD),
            TAINT_CHANGED,
            True,
            id="who looks at new nodes hears when one is untainted",
        ),
    ],
)
def test_matching(
    registered: ClusterEventWithHint, change: ClusterChange, *, requeues: bool
) -> None:
    index = index_of({"P": [registered]}, rejected(pod_info("a"), "P"))
    assert bool(worth_requeuing(index, change)) is requeues


def test_a_hint_for_new_nodes_does_not_run_for_their_taints() -> None:
    hint = Recorded()
    index = index_of({"P": [ClusterEventWithHint(Resource.NODE, Action.ADD, hint)]})
    index.add_or_update(rejected(pod_info("a"), "P"))
    assert worth_requeuing(index, TAINT_CHANGED) == {"a": QueueingStrategy.AFTER_BACKOFF}
    assert not hint.pods


def test_a_plugin_that_registers_taints_itself_decides_on_them() -> None:
    hint = Recorded()
    both = ClusterEventWithHint(Resource.NODE, Action.ADD | Action.UPDATE_NODE_TAINT, hint)
    index = index_of({"P": [both]}, rejected(pod_info("a"), "P"))
    assert worth_requeuing(index, TAINT_CHANGED) == {}
    assert hint.pods == ["a"]


def test_a_plugin_without_registrations_is_requeued_by_every_event() -> None:
    index = index_of({}, rejected(pod_info("a"), "Extender"))
    for resource in set(Resource) - {Resource.WILDCARD}:
        assert worth_requeuing(index, ClusterChange(resource, Action.UPDATE_OTHER)), resource


def test_a_plugin_with_an_empty_list_is_requeued_by_none() -> None:
    index = index_of({"P": []}, rejected(pod_info("a"), "P"))
    assert not worth_requeuing(index, NODE_ADDED)


def test_only_the_hints_of_the_plugins_that_rejected_run() -> None:
    mine, other = Recorded("a"), Recorded("a")
    hints: Hints = {
        "Mine": [ClusterEventWithHint(Resource.NODE, Action.ADD, mine)],
        "Other": [ClusterEventWithHint(Resource.NODE, Action.ADD, other)],
    }
    index = index_of(hints, rejected(pod_info("a"), "Mine"))
    assert worth_requeuing(index, NODE_ADDED) == {"a": QueueingStrategy.AFTER_BACKOFF}
    assert (mine.pods, other.pods) == (["a"], [])


def test_a_pending_plugin_means_immediately_and_wins() -> None:
    hints: Hints = {
        "Fit": [ClusterEventWithHint(Resource.NODE, Action.ADD)],
        "Gang": [ClusterEventWithHint(Resource.NODE, Action.ADD, Recorded("a"))],
    }
    index = index_of(
        hints,
        rejected(pod_info("a"), "Fit", pending=["Gang"]),
        rejected(pod_info("b", cpu="1"), "Fit", pending=["Gang"]),
    )
    assert worth_requeuing(index, NODE_ADDED) == {
        "a": QueueingStrategy.IMMEDIATELY,
        "b": QueueingStrategy.AFTER_BACKOFF,
    }


@pytest.mark.parametrize(
    ("scope", "calls"),
    [
        pytest.param(HintScope.SPEC, 2, id="once per spec"),
        pytest.param(HintScope.SPEC_AND_NODE_NAMES, 2, id="once per spec and named nodes"),
        pytest.param(HintScope.SPEC_AND_LABELS, 4, id="once per spec and labels"),
        pytest.param(HintScope.POD, 40, id="once per pod"),
    ],
)
def test_hint_functions_run_as_rarely_as_their_scope_allows(scope: HintScope, calls: int) -> None:
    hint = Recorded()
    index = index_of({"P": [ClusterEventWithHint(Resource.NODE, Action.ADD, hint, scope)]})
    for number in range(40):
        pod = pod_info(f"p{number}", cpu=str(1 + number % 2), labels={"app": str(number // 20)})
        index.add_or_update(rejected(pod, "P"))
    worth_requeuing(index, NODE_ADDED)
    assert len(hint.pods) == calls


def daemon_pod(name: str, node_name: str) -> PodInfo:
    field = {"key": "metadata.name", "operator": "In", "values": [node_name]}
    terms = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": terms}
    return pod_info(name, affinity={"nodeAffinity": required})


def test_pods_of_a_daemonset_are_told_apart_only_by_hints_that_read_their_nodes() -> None:
    of_spec, of_nodes = Recorded(), Recorded("on-2")
    hints: Hints = {
        "Fit": [ClusterEventWithHint(Resource.NODE, Action.ADD, of_spec)],
        "NodeAffinity": [
            ClusterEventWithHint(Resource.NODE, Action.ADD, of_nodes, HintScope.SPEC_AND_NODE_NAMES)
        ],
    }
    index = index_of(
        hints,
        *(rejected(daemon_pod(f"on-{n}", f"n{n}"), "Fit", "NodeAffinity") for n in range(4)),
    )
    assert worth_requeuing(index, NODE_ADDED) == {"on-2": QueueingStrategy.AFTER_BACKOFF}
    assert of_spec.pods == ["on-0"]
    assert of_nodes.pods == ["on-0", "on-1", "on-2", "on-3"]


def test_narrow_hints_do_not_run_once_a_broad_one_has_answered_queue() -> None:
    narrow = Recorded()
    hints: Hints = {
        "Broad": [ClusterEventWithHint(Resource.NODE, Action.ADD)],
        "Narrow": [ClusterEventWithHint(Resource.NODE, Action.ADD, narrow, HintScope.POD)],
    }
    index = index_of(hints, rejected(pod_info("a"), "Broad", "Narrow"))
    assert worth_requeuing(index, NODE_ADDED)
    assert not narrow.pods


def test_narrow_hints_choose_among_pods_of_one_spec() -> None:
    hints: Hints = {
        "Labels": [
            ClusterEventWithHint(
                Resource.NODE, Action.ADD, Recorded("web"), HintScope.SPEC_AND_LABELS
            )
        ],
        "Pod": [ClusterEventWithHint(Resource.NODE, Action.ADD, Recorded("this"), HintScope.POD)],
    }
    index = index_of(
        hints,
        rejected(pod_info("web", labels={"tier": "web"}), "Labels", "Pod"),
        rejected(pod_info("this"), "Labels", "Pod"),
        rejected(pod_info("other"), "Labels", "Pod"),
    )
    assert set(worth_requeuing(index, NODE_ADDED)) == {"web", "this"}


def test_a_hint_that_raises_counts_as_queue_and_is_reported() -> None:
    def broken(pod: PodInfo, change: ClusterChange) -> QueueingHint:
        raise KeyError(pod.name, change.name)

    observed = Observed()
    hints: Hints = {"P": [ClusterEventWithHint(Resource.NODE, Action.ADD, broken)]}
    index = UnschedulablePods(lambda _: hints, observed)
    index.add_or_update(rejected(pod_info("a"), "P"))
    assert worth_requeuing(index, NODE_ADDED) == {"a": QueueingStrategy.AFTER_BACKOFF}
    assert [(plugin, event) for plugin, event, _ in observed.failures] == [("P", "NodeAdd")]
    assert observed.hints == {("P", "NodeAdd", "Error"): 1}


def test_without_an_observer_a_failing_hint_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def broken(pod: PodInfo, change: ClusterChange) -> QueueingHint:
        raise KeyError(pod.name, change.name)

    index = index_of({"P": [ClusterEventWithHint(Resource.NODE, Action.ADD, broken)]})
    index.add_or_update(rejected(pod_info("a"), "P"))
    worth_requeuing(index, NODE_ADDED)
    assert "hint of P on NodeAdd for pod default/a" in caplog.text


def test_a_gated_pod_is_requeued_only_by_what_its_gating_plugin_registered() -> None:
    hints: Hints = {
        "Gate": [ClusterEventWithHint(Resource.NODE, Action.UPDATE_NODE_LABEL, Recorded())],
        "Fit": [ClusterEventWithHint(Resource.NODE, Action.ADD | Action.UPDATE_NODE)],
    }
    index = index_of(hints, rejected(pod_info("a"), "Fit", "Gate", gate="Gate"))
    assert not worth_requeuing(index, NODE_ADDED)
    assert worth_requeuing(index, LABELS_CHANGED), "then the hints of every such plugin count"


def test_deletion_uses_what_the_entry_was_when_it_came() -> None:
    entry = rejected(pod_info("a"), "P")
    index = index_of({"P": [ClusterEventWithHint(Resource.NODE, Action.ADD)]}, entry)
    entry.pod, entry.unschedulable_plugins = pod_info("a", cpu="1"), frozenset({"Q"})
    index.delete("uid-default-a")
    assert not index.queued_before(1.0)
    assert not worth_requeuing(index, NODE_ADDED)


def test_the_entry_that_came_first_stays_first_when_it_is_updated() -> None:
    first, second = rejected(pod_info("a"), "P"), rejected(pod_info("b"), "P")
    second.queued_at = 5.0
    index = index_of({}, first, second)
    first.unschedulable_plugins = frozenset({"Q"})
    index.add_or_update(first)
    assert index.queued_before(5.0) == [first]
    assert index.queued_before(5.1) == [first, second]


def test_profiles_have_hints_of_their_own() -> None:
    hints = {
        "one": {"P": [ClusterEventWithHint(Resource.NODE, Action.ADD)]},
        "two": {"P": [ClusterEventWithHint(Resource.NODE, Action.DELETE)]},
    }
    index = UnschedulablePods(hints.__getitem__)
    for name in hints:
        index.add_or_update(rejected(pod_info(name, scheduler_name=name), "P"))
    assert set(worth_requeuing(index, NODE_ADDED)) == {"one"}
    assert [entry.pod.name for entry in index.of_profile("two")] == ["two"]


def test_sets_of_plugins_without_pods_are_dropped() -> None:
    index = index_of({})
    for number in range(2000):
        index.add_or_update(rejected(pod_info("a"), f"P{number}"))
        index.delete("uid-default-a")
    assert len(index._by_rejectors) < 300  # noqa: SLF001 memory has no public face
