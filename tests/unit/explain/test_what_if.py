"""What if: devices that one pod gets are gone for the next, those of pods that leave are free."""

from typing import Any

from stellwerk.cases.decide import Case
from stellwerk.explain.what_if import what_if
from stellwerk.models.answers.what_if import Supposition
from stellwerk.models.json_values import JsonObject
from stellwerk.models.pod import parse_pod
from stellwerk.plugins.dynamic_resources.explain import given_back
from tests.support.answers import written
from tests.support.builders import make_node, make_pod
from tests.support.device_cases import DRIVER, case, claim, device, held, request

PROFILE: JsonObject = {"metadata": {"name": "p"}, "spec": {"schedulerName": "default-scheduler"}}


def claiming(name: str, reference: str, **fields: Any) -> JsonObject:
    references = [{"name": "c", "resourceClaimName": reference}]
    return make_pod(name, uid=name, resourceClaims=references, **fields)


def answered(loaded: Case, supposed: Supposition) -> Any:
    return written(what_if(loaded.world, supposed))


def test_two_pods_that_are_moved_do_not_get_one_device() -> None:
    claims = [held("one", "gpu-0", by="p1"), held("two", "gpu-1", by="p2")]
    written = case(*claims, devices=[device("gpu-0"), device("gpu-1")])
    pool = {"name": "b", "generation": 1, "resourceSliceCount": 1}
    spare = {"driver": DRIVER, "nodeName": "b", "pool": pool, "devices": [device("gpu-0")]}
    written["resourceslices"].append({"metadata": {"name": "b"}, "spec": spare})
    written["pods"] = [
        claiming("p1", "one", node_name="a"),
        claiming("p2", "two", node_name="a"),
    ]
    answer = answered(Case(written), Supposition(drain="a", profile=PROFILE))
    assert [each["node"] for each in answer["placed"]] == ["b"]
    (unplaced,) = answer["unplaced"]
    assert "cannot allocate all claims" in unplaced["message"]


def test_a_claim_that_another_pod_uses_stays() -> None:
    shared = held("one", "gpu-0", by="p1")
    shared["status"]["reservedFor"].append({"resource": "pods", "name": "p2", "uid": "p2"})
    loaded = Case(case(shared, devices=[device("gpu-0")]))
    (left,) = given_back(loaded.world.objects, [parse_pod(claiming("p1", "one"))])
    assert [each["uid"] for each in left["status"]["reservedFor"]] == ["p2"]
    assert left["status"]["allocation"]


def test_a_supposed_node_without_devices_does_not_help() -> None:
    loaded = Case(case(claim("mine", request()), devices=[]))
    pod = claiming("p", "mine")
    supposed = Supposition(pod=pod, add_nodes=[make_node("c")], profile=PROFILE)
    answer = answered(loaded, supposed)
    assert answer["placed"] == []
    assert answer["explanation"]["devices"]["claims"][0]["state"] == "needed"
