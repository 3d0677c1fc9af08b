"""Nodes and pods with GPUs, and the trace of the published experiment where it lies beside."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import pytest

from stellwerk.backend.cache import Cache
from stellwerk.models.gpu import DEVICE_IDS, DEVICES, MILLI, MODEL_LABEL
from stellwerk.models.pod import PodInfo, parse_pod
from stellwerk.plugins.gpu.node_gpus import GpuDevices
from stellwerk_kube.json_values import JsonObject
from tests.support.builders import make_cache, make_node, make_pod
from tests.support.repository import ROOT

TRACES: Final = ROOT.parent / "shared" / "traces"


def trace_file(name: str) -> Path:
    """A file of the published traces; the test skips where they are not beside this clone."""
    path = TRACES / name
    if not path.exists():
        pytest.skip(f"the trace is not beside this clone: {path}")
    return path


def gpu_node(name: str, devices: int, *, cpu: str = "96", model: str = "") -> JsonObject:
    """A node with so many devices."""
    offer = {DEVICES: str(devices), MILLI: str(1000 * devices)} if devices else {}
    labels = {MODEL_LABEL: model} if model else {}
    return make_node(name, cpu=cpu, memory="1Ti", allocatable=offer, labels=labels)


def gpu_pod(
    name: str,
    *,
    milli: int = 0,
    devices: int = 0,
    cpu: str = "1",
    on: str = "",
    ids: str = "",
) -> JsonObject:
    """A pod that asks for a share of a device or for whole ones."""
    requests = {MILLI: str(milli)} if milli else {}
    requests |= {DEVICES: str(devices)} if devices else {}
    pod: dict[str, Any] = make_pod(name, cpu=cpu, requests=requests, node_name=on or None)
    if ids:
        pod["metadata"].setdefault("annotations", {})[DEVICE_IDS] = ids
    return pod


def gpu_pod_info(name: str, **fields: Any) -> PodInfo:
    """The same, parsed."""
    return parse_pod(gpu_pod(name, **fields))


def gpu_cache(nodes: Iterable[JsonObject], pods: Iterable[JsonObject] = ()) -> Cache:
    """A cache whose snapshot keeps the account of devices."""
    cache = make_cache(nodes, pods)
    cache.snapshot.book(GpuDevices)
    cache.update_snapshot()
    return cache
