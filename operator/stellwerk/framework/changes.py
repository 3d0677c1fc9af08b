"""Changes to a cluster or a pod that may let the pod fit, as values that are tried and described.

Plugins propose them. `explain.would_fit` tries each `Change` in a trial, `suggested_edits` each
`EditObject`; both describe those that help. The docstring of `Change` lists what a new kind needs.
Invariant: a change alters only the trial that it is applied to, and its description is complete.
"""

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum, auto
from fractions import Fraction
from typing import ClassVar, Final, Protocol, TypeAlias, runtime_checkable

from typing_extensions import override

from stellwerk.answers.suggestion import ChangeFields, TaintFields
from stellwerk.models.node_acts import relabelled, uncordoned, untainted
from stellwerk.models.pod import PodInfo
from stellwerk.snapshot.snapshot import Snapshot
from stellwerk.snapshot.trial import Trial
from stellwerk_kube.json_values import JsonObject
from stellwerk_kube.node import NodeInfo
from stellwerk_kube.resource_amounts import CPU, PODS
from stellwerk_kube.taints import Taint, Toleration

_HUNDREDTHS: Final = 100
"""Parts of a unit in which an amount is written exactly."""
_BINARY: Final = (("Ti", 1 << 40), ("Gi", 1 << 30), ("Mi", 1 << 20), ("Ki", 1 << 10))


class Cost(IntEnum):
    """Costs of a change, the cheapest first; of equal numbers of changes the cheaper is shown."""

    TOLERATE = 1
    """The pod stands a taint."""
    UNCORDON = auto()
    """A node takes pods again."""
    UNTAINT = auto()
    """A node loses taints."""
    FREE = auto()
    """Pods on a node request less."""
    DELETE = auto()
    """A pod goes."""
    LABEL = auto()
    """A node's labels change."""
    RELAX = auto()
    """The pod asks for less than its owner meant it to."""
    GROW = auto()
    """A node is replaced by a larger one."""


@runtime_checkable
class Change(Protocol):
    """One change; equal changes compare equal.

    A plugin yields it from `propose`, and the search tries it. A new kind is a class with these
    members here, with its place in `Cost` where none of those fits; its fields in `ChangeFields`
    (`answers.suggestion`) where it has others; and its name in `stellwerk.plugin_api`.
    Command line and page show what `describe` says, and need no change.
    """

    cost: ClassVar[Cost]
    """Effort of the change for the user; cheap changes are tried and shown first."""

    @property
    def group(self) -> tuple[str, ...]:
        """The act without its object: alike changes are shown together."""
        ...

    @property
    def target(self) -> str:
        """The node or pod that is changed."""
        ...

    def apply(self, trial: Trial, snapshot: Snapshot, pod: PodInfo) -> PodInfo:
        """Make the change within a trial; returns the pod to decide for."""
        ...

    def describe(self) -> str:
        """The change in words, its target included."""
        ...

    def fields(self) -> ChangeFields:
        """The change as fields."""
        ...


