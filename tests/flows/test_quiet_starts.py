"""What a start writes to the log where the API server streams no lists, or makes a kind."""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from stellwerk_cluster.cluster import ClusterOptions, EmbeddedCluster
from stellwerk_cluster.faults.plan import FaultPlan
from stellwerk_cluster.faults.table import FaultTable
from stellwerk_kube.clock import SystemClock
from stellwerk_kube.json_values import JsonObject
from tests.support.builders import make_node
from tests.support.in_process import make_profile
from tests.support.rights import ENFORCED
from tests.support.running_operator import install, is_active, operator_on, until

ETCD_3_4 = (
    "a watch stream was requested by the client but the required storage feature "
    "RequestWatchProgress is disabled"
)
STORAGE = {
    "fault": "answer",
    "code": 429,
    "message": "storage is (re)initializing",
    "retryAfter": 1,
    "resources": ["schedulerprofiles"],
}


@asynccontextmanager
async def struck(fault: JsonObject) -> AsyncIterator[EmbeddedCluster]:
    plan = FaultPlan(FaultTable.model_validate({"faults": [fault]}), 1, SystemClock())
    options = ClusterOptions(
        controllers=False, kubelet=None, heartbeats=False, faults=plan, identity=ENFORCED
    )
    async with EmbeddedCluster([make_node("n1")], options=options) as cluster:
        plan.arm()
        yield cluster
        assert plan.struck.total(), "the test shows nothing"


def of_operator(records: list[logging.LogRecord]) -> list[str]:
    """The lines of the operator and of kopf, without those of the cluster."""
    return [
        f"{record.levelname} {record.getMessage()}"
        for record in records
        if record.name.startswith(("stellwerk.", "kopf"))
    ]


async def test_a_server_that_streams_no_lists_costs_one_line_in_all(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    fault = {"fault": "streamError", "ofLists": True, "message": ETCD_3_4}
    async with struck(fault) as cluster:
        install(cluster, make_profile("default-scheduler"))
        async with operator_on(cluster, tmp_path):
            await until(lambda: is_active(cluster, "default-scheduler"))
    lines = of_operator(caplog.records)
    assert [line for line in lines if "RequestWatchProgress" in line] == [
        line for line in lines if "the API server does not stream the list of " in line
    ]
    (told,) = [line for line in lines if "RequestWatchProgress" in line]
    assert told.startswith("INFO ")
    assert len(told) < 350
    assert [line for line in lines if line.startswith(("WARNING", "ERROR"))] == []


async def test_a_kind_whose_storage_is_being_made_is_waited_for(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    fault = {**STORAGE, "verbs": ["list", "watch"], "times": 2}
    async with struck(fault) as cluster:
        install(cluster, make_profile("default-scheduler"))
        async with operator_on(cluster, tmp_path):
            await until(lambda: is_active(cluster, "default-scheduler"))
    check_quiet(caplog)


async def test_a_kind_that_is_defined_later_is_taken_up_without_an_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its storage is asked for before it is watched, and still the watch comes too early."""
    caplog.set_level(logging.INFO)
    fault = {**STORAGE, "verbs": ["watch"], "times": 1}
    async with struck(fault) as cluster, operator_on(cluster, tmp_path):
        await until(lambda: "SchedulerProfile is not watched" in caplog.text)
        install(cluster, make_profile("default-scheduler"))
        await until(lambda: is_active(cluster, "default-scheduler"))
    check_quiet(caplog)


def check_quiet(caplog: pytest.LogCaptureFixture) -> None:
    """Nothing was said of storage, and nothing was an error."""
    assert [line for line in of_operator(caplog.records) if "initializing" in line] == []
    assert "ERROR" not in {record.levelname for record in caplog.records}
