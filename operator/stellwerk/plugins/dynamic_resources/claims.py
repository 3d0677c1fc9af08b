"""Resource claims: their specs, the claims of a pod, and the request that a search is to meet.

Specs are parsed once per distinct text. Invariant: equal specs give the identical DeviceClaim for
as long as it is kept, whatever the claims are called, so that two pods with the same
AllocationRequest get the same answer on the same node, texts of errors aside.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import orjson

from stellwerk.framework.services import GroupClaims, ObjectStore
from stellwerk.models.pod import PodInfo
from stellwerk.models.pod_claims import RESOURCE_CLAIM, ClaimReference
from stellwerk.models.pod_group_key import WORKLOAD_API
from stellwerk.plugins.dynamic_resources.selectors import Selector, SelectorError, selector_of
from stellwerk.plugins.shared.device_classes import (
    DeviceClass,
    DeviceClasses,
    selector_expressions,
)
from stellwerk_kube.cel.bounded_cache import RecentlyMade
from stellwerk_kube.compatibility import AS_RECORDED, Compatibility, ReleaseRule
from stellwerk_kube.device_capacity import Amounts, parse_amounts
from stellwerk_kube.json_values import JsonObject, text, text_or_empty, texts, whole_number
from stellwerk_kube.resource_slice import Device
from stellwerk_kube.taints import Taint, Toleration, parse_tolerations

ALL: Final = "All"
MAX_RESULTS: Final = 32
"""Devices that one claim may be given (`AllocationResultsMaxSize`)."""
_MAX_KEPT_SPECS: Final = 1024
"""Parsed claims that are kept by their text."""
_MAX_KEPT_SPEC_BYTES: Final = 1 << 20
"""Bytes of the texts by which parsed claims are kept."""
_NO_SUCH_KEY: Final = "no such key:"
_HINT: Final = (
    ". consider using CEL optional chaining (.? followed by orValue()) or guarding the check with "
    "has() for optional fields"
)


@dataclass(frozen=True, slots=True, eq=False)
class Choice:
    """A request, or one of the alternatives of a request."""

    name: str
    parent: str
    """The request whose alternative it is; empty: it is a request itself."""
    class_name: str
    everything: bool
    """Every device that matches (allocationMode All)."""
    count: int
    admin_access: bool
    selectors: tuple[str, ...]
    """CEL expressions."""
    tolerations: tuple[Toleration, ...]
    written_tolerations: Sequence[JsonObject]
    capacity: Amounts

    @property
    def full_name(self) -> str:
        """`request`, or `request/alternative`."""
        return f"{self.parent}/{self.name}" if self.parent else self.name

    @property
    def request(self) -> str:
        """The name of the request that it belongs to."""
        return self.parent or self.name

    def untolerated(self, taints: Iterable[Taint]) -> list[Taint]:
        """The taints that it does not tolerate."""
        return [
            taint for taint in taints if not any(each.tolerates(taint) for each in self.tolerations)
        ]


@dataclass(frozen=True, slots=True, eq=False)
class DeviceRequest:
    """One request of a claim."""

    name: str
    choices: tuple[Choice, ...]
    """The request itself, or its alternatives, best first."""
    prioritized: bool
    """The choices are alternatives (firstAvailable)."""


@dataclass(frozen=True, slots=True, eq=False)
class DeviceConstraint:
    """An attribute in which the devices of some requests must agree, or must all differ."""

    attribute: str
    distinct: bool
    requests: frozenset[str]
    """Empty: all requests."""

    def covers(self, choice: Choice) -> bool:
        """Whether the devices of a request are affected."""
        named = self.requests
        return not named or choice.request in named or choice.full_name in named


@dataclass(frozen=True, slots=True, eq=False)
class DeviceClaim:
    """The devices that a claim asks for (spec.devices)."""

    requests: tuple[DeviceRequest, ...]
    constraints: tuple[DeviceConstraint, ...]
    config: Sequence[JsonObject]

    @property
    def expressions(self) -> set[str]:
        """The selectors of all requests and alternatives."""
        return {each for choice in self.choices for each in choice.selectors}

    @property
    def choices(self) -> list[Choice]:
        """All requests and alternatives in order."""
        return [choice for request in self.requests for choice in request.choices]


def device_claim_of(claim: JsonObject) -> DeviceClaim:
    """The parsed spec of a claim.

    Raises:
        KeyError, TypeError, ValueError, AttributeError: the claim is malformed.
    """
    return _device_claims.of(orjson.dumps(claim["spec"].get("devices") or {}))


def _device_claim(written: bytes) -> DeviceClaim:
    devices = orjson.loads(written)
    return DeviceClaim(
        tuple(_request(each) for each in devices.get("requests") or ()),
        tuple(_constraint(each) for each in devices.get("constraints") or ()),
        devices.get("config") or (),
    )


_device_claims: Final = RecentlyMade(_device_claim, _MAX_KEPT_SPEC_BYTES, _MAX_KEPT_SPECS)


def _request(obj: JsonObject) -> DeviceRequest:
    name = text(obj["name"])
    alternatives = obj.get("firstAvailable") or ()
    if alternatives:
        choices = tuple(_choice(text(each["name"]), name, each) for each in alternatives)
        return DeviceRequest(name, choices, prioritized=True)
    return DeviceRequest(name, (_choice(name, "", obj["exactly"]),), prioritized=False)


def _choice(name: str, parent: str, obj: JsonObject) -> Choice:
    return Choice(
        name=name,
        parent=parent,
        class_name=text(obj["deviceClassName"]),
        everything=obj.get("allocationMode") == ALL,
        count=whole_number(obj.get("count") or 1),
        admin_access=bool(obj.get("adminAccess")),
        selectors=selector_expressions(obj),
        tolerations=parse_tolerations(obj.get("tolerations")),
        written_tolerations=obj.get("tolerations") or (),
        capacity=parse_amounts((obj.get("capacity") or {}).get("requests")),
    )


def _constraint(obj: JsonObject) -> DeviceConstraint:
    match, distinct = obj.get("matchAttribute"), obj.get("distinctAttribute")
    attribute = text_or_empty(match) or text(distinct)
    return DeviceConstraint(attribute, not match, frozenset(texts(obj.get("requests"))))


# --- the request --------------------------------------------------------------------------------


class AllocationError(Exception):
    """A search ended without an answer; it ends the scheduling attempt, or refuses its node."""

    def __init__(
        self,
        text: str,
        *,
        claim: int | None = None,
        request: str = "",
        of_node: bool = False,
        refuses_node: bool = False,
    ) -> None:
        """`text` follows the name of the claim of that number; None: it is complete.

        `request` is whose search it ended; `of_node`: the text names what that node alone has;
        `refuses_node`: the node is refused with this text, and others are searched.
        """
        super().__init__(text)
        self.claim = claim
        self.request = request
        self.of_node = of_node
        self.refuses_node = refuses_node

    def text(self, names: Sequence[str]) -> str:
        """The text for users, for claims of these names."""
        (text,) = self.args
        return str(text) if self.claim is None else f"claim {names[self.claim]}{text}"


@dataclass(slots=True, eq=False)
class RequestData:
    """One request or alternative with its class, and which devices it selects."""

    choice: Choice
    device_class: DeviceClass
    selectors: tuple[Selector, ...]
    """Those of the class, then the request's own."""
    names_device: bool = False
    """Errors of selectors name the device, as in v1.37."""

    @classmethod
    def of(
        cls, choice: Choice, device_class: DeviceClass, rules: Compatibility = AS_RECORDED
    ) -> "RequestData":
        """Look the selectors up."""
        expressions = (*device_class.selectors, *choice.selectors)
        reads_lists = ReleaseRule.READ_LIST_ATTRIBUTES in rules
        selectors = tuple([selector_of(each, reads_lists=reads_lists) for each in expressions])
        return cls(choice, device_class, selectors, ReleaseRule.NAME_DEVICE_IN_ERRORS in rules)

    def selects(self, device: Device, claim: int) -> bool:
        """Whether the device matches the class and the request.

        Raises:
            AllocationError: a selector has no answer; its text names the claim of that number.
        """
        for index, selector in enumerate(self.selectors):
            try:
                if not selector.matches(device):
                    return False
            except SelectorError as error:
                raise self._failed(index, error, device, claim) from error
        return True

    def _failed(
        self, index: int, error: SelectorError, device: Device, claim: int
    ) -> AllocationError:
        of_class, request = len(self.device_class.selectors), self.choice.full_name
        text, place, of_device = str(error), "", self.names_device and error.of_device
        if of_device:
            place = f" on device {'/'.join(device.key)}"
            if _NO_SUCH_KEY in text:
                text += _HINT
        if index < of_class:
            text = f"class {self.device_class.name}: selector #{index}{place}: {text}"
            return AllocationError(text, request=request, of_node=of_device)
        text = f": selector #{index - of_class}{place}: {text}"
        return AllocationError(text, claim=claim, request=request, of_node=of_device)