def amount_text(resource: str, amount: int) -> str:
    """An amount as people write it: 300m CPU, 2Gi memory, 1 nvidia.com/gpu."""
    if resource == CPU:
        return f"{amount}m CPU" if amount % 1000 else f"{amount // 1000} CPU"
    if resource == PODS:
        return "a place for a pod" if amount == 1 else f"places for {amount} pods"
    if "/" not in resource or resource.startswith("hugepages-"):
        for suffix, size in _BINARY:
            if amount >= size:
                quotient = Fraction(amount, size)
                # Rounded up: what is shown is enough.
                tenths = -(-quotient.numerator * 10 // quotient.denominator)
                number = f"{tenths // 10}" if tenths % 10 == 0 else f"{tenths / 10:.1f}"
                return f"{number}{suffix} {resource}"
    return f"{amount} {resource}"


def amounts_text(amounts: Mapping[str, int]) -> str:
    """Several amounts in one phrase."""
    return " and ".join(amount_text(resource, amount) for resource, amount in amounts.items())


@dataclass(frozen=True, slots=True)
class NodeChange(Change):
    """A change to one node, which `changed` returns as it would be."""

    node_name: str

    @property
    @override
    def target(self) -> str:
        return self.node_name

    @override
    def apply(self, trial: Trial, snapshot: Snapshot, pod: PodInfo) -> PodInfo:
        node = snapshot.node_at(snapshot.row_of[self.node_name])
        trial.set_node(self.changed(node))
        return pod

    @abstractmethod
    def changed(self, node: NodeInfo) -> NodeInfo:
        """The node after the change."""


@dataclass(frozen=True, slots=True)
class FreeResources(NodeChange):
    """Pods on a node request less."""

    cost: ClassVar[Cost] = Cost.FREE

    amounts: tuple[tuple[str, int], ...]
    """(resource, how much is lacking)."""

    @property
    @override
    def group(self) -> tuple[str, ...]:
        return ("free", *(resource for resource, _ in self.amounts))

    @override
    def changed(self, node: NodeInfo) -> NodeInfo:
        # For the pod, a smaller request has the effect of a larger offer.
        offered = dict(node.allocatable)
        for resource, amount in self.amounts:
            offered[resource] = offered.get(resource, 0) + amount
        return replace(node, allocatable=offered)

    @override
    def describe(self) -> str:
        return f"free {amounts_text(dict(self.amounts))} on {self.node_name}"

    @override
    def fields(self) -> ChangeFields:
        amounts = dict(self.amounts)
        return ChangeFields(kind="freeResources", node=self.node_name, amounts=amounts)


@dataclass(frozen=True, slots=True)
class GrowNode(FreeResources):
    """A node that is too small for the pod even when empty offers more."""

    cost: ClassVar[Cost] = Cost.GROW

    @property
    @override
    def group(self) -> tuple[str, ...]:
        return ("grow", *(resource for resource, _ in self.amounts))

    @override
    def describe(self) -> str:
        return f"add {amounts_text(dict(self.amounts))} to {self.node_name}"

    @override
    def fields(self) -> ChangeFields:
        return ChangeFields(kind="growNode", node=self.node_name, amounts=dict(self.amounts))


@dataclass(frozen=True, slots=True)
class Uncordon(NodeChange):
    """A node takes pods again, and loses the taint that comes with being cordoned."""

    cost: ClassVar[Cost] = Cost.UNCORDON

    @property
    @override
    def group(self) -> tuple[str, ...]:
        return ("uncordon",)

    @override
    def changed(self, node: NodeInfo) -> NodeInfo:
        return uncordoned(node)

    @override
    def describe(self) -> str:
        return f"uncordon {self.node_name}"

    @override
    def fields(self) -> ChangeFields:
        return ChangeFields(kind="uncordon", node=self.node_name)


@dataclass(frozen=True, slots=True)
class RemoveTaints(NodeChange):
    """A node loses taints."""

    cost: ClassVar[Cost] = Cost.UNTAINT

    taints: tuple[Taint, ...]

    @property
    @override
    def group(self) -> tuple[str, ...]:
        return ("untaint", *map(taint_text, self.taints))

    @override
    def changed(self, node: NodeInfo) -> NodeInfo:
        return untainted(node, self.taints)

    @override
    def describe(self) -> str:
        return f"remove {' and '.join(map(taint_text, self.taints))} from {self.node_name}"

    @override
    def fields(self) -> ChangeFields:
        taints = list(map(taint_text, self.taints))
        return ChangeFields(kind="removeTaints", node=self.node_name, taints=taints)


@dataclass(frozen=True, slots=True)
class SetLabels(NodeChange):
    """A node gets labels, or loses them (None)."""

    cost: ClassVar[Cost] = Cost.LABEL

    labels: tuple[tuple[str, str | None], ...]

    @property
    @override
    def group(self) -> tuple[str, ...]:
        return ("label", *(f"{key}={value}" for key, value in self.labels))

    @override
    def changed(self, node: NodeInfo) -> NodeInfo:
        return relabelled(node, dict(self.labels))

    @override
    def describe(self) -> str:
        words = " ".join(
            f"{key}-" if value is None else f"{key}={value}" for key, value in self.labels
        )
        return f"label {self.node_name} {words}"

    @override
    def fields(self) -> ChangeFields:
        return ChangeFields(kind="labelNode", node=self.node_name, labels=dict(self.labels))


@dataclass(frozen=True, slots=True)
class DeletePod(Change):
    """A pod on a node goes."""

    cost: ClassVar[Cost] = Cost.DELETE

    pod: PodInfo
    claims: tuple[str, ...] = ()
    """Names of the resource claims that it alone holds, which are free without it."""
    budget: str = ""
    """NAMESPACE/NAME of the budget that refuses its eviction now; empty: none does."""

    @property
    @override
    def group(self) -> tuple[str, ...]:
        return ("delete", self._owner, self.budget)

    @property
    def _owner(self) -> str:
        """The controller that makes another one in its place; empty: none does."""
        owner = self.pod.owner
        return "" if owner is None else f"{owner[0].rpartition(' ')[2]} {owner[1]}"

    @property
    @override
    def target(self) -> str:
        return self.pod.key

    @override
    def apply(self, trial: Trial, snapshot: Snapshot, pod: PodInfo) -> PodInfo:
        trial.remove_pods([self.pod])
        return pod

    @override
    def describe(self) -> str:
        words = f"delete {self.pod.key} on {self.pod.node_name}"
        if self.claims:
            claims = "claim" if len(self.claims) == 1 else "claims"
            words += f", which holds {claims} {', '.join(self.claims)}"
        remarks = []
        if self._owner:
            remarks.append(f"{self._owner} makes another one")
        if self.budget:
            remarks.append(f"budget {self.budget} forbids its eviction now")
        return f"{words} ({'; '.join(remarks)})" if remarks else words

    @override
    def fields(self) -> ChangeFields:
        pod, claims = self.pod, list(self.claims) or None
        return ChangeFields(
            kind="deletePod",
            pod=pod.key,
            node=pod.node_name,
            claims=claims,
            made_anew_by=self._owner or None,
            budget=self.budget or None,
        )


@dataclass(frozen=True, slots=True)
class Tolerate(Change):
    """The pod stands a taint."""

    cost: ClassVar[Cost] = Cost.TOLERATE

    taint: Taint

    @property
    @override
    def group(self) -> tuple[str, ...]:
        return ("tolerate", taint_text(self.taint))

    @property
    @override
    def target(self) -> str:
        return taint_text(self.taint)

    @override
    def apply(self, trial: Trial, snapshot: Snapshot, pod: PodInfo) -> PodInfo:
        taint = self.taint
        toleration = Toleration(taint.key, "Equal", taint.value, taint.effect)
        spec = replace(pod.spec, tolerations=(*pod.spec.tolerations, toleration))
        return replace(pod, spec=spec)

    @override
    def describe(self) -> str:
        return f"tolerate {taint_text(self.taint)}"

    @override
    def fields(self) -> ChangeFields:
        taint = self.taint
        fields = TaintFields(key=taint.key, value=taint.value, effect=taint.effect)
        return ChangeFields(kind="tolerate", taint=fields)


class PodPart(IntEnum):
    """The part of a pod that is edited; parts are tried in this order."""

    PLACEMENT = auto()
    """Limits on where it may run: its node, affinity, spread constraints."""
    NEEDS = auto()
    """Things it could do without: a port, a volume, a claim."""
    REQUESTS = auto()
    """The amounts that it requests, cut to what nodes have; so they are tried alone."""


@dataclass(frozen=True, slots=True)
class EditPod(Change):
    """The pod asks for less; `words` say what of."""

    cost: ClassVar[Cost] = Cost.RELAX

    words: str
    edit: Callable[[PodInfo], PodInfo] = field(compare=False)
    part: PodPart = PodPart.PLACEMENT
    requests: tuple[tuple[str, int], ...] = ()
    """(resource, what the pod requests of it then), of an edit of its requests."""
    share: float = 1.0
    """The share of a request that is left: with less, the pod is less likely to work."""

    @property
    @override
    def group(self) -> tuple[str, ...]:
        return ("edit", self.words)

    @property
    @override
    def target(self) -> str:
        return self.words

    @override
    def apply(self, trial: Trial, snapshot: Snapshot, pod: PodInfo) -> PodInfo:
        return self.edit(pod)

    @override
    def describe(self) -> str:
        return self.words

    @override
    def fields(self) -> ChangeFields:
        return ChangeFields(kind="editPod", edit=self.words, amounts=dict(self.requests) or None)


@dataclass(frozen=True, slots=True)
class EditObject:
    """An object of another kind is written otherwise: what plugins of Stellwerk alone propose.

    Such edits are tried apart from changes, and in pairs where none helps alone.
    """

    kind: str
    """The act, as `ChangeFields.kind`: editClaim, freeClaim."""
    text: str
    object_kind: str
    obj: JsonObject
    edit: Callable[[JsonObject], None]
    """Makes the change in a copy of the object."""
    group: str = ""
    """Name of a group of edits, of which the first that helps is enough; empty: it is alone."""

    @property
    def target(self) -> str:
        """NAMESPACE/NAME of the object."""
        metadata = self.obj["metadata"]
        return f"{metadata['namespace']}/{metadata['name']}"


Proposal: TypeAlias = Change | EditObject


def request_less(resource: str, amount: int, instead_of: int) -> EditPod:
    """The pod requests less of a resource."""

    def edit(pod: PodInfo) -> PodInfo:
        requests = {**pod.amounts.requests, resource: amount}
        amounts = replace(pod.amounts, requests=requests)
        return replace(pod, spec=replace(pod.spec, amounts=amounts), amounts=amounts)

    words = f"request {_less_text(resource, amount, instead_of)}"
    return EditPod(words, edit, PodPart.REQUESTS, ((resource, amount),), share=amount / instead_of)


def _less_text(resource: str, amount: int, instead_of: int) -> str:
    """Two amounts of a resource in one unit if both are exact in it: 3.25 instead of 7 CPU."""
    whole = amount_text(resource, instead_of)
    unit = whole.partition(" ")[0].lstrip("0123456789.")
    size = 1000 if resource == CPU and not unit else dict(_BINARY).get(unit, 1)
    if instead_of % size == 0 and amount * _HUNDREDTHS % size == 0:
        number = f"{amount / size:.2f}".rstrip("0").rstrip(".")
        return f"{number}{unit} instead of {whole}"
    number = amount_text(resource, amount).partition(" ")[0]
    return f"{number} instead of {whole}"


def wanted_amounts(pod: PodInfo) -> dict[str, int]:
    """The amounts that a pod takes of a node, its place among the pods included."""
    requests = pod.amounts.requests
    return {**{name: amount for name, amount in requests.items() if amount > 0}, PODS: 1}


def lacking(snapshot: Snapshot, row: int, pod: PodInfo) -> dict[str, int]:
    """Resource → how much of it the node lacks for the pod."""
    node, usage = snapshot.node_at(row), snapshot.usage(row)
    used = dict(zip(("cpu", "memory", "ephemeral-storage", PODS), usage.amounts, strict=True))
    used |= usage.extended
    short = {
        resource: used.get(resource, 0) + amount - node.allocatable.get(resource, 0)
        for resource, amount in wanted_amounts(pod).items()
    }
    return {resource: amount for resource, amount in short.items() if amount > 0}


def taint_text(taint: Taint) -> str:
    """A taint as kubectl writes it."""
    return f"{taint.key}{f'={taint.value}' if taint.value else ''}:{taint.effect}"
