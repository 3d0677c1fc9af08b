"""kube-scheduler's recorded dealings with extenders, repeated by the running operator."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from stellwerk_cli.convert.conversion import convert
from stellwerk_cluster.cluster import ClusterOptions, EmbeddedCluster
from stellwerk_kube.json_values import JsonObject
from tests.support.fake_extender import FakeExtender, fake_extender
from tests.support.recordings import scenario, transcript_modules
from tests.support.rights import ENFORCED, operator_token
from tests.support.running_operator import install, is_active, operator_on, until

RECORDED_URL = "http://127.0.0.1:26601/x"
ALONE = ClusterOptions(controllers=False, kubelet=None, heartbeats=False, identity=ENFORCED)
PROFILE = "default-scheduler"


@pytest.fixture
def norm() -> Iterator[Callable[[Any], Any]]:
    """What is not the same in two recordings of the same thing, taken out."""
    with transcript_modules("normalise") as (normalise,):
        yield normalise.norm


def answering(calls: list[JsonObject], verb: str) -> Any:
    """The recorded answers of a verb, one after the other; the last one again and again."""
    if verb == "preempt":
        return lambda body: with_uids(calls[0]["response"], body["NodeNameToMetaVictims"])
    left = [call for call in calls if call["verb"] == verb]

    def answer(_: JsonObject) -> Any:
        call = left.pop(0) if len(left) > 1 else left[0]
        return call["response"] if call["status"] == 200 else call["status"]

    return answer


def with_uids(recorded: JsonObject, offered: JsonObject) -> JsonObject:
    """The recorded answer of preempt, with the victims of this run."""
    nodes = recorded["nodeNameToMetaVictims"]
    return {"nodeNameToMetaVictims": {name: offered[name] for name in nodes}}


async def act(session: aiohttp.ClientSession, url: str, action: JsonObject) -> None:
    """Make a recorded request."""
    headers = {"Content-Type": action.get("contentType", "application/json")}
    async with session.request(
        action["method"], f"{url}{action['path']}", data=json.dumps(action["body"]), headers=headers
    ) as response:
        assert response.status == action["status"], await response.text()


def setup(recorded: JsonObject) -> list[JsonObject]:
    """The requests that set the scene; 250 equal nodes were left out of a recording."""
    if recorded["setup"]:
        return list(recorded["setup"])
    template = recorded["initialObjects"][0]
    untaint = {
        "method": "PATCH",
        "body": {"spec": {"taints": None}},
        "status": 200,
        "contentType": "application/merge-patch+json",
    }
    actions = []
    for number in range(250):
        name = f"n{number:03}"
        metadata = {"name": name, "labels": {"kubernetes.io/hostname": name}}
        body = {**template, "metadata": metadata}
        actions += [
            {"method": "POST", "path": "/api/v1/nodes", "body": body, "status": 201},
            {**untaint, "path": f"/api/v1/nodes/{name}"},
        ]
    return actions


@asynccontextmanager
async def replayed(
    name: str, directory: Path, **answers: Any
) -> AsyncIterator[tuple[JsonObject, EmbeddedCluster, FakeExtender]]:
    """Set a recorded scene, start the operator, and do what the test of the recording did."""
    recorded = scenario(name)
    async with (
        fake_extender() as extender,
        EmbeddedCluster(0, options=ALONE) as cluster,
        aiohttp.ClientSession() as session,
    ):
        operator_token(cluster)
        for action in setup(recorded):
            await act(session, cluster.url, action)
        text = json.dumps(recorded["schedulerConfig"]).replace(RECORDED_URL, extender.url)
        install(cluster, *convert(json.loads(text)).manifests)
        for verb in ("filter", "prioritize", "bind", "preempt"):
            if any(call["verb"] == verb for call in recorded["extenderCalls"]):
                extender.answers[verb] = answering(recorded["extenderCalls"], verb)
        extender.answers |= answers
        async with operator_on(cluster, directory, is_own_cluster=True):
            await until(lambda: is_active(cluster, PROFILE))
            previous = 0.0
            for action in recorded["actions"]:
                await asyncio.sleep(min(0.5, action["t"] - previous))
                previous = action["t"]
                await act(session, cluster.url, action)
            yield recorded, cluster, extender


def sent(extender: FakeExtender) -> list[JsonObject]:
    return [{"verb": call.verb, "request": call.json} for call in extender.calls]


def expected(recorded: JsonObject, url: str) -> list[JsonObject]:
    calls = [{key: call[key] for key in ("verb", "request")} for call in recorded["extenderCalls"]]
    replaced: list[JsonObject] = json.loads(json.dumps(calls).replace(RECORDED_URL, url))
    return replaced


def in_name_order(calls: list[JsonObject]) -> list[JsonObject]:
    """The order of nodes is not fixed where kube-scheduler filters in parallel."""
    for call in calls:
        nodes = call["request"].get("Nodes")
        if nodes:
            nodes["items"].sort(key=lambda node: node["metadata"]["name"])
        names = call["request"].get("NodeNames")
        if names:
            names.sort()
    return calls


def pods(cluster: EmbeddedCluster) -> dict[str, JsonObject]:
    return {pod["metadata"]["name"]: pod for pod in cluster.api.all("pods", "default")}


@pytest.mark.parametrize(
    "name",
    ["extender-node-names", "extender-nodes", "extender-ignorable", "extender-preempt"],
)
async def test_the_extender_is_sent_what_was_recorded(
    name: str, norm: Callable[[Any], Any], tmp_path: Path
) -> None:
    async with replayed(name, tmp_path) as (recorded, cluster, extender):
        if name == "extender-node-names":
            # With a bindVerb only the extender binds.
            await until(lambda: len(extender.calls) == len(recorded["extenderCalls"]))
        else:
            wanted = set(recorded["placements"].items())
            await until(
                lambda: (
                    {(pod, obj["spec"].get("nodeName")) for pod, obj in pods(cluster).items()}
                    == wanted
                )
            )
        await asyncio.sleep(0.1)
        assert norm(in_name_order(sent(extender))) == norm(
            in_name_order(expected(recorded, extender.url))
        )


async def test_a_failing_extender_is_asked_again_after_growing_pauses(
    norm: Callable[[Any], Any], tmp_path: Path
) -> None:
    async with replayed("extender-failing-backoff", tmp_path) as (recorded, cluster, extender):
        await until(lambda: len(extender.calls) == 3)
        assert norm(sent(extender)) == norm(expected(recorded, extender.url)[:3])
        first, second, third = (call.at_seconds for call in extender.calls)
        assert second - first > 0.9
        assert third - second > 1.9
        (condition,) = [
            each for each in pods(cluster)["a"]["status"]["conditions"] if each["status"] == "False"
        ]
        message = f"failed filter with extender at URL {extender.url}/filter, code 500"
        assert (condition["reason"], condition["message"]) == ("SchedulerError", message)


async def test_an_extender_sees_the_sampled_nodes(tmp_path: Path) -> None:
    def everything(body: JsonObject) -> JsonObject:
        return {"nodenames": body["NodeNames"]}

    scene = replayed("percentage-of-nodes", tmp_path, filter=everything)
    async with scene as (recorded, cluster, extender):
        await until(lambda: all(pod["spec"].get("nodeName") for pod in pods(cluster).values()))
        offered = [set(call.json["NodeNames"]) for call in extender.calls]
        assert [len(names) for names in offered] == [
            len(call["request"]["NodeNames"]) for call in recorded["extenderCalls"]
        ]
        # The search goes on where it ended, so that all nodes have their turn.
        assert not offered[0] & offered[1]
        assert len(set.union(*offered)) == 250
