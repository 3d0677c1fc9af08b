"""What Stellwerk did beside what kube-scheduler did: the differences, each in a line.

Scheduler replays use it. Invariant: what a recording itself leaves open (the order of goroutines,
ties, the order of pods that were there first) is no difference, and everything else is one.
"""

import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final

from stellwerk_kube.json_values import JsonObject
from tests.support.recorded_extender import RECORDED_ADDRESS
from tests.support.scheduler_replay import Outcome, names_of_uids

Normalise = Callable[[Any], Any]
Series = tuple[str, frozenset[tuple[str, str]]]

_UID: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_ASSIGNED: Final = re.compile(r"Successfully assigned \S+/(\S+) to (\S+)")
_OF_EXTENDER: Final = ["any of the names in the extender call"]
_ANY_NODE: Final = "<any node>"
_LABEL: Final = re.compile(r'(\w+)="([^"]*)"')
_COUNTED_OTHERWISE: Final = frozenset(
    {
        # A plugin is asked about all nodes at once, a hint about all pods that are alike.
        "scheduler_plugin_evaluation_total",
        "scheduler_framework_extension_point_duration_seconds_count",
        "scheduler_queueing_hint_execution_duration_seconds_count",
        # Counted where events arrive, under what was watched.
        "scheduler_event_handling_duration_seconds_count",
        # Nodes are known before the first look here, in the recordings after it.
        "scheduler_cache_size",
    }
)
_MOMENT_SECONDS: Final = 0.1
_EMPTY_EVENT_FIELDS: Final = frozenset(
    {"deprecatedSource", "deprecatedFirstTimestamp", "deprecatedLastTimestamp"}
)


