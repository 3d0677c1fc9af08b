"""Changes that would make a pod fit, as they are answered.

The search for it makes suggestions, tables and the page print their texts.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from stellwerk.answers.answer import PortAnswer


@dataclass(frozen=True, slots=True, kw_only=True)
class TaintFields(PortAnswer):
    """A taint."""

    key: str
    value: str
    effect: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeFields(PortAnswer):
    """One change as fields; which of them it has is a matter of its kind."""

    kind: str
    """freeResources, growNode, uncordon, removeTaints, labelNode, deletePod, tolerate, editPod, \
editClaim, freeClaim, or what a plugin calls its own."""
    pod: str | None = None
    """NAMESPACE/NAME of a pod that goes."""
    node: str | None = None
    """The node that is changed, or that the pod runs on."""
    amounts: Mapping[str, int] | None = None
    """Amounts by resource, that the node lacks; of editPod, that the pod requests then."""
    taint: TaintFields | None = None
    """The taint that the pod tolerates."""
    taints: Sequence[str] | None = None
    """The taints that the node loses."""
    labels: Mapping[str, str | None] | None = None
    """The labels that the node gets; null: that it loses."""
    edit: str | None = None
    """The field of the pod that requests less."""
    claim: str | None = None
    """NAMESPACE/NAME of a resource claim that is changed."""
    change: str | None = None
    """The change of the claim, or a plugin's proposal."""
    claims: Sequence[str] | None = None
    """Names of the resource claims that are free without the pod."""
    made_anew_by: str | None = None
    """KIND NAME of the controller that replaces the deleted pod."""
    budget: str | None = None
    """NAMESPACE/NAME of the disruption budget that refuses the pod's eviction now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Suggestion(PortAnswer):
    """Changes after which a node takes the pod, found by trying."""

    text: str
    """The suggestion in one line."""
    reason: str | None = None
    """The reason for which as many pods have to go as do."""
    changes: Sequence[ChangeFields]
    """The changes, all of them together."""
    feasible_nodes: int
    """Nodes that take the pod then."""
    nodes: Sequence[str]
    """Some of them."""
    alternatives: Sequence[Sequence[ChangeFields]]
    """Such changes of other objects, which would do as well."""
