"""Suppositions, and the outcome of decisions on them, as they are asked and answered.

`explain.what_if` answers; the command, the page and the demo print it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from stellwerk.answers.answer import PortAnswer
from stellwerk.answers.pod import PluginLeftOut, RecomputedExplanation
from stellwerk.answers.reading import ClusterReading
from stellwerk.models.act_syntax import (
    Deletion,
    Relabelling,
    Scaling,
    Tainting,
    read_acts,
    read_deletion,
    read_relabelling,
    read_scaling,
    read_tainting,
)
from stellwerk_kube.api_fields import check_object
from stellwerk_kube.errors import ConfigurationError
from stellwerk_kube.json_values import JsonObject
from stellwerk_kube.names import suggestion
from stellwerk_kube.pod_templates import POD, TEMPLATE_KINDS, template_of

MAX_SUPPOSED_NODES: Final = 1000
"""Nodes that one question may suppose."""
MAX_ENTRIES_PER_SUPPOSED_NODE: Final = 64
"""Entries of each kind on one supposed node: labels, resources, taints, images, features."""
MAX_RESOURCES: Final = 128
"""Different resources of all supposed nodes together: each is a column of all nodes."""
_MAX_IMAGE_NAMES: Final = 256
"""Names of images on one node: a kubelet reports 50 images with 5 names each."""
_MAX_NAME_CHARACTERS: Final = 253
"""Characters of a name that the API takes."""
_MAX_KEY_CHARACTERS: Final = 317
"""Characters of a label's key: a prefix of 253, a slash and a name of 63."""
_MAX_VALUE_CHARACTERS: Final = 63
"""Characters of a label's value."""
Part = TypeVar("Part", dict[str, Any], list[Any])
MAX_SUPPOSED_PODS: Final = 1000
"""Pods that one answer decides on beside those of templates. Each has an entry of its own."""
MAX_TEMPLATES: Final = 100
"""Templates of one question: each is read and counted by itself."""
MAX_TEMPLATE_PODS: Final = 15_000
"""Pods of all templates of one question. More are refused: the answer would take longer than the
port computes for one (`serving.explanations.MAX_COMPUTING_SECONDS`)."""
MAX_PODS_ONE_BY_ONE: Final = 100
"""Pods of templates that an answer lists one by one as well. Of more, it only has the counts."""
MAX_ACTS: Final = 1000
"""Acts of one kind in one question: each costs a look at a node, a pod or a controller."""
_MAX_ACT_CHARACTERS: Final = 32_768
"""Characters of one act: 64 labels with the longest keys and values fit."""
_MAX_WORDS_OF_ACTS: Final = 8192
"""Names, labels and taints in all acts of one kind: to read so many takes 8 ms, one step."""
_ACTS: Final = ("relabel", "taint", "delete", "scale")
_FIELDS: Final = frozenset(
    {"pod", "pods", "templates", "addNodes", "count", "drain", "profile", *_ACTS}
)
_TEMPLATE_FIELDS: Final = frozenset({"template", "count"})
_PROFILE_FIELDS: Final = frozenset({"apiVersion", "kind", "metadata", "spec", "status"})


@dataclass(frozen=True, slots=True)
class SupposedTemplate(PortAnswer):
    """Pods that are alike: what they are made of, and how many there are."""

    template: JsonObject
    """A Pod, a PodTemplate, a Deployment, a ReplicaSet, a ReplicationController, a StatefulSet, a
    Job or a CronJob; without a kind, the template in one of these (`metadata` and `spec`)."""
    count: int | None = None
    """The number of pods; absent: as many as the controller runs at once, or one."""

    @property
    def pods(self) -> int:
        """The number of pods.

        Raises:
            KeyError, TypeError, ValueError, AttributeError: the template is malformed.
        """
        return template_of(self.template, "default").count if self.count is None else self.count


