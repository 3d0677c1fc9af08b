"""Claims for devices in a cluster that answers at once: what is written of them, and what follows.

Simulations and reruns have one each, as the client of the plugins that decide. Claims are made from
templates when a pod comes and given up when it goes, as the controller of claims does; devices that
have to become ready are ready. Invariant: a claim that is shown here is shown to the scheduler as a
watch would show it, before anything else happens.
"""

from collections import defaultdict
from collections.abc import Callable, Coroutine, Mapping, Sequence
from itertools import count
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from typing_extensions import override

from stellwerk.backend.object_store import IndexedObjectStore
from stellwerk.framework.extension_points import PRE_BIND
from stellwerk.framework.interface import APICall
from stellwerk.framework.offline import Offline, OfflineError
from stellwerk.framework.runtime import Framework
from stellwerk.framework.types import OK, CycleState, Status
from stellwerk.models.pod import PodInfo
from stellwerk.models.pod_claims import RESOURCE_CLAIM
from stellwerk.plugins.dynamic_resources.plugin import DynamicResources
from stellwerk_kube.errors import NotFound
from stellwerk_kube.json_values import JsonObject
from stellwerk_kube.resource_claim import is_allocated, reserved_for, uid_of

TEMPLATE: Final = "ResourceClaimTemplate"
POD_CLAIM: Final = "resource.kubernetes.io/pod-claim-name"
GROUP_CLAIM: Final = "resource.kubernetes.io/pod-group-claim-name"
_COLLECTION: Final = "resourceclaims"
OF_USE: Final = frozenset({"allocation", "reservedFor", "devices"})
"""Fields of a claim's status that say which pods have it, and which devices they have."""

Show: TypeAlias = Callable[[str, JsonObject], None]
"""Takes the type of a watch event and the claim to the World."""
SharedClaims: TypeAlias = Mapping[tuple[str, str], str]
"""A group's claims by the name of the reference and its template."""


