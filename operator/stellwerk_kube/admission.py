"""The admission plugins whose changes decide where a pod may run, as functions of objects.

The embedded cluster's API server admits with them. Whatever reads manifests does so, too, by
`Admission`: a pod in a file becomes the pod that the same file makes in a cluster. Invariant: a
second pass changes nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stellwerk_kube.errors import ConfigurationError
from stellwerk_kube.pod_amounts import pod_amounts, qos_class
from stellwerk_kube.quantity import parse_quantity
from stellwerk_kube.taints import TAINT_EFFECTS, TOLERATION_OPERATORS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from stellwerk_kube.json_values import JsonObject

LIMIT_RANGE: Final = "LimitRange"
RUNTIME_CLASS: Final = "RuntimeClass"
PRIORITY_CLASS: Final = "PriorityClass"
STORAGE_CLASS: Final = "StorageClass"
KINDS: Final = frozenset({LIMIT_RANGE, RUNTIME_CLASS, PRIORITY_CLASS, STORAGE_CLASS})
"""The kinds that change pods and claims when they are created."""
DEFAULT_STORAGE_CLASS: Final = "storageclass.kubernetes.io/is-default-class"
_OLD_STORAGE_CLASS: Final = "volume.beta.kubernetes.io/storage-class"
_LIMIT_RANGER: Final = "kubernetes.io/limit-ranger"
_CLAIM: Final = "PersistentVolumeClaim"
_NO_EXECUTE_KEYS: Final = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
_TOLERATION_SECONDS: Final = 300
_NOTHING: Final[JsonObject] = {}


class AdmissionError(Exception):
    """An admission plugin refuses an object; its text is the reason."""


# --- LimitRanger --------------------------------------------------------------------------------
def give_default_limits(pod: JsonObject, limit_ranges: Iterable[JsonObject]) -> bool:
    """Give containers the requests and limits of the namespace; whether there were any to give.

    The QoS class follows them. `limit_ranges`: those of the pod's namespace.
    """
    given: list[str] = []
    for limit_range in _by_name(limit_ranges):
        for limit in limit_range["spec"].get("limits") or ():
            if limit.get("type") == "Container":
                given += _given(pod["spec"], limit)
    if given:
        metadata = pod["metadata"]
        text = f"LimitRanger plugin set: {'; '.join(given)}"
        annotations = {**(metadata.get("annotations") or {}), _LIMIT_RANGER: text}
        metadata["annotations"] = dict(sorted(annotations.items()))
        pod["status"] = {**pod["status"], "qosClass": qos_class(pod["spec"])}
    return bool(given)


def _given(spec: JsonObject, limit: JsonObject) -> Iterator[str]:
    """Fill in the defaults of one limit; says what was given to which container."""
    for group, shown in (("containers", "container"), ("initContainers", "init container")):
        for container in spec.get(group) or ():
            for part, source in (("requests", "defaultRequest"), ("limits", "default")):
                names = _fill(container, part, limit.get(source) or _NOTHING)
                if names:
                    word = part.removesuffix("s")
                    yield f"{', '.join(names)} {word} for {shown} {container['name']}"


def _fill(container: JsonObject, part: str, defaults: JsonObject) -> list[str]:
    resources = container.get("resources") or {}
    has = resources.get(part) or {}
    names = sorted(name for name in defaults if name not in has)
    if names:
        filled = {**has, **{name: defaults[name] for name in names}}
        container["resources"] = {**resources, part: dict(sorted(filled.items()))}
    return names


def check_limits(obj: JsonObject, limit_ranges: Iterable[JsonObject], *, is_pod: bool) -> None:
    """Refuse a pod, or else a claim, outside the bounds of its namespace.

    Raises:
        AdmissionError: it is.
    """
    found = _pod_errors if is_pod else _claim_errors
    for limit_range in _by_name(limit_ranges):
        errors = [
            error
            for limit in limit_range["spec"].get("limits") or ()
            for error in found(obj, limit)
        ]
        unique = list(dict.fromkeys(errors))
        if unique:
            raise AdmissionError(unique[0] if len(unique) == 1 else f"[{', '.join(unique)}]")


def _by_name(objects: Iterable[JsonObject]) -> list[JsonObject]:
    return sorted(objects, key=lambda each: str(each["metadata"]["name"]))


def _pod_errors(pod: JsonObject, limit: JsonObject) -> Iterator[str]:
    spec, kind = pod["spec"], limit.get("type", "")
    if kind == "Container":
        for container in (*(spec.get("containers") or ()), *(spec.get("initContainers") or ())):
            resources = container.get("resources") or _NOTHING
            requests, limits = (resources.get(part) or _NOTHING for part in ("requests", "limits"))
            yield from _bound_errors(limit, requests, limits)
    elif kind == "Pod":
        yield from _bound_errors(limit, pod_amounts(spec, "requests"), pod_amounts(spec, "limits"))


def _bound_errors(limit: JsonObject, requests: JsonObject, limits: JsonObject) -> Iterator[str]:
    kind = limit["type"]
    for name, bound in (limit.get("min") or _NOTHING).items():
        head = f"minimum {name} usage per {kind} is {bound}"
        if name not in requests:
            yield f"{head}.  No request is specified"
            continue
        for word, amounts in (("request", requests), ("limit", limits)):
            if name in amounts and parse_quantity(amounts[name]) < parse_quantity(bound):
                yield f"{head}, but {word} is {amounts[name]}"
                break
    for name, bound in (limit.get("max") or _NOTHING).items():
        head = f"maximum {name} usage per {kind} is {bound}"
        if name not in limits:
            yield f"{head}.  No limit is specified"
            continue
        for word, amounts in (("limit", limits), ("request", requests)):
            if name in amounts and parse_quantity(amounts[name]) > parse_quantity(bound):
                yield f"{head}, but {word} is {amounts[name]}"
                break
    yield from _ratio_errors(limit, requests, limits)


def _ratio_errors(limit: JsonObject, requests: JsonObject, limits: JsonObject) -> Iterator[str]:
    for name, bound in (limit.get("maxLimitRequestRatio") or _NOTHING).items():
        head = f"{name} max limit to request ratio per {limit['type']} is {bound}"
        request = parse_quantity(requests.get(name, "0"))
        largest = parse_quantity(limits.get(name, "0"))
        if request == 0:
            yield f"{head}, but no request is specified or request is 0"
        elif largest == 0:
            yield f"{head}, but no limit is specified or limit is 0"
        elif largest / request > parse_quantity(bound):
            yield f"{head}, but provided ratio is {float(largest / request):f}"


def _claim_errors(claim: JsonObject, limit: JsonObject) -> Iterator[str]:
    if limit.get("type") != _CLAIM:
        return
    requests = (claim["spec"].get("resources") or _NOTHING).get("requests") or _NOTHING
    for part, word in (("min", "minimum"), ("max", "maximum")):
        for name, bound in (limit.get(part) or _NOTHING).items():
            head = f"{word} {name} usage per {_CLAIM} is {bound}"
            if name not in requests:
                yield f"{head}.  No request is specified"
                continue
            asked, edge = parse_quantity(requests[name]), parse_quantity(bound)
            if (asked < edge) if part == "min" else (asked > edge):
                yield f"{head}, but request is {requests[name]}"


# --- Priority -----------------------------------------------------------------------------------
def chosen_priority_class(
    spec: JsonObject, priority_classes: Iterable[JsonObject]
) -> JsonObject | None:
    """The PriorityClass that a specification names, or the default one; None without any."""
    if name := spec.get("priorityClassName"):
        named = (each for each in priority_classes if each["metadata"]["name"] == name)
        return next(named, None)
    defaults = [each for each in priority_classes if each.get("globalDefault")]
    return min(defaults, key=lambda each: int(each["value"]), default=None)


def give_priority(spec: JsonObject, priority_class: JsonObject | None) -> None:
    """Give a pod the priority and the preemption policy of its class; None: it has no class.

    Raises:
        AdmissionError: the pod gives another number or policy.
    """
    chosen = priority_class or _NOTHING
    priority = chosen.get("value", 0)
    policy = chosen.get("preemptionPolicy") or "PreemptLowerPriority"
    if priority_class is not None:
        spec["priorityClassName"] = priority_class["metadata"]["name"]
    given = spec.get("priority")
    if given is not None and given != priority:
        raise AdmissionError(
            f"the integer value of priority ({given}) must not be provided in pod spec; "
            f"priority admission controller computed {priority} from the given PriorityClass name"
        )
    asked = spec.get("preemptionPolicy")
    if asked is not None and asked != policy:
        raise AdmissionError(
            f"the string value of PreemptionPolicy ({asked}) must not be provided in pod spec; "
            f"priority admission controller computed {policy} from the given PriorityClass name"
        )
    spec["priority"], spec["preemptionPolicy"] = priority, policy


# --- DefaultTolerationSeconds, RuntimeClass, DefaultStorageClass ----------------------------------
def add_default_tolerations(spec: JsonObject) -> None:
    """Let a pod stay on a node that is not ready, or cannot be reached, for five minutes."""
    tolerations = spec.get("tolerations") or []
    missing = [
        key for key in _NO_EXECUTE_KEYS if not any(_tolerates(each, key) for each in tolerations)
    ]
    if missing:
        spec["tolerations"] = [
            *tolerations,
            *(
                {
                    "key": key,
                    "operator": "Exists",
                    "effect": "NoExecute",
                    "tolerationSeconds": _TOLERATION_SECONDS,
                }
                for key in missing
            ),
        ]


def _tolerates(toleration: JsonObject, key: str) -> bool:
    names_key: bool = toleration.get("key", key) == key
    return names_key and toleration.get("effect", "NoExecute") == "NoExecute"


def give_runtime(spec: JsonObject, runtime_class: JsonObject | None) -> None:
    """Give a pod the overhead, node selector and tolerations of its RuntimeClass; None: no class.

    Raises:
        AdmissionError: the pod says something else.
    """
    overhead = ((runtime_class or _NOTHING).get("overhead") or _NOTHING).get("podFixed")
    if overhead is None:
        if spec.get("overhead"):
            raise AdmissionError(
                "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead"
            )
    elif spec.get("overhead", overhead) != overhead:
        raise AdmissionError(
            "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead"
        )
    else:
        spec["overhead"] = overhead
    scheduling = (runtime_class or _NOTHING).get("scheduling") or _NOTHING
    selector = dict(spec.get("nodeSelector") or {})
    for key, value in (scheduling.get("nodeSelector") or _NOTHING).items():
        if selector.setdefault(key, value) != value:
            raise AdmissionError(
                f"conflict: runtimeClass.scheduling.nodeSelector[{key}] = {value}; "
                f"pod.spec.nodeSelector[{key}] = {selector[key]}"
            )
    if selector:
        spec["nodeSelector"] = dict(sorted(selector.items()))
    own = spec.get("tolerations") or []
    added = [each for each in scheduling.get("tolerations") or () if each not in own]
    if added:
        spec["tolerations"] = [*own, *added]


def give_storage_class(claim: JsonObject, storage_classes: Iterable[JsonObject]) -> None:
    """Give a claim without a class the default class, if there is one."""
    annotations = claim["metadata"].get("annotations") or _NOTHING
    if claim["spec"].get("storageClassName") is not None or _OLD_STORAGE_CLASS in annotations:
        return
    if default := default_class(storage_classes, DEFAULT_STORAGE_CLASS):
        claim["spec"]["storageClassName"] = default


def default_class(classes: Iterable[JsonObject], mark: str) -> str:
    """The newest class with the mark, of several of one second the first by name; empty: none."""
    marked = [
        each
        for each in classes
        if (each["metadata"].get("annotations") or _NOTHING).get(mark) == "true"
    ]
    newest = max(
        _by_name(marked),
        key=lambda each: str(each["metadata"].get("creationTimestamp") or ""),
        default=None,
    )
    return "" if newest is None else str(newest["metadata"]["name"])


# --- files --------------------------------------------------------------------------------------
SPREAD_ACTIONS: Final = ("DoNotSchedule", "ScheduleAnyway")
NODE_POLICIES: Final = ("Honor", "Ignore")
_SUPPORTED_VALUES: Final[Mapping[str, Mapping[str, Sequence[str]]]] = {
    "taints": {"effect": TAINT_EFFECTS},
    "tolerations": {"operator": TOLERATION_OPERATORS, "effect": TAINT_EFFECTS},
    "topologySpreadConstraints": {
        "whenUnsatisfiable": SPREAD_ACTIONS,
        "nodeAffinityPolicy": NODE_POLICIES,
        "nodeTaintsPolicy": NODE_POLICIES,
    },
}
"""The texts that fields of a pod's or a node's spec may have, by the list that they are in. A
scheduler takes another text for one that it does not look at, so a misspelt one is silent."""


def check_values(spec: JsonObject) -> None:
    """Refuse a spec of a pod or a node with a value that the API server does not know.

    Raises:
        AdmissionError: it has one.
    """
    for parts, fields in _SUPPORTED_VALUES.items():
        for index, part in enumerate(spec.get(parts) or ()):
            for field, supported in fields.items():
                value = part.get(field)
                if value and value not in supported:
                    known = ", ".join(f'"{each}"' for each in supported)
                    raise AdmissionError(
                        f'spec.{parts}[{index}].{field}: Unsupported value: "{value}": '
                        f"supported values: {known}"
                    )


class Admission:
    """Admits pods and claims of files by the objects that stand in the files beside them.

    A file need not hold all of a cluster: a class that a pod names and that is not there changes
    nothing, where an API server would refuse the pod. What has a uid was admitted by a cluster.
    """

    def __init__(self, objects: Sequence[JsonObject] = (), namespace: str = "default") -> None:
        """`namespace`: of objects that name none."""
        self._namespace = namespace
        self._classes: dict[str, list[JsonObject]] = {kind: [] for kind in KINDS}
        self._limit_ranges: dict[str, list[JsonObject]] = {}
        """By namespace."""
        for obj in objects:
            metadata, kind = obj.get("metadata"), str(obj.get("kind"))
            if kind not in KINDS or not isinstance(metadata, dict) or not metadata.get("name"):
                continue
            if kind == LIMIT_RANGE:
                where = str(metadata.get("namespace") or namespace)
                self._limit_ranges.setdefault(where, []).append(obj)
            else:
                self._classes[kind].append(obj)

    def pod(self, pod: JsonObject) -> None:
        """Change a new pod, in the form of `decoder.decode`, as the API server would.

        Raises:
            ConfigurationError: the API server would refuse it, or what it is admitted by is
                malformed.
        """
        if not pod["metadata"].get("uid"):
            self._admit("pod", pod)

    def claim(self, claim: JsonObject) -> None:
        """Change a new PersistentVolumeClaim as the API server would.

        Raises:
            ConfigurationError: as for pods.
        """
        if not claim["metadata"].get("uid"):
            self._admit("claim", claim)

    def _admit(self, what: str, obj: JsonObject) -> None:
        metadata = obj["metadata"]
        namespace = str(metadata.get("namespace") or self._namespace)
        called = f"{what} {namespace}/{metadata.get('name') or 'without a name'}"
        try:
            ranges = self._limit_ranges.get(namespace, ())
            if what == "pod":
                check_values(obj["spec"])
                self._change_pod(obj, ranges)
            else:
                give_storage_class(obj, self._classes[STORAGE_CLASS])
            check_limits(obj, ranges, is_pod=what == "pod")
        except AdmissionError as error:
            message = f"the API server would refuse {called}: {error}"
            raise ConfigurationError(message) from error
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            kinds = f"{', '.join(sorted(KINDS - {STORAGE_CLASS}))} or {STORAGE_CLASS}"
            message = f"cannot admit {called}: a {kinds} is malformed: {error}"
            raise ConfigurationError(message) from error

    def _change_pod(self, pod: JsonObject, limit_ranges: Sequence[JsonObject]) -> None:
        """Let the plugins that change a new pod do so, in the API server's order."""
        spec = pod["spec"]
        give_default_limits(pod, limit_ranges)
        priority_class = chosen_priority_class(spec, self._classes[PRIORITY_CLASS])
        if priority_class is not None:
            give_priority(spec, priority_class)
        add_default_tolerations(spec)
        name = spec.get("runtimeClassName")
        classes = self._classes[RUNTIME_CLASS]
        runtime_class = next((each for each in classes if each["metadata"]["name"] == name), None)
        if name and runtime_class is not None:
            give_runtime(spec, runtime_class)
