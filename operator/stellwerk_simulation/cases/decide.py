"""`stellwerk decide`: a small cluster and a pod in, the whole decision out.

Called by the command line and by conformance tests. A case and a result have the schema in which
kube-scheduler's decisions were recorded. Invariant: nothing is decided here; a case becomes a
World, `world.decide` decides as it does in the scheduling cycle, and the Decision is written down.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from random import Random  # noqa: TID251 breaks ties; seeded, so that a case is repeatable
from typing import Any, Final, TypeVar

import numpy as np

from stellwerk.answers.answer import codec
from stellwerk.answers.pod import DevicesOfPod
from stellwerk.answers.what_if import (
    MAX_TEMPLATE_PODS,
    SupposedTemplate,
    Supposition,
    WhatIf,
)
from stellwerk.backend.cache import Cache
from stellwerk.backend.nominator import Nominator
from stellwerk.backend.object_store import IndexedObjectStore
from stellwerk.backend.priority_classes import PriorityClasses
from stellwerk.explain.steps import finished
from stellwerk.explain.what_if import what_if
from stellwerk.framework.diagnosis import Diagnosis, fit_error
from stellwerk.framework.interface import PostFilterResult
from stellwerk.framework.score_phase import Scores
from stellwerk.framework.types import CODE_NAMES, OK, CycleState, Feasibility, Status, StatusColumn
from stellwerk.models.pod import PodInfo, parse_pod
from stellwerk.plugins.default_preemption.plugin import DefaultPreemption, EveryCandidate
from stellwerk.plugins.dynamic_resources.extended_resources import CLAIM_NAME
from stellwerk.plugins.dynamic_resources.plugin import DynamicResources
from stellwerk.plugins.dynamic_resources.state_data import StateData
from stellwerk.plugins.registry import known_plugins
from stellwerk.plugins.shared.pod_resource_claims import consumer_of
from stellwerk.profiles.spec.profile import load_profile
from stellwerk.snapshot.snapshot import NodeView
from stellwerk.world.decide import Decision
from stellwerk.world.decide import decide as decide_pod
from stellwerk.world.profiles import Profiles, RecordedRandom, ServedProfile
from stellwerk.world.world import World, offline_profile, offline_queue
from stellwerk_kube.clock import Clock, VirtualClock, parse_moment
from stellwerk_kube.compatibility import AS_RECORDED, AUTO, Compatibility
from stellwerk_kube.errors import ConfigurationError, SchedulerError
from stellwerk_kube.json_values import JsonObject
from stellwerk_kube.node import parse_node
from stellwerk_kube.pod_templates import with_template
from stellwerk_kube.resource_claim import reserved_for

_MAX_CONSUMERS: Final = 256
"""Pods that may share a claim (`ResourceClaimReservedForMaxSize`)."""
Parsed = TypeVar("Parsed")

OBJECT_KINDS: Final = {
    "services": "Service",
    "replicasets": "ReplicaSet",
    "statefulsets": "StatefulSet",
    "replicationcontrollers": "ReplicationController",
    "pvcs": "PersistentVolumeClaim",
    "pvs": "PersistentVolume",
    "storageclasses": "StorageClass",
    "csinodes": "CSINode",
    "csidrivers": "CSIDriver",
    "csistoragecapacities": "CSIStorageCapacity",
    "volumeattachments": "VolumeAttachment",
    "pdbs": "PodDisruptionBudget",
    "namespaces": "Namespace",
    "resourceclaims": "ResourceClaim",
    "resourceslices": "ResourceSlice",
    "deviceclasses": "DeviceClass",
    "devicetaintrules": "DeviceTaintRule",
}
TEMPLATE_FIELD: Final = "template"
"""The field of a case with the manifest of a controller, of whose pods `pod` is one."""
CASE_FIELDS: Final = frozenset(
    {
        *("id", "profile", "nodes", "now", "pods", "pod", "priorityclasses", "tags"),
        *(TEMPLATE_FIELD, *OBJECT_KINDS),
    }
)


class CaseError(SchedulerError):
    """A case that cannot be decided; names the field."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field


