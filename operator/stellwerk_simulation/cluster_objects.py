"""The objects of a cluster that decisions read beside nodes and pods: classes, budgets, volumes.

Simulations and plans of moves load them into their Worlds. Invariant: a kind is either loaded or
named by `not_read`.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, Self

from stellwerk.cases.decide import OBJECT_KINDS
from stellwerk.models.json_values import JsonObject, text_map
from stellwerk.models.pod_templates import POD_KINDS, is_written
from stellwerk.models.profile import KIND as PROFILE
from stellwerk.world.world import World
from stellwerk_simulation.manifest_errors import made

_PRIORITY_CLASS: Final = "PriorityClass"
_NAMESPACE: Final = "Namespace"
_NAME_LABEL: Final = "kubernetes.io/metadata.name"
READ: Final = frozenset({*OBJECT_KINDS.values(), _PRIORITY_CLASS})
"""The kinds that are loaded."""
_OF_DEVICES: Final = frozenset({"ResourceClaim", "ResourceSlice", "DeviceClass"})
"""Kinds that say which pod has which devices now: nothing to begin anew with."""
USED: Final = frozenset({"Node", *POD_KINDS, *READ})
"""The kinds of manifests that are used, or, where all begins anew, of which it is said why not."""
_ELSEWHERE: Final = frozenset({"Node", "Pod", PROFILE})
"""Kinds that are read, or chosen, in another way."""


def not_read(objects: Iterable[JsonObject], of_plugins: frozenset[str] = frozenset()) -> str:
    """Objects that no simulation reads, such as "2 ConfigMap, 1 Job"; empty: none.

    `of_plugins`: the kinds that plugins of the profiles read.
    """
    kinds = Counter(
        str(obj.get("kind") or "object without a kind") for obj in objects if not is_written(obj)
    )
    others = sorted((kinds.keys() - READ - _ELSEWHERE - of_plugins) | (kinds.keys() & _OF_DEVICES))
    return ", ".join(f"{kinds[kind]} {kind}" for kind in others)


@dataclass(frozen=True, slots=True)
class ClusterObjects:
    """Such objects, and where they come from."""

    objects: Sequence[JsonObject] = ()
    source: str = ""

    @classmethod
    def among(cls, objects: Iterable[JsonObject], source: str) -> Self:
        """All of them that are not read in another way; a profile's plugins say what they read."""
        return cls(tuple(obj for obj in objects if obj.get("kind") not in _ELSEWHERE), source)

    @classmethod
    def to_begin_with(cls, objects: Iterable[JsonObject], source: str) -> Self:
        """Those that decisions read where all pods arrive anew."""
        return cls.among((obj for obj in objects if obj.get("kind") not in _OF_DEVICES), source)

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
            if kind == _PRIORITY_CLASS:
                made(world.priority_classes.set, obj, self.source)
            else:
                made(partial(world.objects.set, kind), obj, self.source)
            if kind == _NAMESPACE:
                made(partial(_set_namespace, world), obj, self.source)


def _check(obj: JsonObject) -> None:
    """Refuse what no plugin could read.

    Raises:
        TypeError: a part of it is no object.
    """
    for part in ("metadata", "spec", "status"):
        if not isinstance(obj.get(part) or {}, dict):
            raise TypeError(f"{part} is no object")


def _set_namespace(world: World, manifest: JsonObject) -> None:
    """As the API server shows it, with its name among its labels."""
    metadata = manifest["metadata"]
    name = metadata["name"]
    world.cache.set_namespace(name, {**text_map(metadata.get("labels")), _NAME_LABEL: name})
