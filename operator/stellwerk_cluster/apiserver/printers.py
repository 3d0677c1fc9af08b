"""Printers: the functions that compute table cells, such as ages, fractions and the state of a pod.

The tables of `schema` name these functions, and `tables` finds them in `CELLS`. Invariant: a
function takes an object, the present time and what the column says in `of`, and never raises for a
stored object; a duration has at most two units, the smaller one only where it still matters.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stellwerk_cluster.apimachinery.objects import EMPTY, labels_of, parse_timestamp, pick
from stellwerk_cluster.apimachinery.selectors import selector_text
from stellwerk_kube.names import duration_text

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

    from stellwerk_kube.json_values import JsonObject, JsonValue

_NONE: Final = "<none>"
_UNKNOWN: Final = "<unknown>"
_ROLE_PREFIX: Final = "node-role.kubernetes.io/"
PLACED: Final = "scheduling.stellwerk.dev/Placed"
"""The condition whose message begins with placed and needed pods, such as `2/4`."""
WAITING: Final = "scheduling.stellwerk.dev/Waiting"
"""The condition of a group that was placed before, and waits again."""
_MAX_SHOWN_ENTRIES: Final = 3
"""Entries of a list that are shown."""


def age_text(since: str | None, now: datetime) -> str:
    """The time since then as kubectl writes it: exact while short, coarse when long."""
    if not since:
        return "<unknown>"
    return duration_text((now - parse_timestamp(since)).total_seconds())


def age(obj: JsonObject, now: datetime) -> str:
    """The time since the object was created."""
    return age_text(obj["metadata"].get("creationTimestamp"), now)


def age_of(obj: JsonObject, now: datetime, path: str) -> str:
    """The time since what stands under a path, if anything does."""
    found = _at(obj, path)
    return age_text(found, now) if found else _NONE


def truth(obj: JsonObject, _now: datetime, path: str) -> str:
    """True or False, as a word."""
    return str(bool(_at(obj, path)))


def list_length(obj: JsonObject, _now: datetime, path: str) -> int:
    """The length of the list under a path."""
    return len(_at(obj, path) or ())


def joined(obj: JsonObject, _now: datetime, path: str) -> str:
    """The texts of the list under a path, with commas between them."""
    return ",".join(_at(obj, path) or ())


def fraction(obj: JsonObject, _now: datetime, have: str, want: str) -> str:
    """Two numbers of the object as `have/want`."""
    return f"{_at(obj, have) or 0}/{_at(obj, want) or 0}"


def selector(obj: JsonObject, _now: datetime, path: str) -> str:
    """The label selector, or the plain labels, under a path."""
    found = _at(obj, path)
    if found and ("matchLabels" in found or "matchExpressions" in found):
        return selector_text(found) or _NONE
    return ",".join(f"{key}={value}" for key, value in sorted((found or {}).items())) or _NONE


def template_containers(
    obj: JsonObject, _now: datetime, part: str, template: str = "spec.template"
) -> str:
    """One field of every container in the pod template of a workload."""
    containers = _at(obj, f"{template}.spec.containers") or ()
    return ",".join(each.get(part, "") for each in containers)


def _statuses(pod: JsonObject) -> list[JsonObject]:
    found: list[JsonObject] = pick(pod, ("status", "containerStatuses")) or []
    return found


def pod_ready(pod: JsonObject, _now: datetime) -> str:
    """Ready containers of all containers."""
    ready = sum(1 for each in _statuses(pod) if each.get("ready"))
    return f"{ready}/{len(pod['spec'].get('containers') or ())}"


def pod_state(pod: JsonObject, _now: datetime) -> str:
    """The state of a pod in the one word that `kubectl get pods` shows."""
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


def restarts(pod: JsonObject, _now: datetime) -> str:
    """The restarts of all containers of a pod."""
    return str(sum(each.get("restartCount", 0) for each in _statuses(pod)))


def readiness_gates(pod: JsonObject, _now: datetime) -> str:
    """Fulfilled readiness gates of all of them."""
    gates = pod["spec"].get("readinessGates") or ()
    if not gates:
        return _NONE
    true = {
        each["type"]
        for each in pod["status"].get("conditions") or ()
        if each.get("status") == "True"
    }
    return f"{sum(1 for gate in gates if gate['conditionType'] in true)}/{len(gates)}"


def node_status(node: JsonObject, _now: datetime) -> str:
    """Whether a node is ready, and whether it is cordoned."""
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


def node_roles(node: JsonObject, _now: datetime) -> str:
    """The roles that the labels of a node give it."""
    labels = labels_of(node)
    roles = {key.removeprefix(_ROLE_PREFIX) for key in labels if key.startswith(_ROLE_PREFIX)}
    roles.add(labels.get("kubernetes.io/role", ""))
    return ",".join(sorted(roles - {""})) or _NONE


def component_state(component: JsonObject, _now: datetime) -> str:
    """Whether a component is well."""
    well = any(each.get("status") == "True" for each in component.get("conditions") or ())
    return "Healthy" if well else "Unhealthy"


def component_message(component: JsonObject, _now: datetime) -> str:
    """The message of a component's health condition."""
    return ",".join(each.get("message", "") for each in component.get("conditions") or ())


