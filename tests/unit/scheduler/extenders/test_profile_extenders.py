"""Extenders in the scheduling cycle: order, weights, failures, and what pods are told."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from stellwerk.answers.pod import PodExplanation
from stellwerk.backend.queued_pod import Place
from stellwerk.client.extender import go_json
from stellwerk.explain.steps import finished
from stellwerk.framework.interface import Candidate, PostFilterResult
from stellwerk.framework.types import OK
from stellwerk.models.pod import PodInfo
from stellwerk.plugins.shared.victims import best_candidates
from stellwerk.scheduler.extenders.profile_extenders import call_extenders
from stellwerk.scheduler.extenders.raw_objects import RawObjects, Wanted
from stellwerk_kube.errors import SchedulerError
from stellwerk_kube.json_values import JsonObject
from tests.support.builders import make_node, make_pod, pod_info
from tests.support.fake_extender import FakeExtender, fake_extender
from tests.support.in_process import InProcess, eventually, make_profile, quiet, running
from tests.support.memory_client import MemoryClient

FILTER: JsonObject = {"filterVerb": "filter", "nodeCacheCapable": True}
PRIORITIZE: JsonObject = {"prioritizeVerb": "prioritize", "nodeCacheCapable": True}
NODES = [make_node(name) for name in ("n1", "n2", "n3")]


@pytest.fixture
async def world() -> AsyncIterator[InProcess]:
    async with running() as world:
        yield world


@pytest.fixture
async def first() -> AsyncIterator[FakeExtender]:
    async with fake_extender() as extender:
        yield extender


@pytest.fixture
async def second() -> AsyncIterator[FakeExtender]:
    async with fake_extender() as extender:
        yield extender


def profile(*extenders: JsonObject, generation: int = 1, **spec: Any) -> JsonObject:
    return make_profile("a", generation=generation, extenders=list(extenders), **spec)


def pod(name: str = "p", **fields: Any) -> JsonObject:
    return make_pod(name, scheduler_name="a", **fields)


def rejecting(reasons: dict[str, str], **unresolvable: str) -> Any:
    """A filter that takes nodes away."""

    def answer(body: JsonObject) -> JsonObject:
        gone = reasons | unresolvable
        return {
            "nodenames": [name for name in body["NodeNames"] if name not in gone],
            "failedNodes": reasons,
            "failedAndUnresolvableNodes": unresolvable,
        }

    return answer


async def test_filters_are_asked_one_after_the_other_about_what_is_left(
    world: InProcess, first: FakeExtender, second: FakeExtender
) -> None:
    first.answers["filter"] = rejecting({"n1": "not today"})
    second.answers["filter"] = rejecting({"n3": "nor here"})
    world.apply(
        *NODES, profile({**FILTER, "urlPrefix": first.url}, {**FILTER, "urlPrefix": second.url})
    )
    world.apply(pod())
    await eventually(lambda: world.node_of("p") == "n2")
    assert set(first.calls[0].json["NodeNames"]) == {"n1", "n2", "n3"}
    assert set(second.calls[0].json["NodeNames"]) == {"n2", "n3"}


async def test_nodes_that_all_extenders_reject_are_counted_with_their_reasons(
    world: InProcess, first: FakeExtender
) -> None:
    first.answers["filter"] = rejecting({"n1": "not today", "n2": "not today"}, n3="never")
    world.apply(*NODES, make_node("n4", unschedulable=True))
    world.apply(profile({**FILTER, "urlPrefix": first.url}))
    world.apply(pod())
    await eventually(lambda: world.condition("p"))
    reason, message = world.condition("p") or ("", "")
    assert reason == "Unschedulable"
    assert message.startswith(
        "0/4 nodes are available: 1 never, 1 node(s) were unschedulable, 2 not today."
    )
    # The patch of its own status wakes the pod once more, as any event would.
    await eventually(lambda: len(first.calls) == 2 and world.queue.counted(Place.UNSCHEDULABLE))
    entry = world.queue.entries.get("uid-default-p")
    assert entry is not None
    assert entry.unschedulable_plugins == {"Extender", "NodeUnschedulable"}


async def test_a_node_that_vanishes_without_a_word_has_no_reason(
    world: InProcess, first: FakeExtender
) -> None:
    first.answers["filter"] = {"nodenames": []}
    world.apply(*NODES, profile({**FILTER, "urlPrefix": first.url}))
    world.apply(pod())
    await eventually(lambda: world.condition("p"))
    message = (world.condition("p") or ("", ""))[1]
    assert message.startswith("0/3 nodes are available: no new claims to deallocate, preemption:")


async def test_any_event_wakes_a_pod_that_only_an_extender_rejected(
    world: InProcess, first: FakeExtender
) -> None:
    first.answers["filter"] = {"nodenames": []}
    world.apply(*NODES, profile({**FILTER, "urlPrefix": first.url}))
    world.apply(pod())
    await eventually(lambda: world.condition("p"))
    first.answers["filter"] = {"nodenames": ["n2"]}
    world.clock.advance(60)
    world.apply(make_pod("unrelated", node_name="n1"))
    await eventually(lambda: world.node_of("p") == "n2")


async def test_a_failure_is_an_error_with_the_recorded_words(
    world: InProcess, first: FakeExtender
) -> None:
    first.answers["filter"] = 500
    world.apply(*NODES, profile({**FILTER, "urlPrefix": first.url}))
    world.apply(pod())
    message = f"failed filter with extender at URL {first.url}/filter, code 500"
    await eventually(lambda: world.condition("p") == ("SchedulerError", message))
    assert world.notes.about("p") == [("Warning", "FailedScheduling", message)]


async def test_an_ignorable_failure_changes_nothing(
    world: InProcess, first: FakeExtender, second: FakeExtender
) -> None:
    first.answers["filter"] = 500
    second.answers["filter"] = rejecting({"n1": "", "n2": ""})
    ignorable = {**FILTER, "ignorable": True}
    world.apply(
        *NODES,
        profile(
            {**ignorable, "urlPrefix": first.url},
            {**ignorable, "urlPrefix": "http://127.0.0.1:1/none"},
            {**FILTER, "urlPrefix": second.url},
        ),
    )
    world.apply(pod())
    await eventually(lambda: world.node_of("p") == "n3")


async def test_scores_count_ten_times_their_weight_beside_those_of_plugins(
    world: InProcess, first: FakeExtender, second: FakeExtender
) -> None:
    first.answers["prioritize"] = [{"host": "n1", "score": 10}, {"host": "n2", "score": 4}]
    second.answers["prioritize"] = [{"host": "n2", "score": 4}, {"host": "gone", "score": 9}]
    world.apply(
        *NODES,
        profile(
            {**PRIORITIZE, "urlPrefix": first.url, "weight": 1},
            {**PRIORITIZE, "urlPrefix": second.url, "weight": 2},
        ),
    )
    world.apply(pod())
    # n1 has 10 × 1 × 10 = 100; n2 has 4 × 1 × 10 + 4 × 2 × 10 = 120.
    await eventually(lambda: world.node_of("p") == "n2")


async def test_scores_are_asked_for_at_once_and_failures_never_matter(
    world: InProcess, first: FakeExtender, second: FakeExtender
) -> None:
    first.answers["prioritize"] = 500
    second.answers["prioritize"] = [{"host": "n3", "score": 10}]
    first.hold = second.hold = both_asked = asyncio.Event()

    def on_call(_: object) -> None:
        if first.calls and second.calls:
            both_asked.set()

    first.on_call = second.on_call = on_call
    prioritize = {**PRIORITIZE, "httpTimeout": "600s"}
    world.apply(
        *NODES,
        *[
            profile(
                {**prioritize, "urlPrefix": first.url, "weight": 9},
                {**prioritize, "urlPrefix": second.url, "weight": 1},
            )
        ],
    )
    world.apply(pod())
    await eventually(lambda: world.node_of("p") == "n3")
    assert both_asked.is_set()


async def test_one_node_needs_no_score(world: InProcess, first: FakeExtender) -> None:
    world.apply(NODES[0], profile({**PRIORITIZE, "urlPrefix": first.url, "weight": 1}))
    world.apply(pod())
    await eventually(lambda: world.node_of("p") == "n1")
    assert first.calls == []


async def test_without_score_plugins_extenders_still_see_every_node(
    world: InProcess, first: FakeExtender
) -> None:
    first.answers["filter"] = {"nodenames": ["n3"]}
    no_scores = {"score": {"disabled": [{"name": "*"}]}}
    world.apply(*NODES, profile({**FILTER, "urlPrefix": first.url}, plugins=no_scores))
    world.apply(pod())
    await eventually(lambda: world.node_of("p") == "n3")


async def test_only_pods_that_use_a_managed_resource_are_sent(
    world: InProcess, first: FakeExtender
) -> None:
    first.answers["filter"] = {"nodenames": ["n2"]}
    managed = {"managedResources": [{"name": "example.com/gpu", "ignoredByScheduler": True}]}
    world.apply(*NODES, profile({**FILTER, "urlPrefix": first.url, **managed}))
    world.apply(pod("plain"))
    await eventually(lambda: world.node_of("plain"))
    assert first.calls == []
    world.apply(pod("gpu", requests={"example.com/gpu": "1"}))
    # No node offers the resource: NodeResourcesFit leaves it to the extender.
    await eventually(lambda: world.node_of("gpu") == "n2")


async def test_an_extender_binds(world: InProcess, first: FakeExtender) -> None:
    bound: list[JsonObject] = []

    def bind(body: JsonObject) -> JsonObject:
        bound.append(body)
        world.apply({**world.pod("p"), "spec": {**world.pod("p")["spec"], "nodeName": "n1"}})
        return {}

    first.answers["bind"] = bind
    world.apply(NODES[0], profile({"bindVerb": "bind", "urlPrefix": first.url}))
    world.apply(pod())
    await eventually(lambda: world.notes.about("p"))
    assert bound == [
        {"PodName": "p", "PodNamespace": "default", "PodUID": "uid-default-p", "Node": "n1"}
    ]
    assert [reason for _, reason, _ in world.notes.about("p")] == ["Scheduled"]
    assert ("POST", "/api/v1/namespaces/default/pods/p/binding") not in world.client.requests


@pytest.mark.parametrize("ignorable", [True, False])
async def test_a_binding_that_fails_is_left_to_the_plugins_only_if_ignorable(
    world: InProcess, first: FakeExtender, *, ignorable: bool
) -> None:
    first.answers["bind"] = {"error": "taken"}
    extender = {"bindVerb": "bind", "urlPrefix": first.url, "ignorable": ignorable}
    world.apply(NODES[0], profile(extender))
    world.apply(pod())
    await eventually(lambda: world.notes.about("p"))
    assert world.node_of("p") == ("n1" if ignorable else None)
    if not ignorable:
        assert world.notes.about("p") == [("Warning", "FailedScheduling", "taken")]
        assert "uid-default-p" not in world.cache.assumed_pods


async def test_whole_nodes_and_pods_are_read_when_the_extender_came_later_than_they(
    world: InProcess, first: FakeExtender
) -> None:
    world.apply(*NODES, make_profile("a"))
    world.apply(pod("gated", schedulingGates=[{"name": "g"}]))
    first.answers["filter"] = lambda body: {
        "nodes": {"items": [each for each in body["Nodes"]["items"] if "mark" in each["metadata"]]}
    }
    marked = make_node("n2")
    marked["metadata"]["mark"] = "x"
    world.apply(profile({"filterVerb": "filter", "urlPrefix": first.url}, generation=2))
    world.apply(marked)
    world.apply(pod("p"))
    await eventually(lambda: world.node_of("p") == "n2")
    ungated = world.pod("gated")
    del ungated["spec"]["schedulingGates"]
    world.apply(ungated)
    await eventually(lambda: world.node_of("gated") == "n2")
    body = first.calls[0].json
    assert body["NodeNames"] is None
    assert {each["metadata"]["name"] for each in body["Nodes"]["items"]} == {"n1", "n2", "n3"}
    assert all("kind" not in each for each in [body["Pod"], *body["Nodes"]["items"]])


async def test_raw_objects_are_kept_only_while_an_extender_is_sent_them(
    world: InProcess, first: FakeExtender
) -> None:
    raw = world.operator.raw
    whole = {"filterVerb": "f", "preemptVerb": "p", "urlPrefix": first.url}
    world.apply(profile(whole))
    assert raw.wanted == Wanted(frozenset({"a"}), nodes=True, bound_pods=True)
    world.apply(profile({**FILTER, "urlPrefix": first.url}, generation=2))
    assert raw.wanted == Wanted(frozenset({"a"}))
    world.apply(profile(generation=3))
    assert not raw.wants_any


async def test_an_edit_while_an_extender_is_asked_counts_from_the_next_cycle(
    world: InProcess, first: FakeExtender
) -> None:
    asked, answered = asyncio.Event(), []

    def answer(body: JsonObject) -> JsonObject:
        answered.append(world.profiles.served["a"])
        return {"nodenames": body["NodeNames"]}

    first.answers["filter"] = answer
    first.hold = asyncio.Event()
    first.on_call = lambda _: asked.set()
    world.apply(*NODES, profile({**FILTER, "urlPrefix": first.url}))
    before = world.profiles.served["a"]
    world.apply(pod())
    await asked.wait()
    world.apply(make_profile("a", generation=2))
    assert world.profiles.served["a"] is before
    first.hold.set()
    await eventually(lambda: world.node_of("p"))
    assert answered == [before]
    after = world.profiles.served["a"]
    assert after.loaded.generation == 2
    assert after.extenders is None


async def test_equal_extenders_of_two_profiles_share_their_connections(
    world: InProcess, first: FakeExtender
) -> None:
    first.answers["filter"] = lambda body: {"nodenames": body["NodeNames"]}
    extender = {**FILTER, "urlPrefix": first.url}
    world.apply(*NODES, profile(extender), make_profile("b", extenders=[extender]))
    world.apply(pod("p"), make_pod("q", scheduler_name="b"))
    await eventually(lambda: world.node_of("p") and world.node_of("q"))
    assert len({call.port for call in first.calls}) == 1


async def test_an_extender_strikes_candidates_of_preemption_off(
    world: InProcess, first: FakeExtender
) -> None:
    first.answers["preempt"] = lambda body: {
        "nodeNameToMetaVictims": {"n2": body["NodeNameToMetaVictims"]["n2"]}
    }
    extender = {"preemptVerb": "preempt", "nodeCacheCapable": True, "urlPrefix": first.url}
    world.apply(make_node("n1", cpu="1"), make_node("n2", cpu="1"), profile(extender))
    for name in ("n1", "n2"):
        world.apply(make_pod(f"v-{name}", cpu="1", node_name=name, priority=0))
    world.apply(pod(cpu="1", priority=100))
    victim = "/api/v1/namespaces/default/pods/v-n2"
    await eventually(lambda: ("DELETE", victim) in world.client.requests)
    sent = first.calls[0].json["NodeNameToMetaVictims"]
    assert sent == {
        name: {"Pods": [{"UID": f"uid-default-v-{name}"}], "NumPDBViolations": 0}
        for name in ("n1", "n2")
    }


async def test_when_an_extender_strikes_all_candidates_off_every_reason_is_told(
    world: InProcess, first: FakeExtender
) -> None:
    first.answers["preempt"] = {"nodeNameToMetaVictims": {}}
    extender = {"preemptVerb": "preempt", "nodeCacheCapable": True, "urlPrefix": first.url}
    world.apply(make_node("n1", cpu="1"), profile(extender))
    world.apply(make_pod("v", cpu="1", node_name="n1", priority=0))
    world.apply(pod(cpu="1", priority=100))
    await eventually(lambda: world.condition("p"))
    assert (world.condition("p") or ("", ""))[1] == (
        "0/1 nodes are available: 1 Insufficient cpu. no new claims to deallocate, "
        "preemption: no candidate node for preemption"
    )


async def test_an_extender_cannot_name_victims_that_are_not_there(
    world: InProcess, first: FakeExtender
) -> None:
    first.answers["preempt"] = {"nodeNameToMetaVictims": {"n1": {"pods": [{"uid": "other"}]}}}
    extender = {"preemptVerb": "preempt", "urlPrefix": first.url}
    world.apply(make_node("n1", cpu="1"), profile(extender))
    world.apply(make_pod("v", cpu="1", node_name="n1", priority=0))
    world.apply(pod(cpu="1", priority=100))
    await eventually(lambda: world.condition("p"))
    assert (
        f"extender: {first.url} claims to preempt pod (UID: other) on node: n1, but the pod is not "
        "found on that node"
    ) in (world.condition("p") or ("", ""))[1]
    await quiet()
    assert not [request for request in world.client.requests if request[0] == "DELETE"]


PREEMPTING: JsonObject = {**FILTER, "preemptVerb": "preempt"}


async def licensed(
    world: InProcess, extenders: Sequence[JsonObject], **spec: Any
) -> tuple[str, str]:
    """A pod that fits on n1 beside others, which an extender refuses; its condition then."""
    world.apply(make_node("n1", cpu="4"), profile(*extenders, **spec))
    for name in ("holder", "other"):
        world.apply(make_pod(name, cpu="1", node_name="n1", priority=0))
    world.apply(pod(cpu="1", priority=100))
    await eventually(lambda: world.condition("p"))
    await quiet()
    return world.condition("p") or ("", "")


def deleted(world: InProcess) -> list[str]:
    return [
        path.rsplit("/", 1)[1] for method, path, *_ in world.client.requests if method == "DELETE"
    ]


async def test_an_extender_names_the_victims_where_it_alone_refuses_a_node(
    world: InProcess, first: FakeExtender, second: FakeExtender
) -> None:
    refuses = rejecting({"n1": "no license"})
    first.answers |= {
        "filter": refuses,
        "preempt": lambda body: {"nodeNameToMetaVictims": body["NodeNameToMetaVictims"]},
    }
    named = {"n1": {"pods": [{"uid": "uid-default-holder"}]}}
    second.answers["preempt"] = {"nodeNameToMetaVictims": named}
    extenders = [
        {**PREEMPTING, "urlPrefix": first.url},
        {"preemptVerb": "preempt", "nodeCacheCapable": True, "urlPrefix": second.url},
    ]
    await licensed(world, extenders)
    [offered] = [call.json["NodeNameToMetaVictims"] for call in second.calls]
    assert offered == {"n1": {"Pods": [], "NumPDBViolations": 0}}
    assert deleted(world) == ["holder"]


@pytest.mark.parametrize(
    ("extender", "spec", "message"),
    [
        pytest.param(
            PREEMPTING,
            {},
            "preemption: no candidate node for preemption",
            id="no extender has named one",
        ),
        pytest.param(
            FILTER,
            {},
            "preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod.",
            id="no extender preempts",
        ),
        pytest.param(
            PREEMPTING,
            {"compatibility": "1.36.2"},
            'preemption: expected at least one victim pod on node "n1"',
            id="as 1.36.2, where it is an error",
        ),
    ],
)
async def test_a_node_without_victims_is_no_candidate_in_the_end(
    world: InProcess, first: FakeExtender, extender: JsonObject, spec: JsonObject, message: str
) -> None:
    first.answers |= {
        "filter": rejecting({"n1": "no license"}),
        "preempt": lambda body: {"nodeNameToMetaVictims": body["NodeNameToMetaVictims"]},
    }
    condition = await licensed(world, [{**extender, "urlPrefix": first.url}], **spec)
    assert message in condition[1]
    assert deleted(world) == []


async def test_the_nominated_node_is_offered_alone_first(
    world: InProcess, first: FakeExtender
) -> None:
    first.answers["filter"] = rejecting({"n2": "changed my mind"})
    world.apply(*NODES, profile({**FILTER, "urlPrefix": first.url}))
    world.apply(pod(nominated_node_name="n2"))
    await eventually(lambda: world.node_of("p"))
    offered = [set(call.json["NodeNames"]) for call in first.calls]
    assert offered == [{"n2"}, {"n1", "n2", "n3"}]
    assert world.node_of("p") in {"n1", "n3"}


async def test_a_pod_is_sent_as_kube_scheduler_keeps_it() -> None:
    raw = RawObjects(MemoryClient())
    raw.want(Wanted(frozenset({"a"}), nodes=True))
    obj = pod(labels={"text": "a<b"})
    stored = {**obj, "metadata": {**obj["metadata"], "managedFields": [{"manager": "kubectl"}]}}
    raw.on_pod(pod_info("p"), stored, "a")
    del obj["apiVersion"], obj["kind"]
    assert await raw.pod(pod_info("p")) == go_json(obj)
    assert b"a\\u003cb" in go_json(obj)


# --- candidates for preemption ------------------------------------------------------------------


@dataclass
class Extender:
    """Keeps the nodes that a test names."""

    keeps: Sequence[str] = ()
    fails: bool = False
    ignorable: bool = False
    supports_preemption: bool = True
    interested: bool = True
    victims: bool = True
    name: str = "extender"

    def is_interested(self, pod: PodInfo) -> bool:
        assert pod.name == "preemptor"
        return self.interested

    async def preempt(self, pod: PodInfo, candidates: Sequence[Candidate]) -> Sequence[Candidate]:
        assert pod.name == "preemptor"
        if self.fails:
            raise SchedulerError("extender: no answer")
        return [
            each if self.victims else Candidate(each.node_name, (), 0)
            for each in candidates
            if each.node_name in self.keeps
        ]


FOUND = PostFilterResult(
    OK,
    tuple(Candidate(name, (pod_info("v", node_name=name),), 0) for name in ("n1", "n2", "n3")),
    best_candidates,
    plugin="OwnPreemption",
)


@pytest.mark.parametrize(
    ("extenders", "left"),
    [
        pytest.param([], ["n1", "n2", "n3"], id="none"),
        pytest.param([Extender(["n1", "n2"]), Extender(["n2", "n3"])], ["n2"], id="one by one"),
        pytest.param(
            [Extender(supports_preemption=False), Extender(interested=False)],
            ["n1", "n2", "n3"],
            id="those that are not concerned are not asked",
        ),
        pytest.param(
            [Extender(fails=True, ignorable=True)], ["n1", "n2", "n3"], id="an ignorable failure"
        ),
        pytest.param(
            [Extender(["n1"], victims=False, ignorable=True)], [], id="ignorable and no victims"
        ),
    ],
)
async def test_extenders_strike_candidates_off(
    extenders: Sequence[Extender], left: list[str]
) -> None:
    result = await call_extenders(pod_info("preemptor"), FOUND, extenders)
    assert [each.node_name for each in result.candidates] == left
    if not left:
        assert result.status.message == "preemption: no candidate node for preemption"
        assert result.status.plugin == "OwnPreemption"


@pytest.mark.parametrize(
    ("extender", "message"),
    [
        pytest.param(Extender(fails=True), "preemption: extender: no answer", id="a failure"),
        pytest.param(
            Extender(["n2"], victims=False),
            'preemption: expected at least one victim pod on node "n2"',
            id="a node without victims",
        ),
    ],
)
async def test_an_extender_that_cannot_be_ignored_ends_the_attempt(
    extender: Extender, message: str
) -> None:
    result = await call_extenders(pod_info("preemptor"), FOUND, [extender])
    assert (result.status.message, result.candidates) == (message, ())
    assert result.status.plugin == "OwnPreemption"


# --- explanations ---------------------------------------------------------------------------------


async def explained(world: InProcess, name: str) -> PodExplanation:
    steps = world.operator.explanations.pod("default", name)
    assert steps is not None
    return finished(steps)


async def test_an_explanation_has_what_extenders_refused_in_the_last_attempt(
    world: InProcess, first: FakeExtender
) -> None:
    first.answers["filter"] = rejecting({"n1": "no license", "n2": "no license"}, n3="never")
    world.apply(*NODES, profile({**FILTER, "urlPrefix": first.url}), pod())
    await eventually(lambda: world.condition("p"))
    await eventually(lambda: world.queue.counted(Place.UNSCHEDULABLE))
    found = await explained(world, "p")
    assert found.refused_by_extenders is not None
    reasons = [
        (each.plugin, each.reasons, each.nodes) for each in found.refused_by_extenders.reasons
    ]
    assert reasons == [("Extender", ["no license"], 2), ("Extender", ["never"], 1)]
    assert found.would_get_node is None
    assert found.would_wait == (
        "in its last attempt extenders rejected 3 nodes that passed the plugins"
    )
    first.answers["filter"] = rejecting({"n1": "no license"})
    world.clock.advance(60)
    world.apply(make_node("n4"))
    await eventually(lambda: world.node_of("p"))
    found = await explained(world, "p")
    assert found.refused_by_extenders is None


async def test_a_decision_says_which_nodes_extenders_refused(
    world: InProcess, first: FakeExtender
) -> None:
    first.answers["filter"] = lambda body: {
        "nodenames": ["n3"] if "n3" in body["NodeNames"] else [],
        "failedNodes": {"n1": "no license"},
    }
    world.apply(*NODES, make_node("n4", unschedulable=True))
    world.apply(profile({**FILTER, "urlPrefix": first.url}), pod())
    await eventually(lambda: world.node_of("p") == "n3")
    found = await explained(world, "p")
    assert found.decision is not None
    assert found.decision.others is not None
    reasons = {tuple(each.reasons): each.nodes for each in found.decision.others.reasons}
    assert reasons == {
        ("no license",): 1,
        ("rejected without a reason",): 1,
        ("node(s) were unschedulable",): 1,
    }


async def test_reasons_of_extenders_without_end_are_counted_together(
    world: InProcess, first: FakeExtender
) -> None:
    nodes = [make_node(f"m{number}") for number in range(30)]
    reasons = {
        each["metadata"]["name"]: f"{number} " + "x" * 999 for number, each in enumerate(nodes)
    }
    first.answers["filter"] = rejecting(reasons)
    world.apply(*nodes, profile({**FILTER, "urlPrefix": first.url}), pod())
    await eventually(lambda: world.condition("p"))
    await eventually(lambda: world.queue.counted(Place.UNSCHEDULABLE))
    refused = (await explained(world, "p")).refused_by_extenders
    assert refused is not None
    assert len(refused.reasons) == 21
    assert (refused.reasons[0].reasons, refused.reasons[0].nodes) == (
        ["other reasons, or none"],
        10,
    )
    assert max(len(text) for each in refused.reasons for text in each.reasons) <= 256
