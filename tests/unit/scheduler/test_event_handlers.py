"""What an event means to the cache and the queue, and which changes are told to waiting pods."""

import asyncio
from typing import Any

import pytest

from stellwerk.backend.queued_pod import Place
from stellwerk.framework.events import Action, ClusterChange, Resource
from stellwerk.framework.watch_handlers import Lack
from stellwerk.scheduler import event_handlers
from stellwerk_kube.clock import VirtualClock
from stellwerk_kube.json_values import JsonObject
from tests.support.builders import make_node, make_pod, pod_info
from tests.support.in_process import InProcess, make_profile, running
from tests.support.skipped_time import run_skipping

UID = "uid-default-p"
PENDING = make_pod("p", cpu="1")
BOUND = make_pod("p", cpu="1", node_name="n1")
DELETED = {"metadata": {"uid": UID, "name": "p", "namespace": "default"}}


class World(InProcess):
    """An operator that schedules nothing, with what its queue was told."""

    def __init__(self) -> None:
        super().__init__()
        self.changes: list[tuple[Resource | str, Action]] = []
        self.handlers = self.operator.handlers
        self._pass_on = self.queue.move_all_to_active_or_backoff

    def move_all_to_active_or_backoff(
        self, change: ClusterChange, now: float, **options: Any
    ) -> int:
        self.changes.append((change.resource, change.action))
        return self._pass_on(change, now, **options)

    def requested(self, node_name: str = "n1") -> int:
        """Millicores that the next cycle counts on a node."""
        snapshot = self.cache.update_snapshot()
        cpu = snapshot.resource_row["cpu"]
        return int(snapshot.requested[cpu, snapshot.row_of[node_name]])

    def place(self) -> Place | None:
        """Where in the queue pod p is."""
        return self.queue.place(UID)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    """Node n1, and a profile for the pods that name none."""
    world = World()
    world.apply(make_node("n1"), make_profile("default-scheduler"))
    monkeypatch.setattr(
        world.queue, "move_all_to_active_or_backoff", world.move_all_to_active_or_backoff
    )
    return world


# --- pods ---------------------------------------------------------------------------------------


def test_a_pod_without_a_node_is_queued(world: World) -> None:
    world.handlers.on_pod("ADDED", PENDING)
    assert world.place() is Place.ACTIVE
    assert world.requested() == 0
    assert world.changes == []


def test_of_a_first_list_likewise(world: World) -> None:
    world.handlers.on_pod(None, PENDING)
    world.handlers.on_pod(None, make_pod("b", cpu="1", node_name="n1"))
    assert world.place() is Place.ACTIVE
    assert world.requested() == 1000


def test_a_pod_without_a_profile_waits_for_one(world: World) -> None:
    world.handlers.on_pod("ADDED", make_pod("p", scheduler_name="other"))
    assert world.place() is None
    assert UID in world.operator.without_profile.pods
    world.handlers.on_object("SchedulerProfile", "ADDED", make_profile("other", created=1))
    assert world.place() is Place.ACTIVE
    assert UID not in world.operator.without_profile.pods


def test_a_gated_pod_is_kept_out_until_its_gates_are_gone(world: World) -> None:
    world.handlers.on_pod("ADDED", make_pod("p", schedulingGates=[{"name": "g"}]))
    assert world.place() is Place.GATED
    world.handlers.on_pod("MODIFIED", {**PENDING, "metadata": {**PENDING["metadata"]}})
    assert world.place() is Place.ACTIVE


def test_a_pod_bound_from_outside_leaves_the_queue(world: World) -> None:
    world.handlers.on_pod("ADDED", make_pod("waiting"))
    world.handlers.on_pod("ADDED", PENDING)
    world.handlers.on_pod("MODIFIED", BOUND)
    assert world.place() is None
    assert world.requested() == 1000
    assert world.changes == [(Resource.ASSIGNED_POD, Action.ADD)]


def test_a_bound_pod_without_a_profile_only_counts(world: World) -> None:
    world.handlers.on_pod("ADDED", make_pod("p", scheduler_name="other", cpu="1"))
    bound = make_pod("p", scheduler_name="other", cpu="1", node_name="n1")
    world.handlers.on_pod("MODIFIED", bound)
    assert UID not in world.operator.without_profile.pods
    assert world.requested() == 1000


