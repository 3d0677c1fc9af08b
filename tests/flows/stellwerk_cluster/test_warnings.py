"""Warnings come with refusals, too: what is decoded is warned of, whatever follows."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from stellwerk_cluster.cluster import ClusterOptions, EmbeddedCluster
from tests.support.served_cluster import send_for_headers, served

PODS = "/api/v1/namespaces/default/pods"
GEARS = "/apis/lab.example/v1/gears"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def version(name: str, field: str) -> dict[str, Any]:
    spec = {"type": "object", "properties": {field: {"type": "string"}}}
    return {
        "name": name,
        "served": True,
        "storage": name == "v1",
        "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}},
    }


SPEC: dict[str, Any] = {
    "group": "lab.example",
    "scope": "Cluster",
    "names": {"plural": "gears", "kind": "Gear"},
    "versions": [version("v1", "size"), version("v2", "teeth")],
}
DEFINITION = {"metadata": {"name": "gears.lab.example"}, "spec": SPEC}


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    options = ClusterOptions(controllers=False, kubelet=None, heartbeats=False)
    with served(EmbeddedCluster(0, options=options)) as cluster:
        assert post(cluster, DEFINITIONS, DEFINITION)[0] == 201
        yield cluster


def post(cluster: EmbeddedCluster, path: str, body: Any) -> tuple[int, str, list[str]]:
    content, kind = json.dumps(body).encode(), {"Content-Type": "application/json"}
    status, answer, headers = send_for_headers(cluster.url, "POST", path, content, kind)
    return status, json.loads(answer).get("message", ""), headers.get_all("Warning") or []


def gear(api_version: str, **spec: str) -> dict[str, Any]:
    return {"apiVersion": api_version, "kind": "Gear", "metadata": {"name": "g"}, "spec": spec}


def test_a_refused_pod_is_warned_of_its_unknown_fields(cluster: EmbeddedCluster) -> None:
    body = {"metadata": {"name": "p"}, "spec": {"containers": [], "speed": 3}}
    status, message, warnings = post(cluster, PODS, body)
    assert (status, warnings) == (422, ['299 - "unknown field \\"spec.speed\\""'])
    assert "spec.containers: Required value" in message


@pytest.mark.parametrize(
    ("body", "unknown"),
    [
        pytest.param(gear("lab.example/v2", size="2"), ["spec.size"], id="a version that is known"),
        pytest.param(gear("lab.example/v3", size="2"), ["spec"], id="a version that is not"),
        pytest.param(gear("other.example/v1", size="2", teeth="3"), [], id="another group"),
    ],
)
def test_a_body_is_read_by_the_version_that_it_names(
    cluster: EmbeddedCluster, body: dict[str, Any], unknown: list[str]
) -> None:
    status, message, warnings = post(cluster, GEARS, body)
    assert status == 400
    assert message == (
        f"the API version in the data ({body['apiVersion']}) does not match the expected API "
        "version (lab.example/v1)"
    )
    assert warnings == [f'299 - "unknown field \\"{path}\\""' for path in unknown]


def test_a_definition_says_that_no_webhook_converts_its_objects(cluster: EmbeddedCluster) -> None:
    client = {"url": "https://converter.example/"}
    webhook = {"conversionReviewVersions": ["v1"], "clientConfig": client}
    conversion = {"strategy": "Webhook", "webhook": webhook}
    names = {"plural": "wheels", "kind": "Wheel"}
    spec: dict[str, Any] = {**SPEC, "names": names, "conversion": conversion}
    body = {"metadata": {"name": "wheels.lab.example"}, "spec": spec}
    status, _, (warning,) = post(cluster, DEFINITIONS, body)
    assert status == 201
    assert "no conversion webhook is called" in warning
    assert 'version \\"v1\\" does not have are dropped' in warning
    only = {**spec, "names": {"plural": "cogs", "kind": "Cog"}, "versions": spec["versions"][:1]}
    body = {"metadata": {"name": "cogs.lab.example"}, "spec": only}
    assert post(cluster, DEFINITIONS, body) == (201, "", [])
