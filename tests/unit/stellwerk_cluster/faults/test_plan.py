from collections.abc import Iterable
from typing import Any

import pytest

from stellwerk_cluster.faults.plan import FaultPlan, RequestAttributes, parse_request
from stellwerk_cluster.faults.table import FaultTable
from stellwerk_kube.clock import VirtualClock

BINDING = RequestAttributes("create", "pods/binding", "default", "web", user_agent="stellwerk/1")
LIST = RequestAttributes("list", "nodes", user_agent="kubectl")
WATCH = RequestAttributes("watch", "nodes")


def plan_of(*faults: dict[str, Any], seed: int = 1, clock: VirtualClock | None = None) -> FaultPlan:
    plan = FaultPlan(FaultTable.model_validate({"faults": faults}), seed, clock or VirtualClock())
    plan.arm()
    return plan


def struck(plan: FaultPlan, asked: Iterable[RequestAttributes]) -> list[bool]:
    return [bool(plan.strikes(each)) for each in asked]


@pytest.mark.parametrize(
    ("request_line", "asked"),
    [
        ("GET /api/v1/nodes", RequestAttributes("list", "nodes")),
        ("GET /api/v1/nodes/n1", RequestAttributes("get", "nodes", "", "n1")),
        (
            "GET /api/v1/pods?watch=true&resourceVersion=7",
            RequestAttributes("watch", "pods", revision="7"),
        ),
        (
            "GET /api/v1/pods?watch=1&sendInitialEvents=true",
            RequestAttributes("watch", "pods", begins_with_list=True),
        ),
        ("GET /api/v1/pods?watch=false", RequestAttributes("list", "pods")),
        (
            "GET /apis/apps/v1/namespaces/a/replicasets",
            RequestAttributes("list", "replicasets", "a"),
        ),
        (
            "POST /api/v1/namespaces/a/pods/web/binding",
            RequestAttributes("create", "pods/binding", "a", "web"),
        ),
        (
            "PATCH /api/v1/namespaces/a/pods/web/status",
            RequestAttributes("patch", "pods/status", "a", "web"),
        ),
        ("GET /api/v1/namespaces/a", RequestAttributes("get", "namespaces", "", "a")),
        (
            "PUT /api/v1/namespaces/a/finalize",
            RequestAttributes("update", "namespaces/finalize", "", "a"),
        ),
        ("DELETE /api/v1/namespaces/a/pods", RequestAttributes("deletecollection", "pods", "a")),
        ("DELETE /api/v1/namespaces/a/pods/x", RequestAttributes("delete", "pods", "a", "x")),
        ("GET /version", RequestAttributes("get", "/version")),
        ("GET /apis/apps/v1", RequestAttributes("get", "/apis/apps/v1")),
    ],
)
def test_a_request_in_the_words_of_rbac(request_line: str, asked: RequestAttributes) -> None:
    method, _, url = request_line.partition(" ")
    path, _, query = url.partition("?")
    pairs = dict(pair.split("=") for pair in query.split("&") if pair)
    assert parse_request(method, path, pairs) == asked


@pytest.mark.parametrize(
    ("condition", "asked", "expected"),
    [
        ({}, [BINDING, LIST, WATCH], [True, True, True]),
        ({"verbs": ["create"]}, [BINDING, LIST], [True, False]),
        ({"resources": ["nodes"]}, [BINDING, LIST], [False, True]),
        ({"resources": ["pods"]}, [BINDING], [False]),
        ({"userAgent": "stellwerk/"}, [BINDING, LIST], [True, False]),
        ({"every": 3}, [LIST] * 7, [False, False, True, False, False, True, False]),
        ({"times": 2}, [LIST] * 3, [True, True, False]),
    ],
)
def test_which_requests_are_struck(
    condition: dict[str, Any], asked: list[RequestAttributes], expected: list[bool]
) -> None:
    assert struck(plan_of({"fault": "reset", **condition}), asked) == expected


def test_only_in_its_time() -> None:
    clock = VirtualClock()
    plan = plan_of({"fault": "reset", "between": [5, 6]}, clock=clock)
    seen = []
    for _ in range(8):
        seen += struck(plan, [LIST])
        clock.advance(1)
    assert seen == [False] * 5 + [True] + [False] * 2


def test_nothing_is_struck_before_and_after_it_is_in_force() -> None:
    plan = plan_of({"fault": "reset"})
    plan.disarm()
    assert struck(plan, [LIST]) == [False]


def test_a_probability_strikes_so_many() -> None:
    asked = [RequestAttributes("get", "pods", "default", f"p{number}") for number in range(2000)]
    assert 500 < sum(struck(plan_of({"fault": "reset", "probability": 0.3}), asked)) < 700


def test_the_same_seed_strikes_the_same_requests_in_whatever_order_they_come() -> None:
    asked = [
        RequestAttributes("get", "pods", "default", f"p{number % 50}") for number in range(200)
    ]
    fault = {"fault": "reset", "probability": 0.5}
    forwards = dict(zip(range(200), struck(plan_of(fault), asked), strict=True))
    by_pod = sorted(range(200), key=lambda number: (number % 50, number))
    regrouped = struck(plan_of(fault), [asked[number] for number in by_pod])
    assert dict(zip(by_pod, regrouped, strict=True)) == forwards
    assert struck(plan_of(fault, seed=2), asked) != list(forwards.values())


def test_entries_draw_and_count_by_themselves() -> None:
    half = {"fault": "reset", "probability": 0.5}
    plan = plan_of(half, half)
    for number in range(100):
        plan.strikes(RequestAttributes("get", "pods", "default", f"p{number}"))
    first, second = plan.counts()
    assert [first[0], second[0]] == ["1 (reset)", "2 (reset)"]
    assert 0 < first[1] < 100
    assert first[1] != second[1] or first[1] + second[1] != 200


def test_faults_of_watches_strike_watches_only() -> None:
    assert struck(plan_of({"fault": "drop"}), [LIST, WATCH]) == [False, True]
