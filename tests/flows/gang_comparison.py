"""What Stellwerk did with groups of pods beside what kube-scheduler did: facts, not attempts.

Replays of the gang scenarios use it. Invariant: what their README calls no fact (how often
something was tried, counts of event series, which of several equal members is left over, the order
of requests) is no difference, and every other fact is one.
"""

import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from http import HTTPStatus
from typing import Any, Final

from stellwerk_kube.json_values import JsonObject
from tests.support.scheduler_replay import Outcome, names_of_uids

Normalise = Callable[[Any], Any]
_ANY_NODE: Final = "<any node>"
_OWN_TYPES: Final = "scheduling.stellwerk.dev/"
_TIMES: Final = frozenset({"lastTransitionTime", "lastProbeTime", "observedGeneration"})
_PODS: Final = "/api/v1/namespaces/default/pods"


class GangComparison:
    """Both sides in one form, in which equal members of a group have one name."""

    def __init__(
        self,
        recording: JsonObject,
        outcome: Outcome,
        normalise: Normalise,
        own_reasons: frozenset[str] = frozenset(),
    ) -> None:
        """Prepare to compare; conditions and events with `own_reasons` are silence upstream."""
        self._recording = recording
        self._outcome = outcome
        self._normalise = normalise
        self._own_reasons = own_reasons
        self._alike = _alike(recording)
        names = {**dict(names_of_uids(recording)), **outcome.names_of_uids}
        self._names = {uid: f"<uid of {name}>" for uid, name in names.items()}
        acceptable = recording["acceptablePlacements"]
        self._unsure = {name for name, nodes in acceptable.items() if None in nodes}
        """Pods that are placed or not, as the order falls out in which pods were there first."""
        self._unsure_groups = {
            step["body"]["spec"]["schedulingGroup"]["podGroupName"]
            for step in recording["setup"]
            if step["path"] == _PODS
            and step["body"]["metadata"]["name"] in self._unsure
            and "schedulingGroup" in step["body"]["spec"]
        }
        self._open = {name for name, nodes in acceptable.items() if len(nodes) > 1}
        self._nodes = {node for name in self._open for node in acceptable[name] if node}
        self._open |= {
            name
            for name in self._alike
            if any(self._alike[name] == self._alike.get(each) for each in self._open)
        }

    def differences(self) -> Iterator[str]:
        """Each difference in a line of its own, the moment first."""
        for name in sorted(self._unsure):
            node_name = self._outcome.final_pods[name]["nodeName"]
            if node_name not in self._recording["acceptablePlacements"][name]:
                yield f"placement of {name}: {node_name}"
        for moment, recorded, ours in self._moments():
            yield from _lines(f"pods {moment}", self._pods(recorded), self._pods(ours))
        for moment, recorded, ours in self._group_moments():
            yield from _lines(f"groups {moment}", self._groups(recorded), self._groups(ours))
        yield from _lines("victims", *(Counter(each) for each in self._victims()))
        for what, facts in (("event", self._events), ("request", self._requests)):
            yield from _lines(what, *(Counter(facts(each)) for each in self._sides()))

    # --- moments --------------------------------------------------------------------------------

    def _moments(self) -> Iterator[tuple[str, JsonObject, JsonObject]]:
        pairs = zip(self._recording["observations"], self._outcome.observations, strict=True)
        for recorded, ours in pairs:
            yield recorded["note"], recorded["pods"], ours["pods"]
        yield "at the end", self._recording["finalPods"], self._outcome.final_pods

    def _group_moments(self) -> Iterator[tuple[str, JsonObject, JsonObject]]:
        pairs = zip(self._recording["observations"], self._outcome.observations, strict=True)
        for recorded, ours in pairs:
            yield recorded["note"], recorded["podGroups"], ours["podGroups"]
        yield "at the end", self._recording["finalPodGroups"], self._outcome.final_pod_groups

    def _pods(self, pods: JsonObject) -> Counter[str]:
        found: Counter[str] = Counter()
        for name, state in pods.items():
            if name in self._unsure:
                continue
            shown = {key: state[key] for key in ("phase", "nodeName") if state.get(key)}
            if state.get("nominatedNodeName"):
                shown["nominatedNodeName"] = state["nominatedNodeName"]
            if state.get("deletionTimestamp"):
                shown["deleted"] = True
            conditions = self._conditions(state.get("conditions") or ())
            found[self._form({"pod": name, **shown, "conditions": conditions}, name)] += 1
        return found

    def _groups(self, groups: JsonObject) -> Counter[str]:
        found: Counter[str] = Counter()
        for name, state in groups.items():
            if name in self._unsure_groups:
                continue
            conditions = self._conditions(state.get("conditions") or ())
            found[self._form({"group": name, "conditions": conditions})] += 1
        return found

    def _conditions(self, conditions: Iterable[JsonObject]) -> list[JsonObject]:
        return [
            {key: value for key, value in each.items() if key not in _TIMES}
            for each in conditions
            if each.get("reason") not in self._own_reasons
            and not each["type"].startswith(_OWN_TYPES)
        ]

    # --- what was written -----------------------------------------------------------------------

    def _sides(self) -> Iterator[JsonObject]:
        recorded = self._recording
        yield {"requests": recorded["schedulerRequests"], "events": recorded["events"]}
        yield {"requests": self._outcome.requests, "events": self._outcome.events}

    def _victims(self) -> Iterator[list[str]]:
        for side in self._sides():
            deleted = [each for each in side["requests"] if each["verb"] == "delete"]
            names = (each["uri"].rpartition("/")[2] for each in deleted if _PODS in each["uri"])
            yield sorted({self._named(name) for name in names} - self._unsure)

    def _events(self, side: JsonObject) -> set[str]:
        """What was said of pods; of groups, kube-scheduler says nothing (13)."""
        return {
            self._form(
                {
                    "about": each["regarding"]["name"],
                    **{key: each[key] for key in ("type", "reason", "action", "note")},
                },
                each["regarding"]["name"],
            )
            for each in side["events"]
            if each["reason"] not in self._own_reasons
            and each["regarding"]["kind"] != "PodGroup"
            and each["regarding"]["name"] not in self._unsure
        }

    def _requests(self, side: JsonObject) -> set[str]:
        """The bodies that were sent; which of them were sent again is no fact."""
        found: set[str] = set()
        reasons: dict[str, str] = {}
        for each in side["requests"]:
            path, verb = each["uri"], each["verb"]
            name = path.removeprefix(f"{_PODS}/").partition("/")[0] if _PODS in path else ""
            status = _without_own((each["requestObject"] or {}).get("status") or {})
            if (
                "/events" in path
                or verb == "delete"
                or each["status"] == HTTPStatus.CONFLICT
                or status.get("conditions") == []  # of types of our own alone
                or set(status) == {"nominatedNodeName"}  # members are bound at once here
                or name in self._unsure
                or path.split("/")[-2] in self._unsure_groups
            ):
                continue
            before = reasons.get(path, "")
            for condition in status.get("conditions") or ():
                reasons[path] = condition.get("reason", before)
            if reasons.get(path) in self._own_reasons:
                continue
            body = _without_times(each["requestObject"])
            if status:
                body["status"] = _without_times(status)
            if set(body.get("metadata", {})) == {"uid"}:
                # Stellwerk names the object that it means; kube-scheduler does not.
                del body["metadata"]
            if "/podgroups/" in path:
                # It comes with every condition but the first, which may be one of our own here.
                body["status"].pop("$setElementOrder/conditions", None)
            fact = {"verb": verb, "path": path, "status": each["status"], "body": body}
            found.add(self._form(fact, name))
        return found

    # --- one form -------------------------------------------------------------------------------

    def _form(self, fact: JsonObject, pod: str = "") -> str:
        text = _replaced(json.dumps(fact, sort_keys=True), self._names)
        text = json.dumps(self._normalise(json.loads(text)), sort_keys=True)
        text = _replaced(text, self._alike)
        return _replaced(text, dict.fromkeys(self._nodes, _ANY_NODE)) if pod in self._open else text

    def _named(self, pod: str) -> str:
        return self._alike.get(pod, pod)


