"""`stellwerk doctor` on broken installations: what it says, asks the API for, and keeps back."""

import os
import re
import sys
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from unittest.mock import AsyncMock, patch

import orjson
import pytest
import yaml
from aiohttp import web

from stellwerk.models import unserved_pods
from stellwerk.profiles.spec.crd import crd_manifest
from stellwerk_cli.commands.diagnosis import checks
from stellwerk_cli.commands.diagnosis.survey import Survey
from stellwerk_cli.commands.port_arguments import IN_PLACE
from stellwerk_cli.demo.sandbox import open_sandbox
from stellwerk_cluster.apiserver.http import ApiServer
from stellwerk_cluster.apiserver.responses import Answer
from stellwerk_cluster.kubeconfig import KubeconfigFile
from stellwerk_kube.json_values import JsonObject
from tests.flows.broken_installations import (
    BROKEN,
    Site,
    condition,
    install,
    site,
    status_of,
    works,
)
from tests.support.builders import make_pod
from tests.support.kubectls import newest, program_of
from tests.support.processes import command, running
from tests.support.replicas import OWN_LEASE
from tests.support.repository import ROOT
from tests.support.rights import NAMESPACE, access_manifests, apply_access, token_of, with_token
from tests.support.running_operator import until
from tests.support.shell_steps import Command, sections, shell

STATIC = ROOT / "manifests" / "static-pod" / "stellwerk.yaml"
DOCUMENT = ROOT / "docs" / "doctor.md"
COLUMNS = 80


@pytest.fixture(autouse=True)
def _without_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "SECOND_LOOK_SECONDS", 0.05)
    monkeypatch.setattr(unserved_pods, "MIN_UNSERVED_SECONDS", 0.0)
    # No operator runs here, and no port is forwarded to one.
    monkeypatch.setenv("PATH", "")


async def doctor(on: Site, *arguments: str) -> tuple[int, str, str]:
    return await command("doctor", "--kubeconfig", str(on.kubeconfig), *arguments)


def rows() -> dict[str, list[str]]:
    """The table of the page: what was broken, and the lines that doctor printed."""
    text = DOCUMENT.read_text(encoding="utf-8")
    _, _, table = text.partition("| broken | it says | it advises |\n")
    found = {}
    for line in table.splitlines()[1:]:
        if not line.startswith("| "):
            break
        broken, said, advice = (each.strip() for each in line.strip("| ").split(" | "))
        found[broken] = [*re.findall(r"`([^`]+)`", said), *re.findall(r"`([^`]+)`", advice)]
    return found


def test_the_page_has_a_row_for_each_broken_installation() -> None:
    assert rows().keys() == BROKEN.keys()
    assert all(len(lines) > 1 for lines in rows().values())


async def test_the_page_can_be_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", os.defpath)
    stellwerk = Path(sys.executable).parent / "stellwerk"
    steps = [step for each in sections(DOCUMENT).values() for step in each]
    assert len(steps) > 3
    async with shell(tmp_path, {}, program_of(newest()), stellwerk) as opened:
        for step in steps:
            assert isinstance(step, Command)
            await opened.take(step)


@pytest.mark.parametrize("broken", BROKEN)
async def test_a_broken_installation_is_named_as_on_the_page(broken: str, tmp_path: Path) -> None:
    async with site(tmp_path) as prepared:
        await BROKEN[broken](prepared)
        status, printed, _ = await doctor(prepared, "-o", "wide", "--exit-code")
        told = rows().get(broken, [])
        for line in told:
            pattern = ".*".join(map(re.escape, re.sub(r"\s+", " ", line).split("…")))
            assert re.search(pattern, re.sub(r" +", " ", printed)), f"{line}\nis not in\n{printed}"
        is_failed = any(line.startswith("failed") for line in printed.splitlines())
        assert status == int(is_failed)
        assert is_failed or printed.count("\nwarning")


async def test_an_installation_that_works_has_nothing_failed(tmp_path: Path) -> None:
    async with site(tmp_path) as prepared:
        await works(prepared)
        status, printed, _ = await doctor(prepared, "-o", "json", "--exit-code")
        answer = orjson.loads(printed)
        by_check = {each["check"]: each["state"] for each in answer["items"]}
        assert (status, answer["kind"]) == (0, "DoctorReport")
        assert {check for check, state in by_check.items() if state != "ok"} == {"port"}


async def test_a_static_pod_is_the_operator_too(tmp_path: Path) -> None:
    async with site(tmp_path) as prepared:
        definition, access = crd_manifest(), access_manifests()
        prepared.create("customresourcedefinitions", "apiextensions.k8s.io", definition)
        apply_access(prepared.cluster, access)
        static: JsonObject = yaml.safe_load(STATIC.read_text())
        static["spec"]["nodeName"] = "node-1"
        prepared.create("pods", "", static)
        ready = [condition("Ready", "True")]
        prepared.report(static, {"phase": "Running", "conditions": ready})
        prepared.lease(IN_PLACE)
        prepared.profile("default-scheduler", {"schedulerName": "default-scheduler"})
        _, printed, _ = await doctor(prepared, "-o", "json")
    items = [(each["check"], each["state"]) for each in orjson.loads(printed)["items"]]
    assert ("operator", "ok") in items
    assert ("lease", "ok") in items
    assert ("operator's rights", "unknown") in items, "its user stands in a file of its node"
    assert not [check for check, state in items if state == "failed"]


