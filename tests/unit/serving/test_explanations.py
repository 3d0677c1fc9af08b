"""Explanations over HTTP: of the described shape, one at a time, from the leader alone."""

import asyncio
from collections import Counter
from functools import cache
from typing import Any

import pytest

from stellwerk.explain.lists import nodes
from stellwerk.framework.watch_handlers import Lack
from stellwerk.serving.explanations import ExplanationRoutes, FairLock
from stellwerk.serving.openapi import openapi_document
from stellwerk.world.decide import decide
from stellwerk_kube.json_values import JsonObject
from stellwerk_simulation.cases.decide import Case
from tests.support.builders import make_node, make_pod, owned
from tests.support.device_cases import device, held
from tests.support.explaining_port import TAINT, explaining_port, two_nodes, with_devices
from tests.support.findings import hold
from tests.support.in_process import eventually, make_profile, quiet
from tests.support.json_schema import violations
from tests.support.scripted_plugins import installed


@cache
def schemas() -> JsonObject:
    """Those of the document; describing every answer takes a second."""
    described: JsonObject = openapi_document()["components"]["schemas"]
    return described


async def test_answers_have_the_described_shape() -> None:
    async with explaining_port() as answers:
        await two_nodes(answers)
        with_devices(answers, held("used", "gpu-0", by="web"), devices=[device("gpu-0")])
        for path, schema in {
            "/explain/devices?explain=gpu.example.com/a/gpu-0": "DeviceExplanation",
            "/explain/default/resourceclaims/used": "ClaimExplanation",
            "/explain/default/web": "PodExplanation",
            "/explain/default/large": "PodExplanation",
            "/queue": "QueuePage",
            "/queue/history": "QueueHistoryPage",
            "/decisions": "DecisionsPage",
            "/observed": "ObservedPage",
            "/profiles": "ProfilesPage",
            "/nodes": "NodesPage",
            "/nodes?totals=yes": "NodesPage",
            "/explain/devices": "DevicesPage",
            "/explain/default/owners/ReplicaSet/web": "OwnedPods",
            "/debug/dump": "CacheDump",
        }.items():
            status, answer = await answers.get(path)
            assert (status, list(violations(answer, schemas()[schema], schemas()))) == (200, []), (
                path
            )


async def test_the_document_describes_every_route() -> None:
    async with explaining_port() as answers:
        _, document = await answers.get("/openapi/v3")
        operator = answers.world.operator
        routes = ExplanationRoutes(operator.explanations, lambda: None, operator.debugger)
        paths = {(each.path, each.method.lower()) for each in routes.table}  # type: ignore[attr-defined]
        described = {
            (path, method) for path, methods in document["paths"].items() for method in methods
        }
        assert described == paths


async def test_a_standby_dumps_its_own_cache() -> None:
    async with explaining_port() as answers:
        await two_nodes(answers)
        answers.leader = "another"
        assert (await answers.get("/queue"))[0] == 503
        status, dump = await answers.get("/debug/dump")
        assert (status, dump["compared"]) == (200, True)
        assert any(line.startswith("node small: ") for line in dump["items"])


async def test_a_bound_pod_shows_its_nodes_and_why_others_were_not() -> None:
    async with explaining_port() as answers:
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
    async with explaining_port() as answers:
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
    async with explaining_port() as answers:
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
    async with explaining_port() as answers:
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
    async with explaining_port() as answers:
        await two_nodes(answers)
        answers.world.apply(make_profile("broken", plugins={"score": {"enabled": [{"name": "X"}]}}))
        await quiet(100)
        _, answer = await answers.get("/profiles")
        conditions = {
            each["name"]: {it["type"]: it["status"] for it in each["conditions"]}
            for each in answer["objects"]
        }
        assert conditions == {
            "stellwerk": {"Accepted": "True", "Active": "True", "Ready": "True"},
            "broken": {
                "Accepted": "False",
                "Active": "False",
                "Ready": "False",
                "Stalled": "True",
            },
        }


