"""Pods that a selector matches are scheduled by its profile, and waiting ones follow changes."""

from collections.abc import Awaitable, Callable
from typing import Any

from stellwerk.profiles.moves import SECONDS_FOR_ANOTHER_SCHEDULER
from stellwerk_kube.clock import VirtualClock
from stellwerk_kube.json_values import JsonObject
from tests.support.builders import make_node, make_pod
from tests.support.findings import hold
from tests.support.in_process import InProcess, eventually, make_profile, quiet, running
from tests.support.pod_groups import make_group, make_member
from tests.support.skipped_time import run_skipping

Flow = Callable[[InProcess, VirtualClock], Awaitable[None]]


def play(flow: Flow) -> None:
    async def run(clock: VirtualClock) -> None:
        async with running(clock) as world:
            await flow(world, clock)

    run_skipping(run)


def make_namespace(name: str, **labels: str) -> JsonObject:
    metadata = {"name": name, "uid": f"namespace-{name}", "labels": labels}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}


def of_team(name: str, team: str, **fields: Any) -> JsonObject:
    selector = {"namespaceSelector": {"matchLabels": {"team": team}}}
    return make_profile(name, selector=selector, **fields)


def scheduled(world: InProcess) -> dict[str, int]:
    return {
        name: profile.activity.scheduled_pods for name, profile in world.profiles.served.items()
    }


def served_by(world: InProcess, pod: str) -> str:
    """The profile under which a pod waits; empty: with those that have none."""
    uid = f"uid-default-{pod}"
    entry = world.queue.entries.get(uid)
    waits = uid in world.operator.without_profile.pods
    assert (entry is None) is waits, "in exactly one place"
    return "" if entry is None else entry.profile_name


def overlapping(world: InProcess, profile: str) -> tuple[str, str, str]:
    for each in world.profile(profile).get("conditions", ()):
        if each["type"] == "Overlapping":
            return each["status"], each["reason"], each["message"]
    return "", "", ""


def test_pods_that_name_no_scheduler_are_scheduled_by_their_namespace() -> None:
    async def flow(world: InProcess, _: VirtualClock) -> None:
        world.apply(make_profile("default-scheduler"), of_team("batch", "batch", created=1))
        world.apply(make_namespace("default", team="batch"), make_namespace("other"))
        world.apply(make_node("n"), make_pod("by-selector"), make_pod("by-name", namespace="other"))
        world.apply(make_pod("named", scheduler_name="batch", namespace="other"))
        await quiet()
        assert scheduled(world) == {"default-scheduler": 1, "batch": 2}

    play(flow)


def test_a_selector_leaves_pods_alone_that_name_another_profile() -> None:
    async def flow(world: InProcess, _: VirtualClock) -> None:
        world.apply(make_profile("spreading"), of_team("batch", "batch"))
        world.apply(make_namespace("default", team="batch"), make_node("n"))
        world.apply(make_pod("p", scheduler_name="spreading"))
        await quiet()
        assert scheduled(world) == {"spreading": 1, "batch": 0}

    play(flow)


def test_a_relabelled_namespace_moves_pods_that_wait_and_no_others() -> None:
    async def flow(world: InProcess, _: VirtualClock) -> None:
        world.apply(of_team("web", "web"), of_team("batch", "batch"))
        world.apply(make_namespace("default", team="web"), make_node("n", cpu="1"))
        world.apply(make_pod("bound", cpu="1"), make_pod("waits", cpu="1"))
        world.apply(make_pod("gated", schedulingGates=[{"name": "later"}]))
        await quiet()
        assert world.node_of("bound") == "n"
        assert (served_by(world, "waits"), served_by(world, "gated")) == ("web", "web")
        world.apply(make_namespace("default", team="batch"))
        assert (served_by(world, "waits"), served_by(world, "gated")) == ("batch", "batch")
        world.apply(make_node("m", cpu="1"))
        await eventually(lambda: world.node_of("waits") == "m")
        assert scheduled(world) == {"web": 1, "batch": 1}

    play(flow)


def test_without_the_label_a_pod_waits_and_says_so() -> None:
    async def flow(world: InProcess, _: VirtualClock) -> None:
        world.apply(of_team("batch", "batch"), make_namespace("default", team="batch"))
        world.apply(make_pod("p"))
        assert served_by(world, "p") == "batch"
        world.apply(make_namespace("default"))
        assert not served_by(world, "p")
        await eventually(lambda: world.condition("p"))
        reason, message = world.condition("p") or ("", "")
        assert reason == "SchedulerError"
        assert message.endswith(", and no selector for that name matches the pod")
        world.apply(make_namespace("default", team="batch"), make_node("n"))
        await eventually(lambda: world.node_of("p") == "n")

    play(flow)