class Case:
    """A World loaded from JSON, the pod to decide, and the profile that decides."""

    def __init__(self, case: Mapping[str, Any], compatibility: Compatibility = AS_RECORDED) -> None:
        """`compatibility`: the release to decide as, unless the case's profile names one."""
        _check_fields(case)
        self.id = str(case["id"])
        # A profile's release counts for the whole case: pods are read by it. The profile's own
        # check refuses what is no release.
        with suppress(ConfigurationError):
            named = (case.get("profile") or {}).get("compatibility")
            compatibility = compatibility.of(str(named or AUTO))
        now = case.get("now")
        clock = (
            VirtualClock()
            if now is None
            else VirtualClock(parsed("now", partial(parse_moment, now)))
        )
        self.world = _empty_world(compatibility, clock)
        self._load(case)
        self.pod = self._pod("pod", case["pod"])
        self.profile = self._profile(case.get("profile") or {})
        # Last: plugins may have registered books, which are to see the nodes.
        self.world.cache.update_snapshot()

    def _profile(self, spec: JsonObject) -> ServedProfile:
        """The case's profile.

        Raises:
            ProfileError: it cannot be used.
        """
        world = self.world
        spec = {**spec, "schedulerName": self.pod.spec.scheduler_name}
        auto = world.profiles.compatibility
        loaded = load_profile({"metadata": {"name": self.id}, "spec": spec}, known_plugins(), auto)
        return offline_profile(
            loaded,
            world.cache,
            world.objects,
            world.nominator,
            world.random,
            world.clock,
            compatibility=auto,
        )

    def _load(self, case: Mapping[str, Any]) -> None:
        for index, node in enumerate(case.get("nodes") or ()):
            self.world.cache.set_node(parsed(f"nodes[{index}]", partial(parse_node, node)))
        for field, kind in OBJECT_KINDS.items():
            for index, obj in enumerate(case.get(field) or ()):
                parsed(f"{field}[{index}]", partial(self.world.objects.set, kind, obj))
        for index, obj in enumerate(case.get("priorityclasses") or ()):
            parsed(f"priorityclasses[{index}]", partial(self.world.priority_classes.set, obj))
        for namespace in case.get("namespaces") or ():
            metadata = namespace["metadata"]
            self.world.cache.set_namespace(metadata["name"], metadata.get("labels") or {})
        for index, obj in enumerate(case.get("pods") or ()):
            pod = self._pod(f"pods[{index}]", obj)
            if pod.finished:
                continue
            if pod.node_name:
                self.world.cache.set_pod(pod)
            elif pod.nominated_node_name:
                self.world.nominator.add(pod)

    def _pod(self, field: str, obj: JsonObject) -> PodInfo:
        """A pod of the case, with the priority that admission would have given it."""
        pod: PodInfo = parsed(
            field,
            lambda: parse_pod(
                obj,
                self.world.priority_classes.resolve,
                compatibility=self.world.profiles.compatibility,
            ),
        )
        return pod


def decide(case: Mapping[str, Any], compatibility: Compatibility = AS_RECORDED) -> JsonObject:
    """The decision for one case, as a release decides.

    Raises:
        CaseError: a field of the case is unknown, missing or malformed.
        ProfileError: the case's profile cannot be used.
    """
    loaded = Case(case, compatibility)
    release = str(loaded.profile.compatibility.version)
    result: JsonObject = {"id": loaded.id, "compatibility": release, "error": None}
    if not loaded.world.cache.snapshot.row_of:
        return result | _without_nodes()
    state = CycleState()
    state.write(DefaultPreemption.name, EveryCandidate())
    decision = decide_pod(loaded.world, loaded.pod, loaded.profile, state, thorough=True)
    return result | _Written(loaded.world, decision).result()


