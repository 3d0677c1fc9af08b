"""The objects of a cluster that decisions read beside nodes and pods: classes, budgets, groups.

Simulations and plans of moves load them into their Worlds. Invariant: a kind is either loaded or
named by `not_read`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Final, Self

from stellwerk.models.api_kinds import newest_form
from stellwerk.models.pod import parse_pod
from stellwerk.models.pod_claims import RESOURCE_CLAIM
from stellwerk.models.pod_group import COSCHEDULING_API, GROUP_KINDS
from stellwerk.profiles.spec.profile import KIND as PROFILE
from stellwerk.world.gangs.queue_order import GroupGates
from stellwerk.world.world import World
from stellwerk_kube import admission
from stellwerk_kube.daemon_pods import DAEMON_SET
from stellwerk_kube.json_values import JsonObject, text_map, text_or_empty
from stellwerk_simulation.cases.decide import OBJECT_KINDS
from stellwerk_simulation.instant_claims import (
    GROUP_CLAIM,
    OF_USE,
    TEMPLATE,
    InstantClaims,
    SharedClaims,
)
from stellwerk_simulation.manifest_errors import made
from stellwerk_simulation.manifest_reader import counted
from stellwerk_simulation.pod_templates import POD_KINDS, is_written

_PRIORITY_CLASS: Final = "PriorityClass"
_NAMESPACE: Final = "Namespace"
_NAME_LABEL: Final = "kubernetes.io/metadata.name"
READ: Final = frozenset({*OBJECT_KINDS.values(), _PRIORITY_CLASS, TEMPLATE})
"""The kinds that are loaded."""
_WORKLOAD: Final = "Workload"
"""Its PodGroups are what decisions read; it only says what they were made from."""
_GROUPS: Final = frozenset({*GROUP_KINDS, _WORKLOAD})
_GENERATED: Final = "generated"
_GENERATED_FOR: Final = frozenset({"Pod", "PodGroup"})
USED: Final = frozenset({"Node", DAEMON_SET, *POD_KINDS, *READ, *_GROUPS, *admission.KINDS})
"""The kinds of manifests that are used."""
_ELSEWHERE: Final = frozenset({"Node", "Pod", PROFILE})
"""Kinds that are read, or chosen, in another way."""


def not_read(objects: Iterable[JsonObject], of_plugins: frozenset[str] = frozenset()) -> str:
    """Objects that no simulation reads, such as "2 ConfigMap, 1 Job"; empty: none.

    `of_plugins`: the kinds that plugins of the profiles read.
    """
    others = (obj for obj in objects if not is_written(obj))
    return counted(others, READ | _GROUPS | _ELSEWHERE | admission.KINDS | of_plugins)


@dataclass(frozen=True)
class ClusterObjects:
    """Such objects, and where they come from."""

    objects: Sequence[JsonObject] = ()
    source: str = ""
    generated: Sequence[JsonObject] = ()
    """Claims that were made for pods and groups, which get others when they come anew."""

    @classmethod
    def among(cls, objects: Iterable[JsonObject], source: str) -> Self:
        """All of them that are not read in another way; a profile's plugins say what they read."""
        return cls(tuple(obj for obj in objects if obj.get("kind") not in _ELSEWHERE), source)

    @classmethod
    def to_begin_with(cls, objects: Iterable[JsonObject], source: str) -> Self:
        """Those that decisions read where all pods arrive anew: no claim has devices yet."""
        found = cls.among(objects, source).objects
        generated = [each for each in found if _is_generated(each)]
        kept = [_unused(each) for each in found if not _is_generated(each)]
        return cls(tuple(kept), source, tuple(generated))

    def lacking(self, pod: JsonObject, *, groups: bool) -> str:
        """A claim, template or (`groups`) group that a pod names and that is not there; empty: all.

        A pod that comes anew waits for it to the end.
        """
        metadata, spec = pod["metadata"], pod.get("spec") or {}
        namespace = metadata.get("namespace") or "default"
        key = parse_pod(pod).group if groups else None
        if key is not None and (key.api, namespace, key.name) not in self._named:
            return f"PodGroup {key.name}"
        statuses = (pod.get("status") or {}).get("resourceClaimStatuses") or ()
        made_before = {each.get("name"): each.get("resourceClaimName") for each in statuses}
        for each in spec.get("resourceClaims") or ():
            claim, template = each.get("resourceClaimName"), each.get("resourceClaimTemplateName")
            if claim and (RESOURCE_CLAIM, namespace, claim) not in self._named:
                return f"{RESOURCE_CLAIM} {claim}"
            known = (_GENERATED, namespace, made_before.get(each.get("name"))) in self._named
            if template and not known and (TEMPLATE, namespace, template) not in self._named:
                return f"{TEMPLATE} {template}"
        return ""

    @cached_property
    def _named(self) -> frozenset[tuple[str, str, str]]:
        """Kind, or API of a group, namespace and name of what pods may name."""
        return frozenset(
            (
                _called(obj),
                str((obj.get("metadata") or {}).get("namespace") or "default"),
                str((obj.get("metadata") or {}).get("name")),
            )
            for obj in (*self.objects, *self.generated)
            if obj.get("kind") in {RESOURCE_CLAIM, TEMPLATE, *GROUP_KINDS}
        )

    def load(self, world: World, of_plugins: frozenset[str] = frozenset()) -> None:
        """Put those that decisions read into a World; `of_plugins`: kinds that its plugins read.

        Raises:
            ConfigurationError: one of them is wrong; names it and the source.
        """
        for obj in self.objects:
            kind = str(obj.get("kind"))
            if kind not in READ and kind not in of_plugins:
                continue
            made(_check, obj, self.source)
            obj = made(newest_form, obj, self.source)  # noqa: PLW2901 devices of older versions
            if kind == _PRIORITY_CLASS:
                made(world.priority_classes.set, obj, self.source)
            else:
                made(partial(world.objects.set, kind), obj, self.source)
            if kind == _NAMESPACE:
                made(partial(_set_namespace, world), obj, self.source)

    def load_groups(
        self, world: World, gates: GroupGates, claims: InstantClaims
    ) -> Mapping[tuple[str, str], SharedClaims]:
        """Show the groups of pods; returns the claims that each group shares, by its key.

        Raises:
            ConfigurationError: one of them is wrong; names it and the source.
        """
        for claim in self.generated:
            metadata = claim["metadata"]
            key = metadata.get("namespace") or "default", metadata["name"]
            claims.specs[key] = made(newest_form, claim, self.source)
        shared: dict[tuple[str, str], SharedClaims] = {}
        for obj in self.objects:
            if obj.get("kind") not in GROUP_KINDS:
                continue
            made(_check, obj, self.source)
            group = made(partial(_admitted, world), obj, self.source)
            metadata = group["metadata"]
            statuses = made(partial(claims.made_for, annotation=GROUP_CLAIM), group, self.source)
            names = {each["name"]: each["resourceClaimName"] for each in statuses}
            shared[metadata["namespace"], metadata["name"]] = {
                (each["name"], each.get("resourceClaimTemplateName") or ""): names[each["name"]]
                for each in group["spec"].get("resourceClaims") or ()
                if each["name"] in names
            }
            made(partial(gates.put_group, _group_kind(group)), group, self.source)
        return shared