def test_a_pod_waits_for_a_namespace_that_comes_late() -> None:
    async def flow(world: InProcess, clock: VirtualClock) -> None:
        world.apply(make_profile("default-scheduler"), of_team("batch", "batch", created=1))
        world.apply(make_node("n"), make_pod("p"))
        await quiet()
        assert not served_by(world, "p"), "not scheduled by the wrong one"
        assert world.condition("p") is None
        until = clock.monotonic() + SECONDS_FOR_ANOTHER_SCHEDULER + 1
        await eventually(lambda: clock.monotonic() >= until, 60)
        await eventually(lambda: world.condition("p"))
        assert world.condition("p") == (
            "SchedulerError",
            'waiting for the namespace "default", whose labels select a profile',
        )
        world.apply(make_namespace("default", team="batch"))
        await eventually(lambda: world.node_of("p") == "n")
        assert scheduled(world) == {"default-scheduler": 0, "batch": 1}

    play(flow)


def test_a_pod_of_another_scheduler_is_not_written_to() -> None:
    async def flow(world: InProcess, clock: VirtualClock) -> None:
        world.apply(of_team("batch", "batch"), make_namespace("default", team="web"))
        world.apply(make_node("n"), make_pod("theirs"), make_pod("volcanic", scheduler_name="v"))
        until = clock.monotonic() + SECONDS_FOR_ANOTHER_SCHEDULER + 1
        await eventually(lambda: clock.monotonic() >= until, 60)
        assert world.condition("theirs") is world.condition("volcanic") is None
        assert world.notes.events == []

    play(flow)


def test_labels_of_a_pod_and_edits_of_a_selector_move_it_too() -> None:
    async def flow(world: InProcess, _: VirtualClock) -> None:
        web = {"podSelector": {"matchLabels": {"app": "web"}}}
        world.apply(make_namespace("default"))
        world.apply(make_profile("default-scheduler"), make_profile("web", created=1, selector=web))
        world.apply(make_pod("p"))
        await quiet()
        assert served_by(world, "p") == "default-scheduler"
        world.apply(make_pod("p", labels={"app": "web"}))
        assert served_by(world, "p") == "web"
        world.apply(make_profile("web", created=1, generation=2))
        assert served_by(world, "p") == "default-scheduler"
        world.apply(make_profile("web", created=1, generation=3, selector=web))
        assert served_by(world, "p") == "web"
        world.delete("SchedulerProfile", "default-scheduler")
        world.apply(make_pod("p"))
        assert not served_by(world, "p")
        world.apply(make_pod("p", labels={"app": "web"}))
        assert served_by(world, "p") == "web"
        world.delete("SchedulerProfile", "web")
        assert not served_by(world, "p")

    play(flow)


def test_a_pod_is_asked_about_by_the_plugins_of_its_new_profile() -> None:
    async def flow(world: InProcess, _: VirtualClock) -> None:
        everywhere = {"preEnqueue": {"disabled": [{"name": "SchedulingGates"}]}}
        world.apply(of_team("gating", "a"), of_team("open", "b", plugins=everywhere))
        world.apply(make_namespace("default", team="a"), make_node("n"))
        world.apply(make_pod("p", schedulingGates=[{"name": "later"}]))
        await quiet()
        assert world.queue.pending()["gated"] == 1
        world.apply(make_namespace("default", team="b"))
        assert world.queue.pending()["gated"] == 0

    play(flow)


def test_two_selectors_that_match_a_pod_say_so_with_its_number() -> None:
    async def flow(world: InProcess, _: VirtualClock) -> None:
        world.apply(make_namespace("default", team="batch"), make_node("n"))
        world.apply(
            make_profile("new", created=2, selector={"podSelector": {"matchLabels": {"a": "b"}}}),
            of_team("old", "batch", created=1),
        )
        world.apply(make_pod("p"), make_pod("both", labels={"a": "b"}))
        await quiet()
        assert scheduled(world) == {"old": 2, "new": 0}
        await world.status.write_changed()
        for profile, message in (
            ("old", 'the younger SchedulerProfile "new" also matches 1 pod of this selector'),
            ("new", 'the older SchedulerProfile "old" got 1 pod of this selector'),
        ):
            assert overlapping(world, profile) == ("True", "SelectorsOverlap", message)

    play(flow)


