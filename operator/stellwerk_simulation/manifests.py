"""Nodes and pods in Kubernetes' own words: files of manifests, and lists as kubectl prints them.

The command line reads them in place of a trace's CSV. Invariant: every object was parsed as the
scheduler parses it; what is wrong is one message with the file and the object.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from stellwerk.models.gpu import DEVICES, MODEL_LABEL, GpuRequest, gpu_request
from stellwerk.models.pod import parse_pod
from stellwerk_kube.admission import Admission
from stellwerk_kube.clock import parse_moment
from stellwerk_kube.errors import ConfigurationError
from stellwerk_kube.json_values import JsonObject
from stellwerk_kube.node import parse_node
from stellwerk_kube.resource_amounts import CPU, MEMORY
from stellwerk_kube.yaml_file import STANDARD_INPUT
from stellwerk_simulation.manifest_errors import made, some
from stellwerk_simulation.manifest_reader import counted
from stellwerk_simulation.pod_templates import is_written
from stellwerk_simulation.pod_templates import pods_of as pods_of_controller
from stellwerk_simulation.trace import Named, TraceNode, TracePod, since_the_first

ARRIVES: Final = "simulation.stellwerk.dev/arrives-seconds"
"""The annotation of a pod: when it comes; without it, creationTimestamp says so."""
RUNS: Final = "simulation.stellwerk.dev/runs-seconds"
"""The annotation of a pod: how long it runs; without it, for as long as the simulation."""
HOURLY_PRICE: Final = "simulation.stellwerk.dev/hourly-price"
"""The annotation of a node: what it costs while it is in use."""
SUFFIXES: Final = (".yaml", ".yml", ".json")
FINISHED: Final = frozenset({"Succeeded", "Failed"})
"""The phases of a pod that is over."""
_MIB: Final = 1 << 20
_MAX_PODS_OF_A_CONTROLLER: Final = 100_000
"""Pods that a controller in a manifest may ask for: each becomes an object of its own."""
_MAX_SECONDS: Final = 1e12
"""Longest time that a manifest may give: float64 is exact to a millisecond below it."""


def is_manifest_file(path: Path) -> bool:
    """Whether a file's name says that it holds manifests."""
    return path.suffix in SUFFIXES or str(path) == STANDARD_INPUT


def nodes_of(objects: Sequence[JsonObject], source: str) -> list[TraceNode]:
    """The nodes among objects, at least one.

    Raises:
        ConfigurationError: there is none, or one is wrong.
    """
    found = [made(node_of, obj, source) for obj in objects if obj.get("kind") == "Node"]
    return _each_once(some(found, source, f"Node{_beside(objects, found)}"), source, "Node")


def pods_of(
    objects: Sequence[JsonObject],
    source: str,
    nodes: Sequence[JsonObject] = (),
    beside: Sequence[JsonObject] = (),
) -> list[TracePod]:
    """The pods among objects that are not at their end, at least one, in the order of arrival.

    `nodes`: on which DaemonSets that were written have their pods, which come before all others;
    `beside`: objects of other sources by which pods are admitted, as by those among `objects`.

    Raises:
        ConfigurationError: there is none, or one is wrong.
    """
    admission = Admission([*objects, *beside])
    written = [each for obj in objects for each in _pods_of_written(obj, source, nodes, admission)]
    if beside:
        for each in written:
            if each.get("kind") == "Pod":
                admission.pod(each)
    found = [made(pod_of, obj, source) for obj in written if _is_staying_pod(obj)]
    found = _each_once(some(found, source, f"Pod{_beside(objects, found)}"), source, "Pod")
    return sorted(since_the_first(found), key=_arrival)


def _beside(objects: Sequence[JsonObject], found: Sequence[object]) -> str:
    """The kinds that are there where nothing of a kind was found, for the message that says so."""
    there = "" if found else counted(objects, frozenset())
    return f" beside {there}" if there else ""


def _arrival(pod: TracePod) -> tuple[float, bool, str]:
    return pod.arrives_seconds, not pod.of_daemon_set, pod.name


