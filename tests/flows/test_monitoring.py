"""What is shipped for monitoring, on what is really measured: rules, dashboard, scraping."""

import asyncio
import json
import re
import ssl
import subprocess
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import aiohttp
import yaml

from stellwerk.metrics import Metrics
from stellwerk.profiles.spec.crd import crd_manifest
from stellwerk.serving.exposition import exposition
from stellwerk_cluster.cluster import EmbeddedCluster
from stellwerk_cluster.identity.rbac import RBAC_GROUP
from tests.flows.prometheus import JOB, Prometheus, scraping
from tests.flows.test_least_privilege import (
    active,
    bound,
    create,
    create_pod,
    enforced,
    free_address,
    restricted_operator,
)
from tests.support.processes import until as until_async
from tests.support.repository import ROOT
from tests.support.rights import access_manifests, apply_access, token_of
from tests.support.running_operator import until

MONITORING = ROOT / "manifests" / "monitoring"
ALERTS = ROOT / "charts" / "stellwerk" / "monitoring" / "alerts.yaml"
RULES_TEST = ROOT / "tests" / "data" / "monitoring" / "rules_test.yaml"
RUNBOOK = ROOT / "docs" / "monitoring.md"
RUNNING_SECONDS = 60.0


def alerts() -> list[dict[str, str]]:
    (group,) = yaml.safe_load(ALERTS.read_text())["groups"]
    rules: list[dict[str, str]] = group["rules"]
    return rules


def queries() -> Iterator[tuple[str, str]]:
    """Title and expression of every query of the dashboard, its variables filled in."""
    for panel in json.loads((MONITORING / "dashboard.json").read_text())["panels"]:
        for target in panel.get("targets", ()):
            expression = target["expr"].replace("$job", JOB).replace("$__rate_interval", "30s")
            yield f"{panel['title']} {target['refId']}", expression


def promtool(program: str, *arguments: str | Path, stdin: bytes = b"") -> str:
    done = subprocess.run([program, *arguments], input=stdin, capture_output=True, check=False)
    assert done.returncode == 0, (done.stdout + done.stderr).decode()
    return (done.stdout + done.stderr).decode()


def names_in(expression: str) -> set[str]:
    return set(re.findall(r"\b(?:scheduler|stellwerk|rest_client|leader_election)_\w+", expression))


def exposed() -> set[str]:
    """Every name that /metrics can have, those of a histogram's parts included."""
    kinds = dict(re.findall(r"^# TYPE (\w+) (\w+)$", exposition(Metrics()).decode(), re.MULTILINE))
    parts = [f"{name}_{part}" for name, kind in kinds.items() if kind == "histogram"
             for part in ("bucket", "sum", "count")]  # fmt: skip
    return {*kinds, *parts}


def test_rules_of_the_operator_and_of_prometheus_are_the_same() -> None:
    rule = yaml.safe_load((MONITORING / "rules.yaml").read_text())
    assert rule["kind"] == "PrometheusRule"
    assert rule["spec"] == yaml.safe_load(ALERTS.read_text())


def test_the_dashboard_of_the_chart_is_that_of_the_manifests() -> None:
    in_chart = ALERTS.parent / "dashboard.json"
    assert in_chart.read_text() == (MONITORING / "dashboard.json").read_text()


def test_rules_and_dashboard_ask_for_what_is_exposed() -> None:
    asked = {name for alert in alerts() for name in names_in(alert["expr"])}
    asked |= {name for _, expression in queries() for name in names_in(expression)}
    assert asked - exposed() == set()


def test_every_alert_has_its_lines_in_the_runbook() -> None:
    sections = re.findall(r"^### (\w+)$", RUNBOOK.read_text(), re.MULTILINE)
    assert sections == [alert["alert"] for alert in alerts()]
    for alert in alerts():
        assert alert["annotations"]["runbook"] == f"docs/monitoring.md#{alert['alert'].lower()}"  # type: ignore[index]