async def test_a_sandbox_works(tmp_path: Path) -> None:
    async with open_sandbox(2, KubeconfigFile(tmp_path / "kubeconfig")) as sandbox:
        status, printed, _ = await command(
            *("doctor", "--kubeconfig", str(sandbox.kubeconfig), "--exit-code", "-o", "wide")
        )
    assert status == 0
    assert re.search(
        r"^ok +lease: stellwerk/stellwerk is held by .* a sandbox", printed, re.MULTILINE
    )
    assert re.search(r"^ok +port: the leader is ready", printed, re.MULTILINE)
    assert re.search(r"^ok +metrics: \d+ families can be read", printed, re.MULTILINE)
    assert re.search(r"^ok +operator: it has no pod in stellwerk", printed, re.MULTILINE)


async def test_lines_fit_80_columns_and_each_fault_has_its_advice(tmp_path: Path) -> None:
    async with site(tmp_path) as prepared:
        await BROKEN["the image cannot be pulled"](prepared)
        _, printed, _ = await doctor(prepared)
        assert max(map(len, printed.splitlines())) <= COLUMNS
        _, written, _ = await doctor(prepared, "-o", "json")
        items = orjson.loads(written)["items"]
        assert all(each["remedy"] for each in items if each["state"] == "failed")


async def test_a_cluster_that_does_not_answer_is_status_3(tmp_path: Path) -> None:
    async with site(tmp_path) as prepared:
        pass
    prepared.kubeconfig.write_text(
        "apiVersion: v1\nkind: Config\ncurrent-context: a\n"
        "clusters: [{name: a, cluster: {server: 'http://127.0.0.1:9'}}]\n"
        "contexts: [{name: a, context: {cluster: a, user: a}}]\nusers: [{name: a, user: {}}]\n"
    )
    status, printed, said = await doctor(prepared)
    assert (status, printed) == (3, "")
    assert "no usable Kubernetes API" in said


@contextmanager
def requests_noted() -> Iterator[set[tuple[str, str]]]:
    """Method and last words of the path of each request that the API server gets."""
    noted, handle = set[tuple[str, str]](), ApiServer.handle

    async def noting(self: ApiServer, request: web.BaseRequest) -> Answer:
        kind = "WATCH" if "watch" in request.query else request.method
        noted.add((kind, request.path.rpartition("/")[2]))
        return await handle(self, request)

    with patch.object(ApiServer, "handle", noting):
        yield noted


async def test_nothing_is_written_to_the_cluster(tmp_path: Path) -> None:
    with requests_noted() as noted:
        async with site(tmp_path) as prepared:
            await BROKEN["its role lacks a right"](prepared)
            status, _, said = await doctor(prepared, "--bundle", str(tmp_path / "b.tar.gz"))
    assert (status, said.partition(":")[0]) == (0, f"wrote {tmp_path / 'b.tar.gz'}")
    assert {method for method, _ in noted} == {"GET", "WATCH", "POST"}
    assert {what for method, what in noted if method == "WATCH"} == {"namespaces"}
    reviews = {what for method, what in noted if method == "POST"}
    assert reviews == {"selfsubjectaccessreviews", "subjectaccessreviews"}


async def test_what_the_caller_may_not_see_is_named_and_the_rest_goes_on(tmp_path: Path) -> None:
    async with site(tmp_path) as prepared:
        await works(prepared)
        guest = {"metadata": {"name": "guest", "namespace": NAMESPACE}}
        prepared.create("serviceaccounts", "", guest)
        token = token_of(prepared.cluster, "guest")
        prepared.kubeconfig.write_text(with_token(prepared.kubeconfig.read_text(), token))
        status, printed, _ = await doctor(prepared, "-o", "json")
        items = orjson.loads(printed)["items"]
        unknown = {each["check"]: each["what"] for each in items if each["state"] == "unknown"}
        assert status == 0
        assert "needs the right to list pods in namespace stellwerk" in unknown["operator"]
        assert "needs the right to list leases in namespace stellwerk" in unknown["lease"]
        assert "needs the right to list schedulerprofiles" in unknown["profiles"]
        assert "needs the right to list pods" in unknown["waiting pods"]
        assert {each["check"] for each in items if each["state"] == "failed"} == set()