def _alike(recording: JsonObject) -> dict[str, str]:
    """A common name for each set of members that nothing tells apart, by their own names."""
    made: dict[str, str] = {}
    touched: set[str] = set()
    for step in (*recording["setup"], *recording["actions"]):
        path, body = step.get("path") or "", step.get("body") or {}
        if path == _PODS:
            name = body["metadata"]["name"]
            touched |= {name} & made.keys()
            made[name] = json.dumps({**body, "metadata": {**body["metadata"], "name": ""}})
        elif path.startswith(f"{_PODS}/") and step["method"] != "DELETE":
            touched.add(path.removeprefix(f"{_PODS}/").partition("/")[0])
    members: defaultdict[str, list[str]] = defaultdict(list)
    for name, body in made.items():
        if name not in touched and "schedulingGroup" in body:
            members[body].append(name)
    return {
        name: f"<member {number}, one of {len(names)}>"
        for number, names in enumerate(members.values())
        if len(names) > 1
        for name in names
    }


def _replaced(text: str, names: Mapping[str, str]) -> str:
    if not names:
        return text
    known = "|".join(map(re.escape, names))
    return re.sub(rf"(?<![\w.-])({known})(?![\w.-])", lambda match: names[match[1]], text)


def _without_own(status: JsonObject) -> JsonObject:
    """A status without conditions of types that kube-scheduler does not write."""
    if "conditions" not in status:
        return status
    kept = [each for each in status["conditions"] if not each["type"].startswith(_OWN_TYPES)]
    return {**status, "conditions": kept}


def _without_times(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {
            key: _without_times(each)
            for key, each in value.items()
            if key not in _TIMES and key != "resourceVersion"
        }
    if isinstance(value, list):
        return [_without_times(each) for each in value]
    return value


def _lines(what: str, recorded: Counter[str], ours: Counter[str]) -> Iterator[str]:
    for fact, times in sorted((recorded - ours).items()):
        yield f"{what}: missing ({times}): {fact}"
    for fact, times in sorted((ours - recorded).items()):
        yield f"{what}: added ({times}): {fact}"
