"""Pods of templates on a fork: made one after the other, and what becomes of them counted.

`explain.what_if` decides on the pods; it lists other pods one by one, but a template may have
15,000. Invariant: the pods of a template are alike in everything but their name (and, in a
StatefulSet, their claims), so that its counts say all there is to say about them.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Final

from stellwerk.answers.what_if import (
    PodsOnKind,
    PodsOnNode,
    PodsWithoutNode,
    SupposedTemplate,
    TemplateOutcome,
    WouldPreempt,
)
from stellwerk.explain.lists.page import controller_of, natural_order
from stellwerk.explain.steps import Steps
from stellwerk.models.pod import PodInfo
from stellwerk.world.world import World
from stellwerk_kube.errors import ConfigurationError
from stellwerk_kube.json_values import JsonObject
from stellwerk_kube.node import NodeInfo
from stellwerk_kube.pod_templates import STATEFUL_SET, template_of
from stellwerk_kube.resource_amounts import CPU, MEMORY

KindOf = Callable[[str], str]
"""Gives the kind of a node by its name."""
ReadPod = Callable[[JsonObject], PodInfo]
"""Makes a pod of its manifest on the fork; raises ConfigurationError."""
_MAX_NODES: Final = 100
"""Nodes that an outcome names."""
_MAX_KINDS: Final = 20
"""Kinds of node that an outcome names."""
_MAX_REASONS: Final = 10
"""Reasons that an outcome names; the pods with others are one number."""
_MAX_PODS_PER_STEP: Final = 2000
"""Pods of the cluster that are compared with a StatefulSet before yielding."""
_MAX_NODES_PER_STEP: Final = 500
"""Nodes whose kind is found before yielding; 500 take about a millisecond."""
_TYPE_LABELS: Final = ("node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type")
_SHOWN_RESOURCES: Final = frozenset({CPU, MEMORY, "pods", "ephemeral-storage"})
"""Resources that nearly every node has; of the others a kind names every one."""
_GIB: Final = 1 << 30


class TemplatePods:
    """The pods of one template, made when they are asked for."""

    def __init__(self, world: World, supposed: SupposedTemplate, read: ReadPod) -> None:
        """Read the template, and suppose the controllers whose selectors plugins read.

        Raises:
            ConfigurationError: it cannot be read.
        """
        self._world, self._read = world, read
        try:
            template = template_of(supposed.template, "default")
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ConfigurationError(f"not a template of pods: {error!r}") from error
        self._manifest = template.pod
        self.count = template.count if supposed.count is None else supposed.count
        self._claims: list[JsonObject] = []
        """The templates of the claims that each pod of a StatefulSet has of its own."""
        self.is_ordered = False
        """Whether each pod is made when the one before it runs: in most StatefulSets."""
        self._is_stateful, self._start = False, 0
        for each in template.controllers:
            spec = each.get("spec") or {}
            if each["kind"] == STATEFUL_SET:
                self._is_stateful = True
                self._claims = list(spec.get("volumeClaimTemplates") or ())
                self.is_ordered = spec.get("podManagementPolicy") != "Parallel"
                self._start = int((spec.get("ordinals") or {}).get("start") or 0)
            world.objects.set(each["kind"], each)
        self._first = self._made(0) if self.count else None
        self.name = f"{template.pod['metadata']['namespace']}/{template.pod['metadata']['name']}"
        if self._first is not None and (controller := controller_of(self._first)):
            self.name = f"{self._first.namespace}/{controller}"

    @property
    def first(self) -> PodInfo | None:
        """The first pod, which stands for all of them; None: there is none."""
        return self._first

    def take_out_own_copies(self) -> Steps[None]:
        """Take the pods of the same StatefulSet off the fork: they have the names of these."""
        world, first = self._world, self._first
        if not self._is_stateful or first is None or first.owner is None:
            return
        kind, name, _ = first.owner
        for number, pod in enumerate(list(world.cache.pods())):
            owner = None if pod.owner is None else pod.owner[:2]
            if owner == (kind, name) and pod.namespace == first.namespace:
                world.cache.remove_pod(pod.uid)
                world.pod_groups.take_pod(pod.uid)
            if number % _MAX_PODS_PER_STEP == 0:
                yield

    @property
    def is_grouped(self) -> bool:
        """Whether the pods are members of a group, which is decided as a whole."""
        return self._first is not None and self._first.group is not None

    def keys(self) -> Iterator[str]:
        """NAMESPACE/NAME of each pod."""
        namespace = self._manifest["metadata"]["namespace"]
        return (f"{namespace}/{self._pod_name(number)}" for number in range(self.count))

    def __iter__(self) -> Iterator[PodInfo]:
        """The pods in the order in which their controller makes them."""
        first = self._first
        if first is None:
            return
        # Volumes of a pod's own are named after it; everything else is shared by the copies.
        is_own = bool(self._claims) or any("ephemeral" in each for each in self._volumes())
        yield first
        for number in range(1, self.count):
            if is_own:
                yield self._made(number)
                continue
            pod = first.with_node("")
            pod.name = self._pod_name(number)
            pod.uid = f"{pod.namespace}/{pod.name}"
            if pod.group is not None:
                self._world.pod_groups.put_pod(pod, pod.group)
            yield pod

    def _pod_name(self, number: int) -> str:
        return f"{self._manifest['metadata']['name']}-{self._start + number}"

    def _volumes(self) -> Iterable[JsonObject]:
        found: Iterable[JsonObject] = self._manifest["spec"].get("volumes") or ()
        return found

    def _made(self, number: int) -> PodInfo:
        """A pod of its own manifest, with its own claims."""
        name, manifest = self._pod_name(number), self._manifest
        metadata = {**manifest["metadata"], "name": name}
        spec = manifest["spec"]
        if self._claims:
            own = {each["metadata"]["name"] for each in self._claims}
            others = [each for each in self._volumes() if each.get("name") not in own]
            volumes = [
                {"name": each, "persistentVolumeClaim": {"claimName": f"{each}-{name}"}}
                for each in sorted(own)
            ]
            spec = {**spec, "volumes": [*volumes, *others]}
            self._make_claims(metadata["namespace"], name)
        return self._read({**manifest, "metadata": metadata, "spec": spec})

    def _make_claims(self, namespace: str, pod_name: str) -> None:
        """Make the claims of a StatefulSet's pod that are not there yet; they outlive pods."""
        objects = self._world.objects
        for template in self._claims:
            name = f"{template['metadata']['name']}-{pod_name}"
            if objects.get("PersistentVolumeClaim", namespace, name) is None:
                metadata = {"name": name, "namespace": namespace, "uid": f"supposed-{name}"}
                claim = {
                    "metadata": metadata,
                    "spec": dict(template.get("spec") or {}),
                    "status": {"phase": "Pending"},
                }
                objects.set("PersistentVolumeClaim", claim)


