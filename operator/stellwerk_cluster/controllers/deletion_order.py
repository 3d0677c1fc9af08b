"""Which pods of too many go first.

Asked by the controllers of ReplicaSets and Jobs. Invariant: the order is that of kube-controller-
manager's ActivePodsWithRanks (v1.36), and of pods that it does not tell apart, the uid decides.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Final

from stellwerk_cluster.apimachinery.objects import EMPTY, parse_timestamp

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from stellwerk.models.json_values import JsonObject

_COST: Final = "controller.kubernetes.io/pod-deletion-cost"
_INTEGER: Final = re.compile(r"-?[0-9]{1,10}", re.ASCII)


def by_deletion(pods: Iterable[JsonObject], now: datetime) -> list[JsonObject]:
    """Pods in the order in which a workload that has too many gives them up.

    Unbound, pending and pods that are not ready first; then those of a lower deletion cost, on
    nodes with more of them, ready for less time, restarted more often, and the youngest. Times
    are compared by their magnitude (powers of two of seconds), as `LogarithmicScaleDown` does.
    """
    all_of_them = list(pods)
    on_node = Counter(pod["spec"].get("nodeName", "") for pod in all_of_them)

    def rank(pod: JsonObject) -> tuple[bool | int | str, ...]:
        ready = [
            each["lastTransitionTime"]
            for each in pod["status"].get("conditions") or ()
            if each["type"] == "Ready" and each["status"] == "True"
        ]
        statuses = pod["status"].get("containerStatuses") or ()
        return (
            bool(pod["spec"].get("nodeName")),
            pod["status"].get("phase") == "Running",
            bool(ready),
            _deletion_cost(pod),
            -on_node[pod["spec"].get("nodeName", "")],
            _magnitude(ready[0], now) if ready else 0,
            -max((each.get("restartCount", 0) for each in statuses), default=0),
            _magnitude(pod["metadata"]["creationTimestamp"], now),
            pod["metadata"]["uid"],
        )

    return sorted(all_of_them, key=rank)


def _deletion_cost(pod: JsonObject) -> int:
    text = (pod["metadata"].get("annotations") or EMPTY).get(_COST, "0")
    return int(text) if _INTEGER.fullmatch(text) else 0


def _magnitude(stamp: str, now: datetime) -> int:
    """How long ago, as a power of two of seconds."""
    return int((now - parse_timestamp(stamp)).total_seconds()).bit_length()
