"""Devices have one form, in whichever version they are read."""

from typing import Any

import pytest

from stellwerk.models.api_kinds import newest_form, own_form

EXACT = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 2}
ALTERNATIVES = [{"name": "a", "deviceClassName": "large"}, {"name": "b", "deviceClassName": "gpu"}]
STATUS: dict[str, Any] = {"allocation": {"devices": {"results": []}}}


def claim(version: str, *requests: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": f"resource.k8s.io/{version}",
        "metadata": {"name": "c"},
        "spec": {"devices": {"requests": list(requests), "constraints": [{"requests": ["r"]}]}},
        "status": STATUS,
    }


def of_devices(version: str, *devices: dict[str, Any]) -> dict[str, Any]:
    spec = {"driver": "d", "devices": list(devices)}
    return {"apiVersion": f"resource.k8s.io/{version}", "metadata": {"name": "s"}, "spec": spec}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param(
            claim("v1beta1", {"name": "r", **EXACT}),
            claim("v1beta1", {"name": "r", "exactly": EXACT}),
            id="a request",
        ),
        pytest.param(
            claim("v1beta1", {"name": "r", "firstAvailable": ALTERNATIVES}),
            claim("v1beta1", {"name": "r", "firstAvailable": ALTERNATIVES}),
            id="alternatives",
        ),
        pytest.param(
            of_devices("v1beta1", {"name": "g", "basic": {"attributes": {"a": {"int": 1}}}}),
            of_devices("v1beta1", {"name": "g", "attributes": {"a": {"int": 1}}}),
            id="a device",
        ),
        pytest.param(
            {"apiVersion": "resource.k8s.io/v1beta1", "metadata": {"name": "gone"}},
            {"apiVersion": "resource.k8s.io/v1beta1", "metadata": {"name": "gone"}},
            id="an object that is gone",
        ),
    ],
)
def test_an_old_form_is_read_as_the_newest_and_sent_as_it_was(
    old: dict[str, Any], new: dict[str, Any]
) -> None:
    assert newest_form(old) == new
    assert own_form(newest_form(old)) == old


def test_a_class_of_alternatives_that_is_empty_is_none() -> None:
    # As API servers of v1beta1 write a request that has alternatives.
    written = {"name": "r", "deviceClassName": "", "firstAvailable": ALTERNATIVES}
    read = newest_form(claim("v1beta1", written))
    assert read == claim("v1beta1", {"name": "r", "firstAvailable": ALTERNATIVES})


@pytest.mark.parametrize("version", ["v1", "v1beta2"])
def test_newer_versions_have_that_form_already(version: str) -> None:
    found = claim(version, {"name": "r", "exactly": EXACT})
    assert newest_form(found) is found
    assert own_form(found) is found
