"""Devices and claims on the operator's port: who has which, and who waits for what."""

from typing import Any

import pytest

from stellwerk_kube.compatibility import Compatibility, Release
from stellwerk_kube.json_values import JsonObject
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


def partitioned(*, shared: bool = False) -> tuple[list[JsonObject], list[JsonObject]]:
    """Two halves of one card, and slices of which one has the counters that both take of."""
    takes = [
        {"counterSet": "card", "counters": {"memory": {"value": "20Gi"}, "engines": {"value": "1"}}}
    ]
    halves = [device(f"half-{number}", consumesCounters=takes) for number in range(2)]
    if shared:
        for each in halves:
            each |= {"allowMultipleAllocations": True, "capacity": {"memory": {"value": "20Gi"}}}
    offered = {"memory": {"value": "40Gi"}, "engines": {"value": "3"}}
    pool = {"name": "cards/of-a", "generation": 1, "resourceSliceCount": 2}
    spec = {"driver": "gpu.example.com", "pool": pool}
    selector = {
        "nodeSelectorTerms": [
            {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["b"]}]}
        ]
    }
    sets = [{"name": "card", "counters": offered}]
    slices = [
        {"metadata": {"name": "sets"}, "spec": {**spec, "nodeName": "a", "sharedCounters": sets}},
        {
            "metadata": {"name": "halves"},
            "spec": {**spec, "nodeSelector": selector, "devices": halves},
        },
    ]
    return halves, slices


async def explained(answers: ExplainingPort, name: str) -> JsonObject:
    status, found = await answers.get(f"/explain/devices?explain=gpu.example.com/{name}")
    assert status == 200, found
    result: JsonObject = found
    return result


async def test_a_device_says_who_has_it_and_where_it_can_be_used() -> None:
    async with explaining_port() as answers:
        cluster(answers)
        found = await explained(answers, "a/gpu-1")
        assert found["device"]["claims"] == ["default/used"]
        assert found["holders"] == [
            {
                "claim": "default/used",
                "request": "r",
                "consumed": {},
                "onlyLooks": False,
                "pods": ["default/holder"],
            }
        ]
        assert (found["nodes"], found["onNodes"], found["shared"]) == (["a"], 1, False)
        free = await explained(answers, "a/gpu-0")
        assert (free["holders"], free["resourceSlice"], free["counters"]) == ([], "a", [])
        status, said = await answers.get("/explain/devices?explain=gpu.example.com/a/gpu-99")
        assert (status, said.strip()) == (404, 'there is no device "gpu.example.com/a/gpu-99" here')


async def test_a_device_says_what_is_left_of_the_counters_that_it_shares() -> None:
    async with explaining_port() as answers:
        _, slices = partitioned()
        taken = held("used", "half-1", by="holder")
        taken["status"]["allocation"]["devices"]["results"][0]["pool"] = "cards/of-a"
        cluster(answers, taken)
        for each in slices:
            answers.world.operator.handlers.on_object("ResourceSlice", None, each)
        found = await explained(answers, "cards/of-a/half-0")
        counters = {each["counter"]: each for each in found["counters"]}
        assert counters["memory"] == {
            "counterSet": "card",
            "counter": "memory",
            "takes": "20Gi",
            "offered": "40Gi",
            "free": "20Gi",
        }
        assert [counters["engines"][each] for each in ("takes", "offered", "free")] == [
            "1",
            "3",
            "2",
        ]
        assert found["nodes"] == ["b"], "of the slice's selector"


async def test_a_device_that_claims_share_says_what_each_takes_of_it() -> None:
    async with explaining_port() as answers:
        _, slices = partitioned(shared=True)
        claims = [held(name, "half-0", by=name) for name in ("first", "second", "admin")]
        for each in claims:
            (result,) = each["status"]["allocation"]["devices"]["results"]
            result |= {"pool": "cards/of-a", "shareID": "1", "consumedCapacity": {"memory": "5Gi"}}
        (admins,) = claims[2]["status"]["allocation"]["devices"]["results"]
        del admins["shareID"], admins["consumedCapacity"]
        admins["adminAccess"] = True
        cluster(answers, *claims)
        for each in slices:
            answers.world.operator.handlers.on_object("ResourceSlice", None, each)
        found = await explained(answers, "cards/of-a/half-0")
        shares = [(each["claim"], each["consumed"], each["onlyLooks"]) for each in found["holders"]]
        assert shares == [
            ("default/admin", {}, True),
            ("default/first", {"memory": "5Gi"}, False),
            ("default/second", {"memory": "5Gi"}, False),
        ]
        memory = next(each for each in found["counters"] if each["counter"] == "memory")
        assert memory["free"] == "20Gi", "both shares have paid once"


@pytest.mark.parametrize(
    ("release", "taints"), [(Release.V1_36, []), (Release.V1_37, ["dead"])], ids=str
)
async def test_taints_of_rules_are_a_device_s_too_where_the_release_has_them(
    release: Release, taints: list[str]
) -> None:
    async with explaining_port() as answers:
        cluster(answers)
        selector = {"device": "gpu-3"}
        taint = {"key": "dead", "effect": "NoExecute"}
        rule = {"metadata": {"name": "dead"}, "spec": {"deviceSelector": selector, "taint": taint}}
        answers.world.operator.handlers.on_object("DeviceTaintRule", None, rule)
        answers.world.profiles.compatibility = Compatibility.with_release(release)
        found = await explained(answers, "a/gpu-3")
        assert [each["key"] for each in found["device"]["taints"]] == taints
        assert (await explained(answers, "a/gpu-4"))["device"]["taints"] == []


async def test_a_state_that_no_device_has_is_refused() -> None:
    async with explaining_port() as answers:
        status, said = await answers.get("/explain/devices?state=broken")
        assert (status, said.strip()) == (422, 'a device is held or free, not "broken"')
