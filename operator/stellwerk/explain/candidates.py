"""Changes that are worth a try, by what the plugins say of a node.

The search for what would help asks it for the nodes that are nearest to taking the pod. Invariant:
a candidate is a guess; whether it helps is known only when it has been tried.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final, TypeAlias

from stellwerk.explain.changes import (
    Change,
    EditPod,
    FreeResources,
    GrowNode,
    RemoveTaints,
    SetLabels,
    Tolerate,
    Uncordon,
    amount_text,
)
from stellwerk.models.node import NodeInfo
from stellwerk.models.pod import PodInfo
from stellwerk.models.pod_affinity import PodAffinity
from stellwerk.models.pod_resources import PODS
from stellwerk.models.scheduling_spec import HostPort
from stellwerk.models.selectors import NodeSelector, Requirement, parse_node_selector
from stellwerk.models.taints import (
    NO_EXECUTE,
    NO_SCHEDULE,
    UNSCHEDULABLE_TAINT_KEY,
    Taint,
    untolerated,
)
from stellwerk.world.world import World

if TYPE_CHECKING:
    from stellwerk.snapshot.snapshot import Snapshot

Labels: TypeAlias = dict[str, str | None]
_HARD: Final = (NO_SCHEDULE, NO_EXECUTE)
_CORDONED: Final = Taint(UNSCHEDULABLE_TAINT_KEY, "", NO_SCHEDULE)
_FEW: Final = 4
"""So many label values are tried, volumes and claims."""
_VOLUME_PLUGINS: Final = ("VolumeBinding", "VolumeZone", "VolumeRestrictions", "NodeVolumeLimits")


class Candidates:
    """What could help one pod, on the snapshot of one World."""

    def __init__(self, world: World, pod: PodInfo) -> None:
        self._world = world
        self._snapshot: Snapshot = world.cache.snapshot
        self._pod = pod
        self._edits: dict[str, list[EditPod]] = {}

    # --- changes to a node ----------------------------------------------------------------------

    def for_node(self, row: int, failing: Iterable[str]) -> Iterator[tuple[str, Change]]:
        """(plugin, change) for each plugin that turns the node away."""
        node = self._snapshot.node_at(row)
        by_plugin: dict[str, Callable[[NodeInfo, int], Iterator[Change]]] = {
            "NodeResourcesFit": self._resources,
            "NodeUnschedulable": self._cordoned,
            "TaintToleration": self._tainted,
            "NodeAffinity": self._labels,
            "PodTopologySpread": self._topology,
            "InterPodAffinity": self._topology,
            "VolumeBinding": self._volume_labels,
            "VolumeZone": self._volume_labels,
        }
        for plugin in failing:
            propose = by_plugin.get(plugin)
            if propose is not None:
                for change in propose(node, row):
                    yield plugin, change

    def _resources(self, node: NodeInfo, row: int) -> Iterator[Change]:
        lacking = self.lacking(row)
        if not lacking:
            return
        offered, wanted = node.allocatable, self._wanted()
        too_small = any(offered.get(resource, 0) < wanted[resource] for resource in lacking)
        kind = GrowNode if too_small else FreeResources
        yield kind(node.name, tuple(lacking.items()))

    def lacking(self, row: int) -> dict[str, int]:
        """Resource → how much of it the node lacks for the pod."""
        snapshot, node = self._snapshot, self._snapshot.node_at(row)
        usage = snapshot.usage(row)
        used = dict(zip(("cpu", "memory", "ephemeral-storage", PODS), usage.amounts, strict=True))
        used |= usage.extended
        short = {
            resource: used.get(resource, 0) + amount - node.allocatable.get(resource, 0)
            for resource, amount in self._wanted().items()
        }
        return {resource: amount for resource, amount in short.items() if amount > 0}

    def _wanted(self) -> dict[str, int]:
        requests = self._pod.amounts.requests
        return {**{name: amount for name, amount in requests.items() if amount > 0}, PODS: 1}

    def _cordoned(self, node: NodeInfo, _: int) -> Iterator[Change]:
        yield Uncordon(node.name)
        yield Tolerate(_CORDONED)

    def _tainted(self, node: NodeInfo, _: int) -> Iterator[Change]:
        taints = untolerated(node.taints, self._pod.spec.tolerations, _HARD)
        if taints:
            yield RemoveTaints(node.name, tuple(taints))
        if node.unschedulable:
            yield Uncordon(node.name)
        for taint in dict.fromkeys(taints):
            yield Tolerate(taint)

    def _labels(self, node: NodeInfo, _: int) -> Iterator[Change]:
        spec, labels = self._pod.spec, node.labels
        needed: Labels = {
            key: value for key, value in spec.node_selector.items() if labels.get(key) != value
        }
        required = spec.required_node_affinity
        if required is None or required.matches(labels, node.name):
            options: list[Labels] = [{}]
        else:
            options = list(label_changes(required, node))
        for option in options:
            together = {**option, **needed}
            if together and all(option.get(key, value) == value for key, value in needed.items()):
                yield SetLabels(node.name, tuple(together.items()))

    def _topology(self, node: NodeInfo, _: int) -> Iterator[Change]:
        """Topology labels that the node lacks, with values that other nodes have."""
        spec = self._pod.spec
        keys = [each.topology_key for each in spec.spread_constraints if each.hard]
        keys += [term.topology_key for term in spec.pod_affinity.required]
        for key in dict.fromkeys(keys):
            if key not in node.labels:
                for value in self._snapshot.label(key).values[:_FEW]:
                    yield SetLabels(node.name, ((key, value),))

    def _volume_labels(self, node: NodeInfo, _: int) -> Iterator[Change]:
        """The labels that the pod's bound volumes ask of their nodes."""
        needed: Labels = {}
        for required in self._volume_affinities():
            if not required.matches(node.labels, node.name):
                option = next(label_changes(required, node), None)
                if option is None:
                    return
                needed |= option
        if needed:
            yield SetLabels(node.name, tuple(needed.items()))

    def _volume_affinities(self) -> Iterator[NodeSelector]:
        objects, pod = self._world.objects, self._pod
        for volume in pod.volumes:
            if not volume.claim_name:
                continue
            claim = objects.get("PersistentVolumeClaim", pod.namespace, volume.claim_name)
            name = ((claim or {}).get("spec") or {}).get("volumeName")
            bound = objects.get("PersistentVolume", "", name) if name else None
            affinity = ((bound or {}).get("spec") or {}).get("nodeAffinity") or {}
            required = parse_node_selector(affinity.get("required"))
            if required is not None:
                yield required

    # --- changes to the pod ---------------------------------------------------------------------

    def of_pod(self) -> Iterator[EditPod]:
        """What the pod could ask less of."""
        for plugin in ("NodeName", "NodeAffinity", "PodTopologySpread", "InterPodAffinity"):
            yield from self.edits_for(plugin)
        for plugin in ("NodePorts", *_VOLUME_PLUGINS[:1], "DynamicResources"):
            yield from self.edits_for(plugin)

    def edits_for(self, plugin: str) -> Sequence[EditPod]:
        """What the pod could ask less of, so that a plugin turns fewer nodes away."""
        if plugin in _VOLUME_PLUGINS:
            # One list, so that what two of them ask for is one change.
            plugin = _VOLUME_PLUGINS[0]
        if plugin not in self._edits:
            self._edits[plugin] = list(self._edits_of(plugin))
        return self._edits[plugin]

    def _edits_of(self, plugin: str) -> Iterator[EditPod]:
        spec, pod = self._pod.spec, self._pod
        if plugin == "NodeName" and pod.node_name:
            yield EditPod(f"leave out nodeName {pod.node_name}", _without_node_name)
        elif plugin == "NodeAffinity":
            for key, value in spec.node_selector.items():
                yield EditPod(f"drop {key}={value} from nodeSelector", _without_selector(key))
            if spec.required_node_affinity is not None or pod.node_names is not None:
                yield EditPod("drop the required node affinity", _without_node_affinity)
        elif plugin == "NodePorts":
            for port in spec.host_ports:
                yield EditPod(f"drop host port {port.port}/{port.protocol}", _without_port(port))
        elif plugin in _VOLUME_PLUGINS:
            yield from self._volume_edits()
        elif plugin == "DynamicResources":
            for claim in spec.resource_claims[:_FEW]:
                words = f"do without resource claim {claim.name}"
                yield EditPod(words, _without_resource_claim(claim.name))
        else:
            yield from self._pairwise_edits_of(plugin)

    def _pairwise_edits_of(self, plugin: str) -> Iterator[EditPod]:
        spec = self._pod.spec
        if plugin == "PodTopologySpread":
            for index, each in enumerate(spec.spread_constraints):
                if each.hard:
                    words = f"make the spread over {each.topology_key} ScheduleAnyway"
                    yield EditPod(words, _without_constraint(index))
        elif plugin == "InterPodAffinity":
            if spec.pod_affinity.required:
                yield EditPod("drop the required pod affinity", _without_affinity)
            if spec.pod_affinity.required_anti:
                yield EditPod("drop the required pod anti-affinity", _without_anti_affinity)

    def _volume_edits(self) -> Iterator[EditPod]:
        for volume in self._pod.volumes[:_FEW]:
            claim = f" (claim {volume.claim_name})" if volume.claim_name else ""
            yield EditPod(f"do without volume {volume.name}{claim}", _without_volume(volume.name))

    def smaller_request(self, rows: Iterable[int]) -> Iterator[EditPod]:
        """The request that the node with the most room could take, by resource."""
        lacking = [each for row in rows if len(each := self.lacking(row)) == 1]
        wanted = self._wanted()
        least: dict[str, int] = {}
        for each in lacking:
            for resource, amount in each.items():
                least[resource] = min(amount, least.get(resource, amount))
        for resource, amount in least.items():
            left = wanted[resource] - amount
            if resource != PODS and left > 0:
                words = f"request {amount_text(resource, left)} instead of "
                words += amount_text(resource, wanted[resource])
                yield EditPod(words, with_request(resource, left))


