"""Hashed texts: equal ones are equal, and what decisions compare is still to be compared."""

from typing import TYPE_CHECKING

import pytest

from stellwerk.journal.hashing import Hashing

if TYPE_CHECKING:
    from stellwerk_kube.json_values import JsonObject

HASHING = Hashing(b"key")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "NoSchedule",
        "LeastAllocated",
        "DefaultPreemption",
        "1.37",
        "500m",
        "16Gi",
        "2026-11-23T08:00:00Z",
        "8d88348a-7eed-4d14-b06d-3fef701966a0",
        "0-1-2",
        "1m30s",
        "topology.kubernetes.io/zone",
        "hugepages-2Mi",
        "apps/v1",
    ],
)
def test_what_has_meaning_for_all_stays(text: str) -> None:
    assert HASHING.text(text) == text


@pytest.mark.parametrize("text", ["web", "acme.com/team", "16Gib", "2026", "h", "v1.2-secret"])
def test_the_rest_is_hashed_the_same_each_time(text: str) -> None:
    hashed = HASHING.text(text)
    assert (hashed == text) == text.isdecimal()
    assert HASHING.text(text) == hashed


def test_the_parts_of_a_qualified_name_are_those_of_their_own() -> None:
    request, part = HASHING.text("gpu"), HASHING.text("large")
    assert HASHING.text("gpu/large") == f"{request}/{part}"
    gold = HASHING.text("gold")
    assert HASHING.text("deviceclass.resource.kubernetes.io/gold").endswith(f"/{gold}")
    assert HASHING.text("https://10.0.0.1:80/x").startswith("https://h")


def test_expressions_compare_as_before() -> None:
    expression = """
    // acme only
    device.driver == 'gpu.acme.com' && device.attributes["gpu.acme.com"].model in ["a100", r'b1']
    && device.attributes["gpu.acme.com"]["kind"] == "x" && device.capacity["gpu.acme.com"].memory
    .compareTo(quantity("40Gi")) >= 0
    """
    device: JsonObject = {
        "name": "gpu-0",
        "attributes": {"gpu.acme.com/model": {"string": "a100"}, "kind": {"string": "x"}},
        "capacity": {"memory": {"value": "40Gi"}},
    }
    hashed = HASHING.object({"expression": expression, "driver": "gpu.acme.com", **device})
    text, domain = hashed["expression"], HASHING.text("gpu.acme.com")
    assert hashed["driver"] == domain
    assert hashed["attributes"] == {
        f"{domain}/model": {"string": HASHING.text("a100")},
        "kind": {"string": HASHING.text("x")},
    }
    assert hashed["capacity"] == {"memory": {"value": "40Gi"}}
    for word in (domain, HASHING.text("a100"), HASHING.text("b1"), "40Gi", "].model", '["kind"]'):
        assert word in text
    assert "acme" not in text


def test_annotations_are_hashed_by_their_parts() -> None:
    annotations = {
        "scheduling.stellwerk.dev/min-count-by-role": "driver=1,worker=3",
        "scheduler.alpha.kubernetes.io/preferAvoidPods": '{"podSignature": {"name": "web"}}',
    }
    hashed = HASHING.object({"annotations": annotations})["annotations"]
    driver, worker = HASHING.text("driver"), HASHING.text("worker")
    assert list(hashed.values()) == [
        f"{driver}=1,{worker}=3",
        f'{{"podSignature":{{"name":"{HASHING.text("web")}"}}}}',
    ]