async def test_profiles_say_which_api_server_there_is_and_what_of_it_is_read() -> None:
    async with explaining_port() as answers:
        operator = answers.world.operator
        operator.handlers.world.profiles.server_version = "v1.37.1"
        for kind, lack in (("PodGroup", Lack("not served")), ("ResourceClaim", Lack("no right"))):
            operator.handlers.on_lack(kind, lack)
        operator.handlers.on_lack("ResourceClaim", None)
        operator.handlers.on_version("ResourceClaim", "resource.k8s.io/v1")
        operator.handlers.on_version("ResourceSlice", "resource.k8s.io/v1")
        operator.handlers.on_lack("ResourceSlice", Lack("gone"))
        _, answer = await answers.get("/profiles")
        assert list(violations(answer, schemas()["ProfilesPage"], schemas())) == []
        assert answer["apiServer"] == {
            "version": "v1.37.1",
            "compatibility": "1.36.2",
            "versionsInUse": {"ResourceClaim": "resource.k8s.io/v1"},
            "off": {
                "PodGroup": "not served: pods that name a group wait, and say so",
                "ResourceSlice": "gone: pods with claims wait",
            },
        }


async def test_a_cleared_nomination_names_the_pod_that_took_the_place() -> None:
    async with explaining_port() as answers:
        world = answers.world
        world.apply(make_profile("stellwerk"), make_node("a", cpu="1"))
        waiting = make_pod("new", cpu="4", priority=9, scheduler_name="stellwerk")
        world.apply(waiting)
        await quiet(100)
        explanations, now = world.operator.explanations, world.clock.monotonic
        occupied = make_pod("low", cpu="1", priority=1, node_name="a")
        case = {"id": "p", "nodes": [make_node("a", cpu="1")], "pods": [occupied]}
        preempting = Case(case | {"pod": make_pod("new", cpu="1", priority=9)})
        decision = decide(preempting.world, preempting.pod, preempting.profile)
        explanations.evictions.keep(decision, "2026-01-01T00:00:00Z", now())
        for name, priority in (("lower", 3), ("taker", 10)):
            taking = Case(case | {"pods": [], "pod": make_pod(name, cpu="1", priority=priority)})
            taken = decide(taking.world, taking.pod, taking.profile)
            explanations.records.keep(taken, 1, now() + 1)
        _, answer = await answers.get("/explain/default/new")
        assert list(violations(answer, schemas()["PodExplanation"], schemas())) == []
        (taker,) = answer["lastPreemption"]["tookPlace"]
        assert (taker["pod"], taker["priority"], taker["bound"]) == ("default/taker", 10, True)


async def test_a_pod_of_no_profile_is_told_the_nearest_name() -> None:
    async with explaining_port() as answers:
        await two_nodes(answers)
        status, answer = await answers.get("/explain/default/other")
        assert (status, answer["state"], answer["nearest"]) == (200, "unserved", "stellwerk")


async def test_what_if_a_toleration_were_there_touches_nothing() -> None:
    async with explaining_port() as answers:
        await two_nodes(answers)
        pod = make_pod("large", cpu="4", scheduler_name="stellwerk", tolerations=[{**TAINT}])
        status, answer = await answers.post("/what-if", {"pod": pod})
        assert status == 200
        assert answer["placed"] == [{"pod": "default/large", "node": "tainted"}]
        assert list(violations(answer, schemas()["WhatIf"], schemas())) == []
        assert answers.world.node_of("large") is None


async def test_what_if_nodes_were_added_or_drained() -> None:
    async with explaining_port() as answers:
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
        pytest.param({"podz": []}, 400, id="a field that does not exist"),
        pytest.param({"addNodes": [{}], "count": 10_000}, 400, id="too many nodes"),
        pytest.param({"pod": {"spec": {}}}, 422, id="no pod"),
        pytest.param({"profile": {"spec": {"weights": 1}}}, 422, id="no profile"),
    ],
)
async def test_mistakes_are_answered_as_such(body: Any, status: int) -> None:
    async with explaining_port() as answers:
        await two_nodes(answers)
        got, _ = await answers.post("/what-if", body)
        assert got == status


CONTAINER = {"name": "c", "image": "x"}