def _called(obj: JsonObject) -> str:
    if obj.get("kind") in GROUP_KINDS:
        return GROUP_KINDS[_group_kind(obj)]
    return _GENERATED if _is_generated(obj) else str(obj.get("kind"))


def _group_kind(group: JsonObject) -> str:
    """As the operator calls it: two APIs have a kind of one name."""
    of_coscheduling = str(group.get("apiVersion") or "").startswith(COSCHEDULING_API)
    return "CoschedulingPodGroup" if of_coscheduling else str(group["kind"])


def _admitted(world: World, group: JsonObject) -> JsonObject:
    """A group as the API server shows it, with its priority, and as it was before it was placed."""
    metadata, spec = group["metadata"], dict(group.get("spec") or {})
    namespace = metadata.get("namespace") or "default"
    uid = metadata.get("uid") or f"group {namespace}/{metadata['name']}"
    if spec.get("priority") is None and "uid" not in metadata:
        class_name = text_or_empty(spec.get("priorityClassName"))
        spec["priority"] = world.priority_classes.resolve(class_name)[0]
    metadata = {**metadata, "namespace": namespace, "uid": uid}
    bare = {key: value for key, value in group.items() if key != "status"}
    return {**bare, "metadata": metadata, "spec": spec}


def _is_generated(obj: JsonObject) -> bool:
    """Whether it is a claim that was made for a pod, or for a group of pods."""
    metadata = obj.get("metadata")
    if obj.get("kind") != RESOURCE_CLAIM or not isinstance(metadata, dict):
        return False
    owners = metadata.get("ownerReferences") or ()
    return any(isinstance(each, dict) and each.get("kind") in _GENERATED_FOR for each in owners)


def _unused(obj: JsonObject) -> JsonObject:
    """A claim without its devices; anything else as it is."""
    status = obj.get("status")
    if obj.get("kind") != RESOURCE_CLAIM or not isinstance(status, dict):
        return obj
    return {**obj, "status": {key: status[key] for key in status.keys() - OF_USE}}


def _check(obj: JsonObject) -> None:
    """Refuse what no plugin could read.

    Raises:
        TypeError: a part of it is not an object.
    """
    for part in ("metadata", "spec", "status"):
        if not isinstance(obj.get(part) or {}, dict):
            raise TypeError(f"{part} is not an object")


def _set_namespace(world: World, manifest: JsonObject) -> None:
    """As the API server shows it, with its name among its labels."""
    metadata = manifest["metadata"]
    name = metadata["name"]
    world.cache.set_namespace(name, {**text_map(metadata.get("labels")), _NAME_LABEL: name})