def node_address(node: JsonObject, _now: datetime, kind: str) -> str:
    """The first address of a node that is of that kind."""
    for address in node["status"].get("addresses") or ():
        if address.get("type") == kind:
            return str(address.get("address"))
    return _NONE


def kernel(node: JsonObject, _now: datetime) -> str:
    """The kernel of a node and its architecture."""
    info = node["status"].get("nodeInfo") or EMPTY
    if not info.get("kernelVersion"):
        return _UNKNOWN
    architecture = info.get("architecture")
    return (
        f"{info['kernelVersion']} ({architecture})" if architecture else str(info["kernelVersion"])
    )


def ports(service: JsonObject, _now: datetime) -> str:
    """The ports of a service, each with its node port and protocol."""
    shown = []
    for port in service["spec"].get("ports") or ():
        node_port = f":{port['nodePort']}" if port.get("nodePort") else ""
        shown.append(f"{port.get('port')}{node_port}/{port.get('protocol', 'TCP')}")
    return ",".join(shown) or _NONE


def job_status(job: JsonObject, _now: datetime) -> str:
    """Complete, Failed, Suspended or Running."""
    for condition in job["status"].get("conditions") or ():
        if condition.get("status") == "True" and condition.get("type") in ("Complete", "Failed"):
            return str(condition["type"])
    return "Suspended" if job["spec"].get("suspend") else "Running"


def job_duration(job: JsonObject, now: datetime) -> str:
    """The time that a job ran, or runs already."""
    start, end = pick(job, ("status", "startTime")), pick(job, ("status", "completionTime"))
    if not start:
        return ""
    duration = (parse_timestamp(end) if end else now) - parse_timestamp(start)
    return duration_text(duration.total_seconds())


def last_seen(event: JsonObject, now: datetime) -> str:
    """The time since an event happened last, and how often it did."""
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


def first_seen(event: JsonObject, now: datetime) -> str:
    """The time since an event happened first."""
    return age_text(event.get("firstTimestamp") or event.get("eventTime"), now)


def event_object(event: JsonObject, _now: datetime) -> str:
    """Kind and name of the object that an event is about."""
    regarding = event.get("involvedObject") or EMPTY
    return f"{regarding.get('kind', '').lower()}/{regarding.get('name', '')}"


def event_source(event: JsonObject, _now: datetime) -> str:
    """The component that reports an event, and its host."""
    source = event.get("source") or EMPTY
    component = source.get("component") or event.get("reportingComponent", "")
    host = source.get("host") or event.get("reportingInstance", "")
    return f"{component}, {host}" if host else str(component)


def event_message(event: JsonObject, _now: datetime) -> str:
    """The text of an event without blanks around it."""
    return str(event.get("message", "")).strip()


def event_count(event: JsonObject, _now: datetime) -> int:
    """The number of times that an event happened."""
    return int(pick(event, ("series", "count")) or event.get("count") or 1)


def budget_limit(budget: JsonObject, _now: datetime, name: str) -> str:
    """One of the two limits of a disruption budget."""
    found = budget["spec"].get(name)
    return "N/A" if found is None else str(found)


def data_count(obj: JsonObject, _now: datetime) -> str:
    """The number of keys of a ConfigMap or Secret."""
    return str(len(obj.get("data") or ()) + len(obj.get("binaryData") or ()))


