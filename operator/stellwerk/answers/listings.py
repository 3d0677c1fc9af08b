"""The queue, decisions, profiles, nodes, devices and claims, as they are answered a page at a time.

`explain.listings` makes them, the page shows them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from stellwerk.answers.answer import PortAnswer, Time
from stellwerk.answers.pod import PodExplanation
from stellwerk.answers.suggestion import TaintFields


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingPod(PortAnswer):
    """A pod that waits."""

    pod: str
    queue: str
    scheduler_name: str
    priority: int
    since: Time
    attempts: int
    rejected_by: Sequence[str] | None = None
    error: str | None = None
    """The error that its last attempt ended in, with the plugin that raised; absent: in none."""
    labels: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UnservedPod(PortAnswer):
    """A waiting pod that no scheduler serves."""

    pod: str
    scheduler_name: str
    priority: int
    reason: str
    """Why no profile serves it, with the served name that may be meant."""
    labels: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuePage(PortAnswer):
    """Pods that wait, in the order in which each queue tries them."""

    counts: Mapping[str, int]
    """Pods by queue."""
    total: int
    items: Sequence[PendingPod]
    unserved: Sequence[UnservedPod] | None = None
    """Pods that wait and that no scheduler serves, on the first page; they are in no queue."""
    unserved_total: int | None = None
    """How many there are; absent: none."""
    served: Sequence[str] | None = None
    """The schedulerNames that are served; absent: every pod that waits has a scheduler."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSample(PortAnswer):
    """The queues at one moment."""

    at: Time
    active: int
    backoff: int
    unschedulable: int
    gated: int
    scheduled: int
    """Pods that have got a node since the process started, over the profiles that serve."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueHistoryPage(PortAnswer):
    """The number of pods that waited over the last hour, oldest first."""

    every_seconds: float
    items: Sequence[QueueSample]


@dataclass(frozen=True, slots=True, kw_only=True)
class DecidedPod(PortAnswer):
    """A pod that got a node."""

    pod: str
    node: str
    scheduler_name: str
    decided_at: Time
    attempts: int
    feasible: int
    nodes: int
    tied: int
    compatibility: str | None = None
    """The Kubernetes release that the decision followed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionsPage(PortAnswer):
    """Pods that got a node, the last one first."""

    total: int
    items: Sequence[DecidedPod]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingProfile(PortAnswer):
    """A profile that serves."""

    name: str
    scheduler_name: str
    generation: int
    plugins: Mapping[str, Sequence[str]]
    """Plugins by extension point."""
    weights: Mapping[str, int]
    """Weights by Score plugin."""
    scheduled_pods: int
    extenders: bool
    compatibility: str | None = None
    """The Kubernetes release that its decisions follow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedProfile(PortAnswer):
    """A profile that does not serve."""

    scheduler_name: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileCondition(PortAnswer):
    """A condition of a SchedulerProfile."""

    type: str
    status: str
    reason: str
    message: str
    last_transition_time: Time
    observed_generation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileObject(PortAnswer):
    """A SchedulerProfile with its conditions."""

    name: str
    generation: int
    conditions: Sequence[ProfileCondition]


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiServerFields(PortAnswer):
    """The API server, and what of it can be read."""

    version: str
    """As it says it itself, such as v1.37.0."""
    compatibility: str
    """The release that decisions follow where a profile names none."""
    versions_in_use: Mapping[str, str]
    """By kind, of those that releases serve in different versions."""
    off: Mapping[str, str]
    """Kinds that cannot be read, each with the reason and what is off without it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfilesPage(PortAnswer):
    """Profiles that serve, that do not, and what the objects' conditions say."""

    items: Sequence[ServingProfile]
    refused: Sequence[RefusedProfile]
    objects: Sequence[ProfileObject]
    api_server: ApiServerFields | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeQuantities(PortAnswer):
    """Amounts of a node as quantities, such as 500m and 4Gi."""

    allocatable: Mapping[str, str]
    requested: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFields(PortAnswer):
    """A node with what it offers and what is used of it."""

    name: str
    allocatable: Mapping[str, int]
    """Amounts by resource: cpu in millicores, memory and storage in bytes."""
    requested: Mapping[str, int]
    labels: Mapping[str, str]
    taints: Sequence[TaintFields]
    unschedulable: bool
    quantities: NodeQuantities | None = None
    """The same amounts as Kubernetes writes them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeTotals(PortAnswer):
    """The sums over several nodes, by resource."""

    allocatable: Mapping[str, int]
    requested: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodesPage(PortAnswer):
    """Nodes, in the order of their arrival."""

    total: int
    items: Sequence[NodeFields]
    totals: NodeTotals | None = None
    """Of all nodes that were asked for, on this page or not; absent: they were not wanted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodsTurnedAway(PortAnswer):
    """Waiting pods that one plugin turns away from a node for the same reasons."""

    plugin: str
    reasons: Sequence[str]
    pods: Sequence[str]
    """Some of them."""
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeExplanation(PortAnswer):
    """A node, and which of the pods that wait would fit there, each seen alone."""

    node: NodeFields
    running: int
    """Pods on it."""
    pods: Sequence[str] = ()
    """Some of them."""
    fitting: Sequence[str]
    """Waiting pods that it would take."""
    turned_away: Sequence[PodsTurnedAway]
    """The reason that concerns most pods first."""
    left_out: int | None = None
    """So many waiting pods were not looked at."""
    stopped: str | None = None
    """Why not."""
    compatibility: Sequence[str] = ()
    """The Kubernetes releases that the verdicts follow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodsWaitingAlike(PortAnswer):
    """Pods of a workload that wait for the same reason, and the explanation of one of them."""

    reason: str
    pods: Sequence[str]
    explanation: PodExplanation | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadExplanation(PortAnswer):
    """A controller's pods: where they are, and why others wait."""

    workload: str
    """KIND/NAME."""
    namespace: str
    pods: int
    with_node: int
    waiting: Sequence[PodsWaitingAlike]
    """The reason that concerns most pods first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnedPod(PortAnswer):
    """A pod of a controller, on a node or in a queue."""

    pod: str
    node: str | None = None
    queue: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnedPods(PortAnswer):
    """The pods that one controller made, those that wait first."""

    owner: str
    """KIND/NAME."""
    namespace: str
    total: int
    waiting: int
    items: Sequence[OwnedPod]
    """Some of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceFields(PortAnswer):
    """A device that a driver offers."""

    device: str
    """DRIVER/POOL/DEVICE."""
    node: str | None = None
    """The one node that it is for; absent: there are several."""
    attributes: Mapping[str, str]
    capacity: Mapping[str, str]
    taints: Sequence[TaintFields]
    claims: Sequence[str]
    """NAMESPACE/NAME of the claims that hold it, or a part of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DevicesPage(PortAnswer):
    """Devices, by driver, pool and name."""

    total: int
    held: int
    """So many of them are held by a claim."""
    items: Sequence[DeviceFields]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceHolder(PortAnswer):
    """A claim that has been given a device, or a part of it."""

    claim: str
    request: str
    """The one of its requests that got the device."""
    consumed: Mapping[str, str]
    """What it takes of the capacity of a device that claims share."""
    only_looks: bool
    """It has adminAccess: the device is not taken."""
    pods: Sequence[str]
    """NAMESPACE/NAME of the pods that the claim is reserved for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceCounter(PortAnswer):
    """A counter of a pool, of which several devices take."""

    counter_set: str
    counter: str
    takes: str
    """What the device takes of it while it is held."""
    offered: str
    """What the pool has of it."""
    free: str
    """What the devices that are held leave of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceExplanation(PortAnswer):
    """A device: what it is, who has it, and on which nodes it can be used."""

    device: DeviceFields
    resource_slice: str
    """The name of the ResourceSlice that offers it."""
    shared: bool
    """Whether several claims may have a part of it each."""
    holders: Sequence[DeviceHolder]
    counters: Sequence[DeviceCounter]
    nodes: Sequence[str]
    """The nodes that it is for, some of them."""
    on_nodes: int
    """How many there are of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimRequest(PortAnswer):
    """A request of a claim, or one of its alternatives."""

    request: str
    device_class: str
    count: int | Literal["All"]
    selectors: Sequence[str]
    """CEL expressions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimExplanation(PortAnswer):
    """A resource claim: what it asks for, what it has, and whose it is."""

    claim: str
    state: Literal["needed", "allocated"]
    requests: Sequence[ClaimRequest]
    problem: str | None = None
    """Why its requests cannot be read."""
    devices: Sequence[str]
    """The devices that it has been given: DRIVER/POOL/DEVICE."""
    reserved_for: Sequence[str]
    """NAMESPACE/NAME of the pods that it is reserved for."""
    waiting: Sequence[str]
    """Waiting pods that name it, some of them."""
