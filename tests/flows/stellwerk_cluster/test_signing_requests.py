"""CertificateSigningRequests are stored: selected by signer, approved, and never changed."""

from typing import Any

from stellwerk_cluster.apimachinery.kinds import ResourceKind
from stellwerk_kube.json_values import JsonObject
from tests.support.cluster_driver import Driver

SPEC = {"request": "eA==", "signerName": "example.com/mine", "usages": ["client auth"]}
KEY = ("", "r")


def requests() -> tuple[Driver, ResourceKind]:
    driver = Driver(controllers=False)
    kind = driver.api.kinds.resource("certificatesigningrequests", "certificates.k8s.io")
    driver.api.create(kind, "", {"metadata": {"name": "r"}, "spec": SPEC})
    return driver, kind


def patched(driver: Driver, kind: ResourceKind, subresource: str, **patch: Any) -> JsonObject:
    return driver.api.patch(kind, KEY, patch, subresource=subresource).obj


def test_the_signer_selects_them() -> None:
    _, kind = requests()
    assert "spec.signerName" in kind.fields


def test_an_approval_brings_conditions_and_metadata_and_nothing_else() -> None:
    driver, kind = requests()
    approved = {"type": "Approved", "status": "True", "reason": "r", "message": "m"}
    status = {"conditions": [approved], "certificate": "eA=="}
    metadata = {"annotations": {"a": "b"}}
    spec = {**SPEC, "signerName": "example.com/other"}
    obj = patched(driver, kind, "approval", status=status, metadata=metadata, spec=spec)
    assert obj["metadata"]["annotations"] == {"a": "b"}
    assert obj["spec"]["signerName"] == "example.com/mine"
    assert [each["type"] for each in obj["status"]["conditions"]] == ["Approved"]
    assert "certificate" not in obj["status"]


def test_a_status_brings_the_certificate() -> None:
    driver, kind = requests()
    obj = patched(driver, kind, "status", status={"certificate": "eA=="})
    assert obj["status"]["certificate"] == "eA=="


def test_an_update_changes_metadata_alone() -> None:
    driver, kind = requests()
    status = {"certificate": "eA=="}
    obj = patched(driver, kind, "", spec={"usages": ["server auth"]}, status=status)
    assert obj["spec"]["usages"] == ["client auth"]
    assert "certificate" not in (obj.get("status") or {})