def access_modes(obj: JsonObject, _now: datetime) -> str:
    """The access modes of a volume or claim, each by its capitals."""
    return ",".join(
        "".join(letter for letter in mode if letter.isupper())
        for mode in obj["spec"].get("accessModes") or ()
    )


def claim_state(claim: JsonObject, _now: datetime) -> str:
    """The state of a claim for devices: pending, allocated, reserved or deleted."""
    status = claim.get("status") or {}
    states = [
        name
        for name, holds in (
            ("deleted", claim["metadata"].get("deletionTimestamp")),
            ("allocated", status.get("allocation")),
            ("reserved", status.get("reservedFor")),
        )
        if holds
    ]
    return ",".join(states) or "pending"


def claim_of(volume: JsonObject, _now: datetime) -> str:
    """The claim that a volume is bound to."""
    claim = volume["spec"].get("claimRef")
    return f"{claim.get('namespace', '')}/{claim.get('name', '')}" if claim else ""


def group_policy(group: JsonObject, _now: datetime) -> str:
    """Gang or Basic."""
    return "Gang" if group["spec"]["schedulingPolicy"].get("gang") is not None else "Basic"


def group_status(group: JsonObject, _now: datetime) -> str:
    """The conditions of a group in one word, and its placed and needed pods where they say so.

    A disruption goes before what was scheduled.
    """
    conditions = {
        each["type"]: each for each in (group.get("status") or EMPTY).get("conditions") or ()
    }
    placed = conditions.get(PLACED, EMPTY).get("message", "").partition(" ")[0]
    word = _status_word(conditions)
    return f"{word} ({placed})" if placed else word


def _status_word(conditions: dict[str, JsonObject]) -> str:
    disrupted = conditions.get("DisruptionTarget")
    if disrupted is not None and disrupted["status"] == "True":
        return disrupted["reason"] or "DisruptionTarget"
    waiting = conditions.get(WAITING)
    if waiting is not None and waiting["status"] == "True":
        return waiting["reason"] or "Pending"
    scheduled = conditions.get("PodGroupInitiallyScheduled") or conditions.get("PodGroupScheduled")
    if scheduled is None:
        return "Pending"
    if scheduled["status"] == "True":
        return "Scheduled"
    return scheduled["reason"] or "Pending"


def _first_few(texts: Sequence[str]) -> str:
    shown = ",".join(texts[:_MAX_SHOWN_ENTRIES])
    return (
        f"{shown} + {len(texts) - _MAX_SHOWN_ENTRIES} more..."
        if len(texts) > _MAX_SHOWN_ENTRIES
        else shown
    )


def ingress_hosts(ingress: JsonObject, _now: datetime) -> str:
    """The hosts of the rules of an ingress."""
    hosts = [rule["host"] for rule in ingress["spec"].get("rules") or () if rule.get("host")]
    return _first_few(hosts) or "*"


def ingress_address(ingress: JsonObject, _now: datetime) -> str:
    """The addresses at which an ingress is reached."""
    found = pick(ingress, ("status", "loadBalancer", "ingress")) or ()
    return ",".join(each.get("ip") or each.get("hostname", "") for each in found)


def ingress_ports(ingress: JsonObject, _now: datetime) -> str:
    """80, and 443 if an ingress has certificates."""
    return "80, 443" if ingress["spec"].get("tls") else "80"


def autoscaler_reference(autoscaler: JsonObject, _now: datetime) -> str:
    """Kind and name of what an autoscaler scales."""
    target = autoscaler["spec"].get("scaleTargetRef") or EMPTY
    return f"{target.get('kind', '')}/{target.get('name', '')}"


def autoscaler_targets(autoscaler: JsonObject, _now: datetime) -> str:
    """The present and wanted values of an autoscaler; unknown is what could not be measured."""
    status = autoscaler.get("status") or EMPTY
    present = {_metric_key(each): each for each in status.get("currentMetrics") or ()}
    texts = [
        _metric_target(metric, present.get(_metric_key(metric)))
        for metric in autoscaler["spec"].get("metrics") or ()
    ]
    return ", ".join(texts) or _NONE


