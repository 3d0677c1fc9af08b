"""The request that a search for devices is to meet: a pod's claims with their classes looked up.

The allocator searches by it, DynamicResources makes it of the claims that `claims_of` finds.
Invariant: equal specs are the identical DeviceClaim (`stellwerk_kube.resource_claim`), so two pods
with the same AllocationRequest get the same answer on the same node, texts of errors aside.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from stellwerk.framework.services import GroupClaims, ObjectStore
from stellwerk.models.pod import PodInfo
from stellwerk.models.pod_claims import RESOURCE_CLAIM
from stellwerk.models.pod_group import WORKLOAD_API
from stellwerk.plugins.dynamic_resources.selectors import Selector, SelectorError, selector_of
from stellwerk.plugins.shared.device_classes import DeviceClass, DeviceClasses
from stellwerk.plugins.shared.pod_resource_claims import claim_name
from stellwerk_kube.compatibility import AS_RECORDED, Compatibility, ReleaseRule
from stellwerk_kube.json_values import JsonObject
from stellwerk_kube.resource_claim import Choice, DeviceClaim
from stellwerk_kube.resource_slice import Device

_NO_SUCH_KEY: Final = "no such key:"
_HINT: Final = (
    ". consider using CEL optional chaining (.? followed by orValue()) or guarding the check with "
    "has() for optional fields"
)


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