@dataclass(frozen=True, slots=True, eq=False)
class ClaimToAllocate:
    """One claim of an AllocationRequest."""

    spec: DeviceClaim
    requests: tuple[tuple[RequestData, ...], ...]
    """For each request its choices."""

    @classmethod
    def of(
        cls, spec: DeviceClaim, classes: DeviceClasses, rules: Compatibility = AS_RECORDED
    ) -> "ClaimToAllocate":
        """Look the classes up.

        Raises:
            KeyError: a class does not exist.
        """
        return cls(
            spec,
            tuple(
                tuple(_wanted(choice, classes, rules) for choice in request.choices)
                for request in spec.requests
            ),
        )


def _wanted(choice: Choice, classes: DeviceClasses, rules: Compatibility) -> RequestData:
    device_class = classes.get(choice.class_name)
    if device_class is None:
        raise KeyError(choice.class_name)
    return RequestData.of(choice, device_class, rules)


@dataclass(frozen=True, slots=True, eq=False)
class AllocationRequest:
    """The claims of a pod that are to be allocated together, in order and without their names."""

    claims: tuple[ClaimToAllocate, ...]


# --- claims of a pod ----------------------------------------------------------------------------


class ClaimMissingError(Exception):
    """A claim of the pod is not there, or not usable; the text is for users."""