class Comparison:
    """Both sides in one form."""

    def __init__(self, recording: JsonObject, outcome: Outcome, normalise: Normalise) -> None:
        """Prepare to compare; `normalise` is the one that comes with the recordings."""
        self._recording = recording
        self._outcome = outcome
        self._normalise = normalise
        self._recorded_names = dict(names_of_uids(recording))
        self._our_names = outcome.names_of_uids
        self._acceptable: dict[str, list[str]] = recording["acceptablePlacements"]
        self._open = {name for name, nodes in self._acceptable.items() if nodes != nodes[:1]}
        self._open |= {name for name, nodes in self._acceptable.items() if nodes == _OF_EXTENDER}
        """Pods that may go to one of several nodes."""

    def differences(self) -> Iterator[str]:
        """Each difference in a line of its own."""
        yield from self._placements()
        yield from self._attempts()
        yield from self._requests()
        yield from self._events()
        yield from self._pods()
        yield from self._objects()
        yield from self._extender_calls()
        yield from self._metrics()

    # --- what is compared -----------------------------------------------------------------------

    def _placements(self) -> Iterator[str]:
        for name, node_name in self._recording["placements"].items():
            found = self._outcome.final_pods.get(name, {}).get("nodeName")
            nodes = self._acceptable.get(name, [node_name])
            if nodes == _OF_EXTENDER:
                nodes = self._offered_to_extender(name)
            if found not in nodes:
                yield f"placement of {name}: {nodes} was recorded, not {found}"

    def _offered_to_extender(self, name: str) -> list[str]:
        return [
            node_name
            for call in self._outcome.extender_calls
            if call["request"]["Pod"]["metadata"]["name"] == name
            for node_name in call["request"]["NodeNames"]
        ]

    def _attempts(self) -> Iterator[str]:
        first = [(each["t"], each["pod"]) for each in self._recording["schedulingAttempts"]]
        second = [(seconds, pod) for seconds, pod in self._recording["attemptTimesInSecondRun"]]
        ours = self._outcome.attempts
        if not any(self._like(ours, run) for run in (first, second)):
            rounded = [(round(seconds, 3), pod) for seconds, pod in ours]
            yield f"attempts:\n    - {first}\n    - {second}\n    + {rounded}"

    def _like(
        self, ours: Sequence[tuple[float, str]], recorded: Sequence[tuple[float, str]]
    ) -> bool:
        """Whether the same pods were taken up in the same order at the same times."""
        there_first = {
            f"{obj['metadata']['namespace']}/{obj['metadata']['name']}": obj["spec"]["priority"]
            for obj in self._recording["initialObjects"]
            if obj["kind"] == "Pod"
        }
        in_order = [there_first.get(pod, pod) for _, pod in ours] == [
            there_first.get(pod, pod) for _, pod in recorded
        ]
        times = zip(_times(ours), _times(recorded), strict=False)
        return in_order and all(
            pod == recorded_pod and (abs(at - recorded_at) < _MOMENT_SECONDS or at < 0)
            for (pod, at), (recorded_pod, recorded_at) in times
        )

    def _requests(self) -> Iterator[str]:
        recorded = self._per_object(self._recording["schedulerRequests"], self._recorded_names)
        ours = self._per_object(self._outcome.requests, self._our_names)
        for about in sorted(recorded.keys() | ours.keys()):
            yield from _side_by_side(about, recorded.get(about, []), ours.get(about, []))

    def _events(self) -> Iterator[str]:
        recorded = self._bag(self._recording["events"], self._recorded_names)
        ours = self._bag(self._outcome.events, self._our_names)
        yield from (f"event missing: {event}" for event in (recorded - ours).elements())
        yield from (f"event added: {event}" for event in (ours - recorded).elements())

    def _pods(self) -> Iterator[str]:
        moments = [("end", self._recording["finalPods"], self._outcome.final_pods)]
        moments += [
            (recorded["note"], recorded["pods"], ours["pods"])
            for recorded, ours in zip(
                self._recording["observations"], self._outcome.observations, strict=True
            )
        ]
        for moment, recorded, ours in moments:
            states = self._states(ours, self._our_names)
            for name, state in self._states(recorded, self._recorded_names).items():
                found = states.get(name, {"gone": True})
                if found != state:
                    yield f"{name} at {moment!r}:\n    - {state}\n    + {found}"

    def _objects(self) -> Iterator[str]:
        """What objects other than pods say that a scheduler may write."""
        stored = {_place(obj): obj for obj in self._outcome.final_objects}
        for obj in self._recording["finalOtherObjects"]:
            recorded = self._same_form(_written(obj), self._recorded_names)
            ours = self._same_form(_written(stored.get(_place(obj), {})), self._our_names)
            if ours != recorded:
                yield f"{_place(obj)} at the end:\n    - {recorded}\n    + {ours}"

    def _extender_calls(self) -> Iterator[str]:
        recorded = self._calls(self._recording.get("extenderCalls", []), self._recorded_names)
        ours = self._calls(self._outcome.extender_calls, self._our_names)
        yield from _side_by_side("extender", recorded, ours)

    def _metrics(self) -> Iterator[str]:
        """Growth of the series whose growth is the same in every run of kube-scheduler."""
        before, after = (
            _samples(self._outcome.metrics_before),
            _samples(self._outcome.metrics_after),
        )
        families = {name for name, _ in after} - _COUNTED_OTHERWISE
        for change in self._recording["metricsChanged"]:
            series = _series(change["series"])
            if not change["sameInSecondRun"] or series[0] not in families:
                continue
            recorded = float(change["after"] or 0) - float(change["before"] or 0)
            ours = after.get(series, 0.0) - before.get(series, 0.0)
            if ours != recorded:
                yield f"{change['series']} grew by {recorded}, not {ours}"

    # --- one form -------------------------------------------------------------------------------

    def _per_object(
        self, requests: Iterable[JsonObject], names: Mapping[str, str]
    ) -> dict[str, list[Any]]:
        """Requests about each object in their order; events apart, as they may overtake others."""
        found: defaultdict[str, list[Any]] = defaultdict(list)
        for request in requests:
            path = self._normalise(request["uri"])
            verb, status = request["verb"], request["status"]
            body = self._same_form(request["requestObject"], names)
            if status == HTTPStatus.FORBIDDEN:
                body = None  # the audit log leaves out what was never looked at
            if "/events" in path:
                about = f"events about {_subject(path, body)}"
                body.pop("metadata", None)
            else:
                about = re.sub(r"/(status|binding)$", "", path)
            found[about].append((verb, path, status, body))
        return found

    def _bag(self, events: Iterable[JsonObject], names: Mapping[str, str]) -> Counter[str]:
        bodies = [self._same_form(event, names) for event in events]
        return Counter(
            json.dumps({key: body[key] for key in body.keys() - {"metadata"}}, sort_keys=True)
            for body in bodies
        )

    def _states(self, pods: JsonObject, names: Mapping[str, str]) -> JsonObject:
        states: JsonObject = self._same_form(pods, names)
        for name in self._open & states.keys():
            if states[name].get("nodeName"):
                states[name]["nodeName"] = _ANY_NODE
        return states

    def _calls(self, calls: Iterable[JsonObject], names: Mapping[str, str]) -> list[Any]:
        found = []
        for call in calls:
            request = self._same_form(call["request"], names)
            self._settle_order(request)
            found.append((call["path"], request))
        return found

    def _settle_order(self, request: JsonObject) -> None:
        """Nodes come in the order in which goroutines found them; of open pods, they are others."""
        if request.get("NodeNames"):
            is_open = request["Pod"]["metadata"]["name"] in self._open
            node_names = request["NodeNames"]
            request["NodeNames"] = len(node_names) if is_open else sorted(node_names)
        if request.get("Nodes"):
            request["Nodes"]["items"].sort(key=lambda node: node["metadata"]["name"])

    def _same_form(self, value: Any, names: Mapping[str, str]) -> Any:
        return self._without_noise(self._normalise(self._named(value, names)))

    def _named(self, value: Any, names: Mapping[str, str]) -> Any:
        """The value with every uid replaced by whose it is, and the extender where it was."""
        if isinstance(value, Mapping):
            return {key: self._named(each, names) for key, each in value.items()}
        if isinstance(value, list):
            return [self._named(each, names) for each in value]
        if isinstance(value, str):
            text = value.replace(self._outcome.extender_address, RECORDED_ADDRESS)
            return _UID.sub(lambda match: f"<uid of {names.get(match[0], 'nobody')}>", text)
        return value

    def _without_noise(self, value: Any) -> Any:
        """The value without what encoders add, and without the nodes that are open."""
        if isinstance(value, Mapping):
            cleaned = {
                key: self._without_noise(each)
                for key, each in value.items()
                if key not in _EMPTY_EVENT_FIELDS and (each or key != "conditions")
            }
            if cleaned.get("kind") == "Binding" and cleaned["metadata"]["name"] in self._open:
                cleaned["target"]["name"] = _ANY_NODE
            return cleaned
        if isinstance(value, list):
            return [self._without_noise(each) for each in value]
        if isinstance(value, str):
            return _ASSIGNED.sub(self._assigned, value)
        return value

    def _assigned(self, note: re.Match[str]) -> str:
        return note[0].replace(note[2], _ANY_NODE) if note[1] in self._open else note[0]


