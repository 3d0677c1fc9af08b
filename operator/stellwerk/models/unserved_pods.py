"""Waiting pods whose schedulerName no scheduler serves, told from those of other schedulers.

`stellwerk doctor` asks with what the API has. The operator asks for its queue, metrics, page and
explanations (`profiles.unserved`). Both find the sign of another scheduler with
`sign_of_scheduler`. It stands alone because it knows only objects of the API and names. Invariant:
no pod counts as unserved while a scheduler of its schedulerName shows one of the three signs.
"""

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Final
from urllib.parse import quote

from stellwerk_kube.clock import parse_moment
from stellwerk_kube.json_values import JsonObject

MIN_UNSERVED_SECONDS: Final = 10.0
"""Age from which a pod without a word of any scheduler counts as unserved. Schedulers write a
condition after the first attempt, and an idle one attempts a new pod within a second."""
MAX_EVIDENCE_SECONDS: Final = 600.0
"""Age up to which an event or a binding shows that a scheduler runs. kube-scheduler tries each
waiting pod again after five minutes at the latest, and writes an event about it."""
MAX_CLOCK_DIFFERENCE_SECONDS: Final = 30.0
"""Seconds that a lease may be older than its duration. Clocks of two machines differ."""
MAX_EVENTS: Final = 50
"""Events of one reporting controller that are read. All of them are its own, so one is enough;
the further ones are for names that this operator has served and reported on itself."""
MAX_BOUND_PODS: Final = 500
"""Bound pods of one schedulerName that doctor reads."""
STATIC_POD_OWNER: Final = "v1 Node"
"""Owner of static pods, which the kubelet starts without a scheduler."""
NOT_SERVED: Final = "no SchedulerProfile serves schedulerName"
"""The beginning of what Stellwerk itself reports on a pod. Such an event shows no scheduler."""


def leases_of_name_path(name: str) -> str:
    """Return the path of all leases of one name, in any namespace."""
    return f"/apis/coordination.k8s.io/v1/leases?fieldSelector=metadata.name%3D{quote(name)}"


def events_path(name: str) -> str:
    """Return the path of the events that one component has reported.

    `source` selects the component of old events, and of new ones their reporting controller.
    """
    return f"/api/v1/events?fieldSelector=source%3D{quote(name)}"


def bound_pods_path(name: str) -> str:
    """Return the path of the pods of one schedulerName that have a node."""
    selector = f"spec.schedulerName={name},spec.nodeName!="
    return f"/api/v1/pods?fieldSelector={quote(selector, safe='')}"


def sign_of_scheduler(
    name: str,
    *,
    leases: Iterable[JsonObject] = (),
    events: Iterable[JsonObject] = (),
    bindings: Iterable[tuple[str, datetime]] = (),
    now: datetime,
    since: datetime | None = None,
) -> str:
    """Return the sign that a scheduler of this name runs, in words; empty: there is none.

    Args:
        name: a schedulerName.
        leases: any; those of that name count, in each namespace.
        events: of the core group; those that a component of that name has reported count.
        bindings: (NAMESPACE/NAME, moment) of pods with that schedulerName.
        now: aware.
        since: events and bindings up to then are of an operator that serves the name no more.
    """
    begin = now - timedelta(seconds=MAX_EVIDENCE_SECONDS)
    if since is not None:
        begin = max(begin, since)
    for lease in leases:
        spec, metadata = lease.get("spec") or {}, lease["metadata"]
        renewed = moment_of(spec.get("renewTime"))
        if renewed is None or metadata["name"] != name or not spec.get("holderIdentity"):
            continue
        duration = spec.get("leaseDurationSeconds")
        limit = MAX_CLOCK_DIFFERENCE_SECONDS + (duration if isinstance(duration, int) else 0)
        if abs((now - renewed).total_seconds()) <= limit:
            return f"the lease {metadata.get('namespace', '')}/{metadata['name']} is renewed"
    for event in events:
        moment = _last_seen(event)
        component = (event.get("source") or {}).get("component")
        if name not in (component, event.get("reportingComponent")):
            continue
        if moment is None or moment < begin or str(event.get("message")).startswith(NOT_SERVED):
            continue
        about = event.get("involvedObject") or {}
        return f"it has reported on {about.get('namespace', '')}/{about.get('name', '')}"
    for key, moment in bindings:
        if moment >= begin:
            return f"it has bound {key}"
    return ""


def given_up(conditions: Iterable[JsonObject]) -> datetime | None:
    """Return the moment from which a pod's condition says that no profile serves it; None: not."""
    for each in conditions:
        if each.get("type") == "PodScheduled" and str(each.get("message")).startswith(NOT_SERVED):
            return moment_of(each.get("lastTransitionTime"))
    return None


def binding_moment(conditions: Iterable[JsonObject]) -> datetime | None:
    """Return the moment at which a pod was bound, by its conditions; None: not known."""
    for each in conditions:
        if each.get("type") == "PodScheduled" and each.get("status") == "True":
            return moment_of(each.get("lastTransitionTime"))
    return None


def unserved_pods(
    pods: Iterable[JsonObject], served: Collection[str], now: datetime
) -> Mapping[str, list[str]]:
    """Return the waiting pods (NAMESPACE/NAME) by schedulerName that none of `served` has.

    Whether a scheduler of that name runs all the same, `sign_of_scheduler` says.

    Args:
        pods: as the API has them, bound and finished ones among them or not.
        served: names that a scheduler serves, as far as that is known.
        now: aware; pods that are younger than the grace period are left out.
    """
    found: dict[str, list[str]] = {}
    for pod in pods:
        spec, status, metadata = pod.get("spec") or {}, pod.get("status") or {}, pod["metadata"]
        name = spec.get("schedulerName") or "default-scheduler"
        if name in served or spec.get("nodeName") or metadata.get("deletionTimestamp"):
            continue
        if status.get("phase", "Pending") != "Pending" or spec.get("schedulingGates"):
            continue
        created = moment_of(metadata.get("creationTimestamp"))
        is_new = created is not None and (now - created).total_seconds() < MIN_UNSERVED_SECONDS
        if not is_new:
            key = f"{metadata.get('namespace', 'default')}/{metadata['name']}"
            found.setdefault(name, []).append(key)
    return found


def moment_of(text: object) -> datetime | None:
    """Return a timestamp of the API as an aware moment; None: it is none."""
    try:
        return parse_moment(text)
    except ValueError:
        return None


def _last_seen(event: JsonObject) -> datetime | None:
    """The moment at which an event happened last."""
    series = event.get("series") or {}
    texts = (series.get("lastObservedTime"), event.get("lastTimestamp"), event.get("eventTime"))
    moments = [each for each in map(moment_of, texts) if each is not None]
    return max(moments, default=None)