@pytest.mark.parametrize(
    ("body", "said"),
    [
        pytest.param(
            {"pod": {"metadata": {"name": "t"}, "spec": {"nodeselector": {}, "containers": []}}},
            'pod: unknown field "spec.nodeselector"; did you mean "nodeSelector"?',
            id="of a pod",
        ),
        pytest.param(
            {
                "pods": [
                    {"spec": {"containers": [{**CONTAINER, "resource": {"requests": {"cpu": 9}}}]}}
                ]
            },
            'pods[0]: unknown field "spec.containers[0].resource"; did you mean "resources"?',
            id="of a container",
        ),
        pytest.param(
            {"addNodes": [{"spec": {"taint": []}}]},
            'addNodes[0]: unknown field "spec.taint"; did you mean "taints"?',
            id="of a node",
        ),
        pytest.param(
            {"profile": {"metadata": {"name": "p"}, "specs": {}}},
            'profile: unknown field "specs"; did you mean "spec"?',
            id="of a profile",
        ),
        pytest.param(
            {"pod": {"kind": "Deployment", "spec": {}}},
            "pod: a Pod is expected, this is a Deployment",
            id="another kind",
        ),
        pytest.param(
            {"pod": {"spec": {"nodeSelector": {"a": True}}}},
            "pod: spec.nodeSelector.a: a text is expected",
            id="another type",
        ),
        pytest.param({"podz": []}, 'unknown field "podz"; expected an object with', id="itself"),
        pytest.param(
            {"addNodes": [{}], "count": -1}, "count a number from 1 to 1000", id="a number"
        ),
    ],
)
async def test_what_kubernetes_does_not_know_is_refused_by_its_path(body: Any, said: str) -> None:
    async with explaining_port() as answers:
        await two_nodes(answers)
        status, answer = await answers.post("/what-if", body)
        assert status == 400
        assert said in answer


async def test_a_standby_names_the_leader() -> None:
    async with explaining_port() as answers:
        answers.leader = "stellwerk-1_abc"
        status, answer = await answers.get("/queue")
        assert (status, answer["leader"]) == (503, "stellwerk-1_abc")


async def test_an_unknown_pod_is_not_found() -> None:
    async with explaining_port() as answers:
        assert (await answers.get("/explain/default/none"))[0] == 404


async def test_a_victim_and_its_preemptor_name_each_other() -> None:
    async with explaining_port() as answers:
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
        assert list(violations(victim, schemas()["PodExplanation"], schemas())) == []
        _, preemptor = await answers.get("/explain/default/high")
        if preemptor["state"] != "bound":
            assert preemptor["lastPreemption"]["victims"] == [{"pod": "default/low", "priority": 1}]
            assert list(violations(preemptor, schemas()["PodExplanation"], schemas())) == []


async def test_the_queue_says_which_plugin_raised() -> None:
    with installed() as script:

        def broken(*_: object) -> None:
            raise RuntimeError("no table")

        script.answers["First.filter"] = broken
        async with explaining_port() as answers:
            plugins = {"filter": {"enabled": [{"name": "First"}]}}
            answers.world.apply(make_profile("stellwerk", plugins=plugins), make_node("n"))
            answers.world.apply(make_pod("p", scheduler_name="stellwerk"))
            await eventually(lambda: answers.world.condition("p") is not None)
            _, answer = await answers.get("/queue")
            [found] = answer["items"]
            assert 'Filter plugin "First"' in found["error"]
            assert "rejectedBy" not in found


async def test_a_long_list_is_the_same_written_a_few_items_at_a_time() -> None:
    async with explaining_port() as answers:
        answers.world.apply(make_profile("stellwerk"))
        answers.world.apply(*(make_node(f"n{number}") for number in range(450)))
        # A decision writes the snapshot, from which nodes are listed.
        answers.world.apply(make_pod("web", cpu="1", scheduler_name="stellwerk"))
        await quiet(100)
        _, whole = await answers.get("/nodes?limit=500")
        _, part = await answers.get("/nodes?limit=150&offset=300")
    assert [each["name"] for each in whole["items"]] == [f"n{number}" for number in range(450)]
    assert whole["items"][300:] == part["items"]
    assert list(violations(whole, schemas()["NodesPage"], schemas())) == []


