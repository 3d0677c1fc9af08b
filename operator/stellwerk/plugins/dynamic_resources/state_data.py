"""The claims of one pod in one scheduling attempt, from PreFilter to PreBind.

Invariant: what PreFilter found does not change during the attempt, whatever happens to the claims
meanwhile; the claims are taken up again where they are written.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from stellwerk.models.pod import PodInfo
from stellwerk.plugins.dynamic_resources.extended_resources import CLAIM_NAME, ExtendedClaim
from stellwerk.plugins.shared.pod_resource_claims import consumer_of
from stellwerk_kube.json_values import JsonObject
from stellwerk_kube.resource_claim import DeviceClaim, is_allocated, is_reserved_for, key_of, uid_of


@dataclass(slots=True)
class PendingAllocation:
    """An allocation for a claim, between Reserve and the end of PreBind."""

    claim: JsonObject
    """As it was when it was decided; of the claim for extended resources, what is to be made."""
    uid: str
    """Under which it is in flight."""
    allocation: JsonObject


@dataclass(slots=True)
class StateData:
    """One pod's claims, and what became of them (kube-scheduler's stateData)."""

    namespace: str
    claims: Sequence[JsonObject] = ()
    """The pod's own claims, in order."""
    backed: tuple[str, ...] = ()
    """Its extended resources that classes back."""
    stale: JsonObject | None = None
    """The claim that an earlier attempt has made for them, to be deleted first."""
    specs: tuple[DeviceClaim, ...] = ()
    """The requests and constraints of the claims to be allocated."""
    group_consumers: Mapping[str, JsonObject] = field(default_factory=dict)
    """The entry of the pod's group in reservedFor, by the name of each claim that the group has."""
    joined: frozenset[str] = frozenset()
    """Uids of claims whose allocation another member of the pod's group has in flight."""
    decided: list[PendingAllocation] = field(default_factory=list)
    extended: ExtendedClaim | None = None
    """The claim for extended resources on the node that was chosen."""
    generated: JsonObject | None = None
    """The claim for extended resources, once it is made."""
    added: set[str] = field(default_factory=set)
    """Names of the claims to which the pod was added, or may have been."""
    names: tuple[str, ...] = field(init=False)
    """namespace/name of the claims to be allocated, the one for extended resources last."""

    def __post_init__(self) -> None:
        self.names = (*map(key_of, self.to_allocate), f"{self.namespace}/{CLAIM_NAME}")

    def consumer(self, claim: JsonObject, pod: PodInfo) -> JsonObject:
        """The entry in the claim's reservedFor by which the pod may use it."""
        return self.group_consumers.get(claim["metadata"]["name"]) or consumer_of(pod)

    def is_reserved(self, claim: JsonObject, pod: PodInfo) -> bool:
        """Whether the pod may use the claim already."""
        return is_reserved_for(claim, self.consumer(claim, pod))

    @property
    def joined_for_itself(self) -> list[JsonObject]:
        """The claims joined that are reserved for each member by itself."""
        joined = (claim for claim in self.claims if uid_of(claim) in self.joined)
        return [claim for claim in joined if claim["metadata"]["name"] not in self.group_consumers]

    @property
    def to_allocate(self) -> list[JsonObject]:
        """The claims that have no devices yet."""
        return [claim for claim in self.claims if not is_allocated(claim)]

    @property
    def allocated(self) -> list[JsonObject]:
        """The claims that have devices."""
        return [claim for claim in self.claims if is_allocated(claim)]

    @property
    def anything(self) -> bool:
        """Whether devices are a matter for the pod at all."""
        return bool(self.claims or self.backed)
