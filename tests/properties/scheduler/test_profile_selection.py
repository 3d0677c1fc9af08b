"""Random histories of namespaces' labels, profiles and pods: each pod has the profile it should.

A plain function says from the objects alone which profile serves a pod. After each event every
waiting pod is under that profile, or with those that have none, and groups are counted likewise.
"""

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final

from hypothesis import given, settings
from hypothesis import strategies as st

from stellwerk.backend.queued_pod import IN_FLIGHT, ActiveItem, QueuedPod
from stellwerk_kube.json_values import JsonObject
from tests.support.builders import make_pod
from tests.support.in_process import InProcess, make_profile

NAMESPACES: Final = ("a", "b")
NAMES: Final = ("p1", "p2", "p3", "default-scheduler")
LABELS: Final = st.dictionaries(st.sampled_from("xy"), st.sampled_from("12"), max_size=2)

REQUIREMENT: Final = st.one_of(
    st.builds(
        lambda key, operator, values: {"key": key, "operator": operator, "values": values},
        st.sampled_from("xy"),
        st.sampled_from(["In", "NotIn"]),
        st.lists(st.sampled_from("12"), min_size=1, max_size=2),
    ),
    st.builds(
        lambda key, operator: {"key": key, "operator": operator},
        st.sampled_from("xy"),
        st.sampled_from(["Exists", "DoesNotExist"]),
    ),
)
LABEL_SELECTOR: Final = st.fixed_dictionaries(
    {},
    optional={"matchLabels": LABELS, "matchExpressions": st.lists(REQUIREMENT, max_size=2)},
)
SELECTOR: Final = st.fixed_dictionaries(
    {},
    optional={
        "schedulerNames": st.lists(st.sampled_from(NAMES), min_size=1, max_size=3, unique=True),
        "namespaceSelector": LABEL_SELECTOR,
        "podSelector": LABEL_SELECTOR,
    },
).filter(bool)