async def test_nodes_are_found_by_name_and_label_and_put_in_an_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with explaining_port() as answers:
        for number in (10, 9, 2):
            labels = {"zone": "a" if number > 5 else "b"}
            answers.world.apply(make_node(f"node-{number}", labels=labels))
        answers.world.apply(make_node("other", labels={"gpu": ""}))
        answers.world.cache.update_snapshot()

        async def names(query: str) -> list[str]:
            status, found = await answers.get(f"/nodes?{query}")
            assert status == 200
            assert found["total"] == len(found["items"]) or "limit" in query
            return [each["name"] for each in found["items"]]

        assert await names("sort=name") == ["node-2", "node-9", "node-10", "other"]
        assert await names("q=node&sort=name&limit=1&offset=2") == ["node-10"]
        assert await names("label=zone%3Da") == ["node-10", "node-9"]
        assert await names("label=gpu") == ["other"]
        assert await names("q=node-9") == ["node-9"]
        assert await names("label=zone%3Dc") == []
        bound = make_pod("web", cpu="1", nodeName="node-9")
        answers.world.apply(bound)
        answers.world.cache.update_snapshot()
        assert (await names("sort=cpu"))[0] == "node-9"
        monkeypatch.setattr(nodes, "_MAX_NODES_PER_SORT", 1)
        in_parts = await names("sort=name")
        assert in_parts == ["node-2", "node-9", "node-10", "other"]
        assert (await names("sort=cpu"))[0] == "node-9"
        for query, complaint in (
            ("label=a%2Cb", 'a label is KEY or KEY=VALUE, not "a,b"'),
            ("label=zone%21%3Da", "a label is KEY or KEY=VALUE"),
            ("sort=example.com/gpu", 'no node offers "example.com/gpu"'),
        ):
            status, said = await answers.get(f"/nodes?{query}")
            assert (status, complaint in said) == (422, True)


async def test_pods_that_wait_and_decisions_are_found_by_what_stands_in_the_address() -> None:
    async with explaining_port() as answers:
        await two_nodes(answers)
        answers.world.apply(
            make_pod("gated", schedulingGates=[{"name": "g"}], scheduler_name="stellwerk")
        )
        await quiet(100)

        async def pods(query: str) -> list[str]:
            status, found = await answers.get(query)
            assert status == 200
            assert found["total"] == len(found["items"])
            return [each["pod"] for each in found["items"]]

        assert await pods("/queue?queue=unschedulable") == ["default/large"]
        assert await pods("/queue?queue=gated") == ["default/gated"]
        assert await pods("/queue?queue=active") == []
        assert await pods("/queue?q=lar") == ["default/large"]
        assert await pods("/queue?plugin=TaintToleration") == ["default/large"]
        assert await pods("/queue?plugin=NodePorts") == []
        assert await pods("/decisions?node=small") == ["default/web"]
        assert await pods("/decisions?node=tainted") == []
        assert await pods("/decisions?q=default/w") == ["default/web"]
        status, said = await answers.get("/queue?queue=none")
        assert (status, "a queue is one of active, backoff" in said) == (422, True)


async def test_the_sums_of_nodes_are_those_of_all_that_were_asked_for() -> None:
    async with explaining_port() as answers:
        await two_nodes(answers)
        _, whole = await answers.get("/nodes?limit=1&totals=yes")
        assert whole["totals"]["allocatable"]["cpu"] == 10_000
        assert whole["totals"]["requested"]["cpu"] == 1000
        _, one = await answers.get("/nodes?q=taint&totals=yes")
        assert (one["total"], one["totals"]["allocatable"]["cpu"]) == (1, 8000)
        _, without = await answers.get("/nodes")
        assert "totals" not in without


