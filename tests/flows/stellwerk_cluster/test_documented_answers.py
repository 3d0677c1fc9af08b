"""Answers of the API that the documents describe: evictions, overhead, fields that are required."""

from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
import pytest
import yaml

from stellwerk_cluster.cluster import EmbeddedCluster
from stellwerk_kube.clock import VirtualClock
from stellwerk_kube.json_values import JsonObject
from tests.support.repository import ROOT
from tests.support.skipped_time import run_skipping_over_sockets

PODS = "/api/v1/namespaces/default/pods"
BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
Request = Callable[[str, str, JsonObject], Awaitable[tuple[int, JsonObject]]]


def play(story: Callable[[EmbeddedCluster, Request], Awaitable[None]]) -> None:
    """Tell a story of requests to a cluster of one node."""

    async def flow(clock: VirtualClock) -> None:
        cluster = EmbeddedCluster(1, clock=clock)
        async with cluster, aiohttp.ClientSession(cluster.url) as session:

            async def request(method: str, path: str, body: JsonObject) -> tuple[int, JsonObject]:
                async with session.request(method, path, json=body) as answer:
                    return answer.status, await answer.json()

            await story(cluster, request)

    run_skipping_over_sockets(flow)


def quux(**spec: Any) -> JsonObject:
    container = {"name": "c", "image": "registry.example/quux:1"}
    return {
        "metadata": {"name": "quux", "labels": {"app": "quux"}},
        "spec": {"nodeName": "node-1", "containers": [container], **spec},
    }


def budget(name: str) -> JsonObject:
    selector = {"matchLabels": {"app": "quux"}}
    return {"metadata": {"name": name}, "spec": {"minAvailable": 1, "selector": selector}}


def example(file: str) -> list[JsonObject]:
    """The objects of a file of docs/examples."""
    text = (ROOT / "docs" / "examples" / file).read_text(encoding="utf-8")
    return list(yaml.safe_load_all(text))


@pytest.mark.parametrize("file", ["eviction.json", "eviction-v1beta1.json"])
def test_an_eviction_answers_201_with_a_status_429_under_a_budget_and_500_under_two(
    file: str,
) -> None:
    (eviction,) = example(file)
    pod, first = example("eviction-quux.yaml")
    pod["spec"]["nodeName"] = "node-1"

    async def story(cluster: EmbeddedCluster, request: Request) -> None:
        await request("POST", PODS, pod)
        cluster.clock.advance(5)  # type: ignore[attr-defined]  # a virtual one
        cluster.work.settle()
        await request("POST", BUDGETS, first)
        cluster.work.settle()
        code, answer = await request("POST", f"{PODS}/quux/eviction", eviction)
        assert (code, answer["reason"]) == (429, "TooManyRequests")
        assert answer["details"]["causes"][0]["reason"] == "DisruptionBudget"
        await request("POST", BUDGETS, budget("two"))
        cluster.work.settle()
        code, answer = await request("POST", f"{PODS}/quux/eviction", eviction)
        assert (code, answer["status"]) == (500, "Failure")
        for name in ("quux", "two"):
            await request("DELETE", f"{BUDGETS}/{name}", {})
        code, answer = await request("POST", f"{PODS}/quux/eviction", eviction)
        assert (code, answer["kind"], answer["status"]) == (201, "Status", "Success")
        found = cluster.api.find("pods", "default", "quux") or {}
        assert found["metadata"]["deletionTimestamp"]

    play(story)


def test_a_stuck_eviction_ends_when_the_pod_is_deleted_directly() -> None:
    async def story(cluster: EmbeddedCluster, request: Request) -> None:
        await request("POST", PODS, quux())
        cluster.clock.advance(5)  # type: ignore[attr-defined]  # a virtual one
        cluster.work.settle()
        await request("POST", BUDGETS, budget("one"))
        cluster.work.settle()
        for _ in range(3):
            (eviction,) = example("eviction.json")
            code, _ = await request("POST", f"{PODS}/quux/eviction", eviction)
            assert code == 429
        code, _ = await request("DELETE", f"{PODS}/quux", {})
        assert code == 200

    play(story)


@pytest.mark.parametrize(
    ("overhead", "code"),
    [
        pytest.param({"cpu": "250m", "memory": "120Mi"}, 201, id="that of its class"),
        pytest.param({"cpu": "1"}, 403, id="another one"),
    ],
)
def test_a_preset_overhead_is_refused_only_where_it_differs_from_its_class(
    overhead: JsonObject, code: int
) -> None:
    async def story(_cluster: EmbeddedCluster, request: Request) -> None:
        runtime_class = {
            "metadata": {"name": "kata-fc"},
            "handler": "kata-fc",
            "overhead": {"podFixed": {"cpu": "250m", "memory": "120Mi"}},
        }
        await request("POST", "/apis/node.k8s.io/v1/runtimeclasses", runtime_class)
        pod = quux(runtimeClassName="kata-fc", overhead=overhead)
        assert (await request("POST", PODS, pod))[0] == code

    play(story)


SPREAD = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
SELECTOR = {"matchLabels": {"app": "quux"}}
TERM = {"topologyKey": "", "labelSelector": SELECTOR}
EMPTY_KEY = {
    "podAntiAffinity": {
        "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "podAffinityTerm": TERM}]
    }
}


@pytest.mark.parametrize(
    ("spec", "field", "message"),
    [
        pytest.param(
            {"affinity": EMPTY_KEY},
            "spec.affinity.podAntiAffinity.preferredDuringSchedulingIgnoredDuringExecution[0]"
            ".podAffinityTerm.topologyKey",
            "Required value: can not be empty",
            id="an empty topologyKey in a preferred anti-affinity",
        ),
        pytest.param(
            {"topologySpreadConstraints": [{**SPREAD, "whenUnsatisfiable": ""}]},
            "spec.topologySpreadConstraints[0].whenUnsatisfiable",
            'Unsupported value: ""',
            id="no whenUnsatisfiable",
        ),
        pytest.param(
            {"topologySpreadConstraints": [{**SPREAD, "matchLabelKeys": ["app"]}]},
            "spec.topologySpreadConstraints[0].matchLabelKeys",
            "Forbidden: must not be specified when labelSelector is not set",
            id="matchLabelKeys without a labelSelector",
        ),
    ],
)
def test_what_some_documents_leave_out_is_required(
    spec: JsonObject, field: str, message: str
) -> None:
    async def story(_cluster: EmbeddedCluster, request: Request) -> None:
        code, answer = await request("POST", PODS, quux(**spec))
        assert code == 422
        causes = [each for each in answer["details"]["causes"] if each["field"] == field]
        assert causes[0]["message"].startswith(message)

    play(story)


@pytest.mark.parametrize("left_out", ["whenUnsatisfiable", "topologyKey"])
def test_a_field_left_out_is_refused_as_an_empty_one_is(left_out: str) -> None:
    async def story(_cluster: EmbeddedCluster, request: Request) -> None:
        constraint = {name: value for name, value in SPREAD.items() if name != left_out}
        code, _ = await request("POST", PODS, quux(topologySpreadConstraints=[constraint]))
        assert code == 422

    play(story)
