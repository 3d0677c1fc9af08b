"""An object of every kind of the API with every field filled, from the tables of its types.

Every text is a mark of its own, so that one can tell where it gets to.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from stellwerk_kube.json_values import JsonObject
from stellwerk_kube.schema.types import types

MARK = "marked-secret"
KINDS = (
    "Pod",
    "Node",
    "Namespace",
    "PriorityClass",
    "Service",
    "ReplicationController",
    "ReplicaSet",
    "StatefulSet",
    "PersistentVolumeClaim",
    "PersistentVolume",
    "StorageClass",
    "CSINode",
    "CSIDriver",
    "CSIStorageCapacity",
    "VolumeAttachment",
    "PodDisruptionBudget",
    "ResourceClaim",
    "ResourceSlice",
    "DeviceClass",
    "DeviceTaintRule",
    "PodGroup",
)
"""Those that are watched of the API."""
_TYPES = {"ResourceClaim": "DeviceResourceClaim"}
"""Kinds whose type has another name in the tables."""
_DEEPEST = 14


@dataclass
class Marks:
    """Objects, and the paths of the marks in them."""

    paths: dict[str, str] = field(default_factory=dict)
    """By mark."""
    valid: bool = False
    """Whether texts are such that objects can be read: quantities are quantities, and so on."""
    _numbers: Iterator[int] = field(default_factory=count)

    def object(self, kind: str) -> JsonObject:
        """An object of this kind with every field."""
        made = self._struct(_TYPES.get(kind, kind), kind, ())
        made |= {"kind": kind, "metadata": {**made["metadata"], "name": self.mark("name")}}
        return made

    def _struct(self, name: str, path: str, above: tuple[str, ...]) -> JsonObject:
        return {
            each.name: self._value(each.type, f"{path}.{each.name}", (*above, name))
            for each in types()[name].values()
            if above.count(each.element) < 2 and len(above) < _DEEPEST
        }

    def _value(self, type_: str, path: str, above: tuple[str, ...]) -> Any:
        if type_.startswith("["):
            return [self._value(type_[1:-1], f"{path}[]", above)]
        if type_.startswith("{"):
            return {self.mark(f"{path} key"): self._value(type_[1:-1], f"{path}{{}}", above)}
        if type_ in types():
            return self._struct(type_, path, above)
        number = next(self._numbers)
        plain: JsonObject = {
            **dict.fromkeys(("int", "float"), number % 7 + 1),
            "bool": True,
        }
        if self.valid:
            time = f"2026-11-23T00:00:{number % 60:02}Z"
            plain |= {"Quantity": str(number + 1), "Time": time, "MicroTime": time}
            words = {"operator": "In", "effect": "NoSchedule"}
            if (word := words.get(path.rpartition(".")[2])) is not None:
                return word
        return plain[type_] if type_ in plain else self.mark(path)

    def mark(self, path: str) -> str:
        """A text of its own."""
        mark = f"{MARK}-{next(self._numbers)}-x"
        self.paths[mark] = path
        return mark
