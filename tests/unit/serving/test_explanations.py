"""Explanations over HTTP: of the described shape, one at a time, from the leader alone."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest

from stellwerk.metrics import Metrics
from stellwerk.serving.explanations import ExplanationRoutes
from stellwerk.serving.exposition import exposition
from stellwerk.serving.http import HttpServer, Probes
from stellwerk.serving.openapi import SCHEMAS
from tests.support.builders import make_node, make_pod
from tests.support.in_process import InProcess, make_profile, quiet, running
from tests.support.json_schema import violations

TAINT = {"key": "dedicated", "value": "gpu", "effect": "NoSchedule"}


class Port:
    """The operator's port with a cluster behind it."""

    def __init__(self, url: str, world: InProcess, session: aiohttp.ClientSession) -> None:
        self.url = url
        self._session = session
        self.world = world
        self.leader: str | None = None

    async def get(self, path: str) -> tuple[int, Any]:
        async with self._session.get(self.url + path) as response:
            is_json = response.content_type == "application/json"
            return response.status, await (response.json() if is_json else response.text())

    async def post(self, path: str, body: Any) -> tuple[int, Any]:
        async with self._session.post(self.url + path, json=body) as response:
            is_json = response.content_type == "application/json"
            return response.status, await (response.json() if is_json else response.text())


@asynccontextmanager
async def port() -> AsyncIterator[Port]:
    async with running() as world, aiohttp.ClientSession() as session:
        answers = Port("", world, session)
        routes = ExplanationRoutes(world.operator.explanations, lambda: answers.leader)
        server = HttpServer(
            Probes(), lambda: exposition(Metrics()), lambda: iter(()), routes=routes.table
        )
        number = await server.start("127.0.0.1:0")
        answers.url = f"http://127.0.0.1:{number}"
        try:
            yield answers
        finally:
            await server.close()


async def two_nodes(answers: Port) -> None:
    """A free node, a tainted one, a bound pod, one that is too large, one of no profile."""
    world = answers.world
    world.apply(make_profile("stellwerk"))
    world.apply(make_node("small", cpu="2"), make_node("tainted", cpu="8", taints=[TAINT]))
    world.apply(make_pod("web", cpu="1", scheduler_name="stellwerk"))
    world.apply(make_pod("large", cpu="4", scheduler_name="stellwerk"))
    world.apply(make_pod("other", cpu="1", scheduler_name="stelwerk"))
    await quiet(100)


async def test_answers_have_the_described_shape() -> None:
    async with port() as answers:
        await two_nodes(answers)
        for path, schema in {
            "/explain/default/web": "Explanation",
            "/explain/default/large": "Explanation",
            "/queue": "Queue",
            "/queue/history": "QueueHistory",
            "/decisions": "Decisions",
            "/profiles": "Profiles",
            "/nodes": "Nodes",
        }.items():
            status, answer = await answers.get(path)
            assert (status, list(violations(answer, SCHEMAS[schema]))) == (200, []), path


async def test_the_document_describes_every_route() -> None:
    async with port() as answers:
        _, document = await answers.get("/openapi/v3")
        routes = ExplanationRoutes(answers.world.operator.explanations, lambda: None)
        paths = {(each.path, each.method.lower()) for each in routes.table}  # type: ignore[attr-defined]
        described = {
            (path, method) for path, methods in document["paths"].items() for method in methods
        }
        assert described == paths


async def test_a_bound_pod_shows_its_nodes_and_why_others_were_not() -> None:
    async with port() as answers:
        await two_nodes(answers)
        _, answer = await answers.get("/explain/default/web")
        decision = answer["decision"]
        assert (answer["state"], answer["node"]) == ("bound", "small")
        assert (decision["nodes"], decision["feasible"]) == (2, 1)
        assert decision["others"]["reasons"] == [
            {
                "plugin": "TaintToleration",
                "reasons": ["node(s) had untolerated taint(s)"],
                "nodes": 1,
            }
        ]


async def test_a_waiting_pod_shows_every_plugin_and_what_would_help() -> None:
    async with port() as answers:
        await two_nodes(answers)
        _, answer = await answers.get("/explain/default/large")
        assert answer["queue"]["queue"] == "unschedulablePods"
        assert {each["plugin"] for each in answer["verdicts"]["byPlugin"]} == {
            "NodeResourcesFit",
            "TaintToleration",
        }
        assert answer["wouldFit"][0]["text"] == "tolerate dedicated=gpu:NoSchedule → 1 node"
        events = {each["event"] for each in answer["queue"]["wokenBy"]}
        assert "NodeUpdateNodeTaint" in events


async def test_a_waiting_pod_shows_the_nodes_that_fewest_plugins_turn_away() -> None:
    async with port() as answers:
        await two_nodes(answers)
        _, answer = await answers.get("/explain/default/large")
        assert answer["verdicts"]["nearest"] == [
            {"node": "small", "rejectedBy": {"NodeResourcesFit": ["Insufficient cpu"]}},
            {
                "node": "tainted",
                "rejectedBy": {"TaintToleration": ["node(s) had untolerated taint(s)"]},
            },
        ]