class TemplateTally:
    """The outcome of one template, counted pod by pod."""

    def __init__(self, name: str, pods: int) -> None:
        """`name`: as `TemplateOutcome.template`; `pods`: how many were asked for."""
        self._name, self._pods = name, pods
        self._on_node: Counter[str] = Counter()
        self._without: dict[tuple[str, bool], PodsWithoutNode] = {}
        """By reason, and whether the pods would preempt others."""
        self.unplaced = 0

    @property
    def placed(self) -> int:
        """The pods that got a node so far."""
        return self._on_node.total()

    def count_placed(self, node_name: str) -> None:
        """A pod got this node."""
        self._on_node[node_name] += 1

    def count_unplaced(self, message: str, would_preempt: WouldPreempt | None) -> None:
        """A pod got no node."""
        self.unplaced += 1
        key = message, would_preempt is not None
        known = self._without.get(key)
        if known is None:
            known = PodsWithoutNode(message=message, pods=0, would_preempt=would_preempt)
        self._without[key] = replace(known, pods=known.pods + 1)

    def outcome(self, kind_of: KindOf, *, listed: bool = False) -> Steps[TemplateOutcome]:
        """The counts, the largest first."""
        nodes_of: Counter[str] = Counter()
        pods_of: Counter[str] = Counter()
        for number, (name, pods) in enumerate(self._on_node.items()):
            kind = kind_of(name)
            nodes_of[kind] += 1
            pods_of[kind] += pods
            if number % _MAX_NODES_PER_STEP == 0:
                yield
        names = sorted(self._on_node, key=lambda name: (-self._on_node[name], natural_order(name)))
        yield
        reasons = sorted(self._without.values(), key=lambda each: -each.pods)
        placed, unplaced = self.placed, self.unplaced
        return TemplateOutcome(
            template=self._name,
            pods=self._pods,
            placed=placed,
            unplaced=unplaced,
            left_out=self._pods - placed - unplaced or None,
            nodes=len(self._on_node),
            by_node=[
                PodsOnNode(node=name, pods=self._on_node[name]) for name in names[:_MAX_NODES]
            ],
            by_kind=[
                PodsOnKind(kind=kind, nodes=nodes_of[kind], pods=pods)
                for kind, pods in pods_of.most_common(_MAX_KINDS)
            ],
            reasons=reasons[:_MAX_REASONS],
            other_reasons=sum(each.pods for each in reasons[_MAX_REASONS:]) or None,
            listed=listed,
        )


def kind_of_node(node: NodeInfo) -> str:
    """The kind of a node: its instance type, or its shape if no cloud names one.

    A shape is "4 CPU, 32 GiB", with every extended resource behind it.
    """
    for label in _TYPE_LABELS:
        if named := node.labels.get(label):
            return named
    amounts = node.allocatable
    cpu, memory = amounts.get(CPU, 0) / 1000, amounts.get(MEMORY, 0) / _GIB
    more = [
        f"{amount:,} {name}"
        for name, amount in sorted(amounts.items())
        if amount and name not in _SHOWN_RESOURCES
    ]
    return ", ".join([f"{cpu:g} CPU", f"{memory:.4g} GiB", *more])
