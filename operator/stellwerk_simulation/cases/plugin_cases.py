"""`stellwerk decide` for cases of one plugin: what it says at each of its points.

A case names a plugin and a suite, in the schema in which plugins of kube-scheduler's ecosystem were
recorded. Invariant: the plugin is asked by the framework, in a World and under a profile, as in a
scheduling cycle; nothing here knows what it decides.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from random import Random  # noqa: TID251 breaks ties; seeded, so that a case is repeatable
from typing import Any, Final, TypeGuard

from typing_extensions import override

from stellwerk.backend.cache import Cache
from stellwerk.backend.nominator import Nominator
from stellwerk.backend.object_store import IndexedObjectStore
from stellwerk.backend.priority_classes import PriorityClasses
from stellwerk.framework.extension_points import QUEUE_SORT
from stellwerk.framework.handle import NothingRead
from stellwerk.framework.offline import offline_services
from stellwerk.framework.services import NumberSource
from stellwerk.framework.types import CODE_NAMES, CycleState, PluginFailure, Status
from stellwerk.models.pod import PodInfo, parse_pod
from stellwerk.plugins.assembly import Assembly
from stellwerk.plugins.registry import known_plugins
from stellwerk.profiles.spec.plugin_description import ExtensionPoint
from stellwerk.profiles.spec.profile import load_profile
from stellwerk.world.decide import Decision, find_nodes, is_broken
from stellwerk.world.decide import decide as decide_pod
from stellwerk.world.profiles import Profiles, RecordedRandom, ServedProfile
from stellwerk.world.world import World, offline_queue
from stellwerk_kube.clock import VirtualClock, parse_moment
from stellwerk_kube.errors import ProfileError
from stellwerk_kube.json_values import JsonObject
from stellwerk_kube.node import parse_node
from stellwerk_simulation.cases.decide import CaseError, parsed, preemption_fields

OBJECT_FIELDS: Final = {
    "pdbs": "PodDisruptionBudget",
    "topologies": "NodeResourceTopology",
    "quotas": "ElasticQuota",
}
_FIELDS: Final = frozenset(
    {
        "id",
        "suite",
        "plugin",
        "args",
        "nodes",
        "pods",
        "metrics",
        "assigned",
        "assumed",
        "pod",
        "queue",
        "expected",
        *OBJECT_FIELDS,
    }
)
_TYPE: Final = frozenset({"apiVersion", "kind"})
_FILTERS_BESIDE: Final = (
    "NodeUnschedulable",
    "NodeName",
    "TaintToleration",
    "NodeAffinity",
    "NodeResourcesFit",
)
"""The plugins before one that makes room by preemption."""
_MAX_TIME_SECONDS: Final = 253_402_300_800
"""The end of the year 9999 in seconds since 1970: Python has no later time."""
_ORIGINAL: Final = "args_of_the_original"
"""The arguments, beyond those of a case, with which a plugin decides as the one it stands for."""


def is_plugin_case(case: Mapping[str, Any]) -> bool:
    """Whether a case is about one plugin."""
    return "plugin" in case and "suite" in case


def decide_plugin_case(case: Mapping[str, Any]) -> JsonObject:
    """The answers of the case's plugin at each of its extension points.

    Raises:
        CaseError: a field of the case is unknown, missing or malformed.
    """
    for name in case:
        if name not in _FIELDS:
            raise CaseError(name, "unknown field")
    try:
        return {"id": case.get("id"), **_PluginCase(case).answers()}
    except ProfileError as error:
        return {"id": case.get("id"), "refuses": str(error)}
    except PluginFailure as failure:
        # The cases that follow are decided all the same.
        return {"id": case.get("id"), "error": str(failure)}


@dataclass(slots=True)
class _GivenNumbers(NothingRead):
    """In place of what a source would read, what the case says it read last."""

    objects: IndexedObjectStore
    given: JsonObject | None

    @override
    def follow(self, source: NumberSource) -> None:
        if self.given is not None:
            self.objects.hold(
                source.kind, {"metadata": {"name": source.name}, **source.checked(self.given)}
            )


class _PluginCase:
    """A World loaded from a case, and a profile whose plugin is asked about it."""

    def __init__(self, case: Mapping[str, Any]) -> None:
        self._case = case
        self._plugin = str(case["plugin"])
        self._state = CycleState()
        known = known_plugins()
        if self._plugin not in known:
            raise CaseError("plugin", f'no plugin "{self._plugin}" is installed')
        self._points = known[self._plugin].extension_points
        self._world, self._clock = self._empty_world()
        self._load()
        self._profile = self._served()
        self._bind_in_order()
        if "assumed" in case:
            self._look()
            self._assume()

    def answers(self) -> JsonObject:
        """Everything but the case's id."""
        if "queue" in self._case:
            return {"order": self._order()}
        pod = self._pod("pod", self._case.get("pod"))
        if pod.nominated_node_name:
            self._world.nominator.add(pod)
        if ExtensionPoint.POST_FILTER in self._points:
            return self._whole(pod)
        return self._parts(pod)

    # --- the World ------------------------------------------------------------------------------

    def _empty_world(self) -> tuple[World, VirtualClock]:
        profiles, nominator = Profiles(), Nominator()
        clock = VirtualClock(datetime.fromtimestamp(self._beginning(), UTC))
        world = World(
            cache=Cache(),
            objects=IndexedObjectStore(),
            priority_classes=PriorityClasses(),
            nominator=nominator,
            queue=offline_queue(profiles, nominator),
            profiles=profiles,
            clock=clock,
            random=RecordedRandom(Random(0)),
        )
        return world, clock

    def _beginning(self) -> float:
        """The earliest time of which the case speaks."""
        times = list(self._assigned().values())
        metrics = self._case.get("metrics")
        measured = metrics.get("timestamp") if isinstance(metrics, Mapping) else None
        times += [measured] if _is_time(measured) else []
        return max(0.0, float(min(times, default=0)))

    def _assigned(self) -> Mapping[str, float]:
        """The times at which the plugin saw pods bound, by key."""
        given = self._case.get("assigned") or {}
        if not isinstance(given, Mapping):
            raise CaseError("assigned", "an object is expected")
        for key, at_seconds in given.items():
            if not _is_time(at_seconds):
                raise CaseError(f"assigned.{key}", "seconds since the epoch are expected")
        return given

    def _load(self) -> None:
        for index, node in enumerate(self._case.get("nodes") or ()):
            self._world.cache.set_node(parsed(f"nodes[{index}]", partial(parse_node, node)))
        for name, kind in OBJECT_FIELDS.items():
            for index, obj in enumerate(self._case.get(name) or ()):
                parsed(f"{name}[{index}]", partial(self._world.objects.set, kind, obj))
        assigned = self._assigned()
        for pod in self._pods("pods"):
            if pod.node_name and pod.key not in assigned:
                self._world.cache.set_pod(pod)
            elif not pod.node_name and pod.nominated_node_name:
                self._world.nominator.add(pod)

    def _pods(self, name: str) -> Iterator[PodInfo]:
        for index, obj in enumerate(self._case.get(name) or ()):
            pod = self._pod(f"{name}[{index}]", obj)
            if not pod.finished:
                yield pod

    def _pod(self, place: str, obj: JsonObject | None) -> PodInfo:
        if obj is None:
            raise CaseError(place, "required field is missing")
        return parsed(place, lambda: parse_pod(obj))

    def _served(self) -> ServedProfile:
        """The profile: the plugin, and what no profile can do without.

        Raises:
            ProfileError: it cannot be used, mostly because the arguments are wrong.
        """
        world = self._world
        loaded = load_profile(
            {"metadata": {"name": self._plugin}, "spec": self._spec()}, known_plugins()
        )
        services = replace(
            offline_services(
                world.cache.snapshot, world.objects, world.nominator, world.random, world.clock.now
            ),
            sources=_GivenNumbers(world.objects, self._case.get("metrics")),
        )
        framework = Assembly(loaded, services).framework
        served = ServedProfile(loaded, framework, random=world.random)
        world.profiles.serve([served], {})
        world.cache.update_snapshot()
        return served

    def _spec(self) -> JsonObject:
        sorting = ExtensionPoint.QUEUE_SORT in self._points
        beside = _FILTERS_BESIDE if ExtensionPoint.POST_FILTER in self._points else ()
        enabled = [*beside, self._plugin, "DefaultBinder", *(() if sorting else ("PrioritySort",))]
        off = {"disabled": [{"name": "*"}], "enabled": [{"name": each} for each in enabled]}
        pod = self._case.get("pod") or {}
        name = (pod.get("spec") or {}).get("schedulerName") or "default-scheduler"
        spec: JsonObject = {"schedulerName": name, "plugins": {"multiPoint": off}}
        args = self._args()
        if args:
            spec["pluginConfig"] = [{"name": self._plugin, "args": args}]
        return spec

    def _args(self) -> JsonObject:
        given = self._case.get("args") or {}
        model = known_plugins()[self._plugin].args_model
        return {
            **getattr(model, _ORIGINAL, {}),
            **{name: value for name, value in given.items() if name not in _TYPE},
        }

    def _bind_in_order(self) -> None:
        """Pods appear on their nodes when the case says that the plugin saw them."""
        assigned = self._assigned()
        if not assigned:
            return
        pods = [pod for pod in self._pods("pods") if pod.key in assigned and pod.node_name]
        self._look()
        for pod in sorted(pods, key=lambda each: float(assigned[each.key])):
            passed = float(assigned[pod.key]) - self._clock.now().timestamp()
            self._clock.advance(max(0.0, passed))
            self._world.cache.set_pod(pod)
            self._look()

    def _look(self) -> None:
        """The plugin sees the cluster as it is, as in a cycle for some pod."""
        self._world.cache.update_snapshot()
        pod = self._pod("pod", self._case.get("pod"))
        decide_pod(self._world, pod, self._profile, thorough=True)

    def _assume(self) -> None:
        """Pods that this scheduler has reserved."""
        for pod in self._pods("assumed"):
            self._world.cache.assume_pod(pod)
            self._world.cache.update_snapshot()
            self._profile.framework.binding.reserve(CycleState(), pod, pod.node_name)

    # --- what the plugin says -------------------------------------------------------------------

    def _order(self) -> list[str]:
        (plugin,) = self._profile.framework.plugins[ExtensionPoint.QUEUE_SORT]
        key = QUEUE_SORT.method_of(plugin)  # type: ignore[arg-type]
        queue = [
            (
                self._pod(f"queue[{index}].pod", each.get("pod")),
                parsed(f"queue[{index}].timestamp", partial(_seconds, each.get("timestamp"))),
            )
            for index, each in enumerate(self._case["queue"])
        ]
        queue.sort(key=lambda entry: key(*entry))
        return [pod.key for pod, _ in queue]

    def _parts(self, pod: PodInfo) -> JsonObject:
        """PreFilter, Filter and Score, each on its own."""
        result: JsonObject = {}
        search = find_nodes(self._world, pod, self._profile, self._state, thorough=True)
        found = search.found
        if is_broken(search):
            return {"error": found.pre_filter.message}
        if ExtensionPoint.PRE_FILTER in self._points:
            result["prefilter"] = _rejection(found.pre_filter)
        if not found.pre_filter.ok:
            return result
        if ExtensionPoint.FILTER in self._points:
            diagnosis = self._profile.framework.filtering.diagnose(found, pod)
            result["filter"] = self._reasons(diagnosis.statuses)
        if ExtensionPoint.SCORE not in self._points:
            return result
        if not found.fits.any():
            return {**result, "raw": {}, "normalised": {}}
        decision = decide_pod(self._world, pod, self._profile, thorough=True)
        return result | self._scores(decision)

    def _scores(self, decision: Decision) -> JsonObject:
        if decision.scores is None:
            return {}
        names = self._world.cache.snapshot.names(decision.scores.nodes.row_numbers())
        for each in decision.scores.by_plugin:
            if each.plugin == self._plugin:
                return {
                    "raw": dict(zip(names, each.raw.tolist(), strict=True)),
                    "normalised": dict(zip(names, each.normalized.tolist(), strict=True)),
                }
        # PreScore left it out: the framework counts 0.
        nothing = dict.fromkeys(names, 0)
        return {"raw": nothing, "normalised": nothing}

    def _whole(self, pod: PodInfo) -> JsonObject:
        """A whole decision, preemption included."""
        decision = decide_pod(self._world, pod, self._profile, self._state, thorough=True)
        found = decision.search.found
        if decision.failure is not None and not decision.failure.rejected:
            return {"error": decision.failure.message}
        result: JsonObject = {"prefilter": _rejection(found.pre_filter)}
        if found.pre_filter.ok:
            diagnosis = self._profile.framework.filtering.diagnose(found, pod)
            result["filter"] = self._reasons(diagnosis.statuses)
        post = decision.post_filter
        if post is None:
            return result
        result["postfilter"] = {"code": CODE_NAMES[post.status.code]}
        if post.status.message:
            result["postfilter"]["message"] = post.status.message
        fields = preemption_fields(post)
        result["preemption"] = (
            {
                "node": fields["nominatedNode"],
                "nodes": fields["nominatedNodes"],
                "victims": fields["victims"],
                "candidates": fields["candidates"],
            }
            if fields["candidates"]
            else None
        )
        return result

    def _reasons(self, statuses: Sequence[Status]) -> JsonObject:
        names = list(self._world.cache.snapshot.row_of)
        return {
            name: None if status.ok else ", ".join(sorted(status.reasons))
            for name, status in zip(names, statuses, strict=True)
        }


def _rejection(status: Status) -> JsonObject | None:
    if status.ok or status.skip:
        return None
    return {"code": CODE_NAMES[status.code], "reasons": list(status.reasons)}


def _is_time(value: object) -> TypeGuard[float]:
    """Whether it is a number of seconds that a clock may show."""
    return (
        isinstance(value, (int, float))
        and not isinstance(value, bool)
        and abs(value) < _MAX_TIME_SECONDS
    )


def _seconds(value: object) -> float:
    if isinstance(value, (int, float)):
        return float(value)
    return parse_moment(value).timestamp()