def test_an_overlap_ends_with_the_labels_that_it_came_from() -> None:
    async def flow(world: InProcess, clock: VirtualClock) -> None:
        world.apply(make_namespace("default", team="batch"))
        world.apply(of_team("old", "batch"), of_team("new", "batch", created=1))
        world.apply(make_pod("p"))
        await world.status.write_changed()
        assert overlapping(world, "new")[0] == "True"
        world.apply(make_namespace("default"))
        clock.advance(10)
        await world.status.write_changed()
        assert overlapping(world, "new")[:2] == ("False", "NoOverlap")
        world.apply(make_profile("new", created=1, generation=2))
        clock.advance(10)
        await world.status.write_changed()
        assert overlapping(world, "new") == ("", "", "")

    play(flow)


def test_a_binding_under_way_is_finished_by_the_profile_that_began_it() -> None:
    async def flow(world: InProcess, _: VirtualClock) -> None:
        world.apply(of_team("web", "web"), make_namespace("default", team="web"))
        world.apply(make_node("n"), make_pod("p"))
        while "uid-default-p" not in world.cache.assumed_pods:
            await quiet(1)
        world.delete("SchedulerProfile", "web")
        world.apply(make_namespace("default"))
        await eventually(lambda: world.node_of("p") == "n")
        assert world.condition("p") is None

    play(flow)


def test_the_status_counts_pods_that_wait_by_the_profile_that_serves_them() -> None:
    async def flow(world: InProcess, _: VirtualClock) -> None:
        world.apply(make_namespace("default", team="batch"), make_namespace("other"))
        world.apply(make_profile("default-scheduler"), of_team("batch", "batch"))
        world.apply(make_pod("p"), make_pod("q"), make_pod("r", namespace="other"))
        await quiet()
        await world.status.write_changed()
        assert world.profile("batch")["pendingPods"]["total"] == 2
        assert world.profile("default-scheduler")["pendingPods"]["total"] == 1

    play(flow)


def test_a_group_follows_its_namespace_and_is_scheduled_as_a_whole() -> None:
    async def flow(world: InProcess, _: VirtualClock) -> None:
        world.apply(of_team("former", "a", gangScheduling=True))
        world.apply(of_team("gangs", "b", gangScheduling=True))
        world.apply(make_namespace("default", team="a"), make_group("g", 3))
        world.apply(make_node("n", cpu="4"))
        members = [
            make_member(f"m{number}", "g", scheduler_name="default-scheduler")
            for number in range(3)
        ]
        world.apply(*members[:2])
        await quiet()
        world.apply(make_namespace("default", team="b"))
        await quiet()
        assert served_by(world, "m0") == served_by(world, "m1") == "gangs"
        world.apply(members[2])
        await eventually(lambda: all(world.node_of(f"m{number}") == "n" for number in range(3)))
        assert scheduled(world) == {"former": 0, "gangs": 3}

    play(flow)


def test_members_without_a_profile_do_not_count_until_their_labels_give_them_one() -> None:
    async def flow(world: InProcess, _: VirtualClock) -> None:
        web = {"podSelector": {"matchLabels": {"app": "web"}}}
        world.apply(make_profile("web", selector=web, gangScheduling=True))
        world.apply(make_namespace("default"), make_node("n", cpu="4"), make_group("g", 2))
        one, other = (make_member(f"m{n}", "g", scheduler_name="default-scheduler") for n in "12")
        one["metadata"]["labels"] = {"app": "web"}
        world.apply(one, other)
        await quiet()
        assert (served_by(world, "m1"), served_by(world, "m2")) == ("web", "")
        assert world.queue.pending()["gated"] == 1
        other["metadata"]["labels"] = {"app": "web"}
        world.apply(other)
        await eventually(lambda: world.node_of("m1") == world.node_of("m2") == "n")

    play(flow)


def test_a_group_that_selectors_part_fails_with_both_names() -> None:
    async def flow(world: InProcess, _: VirtualClock) -> None:
        web = {"podSelector": {"matchLabels": {"app": "web"}}}
        world.apply(
            make_profile("default-scheduler", gangScheduling=True), make_namespace("default")
        )
        world.apply(make_profile("web", created=1, selector=web, gangScheduling=True))
        world.apply(make_node("n", cpu="4"), make_group("g", 2))
        one, other = (make_member(f"m{n}", "g", scheduler_name="default-scheduler") for n in "12")
        other["metadata"]["labels"] = {"app": "web"}
        world.apply(one, other)
        await eventually(lambda: world.condition("m1"))
        reason, message = world.condition("m1") or ("", "")
        assert reason == "SchedulerError"
        assert message.endswith(
            "be matched by the selector of the same SchedulerProfile, "
            'got: "default-scheduler" and "web"'
        )
        other["metadata"]["labels"] = {}
        world.apply({**world.pod("m2"), "metadata": other["metadata"]})
        await eventually(lambda: world.node_of("m1") == world.node_of("m2") == "n")

    play(flow)


