"""The usage of hollow nodes, and what is left of them: the signals of eviction.

Usage comes from annotations: of a pod what its containers use, of the node what the system uses and
what the node has. Invariant: an amount that cannot be read counts as nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from stellwerk_cluster.apimachinery.objects import EMPTY, meta, pick
from stellwerk_cluster.hollow.eviction_thresholds import (
    CONTAINERFS,
    CONTAINERFS_INODES,
    IMAGEFS,
    IMAGEFS_INODES,
    MEMORY,
    NODEFS,
    NODEFS_INODES,
    PIDS,
)
from stellwerk_cluster.hollow.lifecycle import PREFIX, USAGE_ANNOTATION
from stellwerk_kube.declared_usage import parse_usage
from stellwerk_kube.quantity import resource_amount

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from stellwerk_kube.json_values import JsonObject

CAPACITY_ANNOTATION: Final = f"{PREFIX}capacity"
LAYERS_ANNOTATION: Final = f"{PREFIX}writable-layers"
"""`nodefs`: writable layers lie there, although images have a file system of their own."""
DEAD, UNUSED_IMAGES = "dead-containers", "unused-images"
_DEFAULT_INODES: Final = 6_553_600
"""Inodes of a file system, unless the node says otherwise: those of one of 100 GB."""
_DEFAULT_PIDS: Final = 32_768
"""Process ids of a node, unless it says otherwise: Linux's default."""


class Observation(NamedTuple):
    """The available and the whole amount of a signal."""

    available: int
    capacity: int


@dataclass(frozen=True, slots=True)
class NodeUsage:
    """The capacity of a node, and the usage of its system."""

    memory: int
    nodefs: int
    system: Mapping[str, int] = field(default_factory=dict)
    more: Mapping[str, int] = field(default_factory=dict)
    layers_on_nodefs: bool = False

    @property
    def has_imagefs(self) -> bool:
        """Whether images have a file system of their own."""
        return "imagefs" in self.more

    @property
    def split(self) -> bool:
        """Whether images and writable layers lie on different file systems."""
        return self.has_imagefs and self.layers_on_nodefs

    def pod_parts(self, signal: str) -> tuple[str, ...]:
        """The parts of a pod's usage that count for a signal of storage or inodes."""
        parts: tuple[str, ...] = ("logs", "volumes") if signal.startswith("nodefs") else ()
        if self.split:
            parts = ("logs", "volumes", "writable") if not signal.startswith("imagefs") else ()
        elif not self.has_imagefs:
            parts = ("logs", "volumes", "writable")
        elif not signal.startswith("nodefs"):
            parts = ("writable",)
        inodes = {"logs": "inodes", "volumes": "", "writable": "writable-inodes"}
        if signal.endswith("inodesFree"):
            return tuple(inodes[part] for part in parts if inodes[part])
        return parts

    def signals(self, pods: Iterable[Mapping[str, int]]) -> dict[str, Observation]:
        """All signals, with pods that use so much; those of imagefs only where there is one."""
        running = list(pods)
        system, more = self.system, self.more

        def used(*parts: str) -> int:
            return sum(pod.get(part, 0) for pod in running for part in parts)

        images = system.get("images", 0) + system.get(UNUSED_IMAGES, 0)
        nodefs = system.get("nodefs", 0) + system.get(DEAD, 0) + used(*self.pod_parts(NODEFS))
        inodes = system.get("nodefs-inodes", 0) + used(*self.pod_parts(NODEFS_INODES))
        if not self.has_imagefs:
            nodefs += images
        left = {
            MEMORY: _left(self.memory, system.get("memory", 0) + used("memory")),
            PIDS: _left(more.get("pids", _DEFAULT_PIDS), system.get("pids", 0) + used("pids")),
            NODEFS: _left(self.nodefs, nodefs),
            NODEFS_INODES: _left(more.get("nodefs-inodes", _DEFAULT_INODES), inodes),
        }
        if self.has_imagefs:
            imagefs = system.get("imagefs", 0) + images + used(*self.pod_parts(IMAGEFS))
            inodes = system.get("imagefs-inodes", 0) + used(*self.pod_parts(IMAGEFS_INODES))
            left[IMAGEFS] = _left(more["imagefs"], imagefs)
            capacity = more.get("imagefs-inodes", _DEFAULT_INODES)
            left[IMAGEFS_INODES] = _left(capacity, inodes)
        same = (NODEFS, NODEFS_INODES) if self.split else (IMAGEFS, IMAGEFS_INODES)
        if self.has_imagefs:
            left[CONTAINERFS], left[CONTAINERFS_INODES] = left[same[0]], left[same[1]]
        return left


def _left(capacity: int, used: int) -> Observation:
    return Observation(max(0, capacity - used), capacity)


def usage_of_node(node: JsonObject) -> NodeUsage:
    """The capacity and usage in the status and annotations of a node."""
    annotations = meta(node).get("annotations") or EMPTY
    capacity = pick(node, ("status", "capacity")) or EMPTY
    more = parse_usage(annotations.get(CAPACITY_ANNOTATION, ""))
    return NodeUsage(
        memory=resource_amount("memory", capacity.get("memory", 0)),
        nodefs=more.get(
            "nodefs", resource_amount("ephemeral-storage", capacity.get("ephemeral-storage", 0))
        ),
        system=parse_usage(annotations.get(USAGE_ANNOTATION, "")),
        more=more,
        layers_on_nodefs=annotations.get(LAYERS_ANNOTATION) == "nodefs",
    )
