"""A preemptor is spared the end of another pod only where it could do nothing with it."""

from hypothesis import given
from hypothesis import strategies as st

from stellwerk.framework.events import Action, ClusterChange, Resource
from stellwerk.plugins.resources.freed_room import FreedRoom
from stellwerk.plugins.shared.victims import PREEMPTION_BY_SCHEDULER
from stellwerk_kube.json_values import JsonObject
from tests.support.builders import make_node, make_pod, pod_info
from tests.support.preemption_cases import make_arena

NODES = ("a", "b", "c")
PREEMPTOR = pod_info("p", cpu="3", priority=10)
LEAVING = {"type": "DisruptionTarget", "status": "True", "reason": PREEMPTION_BY_SCHEDULER}


@st.composite
def placed_pods(draw: st.DrawFn) -> list[JsonObject]:
    pods = []
    for node_name in NODES:
        for number in range(draw(st.integers(0, 4))):
            pod = make_pod(
                f"{node_name}{number}",
                cpu=str(draw(st.integers(1, 2))),
                node_name=node_name,
                priority=draw(st.sampled_from([1, 20])),
            )
            if draw(st.booleans()):
                pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
                pod["status"]["conditions"] = [LEAVING]
            pods.append(pod)
    return pods


@given(
    pods=placed_pods(),
    nominated=st.sampled_from(["", *NODES, "gone"]),
    others=st.lists(st.tuples(st.sampled_from(NODES), st.sampled_from([1, 10, 20])), max_size=2),
    pick=st.integers(0, 99),
)
def test_a_spared_preemptor_fits_nowhere_new_and_waits_for_victims_of_its_own(
    pods: list[JsonObject], nominated: str, others: list[tuple[str, int]], pick: int
) -> None:
    arena = make_arena([make_node(name, cpu="4") for name in NODES], pods)
    for number, (node_name, priority) in enumerate(others):
        arena.nominator.nominate(pod_info(f"o{number}", cpu="1", priority=priority), node_name)
    pod = PREEMPTOR
    arena.nominator.nominate(pod, nominated)
    on_nodes = list(arena.cache.pods())
    if not on_nodes:
        return
    gone = on_nodes[pick % len(on_nodes)]
    handle = arena.framework.handle
    before = arena.framework.filtering.find_feasible(pod, sample=False).fits.copy()
    arena.cache.remove_pod(gone.uid)
    arena.cache.update_snapshot()
    change = ClusterChange(Resource.ASSIGNED_POD, Action.DELETE, gone, None)
    helps = FreedRoom(handle).may_help(pod, change)
    after = arena.framework.filtering.find_feasible(pod, sample=False).fits
    row = arena.cache.snapshot.row_of[gone.node_name]
    if helps:
        return
    assert not after[row]
    assert (before == after).all()
    own = arena.cache.pods_on(nominated).values()
    assert any(each.terminating and each.priority < pod.priority for each in own)


@given(
    pods=placed_pods(),
    waiting=st.lists(st.tuples(st.sampled_from(NODES), st.sampled_from([10, 20])), min_size=2),
    late=st.sampled_from(NODES),
)
def test_what_is_found_for_alike_preemptors_is_what_each_would_be_told(
    pods: list[JsonObject], waiting: list[tuple[str, int]], late: str
) -> None:
    arena = make_arena([make_node(name, cpu="4") for name in NODES], pods)
    preemptors = [
        pod_info(f"p{number}", cpu="3", priority=priority)
        for number, (_, priority) in enumerate(waiting)
    ]
    for pod, (node_name, _) in zip(preemptors, waiting, strict=True):
        arena.nominator.nominate(pod, node_name)
    handle = arena.framework.handle
    for gone in list(arena.cache.pods())[:2]:
        arena.cache.remove_pod(gone.uid)
        arena.cache.update_snapshot()
        change = ClusterChange(Resource.ASSIGNED_POD, Action.DELETE, gone, None)
        room = FreedRoom(handle)
        for pod in preemptors:
            assert room.may_help(pod, change) == FreedRoom(handle).may_help(pod, change)
        # Another nomination counts from then on.
        arena.nominator.nominate(pod_info("late", cpu="1", priority=20), late)
        for pod in preemptors:
            assert room.may_help(pod, change) == FreedRoom(handle).may_help(pod, change)