async def test_decisions_are_listed_the_last_one_first() -> None:
    async with port() as answers:
        await two_nodes(answers)
        answers.world.apply(make_pod("second", cpu="1", scheduler_name="stellwerk"))
        await quiet(100)
        _, answer = await answers.get("/decisions?limit=1")
        assert (answer["total"], [each["pod"] for each in answer["items"]]) == (
            2,
            ["default/second"],
        )
        _, answer = await answers.get("/decisions?offset=1")
        assert [(each["pod"], each["node"]) for each in answer["items"]] == [
            ("default/web", "small")
        ]


async def test_profiles_show_the_conditions_of_their_objects() -> None:
    async with port() as answers:
        await two_nodes(answers)
        answers.world.apply(make_profile("broken", plugins={"score": {"enabled": [{"name": "X"}]}}))
        await quiet(100)
        _, answer = await answers.get("/profiles")
        conditions = {
            each["name"]: {it["type"]: it["status"] for it in each["conditions"]}
            for each in answer["objects"]
        }
        assert conditions == {
            "stellwerk": {"Accepted": "True", "Active": "True"},
            "broken": {"Accepted": "False", "Active": "False"},
        }


async def test_a_pod_of_no_profile_is_told_the_nearest_name() -> None:
    async with port() as answers:
        await two_nodes(answers)
        status, answer = await answers.get("/explain/default/other")
        assert (status, answer["state"], answer["nearest"]) == (200, "unserved", "stellwerk")


async def test_what_if_a_toleration_were_there_touches_nothing() -> None:
    async with port() as answers:
        await two_nodes(answers)
        pod = make_pod("large", cpu="4", scheduler_name="stellwerk", tolerations=[{**TAINT}])
        status, answer = await answers.post("/what-if", {"pod": pod})
        assert status == 200
        assert answer["placed"] == [{"pod": "default/large", "node": "tainted"}]
        assert list(violations(answer, SCHEMAS["WhatIf"])) == []
        assert answers.world.node_of("large") is None


async def test_what_if_nodes_were_added_or_drained() -> None:
    async with port() as answers:
        await two_nodes(answers)
        new = make_node("new", cpu="4")
        _, answer = await answers.post("/what-if", {"addNodes": [new], "count": 2})
        placed = [(each["pod"], each["node"].rpartition("-")[0]) for each in answer["placed"]]
        assert placed == [("default/large", "new")]
        _, answer = await answers.post("/what-if", {"drain": "small"})
        assert [each["pod"] for each in answer["unplaced"]] == ["default/web"]


@pytest.mark.parametrize(
    ("body", "status"),
    [
        pytest.param({"drain": "none"}, 422, id="a node that is not there"),
        pytest.param({"pods": []}, 400, id="a field that does not exist"),
        pytest.param({"addNodes": [{}], "count": 10_000}, 400, id="too many nodes"),
        pytest.param({"pod": {"spec": {}}}, 422, id="no pod"),
        pytest.param({"profile": {"spec": {"weights": 1}}}, 422, id="no profile"),
    ],
)
async def test_mistakes_are_answered_as_such(body: Any, status: int) -> None:
    async with port() as answers:
        await two_nodes(answers)
        got, _ = await answers.post("/what-if", body)
        assert got == status


async def test_a_standby_names_the_leader() -> None:
    async with port() as answers:
        answers.leader = "stellwerk-1_abc"
        status, answer = await answers.get("/queue")
        assert (status, answer["leader"]) == (503, "stellwerk-1_abc")


async def test_an_unknown_pod_is_not_found() -> None:
    async with port() as answers:
        assert (await answers.get("/explain/default/none"))[0] == 404


async def test_a_victim_and_its_preemptor_name_each_other() -> None:
    async with port() as answers:
        world = answers.world
        world.apply(make_profile("stellwerk"), make_node("a", cpu="2"))
        low = make_pod("low", cpu="2", priority=1, node_name="a", scheduler_name="stellwerk")
        world.apply(low)
        world.apply(make_pod("high", cpu="2", priority=9, scheduler_name="stellwerk"))
        await quiet(100)
        _, victim = await answers.get("/explain/default/low")
        assert victim["preempted"] | {"decidedAt": ""} == {
            "by": "default/high",
            "byPriority": 9,
            "priority": 1,
            "node": "a",
            "decidedAt": "",
        }
        assert list(violations(victim, SCHEMAS["Explanation"])) == []
        _, preemptor = await answers.get("/explain/default/high")
        if preemptor["state"] != "bound":
            assert preemptor["lastPreemption"]["victims"] == [{"pod": "default/low", "priority": 1}]
            assert list(violations(preemptor, SCHEMAS["Explanation"])) == []
