"""The deletion cost of a pod, which controllers compare when they have too many pods.

It stands alone because the operator's pods and the embedded cluster's controllers must read the
same number. Invariant: a text that kube-controller-manager does not take for a cost is 0.
"""

import re
from collections.abc import Mapping
from typing import Final

DELETION_COST: Final = "controller.kubernetes.io/pod-deletion-cost"
_INT32: Final = re.compile(r"-[0-9]{1,32}|0|[1-9][0-9]{0,9}", re.ASCII)
"""A cost as `validFirstDigit` and strconv read it: without a plus, and no zeros lead."""


def deletion_cost(annotations: Mapping[str, object] | None) -> int:
    """The pod's deletion cost; 0 if it is no int32 (`GetDeletionCostFromPodAnnotations`, v1.36)."""
    return written_deletion_cost(annotations) or 0


def written_deletion_cost(annotations: Mapping[str, object] | None) -> int | None:
    """The pod's deletion cost, 0 without the annotation; None: the annotation is no int32."""
    if not annotations or DELETION_COST not in annotations:
        return 0
    written = annotations[DELETION_COST]
    if not isinstance(written, str) or _INT32.fullmatch(written) is None:
        return None
    cost = int(written)
    return cost if -(1 << 31) <= cost < 1 << 31 else None
