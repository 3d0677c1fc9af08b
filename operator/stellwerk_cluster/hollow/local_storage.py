"""Limits of local storage: what a pod may write, and what the kubelet says when it wrote more.

Asked by the node pressure worker at each of its looks. Invariant: usage up to a limit exceeds none;
the texts are those of the kubelet of v1.36.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stellwerk.models.quantity import resource_amount
from stellwerk_cluster.apimachinery.objects import pick
from stellwerk_cluster.hollow.eviction_thresholds import binary_quantity

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from stellwerk.models.json_values import JsonObject

_STORAGE: Final = "ephemeral-storage"
_LIMIT: Final = ("resources", "limits", _STORAGE)
VOLUME: Final = "volume/"
"""Before the name of a volume in a usage: what lies in that volume, counted among `volumes` too."""


def exceeded_limit(pod: JsonObject, used: Mapping[str, int]) -> str | None:
    """Which limit a pod with this usage is above, in the kubelet's words; None: none."""
    return next(_exceeded(pod, used), None)


def _exceeded(pod: JsonObject, used: Mapping[str, int]) -> Iterator[str]:
    for volume in pod["spec"].get("volumes") or ():
        limit = pick(volume, ("emptyDir", "sizeLimit"))
        on_disk = (volume.get("emptyDir") or {}).get("medium") != "Memory"
        if limit is not None and on_disk and used.get(VOLUME + volume["name"], 0) > _bytes(limit):
            yield (f'Usage of EmptyDir volume "{volume["name"]}" exceeds the limit "{limit}". ')
    containers = pod["spec"]["containers"]
    limits = [pick(each, _LIMIT) for each in containers]
    total = sum(_bytes(limit) for limit in limits if limit is not None)
    written = sum(used.get(part, 0) for part in ("logs", "writable", "volumes"))
    if None not in limits and written > total:
        yield (
            "Pod ephemeral local storage usage exceeds the total limit of containers "
            f"{binary_quantity(total)}. "
        )
    # What a pod writes counts as written by its containers in equal parts.
    share = sum(used.get(part, 0) for part in ("logs", "writable")) // len(containers)
    for container, limit in zip(containers, limits, strict=True):
        if limit is not None and share > _bytes(limit):
            name = container["name"]
            yield f'Container {name} exceeded its local ephemeral storage limit "{limit}". '


def _bytes(quantity: object) -> int:
    return resource_amount(_STORAGE, str(quantity))
