"""The counters of an API server, and the columns of `stellwerk bench` that come of them."""

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from stellwerk_cli.commands.bench_server_cost import cost_per_pod, counters_in, read_etcd
from stellwerk_cli.commands.bench_table import bench_lines
from stellwerk_kube.errors import ConfigurationError
from stellwerk_simulation.answers import BenchAnswer, BenchRun

EXPOSITION = """\
# HELP process_cpu_seconds_total CPU time.
process_cpu_seconds_total {cpu}
apiserver_request_total{{code="201",resource="pods",subresource="binding",verb="POST"}} {bindings}
apiserver_request_total{{code="201",resource="pods",subresource="",verb="POST"}} {bindings}
apiserver_request_total{{code="200",resource="leases",subresource="",verb="PUT"}} 3
apiserver_request_terminations_total{{code="504",resource="pods",subresource="",verb="POST"}} 9
apiserver_request_body_size_bytes_sum{{resource="pods",verb="create"}} {read}
apiserver_request_body_size_bytes_sum{{resource="events",verb="create"}} 1000
apiserver_watch_events_sizes_sum{{group="",resource="pods",version="v1"}} 4e+06
"""


def test_a_pods_cost_is_what_counters_have_grown_by() -> None:
    before = counters_in(EXPOSITION.format(cpu=10.5, bindings=7, read=500).splitlines())
    after = counters_in(EXPOSITION.format(cpu=12.5, bindings=1007, read=200500).splitlines())
    assert before.requests["PUT leases 200"] == 3
    assert before.watched_bytes == 4_000_000
    cost = cost_per_pod(before, after, 1000)
    assert cost.cpu_milliseconds == 2.0
    assert cost.requests == {"POST pods 201": 1.0, "POST pods/binding 201": 1.0}
    assert (cost.body_bytes, cost.watched_bytes) == (200, 0)


def test_a_text_without_such_counters_counts_nothing() -> None:
    assert counters_in(["# nothing", "", "go_goroutines 12"]).cpu_seconds == 0.0


def test_the_table_has_the_costs_of_servers_if_they_were_read() -> None:
    run = BenchRun(
        workload="basic",
        scheduler="stellwerk",
        pods=10,
        bound=10,
        api_server_cpu_milliseconds_per_pod=1.25,
        etcd_cpu_milliseconds_per_pod=0.5,
        requests_per_pod={"POST pods 201": 1.0, "POST events 201": 1.0, "GET nodes 200": 4.0},
    )
    answer = BenchAnswer(server_version="v1.36.2", embedded=False, nodes=5, runs=[run])
    head, row = bench_lines(answer)
    assert head[-3:] == ["API CPU ms/POD", "WRITES/POD", "ETCD CPU ms/POD"]
    assert row[-3:] == ["1.2", "1.0", "0.5"]


@pytest.mark.parametrize(
    ("text", "status", "reason"),
    [
        pytest.param("go_goroutines 1", 200, "has no process_cpu_seconds_total", id="no counters"),
        pytest.param("", 404, "Not Found", id="no such page"),
    ],
)
async def test_an_address_without_counters_of_etcd_is_refused(
    text: str, status: int, reason: str
) -> None:
    async def answer(_: web.Request) -> web.Response:
        return web.Response(text=text, status=status)

    app = web.Application()
    app.router.add_get("/metrics", answer)
    async with TestServer(app) as server:
        with pytest.raises(ConfigurationError, match=reason):
            await read_etcd(str(server.make_url("/metrics")))
