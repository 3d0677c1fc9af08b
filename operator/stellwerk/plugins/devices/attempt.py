"""What DynamicResources knows of one scheduling attempt, from PreFilter to PreBind.

Invariant: what PreFilter found does not change during the attempt, whatever happens to the claims
meanwhile; the claims are taken up again where they are written.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from stellwerk.models.json_values import JsonObject
from stellwerk.plugins.devices.claims import Demand
from stellwerk.plugins.devices.extended import CLAIM_NAME, ExtendedClaim
from stellwerk.plugins.devices.pod_claims import is_allocated, key_of


@dataclass(slots=True)
class Decided:
    """An allocation for a claim, between Reserve and the end of PreBind."""

    claim: JsonObject
    """As it was when it was decided; of the claim for extended resources, what is to be made."""
    uid: str
    """Under which it is in flight."""
    allocation: JsonObject


@dataclass(slots=True)
class Attempt:
    """One pod's claims, and what became of them."""

    namespace: str
    claims: Sequence[JsonObject] = ()
    """The pod's own claims, in order."""
    backed: tuple[str, ...] = ()
    """Its extended resources that classes back."""
    stale: JsonObject | None = None
    """The claim that an earlier attempt has made for them, to be deleted first."""
    demands: tuple[Demand, ...] = ()
    """Of the claims to be allocated."""
    joined: frozenset[str] = frozenset()
    """Uids of claims whose allocation another member of the pod's group has in flight."""
    decided: list[Decided] = field(default_factory=list)
    extended: ExtendedClaim | None = None
    """What the claim for extended resources asks for on the node that was chosen."""
    generated: JsonObject | None = None
    """That claim, once it is made."""
    names: tuple[str, ...] = field(init=False)
    """namespace/name of the claims to be allocated, the one for extended resources last."""

    def __post_init__(self) -> None:
        self.names = (*map(key_of, self.to_allocate), f"{self.namespace}/{CLAIM_NAME}")

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