@dataclass(frozen=True, slots=True)
class Supposition(PortAnswer):
    """A question: the supposed pods, nodes, profile or drains.

    Decided are the pods that acts end and controllers make anew, and those that are supposed;
    without either, all that wait.
    """

    pod: JsonObject | None = None
    """Decide for this one, and explain it."""
    pods: Sequence[JsonObject] = ()
    """Decide for these, one after the other."""
    add_nodes: Sequence[JsonObject] = ()
    """Nodes that there were, too."""
    count: int = 1
    """Copies of each node."""
    drain: str | Sequence[str] = ""
    """A node that is drained, or several, at once."""
    profile: JsonObject | None = None
    """A SchedulerProfile that decides instead of the served one."""
    relabel: Sequence[str] = ()
    """Nodes whose labels change, each as `NODE KEY=VALUE KEY-`."""
    taint: Sequence[str] = ()
    """Nodes whose taints change, each as `NODE KEY=VALUE:EFFECT KEY:EFFECT-`."""
    delete: Sequence[str] = ()
    """Nodes and pods that are deleted, each as `node/NAME` or `pod/NAMESPACE/NAME`."""
    scale: Sequence[str] = ()
    """Controllers that are scaled, each as `KIND/NAMESPACE/NAME=REPLICAS`."""
    templates: Sequence[SupposedTemplate] = ()
    """Decide for the pods of these, after `pods` and `pod`, and answer by template."""

    @classmethod
    def of(cls, body: object, *, is_server_newer: bool = False) -> "Supposition":
        """Read a request; `is_server_newer`: the API server may know fields unknown to Stellwerk.

        Raises:
            ConfigurationError: it is malformed, or asks for too much.
        """
        if not isinstance(body, dict) or not _FIELDS.issuperset(body):
            unknown = sorted(map(str, {*body} - _FIELDS)) if isinstance(body, dict) else []
            named = f'unknown field "{unknown[0]}"; ' if unknown else ""
            raise ConfigurationError(
                f"{named}expected an object with some of {', '.join(sorted(_FIELDS))}"
            )
        pod, profile = body.get("pod"), body.get("profile")
        if not all(isinstance(each, dict | None) for each in (pod, profile)):
            raise ConfigurationError("pod and profile must be objects")
        nodes, count = _checked_nodes(body)
        pods = _checked_pods(body)
        templates = _checked_templates(body, is_server_newer=is_server_newer)
        if pod is not None:
            check_object("pod", "Pod", pod, is_server_newer=is_server_newer)
        for index, each in enumerate(pods):
            check_object(f"pods[{index}]", "Pod", each, is_server_newer=is_server_newer)
        for index, each in enumerate(nodes):
            check_object(f"addNodes[{index}]", "Node", each, is_server_newer=is_server_newer)
        unknown = sorted(map(str, {*(profile or {})} - _PROFILE_FIELDS))
        if unknown:
            # Its spec is checked where it is read: the plugins know their arguments.
            near = suggestion(unknown[0], _PROFILE_FIELDS)
            raise ConfigurationError(f'profile: unknown field "{unknown[0]}"{near}')
        acts = {name: _checked_texts(body, name) for name in _ACTS}
        drain = _checked_drain(body)
        found = cls(pod, pods, nodes, count, drain, profile, **acts, templates=templates)
        # Read once at the door, so that what is misspelt is refused before anything is decided.
        _ = found.relabellings, found.taintings, found.deletions, found.scalings
        return found

    @property
    def relabellings(self) -> tuple[Relabelling, ...]:
        """The changes of labels.

        Raises:
            ConfigurationError: one is misspelt.
        """
        return read_acts("relabel", self.relabel, read_relabelling, lambda act: act.node)

    @property
    def taintings(self) -> tuple[Tainting, ...]:
        """The changes of taints.

        Raises:
            ConfigurationError: one is misspelt.
        """
        return read_acts("taint", self.taint, read_tainting, lambda act: act.node)

    @property
    def deletions(self) -> tuple[Deletion, ...]:
        """The deleted nodes and pods.

        Raises:
            ConfigurationError: one is misspelt.
        """
        return read_acts("delete", self.delete, read_deletion, lambda act: act)

    @property
    def scalings(self) -> tuple[Scaling, ...]:
        """The scaled controllers.

        Raises:
            ConfigurationError: one is misspelt.
        """
        return read_acts("scale", self.scale, read_scaling, lambda act: act.workload)

    @property
    def template_pods(self) -> int:
        """The number of pods of all templates."""
        return sum(each.pods for each in self.templates)

    @property
    def acts(self) -> list[str]:
        """The acts in words; a drain has words of its own."""
        return [
            *(f"relabel {act}" for act in self.relabellings),
            *(f"taint {act}" for act in self.taintings),
            *(f"delete {act}" for act in self.deletions),
            *(f"scale {act}" for act in self.scalings),
        ]

    @property
    def drained_nodes(self) -> tuple[str, ...]:
        """The names of the nodes that are drained, each once, in the order in which they came."""
        names = (self.drain,) if isinstance(self.drain, str) else self.drain
        return tuple(dict.fromkeys(name for name in names if name))