class InstantClaims(Offline):
    """The claims of a cluster, and the part of its API that writes them."""

    def __init__(self, objects: IndexedObjectStore, show: Show) -> None:
        self.objects, self._show = objects, show
        self.specs: dict[tuple[str, str], JsonObject] = {}
        """Claims as they once were made, by namespace and name, for pods without their template."""
        self._used_by: defaultdict[str, set[tuple[str, str]]] = defaultdict(set)
        """Namespace and name of each claim that a consumer uses or owns, by the consumer's uid."""
        self._given_up: set[tuple[str, str]] = set()
        """Claims that went with their pods."""
        self._ours: set[tuple[str, str]] = set()
        """Claims whose devices are given and taken back here."""
        self._numbers = count(1)

    # --- what a pod's way asks for ----------------------------------------------------------------

    def bound(self, framework: Framework, state: CycleState, assumed: PodInfo) -> Status:
        """Write the claims of a pod as decided; not ok: it cannot be bound."""
        if not (assumed.spec.resource_claims or assumed.extended_requests):
            return OK
        for plugin in PRE_BIND.among(framework.plugins):
            if not isinstance(plugin, DynamicResources):
                continue
            flight = plugin.pre_bind_pre_flight(state, assumed, assumed.node_name)
            if not flight.skip:
                status: Status = _at_once(plugin.pre_bind(state, assumed, assumed.node_name))
                return status
        return OK

    def carry_out(self, api_call: APICall) -> None:
        """Do what a plugin wants done in the cluster, as far as it is about claims."""

        async def act() -> None:
            await api_call.carry_out(self)

        try:
            _at_once(act())
        except (NotFound, OfflineError):
            return  # it is gone already, or about another kind

    # --- what the controller of claims does -------------------------------------------------------

    def made_for(
        self,
        owner: JsonObject,
        annotation: str = POD_CLAIM,
        shared: SharedClaims = MappingProxyType({}),
    ) -> list[JsonObject]:
        """Make the claims that an owner's templates ask for; returns its resourceClaimStatuses.

        The owner is a pod, or a group with its annotation. `shared`: claims of a pod's group, by
        the name of the reference and its template.
        """
        metadata, status = owner["metadata"], owner.get("status") or {}
        namespace = metadata.get("namespace") or "default"
        before = {
            each["name"]: each.get("resourceClaimName") or ""
            for each in status.get("resourceClaimStatuses") or ()
        }
        statuses = []
        for reference in owner["spec"].get("resourceClaims") or ():
            template_name, called = reference.get("resourceClaimTemplateName"), reference["name"]
            if not template_name:
                continue
            name = shared.get((called, template_name), "")
            template = self.objects.get(TEMPLATE, namespace, template_name)
            known = self.specs.get((namespace, before.get(called, "")))
            if not name and template is not None:
                name = self._make(owner, called, annotation, template["spec"], template)
            elif not name and known is not None:
                name = self._make(owner, called, annotation, known, known)
            if name:
                statuses.append({"name": called, "resourceClaimName": name})
        return statuses

    def _make(
        self,
        owner: JsonObject,
        called: str,
        annotation: str,
        wanted: JsonObject,
        versioned: JsonObject,
    ) -> str:
        """Make a claim for an owner's reference; returns its name."""
        of_owner, asked = owner["metadata"], wanted.get("metadata") or {}
        namespace = of_owner.get("namespace") or "default"
        name = f"{of_owner['name']}-{called}"
        if self.objects.get(RESOURCE_CLAIM, namespace, name) is not None:
            name = f"{name}-{next(self._numbers)}"
        owned = {
            "apiVersion": owner.get("apiVersion") or "v1",
            "kind": owner.get("kind") or "Pod",
            "name": of_owner["name"],
            "uid": of_owner["uid"],
            "controller": True,
        }
        metadata = {
            "name": name,
            "namespace": namespace,
            "uid": f"claim {namespace}/{name}",
            "labels": dict(asked.get("labels") or {}),
            "annotations": {**(asked.get("annotations") or {}), annotation: called},
            "ownerReferences": [owned],
        }
        version = versioned.get("apiVersion") or "resource.k8s.io/v1"
        claim = {"apiVersion": version, "kind": RESOURCE_CLAIM, "metadata": metadata}
        self._used_by[of_owner["uid"]].add((namespace, name))
        self._show("ADDED", self._stored({}, {**claim, "spec": wanted["spec"]}))
        return name

    def given_up(self, uid: str) -> None:
        """A consumer is gone: its reservations, and with the last of one the devices."""
        for key in sorted(self._used_by.pop(uid, ())):
            claim = self.objects.get(RESOURCE_CLAIM, *key)
            if claim is None:
                continue
            left = [each for each in reserved_for(claim) if each.get("uid") != uid]
            status = {
                name: value
                for name, value in (claim.get("status") or {}).items()
                if name not in OF_USE or left
            }
            if left:
                status["reservedFor"] = left
            changed = self._stored(claim, {**claim, "status": status})
            if is_allocated(claim) or reserved_for(claim):
                self._show("MODIFIED", changed)
            if any(each.get("uid") == uid for each in owners_of(claim)):
                self._given_up.add(key)
                self._show("DELETED", changed)

    # --- what a recording shows -------------------------------------------------------------------

    def as_seen(self, claim: JsonObject, decided_here: Callable[[str], bool]) -> JsonObject | None:
        """A recorded claim with the devices that it has here; None: it went with its pod.

        `decided_here`: whether a consumer, by uid, is one whose devices are decided on here.
        """
        metadata = claim["metadata"]
        key = (metadata.get("namespace") or "", metadata["name"])
        if key in self._given_up:
            return None
        for owner in owners_of(claim):
            if decided_here(str(owner.get("uid"))):
                self._used_by[str(owner.get("uid"))].add(key)
                self._ours.add(key)
        if any(decided_here(str(each.get("uid"))) for each in reserved_for(claim)):
            self._ours.add(key)
        if key not in self._ours:
            return claim
        known = self.objects.get(RESOURCE_CLAIM, *key)
        status = (known or {}).get("status") or {}
        return self._stored(claim, {**claim, "status": status})

    # --- the API ----------------------------------------------------------------------------------

    @override
    async def get(self, path: str) -> JsonObject:
        return self._found(path)

    @override
    async def create(self, path: str, body: Mapping[str, Any]) -> JsonObject:
        namespace = _place(path)[0]
        metadata = dict(body["metadata"])
        name = f"{metadata.pop('generateName', '')}{next(self._numbers)}"
        metadata |= {"name": name, "namespace": namespace, "uid": f"claim {namespace}/{name}"}
        for owner in metadata.get("ownerReferences") or ():
            self._used_by[owner["uid"]].add((namespace, name))
        made = self._stored({}, {**body, "metadata": metadata})
        self._show("ADDED", made)
        return made

    @override
    async def replace(self, path: str, body: Mapping[str, Any]) -> JsonObject:
        stored = self._found(path)
        status = body.get("status") if path.endswith("/status") else stored.get("status")
        new = {**(stored if path.endswith("/status") else body), "status": _ready(status or {})}
        return self._write(stored, new)

    @override
    async def patch(
        self,
        path: str,
        body: Mapping[str, Any],
        *,
        content_type: str = "application/merge-patch+json",
    ) -> JsonObject:
        """Take consumers off a claim; schedulers patch nothing else of claims."""
        stored = self._found(path)
        gone = {each["uid"] for each in (body.get("status") or {}).get("reservedFor") or ()}
        left = [each for each in reserved_for(stored) if each.get("uid") not in gone]
        return self._write(stored, {**stored, "status": {**stored["status"], "reservedFor": left}})

    @override
    async def delete(self, path: str, uid: str) -> None:
        stored = self._found(path)
        self._show("DELETED", stored)

    @override
    async def patch_pod_status(
        self, namespace: str, name: str, patch: Mapping[str, Any], *, urgent: bool = True
    ) -> None:
        """A pod's status names its claim for extended resources; that is not read again."""

    def _write(self, stored: JsonObject, new: JsonObject) -> JsonObject:
        changed = self._stored(stored, new)
        metadata = changed["metadata"]
        key = (metadata.get("namespace") or "", metadata["name"])
        self._ours.add(key)
        for consumer in reserved_for(changed):
            self._used_by[str(consumer.get("uid"))].add(key)
        self._show("MODIFIED", changed)
        return changed

    def _stored(self, before: JsonObject, new: Mapping[str, Any]) -> JsonObject:
        """The object under the next version."""
        metadata = {**new["metadata"], "resourceVersion": str(next(self._numbers))}
        if before:
            metadata.setdefault("uid", uid_of(before))
        return {**new, "metadata": metadata}

    def _found(self, path: str) -> JsonObject:
        namespace, name = _place(path)
        claim = self.objects.get(RESOURCE_CLAIM, namespace, name)
        if claim is None:
            raise NotFound(f"get {path}", 404, "NotFound", f'resourceclaims "{name}" not found')
        return claim


