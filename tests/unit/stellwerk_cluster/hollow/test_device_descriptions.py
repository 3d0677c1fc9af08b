"""Descriptions of devices: what becomes of placeholders, and how mistakes are named."""

import re
from pathlib import Path
from typing import Any

import pytest

from stellwerk_cli.embedded_cluster import kubelet_options, open_cluster
from stellwerk_cluster.hollow.device_descriptions import (
    READY,
    parse_description,
    read_description,
)
from stellwerk_kube.errors import ConfigurationError


def published(**fields: Any) -> Any:
    written = {"publish": [{"driver": "d.example.com", **fields}]}
    (found,) = parse_description(written, "file").published
    return found


def test_placeholders_make_devices_differ() -> None:
    device = {
        "count": 3,
        "name": "d-{index}-{index/2}-{index%2}",
        "attributes": {"node": {"string": "{node}"}, "number": {"int": "{index}"}},
    }
    (spec,) = published(devices=[device]).slices("n")
    assert [each["name"] for each in spec["devices"]] == ["d-0-0-0", "d-1-0-1", "d-2-1-0"]
    assert spec["devices"][2]["attributes"] == {"node": {"string": "n"}, "number": {"int": 2}}


def test_uuids_differ_and_stay_the_same_when_the_cluster_starts_again() -> None:
    device = {"count": 2, "name": "d-{index}", "attributes": {"uuid": {"string": "{uuid}"}}}
    first, again = (published(devices=[device]).slices("n") for _ in range(2))
    assert first == again
    uuids = {each["attributes"]["uuid"]["string"] for each in first[0]["devices"]}
    assert len(uuids) == 2


def test_many_devices_are_published_in_slices_of_one_pool() -> None:
    specs = published(devices=[{"count": 300, "name": "d-{index}"}]).slices("n")
    assert [len(each["devices"]) for each in specs] == [128, 128, 44]
    assert {each["pool"]["resourceSliceCount"] for each in specs} == {3}


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ([], "file: expected an object, found list"),
        ({"publsh": []}, "file: unknown field 'publsh'"),
        ({"publish": {}}, None),
        ({"publish": {"driver": "x"}}, "file: publish: expected a list"),
        ({"publish": [{}]}, "file: publish[0].driver: the name of a driver is required"),
        (
            {"publish": [{"driver": "x", "devices": [{"count": 2}]}]},
            "file: publish[0].devices[0].name: a name is required",
        ),
        (
            {"publish": [{"driver": "x", "devices": [{"name": "d", "count": 10**9}]}]},
            "file: publish[0].devices[0].count: 1000000000 is not 1 to 1024",
        ),
    ],
)
def test_a_mistake_is_named_with_file_and_place(content: Any, text: str | None) -> None:
    if text is None:
        assert parse_description(content, "file").published == []
        return
    with pytest.raises(ConfigurationError, match=re.escape(text)):
        parse_description(content, "file")


def test_what_the_api_refuses_is_said_of_the_flag(tmp_path: Path) -> None:
    file = tmp_path / "devices.yaml"
    file.write_text("publish: [{driver: d.example.com, devices: [{name: Not_A_Name}]}]")
    with pytest.raises(ConfigurationError, match=r"--devices: .*devices\[0\]\.name"):
        open_cluster(1, kubelet=kubelet_options(None, None, [str(file)]))


def test_an_unknown_name_lists_those_that_come_along() -> None:
    with pytest.raises(ConfigurationError, match="none of gpus, gpu-partitions, nics"):
        read_description("gpu")


@pytest.mark.parametrize("name", READY)
def test_what_comes_along_is_published(name: str) -> None:
    cluster = open_cluster(2, kubelet=kubelet_options(None, None, [name]))
    slices = list(cluster.api.all("resourceslices.resource.k8s.io", None))
    assert {each["spec"]["nodeName"] for each in slices} == {"node-1", "node-2"}