def label_changes(selector: NodeSelector, node: NodeInfo) -> Iterator[Labels]:
    """What each term lacks on a node, where labels can give it; the fewest changes first."""
    options = []
    for term in selector.terms:
        if not (term.match_expressions or term.match_fields):
            continue
        if not all(field.matches_value(node.name) for field in term.match_fields):
            continue
        changes: Labels = {}
        unmet = [each for each in term.match_expressions if not _met(each, node, changes)]
        for requirement in unmet:
            changes[requirement.key] = _value_for(requirement)
        labels = {**node.labels, **changes}
        present = {key: value for key, value in labels.items() if value is not None}
        if changes and all(
            each.matches_value(present.get(each.key)) for each in term.match_expressions
        ):
            options.append(changes)
    yield from sorted(options, key=len)


def _met(requirement: Requirement, node: NodeInfo, changes: Labels) -> bool:
    value = changes.get(requirement.key, node.labels.get(requirement.key))
    return requirement.matches_value(value)


def _value_for(requirement: Requirement) -> str | None:
    """A label value that fulfils a requirement."""
    if requirement.operator == "In":
        return min(requirement.values, default="")
    if requirement.operator == "Exists":
        return ""
    if requirement.bound is not None:
        return str(requirement.bound + (1 if requirement.operator == "Gt" else -1))
    return None