def _checked_pods(body: JsonObject) -> Sequence[JsonObject]:
    pods = body.get("pods") or ()
    if not isinstance(pods, list | tuple) or not all(isinstance(each, dict) for each in pods):
        raise ConfigurationError("pods must be a list of pods")
    if len(pods) > MAX_SUPPOSED_PODS:
        raise ConfigurationError(f"pods: at most {MAX_SUPPOSED_PODS} are allowed")
    return tuple(pods)


def _checked_templates(body: JsonObject, *, is_server_newer: bool) -> tuple[SupposedTemplate, ...]:
    templates = body.get("templates") or ()
    if not isinstance(templates, list | tuple) or not all(
        isinstance(each, dict) and isinstance(each.get("template"), dict) for each in templates
    ):
        raise ConfigurationError('templates must be a list of {"template": {…}, "count": NUMBER}')
    if len(templates) > MAX_TEMPLATES:
        raise ConfigurationError(f"templates: at most {MAX_TEMPLATES} are allowed")
    found, total = list[SupposedTemplate](), 0
    for index, each in enumerate(templates):
        at, template, count = f"templates[{index}]", each["template"], each.get("count")
        unknown = sorted(map(str, {*each} - _TEMPLATE_FIELDS))
        if unknown:
            near = suggestion(unknown[0], _TEMPLATE_FIELDS)
            raise ConfigurationError(f'{at}: unknown field "{unknown[0]}"{near}')
        is_number = isinstance(count, int) and not isinstance(count, bool)
        if count is not None and not (is_number and 0 <= count <= MAX_TEMPLATE_PODS):
            raise ConfigurationError(
                f"{at}: count must be a number from 0 to {MAX_TEMPLATE_PODS:,}, "
                f"the most pods of all templates"
            )
        kind = template.get("kind") or POD
        if kind not in TEMPLATE_KINDS:
            kinds = f"{', '.join(TEMPLATE_KINDS[:-1])} or {TEMPLATE_KINDS[-1]}"
            raise ConfigurationError(f"{at}: {kinds} is expected, this is a {kind!s:.80}")
        check_object(at, str(kind), template, is_server_newer=is_server_newer)
        found.append(SupposedTemplate(template, count))
        total += found[-1].pods
    if total > MAX_TEMPLATE_PODS:
        raise ConfigurationError(
            f"templates: {total:,} pods; one answer covers at most {MAX_TEMPLATE_PODS:,}"
        )
    return tuple(found)


def _checked_texts(body: JsonObject, name: str) -> tuple[str, ...]:
    texts = body.get(name) or ()
    if not isinstance(texts, list | tuple) or not all(isinstance(each, str) for each in texts):
        raise ConfigurationError(f"{name} must be a list of strings")
    if len(texts) > MAX_ACTS:
        raise ConfigurationError(f"{name}: at most {MAX_ACTS} entries are allowed")
    if any(len(each) > _MAX_ACT_CHARACTERS for each in texts):
        raise ConfigurationError(
            f"{name}: an entry may have at most {_MAX_ACT_CHARACTERS} characters"
        )
    if sum(len(each.split()) for each in texts) > _MAX_WORDS_OF_ACTS:
        raise ConfigurationError(
            f"{name}: at most {_MAX_WORDS_OF_ACTS} labels or taints are allowed"
        )
    return tuple(texts)