def any_pod(objects: Iterable[JsonObject]) -> bool:
    """Whether there is a pod among them that is not at its end, or a manifest that makes some."""
    return any(_is_staying_pod(obj) or is_written(obj) for obj in objects)


def _pods_of_written(
    obj: JsonObject, source: str, nodes: Sequence[JsonObject], admission: Admission
) -> list[JsonObject]:
    """The pods of a controller that was written; any other object as it is."""
    if not is_written(obj):
        return [obj]
    try:
        found = pods_of_controller(obj, "default", _MAX_PODS_OF_A_CONTROLLER, nodes, admission)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ConfigurationError(f"{source}: a {obj.get('kind')} is malformed: {error}") from error
    if len(found) > _MAX_PODS_OF_A_CONTROLLER:
        raise ConfigurationError(
            f"{source}: a {obj.get('kind')} of more than {_MAX_PODS_OF_A_CONTROLLER} pods"
        )
    return found


def _each_once(found: list[Named], source: str, kind: str) -> list[Named]:
    names: set[str] = set()
    for each in found:
        if each.name in names:
            raise ConfigurationError(f"{source}: {kind} {each.name} occurs twice")
        names.add(each.name)
    return found


def _is_staying_pod(obj: JsonObject) -> bool:
    """Whether it is a pod that has not finished and is not being deleted."""
    status, metadata = obj.get("status"), obj.get("metadata")
    finished = isinstance(status, dict) and status.get("phase") in FINISHED
    deleted = isinstance(metadata, dict) and "deletionTimestamp" in metadata
    return obj.get("kind") == "Pod" and not finished and not deleted


def node_of(obj: JsonObject) -> TraceNode:
    """The node of a manifest.

    Raises:
        ConfigurationError, KeyError, TypeError, ValueError, AttributeError: it is malformed.
    """
    status = obj.get("status") or {}
    if "allocatable" not in status and "capacity" in status:
        # As the API server does.
        obj = {**obj, "status": {**status, "allocatable": status["capacity"]}}
    node = parse_node(obj)
    labels = obj["metadata"].get("labels") or {}
    return TraceNode(
        node.name,
        node.allocatable.get(CPU, 0),
        node.allocatable.get(MEMORY, 0) // _MIB,
        node.allocatable.get(DEVICES, 0),
        labels.get(MODEL_LABEL, ""),
        _seconds(obj, HOURLY_PRICE) or 0.0,
        obj,
    )


def pod_of(obj: JsonObject) -> TracePod:
    """The pod of a manifest, as it was before it had a node.

    Raises:
        ConfigurationError, KeyError, TypeError, ValueError, AttributeError: it is malformed.
    """
    pod = parse_pod(obj)
    requests = pod.amounts.requests
    gpu = gpu_request(requests) or GpuRequest(0, 0)
    arrives = _seconds(obj, ARRIVES)
    if arrives is None:
        arrives = _created(obj["metadata"].get("creationTimestamp"))
    return TracePod(
        pod.key,
        requests.get(CPU, 0),
        requests.get(MEMORY, 0) // _MIB,
        gpu.devices,
        gpu.milli,
        (),
        arrives,
        _seconds(obj, RUNS),
        obj,
    )


def _created(timestamp: object) -> float:
    if not timestamp:
        return 0.0
    try:
        return parse_moment(timestamp).timestamp()
    except ValueError as error:
        text = f"{str(timestamp)[:40]!r} is not a time such as 2026-01-01T00:00:00Z"
        raise ConfigurationError(f"creationTimestamp: {text}") from error


def _seconds(obj: JsonObject, annotation: str) -> float | None:
    """A number from 0 on in an annotation; None: there is no such annotation."""
    text = (obj["metadata"].get("annotations") or {}).get(annotation)
    if text is None:
        return None
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number <= _MAX_SECONDS:
        raise ConfigurationError(f"annotation {annotation}: {text!r} is not a number from 0 on")
    return number
