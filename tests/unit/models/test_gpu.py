"""Requests for GPUs, and the annotation that names devices."""

import pytest

from stellwerk.models.gpu import (
    DEVICES,
    MILLI,
    GpuRequest,
    device_ids_text,
    gpu_request,
    parse_device_ids,
    refusal,
)
from stellwerk.models.pod import parse_pod
from tests.support.gpu_cluster import gpu_pod


@pytest.mark.parametrize(
    ("requests", "request_", "refused"),
    [
        ({}, None, False),
        ({MILLI: 460}, GpuRequest(1, 460), False),
        ({MILLI: 1000}, GpuRequest(1, 1000), False),
        ({MILLI: 3000}, GpuRequest(3, 1000), False),
        ({DEVICES: 8}, GpuRequest(8, 1000), False),
        ({MILLI: 1500}, None, True),
        ({MILLI: 460, DEVICES: 1}, None, True),
    ],
)
def test_a_request_is_a_share_or_whole_devices(
    requests: dict[str, int], request_: GpuRequest | None, *, refused: bool
) -> None:
    assert gpu_request(requests) == request_
    assert bool(refusal(requests)) == refused


@pytest.mark.parametrize("numbers", [(), (0,), (2, 3), (0, 1, 2, 3, 4, 5, 6, 7)])
def test_device_ids_are_read_as_they_are_written(numbers: tuple[int, ...]) -> None:
    assert parse_device_ids(device_ids_text(numbers)) == numbers


@pytest.mark.parametrize("text", ["x", "1,", "-1", "1.5", "99999", ",".join(["0"] * 5000)])
def test_an_annotation_that_is_malformed_names_no_device(text: str) -> None:
    assert parse_device_ids(text) == ()


def test_only_a_pod_on_a_node_has_devices() -> None:
    assert parse_pod(gpu_pod("bound", devices=2, on="n", ids="1,3")).gpu_devices == (1, 3)
    assert parse_pod(gpu_pod("waits", devices=2, ids="1,3")).gpu_devices == ()
