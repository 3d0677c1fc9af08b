"""Which pods a change wakes, and how often hints are asked for that."""

from collections.abc import Sequence

import pytest

from stellwerk.backend.queued_pod import Place, QueuedPod, QueueingStrategy
from stellwerk.backend.unschedulable_pods import UnschedulablePods
from stellwerk.framework.events import (
    Action,
    ClusterChange,
    ClusterEventWithHint,
    HintScope,
    Resource,
)
from stellwerk.models.pod import PodInfo
from tests.support.builders import pod_info
from tests.support.queue_driver import Observed

Hints = dict[str, Sequence[ClusterEventWithHint]]


class Asked:
    """A hint that notes which pods it was asked about, and says yes to some."""

    def __init__(self, *yes: str) -> None:
        self.pods: list[str] = []
        self.yes = set(yes)

    def __call__(self, pod: PodInfo, change: ClusterChange) -> bool:
        assert change.resource in Resource
        self.pods.append(pod.name)
        return pod.name in self.yes


def waiting(
    pod: PodInfo, *unschedulable: str, pending: Sequence[str] = (), gate: str = ""
) -> QueuedPod:
    return QueuedPod(
        pod,
        pod,
        0.0,
        Place.GATED if gate else Place.UNSCHEDULABLE,
        unschedulable_plugins=frozenset(unschedulable),
        pending_plugins=frozenset(pending),
        gating_plugin=gate,
    )


def index_of(hints: Hints, *entries: QueuedPod) -> UnschedulablePods:
    index = UnschedulablePods(lambda _: hints)
    for entry in entries:
        index.add(entry)
    return index


def woken(index: UnschedulablePods, change: ClusterChange) -> dict[str, QueueingStrategy]:
    return {entry.pod.name: strategy for entry, strategy in index.woken_by(change)}


NODE_ADDED = ClusterChange(Resource.NODE, Action.ADD)
TAINT_CHANGED = ClusterChange(Resource.NODE, Action.UPDATE_NODE_TAINT)
LABELS_CHANGED = ClusterChange(Resource.NODE, Action.UPDATE_NODE_LABEL)