def test_the_watch_confirms_an_assumption(world: World) -> None:
    world.handlers.on_pod("ADDED", make_pod("waiting"))
    world.cache.assume_pod(pod_info("p", cpu="1", node_name="n1"))
    world.operator.bindings.unconfirmed[UID] = 0.0
    world.handlers.on_pod("MODIFIED", BOUND)
    assert UID not in world.cache.assumed_pods
    assert not world.operator.bindings.unconfirmed
    assert world.requested() == 1000
    assert world.changes == [(Resource.ASSIGNED_POD, Action.ADD)]


@pytest.mark.parametrize(
    ("after", "actions"),
    [
        pytest.param(
            make_pod("p", cpu="1", node_name="n1", labels={"a": "b"}),
            [Action.UPDATE_POD_LABEL],
            id="labels",
        ),
        pytest.param(
            make_pod("p", cpu="500m", node_name="n1"), [Action.UPDATE_POD_SCALE_DOWN], id="smaller"
        ),
        pytest.param(
            make_pod("p", cpu="1", node_name="n1"), [Action.UPDATE_POD_OTHER], id="something else"
        ),
    ],
)
def test_changes_of_a_bound_pod_are_told_apart(
    world: World, after: JsonObject, actions: list[Action]
) -> None:
    world.handlers.on_pod("ADDED", BOUND)
    world.changes.clear()
    world.handlers.on_pod("MODIFIED", after)
    assert world.changes == [(Resource.ASSIGNED_POD, action) for action in actions]


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_pod_that_has_finished_frees_its_room(world: World, phase: str) -> None:
    world.handlers.on_pod("ADDED", BOUND)
    world.handlers.on_pod("MODIFIED", {**BOUND, "status": {"phase": phase}})
    assert world.requested() == 0
    assert world.changes[-1] == (Resource.ASSIGNED_POD, Action.DELETE)


@pytest.mark.parametrize("obj", [BOUND, PENDING], ids=["bound", "pending"])
def test_a_deletion_may_carry_nothing_but_metadata(world: World, obj: JsonObject) -> None:
    world.handlers.on_pod("ADDED", obj)
    world.handlers.on_pod("DELETED", DELETED)
    assert world.place() is None
    assert world.requested() == 0
    assert world.cache.pod(UID) is None


def test_the_deletion_of_an_unknown_pod_is_no_news(world: World) -> None:
    world.handlers.on_pod("DELETED", DELETED)
    assert world.changes == []


