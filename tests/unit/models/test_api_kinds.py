"""Kinds have one form, in whichever version they are read; a later version needs one word."""

from dataclasses import replace
from typing import Any

import pytest

from stellwerk.models.api_kinds import API_KINDS, chosen_version, newest_form, own_form
from stellwerk.models.compatibility import Release, release_named, release_of_server
from stellwerk.models.pod_group import POD_GROUP_INITIALLY_SCHEDULED, parse_pod_group

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


def test_a_version_to_come_is_one_more_word_in_the_row() -> None:
    """As v1 of PodGroup will be in 1.38: chosen before v1beta1, read and written as that is."""
    row = API_KINDS["PodGroup"]
    served = dict.fromkeys(("v1", "v1beta1"), ("podgroups",))
    assert chosen_version(row.plural, row.versions, served) == "v1beta1"
    assert chosen_version(row.plural, ("v1", *row.versions), served) == "v1"
    spec = {"schedulingPolicy": {"gang": {"minCount": 2}}, "disruptionMode": {"all": {}}}
    metadata = {"name": "g", "namespace": "default", "uid": "u"}
    groups = [
        parse_pod_group(
            {"apiVersion": f"{row.group}/{version}", "metadata": metadata, "spec": spec}
        )
        for version in ("v1beta1", "v1")
    ]
    assert {each.scheduled_type for each in groups} == {POD_GROUP_INITIALLY_SCHEDULED}
    assert [each.version for each in groups] == ["v1beta1", "v1"]
    assert replace(groups[1], version="v1beta1") == groups[0]


def test_a_release_to_come_is_followed_as_the_newest_that_is_known() -> None:
    newest = max(Release)
    assert release_of_server(f"v1.{newest + 1}.3") == release_named(str(newest))
