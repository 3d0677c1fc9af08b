"""Waiting pods whose schedulerName no scheduler serves, told from those of other schedulers.

`stellwerk doctor` asks for a cluster as the API has it. It stands alone because it knows only pods
and names: whatever else has to tell the two apart takes the same rule. Invariant: a pod that any
scheduler has written to is never called unserved.
"""

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from typing import Final

from stellwerk.clock import parse_moment
from stellwerk.models.json_values import JsonObject

GRACE_SECONDS: Final = 10.0
"""Age from which a pod without a word of any scheduler counts as unserved. Schedulers write a
condition after the first attempt, and an idle one attempts a new pod within a second."""


def unserved_pods(
    pods: Iterable[JsonObject], served: Collection[str], now: datetime
) -> Mapping[str, list[str]]:
    """Return the unserved pods (NAMESPACE/NAME) by schedulerName.

    Args:
        pods: as the API has them, bound and finished ones among them or not.
        served: names that a scheduler serves, as far as that is known.
        now: aware; pods that are younger than the grace period are left out.

    A pod with the condition PodScheduled has been seen: by a scheduler that could not place it, or
    by the API server, which writes the condition for scheduling gates. Stellwerk's own report that
    no profile serves a pod (SchedulerError) says the opposite.
    """
    found: dict[str, list[str]] = {}
    for pod in pods:
        spec, status, metadata = pod.get("spec") or {}, pod.get("status") or {}, pod["metadata"]
        name = spec.get("schedulerName") or "default-scheduler"
        if name in served or spec.get("nodeName") or metadata.get("deletionTimestamp"):
            continue
        if status.get("phase", "Pending") != "Pending" or spec.get("schedulingGates"):
            continue
        seen = any(
            each.get("type") == "PodScheduled" and each.get("reason") != "SchedulerError"
            for each in status.get("conditions") or ()
        )
        created = moment_of(metadata.get("creationTimestamp"))
        is_new = created is not None and (now - created).total_seconds() < GRACE_SECONDS
        if not seen and not is_new:
            key = f"{metadata.get('namespace', 'default')}/{metadata['name']}"
            found.setdefault(name, []).append(key)
    return found


def moment_of(text: object) -> datetime | None:
    """Return a timestamp of the API as an aware moment; None: it is none."""
    try:
        return parse_moment(text)
    except ValueError:
        return None