async def test_a_lease_that_is_renewed_shows_that_another_scheduler_serves_the_pods(
    tmp_path: Path,
) -> None:
    async with site(tmp_path) as prepared:
        await BROKEN["pods name a scheduler that is not there"](prepared)
        renewed = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
        spec = {"holderIdentity": "a", "leaseDurationSeconds": 15, "renewTime": renewed}
        lease = {"metadata": {"name": "stelwerk", "namespace": "default"}, "spec": spec}
        prepared.create("leases", "coordination.k8s.io", lease)
        _, printed, _ = await doctor(prepared, "-o", "json")
        [found] = [
            each for each in orjson.loads(printed)["items"] if each["check"] == "waiting pods"
        ]
        assert found["state"] == "ok", found


SECRET = "hunter2PLANTEDk9Zq"


def planted(deployment: JsonObject) -> None:
    """Secrets where people put them: arguments, environment, annotations, labels' neighbours."""
    container = deployment["spec"]["template"]["spec"]["containers"][0]
    container["args"].append(f"--extender-allow=https://user:{SECRET}@extender.example/{SECRET}")
    container["env"].append({"name": "HTTPS_PROXY", "value": f"http://u:{SECRET}@proxy"})
    annotations = {
        "kubectl.kubernetes.io/last-applied-configuration": f'{{"password":"{SECRET}"}}',
        "token": SECRET,
    }
    for metadata in (deployment["metadata"], deployment["spec"]["template"]["metadata"]):
        metadata["annotations"] = annotations


async def test_a_bundle_holds_no_secret_of_the_cluster(tmp_path: Path) -> None:
    bundle, log = tmp_path / "bundle.tar.gz", tmp_path / "run.log"
    async with site(tmp_path) as prepared:
        install(prepared, change=planted)
        for pod in await prepared.bound_pods():
            message = f"Back-off pulling http://user:{SECRET}@registry.example/stellwerk"
            waiting = {"reason": "ImagePullBackOff", "message": message}
            prepared.report(pod, {"containerStatuses": [status_of(waiting=waiting)]})
        extender = {"urlPrefix": f"http://user:{SECRET}@127.0.0.1:9/{SECRET}", "ignorable": True}
        arguments = {"ignoredResources": [f"a.b/{SECRET}"]}
        hidden: JsonObject = {
            "extenders": [{**extender, "filterVerb": "filter"}],
            "pluginConfig": [{"name": "NodeResourcesFit", "args": arguments}],
        }
        prepared.profile(
            "refused",
            {"schedulerName": "refused", **hidden},
            condition("Accepted", "False", "Invalid", f"token {SECRET} is refused"),
            condition("Active", "False", "NotServing", SECRET),
            operator="another",
        )
        prepared.profile("packing", {"schedulerName": "packing", **hidden})
        prepared.profile("default", {"schedulerName": "stellwerk"})
        waiting_pod = make_pod("waits", scheduler_name="stellwerk", labels={"token": SECRET})
        waiting_pod["spec"]["nodeSelector"] = {"token": SECRET}
        del waiting_pod["metadata"]["uid"]
        prepared.create("pods", "", waiting_pod)
        operator = (
            "run",
            "--kubeconfig",
            str(prepared.kubeconfig),
            "--plain-http",
            "--leader-elect=true",
        )
        async with running(log, *operator, "--bind-address=127.0.0.1:0", *OWN_LEASE):
            await until(lambda: "serving packing, stellwerk with 2 nodes" in log.read_text())
            (url,) = set(re.findall(r"http://127\.0\.0\.1:\d+(?=$)", log.read_text(), re.MULTILINE))
            lines = [
                *log.read_text().splitlines(),
                f"2026-01-01 00:00:00,000 INFO    stellwerk.app: serving {SECRET} with 2 nodes",
                f"2026-01-01 00:00:00,000 ERROR   kopf: password={SECRET}",
                f"KeyError: '{SECRET}'",
                SECRET,
            ]
            with patch.object(Survey, "log", AsyncMock(return_value=lines)):
                status, printed, _ = await doctor(
                    prepared, "--url", url, "--bundle", str(bundle), "-o", "wide"
                )
            dumped, _, _ = await command(
                "dump", "--url", url, "--kubeconfig", str(prepared.kubeconfig), "--exit-code"
            )
    assert (status, dumped) == (0, 0)
    assert SECRET in printed, "messages are quoted for the one who may read them anyway"
    assert bundle.stat().st_mode & 0o777 == 0o600
    with tarfile.open(bundle) as archive:
        texts = {
            each.name.removeprefix("stellwerk-bundle/"): archive.extractfile(each).read().decode()  # type: ignore[union-attr]
            for each in archive
        }
    assert {name for name, text in texts.items() if SECRET.lower() in text.lower()} == set()
    assert {
        "diagnosis.json",
        "dump.txt",
        "metrics.txt",
        "pods.json",
        "profiles.json",
        "queue.json",
        "versions.json",
    } < texts.keys()
    assert "UNSCHEDULABLE, attempts" in texts["dump.txt"]
    assert "default/waits" in texts["queue.json"]
    assert 'scheduler_pending_pods{queue="unschedulable"} 1' in texts["metrics.txt"]
    logs = [text for name, text in texts.items() if name.startswith("log-")]
    assert all("stellwerk.app: serving … with 2 nodes" in text for text in logs)
    assert logs