def owners_of(obj: JsonObject) -> Sequence[JsonObject]:
    """The objects that one was made for."""
    return obj["metadata"].get("ownerReferences") or ()


def _place(path: str) -> tuple[str, str]:
    """Namespace and name in the API path of claims; no name: all of the namespace.

    Raises:
        OfflineError: it is about another kind.
    """
    parts = path.strip("/").split("/")
    if _COLLECTION not in parts:
        raise OfflineError(f"reach {path}")
    at = parts.index(_COLLECTION)
    return parts[at - 1], parts[at + 1] if len(parts) > at + 1 else ""


def _ready(status: JsonObject) -> JsonObject:
    """A claim's status with all devices that have to become ready."""
    results = ((status.get("allocation") or {}).get("devices") or {}).get("results") or ()
    waiting = [each for each in results if each.get("bindingConditions")]
    if not waiting:
        return status
    devices = [
        {
            **{name: each[name] for name in ("driver", "pool", "device")},
            "conditions": [{"type": name, "status": "True"} for name in each["bindingConditions"]],
        }
        for each in waiting
    ]
    return {**status, "devices": devices}


def _at_once(coroutine: Coroutine[Any, Any, Any]) -> Any:  # noqa: ANN401 a coroutine's own result
    """The result of a coroutine that waits for nothing.

    Raises:
        LookupError: it waits for something that would never come.
    """
    try:
        coroutine.send(None)
    except StopIteration as ended:
        return ended.value
    coroutine.close()
    raise LookupError("a claim waits for an action that a simulation does not perform")