def test_a_terminating_pod_counts_until_it_is_gone(world: World) -> None:
    going = make_pod("p", cpu="1", node_name="n1")
    going["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    world.handlers.on_pod("ADDED", BOUND)
    world.handlers.on_pod("MODIFIED", going)
    assert world.requested() == 1000


def test_a_withdrawn_nomination_is_told_to_those_it_stood_in_the_way_of(world: World) -> None:
    world.handlers.on_pod("ADDED", make_pod("p", nominated_node_name="n1"))
    assert [pod.uid for pod in world.operator.world.nominator.pods_for_node("n1")] == [UID]
    newer = make_pod("p")
    newer["metadata"]["resourceVersion"] = "2"
    world.handlers.on_pod("MODIFIED", newer)
    assert not list(world.operator.world.nominator.pods_for_node("n1"))
    assert world.changes == [(Resource.ASSIGNED_POD, Action.DELETE)]


def test_a_pod_on_permit_that_is_deleted_is_rejected(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    rejected: list[tuple[str, str]] = []

    class Waiting:
        def reject(self, plugin: str, message: str) -> None:
            rejected.append((plugin, message))

    monkeypatch.setattr(world.operator.waiting_pods, "get_waiting", {UID: Waiting()}.get)
    world.handlers.on_pod("DELETED", DELETED)
    assert rejected == [("", "pod is deleted")]


# --- priorities ---------------------------------------------------------------------------------


def priority_class(name: str, value: int, **fields: Any) -> JsonObject:
    return {"kind": "PriorityClass", "metadata": {"name": name}, "value": value, **fields}


def priority(world: World) -> int:
    pod = world.queue.pod(UID)
    assert pod is not None
    return pod.priority


def test_a_class_gives_the_priority_that_admission_left_open(world: World) -> None:
    world.handlers.on_object("PriorityClass", None, priority_class("high", 7))
    world.handlers.on_pod("ADDED", make_pod("p", priorityClassName="high"))
    assert priority(world) == 7


def test_a_class_that_is_listed_later_still_does(world: World) -> None:
    world.handlers.on_pod(None, make_pod("p", priorityClassName="high"))
    world.handlers.on_object("PriorityClass", None, priority_class("high", 7))
    world.handlers.on_synced("PriorityClass")
    assert priority(world) == 7


def test_a_resolved_priority_never_changes(world: World) -> None:
    world.handlers.on_synced("PriorityClass")
    world.handlers.on_pod("ADDED", PENDING)
    world.handlers.on_object("PriorityClass", "ADDED", priority_class("all", 9, globalDefault=True))
    later = make_pod("p", cpu="1", labels={"a": "b"})
    world.handlers.on_pod("MODIFIED", later)
    assert priority(world) == 0


# --- nodes --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("node", "actions"),
    [
        pytest.param(make_node("n1"), [], id="a heartbeat"),
        pytest.param(make_node("n1", cpu="9"), [Action.UPDATE_NODE_ALLOCATABLE], id="capacity"),
        pytest.param(make_node("n1", labels={"a": "b"}), [Action.UPDATE_NODE_LABEL], id="labels"),
        pytest.param(
            make_node("n1", cpu="9", taints=[{"key": "k", "effect": "NoSchedule"}]),
            [Action.UPDATE_NODE_TAINT, Action.UPDATE_NODE_ALLOCATABLE],
            id="two things at once",
        ),
        pytest.param(make_node("n1", unschedulable=True), [], id="cordoned: helps no pod"),
    ],
)
def test_changes_of_a_node_are_told_apart(
    world: World, node: JsonObject, actions: list[Action]
) -> None:
    world.handlers.on_node("MODIFIED", node)
    assert world.changes == [(Resource.NODE, action) for action in actions]


def test_nodes_come_and_go(world: World) -> None:
    world.handlers.on_node("ADDED", make_node("n2"))
    world.handlers.on_node("DELETED", {"metadata": {"name": "n2", "uid": "node-n2"}})
    assert world.changes == [(Resource.NODE, Action.ADD), (Resource.NODE, Action.DELETE)]
    assert world.cache.node("n2") is None


def test_the_late_deletion_of_a_node_that_was_made_again_is_no_news(world: World) -> None:
    world.handlers.on_node("DELETED", {"metadata": {"name": "n1", "uid": "older"}})
    assert world.changes == []
    assert world.cache.node("n1") is not None


# --- everything else ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "resource"),
    [
        ("Namespace", Resource.NAMESPACE),
        ("PersistentVolumeClaim", Resource.PERSISTENT_VOLUME_CLAIM),
        ("StorageClass", Resource.STORAGE_CLASS),
        ("CSINode", Resource.CSI_NODE),
    ],
)
def test_objects_that_plugins_read_wake_pods(world: World, kind: str, resource: Resource) -> None:
    obj: JsonObject = {"metadata": {"name": "x", "namespace": "default", "uid": "u"}, "spec": {}}
    if kind != "PersistentVolumeClaim":
        del obj["metadata"]["namespace"]
    for event_type in ("ADDED", "MODIFIED", "DELETED", "DELETED"):
        world.handlers.on_object(kind, event_type, obj)
    actions = (Action.ADD, Action.UPDATE_OTHER, Action.DELETE)
    assert world.changes == [(resource, action) for action in actions]


def test_a_service_is_kept_and_wakes_no_pod(world: World) -> None:
    service = {"metadata": {"name": "web", "namespace": "default"}, "spec": {"selector": {}}}
    world.handlers.on_object("Service", "ADDED", service)
    assert world.changes == []
    assert world.operator.world.objects.get("Service", "default", "web") is not None


async def test_predicates_are_looked_at_after_every_event(world: World) -> None:
    looked = []

    def never() -> bool:
        looked.append(1)
        return False

    waiting = asyncio.create_task(world.operator.predicates.wait_until(never, 1000.0))
    await asyncio.sleep(0)
    looked.clear()
    world.handlers.on_pod("ADDED", PENDING)
    world.handlers.on_pod("DELETED", DELETED)
    world.handlers.on_object("Service", "ADDED", {"metadata": {"name": "s"}, "spec": {}})
    assert len(looked) == 3
    waiting.cancel()
    await asyncio.wait({waiting})


# --- malformed objects --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("obj", "problem"),
    [
        pytest.param({"metadata": {"name": "p"}}, "KeyError: 'spec'", id="no spec"),
        pytest.param(make_pod("p", cpu="lots", priority=0), "'lots'", id="no quantity"),
        pytest.param(
            {"metadata": {"name": "p"}, "spec": {"containers": 1}}, "TypeError", id="no list"
        ),
    ],
)
def test_a_malformed_pod_is_a_value_error_and_changes_nothing(
    world: World, obj: JsonObject, problem: str
) -> None:
    with pytest.raises(ValueError, match=problem):
        world.handlers.on_pod("ADDED", obj)
    assert len(world.queue.entries) == 0