@dataclass(slots=True)
class History:
    """The objects as a user has written them, and the operator that has seen each event."""

    world: InProcess
    namespaces: dict[str, JsonObject] = field(default_factory=dict)
    profiles: dict[str, JsonObject] = field(default_factory=dict)
    pods: dict[str, JsonObject] = field(default_factory=dict)
    popped: list[QueuedPod] = field(default_factory=list)
    events: int = 0

    def namespace(self, name: str, labels: dict[str, str] | None) -> None:
        if labels is None:
            if self.namespaces.pop(name, None) is not None:
                self.world.delete("Namespace", name)
            return
        metadata = {"name": name, "uid": name, "labels": labels}
        obj = {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}
        self.namespaces[name] = obj
        self.world.apply(obj)

    def profile(self, name: str, selector: JsonObject | None, *, gone: bool) -> None:
        if gone:
            if self.profiles.pop(name, None) is not None:
                self.world.delete("SchedulerProfile", name)
            return
        self.events += 1
        spec: dict[str, Any] = {} if selector is None else {"selector": selector}
        created = NAMES.index(name) % 2
        obj = make_profile(name, created=created, generation=self.events, **spec)
        self.profiles[name] = obj
        self.world.apply(obj)

    def pod(self, number: int, labels: dict[str, str] | None) -> None:
        """The pods differ in namespace, schedulerName and group by their number."""
        namespace, name = NAMESPACES[number % 2], f"pod-{number}"
        if labels is None:
            if self.pods.pop(name, None) is not None:
                self.world.delete("Pod", name, namespace)
            return
        group: dict[str, Any] = (
            {"schedulingGroup": {"podGroupName": "g"}} if number % 3 == 0 else {}
        )
        scheduler_name = NAMES[number % 4]
        if number % 5 == 0:
            group["schedulingGates"] = [{"name": "later"}]
        pod = make_pod(
            name, namespace=namespace, scheduler_name=scheduler_name, labels=labels, **group
        )
        self.pods[name] = pod
        self.world.apply(pod)

    def pop(self) -> None:
        for entry in self.world.queue.entries.values():
            if entry.place not in IN_FLIGHT:
                queued = self.world.queue.pop(ActiveItem((), entry.sequence, entry))
                self.popped += [] if queued is None else [queued]
                return

    def give_back(self) -> None:
        for queued in self.popped:
            self.world.queue.add_unschedulable_if_not_present(
                queued, ["NodeResourcesFit"], now=self.world.clock.monotonic()
            )
            self.world.operator.without_profile.take_out(queued.newest)
        self.popped.clear()

    def check(self) -> None:
        while self.world.queue.backlog.work_off():
            pass
        without = self.world.operator.without_profile.pods
        counted: dict[str, Counter[str]] = {}
        for pod in self.pods.values():
            uid, expected = pod["metadata"]["uid"], self.served_by(pod)
            entry = self.world.queue.entries.get(uid)
            assert (entry is None) is (uid in without)
            if entry is not None and entry.place in IN_FLIGHT:
                continue
            assert ("" if entry is None else entry.profile_name) == expected
        for key, members in self.world.operator.world.pod_groups.groups.items():
            counted[key.namespace] = Counter()
            for each in members.pods.values():
                if each.spec.scheduling_gates:
                    continue  # it does not count as one that can be scheduled
                counted[key.namespace][self.served_by(self.pods[each.name])] += 1
            served = {name: count for name, count in members.pending.items() if count}
            known = {name: count for name, count in served.items() if name in self.profiles}
            assert known == {name: n for name, n in counted[key.namespace].items() if name}

    def served_by(self, pod: JsonObject) -> str:
        """The profile that ought to serve a pod; empty: none."""
        wanted = pod["spec"]["schedulerName"]
        namespace = self.namespaces.get(pod["metadata"]["namespace"])
        order = sorted(
            self.profiles.values(),
            key=lambda each: (each["metadata"]["creationTimestamp"], each["metadata"]["name"]),
        )
        for profile in order:
            selector = profile["spec"].get("selector")
            if selector is None:
                continue
            if wanted not in selector.get("schedulerNames", ["default-scheduler"]):
                continue
            if not matches(selector.get("podSelector", {}), pod["metadata"]["labels"]):
                continue
            of_namespace = selector.get("namespaceSelector", {})
            if any(of_namespace.values()) and namespace is None:
                return ""
            if namespace is None or matches(of_namespace, namespace["metadata"]["labels"]):
                return str(profile["spec"]["schedulerName"])
        return wanted if wanted in self.profiles else ""


def matches(selector: JsonObject, labels: dict[str, str]) -> bool:
    """A label selector in the API's form, read word by word."""
    for key, value in selector.get("matchLabels", {}).items():
        if labels.get(key) != value:
            return False
    for each in selector.get("matchExpressions", []):
        value, operator = labels.get(each["key"]), each["operator"]
        holds = {
            "In": value is not None and value in each.get("values", []),
            "NotIn": value is None or value not in each.get("values", []),
            "Exists": value is not None,
            "DoesNotExist": value is None,
        }
        if not holds[operator]:
            return False
    return True


EVENT: Final = st.one_of(
    st.tuples(st.just("namespace"), st.sampled_from(NAMESPACES), st.none() | LABELS),
    st.tuples(st.just("profile"), st.sampled_from(NAMES), st.none() | SELECTOR, st.booleans()),
    st.tuples(st.just("pod"), st.integers(0, 11), st.none() | LABELS),
    st.tuples(st.just("profile"), st.sampled_from(NAMES), SELECTOR, st.just(value=False)),
    st.tuples(st.just("pod"), st.integers(0, 11), LABELS),
    st.tuples(st.sampled_from(["pop", "give back"])),
)


@settings(max_examples=15, deadline=None)
@given(events=st.lists(EVENT, min_size=10, max_size=50))
def test_after_each_event_every_pod_is_under_the_profile_that_serves_it(
    events: list[tuple[Any, ...]],
) -> None:
    async def live() -> None:
        history = History(InProcess())
        for event in events:
            match event:
                case "namespace", name, labels:
                    history.namespace(name, labels)
                case "profile", name, selector, gone:
                    history.profile(name, selector, gone=gone)
                case "pod", number, labels:
                    history.pod(number, labels)
                case ("pop",):
                    history.pop()
                case _:
                    history.give_back()
            history.check()

    asyncio.run(live())
