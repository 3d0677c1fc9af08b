"""The figures of `bench_api_cost`: requests by kind, changes of a watch, medians of pairs."""

import struct

import orjson
import pytest

from stellwerk_cli.commands.bench_server_cost import counters_in
from stellwerk_cluster.apimachinery import protobuf
from stellwerk_kube.json_values import JsonObject
from tests.benchmarks.api_cost import Spent, figures_per_pod, requests_between
from tests.benchmarks.bench_api_cost import requests_table, table
from tests.benchmarks.pod_watch import PodChange, PodChanges

EXPOSITION = """\
# TYPE apiserver_request_total counter
apiserver_request_total{code="201",dry_run="",resource="pods",subresource="binding",verb="POST"} %d
apiserver_request_total{code="200",dry_run="",resource="pods",subresource="",verb="LIST"} %d
apiserver_request_total{code="200",dry_run="",resource="leases",subresource="",verb="PUT"} %d
apiserver_request_terminations_total{code="504",resource="pods",subresource="",verb="POST"} 9
"""


def test_lists_are_no_requests_of_a_pod_and_single_requests_are_left_out() -> None:
    before, after = (
        counters_in((EXPOSITION % of).splitlines()).requests for of in ((5, 1, 1), (2005, 4, 2))
    )
    assert requests_between(before, after, pods=2000) == {
        "requests_per_pod": {"POST pods/binding 201": 1.0},
        "lists_and_watches": {"LIST pods 200": 3},
    }


def test_what_was_spent_before_the_first_pod_is_in_no_figure() -> None:
    figures = figures_per_pod(Spent(10.0, 4.0, 1000, 5000), Spent(12.0, 4.5, 3000, 6000), pods=1000)
    assert figures == {
        "api_cpu_ms_per_pod": 2.0,
        "etcd_cpu_ms_per_pod": 0.5,
        "sent_bytes_per_pod": 2,
        "received_bytes_per_pod": 1,
    }


POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "pod-1", "namespace": "default", "resourceVersion": "77"},
    "spec": {"nodeName": "node-1"},
    "status": {"phase": "Pending"},
}


def field(number: int, content: bytes) -> bytes:
    assert len(content) < 128, "its length takes more than one byte"
    return bytes((number << 3 | 2, len(content))) + content


def frame(type_: str, obj: JsonObject) -> bytes:
    raw_extension = field(1, protobuf.write_body(obj["kind"], obj))
    content = field(1, type_.encode()) + field(2, raw_extension)
    return struct.pack(">I", len(content)) + content


@pytest.mark.parametrize(
    ("content_type", "stream"),
    [
        pytest.param(
            "application/json",
            b"".join(
                orjson.dumps({"type": type_, "object": POD}) + b"\n"
                for type_ in ("ADDED", "MODIFIED")
            ),
            id="json",
        ),
        pytest.param(
            "application/vnd.kubernetes.protobuf;stream=watch",
            frame("ADDED", POD) + frame("MODIFIED", POD),
            id="protobuf",
        ),
    ],
)
def test_changes_are_read_however_the_stream_is_cut(content_type: str, stream: bytes) -> None:
    changes = PodChanges(content_type)
    pieces = [stream[start : start + 7] for start in range(0, len(stream), 7)]
    assert [change for piece in pieces for change in changes.of(piece)] == [
        PodChange(type_, "pod-1", "node-1", "Pending", "77") for type_ in ("ADDED", "MODIFIED")
    ]


def test_the_ratio_of_a_table_is_the_median_of_ratios_within_pairs() -> None:
    pairs: list[tuple[JsonObject, JsonObject]] = [
        (
            {"api_cpu_ms_per_pod": a, "pass_ms": 1, "requests_per_pod": {"POST events 201": 1.0}},
            {"api_cpu_ms_per_pod": b, "pass_ms": slowdown, "requests_per_pod": {}},
        )
        for a, b, slowdown in ((2.0, 1.0, 1), (4.0, 3.0, 1), (1.0, 1.8, 2))
    ]
    *_, row = table([("basic", pairs)]).splitlines()
    assert row == ("| basic | kube-apiserver: CPU ms/pod | 2 | 1.8 | 0.50, 0.75, 0.90 | 0.75 |")
    *_, row = requests_table([("basic", pairs)]).splitlines()
    assert row == "| basic | POST events 201 | 1.00 | 0.00 |"
