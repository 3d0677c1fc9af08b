"""PreBind of DynamicResources: writing claims, waiting for their devices, and undoing that.

The plugin makes one ClaimBinding per call: `run` for PreBind, `undo` for Unreserve. Invariant: one
request writes the allocation and the pod's reservation, based on the claim that was just read. If
another client has allocated, freed or deleted the claim in the meantime, the attempt ends.
"""

from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from stellwerk.framework.interface import APICall, ClusterWriter
from stellwerk.framework.services import Handle
from stellwerk.framework.types import OK, Status, error
from stellwerk.models.api_kinds import newest_form, own_form
from stellwerk.models.object_reference import pod_reference
from stellwerk.models.pod import PodInfo
from stellwerk.models.pod_claims import RESOURCE_CLAIM
from stellwerk.plugins.dynamic_resources.allocated import InFlightAllocations
from stellwerk.plugins.dynamic_resources.allocator import DeviceResult, Solution
from stellwerk.plugins.dynamic_resources.claims import AllocationRequest, RequestData
from stellwerk.plugins.dynamic_resources.extended_resources import CLAIM_NAME
from stellwerk.plugins.dynamic_resources.state_data import PendingAllocation, StateData
from stellwerk.plugins.shared.pod_resource_claims import consumer_of
from stellwerk_kube.clock import rfc3339_seconds
from stellwerk_kube.compatibility import AS_RECORDED, Compatibility, ReleaseRule
from stellwerk_kube.errors import ApiError, Conflict, NotFound
from stellwerk_kube.json_values import JsonObject
from stellwerk_kube.resource_claim import (
    BINDING_FAILED,
    DeviceClaim,
    Readiness,
    drivers_awaited,
    failure_of,
    has_conditions,
    is_allocated,
    is_late,
    is_reserved_for,
    key_of,
    readiness,
    reserved_for,
    uid_of,
)
from stellwerk_kube.resource_slice import Device

TIMED_OUT: Final = "device binding timeout"
FINALIZER: Final = "resource.kubernetes.io/delete-protection"
_KIND: Final = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim"}
_NAME: Final = "DynamicResources"
_ATTEMPTS: Final = 5
MAX_CONSUMERS: Final = 256
"""Entries that a claim's reservedFor may have (`ResourceClaimReservedForMaxSize`)."""
_STRATEGIC: Final = "application/strategic-merge-patch+json"


Write: TypeAlias = Callable[[ClusterWriter], Awaitable[None]]


class ClaimLostError(Exception):
    """A claim is not what the decision was based on any more."""


@dataclass(slots=True)
class _Joining:
    """The consumers that are to be added to one claim."""

    users: int = 0
    """Pods that are at it."""
    waiting: dict[str, JsonObject] = field(default_factory=dict)
    """Entries of reservedFor that were not written yet, by uid."""
    refused: dict[str, str] = field(default_factory=dict)
    """The reason why there is no place for an entry, by uid."""
    stored: JsonObject | None = None
    """The claim as it was written or read last; None: it was not."""
    in_doubt: bool = False
    """Whether an answer was lost: the claim is read before it is written again."""


