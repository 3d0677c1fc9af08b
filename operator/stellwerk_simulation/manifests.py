"""Nodes and pods in Kubernetes' own words: files of manifests, and lists as kubectl prints them.

The command line reads them in place of a trace's CSV. Invariant: every object was parsed as the
scheduler parses it; what is wrong is one message with the file and the object.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import yaml

from stellwerk.errors import ConfigurationError
from stellwerk.models.gpu import DEVICES, MODEL_LABEL, GpuRequest, gpu_request
from stellwerk.models.json_values import JsonObject
from stellwerk.models.node import parse_node
from stellwerk.models.pod import parse_pod
from stellwerk.models.pod_resources import CPU, MEMORY
from stellwerk_simulation.mistakes import Made, made
from stellwerk_simulation.trace import TraceNode, TracePod, read_pods

ARRIVES: Final = "simulation.stellwerk.dev/arrives-seconds"
"""The annotation of a pod: when it comes; without it, creationTimestamp says so."""
RUNS: Final = "simulation.stellwerk.dev/runs-seconds"
"""The annotation of a pod: how long it runs; without it, for as long as the simulation."""
HOURLY_PRICE: Final = "simulation.stellwerk.dev/hourly-price"
"""The annotation of a node."""
SUFFIXES: Final = (".yaml", ".yml", ".json")
_LARGEST_FILE: Final = 1 << 30
_FINISHED: Final = frozenset({"Succeeded", "Failed"})
_MIB: Final = 1 << 20
_MOST_SECONDS: Final = 1e12


def is_manifest_file(path: Path) -> bool:
    """Whether a file's name says that it holds manifests."""
    return path.suffix in SUFFIXES


def read_objects(path: Path) -> list[JsonObject]:
    """The objects in a file: one, several documents, or a List.

    Raises:
        ConfigurationError: the file cannot be read.
    """
    try:
        if path.stat().st_size > _LARGEST_FILE:
            raise ConfigurationError(f"cannot read {path}: more than {_LARGEST_FILE >> 20} MiB")
        text = path.read_text("utf-8")
        if path.suffix == ".json":
            documents: Iterable[Any] = [json.loads(text)]
        else:
            documents = list(yaml.load_all(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader)))
    except OSError as error:
        raise ConfigurationError(f"cannot read {path}: {error.strerror}") from error
    except json.JSONDecodeError as error:
        place = f"{path}, line {error.lineno}, column {error.colno}"
        raise ConfigurationError(f"{place}: not JSON: {error.msg}") from error
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        reason = " ".join(str(error).split())
        raise ConfigurationError(f"{path}: not YAML: {reason}") from error
    return [
        each for document in documents if document is not None for each in _flat(path, document)
    ]


def nodes_of(objects: Iterable[JsonObject], source: str) -> list[TraceNode]:
    """The nodes among objects, at least one.

    Raises:
        ConfigurationError: there is none, or one is wrong.
    """
    found = [made(_node, obj, source) for obj in objects if obj.get("kind") == "Node"]
    return _some(found, source, "Node")


def pods_in(path: Path) -> Sequence[TracePod]:
    """The pods of a file: CSV as traces are published, or manifests.

    Raises:
        ConfigurationError: the file cannot be used.
    """
    return pods_of(read_objects(path), str(path)) if is_manifest_file(path) else read_pods(path)


def pods_of(objects: Iterable[JsonObject], source: str) -> list[TracePod]:
    """The pods among objects that have not finished, at least one, in the order of their arrival.

    Raises:
        ConfigurationError: there is none, or one is wrong.
    """
    found = [
        made(_pod, obj, source)
        for obj in objects
        if obj.get("kind") == "Pod" and (obj.get("status") or {}).get("phase") not in _FINISHED
    ]
    first = min((pod.arrives_seconds for pod in _some(found, source, "Pod")), default=0.0)
    found = [replace(pod, arrives_seconds=pod.arrives_seconds - first) for pod in found]
    return sorted(found, key=lambda pod: (pod.arrives_seconds, pod.name))


def _flat(path: Path, document: object) -> Iterator[JsonObject]:
    if not isinstance(document, dict):
        raise ConfigurationError(f"{path}: a document is no object")
    if isinstance(document.get("items"), list):
        kind = str(document.get("kind", "")).removesuffix("List")
        for item in document["items"]:
            if not isinstance(item, dict):
                raise ConfigurationError(f"{path}: an item of a List is no object")
            yield {"kind": kind} | item
    else:
        yield document


def _some(found: list[Made], source: str, kind: str) -> list[Made]:
    if not found:
        raise ConfigurationError(f"{source}: there is no {kind}")
    return found


def _node(obj: JsonObject) -> TraceNode:
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


def _pod(obj: JsonObject) -> TracePod:
    pod = parse_pod(obj)
    requests = pod.amounts.requests
    gpu = gpu_request(requests) or GpuRequest(0, 0)
    arrives = _seconds(obj, ARRIVES)
    if arrives is None:
        created = obj["metadata"].get("creationTimestamp")
        arrives = datetime.fromisoformat(str(created)).timestamp() if created else 0.0
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


def _seconds(obj: JsonObject, annotation: str) -> float | None:
    """A number from 0 on in an annotation; None: there is no such annotation."""
    text = (obj["metadata"].get("annotations") or {}).get(annotation)
    if text is None:
        return None
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number <= _MOST_SECONDS:
        raise ConfigurationError(f"annotation {annotation}: {text!r} is not a number from 0 on")
    return number
