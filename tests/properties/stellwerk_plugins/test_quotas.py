"""CapacityScheduling decides and preempts as a reading of its documentation does, node by node."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any, Final

from hypothesis import given, settings
from hypothesis import strategies as st

from stellwerk_kube.json_values import JsonObject
from stellwerk_simulation.cases.plugin_cases import decide_plugin_case

GPU: Final = "example.com/gpu"
ALWAYS: Final = ("cpu", "memory")
TEAMS: Final = ("team-a", "team-b", "team-c")
PRIORITIES: Final = st.sampled_from([0, 0, 10, 100, 500])
Amounts = Mapping[str, int]


@st.composite
def amounts(draw: st.DrawFn, most: int) -> dict[str, str]:
    drawn = {name: draw(st.none() | st.integers(0, most)) for name in (*ALWAYS, GPU)}
    return {name: str(amount) for name, amount in drawn.items() if amount is not None}


@st.composite
def containers(draw: st.DrawFn, name: str) -> JsonObject:
    requests = {"cpu": str(draw(st.integers(0, 3))), "memory": str(draw(st.integers(0, 3)))}
    if draw(st.integers(0, 5)) == 0:
        requests[GPU] = "1"
    return {"name": name, "resources": {"requests": requests, "limits": requests}}


@st.composite
def specs(draw: st.DrawFn) -> JsonObject:
    spec: JsonObject = {
        "containers": [draw(containers(f"c{n}")) for n in range(draw(st.integers(1, 2)))],
        "priority": draw(PRIORITIES),
    }
    if draw(st.integers(0, 4)) == 0:
        init = draw(containers("init"))
        spec["initContainers"] = [
            {**init, **draw(st.sampled_from([{}, {"restartPolicy": "Always"}]))}
        ]
    if draw(st.integers(0, 4)) == 0:
        spec["overhead"] = {"cpu": "1"}
    return spec


@st.composite
def quotas(draw: st.DrawFn) -> list[JsonObject]:
    made = []
    for team in TEAMS[: draw(st.integers(1, 3))]:
        bounds = {"min": draw(amounts(6)), "max": draw(amounts(12))}
        if draw(st.integers(0, 3)):  # the usual one, that names the same in both
            bounds = {name: {"cpu": "12", "memory": "40", GPU: "4"} for name in bounds}
            bounds["min"]["cpu"] = str(draw(st.integers(2, 7)))
        spec = {name: bounds[name] for name in bounds if draw(st.integers(0, 7))}
        made.append({"metadata": {"name": "quota", "namespace": team}, "spec": spec})
    return made


@st.composite
def cases(draw: st.DrawFn) -> JsonObject:
    nodes: list[JsonObject] = []
    others: list[JsonObject] = []
    minutes = draw(st.permutations(range(30)))
    for index in range(draw(st.integers(1, 3))):
        name = f"node-{index}"
        room = {"cpu": str(draw(st.integers(2, 9))), "memory": "9", GPU: "2", "pods": "110"}
        nodes.append({"metadata": {"name": name}, "status": {"allocatable": room}})
        for _ in range(draw(st.integers(1, 5))):
            number = len(others)
            metadata: JsonObject = {
                "name": f"pod-{number}",
                "namespace": draw(st.sampled_from([*TEAMS, *TEAMS, "free"])),
                "labels": {"app": draw(st.sampled_from("xy"))},
            }
            if draw(st.integers(0, 9)) == 0:
                metadata["deletionTimestamp"] = "2026-01-01T01:00:00Z"
            status = {"phase": "Running", "startTime": f"2026-01-01T00:{minutes[number]:02}:00Z"}
            spec = {**draw(specs()), "nodeName": name}
            others.append({"metadata": metadata, "spec": spec, "status": status})
    names = [node["metadata"]["name"] for node in nodes]
    for number in range(draw(st.integers(0, 2))):
        metadata = {"name": f"promised-{number}", "namespace": draw(st.sampled_from(TEAMS))}
        status = {"nominatedNodeName": draw(st.sampled_from(names))}
        others.append({"metadata": metadata, "spec": draw(specs()), "status": status})
    budgets = [
        {
            "metadata": {"name": f"pdb-{number}", "namespace": draw(st.sampled_from(TEAMS))},
            "spec": {"selector": {"matchLabels": {"app": draw(st.sampled_from("xy"))}}},
            "status": {"disruptionsAllowed": draw(st.integers(0, 1))},
        }
        for number in range(draw(st.integers(0, 2)))
    ]
    namespace = draw(st.sampled_from(["team-a", "team-a", "team-b", "free"]))
    metadata = {"name": "incoming", "namespace": namespace}
    pod: JsonObject = {"metadata": metadata, "spec": draw(specs())}
    pod["spec"]["priority"] = draw(st.sampled_from([500, 500, 100, 0]))
    if draw(st.integers(0, 15)) == 15:
        pod["spec"]["preemptionPolicy"] = "Never"
    if draw(st.integers(0, 3)) == 0:
        pod["status"] = {"nominatedNodeName": draw(st.sampled_from(names))}
    return {"nodes": nodes, "pods": others, "pdbs": budgets, "quotas": draw(quotas()), "pod": pod}


# --- the reading --------------------------------------------------------------------------------


def parsed(given: Mapping[str, str]) -> Counter[str]:
    """Whole units; cpu in cores, since no other number is drawn."""
    return Counter({name: int(amount) for name, amount in given.items()})


def in_quota(pod: JsonObject) -> Counter[str]:
    """What a quota counts: the containers or the largest init container, and overhead."""
    spec, total = pod["spec"], Counter[str]()
    for each in spec["containers"]:
        total += parsed(each["resources"]["requests"])
    for each in spec.get("initContainers", ()):
        total |= parsed(each["resources"]["requests"])
    return total + parsed(spec.get("overhead", {}))


def on_node(pod: JsonObject) -> Counter[str]:
    """What a node counts: a sidecar runs on beside what comes after it."""
    spec, beside, total = pod["spec"], Counter[str](), Counter[str]()
    for each in spec.get("initContainers", ()):
        asked = parsed(each["resources"]["requests"])
        total |= beside + asked
        if each.get("restartPolicy") == "Always":
            beside += asked
    for each in spec["containers"]:
        beside += parsed(each["resources"]["requests"])
    return (total | beside) + parsed(spec.get("overhead", {}))


def key(pod: JsonObject) -> str:
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"


def team(pod: JsonObject) -> str:
    return str(pod["metadata"]["namespace"])


def priority(pod: JsonObject) -> int:
    return int(pod["spec"]["priority"])


def started(pod: JsonObject) -> str:
    return str(pod["status"]["startTime"])


def most_important_first(pods: Iterable[JsonObject]) -> list[JsonObject]:
    return sorted(pods, key=lambda pod: (-priority(pod), started(pod)))


class Reading:
    """One case, and the pods that are gone while a node is tried."""

    def __init__(self, case: JsonObject) -> None:
        self.case, self.pod = case, case["pod"]
        self.quotas = {team(quota): quota["spec"] for quota in case["quotas"]}
        self.bound = [pod for pod in case["pods"] if pod["spec"].get("nodeName")]
        self.nominated = [pod for pod in case["pods"] if not pod["spec"].get("nodeName")]
        self.gone: list[JsonObject] = []
        self.own = self.quotas.get(team(self.pod))
        self.a, self.b = in_quota(self.pod), in_quota(self.pod)
        for other in self.nominated:
            if team(other) == team(self.pod):
                if priority(other) >= priority(self.pod):
                    self.a += in_quota(other)
                    self.b += in_quota(other)
            elif team(other) in self.quotas and not self.is_over_min(team(other)):
                self.b += in_quota(other)
        self.is_beyond = self.own is not None and self.is_over_min(team(self.pod), self.a)

    def used(self, *namespaces: str) -> Counter[str]:
        return sum(
            (
                in_quota(pod)
                for pod in self.bound
                if team(pod) in namespaces and pod not in self.gone
            ),
            Counter[str](),
        )

    def is_over_min(self, namespace: str, more: Amounts | None = None) -> bool:
        """Of what is used alone, or with something more, whose devices alone count then."""
        bound, used = parsed(self.quotas[namespace].get("min", {})), self.used(namespace)
        scalars = used if more is None else more
        total = used + Counter(more or {})
        return any(total[name] > bound[name] for name in {*ALWAYS, *scalars})

    def quota_refusal(self, a: Amounts, b: Amounts) -> str:
        if self.own is None:
            return ""
        if "max" in self.own:
            bound, total = self.own["max"], self.used(team(self.pod)) + Counter(a)
            limits = {name: int(bound.get(name, 0)) for name in ALWAYS}
            limits |= {name: int(bound.get(name, 10**9)) for name in a if name not in ALWAYS}
            if any(total[name] > limit for name, limit in limits.items()):
                return f"ElasticQuota {team(self.pod)} is more than Max"
        guaranteed = sum(
            (parsed(quota.get("min", {})) for quota in self.quotas.values()), Counter[str]()
        )
        total = self.used(*self.quotas) + Counter(b)
        if any(total[name] > guaranteed[name] for name in {*ALWAYS, *total}):
            return "total ElasticQuota used is more than min"
        return ""

    def fits(self, node: JsonObject, *, promised: bool = True) -> list[str]:
        """Why the pod does not fit, with what was promised to others counted in or not."""
        name, room = node["metadata"]["name"], parsed(node["status"]["allocatable"])
        here = [p for p in self.bound if p["spec"]["nodeName"] == name and p not in self.gone]
        if promised:
            here += [
                other
                for other in self.nominated
                if other["status"]["nominatedNodeName"] == name
                and priority(other) >= priority(self.pod)
            ]
        used = sum(map(on_node, here), Counter[str]())
        short = [n for n, amount in on_node(self.pod).items() if amount > room[n] - used[n]]
        return [f"Insufficient {name}" for name in short]

    # --- preemption

    def is_waiting(self) -> bool:
        """Whether a pod is leaving already on the node that the pod is nominated to."""
        name = (self.pod.get("status") or {}).get("nominatedNodeName")
        return any(
            self._is_leaving_for_it(other)
            for other in self.bound
            if other["spec"]["nodeName"] == name and other["metadata"].get("deletionTimestamp")
        )

    def _is_leaving_for_it(self, other: JsonObject) -> bool:
        if self.own is None:
            return team(other) not in self.quotas and priority(other) < priority(self.pod)
        if team(other) == team(self.pod):
            return priority(other) < priority(self.pod)
        return team(other) in self.quotas and not self.is_beyond and self.is_over_min(team(other))

    def may_go(self, other: JsonObject) -> bool:
        if self.own is None:
            return team(other) not in self.quotas and priority(other) < priority(self.pod)
        if self.is_beyond:
            return team(other) == team(self.pod) and priority(other) < priority(self.pod)
        return (
            team(other) != team(self.pod)
            and team(other) in self.quotas
            and self.is_over_min(team(other))
        )

    def try_node(self, node: JsonObject) -> str | tuple[list[JsonObject], int]:
        """The victims and the violated budgets; or why there are none."""
        name = node["metadata"]["name"]
        here = [pod for pod in self.bound if pod["spec"]["nodeName"] == name]
        self.gone = []
        for other in reversed(most_important_first(here)):
            if self.may_go(other):
                self.gone.append(other)
        if not self.gone:
            return f"No victims found on node {name} for preemptor pod incoming"
        why = self.fits(node)
        if why:
            return ", ".join(sorted(why))
        request = in_quota(self.pod)
        if self.quota_refusal(request, request):
            return "global quota max exceeded"
        ordered = most_important_first(self.gone)
        marked = self.violating(ordered)
        victims, violations = [], 0
        for other in sorted(ordered, key=lambda pod: key(pod) not in marked):
            self.gone.remove(other)
            unfit = bool(self.fits(node) or self.fits(node, promised=False))
            if unfit or self.quota_refusal(self.a, self.b):
                self.gone.append(other)
                victims.append(other)
                violations += unfit and key(other) in marked
        return most_important_first(victims), violations

    def violating(self, ordered: Sequence[JsonObject]) -> set[str]:
        allowed = {
            budget["metadata"]["name"]: budget["status"]["disruptionsAllowed"]
            for budget in self.case["pdbs"]
        }
        marked = set()
        for pod in ordered:
            for budget in self.case["pdbs"]:
                labels = budget["spec"]["selector"]["matchLabels"]
                if team(budget) == team(pod) and pod["metadata"]["labels"] == labels:
                    name = budget["metadata"]["name"]
                    allowed[name] -= 1
                    if allowed[name] < 0:
                        marked.add(key(pod))
        return marked


def rank(found: tuple[list[JsonObject], int]) -> tuple[Any, ...]:
    """The five criteria, smallest first; of start times the latest is best."""
    victims, violations = found
    highest = priority(victims[0])
    since = min(started(pod) for pod in victims if priority(pod) == highest)
    latest = [-ord(character) for character in since]
    total = sum(priority(pod) + 2**31 for pod in victims)
    return violations, highest, total, len(victims), latest


@settings(max_examples=100, deadline=None)
@given(cases())
def test_quotas(case: JsonObject) -> None:
    result = decide_plugin_case(
        {"id": "drawn", "suite": "drawn", "plugin": "CapacityScheduling", **case}
    )
    reading = Reading(case)
    refused = reading.quota_refusal(reading.a, reading.b)
    if refused:
        reason = f"Pod {key(case['pod'])} is rejected in PreFilter because {refused}"
        assert result["prefilter"] == {"code": "Unschedulable", "reasons": [reason]}
    else:
        assert result["prefilter"] is None
        expected = {node["metadata"]["name"]: reading.fits(node) for node in case["nodes"]}
        assert result["filter"] == {
            name: ", ".join(sorted(why)) or None for name, why in expected.items()
        }
        if not all(expected.values()):
            assert "postfilter" not in result
            return
    preempts_as_read(case, reading, result, refused=bool(refused))


def preempts_as_read(
    case: JsonObject, reading: Reading, result: JsonObject, *, refused: bool
) -> None:
    if case["pod"]["spec"].get("preemptionPolicy") == "Never":
        assert result["postfilter"]["message"] == "not eligible due to preemptionPolicy=Never."
        return
    rooms = {
        node["metadata"]["name"]: parsed(node["status"]["allocatable"]) for node in case["nodes"]
    }
    asked = on_node(case["pod"])
    hopeless = {
        name
        for name, room in rooms.items()
        if not refused and any(amount > room[each] for each, amount in asked.items())
    }
    nominated = (case["pod"].get("status") or {}).get("nominatedNodeName")
    if nominated not in hopeless and reading.is_waiting():
        text = "not eligible due to a terminating pod on the nominated node."
        assert result["postfilter"]["message"] == text
        return
    found = {
        node["metadata"]["name"]: "Preemption is not helpful for scheduling"
        if node["metadata"]["name"] in hopeless
        else reading.try_node(node)
        for node in case["nodes"]
    }
    candidates = {name: each for name, each in found.items() if not isinstance(each, str)}
    if not candidates:
        reasons = sorted(each for each in found.values() if isinstance(each, str))
        counted = Counter(reason for each in reasons for reason in each.split(", "))
        listed = ", ".join(sorted(f"{count} {reason}" for reason, count in counted.items()))
        message = f"0/{len(found)} nodes are available: {listed}."
        assert result["postfilter"] == {"code": "Unschedulable", "message": message}
        assert result["preemption"] is None
        return
    assert result["postfilter"]["code"] == "Success"
    assert result["preemption"]["candidates"] == {
        name: {"victims": [key(pod) for pod in victims], "pdbViolations": violations}
        for name, (victims, violations) in candidates.items()
    }
    ranked = sorted(candidates, key=lambda name: (rank(candidates[name]), name))
    _, names = next(groupby(ranked, key=lambda name: rank(candidates[name])))
    assert result["preemption"]["nodes"] == sorted(names)