def test_the_page_for_operators_names_every_alert_and_only_metrics_that_exist() -> None:
    page = (ROOT / "docs" / "operations.md").read_text()
    rows = re.findall(r"^\| \[(\w+)\]\(monitoring\.md#(\w+)\) \|", page, re.MULTILINE)
    assert rows == [(alert["alert"], alert["alert"].lower()) for alert in alerts()]
    signs = page.partition("## Signs, and what to do")[2].partition("\n## ")[0]
    assert {
        name for text in re.findall(r"`([^`]+)`", signs) for name in names_in(text)
    } <= exposed()


def test_promtool_accepts_and_tests_the_rules(
    require_tool: Callable[[str], str], tmp_path: Path
) -> None:
    program = require_tool("promtool")
    assert f"{len(alerts())} rules found" in promtool(program, "check", "rules", ALERTS)
    test = tmp_path / "test.yaml"
    test.write_text(RULES_TEST.read_text().replace("- ALERTS", f"- {ALERTS}"))
    assert "SUCCESS" in promtool(program, "test", "rules", test)


async def page(address: str, token: str, path: str) -> bytes:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    headers = {"Authorization": f"Bearer {token}"}
    url = f"https://{address}{path}"
    async with aiohttp.ClientSession() as session:
        async with session.get(f"https://{address}/readyz", ssl=context):
            pass
        async with session.get(url, headers=headers, ssl=context) as response:
            assert response.status == 200
            return await response.read()


async def without_data(prometheus: Prometheus) -> list[str]:
    """The queries of the dashboard that give nothing, or nothing but what is not a number."""
    empty = []
    for title, expression in queries():
        samples = await prometheus.query(expression)
        if all(sample["value"][1] == "NaN" for sample in samples):
            empty.append(f"{title}: {expression}")
    return empty


async def test_prometheus_reads_a_running_operator_and_every_query_has_data(
    require_tool: Callable[[str], str], tmp_path: Path
) -> None:
    program, checker = require_tool("prometheus"), require_tool("promtool")
    address = free_address()
    async with enforced() as cluster:
        token = apply_access(cluster, access_manifests())
        create(cluster, "customresourcedefinitions", crd_manifest(), "apiextensions.k8s.io")
        create(cluster, "serviceaccounts", {"metadata": {"name": JOB + "-m", "namespace": JOB}})
        subject = {"kind": "ServiceAccount", "name": JOB + "-m", "namespace": JOB}
        role = {"kind": "ClusterRole", "name": "stellwerk-metrics-reader"}
        binding = {"metadata": {"name": "monitoring"}, "roleRef": role, "subjects": [subject]}
        create(cluster, "clusterrolebindings", binding, RBAC_GROUP)
        reader = token_of(cluster, JOB + "-m")
        async with (
            restricted_operator(cluster, token, tmp_path, address),
            scraping(program, tmp_path / "prometheus", address, reader, ALERTS) as prometheus,
        ):
            await until_async(prometheus.ready)
            await until(lambda: active(cluster, "default"))
            for path in ("/metrics", "/metrics/resources", "/metrics/slis"):
                text = await page(address, reader, path)
                assert promtool(checker, "check", "metrics", stdin=text) == "", path
            await _all_queries_have_data(cluster, prometheus)
            assert await prometheus.query('ALERTS{alertstate="firing"}') == []
            (check,) = await prometheus.query('kubernetes_healthcheck{name="lists",type="readyz"}')
            assert check["value"][1] == "1"


async def _all_queries_have_data(cluster: EmbeddedCluster, prometheus: Prometheus) -> None:
    """Rates need work between two scrapes: pods come until every query shows some."""
    empty, number = [""], 0
    deadline = asyncio.get_running_loop().time() + RUNNING_SECONDS
    while empty and asyncio.get_running_loop().time() < deadline:
        number += 1
        name = f"web-{number}"
        create_pod(cluster, name, cpu="10m")
        create_pod(cluster, f"huge-{number}", cpu="1000")
        await until(partial(bound, cluster, name))
        await asyncio.sleep(0.5)
        empty = await without_data(prometheus)
    assert empty == []