def decide_template(case: Mapping[str, Any], compatibility: Compatibility = AS_RECORDED) -> WhatIf:
    """The decisions for the pods of a case's template, one after the other, counted.

    Each pod is placed before the next is decided, as in a what-if.

    Raises:
        CaseError: a field of the case is unknown, missing or malformed.
        ConfigurationError: the template is malformed, or asks for too many pods.
        ProfileError: the case's profile cannot be used.
    """
    loaded = Case(case, compatibility)
    spec = {**(case.get("profile") or {}), "schedulerName": loaded.pod.spec.scheduler_name}
    manifest = case[TEMPLATE_FIELD]
    admitted = {key: case["pod"]["metadata"].get(key) or {} for key in ("labels", "annotations")}
    template = {"metadata": admitted, "spec": case["pod"]["spec"]}
    supposed = Supposition(
        templates=(SupposedTemplate(with_template(manifest, template)),),
        profile={"metadata": {"name": loaded.id}, "spec": spec},
    )
    if supposed.templates[0].pods > MAX_TEMPLATE_PODS:
        raise ConfigurationError(
            f"{loaded.id}: {supposed.templates[0].pods:,} pods; one answer covers at most "
            f"{MAX_TEMPLATE_PODS:,}"
        )
    return finished(what_if(loaded.world, supposed))


class _Written:
    """A Decision while it is written down."""

    def __init__(self, world: World, decision: Decision) -> None:
        self._world = world
        self._decision = decision
        self._search = decision.search
        self._found = decision.search.found
        self._framework = decision.search.profile.framework
        self._snapshot = decision.search.snapshot
        self._names = list(self._snapshot.row_of)

    def result(self) -> JsonObject:
        """Everything but the case's id."""
        decision, found = self._decision, self._found
        failure = decision.failure
        if failure is not None and not failure.rejected:
            return {"error": failure.message} | _devices_of(decision)
        diagnosis = decision.diagnosis or self._framework.filtering.diagnose(
            found, self._search.pod
        )
        result = _pre_filter(found)
        result["filter"] = {
            name: _verdict(status)
            for name, status in zip(self._names, diagnosis.statuses, strict=True)
        }
        if found.pre_filter.ok:
            result["allFilters"] = self._all_filters()
        result["selected"] = []
        result |= _devices_of(decision)
        if decision.scores is not None:
            return result | self._scores(decision.scores)
        post = decision.post_filter or PostFilterResult(OK)
        return result | {
            "message": decision.failure.message if decision.failure else "",
            "preemption": preemption_fields(post),
        }

    def _all_filters(self) -> JsonObject:
        """Every filter on its own, nominated pods and PreFilter's restriction aside."""
        failing: JsonObject = {name: {} for name in self._names}
        state, rows = self._found.state, np.array(list(self._snapshot.row_of.values()), np.intp)
        view = NodeView(self._snapshot, rows)
        for plugin, result in self._framework.filters.each(state, self._search.pod, view):
            for position in np.flatnonzero(result.codes):
                reasons = result.status(int(result.codes[position])).reasons
                failing[self._names[position]][plugin.name] = list(reasons)
        return failing

    def _scores(self, scores: Scores) -> JsonObject:
        names = self._snapshot.names(scores.nodes.row_numbers())
        nominated = self._search.pod.nominated_node_name
        best = [names[position] for position in scores.best_positions()]
        return {
            "scores": _score_table(scores, names),
            "total": dict(zip(names, scores.total.tolist(), strict=True)),
            "selected": [nominated] if self._search.nominated else sorted(best),
        }