@pytest.mark.parametrize(
    ("registered", "change", "wakes"),
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
def test_matching(registered: ClusterEventWithHint, change: ClusterChange, *, wakes: bool) -> None:
    index = index_of({"P": [registered]}, waiting(pod_info("a"), "P"))
    assert bool(woken(index, change)) is wakes


def test_a_hint_for_new_nodes_is_not_asked_about_their_taints() -> None:
    hint = Asked()
    index = index_of({"P": [ClusterEventWithHint(Resource.NODE, Action.ADD, hint)]})
    index.add(waiting(pod_info("a"), "P"))
    assert woken(index, TAINT_CHANGED) == {"a": QueueingStrategy.AFTER_BACKOFF}
    assert not hint.pods


def test_a_plugin_that_registers_taints_itself_is_asked() -> None:
    hint = Asked()
    both = ClusterEventWithHint(Resource.NODE, Action.ADD | Action.UPDATE_NODE_TAINT, hint)
    index = index_of({"P": [both]}, waiting(pod_info("a"), "P"))
    assert woken(index, TAINT_CHANGED) == {}
    assert hint.pods == ["a"]


def test_a_plugin_without_registrations_waits_for_every_event() -> None:
    index = index_of({}, waiting(pod_info("a"), "Extender"))
    for resource in set(Resource) - {Resource.WILDCARD}:
        assert woken(index, ClusterChange(resource, Action.UPDATE_OTHER)), resource


def test_a_plugin_with_an_empty_list_waits_for_none() -> None:
    index = index_of({"P": []}, waiting(pod_info("a"), "P"))
    assert not woken(index, NODE_ADDED)


def test_only_the_hints_of_the_rejectors_are_asked() -> None:
    mine, other = Asked("a"), Asked("a")
    hints: Hints = {
        "Mine": [ClusterEventWithHint(Resource.NODE, Action.ADD, mine)],
        "Other": [ClusterEventWithHint(Resource.NODE, Action.ADD, other)],
    }
    index = index_of(hints, waiting(pod_info("a"), "Mine"))
    assert woken(index, NODE_ADDED) == {"a": QueueingStrategy.AFTER_BACKOFF}
    assert (mine.pods, other.pods) == (["a"], [])


def test_a_pending_plugin_means_immediately_and_wins() -> None:
    hints: Hints = {
        "Fit": [ClusterEventWithHint(Resource.NODE, Action.ADD)],
        "Gang": [ClusterEventWithHint(Resource.NODE, Action.ADD, Asked("a"))],
    }
    index = index_of(
        hints,
        waiting(pod_info("a"), "Fit", pending=["Gang"]),
        waiting(pod_info("b", cpu="1"), "Fit", pending=["Gang"]),
    )
    assert woken(index, NODE_ADDED) == {
        "a": QueueingStrategy.IMMEDIATELY,
        "b": QueueingStrategy.AFTER_BACKOFF,
    }


@pytest.mark.parametrize(
    ("scope", "asked"),
    [
        pytest.param(HintScope.SPEC, 2, id="once per spec"),
        pytest.param(HintScope.SPEC_AND_NODE_NAMES, 2, id="once per spec and named nodes"),
        pytest.param(HintScope.SPEC_AND_LABELS, 4, id="once per spec and labels"),
        pytest.param(HintScope.POD, 40, id="once per pod"),
    ],
)
def test_hints_are_asked_as_rarely_as_their_scope_allows(scope: HintScope, asked: int) -> None:
    hint = Asked()
    index = index_of({"P": [ClusterEventWithHint(Resource.NODE, Action.ADD, hint, scope)]})
    for number in range(40):
        pod = pod_info(f"p{number}", cpu=str(1 + number % 2), labels={"app": str(number // 20)})
        index.add(waiting(pod, "P"))
    woken(index, NODE_ADDED)
    assert len(hint.pods) == asked


def daemon_pod(name: str, node_name: str) -> PodInfo:
    field = {"key": "metadata.name", "operator": "In", "values": [node_name]}
    terms = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": terms}
    return pod_info(name, affinity={"nodeAffinity": required})


def test_pods_of_a_daemonset_are_told_apart_only_by_hints_that_read_their_nodes() -> None:
    of_spec, of_nodes = Asked(), Asked("on-2")
    hints: Hints = {
        "Fit": [ClusterEventWithHint(Resource.NODE, Action.ADD, of_spec)],
        "NodeAffinity": [
            ClusterEventWithHint(Resource.NODE, Action.ADD, of_nodes, HintScope.SPEC_AND_NODE_NAMES)
        ],
    }
    index = index_of(
        hints,
        *(waiting(daemon_pod(f"on-{n}", f"n{n}"), "Fit", "NodeAffinity") for n in range(4)),
    )
    assert woken(index, NODE_ADDED) == {"on-2": QueueingStrategy.AFTER_BACKOFF}
    assert of_spec.pods == ["on-0"]
    assert of_nodes.pods == ["on-0", "on-1", "on-2", "on-3"]


def test_narrow_hints_are_not_asked_once_a_broad_one_has_said_queue() -> None:
    narrow = Asked()
    hints: Hints = {
        "Broad": [ClusterEventWithHint(Resource.NODE, Action.ADD)],
        "Narrow": [ClusterEventWithHint(Resource.NODE, Action.ADD, narrow, HintScope.POD)],
    }
    index = index_of(hints, waiting(pod_info("a"), "Broad", "Narrow"))
    assert woken(index, NODE_ADDED)
    assert not narrow.pods


def test_narrow_hints_choose_among_pods_of_one_spec() -> None:
    hints: Hints = {
        "Labels": [
            ClusterEventWithHint(Resource.NODE, Action.ADD, Asked("web"), HintScope.SPEC_AND_LABELS)
        ],
        "Pod": [ClusterEventWithHint(Resource.NODE, Action.ADD, Asked("this"), HintScope.POD)],
    }
    index = index_of(
        hints,
        waiting(pod_info("web", labels={"tier": "web"}), "Labels", "Pod"),
        waiting(pod_info("this"), "Labels", "Pod"),
        waiting(pod_info("other"), "Labels", "Pod"),
    )
    assert set(woken(index, NODE_ADDED)) == {"web", "this"}


def test_a_hint_that_raises_wakes_and_is_reported() -> None:
    def broken(pod: PodInfo, change: ClusterChange) -> bool:
        raise KeyError(pod.name, change.name)

    observed = Observed()
    hints: Hints = {"P": [ClusterEventWithHint(Resource.NODE, Action.ADD, broken)]}
    index = UnschedulablePods(lambda _: hints, observed)
    index.add(waiting(pod_info("a"), "P"))
    assert woken(index, NODE_ADDED) == {"a": QueueingStrategy.AFTER_BACKOFF}
    assert [(plugin, event) for plugin, event, _ in observed.failures] == [("P", "NodeAdd")]
    assert observed.hints == {("P", "NodeAdd", "Error"): 1}


def test_without_anybody_to_report_to_a_failing_hint_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def broken(pod: PodInfo, change: ClusterChange) -> bool:
        raise KeyError(pod.name, change.name)

    index = index_of({"P": [ClusterEventWithHint(Resource.NODE, Action.ADD, broken)]})
    index.add(waiting(pod_info("a"), "P"))
    woken(index, NODE_ADDED)
    assert "hint of P on NodeAdd for pod default/a" in caplog.text


def test_a_gated_pod_hears_only_what_its_gating_plugin_registered() -> None:
    hints: Hints = {
        "Gate": [ClusterEventWithHint(Resource.NODE, Action.UPDATE_NODE_LABEL, Asked())],
        "Fit": [ClusterEventWithHint(Resource.NODE, Action.ADD | Action.UPDATE_NODE)],
    }
    index = index_of(hints, waiting(pod_info("a"), "Fit", "Gate", gate="Gate"))
    assert not woken(index, NODE_ADDED)
    assert woken(index, LABELS_CHANGED), "then every rejector has its say"


def test_removal_uses_what_the_entry_was_when_it_came() -> None:
    entry = waiting(pod_info("a"), "P")
    index = index_of({"P": [ClusterEventWithHint(Resource.NODE, Action.ADD)]}, entry)
    entry.pod, entry.unschedulable_plugins = pod_info("a", cpu="1"), frozenset({"Q"})
    index.remove("uid-default-a")
    assert len(index) == 0
    assert not woken(index, NODE_ADDED)


def test_profiles_have_hints_of_their_own() -> None:
    hints = {
        "one": {"P": [ClusterEventWithHint(Resource.NODE, Action.ADD)]},
        "two": {"P": [ClusterEventWithHint(Resource.NODE, Action.DELETE)]},
    }
    index = UnschedulablePods(lambda name: hints[name])
    for name in hints:
        index.add(waiting(pod_info(name, scheduler_name=name), "P"))
    assert set(woken(index, NODE_ADDED)) == {"one"}
    assert [entry.pod.name for entry in index.of_profile("two")] == ["two"]


def test_sets_of_rejectors_that_nobody_has_any_more_are_dropped() -> None:
    index = index_of({})
    for number in range(2000):
        index.add(waiting(pod_info("a"), f"P{number}"))
        index.remove("uid-default-a")
    assert len(index._groups) < 300  # noqa: SLF001 memory has no public face
