"""Small cases with devices, in the form that `stellwerk decide` reads.

Tests of explanations build on them. Invariant: the first node, `a`, has all devices.
"""

from typing import Any

from stellwerk_kube.json_values import JsonObject
from tests.support.builders import make_node, make_pod

DRIVER = "gpu.example.com"


def device(name: str, model: str = "large", **fields: Any) -> JsonObject:
    attributes = {"model": {"string": model}, "group": {"int": int(name[-1]) // 2}}
    return {"name": name, "attributes": attributes, **fields}


def request(name: str = "r", count: int = 1, **fields: Any) -> JsonObject:
    asked = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": count}
    return {"name": name, "exactly": {**asked, **fields}}


def selecting(expression: str) -> JsonObject:
    return {"selectors": [{"cel": {"expression": expression}}]}


def claim(name: str, *requests: JsonObject, **devices: Any) -> JsonObject:
    metadata = {"name": name, "namespace": "default", "uid": name}
    return {"metadata": metadata, "spec": {"devices": {"requests": list(requests), **devices}}}


def held(name: str, *devices: str, by: str) -> JsonObject:
    """A claim that has devices of node `a`, reserved for a pod."""
    results = [{"request": "r", "driver": DRIVER, "pool": "a", "device": each} for each in devices]
    status = {
        "allocation": {"devices": {"results": results}},
        "reservedFor": [{"resource": "pods", "name": by, "uid": by}],
    }
    return {**claim(name, request(count=len(devices))), "status": status}


def case(*claims: JsonObject, devices: list[JsonObject], **fields: Any) -> JsonObject:
    """A pod with the first claim, and node `a` with these devices."""
    pool = {"name": "a", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": DRIVER, "nodeName": "a", "pool": pool, "devices": devices}
    selector = {"cel": {"expression": f'device.driver == "{DRIVER}"'}}
    name = claims[0]["metadata"]["name"]
    return {
        "id": "case",
        "nodes": [make_node("a"), make_node("b")],
        "pod": make_pod("p", resourceClaims=[{"name": "c", "resourceClaimName": name}]),
        "deviceclasses": [{"metadata": {"name": "gpu"}, "spec": {"selectors": [selector]}}],
        "resourceslices": [{"metadata": {"name": "a"}, "spec": spec}],
        "resourceclaims": list(claims),
        **fields,
    }