def claims_of(objects: ObjectStore, pod: PodInfo, group: GroupClaims | None) -> list[JsonObject]:
    """The pod's claims in the order of spec.resourceClaims; `group`: those of its group.

    The first reference that is not there as it should be decides.

    Raises:
        ClaimMissingError: one of them is not there.
    """
    return list(_claims(objects, pod, group))


def why_not_ready(objects: ObjectStore, pod: PodInfo, group: GroupClaims | None) -> str:
    """The reason for which the pod has to wait for its claims; empty: they are there."""
    try:
        claims_of(objects, pod, group)
    except ClaimMissingError as missing:
        return str(missing)
    return ""


def claim_names(pod: PodInfo) -> list[str]:
    """The names of the pod's claims, as far as they are known."""
    names = (claim_name(pod, reference) for reference in pod.spec.resource_claims)
    return [name for name in names if name]


def claim_name(pod: PodInfo, reference: ClaimReference) -> str | None:
    """The claim of a reference; None: it is not known yet; empty: none is needed."""
    if reference.claim_name:
        return reference.claim_name
    generated = pod.generated_claims
    return generated.by_reference.get(reference.name) if generated is not None else None


def is_allocated(claim: JsonObject) -> bool:
    """Whether the API shows an allocation."""
    return bool((claim.get("status") or {}).get("allocation"))


def uid_of(claim: JsonObject) -> str:
    """The claim's uid; one without, as in recorded cases, is known by its name."""
    metadata = claim["metadata"]
    return str(metadata.get("uid") or f"{metadata.get('namespace') or ''}/{metadata['name']}")


def key_of(claim: JsonObject) -> str:
    """namespace/name."""
    return f"{claim['metadata'].get('namespace') or ''}/{claim['metadata']['name']}"


def reserved_for(claim: JsonObject) -> list[JsonObject]:
    """status.reservedFor."""
    return list((claim.get("status") or {}).get("reservedFor") or ())


def is_reserved_for(claim: JsonObject, consumer: JsonObject) -> bool:
    """Whether the consumer, by its uid, is among those that the claim is reserved for."""
    return any(each.get("uid") == consumer["uid"] for each in reserved_for(claim))


def consumer_of(pod: PodInfo) -> JsonObject:
    """The entry of a pod in reservedFor."""
    return {"resource": "pods", "name": pod.name, "uid": pod.uid}


def shared_consumers(
    pod: PodInfo, claims: Iterable[JsonObject], group: GroupClaims | None
) -> dict[str, JsonObject]:
    """The entry of the group in reservedFor, by the name of each of the claims that it shares."""
    if group is None:
        return {}
    entry = {
        "apiGroup": WORKLOAD_API,
        "resource": "podgroups",
        "name": group.group_name,
        "uid": group.group_uid,
    }
    shared = {
        claim_name(pod, each) for each in pod.spec.resource_claims if each in group.references
    }
    names = [claim["metadata"]["name"] for claim in claims if not _is_owner(pod.uid, claim)]
    return {name: entry for name in names if name in shared}


def _claims(objects: ObjectStore, pod: PodInfo, group: GroupClaims | None) -> Iterator[JsonObject]:
    for reference in pod.spec.resource_claims:
        name = claim_name(pod, reference)
        unseen = objects.why_unseen(RESOURCE_CLAIM)
        why = f": {unseen}" if unseen else ""
        if name is None:
            raise ClaimMissingError(f'pod "{pod.key}": ResourceClaim not created yet{why}')
        if not name:
            continue
        claim = objects.get(RESOURCE_CLAIM, pod.namespace, name)
        if claim is None:
            raise ClaimMissingError(f'could not find ResourceClaim "{pod.namespace}/{name}"{why}')
        metadata: Mapping[str, JsonObject] = claim["metadata"]
        if metadata.get("deletionTimestamp"):
            raise ClaimMissingError(f'resourceclaim "{name}" is being deleted')
        if not (reference.claim_name or _is_owner(pod.uid, claim) or _is_group_s(group, claim)):
            raise ClaimMissingError(
                f"ResourceClaim {pod.namespace}/{name} was not created for Pod {pod.key} "
                "(Pod is not owner)"
            )
        yield claim


def _is_group_s(group: GroupClaims | None, claim: JsonObject) -> bool:
    return group is not None and _is_owner(group.group_uid, claim)


def _is_owner(uid: str, claim: JsonObject) -> bool:
    owners = claim["metadata"].get("ownerReferences") or ()
    return any(owner.get("controller") and owner.get("uid") == uid for owner in owners)