def _checked_drain(body: JsonObject) -> str | Sequence[str]:
    drain = body.get("drain") or ""
    names = (drain,) if isinstance(drain, str) else drain
    if not isinstance(names, list | tuple) or not all(isinstance(each, str) for each in names):
        raise ConfigurationError("drain must be the name of a node, or a list of names")
    if len(names) > MAX_SUPPOSED_NODES:
        raise ConfigurationError(f"drain: at most {MAX_SUPPOSED_NODES} nodes are allowed")
    return drain


def _checked_nodes(body: JsonObject) -> tuple[Sequence[JsonObject], int]:
    nodes, count = body.get("addNodes") or (), body.get("count", 1)
    is_number = isinstance(count, int) and not isinstance(count, bool)
    if not isinstance(nodes, list | tuple) or not is_number or not 0 < count <= MAX_SUPPOSED_NODES:
        raise ConfigurationError(
            f"addNodes must be a list of nodes, and count a number from 1 to {MAX_SUPPOSED_NODES}"
        )
    if len(nodes) * count > MAX_SUPPOSED_NODES:
        raise ConfigurationError(
            f"addNodes: at most {MAX_SUPPOSED_NODES} nodes are allowed, counting copies"
        )
    if not all(isinstance(each, dict) for each in nodes):
        raise ConfigurationError("addNodes must be a list of nodes")
    resources = set[str]()
    for index, node in enumerate(nodes):
        resources.update(_checked_node(f"addNodes[{index}]", node))
    if len(resources) > MAX_RESOURCES:
        raise ConfigurationError(f"addNodes: more than {MAX_RESOURCES} different resources")
    return nodes, count


def _checked_node(where: str, node: JsonObject) -> set[str]:
    """Check the size of a node's parts, and return its resources.

    Raises:
        ConfigurationError: it has more of something than any node, or no such form.
    """
    metadata = _part(where, node, "metadata", {})
    spec, status = _part(where, node, "spec", {}), _part(where, node, "status", {})
    for field in ("name", "generateName"):
        if len(str(metadata.get(field) or "")) > _MAX_NAME_CHARACTERS:
            raise ConfigurationError(
                f"{where}: a name may have at most {_MAX_NAME_CHARACTERS} characters"
            )
    labels, images = _part(where, metadata, "labels", {}), _part(where, status, "images", [])
    resources = set(_part(where, status, "capacity", {}))
    resources.update(_part(where, status, "allocatable", {}))
    parts = {
        "labels": labels,
        "annotations": _part(where, metadata, "annotations", {}),
        "resources": resources,
        "taints": _part(where, spec, "taints", []),
        "images": images,
        "declaredFeatures": _part(where, status, "declaredFeatures", []),
    }
    names = sum(len(_part(where, each, "names", [])) for each in images if isinstance(each, dict))
    if names > _MAX_IMAGE_NAMES:
        raise ConfigurationError(
            f"{where}: images may have at most {_MAX_IMAGE_NAMES} names in all"
        )
    for name, part in parts.items():
        if len(part) > MAX_ENTRIES_PER_SUPPOSED_NODE:
            raise ConfigurationError(
                f"{where}: a node may have at most {MAX_ENTRIES_PER_SUPPOSED_NODE} {name}"
            )
    too_long = any(len(key) > _MAX_KEY_CHARACTERS for key in (*labels, *resources))
    if too_long or any(len(str(value)) > _MAX_VALUE_CHARACTERS for value in labels.values()):
        text = f"at most {_MAX_KEY_CHARACTERS} characters, values of labels {_MAX_VALUE_CHARACTERS}"
        raise ConfigurationError(f"{where}: keys of labels and resources may have {text}")
    return resources