def _metric_part(metric: JsonObject) -> JsonObject:
    type_ = metric.get("type", "")
    part: JsonObject = metric.get(type_[:1].lower() + type_[1:]) or EMPTY
    return part


def _metric_key(metric: JsonObject) -> tuple[str, str]:
    return metric.get("type", ""), str(_metric_part(metric).get("name", ""))


def _metric_target(metric: JsonObject, present: JsonObject | None) -> str:
    part = _metric_part(metric)
    target = part.get("target") or EMPTY
    percent = target.get("averageUtilization")
    wanted = target.get("averageValue") or target.get("value") if percent is None else f"{percent}%"
    name = f"{part['name']}: " if part.get("name") else ""
    current = _metric_part(present or EMPTY).get("current") or EMPTY
    is_share = percent is not None
    known = current.get("averageUtilization") if is_share else current.get("averageValue")
    shown = "<unknown>" if known is None else f"{known}%" if is_share else known
    return f"{name}{shown}/{wanted}"


def quota_usage(quota: JsonObject, _now: datetime, part: str) -> str:
    """The used and allowed amounts of a quota: of its limits, or of everything else."""
    status = quota.get("status") or EMPTY
    hard, used = status.get("hard") or EMPTY, status.get("used") or EMPTY
    wanted = part == "limits"
    return ", ".join(
        f"{name}: {used.get(name, 0)}/{hard[name]}"
        for name in sorted(hard)
        if name.startswith("limits") == wanted
    )


def role_reference(binding: JsonObject, _now: datetime) -> str:
    """Kind and name of the role that a binding gives."""
    reference = binding.get("roleRef") or EMPTY
    return f"{reference.get('kind', '')}/{reference.get('name', '')}"


def subjects(binding: JsonObject, _now: datetime, kind: str) -> str:
    """The subjects of one kind that are given a role."""
    found = [each for each in binding.get("subjects") or () if each.get("kind") == kind]
    names = (
        "/".join(filter(None, (each.get("namespace"), each.get("name"))))
        if kind == "ServiceAccount"
        else each.get("name", "")
        for each in found
    )
    return ", ".join(names)


def endpoint_addresses(endpoints: JsonObject, _now: datetime) -> str:
    """The first addresses with their ports."""
    texts: list[str] = []
    for subset in endpoints.get("subsets") or ():
        addresses = [each.get("ip", "") for each in subset.get("addresses") or ()]
        ports = [port.get("port", 0) for port in subset.get("ports") or ()]
        texts += [f"{ip}:{port}" for port in ports for ip in addresses] or addresses
    return _first_few(texts) or _NONE


def slice_ports(endpoint_slice: JsonObject, _now: datetime) -> str:
    """The ports of an endpoint slice."""
    found = [str(port.get("port", "*")) for port in endpoint_slice.get("ports") or ()]
    return _first_few(found) or "<unset>"


def slice_addresses(endpoint_slice: JsonObject, _now: datetime) -> str:
    """The first addresses of an endpoint slice."""
    found = [
        address
        for endpoint in endpoint_slice.get("endpoints") or ()
        for address in endpoint.get("addresses") or ()
    ]
    return _first_few(found) or "<unset>"


def _at(obj: JsonObject, path: str) -> JsonValue:
    return pick(obj, tuple(path.split(".")))


CELLS: Final[dict[str, Callable[..., JsonValue]]] = {
    function.__name__: function
    for function in (
        access_modes,
        age,
        age_of,
        autoscaler_reference,
        autoscaler_targets,
        budget_limit,
        claim_of,
        claim_state,
        component_message,
        component_state,
        data_count,
        endpoint_addresses,
        event_count,
        event_message,
        event_object,
        event_source,
        first_seen,
        fraction,
        group_policy,
        group_status,
        ingress_address,
        ingress_hosts,
        ingress_ports,
        job_duration,
        job_status,
        joined,
        kernel,
        last_seen,
        list_length,
        node_address,
        node_roles,
        node_status,
        pod_ready,
        pod_state,
        ports,
        quota_usage,
        readiness_gates,
        restarts,
        role_reference,
        selector,
        slice_addresses,
        slice_ports,
        subjects,
        template_containers,
        truth,
    )
}
"""The functions by the names that the tables of `schema` use."""