def _empty_world(compatibility: Compatibility, clock: Clock) -> World:
    """No node, no pod, no profile; nothing is ever popped from its queue."""
    profiles, nominator = Profiles(compatibility=compatibility), Nominator()
    return World(
        cache=Cache(),
        objects=IndexedObjectStore(),
        priority_classes=PriorityClasses(),
        nominator=nominator,
        queue=offline_queue(profiles, nominator),
        profiles=profiles,
        clock=clock,
        random=RecordedRandom(Random(0)),
    )


def _without_nodes() -> JsonObject:
    return {
        "filter": {},
        "allFilters": {},
        "selected": [],
        "message": fit_error(Diagnosis((), StatusColumn.of(()))),
        "preemption": preemption_fields(PostFilterResult(OK)),
    }


def _score_table(scores: Scores, names: Sequence[str]) -> JsonObject:
    return {
        score.plugin: {
            name: {"raw": raw, "normalized": normalized, "weighted": normalized * score.weight}
            for name, raw, normalized in zip(
                names, score.raw.tolist(), score.normalized.tolist(), strict=True
            )
        }
        for score in scores.by_plugin
    }


def _pre_filter(found: Feasibility) -> JsonObject:
    """The field `prefilter`; empty where PreFilter did nothing."""
    if found.pre_filter.ok and found.node_names is None:
        return {}
    plugin = found.pre_filter.plugin or ", ".join(found.restricted_by) or None
    if not found.pre_filter.ok and not found.pre_filter.plugin:
        plugin = None  # no node is named by all plugins: none of them is to blame
    names = None if found.node_names is None else sorted(found.node_names)
    return {
        "prefilter": {
            "plugin": plugin,
            "code": CODE_NAMES[found.pre_filter.code],
            "reasons": list(found.pre_filter.reasons),
            "nodeNames": names,
        }
    }


def _verdict(status: Status) -> JsonObject:
    if status.ok:
        return {"fits": True}
    verdict: JsonObject = {"fits": False}
    if status.plugin:
        verdict["plugin"] = status.plugin
    return verdict | {"code": CODE_NAMES[status.code], "reasons": list(status.reasons)}


def preemption_fields(post: PostFilterResult) -> JsonObject:
    """The node to clear, its victims, and every candidate, as PostFilter answered."""
    best = post.best(post.candidates) if post.best is not None and post.candidates else ()
    chosen = min(best, key=lambda candidate: candidate.node_name, default=None)
    return {
        "code": CODE_NAMES[post.status.code],
        "message": post.status.message,
        "nominatedNode": chosen.node_name if chosen else None,
        "nominatedNodes": sorted(candidate.node_name for candidate in best),
        "victims": [victim.key for victim in chosen.victims] if chosen else [],
        "candidates": {
            candidate.node_name: {
                "victims": [victim.key for victim in candidate.victims],
                "pdbViolations": candidate.pdb_violations,
            }
            for candidate in post.candidates
        },
    }


def _check_fields(case: Mapping[str, Any]) -> None:
    for field in case:
        if field not in CASE_FIELDS:
            raise CaseError(field, "unknown field")
    for field in ("id", "pod"):
        if field not in case:
            raise CaseError(field, "required field is missing")


def parsed(field: str, parse: Callable[[], Parsed]) -> Parsed:
    """A field of the case as a parser reads it.

    Raises:
        CaseError: the field is malformed.
    """
    try:
        return parse()
    except KeyError as error:
        raise CaseError(field, f"there is no field {error}") from error
    except (TypeError, ValueError, AttributeError) as error:
        raise CaseError(field, f"{type(error).__name__} {error}") from error


# --- devices ------------------------------------------------------------------------------------


def _devices_of(decision: Decision) -> JsonObject:
    """The fields that only cases with claims have; none where devices do not matter.

    `devices` says which devices were considered where no node was found; the allocations shown for
    a node are those that Reserve would keep for it.
    """
    search = decision.search
    state_data = search.found.state.get(DynamicResources.name, StateData)
    plugin = plugin_of(search.profile)
    if plugin is None:
        return {}
    result = _gated(plugin, decision)
    if decision.scores is None:
        nodes = NodeView(search.snapshot)
        report = finished(plugin.explain(search.found.state, search.pod, nodes))
        if report is not None:
            result["devices"] = codec(DevicesOfPod).as_json(report)
    if state_data is None or not state_data.anything:
        return result
    if decision.scores is None:
        return result | _released(plugin, decision, state_data)
    return result | _given(plugin, decision, state_data)


