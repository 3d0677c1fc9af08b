"""pods/resize: new requests and limits for containers that run.

Called by `pod_updates`. Invariant: only cpu and memory change, nothing that was requested or
limited becomes unlimited, and the QoS class stays.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stellwerk_cluster.apimachinery.failures import FieldError, bad_value, forbidden_field
from stellwerk_cluster.apimachinery.objects import EMPTY
from stellwerk_cluster.apimachinery.pods import qos_class
from stellwerk_cluster.validation.pods import MIRROR

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stellwerk.models.json_values import JsonObject

_RESIZABLE: Final = ("cpu", "memory")
_ONLY: Final = "only cpu and memory resources are mutable"


def resize_errors(new: JsonObject, old: JsonObject) -> Iterator[FieldError]:
    """What is wrong with a change of the resources of a pod."""
    spec, was = new["spec"], old["spec"]
    if MIRROR in (old["metadata"].get("annotations") or EMPTY):
        yield forbidden_field("", "static pods cannot be resized")
        return
    if (was.get("os") or EMPTY).get("name") == "windows":
        yield forbidden_field("", "windows pods cannot be resized")
        return
    decided = old["status"].get("qosClass", "BestEffort")
    if qos_class(spec) != decided:
        text = "Pod QOS Class may not change as a result of resizing"
        yield bad_value("spec", decided, text)
    for group in ("initContainers", "containers"):
        pairs = zip(spec.get(group) or (), was.get(group) or (), strict=True)
        for position, (container, before) in enumerate(pairs):
            yield from _container_errors(container, before, group, position)


def _container_errors(
    container: JsonObject, before: JsonObject, group: str, position: int
) -> Iterator[FieldError]:
    if container == before:
        return
    runs_on = group == "containers" or before.get("restartPolicy") == "Always"
    if not runs_on:
        yield forbidden_field("spec", "resources for non-sidecar init containers are immutable")
        return
    resources, had = (each.get("resources") or EMPTY for each in (container, before))
    for part in ("requests", "limits"):
        amounts, were = resources.get(part) or EMPTY, had.get(part) or EMPTY
        field = f"spec.{group}[{position}].resources.{part}"
        if were.keys() - amounts.keys():
            yield forbidden_field(field, f"resource {part} cannot be removed")
        others = {name for name in {*amounts, *were} if name not in _RESIZABLE}
        if any(amounts.get(name) != were.get(name) for name in others):
            yield forbidden_field("spec", _ONLY)
    if container.get("resizePolicy") != before.get("resizePolicy"):
        yield forbidden_field("spec", _ONLY)