async def test_a_node_names_its_pods_and_a_controller_its_own() -> None:
    async with explaining_port() as answers:
        await two_nodes(answers)
        waiting = owned(make_pod("web-2", cpu="64", scheduler_name="stellwerk"))
        job = owned(make_pod("run", cpu="64", scheduler_name="stellwerk"), kind="Job")
        answers.world.apply(waiting, job)
        await quiet(100)
        _, node = await answers.get("/nodes?explain=small")
        assert node["pods"] == ["default/web"]
        _, pod = await answers.get("/explain/default/web")
        assert pod["owner"] == "ReplicaSet/web"
        _, of_web = await answers.get("/explain/default/owners/ReplicaSet/web")
        assert (of_web["total"], of_web["waiting"]) == (2, 1)
        assert of_web["items"] == [
            {"pod": "default/web-2", "queue": "unschedulablePods"},
            {"pod": "default/web", "node": "small"},
        ]
        _, none = await answers.get("/explain/other/owners/ReplicaSet/web")
        assert none["total"] == 0


async def test_names_that_begin_so_are_told_where_there_is_no_such_pod() -> None:
    async with explaining_port() as answers:
        answers.world.apply(make_node("node", cpu="64", pods="100"))
        for number in range(30):
            answers.world.apply(make_pod(f"many-{number}", nodeName="node"))
        status, said = await answers.get("/explain/default/many")
        assert status == 404
        assert "30 names begin so: many-0, many-1, many-2" in said
        assert said.endswith("many-19, …\n")
        _, said = await answers.get("/explain/other/many")
        assert "begin" not in said


async def test_a_name_that_nearly_is_one_is_told() -> None:
    async with explaining_port() as answers:
        for number in range(450):
            answers.world.apply(make_node(f"worker-{number}"))
        answers.world.apply(make_node("big"))
        answers.world.apply(make_pod("lone", nodeName="big"))
        answers.world.apply(make_pod("unserved"))
        _, said = await answers.get("/explain/default/lnoe")
        assert said == 'there is no pod "default/lnoe" here; did you mean "lone"?\n'
        _, said = await answers.get("/explain/default/unsevred")
        assert said.endswith('did you mean "unserved"?\n')
        _, said = await answers.get("/explain/other/lnoe")
        assert said == 'there is no pod "other/lnoe" here\n', "a name of another namespace"
        status, said = await answers.get("/nodes?explain=bigg")
        assert (status, said) == (404, 'there is no node "bigg" here; did you mean "big"?\n')
        status, said = await answers.post("/what-if", {"drain": "wroker-449"})
        assert status == 422
        assert said == 'there is no node "wroker-449"; did you mean "worker-449"?\n'


def test_fields_have_the_descriptions_of_their_docstrings() -> None:
    described = schemas()["Suggestion"]["properties"]
    assert described["feasibleNodes"]["description"] == "Nodes that take the pod then."


async def test_users_take_turns() -> None:
    lock, order = FairLock(), list[str]()

    async def ask(user: str) -> None:
        async with lock.of(user):
            order.append(user)
            await asyncio.sleep(0)

    asked = [asyncio.create_task(ask(user)) for user in "aaaaabbc"]
    await asyncio.sleep(0)
    asked[2].cancel()
    await asyncio.gather(*asked, return_exceptions=True)
    assert "".join(order) == "aabcaba"
    # One of a was on its way; from then on, one of each other user at most comes first.
    first, second = order.index("b"), order.index("b", order.index("b") + 1)
    others = Counter(order[first + 1 : second])
    hold("readers", max(others.values()))
    async with lock.of("a"):
        pass


async def test_a_turn_that_nobody_takes_is_the_next_ones() -> None:
    lock, order = FairLock(), list[str]()

    async def ask(user: str) -> None:
        async with lock.of(user):
            order.append(user)
            await asyncio.sleep(0)

    asked = [asyncio.create_task(ask(user)) for user in "abc"]
    for _ in range(2):
        await asyncio.sleep(0)
    assert order == ["a"]
    asked[1].cancel()  # it may have its turn already, without having taken it
    await asyncio.gather(*asked, return_exceptions=True)
    assert order[-1] == "c"


async def test_an_answer_ends_after_so_much_computing_and_says_so() -> None:
    async with explaining_port(computed_seconds=0.0) as answers:
        await two_nodes(answers)
        said = (422, "the answer is cut off here: it has taken 0 s of computing\n")
        assert await answers.post("/what-if", {"drain": "small"}) == said
        assert await answers.get("/explain/default/large") == said