Edit: TypeAlias = Callable[[PodInfo], PodInfo]


def _without_node_name(pod: PodInfo) -> PodInfo:
    return pod.with_node("")


def _without_selector(key: str) -> Edit:
    def edit(pod: PodInfo) -> PodInfo:
        left = {name: value for name, value in pod.spec.node_selector.items() if name != key}
        return replace(pod, spec=replace(pod.spec, node_selector=left))

    return edit


def _without_node_affinity(pod: PodInfo) -> PodInfo:
    return replace(pod, spec=replace(pod.spec, required_node_affinity=None), node_names=None)


def _without_constraint(index: int) -> Edit:
    def edit(pod: PodInfo) -> PodInfo:
        constraints = list(pod.spec.spread_constraints)
        constraints[index] = replace(constraints[index], when_unsatisfiable="ScheduleAnyway")
        return replace(pod, spec=replace(pod.spec, spread_constraints=tuple(constraints)))

    return edit


def _affinity(pod: PodInfo, affinity: PodAffinity) -> PodInfo:
    return replace(pod, spec=replace(pod.spec, pod_affinity=affinity))


def _without_affinity(pod: PodInfo) -> PodInfo:
    return _affinity(pod, replace(pod.spec.pod_affinity, required=()))


def _without_anti_affinity(pod: PodInfo) -> PodInfo:
    return _affinity(pod, replace(pod.spec.pod_affinity, required_anti=()))


def _without_port(port: HostPort) -> Edit:
    def edit(pod: PodInfo) -> PodInfo:
        left = tuple(each for each in pod.spec.host_ports if each != port)
        return replace(pod, spec=replace(pod.spec, host_ports=left))

    return edit


def _without_volume(name: str) -> Edit:
    def edit(pod: PodInfo) -> PodInfo:
        return replace(pod, volumes=tuple(each for each in pod.volumes if each.name != name))

    return edit


def _without_resource_claim(name: str) -> Edit:
    def edit(pod: PodInfo) -> PodInfo:
        left = tuple(each for each in pod.spec.resource_claims if each.name != name)
        return replace(pod, spec=replace(pod.spec, resource_claims=left))

    return edit


def with_request(resource: str, amount: int) -> Edit:
    """The pod with another request of one resource."""

    def edit(pod: PodInfo) -> PodInfo:
        requests = {**pod.amounts.requests, resource: amount}
        amounts = replace(pod.amounts, requests=requests)
        return replace(pod, spec=replace(pod.spec, amounts=amounts), amounts=amounts)

    return edit