@dataclass(slots=True)
class ClaimReservations:
    """Adds pods to the claims that they share: one writes, and takes all others along that wait."""

    handle: Handle
    _joining: dict[str, _Joining] = field(default_factory=dict)
    """By the claim's uid, while any pod is at it."""

    async def add(self, claim: JsonObject, consumer: JsonObject) -> JsonObject:
        """The claim with the consumer in its reservedFor.

        Raises:
            ApiError: the API refuses.
            ClaimLostError: it has no devices any more, is gone, or has no place left.
        """
        uid, own = uid_of(claim), str(consumer["uid"])
        joining = self._joining.setdefault(uid, _Joining())
        joining.users += 1
        joining.waiting[own] = consumer
        try:
            async with self.handle.one_at_a_time(f"claim {uid}"):
                if joining.stored is None or not is_reserved_for(joining.stored, consumer):
                    # Another pod that the entry is for may have given up.
                    joining.waiting[own] = consumer
                    joining.stored = await self._write(joining, joining.stored or claim, own)
                refused = joining.refused.pop(own, "")
                if refused:
                    raise ClaimLostError(refused)
                return joining.stored
        finally:
            joining.waiting.pop(own, None)
            joining.users -= 1
            if not joining.users:
                del self._joining[uid]

    async def _write(self, joining: _Joining, claim: JsonObject, own: str) -> JsonObject:
        """Add all that wait at once, on the claim as it was read last."""
        client, uid = self.handle.client, uid_of(claim)
        for _ in range(_ATTEMPTS - 1):
            if joining.in_doubt:
                claim = await _read(client, claim)
                joining.in_doubt = False
            try:
                return await self._try(joining, claim, uid)
            except Conflict:
                claim = await _read(client, claim)
            except ApiError as failure:
                if not failure.may_have_been_applied:
                    raise
                claim = await _read(client, claim)
                joining.in_doubt = False
                if not _is_among(own, claim):
                    raise
        return await self._try(joining, claim, uid)

    async def _try(self, joining: _Joining, claim: JsonObject, uid: str) -> JsonObject:
        if uid_of(claim) != uid or claim["metadata"].get("deletionTimestamp"):
            raise ClaimLostError(f"claim {key_of(claim)} got deleted in the meantime")
        if not is_allocated(claim):
            raise ClaimLostError(f"claim {key_of(claim)} got deallocated elsewhere in the meantime")
        present = reserved_for(claim)
        missing = {uid: each for uid, each in joining.waiting.items() if not _is_among(uid, claim)}
        room = max(0, MAX_CONSUMERS - len(present))
        added = dict(list(missing.items())[:room])
        for each in missing.keys() - added.keys():
            del joining.waiting[each]
            joining.refused[each] = full(claim)
        if added:
            status = {**(claim.get("status") or {}), "reservedFor": [*present, *added.values()]}
            joining.in_doubt = True
            try:
                claim = await _replaced(
                    self.handle.client, {**claim, "status": status}, part="/status"
                )
            except ApiError as failure:
                joining.in_doubt = failure.may_have_been_applied
                raise
            joining.in_doubt = False
        return claim


def full(claim: JsonObject) -> str:
    """The reason for which no other pod can be added to a claim."""
    return f"claim {key_of(claim)} is reserved for {MAX_CONSUMERS} pods, and the API takes no more"


def _is_among(uid: str, claim: JsonObject) -> bool:
    return any(each.get("uid") == uid for each in reserved_for(claim))


