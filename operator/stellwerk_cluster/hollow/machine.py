"""The machine under a node: it runs, has failed, or is cut off from the API.

An annotation of the node says so, which `stellwerk cluster fail|cut-off|restore` sets. Invariant:
the kubelet of a node that is down or cut off writes nothing, and sees no change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stellwerk_cluster.apimachinery.objects import EMPTY, meta

if TYPE_CHECKING:
    from stellwerk_kube.json_values import JsonObject

MACHINE_ANNOTATION: Final = "stellwerk.dev/machine"
"""On a node: what became of its machine; without it, it runs."""
FAILED: Final = "failed"
"""The machine is off: its containers have ended when it comes back."""
CUT_OFF: Final = "cut-off"
"""The machine runs on, and the API does not hear of it."""
SILENT: Final = (FAILED, CUT_OFF)


def machine_of(node: JsonObject | None) -> str:
    """The state in the annotation; empty: the machine runs."""
    annotations = meta(node or EMPTY).get("annotations") or EMPTY
    state: str = annotations.get(MACHINE_ANNOTATION, "")
    return state if state in SILENT else ""