def test_the_last_victims_end_wakes_its_preemptor_and_no_other() -> None:
    leaving = make_pod("v", cpu="1", node_name="a", priority=1)
    leaving["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    leaving["status"]["conditions"] = [LEAVING]
    on_b = {**leaving, "metadata": {**leaving["metadata"], "name": "w", "uid": "w"}}
    on_b["spec"] = {**leaving["spec"], "nodeName": "b"}
    arena = make_arena(
        [make_node(name, cpu="3") for name in NODES],
        [leaving, on_b, *(make_pod(f"{n}2", cpu="2", node_name=n, priority=20) for n in "c")],
    )
    first, second = (pod_info(name, cpu="3", priority=10) for name in ("p", "q"))
    arena.nominator.nominate(first, "a")
    arena.nominator.nominate(second, "b")
    gone = arena.cache.remove_pod("uid-default-v")
    arena.cache.update_snapshot()
    freed = FreedRoom(arena.framework.handle)
    change = ClusterChange(Resource.ASSIGNED_POD, Action.DELETE, gone, None)
    assert freed.may_help(first, change)
    assert not freed.may_help(second, change), "the room is the first one's"
    arena.nominator.remove(first.uid)
    assert freed.may_help(second, change), "and now it is free"


def test_a_victim_that_is_gone_or_too_important_by_now_is_no_longer_waited_for() -> None:
    victim = make_pod("v", cpu="3", node_name="b", priority=1)
    victim["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    victim["status"]["conditions"] = [LEAVING]
    others = [make_pod(f"a{n}", cpu="1", node_name="a", priority=20) for n in range(4)]
    arena = make_arena([make_node(name, cpu="4") for name in NODES], [victim, *others])
    preemptor, lower = pod_info("p", cpu="3", priority=10), pod_info("q", cpu="3", priority=1)
    for pod in (preemptor, lower):
        arena.nominator.nominate(pod, "b")
    freed = FreedRoom(arena.framework.handle)

    def help_of_an_end(uid: str) -> list[bool]:
        gone = arena.cache.remove_pod(uid)
        arena.cache.update_snapshot()
        change = ClusterChange(Resource.ASSIGNED_POD, Action.DELETE, gone, None)
        return [freed.may_help(pod, change) for pod in (preemptor, lower)]

    assert help_of_an_end("uid-default-a0") == [False, True]
    assert help_of_an_end("uid-default-v") == [True, True]
    assert help_of_an_end("uid-default-a1") == [True, True]


def test_what_a_node_leaves_to_devices_is_no_room_that_lacks() -> None:
    victim = make_pod("v", cpu="1", node_name="a", priority=1)
    victim["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    victim["status"]["conditions"] = [LEAVING]
    others = [victim, make_pod("w", cpu="2", node_name="b", priority=20)]
    arena = make_arena([make_node(name, cpu="3") for name in NODES], others)
    preemptor = pod_info("p", requests={"cpu": "3", "example.com/gpu": "1"}, priority=10)
    arena.nominator.nominate(preemptor, "a")
    gone = arena.cache.remove_pod("uid-default-w")
    arena.cache.update_snapshot()
    change = ClusterChange(Resource.ASSIGNED_POD, Action.DELETE, gone, None)
    handle = arena.framework.handle
    assert not FreedRoom(handle).may_help(preemptor, change)
    by_devices = FreedRoom(handle, lambda _, node, name: name not in node.allocatable)
    assert by_devices.may_help(preemptor, change)
