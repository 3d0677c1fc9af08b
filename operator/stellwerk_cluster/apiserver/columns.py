"""The columns of the built-in kinds, as data.

A row is name, type, format, text, priority (1: only with -o wide) and cell function. Read by
`tables`. Invariant: a cell function takes (object, now) and never raises for a stored object.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final, TypeAlias

from stellwerk.models.json_values import JsonObject
from stellwerk_cluster.apiserver.objects import EMPTY, JsonValue, labels_of, parse_timestamp, pick
from stellwerk_cluster.apiserver.selectors import selector_text

Row: TypeAlias = tuple[str, str, str, str, int, Callable[[JsonObject, datetime], JsonValue]]

NONE: Final = "<none>"
UNKNOWN: Final = "<unknown>"
_MINUTE: Final = 60
_HOUR: Final = 60 * _MINUTE
_DAY: Final = 24 * _HOUR
_YEAR: Final = 365 * _DAY
_LETTERS: Final = {1: "s", _MINUTE: "m", _HOUR: "h", _DAY: "d", _YEAR: "y"}
_SCALES: Final = (
    (2 * _MINUTE, 1, 0),
    (10 * _MINUTE, _MINUTE, 1),
    (3 * _HOUR, _MINUTE, 0),
    (8 * _HOUR, _HOUR, _MINUTE),
    (2 * _DAY, _HOUR, 0),
    (8 * _DAY, _DAY, _HOUR),
    (2 * _YEAR, _DAY, 0),
    (8 * _YEAR, _YEAR, _DAY),
)
"""Below each limit: the unit that is shown, and the smaller one shown beside it (0: none)."""
_ROLE_PREFIX: Final = "node-role.kubernetes.io/"
_NAME_TEXT: Final = "Name of the object, unique among its kind in its namespace."
_AGE_TEXT: Final = "Time since the object was created."


def age_text(since: str | None, now: datetime) -> str:
    """The time since then as kubectl writes it: exact while short, coarse when long."""
    if not since:
        return UNKNOWN
    return duration_text(now - parse_timestamp(since))


def duration_text(duration: timedelta) -> str:
    """The duration in the one or two units that matter (duration.HumanDuration, v1.36)."""
    seconds = int(duration.total_seconds())
    if seconds < -1:
        return "<invalid>"
    seconds = max(0, seconds)
    for limit, unit, smaller in _SCALES:
        if seconds < limit:
            whole, rest = divmod(seconds, unit)
            small = rest // smaller if smaller else 0
            tail = f"{small}{_LETTERS[smaller]}" if small else ""
            return f"{whole}{_LETTERS[unit]}{tail}"
    return f"{seconds // _YEAR}y"


def _at(*path: str, default: JsonValue = None) -> Callable[[JsonObject, datetime], JsonValue]:
    def cell(obj: JsonObject, _now: datetime) -> JsonValue:
        found = pick(obj, path)
        return default if found in (None, "") else found

    return cell


def _age(obj: JsonObject, now: datetime) -> str:
    return age_text(obj["metadata"].get("creationTimestamp"), now)


NAME: Final[Row] = ("Name", "string", "name", _NAME_TEXT, 0, _at("metadata", "name", default=""))
AGE: Final[Row] = ("Age", "string", "", _AGE_TEXT, 0, _age)
GENERIC: Final[tuple[Row, ...]] = (
    NAME,
    (
        "Created At",
        "date",
        "",
        "When the object was created.",
        0,
        _at("metadata", "creationTimestamp", default=""),
    ),
)


def _text(
    name: str, text: str, cell: Callable[[JsonObject, datetime], JsonValue], *, wide: bool = False
) -> Row:
    return (name, "string", "", text, int(wide), cell)


def _number(name: str, text: str, cell: Callable[[JsonObject, datetime], JsonValue]) -> Row:
    return (name, "integer", "", text, 0, cell)


def _statuses(pod: JsonObject) -> list[JsonObject]:
    found: list[JsonObject] = pick(pod, ("status", "containerStatuses")) or []
    return found


def _pod_ready(pod: JsonObject, _now: datetime) -> str:
    ready = sum(1 for each in _statuses(pod) if each.get("ready"))
    return f"{ready}/{len(pod['spec'].get('containers') or ())}"


def pod_state(pod: JsonObject) -> str:
    """The one word that `kubectl get pods` shows for a pod."""
    metadata, status = pod["metadata"], pod.get("status") or EMPTY
    if metadata.get("deletionTimestamp"):
        return "Unknown" if status.get("reason") == "NodeLost" else "Terminating"
    state: str = status.get("reason") or status.get("phase", "")
    for condition in status.get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("reason") == "SchedulingGated":
            state = "SchedulingGated"
    for each in reversed(_statuses(pod)):
        waiting, terminated = pick(each, ("state", "waiting")), pick(each, ("state", "terminated"))
        if waiting and waiting.get("reason"):
            state = waiting["reason"]
        elif terminated:
            state = terminated.get("reason") or f"ExitCode:{terminated.get('exitCode', 0)}"
    return state


def _restarts(pod: JsonObject, _now: datetime) -> str:
    return str(sum(each.get("restartCount", 0) for each in _statuses(pod)))


def _readiness_gates(pod: JsonObject, _now: datetime) -> str:
    gates = pod["spec"].get("readinessGates") or ()
    if not gates:
        return NONE
    true = {
        each["type"]
        for each in pod["status"].get("conditions") or ()
        if each.get("status") == "True"
    }
    return f"{sum(1 for gate in gates if gate['conditionType'] in true)}/{len(gates)}"


def _node_status(node: JsonObject, _now: datetime) -> str:
    ready = next(
        (each for each in node["status"].get("conditions") or () if each.get("type") == "Ready"),
        None,
    )
    words = [
        "Unknown" if ready is None else "Ready" if ready.get("status") == "True" else "NotReady"
    ]
    if node["spec"].get("unschedulable"):
        words.append("SchedulingDisabled")
    return ",".join(words)


def _node_roles(node: JsonObject, _now: datetime) -> str:
    labels = labels_of(node)
    roles = {key.removeprefix(_ROLE_PREFIX) for key in labels if key.startswith(_ROLE_PREFIX)}
    roles.add(labels.get("kubernetes.io/role", ""))
    return ",".join(sorted(roles - {""})) or NONE


def _node_address(kind: str) -> Callable[[JsonObject, datetime], str]:
    def cell(node: JsonObject, _now: datetime) -> str:
        for address in node["status"].get("addresses") or ():
            if address.get("type") == kind:
                return str(address.get("address"))
        return NONE

    return cell


def _kernel(node: JsonObject, _now: datetime) -> str:
    info = node["status"].get("nodeInfo") or EMPTY
    if not info.get("kernelVersion"):
        return UNKNOWN
    architecture = info.get("architecture")
    return (
        f"{info['kernelVersion']} ({architecture})" if architecture else str(info["kernelVersion"])
    )


def _ports(service: JsonObject, _now: datetime) -> str:
    shown = []
    for port in service["spec"].get("ports") or ():
        node_port = f":{port['nodePort']}" if port.get("nodePort") else ""
        shown.append(f"{port.get('port')}{node_port}/{port.get('protocol', 'TCP')}")
    return ",".join(shown) or NONE


def _labels_text(labels: JsonObject | None) -> str:
    return ",".join(f"{key}={value}" for key, value in sorted((labels or {}).items())) or NONE


def _selector(*path: str) -> Callable[[JsonObject, datetime], str]:
    def cell(obj: JsonObject, _now: datetime) -> str:
        found = pick(obj, path)
        if found and ("matchLabels" in found or "matchExpressions" in found):
            return selector_text(found) or NONE
        return _labels_text(found)

    return cell


def _fraction(
    have: tuple[str, ...], want: tuple[str, ...]
) -> Callable[[JsonObject, datetime], str]:
    def cell(obj: JsonObject, _now: datetime) -> str:
        return f"{pick(obj, have) or 0}/{pick(obj, want) or 0}"

    return cell


def _containers(part: str) -> Callable[[JsonObject, datetime], str]:
    def cell(obj: JsonObject, _now: datetime) -> str:
        containers = pick(obj, ("spec", "template", "spec", "containers")) or ()
        return ",".join(each.get(part, "") for each in containers)

    return cell


_TEMPLATE: Final[tuple[Row, ...]] = (
    _text("Containers", "Names of the containers in the template.", _containers("name"), wide=True),
    _text("Images", "Images of the containers in the template.", _containers("image"), wide=True),
)
_SELECTOR: Final[Row] = _text(
    "Selector", "Which pods it owns.", _selector("spec", "selector"), wide=True
)


def _job_status(job: JsonObject, _now: datetime) -> str:
    for condition in job["status"].get("conditions") or ():
        if condition.get("status") == "True" and condition.get("type") in ("Complete", "Failed"):
            return str(condition["type"])
    return "Suspended" if job["spec"].get("suspend") else "Running"


def _job_duration(job: JsonObject, now: datetime) -> str:
    start, end = pick(job, ("status", "startTime")), pick(job, ("status", "completionTime"))
    if not start:
        return ""
    return duration_text((parse_timestamp(end) if end else now) - parse_timestamp(start))


def _last_seen(event: JsonObject, now: datetime) -> str:
    seen = (
        pick(event, ("series", "lastObservedTime"))
        or event.get("lastTimestamp")
        or event.get("eventTime")
        or event["metadata"].get("creationTimestamp")
    )
    first = event.get("firstTimestamp") or event.get("eventTime") or seen
    count = pick(event, ("series", "count")) or event.get("count") or 0
    text = age_text(seen, now)
    return f"{text} (x{count} over {age_text(first, now)})" if count > 1 else text


def _first_seen(event: JsonObject, now: datetime) -> str:
    return age_text(event.get("firstTimestamp") or event.get("eventTime"), now)


def _event_object(event: JsonObject, _now: datetime) -> str:
    regarding = event.get("involvedObject") or EMPTY
    return f"{regarding.get('kind', '').lower()}/{regarding.get('name', '')}"


def _event_source(event: JsonObject, _now: datetime) -> str:
    source = event.get("source") or EMPTY
    component = source.get("component") or event.get("reportingComponent", "")
    host = source.get("host") or event.get("reportingInstance", "")
    return f"{component}, {host}" if host else str(component)


def _event_message(event: JsonObject, _now: datetime) -> str:
    return str(event.get("message", "")).strip()


def _event_count(event: JsonObject, _now: datetime) -> int:
    return int(pick(event, ("series", "count")) or event.get("count") or 1)


def _limit(name: str) -> Callable[[JsonObject, datetime], str]:
    def cell(budget: JsonObject, _now: datetime) -> str:
        found = budget["spec"].get(name)
        return "N/A" if found is None else str(found)

    return cell


def _data_count(obj: JsonObject, _now: datetime) -> int:
    return len(obj.get("data") or ()) + len(obj.get("binaryData") or ())


def _data_text(obj: JsonObject, now: datetime) -> str:
    return str(_data_count(obj, now))


def _access_modes(obj: JsonObject, _now: datetime) -> str:
    return ",".join(
        "".join(letter for letter in mode if letter.isupper())
        for mode in obj["spec"].get("accessModes") or ()
    )


def _claim_of(volume: JsonObject, _now: datetime) -> str:
    claim = volume["spec"].get("claimRef")
    return f"{claim.get('namespace', '')}/{claim.get('name', '')}" if claim else ""


_REPLICAS: Final = ("spec", "replicas")

COLUMNS: Final[dict[str, tuple[Row, ...]]] = {
    "Pod": (
        NAME,
        _text("Ready", "Ready containers of all containers.", _pod_ready),
        _text("Status", "What the pod is doing, in one word.", lambda pod, _now: pod_state(pod)),
        _text("Restarts", "How often containers of the pod were restarted.", _restarts),
        AGE,
        _text("IP", "Address of the pod.", _at("status", "podIP", default=NONE), wide=True),
        _text(
            "Node", "Node the pod is bound to.", _at("spec", "nodeName", default=NONE), wide=True
        ),
        _text(
            "Nominated Node",
            "Node that is being cleared for the pod.",
            _at("status", "nominatedNodeName", default=NONE),
            wide=True,
        ),
        _text(
            "Readiness Gates",
            "Fulfilled gates of all readiness gates.",
            _readiness_gates,
            wide=True,
        ),
    ),
    "Node": (
        NAME,
        _text("Status", "Whether pods can run on the node.", _node_status),
        _text("Roles", "Roles given by labels.", _node_roles),
        AGE,
        _text(
            "Version",
            "Version of the kubelet.",
            _at("status", "nodeInfo", "kubeletVersion", default=""),
        ),
        _text("Internal-IP", "Address inside the cluster.", _node_address("InternalIP"), wide=True),
        _text(
            "External-IP", "Address outside the cluster.", _node_address("ExternalIP"), wide=True
        ),
        _text(
            "OS-Image",
            "Operating system.",
            _at("status", "nodeInfo", "osImage", default=UNKNOWN),
            wide=True,
        ),
        _text("Kernel-Version", "Kernel of the node.", _kernel, wide=True),
        _text(
            "Container-Runtime",
            "Runtime of the node's containers.",
            _at("status", "nodeInfo", "containerRuntimeVersion", default=UNKNOWN),
            wide=True,
        ),
    ),
    "Namespace": (
        NAME,
        _text("Status", "Active or terminating.", _at("status", "phase", default="")),
        AGE,
    ),
    "Event": (
        _text("Last Seen", "Time since it happened last.", _last_seen),
        _text("Type", "Normal or Warning.", _at("type", default="")),
        _text("Reason", "Why, in one word.", _at("reason", default="")),
        _text("Object", "What it is about.", _event_object),
        _text(
            "Subobject",
            "Part of the object.",
            _at("involvedObject", "fieldPath", default=""),
            wide=True,
        ),
        _text("Source", "Who reports it.", _event_source, wide=True),
        _text("Message", "What happened.", _event_message),
        _text("First Seen", "Time since it happened first.", _first_seen, wide=True),
        ("Count", "string", "", "How often it happened.", 1, _event_count),
        ("Name", "string", "name", _NAME_TEXT, 1, _at("metadata", "name", default="")),
    ),
    "PriorityClass": (
        NAME,
        _number("Value", "The priority.", _at("value", default=0)),
        (
            "Global-Default",
            "boolean",
            "",
            "Whether pods without a class get this one.",
            0,
            _at("globalDefault", default=False),
        ),
        AGE,
        _text(
            "PreemptionPolicy", "Whether its pods may preempt.", _at("preemptionPolicy", default="")
        ),
    ),
    "Deployment": (
        NAME,
        _text(
            "Ready", "Ready pods of wanted pods.", _fraction(("status", "readyReplicas"), _REPLICAS)
        ),
        _number(
            "Up-to-date",
            "Pods of the current template.",
            _at("status", "updatedReplicas", default=0),
        ),
        _number(
            "Available",
            "Pods ready for long enough.",
            _at("status", "availableReplicas", default=0),
        ),
        AGE,
        *_TEMPLATE,
        _SELECTOR,
    ),
    "ReplicaSet": (
        NAME,
        _number("Desired", "Wanted pods.", _at("spec", "replicas", default=0)),
        _number("Current", "Existing pods.", _at("status", "replicas", default=0)),
        _number("Ready", "Ready pods.", _at("status", "readyReplicas", default=0)),
        AGE,
        *_TEMPLATE,
        _SELECTOR,
    ),
    "StatefulSet": (
        NAME,
        _text(
            "Ready", "Ready pods of wanted pods.", _fraction(("status", "readyReplicas"), _REPLICAS)
        ),
        AGE,
        *_TEMPLATE,
    ),
    "DaemonSet": (
        NAME,
        _number(
            "Desired", "Nodes it should run on.", _at("status", "desiredNumberScheduled", default=0)
        ),
        _number("Current", "Nodes it runs on.", _at("status", "currentNumberScheduled", default=0)),
        _number("Ready", "Ready pods.", _at("status", "numberReady", default=0)),
        _number(
            "Up-to-date",
            "Pods of the current template.",
            _at("status", "updatedNumberScheduled", default=0),
        ),
        _number(
            "Available", "Pods ready for long enough.", _at("status", "numberAvailable", default=0)
        ),
        _text(
            "Node Selector",
            "Which nodes it is for.",
            _selector("spec", "template", "spec", "nodeSelector"),
        ),
        AGE,
        *_TEMPLATE,
        _SELECTOR,
    ),
    "Job": (
        NAME,
        _text("Status", "What the job is doing.", _job_status),
        _text(
            "Completions",
            "Finished pods of wanted.",
            _fraction(("status", "succeeded"), ("spec", "completions")),
        ),
        _text("Duration", "How long it ran.", _job_duration),
        AGE,
        *_TEMPLATE,
        _SELECTOR,
    ),
    "ReplicationController": (
        NAME,
        _number("Desired", "Wanted pods.", _at("spec", "replicas", default=0)),
        _number("Current", "Existing pods.", _at("status", "replicas", default=0)),
        _number("Ready", "Ready pods.", _at("status", "readyReplicas", default=0)),
        AGE,
        *_TEMPLATE,
        _SELECTOR,
    ),
    "Service": (
        NAME,
        _text("Type", "How the service is reached.", _at("spec", "type", default="")),
        _text("Cluster-IP", "Address inside the cluster.", _at("spec", "clusterIP", default=NONE)),
        _text(
            "External-IP", "Address outside the cluster.", _at("spec", "externalName", default=NONE)
        ),
        _text("Port(s)", "Ports and protocols.", _ports),
        AGE,
        _text("Selector", "Which pods serve it.", _selector("spec", "selector"), wide=True),
    ),
    "PodDisruptionBudget": (
        NAME,
        _text("Min Available", "Pods that must stay available.", _limit("minAvailable")),
        _text("Max Unavailable", "Pods that may be unavailable.", _limit("maxUnavailable")),
        _number(
            "Allowed Disruptions",
            "Pods that may be evicted now.",
            _at("status", "disruptionsAllowed", default=0),
        ),
        AGE,
    ),
    "Lease": (
        NAME,
        _text("Holder", "Who holds it.", _at("spec", "holderIdentity", default="")),
        AGE,
    ),
    "RuntimeClass": (
        NAME,
        _text("Handler", "Runtime configuration.", _at("handler", default="")),
        AGE,
    ),
    "ConfigMap": (NAME, _text("Data", "Number of keys.", _data_text), AGE),
    "Secret": (
        NAME,
        _text("Type", "What the secret is for.", _at("type", default="")),
        _text("Data", "Number of keys.", _data_text),
        AGE,
    ),
    "ServiceAccount": (
        NAME,
        _number("Secrets", "Number of secrets.", lambda obj, _now: len(obj.get("secrets") or ())),
        AGE,
    ),
    "StorageClass": (
        NAME,
        _text("Provisioner", "Who makes the volumes.", _at("provisioner", default="")),
        _text(
            "ReclaimPolicy",
            "What becomes of released volumes.",
            _at("reclaimPolicy", default="Delete"),
        ),
        _text(
            "VolumeBindingMode",
            "When volumes are bound.",
            _at("volumeBindingMode", default="Immediate"),
        ),
        (
            "AllowVolumeExpansion",
            "boolean",
            "",
            "Whether volumes may grow.",
            0,
            _at("allowVolumeExpansion", default=False),
        ),
        AGE,
    ),
    "PersistentVolume": (
        NAME,
        _text("Capacity", "Size of the volume.", _at("spec", "capacity", "storage", default="")),
        _text("Access Modes", "How it can be mounted.", _access_modes),
        _text(
            "Reclaim Policy",
            "What becomes of it when released.",
            _at("spec", "persistentVolumeReclaimPolicy", default=""),
        ),
        _text("Status", "Phase of the volume.", _at("status", "phase", default="")),
        _text("Claim", "Claim it is bound to.", _claim_of),
        _text("StorageClass", "Class of the volume.", _at("spec", "storageClassName", default="")),
        AGE,
    ),
    "PersistentVolumeClaim": (
        NAME,
        _text("Status", "Phase of the claim.", _at("status", "phase", default="")),
        _text("Volume", "Volume it is bound to.", _at("spec", "volumeName", default="")),
        _text("Capacity", "Size of the volume.", _at("status", "capacity", "storage", default="")),
        _text("Access Modes", "How it can be mounted.", _access_modes),
        _text("StorageClass", "Class of the claim.", _at("spec", "storageClassName", default="")),
        AGE,
    ),
}