def only_of(name: str, team: str, **fields: Any) -> JsonObject:
    return make_profile(name, namespaces={"matchLabels": {"team": team}}, **fields)


def test_a_profile_takes_pods_of_its_namespaces_and_says_so_to_others() -> None:
    async def flow(world: InProcess, clock: VirtualClock) -> None:
        world.apply(make_profile("default-scheduler"), only_of("gpu", "ml"))
        world.apply(make_namespace("default", team="web"), make_namespace("ml", team="ml"))
        world.apply(make_node("n"), make_pod("mine", scheduler_name="gpu", namespace="ml"))
        world.apply(make_pod("refused", scheduler_name="gpu"), make_pod("other"))
        await quiet()
        assert scheduled(world)["default-scheduler"] == 1
        hold("foreign pods", scheduled(world)["gpu"] - 1)
        assert served_by(world, "refused") == ""
        await eventually(lambda: world.profile("gpu").get("conditions"))
        active = world.profile("gpu")["conditions"][1]["message"]
        assert (
            active
            == 'schedules pods with schedulerName "gpu", of the namespaces in spec.namespaces'
        )
        clock.advance(SECONDS_FOR_ANOTHER_SCHEDULER + 1)
        await eventually(lambda: world.condition("refused") is not None)
        condition = world.condition("refused")
        assert condition is not None
        assert condition[1] == (
            'SchedulerProfile "gpu" takes no pods of the namespace "default": its '
            "spec.namespaces does not match the namespace's labels"
        )
        world.apply(make_namespace("default", team="ml"))
        await quiet()
        assert scheduled(world) == {"default-scheduler": 1, "gpu": 2}

    play(flow)


def test_a_waiting_pod_leaves_a_profile_that_takes_its_namespace_no_more() -> None:
    async def flow(world: InProcess, _: VirtualClock) -> None:
        world.apply(only_of("gpu", "ml"), make_namespace("default", team="ml"))
        world.apply(make_pod("waits", scheduler_name="gpu", cpu="1"))
        await quiet()
        assert served_by(world, "waits") == "gpu"
        world.apply(make_namespace("default", team="web"))
        await quiet()
        assert served_by(world, "waits") == ""
        world.apply(make_profile("gpu", generation=2))
        await quiet()
        assert served_by(world, "waits") == "gpu"

    play(flow)


def test_a_namespace_that_was_not_seen_is_waited_for() -> None:
    async def flow(world: InProcess, _: VirtualClock) -> None:
        world.apply(make_node("n"), only_of("gpu", "ml"))
        world.apply(make_pod("early", scheduler_name="gpu"))
        await quiet()
        assert served_by(world, "early") == ""
        world.apply(make_namespace("default", team="ml"))
        await quiet()
        assert scheduled(world) == {"gpu": 1}

    play(flow)


def test_a_selector_matches_pods_of_the_profiles_namespaces_alone() -> None:
    async def flow(world: InProcess, _: VirtualClock) -> None:
        selecting = make_profile(
            "batch", selector={"podSelector": {}}, namespaces={"matchLabels": {"team": "batch"}}
        )
        world.apply(make_profile("default-scheduler"), selecting, make_node("n"))
        world.apply(make_namespace("default", team="batch"), make_namespace("other"))
        world.apply(make_pod("mine"), make_pod("theirs", namespace="other"))
        await quiet()
        assert scheduled(world) == {"default-scheduler": 1, "batch": 1}

    play(flow)


def credentials_of(world: InProcess, profile: str) -> tuple[str, str]:
    for each in world.profile(profile).get("conditions", ()):
        if each["type"] == "InlineCredentials":
            return each["status"], each["message"]
    return "", ""


def test_credentials_in_a_profile_are_a_condition_until_they_are_gone() -> None:
    async def flow(world: InProcess, _: VirtualClock) -> None:
        url = "http://user:hunter2@gpu.tools.svc"
        world.apply(make_profile("gpu", extenders=[{"urlPrefix": url, "filterVerb": "filter"}]))
        world.apply(make_profile("plain", created=1))
        await eventually(lambda: credentials_of(world, "gpu")[0] == "True")
        message = credentials_of(world, "gpu")[1]
        assert message.startswith("spec.extenders[0].urlPrefix: all who may read")
        assert "hunter2" not in str(world.profile("gpu").get("conditions"))
        assert credentials_of(world, "plain") == ("", "")
        world.apply(make_profile("gpu", generation=2))
        await eventually(lambda: credentials_of(world, "gpu")[0] != "True")

    play(flow)