@dataclass(slots=True)
class ClaimBinding:
    """Writes what was decided for one pod (`run`); undoes that if it is not bound (`undo`)."""

    handle: Handle
    in_flight: InFlightAllocations
    reservations: ClaimReservations
    state_data: StateData
    pod: PodInfo
    node_name: str
    timeout_seconds: float

    async def run(self) -> Status:
        """Write every claim, then wait for the devices that have to become ready."""
        decided = {each.claim["metadata"]["name"]: each for each in self.state_data.decided}
        written: list[JsonObject] = []
        try:
            for claim in self.state_data.claims:
                ours = decided.get(claim["metadata"]["name"])
                if uid_of(claim) in self.state_data.joined:
                    written.append(await self._joined(claim))
                elif ours is None and self.state_data.is_reserved(claim, self.pod):
                    written.append(claim)
                elif ours is None:
                    written.append(await self._reserved(claim))
                else:
                    written.append(await self._written(claim, ours))
            if CLAIM_NAME in decided:
                written.append(await self._extended(decided[CLAIM_NAME]))
        except (ApiError, ClaimLostError) as failure:
            return error(_NAME, str(failure))
        return await self._ready([claim for claim in written if has_conditions(claim)])

    # --- one claim ------------------------------------------------------------------------------

    async def _reserved(self, claim: JsonObject) -> JsonObject:
        """The claim, which has its devices, with the pod's reservation.

        Raises:
            ApiError: the API refuses.
            ClaimLostError: the pod cannot be added to it any more.
        """
        name, added = claim["metadata"]["name"], self.state_data.added
        added.add(name)
        try:
            return await self.reservations.add(claim, self.state_data.consumer(claim, self.pod))
        except ClaimLostError:
            added.discard(name)
            raise
        except ApiError as failure:
            if not failure.may_have_been_applied:
                added.discard(name)
            raise

    async def _written(self, claim: JsonObject, decided: PendingAllocation) -> JsonObject:
        """The claim with its allocation and the pod's reservation.

        Raises:
            ApiError: the API refuses.
            ClaimLostError: the claim's allocation is another one by now.
        """
        for tried in range(_ATTEMPTS):
            try:
                stored = await self._write(claim, decided)
            except Conflict:
                if tried + 1 == _ATTEMPTS:
                    raise
                claim = await _read(self.handle.client, claim)
                continue
            except ApiError as failure:
                if not failure.may_have_been_applied:
                    self.in_flight.doubt(decided.uid, self.pod.namespace, doubtful=False)
                raise
            self.in_flight.written(decided.uid, self.pod.namespace, stored)
            return stored
        raise ClaimLostError(f"update of claim {key_of(claim)} kept conflicting")

    async def _joined(self, claim: JsonObject) -> JsonObject:
        """The claim once the member that it was decided for has written it, with this pod.

        Raises:
            ApiError: the API refuses.
            ClaimLostError: it was not written after all.
        """
        metadata, namespace = claim["metadata"], self.pod.namespace
        uid, name = uid_of(claim), metadata["name"]

        def settled() -> bool:
            shown = self.handle.objects.get(RESOURCE_CLAIM, namespace, name)
            is_shown = shown is not None and is_allocated(shown)
            has_mark = self.in_flight.has(uid, namespace)
            return is_shown or not has_mark or self.in_flight.stored(uid, namespace) is not None

        await self.handle.wait_until(settled, self.timeout_seconds)
        stored = self.in_flight.stored(uid, namespace)
        stored = stored or self.handle.objects.get(RESOURCE_CLAIM, namespace, name)
        if stored is None or not is_allocated(stored):
            raise ClaimLostError(f"claim {key_of(claim)} got deallocated elsewhere in the meantime")
        if self.state_data.is_reserved(stored, self.pod):
            return stored
        return await self._reserved(stored)

    async def _write(self, claim: JsonObject, decided: PendingAllocation) -> JsonObject:
        """One try, on the claim as it was read last."""
        metadata = claim["metadata"]
        if metadata.get("deletionTimestamp"):
            raise ClaimLostError(f"claim {key_of(claim)} got deleted in the meantime")
        if is_allocated(claim):
            raise ClaimLostError(f"claim {key_of(claim)} got allocated elsewhere in the meantime")
        finalizers = metadata.get("finalizers") or []
        if FINALIZER not in finalizers:
            protected = {**metadata, "finalizers": [*finalizers, FINALIZER]}
            claim = await _replaced(self.handle.client, {**claim, "metadata": protected})
        status = dict(claim.get("status") or {})
        stamp = rfc3339_seconds(self.handle.now())
        status["allocation"] = {**decided.allocation, "allocationTimestamp": stamp}
        consumers = [*reserved_for(claim)]
        if not self.state_data.is_reserved(claim, self.pod):
            consumers.append(self.state_data.consumer(claim, self.pod))
        # Once for the whole group: what each of its members wrote would collide.
        consumers += self.in_flight.joined(decided.uid, self.pod.namespace)
        # The others learn it when they find the claim full.
        status["reservedFor"] = consumers[:MAX_CONSUMERS]
        # Until the answer is there: the binding may also be cancelled.
        self.in_flight.doubt(decided.uid, self.pod.namespace)
        allocated = {**claim, "status": status}
        return await _replaced(self.handle.client, allocated, part="/status")

    async def _extended(self, decided: PendingAllocation) -> JsonObject:
        """The claim for extended resources, made, allocated and named in the pod's status."""
        pod, client = self.pod, self.handle.client
        metadata = {key: value for key, value in decided.claim["metadata"].items() if key != "name"}
        metadata["generateName"] = f"{pod.name}-extended-resources-"
        body = {**_KIND, "metadata": metadata, "spec": decided.claim["spec"]}
        # Classes are seen in a version that serves claims, too.
        for device_class in self.handle.objects.list("DeviceClass"):
            body["apiVersion"] = device_class.get("apiVersion") or _KIND["apiVersion"]
        made = await self._made(body)
        self.state_data.generated = made
        made = self.state_data.generated = await self._written(made, decided)
        extended = self.state_data.extended
        if extended is None or not extended.mappings:
            # As upstream: a node whose device plugin has it all leaves nothing to map.
            raise ClaimLostError(
                f"nil or empty request mappings, no update of pod {pod.key} "
                "ExtendedResourceClaimStatus"
            )
        status = {
            "requestMappings": list(extended.mappings),
            "resourceClaimName": made["metadata"]["name"],
        }
        # With the uid, so that a pod that was made anew under the name is left alone.
        patch = {"metadata": {"uid": pod.uid}, "status": {"extendedResourceClaimStatus": status}}
        await client.patch_pod_status(pod.namespace, pod.name, patch)
        return made

    async def _made(self, body: JsonObject) -> JsonObject:
        counts = self.handle.device_counts
        try:
            path = collection_of(body, self.pod.namespace)
            made = newest_form(await self.handle.client.create(path, own_form(body)))
        except ApiError:
            counts.claim_made("failure")
            raise
        counts.claim_made("success")
        return made

    # --- binding conditions ---------------------------------------------------------------------

    async def _ready(self, claims: list[JsonObject]) -> Status:
        """Wait until the devices of these claims are ready."""
        if not claims:
            return OK
        self.handle.recorder.event(
            pod_reference(self.pod),
            "Normal",
            "BindingConditionsPending",
            "Scheduling",
            f"waiting for binding conditions for device on node {self.node_name}",
            reporting_controller=self.handle.profile_name,
        )
        failures: list[str] = []
        began_seconds = self.handle.now_seconds()
        done = await self.handle.wait_until(self._settled(claims, failures), self.timeout_seconds)
        failure = failures[0] if failures else "" if done else TIMED_OUT
        waited_seconds = self.handle.now_seconds() - began_seconds
        profile, status = self.handle.profile_name, outcome_of(failure)
        for driver in sorted({each for claim in claims for each in drivers_awaited(claim)}):
            self.handle.device_counts.awaited(profile, driver, status, waited_seconds)
        return error(_NAME, failure) if failure else OK

    def _settled(self, claims: list[JsonObject], failures: list[str]) -> Callable[[], bool]:
        """Whether the waiting is over: all devices are ready, or a failure is noted."""

        def settled() -> bool:
            ready = True
            for claim in claims:
                shown = self._shown(claim)
                if shown is None:
                    failures.append(f"claim {key_of(claim)} got deleted in the meantime")
                    return True
                failure = failure_of(shown)
                if failure or is_late(shown, self.handle.now(), self.timeout_seconds):
                    failures.append(failure or TIMED_OUT)
                    return True
                ready = ready and readiness(shown) is Readiness.READY
            return ready

        return settled

    def _shown(self, claim: JsonObject) -> JsonObject | None:
        """The claim as the watch shows it, once it shows the allocation; None: it is gone."""
        metadata = claim["metadata"]
        namespace = metadata.get("namespace") or ""
        shown = self.handle.objects.get(RESOURCE_CLAIM, namespace, metadata["name"])
        if shown is None or not is_allocated(shown):
            # The watch may be behind what was written.
            return claim if self.in_flight.awaits(metadata["name"], namespace) else shown
        return shown

    # --- Unreserve ------------------------------------------------------------------------------

    def _read_back(self, decided: PendingAllocation) -> Write:
        """Find out whether an allocation was written whose answer was lost."""
        claim = (
            self.state_data.generated if decided.claim["metadata"]["name"] == CLAIM_NAME else None
        )
        path = path_of(claim or decided.claim)

        async def read(client: ClusterWriter) -> None:
            try:
                stored = await client.get(path)
            except NotFound:
                self.in_flight.forget(decided.uid, self.pod.namespace)
                return
            if is_allocated(stored):
                self.in_flight.written(decided.uid, self.pod.namespace, stored)
            else:
                self.in_flight.forget(decided.uid, self.pod.namespace)

        return read

    def undo(self) -> Iterator[APICall]:
        """Requests that undo what was written for the pod, for Unreserve to have sent.

        Each allocation whose write had no answer is read back (`_read_back`), to know whether it is
        in the API. The pod's reservations are removed, and the claim that was generated for it is
        deleted. Other claims keep their allocations, and the reservations of the pod's group.
        """
        generated, own = self.state_data.generated, consumer_of(self.pod)
        for each in self.state_data.decided:
            if self.in_flight.is_in_doubt(each.uid, self.pod.namespace):
                yield APICall(f"read {key_of(each.claim)}", self._read_back(each))
        for claim in self.state_data.claims:
            namespace, name = claim["metadata"].get("namespace") or "", claim["metadata"]["name"]
            if name in self.state_data.group_consumers:
                continue
            shown = self.handle.objects.get(RESOURCE_CLAIM, namespace, name)
            written = any(
                each.claim is claim and self.in_flight.may_be_in_api(each.uid, self.pod.namespace)
                for each in self.state_data.decided
            )
            written = written or name in self.state_data.added
            if written or (shown is not None and is_reserved_for(shown, own)):
                yield unreserving(claim, own)
        if generated is not None:
            yield APICall(
                f"delete {key_of(generated)}", lambda client: delete_claim(client, generated)
            )