def _place(obj: JsonObject) -> tuple[str, str, str]:
    metadata = obj["metadata"]
    return obj.get("kind", ""), metadata.get("namespace", ""), metadata["name"]


def _written(obj: JsonObject) -> JsonObject:
    """The parts of a claim or a volume that others read."""
    annotations = obj.get("metadata", {}).get("annotations")
    return {"annotations": annotations, "spec": obj.get("spec"), "status": obj.get("status")}


def _samples(text: str) -> dict[Series, float]:
    """The series of an exposition and their values."""
    lines = [line.rpartition(" ") for line in text.splitlines() if not line.startswith("#")]
    return {_series(series): float(value) for series, _, value in lines}


def _series(text: str) -> Series:
    """Name and labels, the labels in whatever order."""
    return text.partition("{")[0], frozenset(_LABEL.findall(text))


def _times(attempts: Sequence[tuple[float, str]]) -> list[tuple[str, float]]:
    return sorted((pod, seconds) for seconds, pod in attempts)


def _subject(path: str, body: JsonObject) -> str:
    """The name of the object that an event, or a patch of one, is about."""
    if "regarding" in body:
        return str(body["regarding"]["name"])
    return path.rpartition("/")[2].removesuffix(".<hex>")


def _side_by_side(what: str, recorded: Sequence[Any], ours: Sequence[Any]) -> Iterator[str]:
    for number in range(max(len(recorded), len(ours))):
        left = recorded[number] if number < len(recorded) else "nothing"
        right = ours[number] if number < len(ours) else "nothing"
        if left != right:
            yield f"{what}, {number}:\n    - {left}\n    + {right}"