def plugin_of(profile: ServedProfile) -> DynamicResources | None:
    """The profile's plugin for devices, if it has it."""
    plugins = profile.framework.plugins.values()
    return next((each for at in plugins for each in at if isinstance(each, DynamicResources)), None)


def _gated(plugin: DynamicResources, decision: Decision) -> JsonObject:
    status = plugin.pre_enqueue(decision.search.pod)
    if status.ok:
        return {}
    code = CODE_NAMES[status.code]
    gate = {"plugin": status.plugin, "code": code, "reasons": list(status.reasons)}
    return {"preenqueue": gate}


def _released(plugin: DynamicResources, decision: Decision, state_data: StateData) -> JsonObject:
    """The claims that PostFilter deallocates or deletes."""
    if decision.diagnosis is None or decision.post_filter is None:
        return {}
    pod, diagnosis = decision.search.pod, decision.diagnosis
    idle = plugin.deallocatable(state_data, pod, diagnosis)
    if idle:
        return {"deallocate": sorted(claim["metadata"]["name"] for claim in idle)}
    return (
        {"delete": [state_data.stale["metadata"]["name"]]} if state_data.stale is not None else {}
    )


def _given(plugin: DynamicResources, decision: Decision, state_data: StateData) -> JsonObject:
    """The allocation of each claim on each node that takes the pod."""
    search, pod = decision.search, decision.search.pod
    snapshot, found = search.snapshot, search.found
    allocations: JsonObject = {}
    extended: JsonObject = {}
    broken: JsonObject = {}
    for name, row in snapshot.row_of.items():
        if not found.fits[row]:
            continue
        decided = plugin.decide(state_data, pod, name) or []
        allocations[name] = {
            each.claim["metadata"]["name"]: _without_shares(each.allocation) for each in decided
        }
        if state_data.extended is not None and state_data.extended.requests:
            extended[name] = {
                "requests": list(state_data.extended.requests),
                "requestMappings": list(state_data.extended.mappings),
            }
        elif state_data.extended is not None:
            broken[name] = (
                f'running PreBind plugin "{plugin.name}": nil or empty request mappings, no update '
                f"of pod {pod.key} ExtendedResourceClaimStatus"
            )
    result: JsonObject = {"reservedFor": _reserved(state_data, decision)}
    if state_data.to_allocate or state_data.backed:
        result["allocations"] = allocations
    return result | {
        field: value
        for field, value in (("extendedResourceClaims", extended), ("bindErrors", broken))
        if value
    }


def _without_shares(allocation: JsonObject) -> JsonObject:
    """The allocation with "*" for what is made at random."""
    results = [
        {**each, "shareID": "*"} if "shareID" in each else each
        for each in allocation["devices"].get("results") or ()
    ]
    if not results:
        return allocation
    return {**allocation, "devices": {**allocation["devices"], "results": results}}


def _reserved(state_data: StateData, decision: Decision) -> JsonObject:
    """The consumers of each claim once the pod is bound; too many are not shown."""
    pod = decision.search.pod
    reserved: JsonObject = {}
    for claim in state_data.claims:
        consumers = reserved_for(claim)
        if not state_data.is_reserved(claim, pod):
            consumers.append(state_data.consumer(claim, pod))
        if len(consumers) > _MAX_CONSUMERS:
            return {}
        reserved[claim["metadata"]["name"]] = consumers
    if state_data.backed:
        reserved[CLAIM_NAME] = [consumer_of(pod)]
    return reserved