# --- writes -------------------------------------------------------------------------------------


def path_of(claim: JsonObject) -> str:
    """The API path of a claim."""
    metadata = claim["metadata"]
    return f"{collection_of(claim, metadata.get('namespace') or '')}/{metadata['name']}"


def collection_of(claim: JsonObject, namespace: str) -> str:
    """The API path of a namespace's claims, in the version that this one was read or is made in."""
    api = claim.get("apiVersion") or _KIND["apiVersion"]
    return f"/apis/{api}/namespaces/{namespace}/resourceclaims"


async def _read(client: ClusterWriter, claim: JsonObject) -> JsonObject:
    return newest_form(await client.get(path_of(claim)))


async def _replaced(client: ClusterWriter, claim: JsonObject, *, part: str = "") -> JsonObject:
    """The claim as stored after a PUT, be it of a part of it."""
    body = own_form({**_KIND, **claim})
    return newest_form(await client.replace(f"{path_of(claim)}{part}", body))


def unreserving(claim: JsonObject, consumer: JsonObject) -> APICall:
    """The write that takes the reservation of a pod or a group off a claim."""
    patch = {
        "metadata": {"uid": claim["metadata"].get("uid")},
        "status": {"reservedFor": [{"$patch": "delete", "uid": consumer["uid"]}]},
    }

    async def write(client: ClusterWriter) -> None:
        await client.patch(f"{path_of(claim)}/status", patch, content_type=_STRATEGIC)

    return APICall(f"unreserve {key_of(claim)}", write)


