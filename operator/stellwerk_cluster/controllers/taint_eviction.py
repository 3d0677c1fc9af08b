"""Eviction by NoExecute taints of nodes and devices: at once, after `tolerationSeconds`, or never.

Invariant: a pod is deleted when its shortest toleration of the taints has lasted, and not at all if
they go before. A node's taints count from the moment in which they were first seen, those of
devices from their `timeAdded`.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

from typing_extensions import override

from stellwerk_cluster.apimachinery.objects import (
    EMPTY,
    is_terminating,
    key_of,
    meta,
    parse_timestamp,
    timestamp,
    with_value,
)
from stellwerk_cluster.registry.deletion import DeleteOptions, delete
from stellwerk_cluster.registry.entries import DELETED, StoreEvent
from stellwerk_cluster.registry.event_recorder import StoreEventRecorder
from stellwerk_cluster.work import Worker, WorkQueue
from stellwerk_kube.resource_slice import TaintRule, parse_taint_rule
from stellwerk_kube.taints import (
    Taint,
    parse_taints,
    parse_tolerations,
    tolerated_seconds,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator, Mapping
    from datetime import datetime

    from stellwerk_cluster.registry.api import Api
    from stellwerk_kube.json_values import JsonObject
    from stellwerk_kube.resource_slice import PoolKey

_REASON: Final = "TaintManagerEviction"
_DISRUPTION: Final = {
    "type": "DisruptionTarget",
    "status": "True",
    "lastProbeTime": None,
    "reason": "DeletionByTaintManager",
    "message": "Taint manager: deleting due to NoExecute taint",
}


class TaintEvictionController(Worker):
    """Deletes pods when their toleration of the NoExecute taints of their node runs out."""

    def __init__(self, api: Api) -> None:
        """Follow nodes and pods in the store of `api`."""
        self._api = api
        self._events = StoreEventRecorder(api, "taint-eviction-controller")
        self.queue = WorkQueue(api.clock)
        self._doomed_since: dict[str, float] = {}
        """Pod uid → when the taints of its node were first seen to end its stay, monotonic."""
        nodes = api.store.collection("nodes")
        nodes.listeners.append(self._on_node)
        api.store.collection("pods").listeners.append(self._on_pod)
        for entry in nodes.entries():
            if any(_executes(entry.obj)):
                self._look_at_all(entry.key[1])

    def _on_node(self, event: StoreEvent) -> None:
        before = list(_executes(event.previous.obj)) if event.previous else []
        after = [] if event.type == DELETED else list(_executes(event.entry.obj))
        if before != after:
            self._look_at_all(event.entry.key[1])

    def _look_at_all(self, node_name: str) -> None:
        for entry in self._api.store.collection("pods").on_node(node_name):
            self.queue.add(entry.key)

    def _on_pod(self, event: StoreEvent) -> None:
        pod = event.entry.obj
        if event.type == DELETED:
            self._doomed_since.pop(meta(pod)["uid"], None)
            return
        was = event.previous.obj["spec"] if event.previous else EMPTY
        if not event.entry.node_name or (
            was.get("nodeName") and was.get("tolerations") == pod["spec"].get("tolerations")
        ):
            return
        node = self._api.find("nodes", "", event.entry.node_name)
        if node is not None and any(_executes(node)):
            self.queue.add(event.entry.key)

    @override
    def reconcile(self, key: Hashable) -> None:
        """Decide about one pod."""
        assert isinstance(key, tuple)  # noqa: S101  (this queue holds store keys only)
        pod = self._api.find("pods", *key)
        if pod is None or is_terminating(pod):
            return
        node = self._api.find("nodes", "", pod["spec"].get("nodeName", ""))
        uid, now = meta(pod)["uid"], self._api.clock.monotonic()
        seconds = None if node is None else _tolerated_seconds(pod, node)
        if seconds is None:
            if self._doomed_since.pop(uid, None) is not None:
                text = f"Cancelling deletion of Pod {key[0]}/{key[1]}"
                self._events.record(pod, _REASON, text)
            return
        # Counted from here and not from timeAdded, which taints set by users do not have.
        left = self._doomed_since.setdefault(uid, now) + seconds - now
        if left > 0:
            self.queue.add_after(key, left)
        else:
            self._evict(pod)

    def _evict(self, pod: JsonObject) -> None:
        key = key_of(pod)
        self._events.record(pod, _REASON, f"Marking for deletion Pod {key[0]}/{key[1]}")
        _delete_as(self._api, pod, _DISRUPTION)
        self._doomed_since.pop(meta(pod)["uid"], None)


def _delete_as(api: Api, pod: JsonObject, disruption: JsonObject) -> None:
    """Delete a pod, after its status says why."""
    kind, key = api.kinds.resource("pods"), key_of(pod)
    condition = {**disruption, "lastTransitionTime": timestamp(api.now())}
    api.modify(kind, key, lambda obj: _with_condition(obj, condition))
    delete(api, kind, key, DeleteOptions(uid=meta(pod)["uid"]))


def _with_condition(pod: JsonObject, condition: JsonObject) -> JsonObject:
    before = pod["status"].get("conditions") or ()
    kept = [each for each in before if each["type"] != condition["type"]]
    return with_value(pod, ("status", "conditions"), [*kept, condition])


def _executes(node: JsonObject) -> Iterator[JsonObject]:
    return (taint for taint in node["spec"].get("taints") or () if taint["effect"] == "NoExecute")


def _tolerated_seconds(pod: JsonObject, node: JsonObject) -> float | None:
    """The seconds that the pod tolerates the taints; None: without end."""
    tolerations = parse_tolerations(pod["spec"].get("tolerations"))
    return tolerated_seconds(parse_taints(node["spec"].get("taints")), tolerations)


# --- devices ------------------------------------------------------------------------------------

_CLAIMS: Final = "resourceclaims.resource.k8s.io"
_SLICES: Final = "resourceslices.resource.k8s.io"
_RULES: Final = "devicetaintrules.resource.k8s.io"
_DEVICE_REASON: Final = "DeviceTaintManagerEviction"
_DEVICE_DISRUPTION: Final = {
    **_DISRUPTION,
    "reason": "DeletionByDeviceTaintManager",
    "message": "Device Taint manager: deleting due to NoExecute taint",
}


class DeviceTaintEvictionController(Worker):
    """Deletes pods when their claims' tolerations of NoExecute taints of devices run out.

    Taints are those of slices, and those that DeviceTaintRules give to devices.
    """

    def __init__(self, api: Api) -> None:
        """Follow pods, claims, slices and rules in the store of `api`."""
        self._api = api
        self._events = StoreEventRecorder(api, "device-taint-eviction")
        self.queue = WorkQueue(api.clock)
        self._doomed: set[str] = set()
        """The uids of pods whose deletion has been decided on, and is not due yet."""
        self._tainted: dict[PoolKey, dict[str, dict[str, tuple[JsonObject, ...]]]] = {}
        """The NoExecute taints of devices: by pool, by slice, and by device."""
        for entry in api.store.collection(_SLICES).entries():
            self._read_slice(entry.obj, {})
        for name, listener in (
            ("pods", self._on_pod),
            (_CLAIMS, self._on_claim),
            (_SLICES, self._on_slice),
            (_RULES, self._on_rule),
        ):
            api.store.collection(name).listeners.append(listener)
        for claim in api.all(_CLAIMS):
            self._look_at_users(claim)

    # --- what changes ---------------------------------------------------------------------------

    def _on_pod(self, event: StoreEvent) -> None:
        pod = event.entry.obj
        if event.type == DELETED:
            self._doomed.discard(meta(pod)["uid"])
        elif pod["spec"].get("resourceClaims") and (
            event.previous is None or event.previous.node_name != event.entry.node_name
        ):
            self.queue.add(event.entry.key)

    def _on_claim(self, event: StoreEvent) -> None:
        before = EMPTY if event.previous is None else event.previous.obj.get("status") or EMPTY
        after = EMPTY if event.type == DELETED else event.entry.obj.get("status") or EMPTY
        if all(before.get(field) == after.get(field) for field in ("allocation", "reservedFor")):
            return
        for each in (event.previous, event.entry):
            # Claims with many users change often, and most have no device with a taint.
            if each is not None and (self._doomed or self._is_tainted(each.obj)):
                self._look_at_users(each.obj)

    def _on_slice(self, event: StoreEvent) -> None:
        slice_, spec = event.entry.obj, event.entry.obj["spec"]
        pool = spec["driver"], spec["pool"]["name"]
        of_pool = self._tainted.get(pool, {})
        before = of_pool.pop(meta(slice_)["name"], {})
        if event.type != DELETED:
            self._read_slice(slice_, before)
        after = self._tainted.get(pool, {}).get(meta(slice_)["name"], {})
        changed = {name for name in before | after if before.get(name) != after.get(name)}
        if changed:
            self._look_at_holders(lambda key: key[:2] == pool and key[2] in changed)

    def _on_rule(self, event: StoreEvent) -> None:
        before = None if event.previous is None else _rule(event.previous.obj)
        after = None if event.type == DELETED else _rule(event.entry.obj)
        if before != after:
            rules = [each for each in (before, after) if each is not None]
            self._look_at_holders(lambda key: any(rule.selects(key) for rule in rules))

    def _read_slice(self, slice_: JsonObject, before: Mapping[str, tuple[JsonObject, ...]]) -> None:
        """Take the taints of a slice over; those without a `timeAdded` count from now on."""
        spec, now = slice_["spec"], timestamp(self._api.now())
        found: dict[str, tuple[JsonObject, ...]] = {}
        for device in spec.get("devices") or ():
            known = {_identity(each): each for each in before.get(device["name"], ())}
            taints = [each for each in device.get("taints") or () if _is_evicting(each)]
            if taints:
                found[device["name"]] = tuple(
                    [
                        each
                        if each.get("timeAdded")
                        else known.get(_identity(each), {**each, "timeAdded": now})
                        for each in taints
                    ]
                )
        if found:
            pool = spec["driver"], spec["pool"]["name"]
            self._tainted.setdefault(pool, {})[meta(slice_)["name"]] = found

    def _look_at_holders(self, holds: Callable[[tuple[str, str, str]], bool]) -> None:
        for claim in self._api.all(_CLAIMS):
            if any(holds(_device(each)) for each in _results(claim)):
                self._look_at_users(claim)

    def _is_tainted(self, claim: JsonObject) -> bool:
        """Whether a device of the claim has a taint that evicts."""
        return any(True for each in _results(claim) for _ in self._taints_of(_device(each)))

    def _look_at_users(self, claim: JsonObject) -> None:
        for consumer in _reserved_for(claim):
            if consumer.get("resource") == "pods" and not consumer.get("apiGroup"):
                self.queue.add((key_of(claim)[0], consumer["name"]))

    # --- one pod --------------------------------------------------------------------------------

    @override
    def reconcile(self, key: Hashable) -> None:
        """Decide about one pod."""
        assert isinstance(key, tuple)  # noqa: S101  (this queue holds store keys only)
        pod = self._api.find("pods", *key)
        if pod is None or is_terminating(pod):
            return
        uid, when = meta(pod)["uid"], self._end_of(pod)
        if when is None:
            if uid in self._doomed:
                self._doomed.discard(uid)
                self._events.record(pod, _DEVICE_REASON, "Cancelling deletion")
            return
        left_seconds = (when - self._api.now()).total_seconds()
        if left_seconds > 0:
            self._doomed.add(uid)
            self.queue.add_after(key, left_seconds)
            return
        self._doomed.discard(uid)
        self._events.record(pod, _DEVICE_REASON, "Marking for deletion")
        _delete_as(self._api, pod, _DEVICE_DISRUPTION)

    def _end_of(self, pod: JsonObject) -> datetime | None:
        """The moment until which the pod may have the devices of its claims; None: no end."""
        if not pod["spec"].get("nodeName"):
            return None
        namespace, uid = key_of(pod)[0], meta(pod)["uid"]
        ends = [
            end
            for name in _claim_names(pod)
            if (claim := self._api.find(_CLAIMS, namespace, name)) is not None
            if any(each.get("uid") == uid for each in _reserved_for(claim))
            for result in _results(claim)
            if (end := self._end_of_result(result)) is not None
        ]
        return min(ends, default=None)

    def _end_of_result(self, result: JsonObject) -> datetime | None:
        """The moment until which a claim may have a device that it was given."""
        ends = [_end_of_taint(taint, result) for taint in self._taints_of(_device(result))]
        return min((each for each in ends if each is not None), default=None)

    def _taints_of(self, key: tuple[str, str, str]) -> Iterator[JsonObject]:
        for taints in self._tainted.get(key[:2], {}).values():
            yield from taints.get(key[2], ())
        for obj in self._api.all(_RULES):
            rule = _rule(obj)
            if rule is not None and rule.selects(key):
                added = rule.added or obj["metadata"]["creationTimestamp"]
                yield {**obj["spec"]["taint"], "timeAdded": added}


def _identity(taint: JsonObject) -> tuple[str, str]:
    return taint["key"], taint.get("value") or ""


def _is_evicting(taint: JsonObject) -> bool:
    return taint.get("effect") == "NoExecute"


def _rule(obj: JsonObject) -> TaintRule | None:
    """The rule, if it evicts: one without a selector evicts no pod, an empty one is for all."""
    spec = obj["spec"]
    if spec.get("deviceSelector") is None or not _is_evicting(spec["taint"]):
        return None
    return parse_taint_rule(obj)


def _end_of_taint(taint: JsonObject, result: JsonObject) -> datetime | None:
    """The moment until which the tolerations of an allocated device hold; None: no end."""
    seconds = None
    wanted = Taint(taint["key"], taint.get("value") or "", taint["effect"])
    for toleration in parse_tolerations(result.get("tolerations")):
        if toleration.tolerates(wanted):
            if toleration.toleration_seconds is None:
                return None
            limit = max(toleration.toleration_seconds, 0)
            seconds = limit if seconds is None else min(seconds, limit)
    return parse_timestamp(taint["timeAdded"]) + timedelta(seconds=seconds or 0)


def _reserved_for(claim: JsonObject) -> list[JsonObject]:
    return (claim.get("status") or EMPTY).get("reservedFor") or []


def _results(claim: JsonObject) -> list[JsonObject]:
    allocation = (claim.get("status") or EMPTY).get("allocation") or EMPTY
    return (allocation.get("devices") or EMPTY).get("results") or []


def _device(result: JsonObject) -> tuple[str, str, str]:
    return result["driver"], result["pool"], result["device"]


def _claim_names(pod: JsonObject) -> Iterator[str]:
    """The claims that the pod names, and those that were made for it."""
    status = pod.get("status") or EMPTY
    for each in (
        *(pod["spec"].get("resourceClaims") or ()),
        *(status.get("resourceClaimStatuses") or ()),
        status.get("extendedResourceClaimStatus") or EMPTY,
    ):
        if each.get("resourceClaimName"):
            yield each["resourceClaimName"]
