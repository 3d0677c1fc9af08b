"""Devices and claims on the operator's port: who has which, and who waits for what."""

from typing import Any

import pytest

from stellwerk.models.json_values import JsonObject
from tests.support.builders import make_pod
from tests.support.device_cases import claim, device, held, request, selecting
from tests.support.explaining_port import ExplainingPort, explaining_port, with_devices
from tests.support.in_process import make_profile, quiet


def cluster(answers: ExplainingPort, *claims: JsonObject) -> None:
    """Twelve devices on node a; a claim of the pod `holder` has two of them."""
    taint = {"key": "broken", "value": "yes", "effect": "NoSchedule"}
    devices = [device(f"gpu-{number}") for number in range(12)]
    devices[11] |= {"taints": [taint], "capacity": {"memory": {"value": "40Gi"}}}
    with_devices(answers, held("used", "gpu-1", "gpu-2", by="holder"), *claims, devices=devices)


async def names(answers: ExplainingPort, query: str) -> list[str]:
    _, page = await answers.get(f"/explain/devices?{query}")
    return [each["device"].rpartition("/")[2] for each in page["items"]]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        pytest.param("limit=3", ["gpu-0", "gpu-1", "gpu-2"], id="a page"),
        pytest.param("limit=2&offset=10", ["gpu-10", "gpu-11"], id="the last page"),
        pytest.param("state=held", ["gpu-1", "gpu-2"], id="held"),
        pytest.param("state=free&limit=2", ["gpu-0", "gpu-3"], id="free"),
        pytest.param("q=gpu-11", ["gpu-11"], id="by a part of the name"),
        pytest.param("node=a&limit=1", ["gpu-0"], id="of a node"),
        pytest.param("node=b", [], id="of a node that has none"),
        pytest.param("node=nobody", [], id="of a node that is not there"),
    ],
)
async def test_devices_are_found(query: str, expected: list[str]) -> None:
    async with explaining_port() as answers:
        cluster(answers)
        assert await names(answers, query) == expected


async def test_a_device_shows_what_it_is_and_who_holds_it() -> None:
    async with explaining_port() as answers:
        cluster(answers)
        _, page = await answers.get("/explain/devices")
        assert (page["total"], page["held"]) == (12, 2)
        items: dict[str, Any] = {each["device"]: each for each in page["items"]}
        holder = items["gpu.example.com/a/gpu-1"]
        assert (holder["node"], holder["claims"]) == ("a", ["default/used"])
        broken = items["gpu.example.com/a/gpu-11"]
        assert broken["claims"] == []
        assert broken["attributes"] == {"model": "large", "group": "0"}
        assert broken["capacity"] == {"memory": "40Gi"}
        assert broken["taints"] == [{"key": "broken", "value": "yes", "effect": "NoSchedule"}]


async def test_an_older_generation_of_a_pool_is_not_shown() -> None:
    async with explaining_port() as answers:
        cluster(answers)
        newer = {"name": "a", "generation": 2, "resourceSliceCount": 1}
        spec = {"driver": "gpu.example.com", "nodeName": "a", "pool": newer}
        slice_ = {"metadata": {"name": "newer"}, "spec": {**spec, "devices": [device("gpu-7")]}}
        answers.world.operator.handlers.on_object("ResourceSlice", None, slice_)
        assert await names(answers, "") == ["gpu-7"]


async def test_a_claim_shows_its_devices_its_pods_and_who_waits_for_it() -> None:
    async with explaining_port() as answers:
        wanted = claim("wanted", request(count=99, **selecting("true")))
        cluster(answers, wanted)
        answers.world.apply(make_profile("stellwerk"))
        named = [{"name": "c", "resourceClaimName": "wanted"}]
        pod = make_pod("waits", cpu="1", scheduler_name="stellwerk", resourceClaims=named)
        answers.world.apply(pod, make_pod("other", cpu="99", scheduler_name="stellwerk"))
        await quiet(100)
        _, used = await answers.get("/explain/default/resourceclaims/used")
        assert used["state"] == "allocated"
        assert used["devices"] == ["gpu.example.com/a/gpu-1", "gpu.example.com/a/gpu-2"]
        assert (used["reservedFor"], used["waiting"]) == (["default/holder"], [])
        _, found = await answers.get("/explain/default/resourceclaims/wanted")
        assert (found["state"], found["devices"], found["waiting"]) == (
            "needed",
            [],
            ["default/waits"],
        )
        assert found["requests"] == [
            {"request": "r", "deviceClass": "gpu", "count": 99, "selectors": ["true"]}
        ]


async def test_a_claim_that_cannot_be_read_says_so_and_one_that_is_not_there_too() -> None:
    async with explaining_port() as answers:
        cluster(answers, claim("odd", {"name": "r"}))
        _, odd = await answers.get("/explain/default/resourceclaims/odd")
        assert (odd["requests"], odd["problem"]) == ([], "KeyError: 'exactly'")
        status, said = await answers.get("/explain/default/resourceclaims/none")
        assert (status, said.strip()) == (404, 'there is no claim "default/none" here')