async def deallocated(client: ClusterWriter, claim: JsonObject) -> None:
    """Take the devices of a claim away that no pod uses."""
    gone = {"allocation", "reservedFor", "devices"}
    status = {key: value for key, value in claim["status"].items() if key not in gone}
    await _replaced(client, {**claim, "status": status}, part="/status")


async def delete_claim(client: ClusterWriter, claim: JsonObject) -> None:
    """Delete a claim that a scheduler has made, with what keeps others from deleting it."""
    current = claim
    for tried in range(_ATTEMPTS):
        metadata = current["metadata"]
        finalizers = [each for each in metadata.get("finalizers") or () if each != FINALIZER]
        unprotected = {**current, "metadata": {**metadata, "finalizers": finalizers}}
        try:
            await _replaced(client, unprotected)
            await client.delete(path_of(current), str(metadata.get("uid") or ""))
        except NotFound:
            return
        except Conflict:
            if tried + 1 == _ATTEMPTS:
                raise
            current = await _read(client, current)
        else:
            return


# --- status.allocation --------------------------------------------------------------------------

ANY_SHARE: Final = "*"
"""Stands for the shareID that is made when a claim is reserved."""


def allocations(
    allocation_request: AllocationRequest,
    solution: Solution,
    node_name: str,
    share_id: Callable[[], str] = lambda: ANY_SHARE,
    rules: Compatibility = AS_RECORDED,
) -> list[JsonObject]:
    """status.allocation of each claim, as the API has it.

    Results are in the order of the search; configuration of classes precedes that of the claim.
    """
    return [
        _allocation(claim.spec, results, chosen, node_name, share_id, rules)
        for claim, results, chosen in zip(
            allocation_request.claims, solution.results, solution.chosen, strict=True
        )
    ]


def _allocation(
    spec: DeviceClaim,
    results: Sequence[DeviceResult],
    chosen: Sequence[RequestData],
    node_name: str,
    share_id: Callable[[], str],
    rules: Compatibility,
) -> JsonObject:
    devices: JsonObject = {}
    if results:
        devices["results"] = [_result(each, share_id) for each in results]
    config = [*_class_config(chosen), *_claim_config(spec, chosen)]
    if ReleaseRule.CONFIGURE_CLAIMS_ONCE in rules:
        config = [
            *_without_needless_requests(_class_config(chosen), chosen),
            *_without_needless_requests(_claim_config_once(spec, chosen), chosen),
        ]
    if config:
        devices["config"] = config
    allocation: JsonObject = {"devices": devices}
    selector = _node_selector([each.device for each in results], node_name)
    if selector is not None:
        allocation["nodeSelector"] = selector
    return allocation