def _part(where: str, obj: JsonObject, field: str, empty: Part) -> Part:
    found = obj.get(field)
    if found is None:
        return empty
    if not isinstance(found, type(empty)):
        raise ConfigurationError(f"{where}: {field} does not have the form of a Node's")
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedPod(PortAnswer):
    """A pod that gets a node."""

    pod: str
    node: str
    tied: int | None = None
    """Nodes that are equal to that one; which it gets is drawn."""
    controller: str | None = None
    """KIND/NAME of the controller that a user made; absent: none made the pod."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WouldPreempt(PortAnswer):
    """The victims that a pod without a node would preempt."""

    node: str
    victims: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class UnplacedPod(PortAnswer):
    """A pod that gets no node."""

    pod: str
    message: str
    would_preempt: WouldPreempt | None = None
    held_back: bool = False
    """A plugin keeps it from the queue, whatever nodes there are."""
    controller: str | None = None
    """KIND/NAME of the controller that a user made; absent: none made the pod."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodsOnNode(PortAnswer):
    """Pods of a template that get the same node."""

    node: str
    pods: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PodsOnKind(PortAnswer):
    """Pods of a template that get nodes of the same kind."""

    kind: str
    """The label `node.kubernetes.io/instance-type`; without it, what is allocatable, in words."""
    nodes: int
    """Nodes of this kind that get at least one of the pods."""
    pods: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PodsWithoutNode(PortAnswer):
    """Pods of a template that get no node for the same reason."""

    message: str
    pods: int
    would_preempt: WouldPreempt | None = None
    """The victims of the first of these pods; absent: it would preempt none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateOutcome(PortAnswer):
    """The decisions on the pods of one template, counted."""

    template: str
    """NAMESPACE/NAME of a pod, NAMESPACE/KIND/NAME of a controller."""
    pods: int
    placed: int
    unplaced: int
    left_out: int | None = None
    """Pods that were not examined; absent: all were."""
    nodes: int
    """Nodes that get at least one of the pods."""
    by_node: Sequence[PodsOnNode]
    """The nodes with the most pods first, at most 100."""
    by_kind: Sequence[PodsOnKind]
    """The kinds of node with the most pods first, at most 20."""
    reasons: Sequence[PodsWithoutNode]
    """The most frequent reasons first, at most 10."""
    other_reasons: int | None = None
    """Pods that get no node for other reasons than these; absent: there are none."""
    listed: bool = False
    """Whether the pods are in `placed` and `unplaced` of the answer, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodThatStays(PortAnswer):
    """A pod that a drain does not evict, since a disruption budget forbids it."""

    pod: str
    node: str
    budget: str
    """NAMESPACE/NAME, or several."""
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedPod(PortAnswer):
    """A pod that an act other than a drain ends."""

    pod: str
    node: str | None = None
    """The node that it leaves; absent: it had none."""
    reason: str
    after_seconds: int | None = None
    """Seconds for which it tolerates the taint; absent: it ends at once."""
    made_anew: bool
    """Its controller recreates it, and the new pod is decided as well."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIf(PortAnswer):
    """Pods with their nodes, and pods without one with the reason."""

    drained: str | Sequence[str] | None = None
    """The node that was drained, or a list of several."""
    acts: Sequence[str] | None = None
    """The other acts that were supposed, as they are written for the command."""
    ended: Sequence[EndedPod] | None = None
    """Pods that these acts end."""
    compatibility: Sequence[str] = ()
    """The Kubernetes releases that the decisions followed."""
    left_out: int | None = None
    """Pods that were not examined."""
    stopped: str | None = None
    """The reason why the answer ends before it is complete; absent: it is complete."""
    explanation: RecomputedExplanation | None = None
    """The explanation of the pod that was supposed."""
    placed: Sequence[PlacedPod]
    unplaced: Sequence[UnplacedPod]
    lost: Sequence[str] | None = None
    """Pods that the acts end and no controller recreates."""
    staying: Sequence[PodThatStays] | None = None
    """Pods that the drains do not evict: `kubectl drain` would wait for their budgets."""
    not_asked: Sequence[PluginLeftOut] | None = None
    """Parts that decide on these pods and are not asked here: extenders, Permit."""
    daemon_sets: Sequence[str] | None = None
    """NAMESPACE/NAME of the DaemonSets whose pods come to nodes that are supposed."""
    templates: Sequence[TemplateOutcome] | None = None
    """The outcome by template, if the question had any, in their order."""
    read: ClusterReading | None = None
    """The reading that the answer was decided on; absent: an operator gave it."""