def test_a_malformed_node_is_a_value_error_and_changes_nothing(world: World) -> None:
    with pytest.raises(ValueError, match="lots"):
        world.handlers.on_node("MODIFIED", make_node("n1", cpu="lots"))
    assert world.cache.node("n1") is not None


def test_what_was_prepared_is_not_parsed_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    pod, node = make_pod("p", cpu="1", node_name="n1", priority=5), make_node("n9")
    prepared = [world.handlers.prepare(obj["kind"], obj) for obj in (pod, node)]

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("parsed again")

    monkeypatch.setattr(event_handlers, "parse_pod", refuse)
    monkeypatch.setattr(event_handlers, "parse_node", refuse)
    world.handlers.on_pod("ADDED", pod)
    world.handlers.on_node("ADDED", node)
    assert world.requested() == 1000
    assert world.cache.node("n9") is not None
    prepared.clear()
    with pytest.raises(AssertionError, match="parsed again"):
        world.handlers.on_pod("MODIFIED", pod)


def test_a_priority_that_is_left_open_is_looked_up_when_the_pod_is_handled(world: World) -> None:
    world.handlers.on_synced("PriorityClass")
    pod = make_pod("p")
    pod["spec"]["priorityClassName"] = "high"
    prepared = world.handlers.prepare("Pod", pod)
    world.handlers.on_object("PriorityClass", "ADDED", priority_class("high", 7))
    world.handlers.on_pod("ADDED", pod)
    assert prepared is not None
    queued = world.operator.world.queue.pod(UID)
    assert queued is not None
    assert queued.priority == 7


def test_what_is_wrong_with_a_prepared_object_is_said_when_it_is_handled(world: World) -> None:
    node = make_node("n9")
    node["spec"]["taints"] = 5
    prepared = world.handlers.prepare("Node", node)
    with pytest.raises(ValueError, match="TypeError"):
        world.handlers.on_node("ADDED", node)
    assert prepared is not None


LACKS = [
    pytest.param(
        Lack("the API serves no resourceclaims of resource.k8s.io"), "NotServed", id="not served"
    ),
    pytest.param(
        Lack("the API serves resourceclaims in v7, and v1 is read", unreadable=True),
        "VersionUnknown",
        id="in a version of the future",
    ),
]


@pytest.mark.parametrize(("lack", "reason"), LACKS)
def test_pods_whose_claims_cannot_be_seen_say_why_they_wait(
    lack: Lack, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def run(clock: VirtualClock) -> None:
        async with running(clock) as world:
            handlers, operator = world.operator.handlers, world.operator
            references = [{"name": "c", "resourceClaimName": "gpu"}]
            pod: dict[str, Any] = {"scheduler_name": "stellwerk", "resourceClaims": references}
            world.apply(make_profile("stellwerk"), make_node("n"), make_pod("before", **pod))
            await asyncio.sleep(1)
            assert world.condition("before") is None  # a claim may come at any time
            handlers.on_lack("ResourceClaim", lack)
            world.apply(make_pod("after", **pod), make_pod("plain", scheduler_name="stellwerk"))
            await asyncio.sleep(3)
            assert world.node_of("plain") == "n"
            for name in ("before", "after"):
                said, message = world.condition(name) or ("", "")
                assert said == "Unschedulable"
                assert lack.reason in message
            assert caplog.text.count("pods name resource claims") == 1
            stated = _objects_seen(world)
            assert (stated.status, stated.reason) == ("False", reason)
            assert 'stellwerk_kind_missed{kind="ResourceClaim"} 1' in operator.exposition().decode()
            claim = {
                "metadata": {
                    "name": "gpu",
                    "namespace": "default",
                    "uid": "c",
                    "resourceVersion": "1",
                }
            }
            users = [{"uid": f"uid-default-{name}"} for name in ("before", "after")]
            allocation: JsonObject = {"devices": {"results": []}}
            status: JsonObject = {"allocation": allocation, "reservedFor": users}
            claim["spec"], claim["status"] = {}, status
            handlers.on_object("ResourceClaim", "ADDED", claim)
            handlers.on_lack("ResourceClaim", None)
            await asyncio.sleep(15)
            assert world.node_of("before") == "n"
            assert _objects_seen(world).status == "True"
            assert 'stellwerk_kind_missed{kind="ResourceClaim"} 0' in operator.exposition().decode()

    with caplog.at_level("WARNING"):
        run_skipping(run)


def _objects_seen(world: InProcess) -> Any:
    [profile] = world.operator.profile_status.described()
    [found] = [each for each in profile.conditions if each.type == "ObjectsSeen"]
    return found