def _result(result: DeviceResult, share_id: Callable[[], str]) -> JsonObject:
    device, choice = result.device, result.wanted.choice
    driver, pool, name = device.key
    written: JsonObject = {
        "request": choice.full_name,
        "driver": driver,
        "pool": pool,
        "device": name,
    }
    if choice.admin_access:
        written["adminAccess"] = True
    if choice.written_tolerations:
        written["tolerations"] = list(choice.written_tolerations)
    if device.traits.binding_conditions:
        written["bindingConditions"] = list(device.traits.binding_conditions)
    if device.traits.binding_failure_conditions:
        written["bindingFailureConditions"] = list(device.traits.binding_failure_conditions)
    if result.consumed is not None:
        written["shareID"] = share_id()
        if result.consumed:
            amounts = result.consumed.items()
            written["consumedCapacity"] = {name: amount.text for name, amount in amounts}
    return written


def _class_config(chosen: Sequence[RequestData]) -> Iterator[JsonObject]:
    """The configuration of each class once, with the requests that use it."""
    users: dict[str, list[RequestData]] = {}
    for wanted in chosen:
        users.setdefault(wanted.device_class.name, []).append(wanted)
    for wanted_of_class in users.values():
        names = [wanted.choice.full_name for wanted in wanted_of_class]
        for each in wanted_of_class[0].device_class.config:
            yield {**each, "requests": names, "source": "FromClass"}


def _claim_config(spec: DeviceClaim, chosen: Sequence[RequestData]) -> Iterator[JsonObject]:
    """The claim's own configuration, once for each request that it names."""
    for each in spec.config:
        named = each.get("requests") or ()
        entry = {**each, "source": "FromClaim"}
        if not named:
            yield entry
        for wanted in chosen:
            if _is_named(wanted, named):
                yield entry


def _claim_config_once(spec: DeviceClaim, chosen: Sequence[RequestData]) -> Iterator[JsonObject]:
    """The claim's own configuration, once if it names any request or chosen alternative."""
    for each in spec.config:
        named = each.get("requests") or ()
        if not named or any(_is_named(wanted, named) for wanted in chosen):
            yield {**each, "source": "FromClaim"}


def _without_needless_requests(
    config: Iterable[JsonObject], chosen: Sequence[RequestData]
) -> Iterator[JsonObject]:
    """The configuration, without `requests` where it is for all of them: none means all."""
    for each in config:
        named = each.get("requests") or ()
        if all(_is_named(wanted, named) for wanted in chosen):
            yield {field: value for field, value in each.items() if field != "requests"}
        else:
            yield each


def _is_named(wanted: RequestData, named: Collection[str]) -> bool:
    return wanted.choice.request in named or wanted.choice.full_name in named


def _node_selector(devices: Sequence[Device], node_name: str) -> JsonObject | None:
    """The nodes from which all of the devices can be used; None: every node."""
    if any(device.reach.node_name or device.traits.binds_to_node for device in devices):
        here = {"key": "metadata.name", "operator": "In", "values": [node_name]}
        return {"nodeSelectorTerms": [{"matchFields": [here]}]}
    term: dict[str, list[JsonObject]] = {}
    for device in devices:
        for written in (device.reach.written_selector or {}).get("nodeSelectorTerms") or ():
            for part in ("matchFields", "matchExpressions"):
                for requirement in written.get(part) or ():
                    _add_requirement(term.setdefault(part, []), requirement)
    return {"nodeSelectorTerms": [term]} if term else None


def _add_requirement(known: list[JsonObject], requirement: JsonObject) -> None:
    """Add a requirement unless it is there, whatever the order of its values."""
    meaning = _meaning(requirement)
    if all(_meaning(each) != meaning for each in known):
        known.append(requirement)


def _meaning(requirement: JsonObject) -> tuple[str, str, frozenset[str]]:
    values = frozenset(requirement.get("values") or ())
    return requirement["key"], requirement["operator"], values


def outcome_of(failure: str) -> str:
    """The outcome of waiting in the words of kube-scheduler's metrics; no failure: success."""
    if not failure:
        return "success"
    if failure == TIMED_OUT:
        return "timeout"
    return "failure" if failure.startswith(BINDING_FAILED) else "error"
