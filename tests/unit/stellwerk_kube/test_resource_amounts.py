"""What pods request: sums, init containers, overhead, pod-level resources, resizes."""

from typing import Any

import pytest

from stellwerk_kube.json_values import JsonObject
from stellwerk_kube.resource_amounts import (
    ResourceAmounts,
    is_resized,
    is_scalar_resource,
    resource_amounts,
)

MEBIBYTE = 1 << 20


def container(name: str = "c", limits: Any = None, **requests: str) -> JsonObject:
    resources: JsonObject = {"requests": requests}
    if limits:
        resources["limits"] = limits
    return {"name": name, "resources": resources}


def sidecar(name: str = "s", **requests: str) -> JsonObject:
    return {**container(name, **requests), "restartPolicy": "Always"}


def amounts(
    *containers: JsonObject, status: JsonObject | None = None, **spec: Any
) -> ResourceAmounts:
    return resource_amounts({"containers": list(containers), **spec}, status)


@pytest.mark.parametrize(
    ("spec", "cpu"),
    [
        pytest.param({}, 1000, id="containers add up"),
        pytest.param({"initContainers": [container(cpu="3")]}, 3000, id="a larger init container"),
        pytest.param({"initContainers": [container(cpu="1m")]}, 1000, id="a smaller one"),
        pytest.param(
            {"initContainers": [container(cpu="2"), container(cpu="3")]},
            3000,
            id="init containers run one after the other",
        ),
        pytest.param({"initContainers": [sidecar(cpu="2")]}, 3000, id="a sidecar stays"),
        pytest.param(
            {"initContainers": [sidecar(cpu="2"), container(cpu="3")]},
            5000,
            id="an init container runs beside the sidecars before it",
        ),
        pytest.param(
            {"initContainers": [container(cpu="3"), sidecar(cpu="2")]},
            3000,
            id="but not beside those after it",
        ),
        pytest.param({"overhead": {"cpu": "250m"}}, 1250, id="overhead"),
        pytest.param(
            {"overhead": {"cpu": "250m"}, "initContainers": [container(cpu="3")]},
            3250,
            id="overhead also beside an init container",
        ),
        pytest.param(
            {"resources": {"requests": {"cpu": "5"}}}, 5000, id="pod-level requests replace the sum"
        ),
        pytest.param(
            {"resources": {"requests": {"cpu": "5"}}, "overhead": {"cpu": "250m"}},
            5250,
            id="overhead comes on top of pod-level requests",
        ),
    ],
)
def test_cpu_of_two_containers_with_half_a_cpu_each(spec: JsonObject, cpu: int) -> None:
    assert amounts(container(cpu="500m"), container(cpu="500m"), **spec).requests["cpu"] == cpu


def test_sums_are_exact_and_rounded_once() -> None:
    """Each alone would round up to 1m."""
    thirds = [container(cpu="300u") for _ in range(3)]
    assert amounts(*thirds).requests["cpu"] == 1


GREEDY = {"name": "c", "resources": {"requests": {"example.com/gpu": "1", "hugepages-2Mi": "2Mi"}}}


def test_only_what_pods_may_request_as_a_whole_replaces_the_sum() -> None:
    spec = {"resources": {"requests": {"hugepages-2Mi": "4Mi", "example.com/gpu": "9"}}}
    found = amounts(GREEDY, **spec)
    assert found.requests == {"example.com/gpu": 1, "hugepages-2Mi": 4 * MEBIBYTE}


def test_documented_overhead() -> None:
    found = resource_amounts(
        {
            "containers": [
                container(cpu="500m", memory="100Mi", limits={"cpu": "500m", "memory": "100Mi"}),
                container(cpu="1500m", memory="100Mi", limits={"cpu": "1500m", "memory": "100Mi"}),
            ],
            "overhead": {"cpu": "250m", "memory": "120Mi"},
        }
    )
    assert found.requests == {"cpu": 2250, "memory": 335544320}
    assert found.limits == {"cpu": 2250, "memory": 335544320}


def test_overhead_is_no_limit_where_there_is_none() -> None:
    assert amounts(container(cpu="1"), overhead={"cpu": "250m"}).limits == {}


# --- what scoring counts ------------------------------------------------------------------------


def test_silent_containers_count_a_little_in_scoring_and_nothing_in_filters() -> None:
    found = amounts(container("silent"), container("loud", cpu="1", memory="1Gi"))
    assert found.requests == {"cpu": 1000, "memory": 1 << 30}
    assert found.nonzero_cpu_millis == 1100
    assert found.nonzero_memory_bytes == (1 << 30) + 200 * MEBIBYTE
    assert found.scoring_requests == {"cpu": 1100, "memory": (1 << 30) + 200 * MEBIBYTE}


def test_an_explicit_zero_is_a_request() -> None:
    assert amounts(container(cpu="0", memory="0")).nonzero_cpu_millis == 0


def test_pod_level_requests_leave_nothing_silent() -> None:
    found = amounts(container("silent"), resources={"requests": {"cpu": "2"}})
    assert found.nonzero_cpu_millis == 2000
    assert found.nonzero_memory_bytes == 200 * MEBIBYTE, "of memory the pod as a whole is silent"


# --- in-place resizes ---------------------------------------------------------------------------


def reported(
    actual: str, allocated: str | None = None, *conditions: JsonObject, name: str = "c"
) -> JsonObject:
    found: JsonObject = {"name": name, "resources": {"requests": {"cpu": actual}}}
    if allocated is not None:
        found["allocatedResources"] = {"cpu": allocated}
    return {"containerStatuses": [found], "conditions": list(conditions)}


INFEASIBLE = {"type": "PodResizePending", "reason": "Infeasible"}
DEFERRED = {"type": "PodResizePending", "reason": "Deferred"}


@pytest.mark.parametrize(
    ("status", "cpu"),
    [
        pytest.param(reported("1"), 2000, id="growing: what is wanted counts already"),
        pytest.param(reported("3"), 3000, id="shrinking: what is used counts still"),
        pytest.param(reported("1", "4"), 4000, id="what is allocated counts"),
        pytest.param(reported("1", "1", DEFERRED), 2000, id="deferred: it may still come"),
        pytest.param(reported("1", "1", INFEASIBLE), 1000, id="infeasible: it will not"),
        pytest.param({"containerStatuses": [{"name": "c"}]}, 2000, id="nothing reported"),
        pytest.param(reported("9", name="other"), 2000, id="another container"),
    ],
)
def test_a_container_that_wants_2_cpus(status: JsonObject, cpu: int) -> None:
    assert amounts(container(cpu="2"), status=status).requests["cpu"] == cpu


def test_a_sidecar_is_resized_and_a_plain_init_container_is_not() -> None:
    status = {
        "initContainerStatuses": [
            {"name": name, "resources": {"requests": {"cpu": "8"}}} for name in ("s", "init")
        ]
    }
    spec = {"initContainers": [sidecar("s", cpu="1"), container("init", cpu="1")]}
    assert amounts(container("c", cpu="1"), status=status, **spec).requests["cpu"] == 9000


def test_pod_level_requests_are_resized() -> None:
    spec = {"resources": {"requests": {"cpu": "2"}}}
    status: JsonObject = {"resources": {"requests": {"cpu": "3"}}}
    assert amounts(container(cpu="1"), status=status, **spec).requests["cpu"] == 3000
    status["conditions"] = [INFEASIBLE]
    status["allocatedResources"] = {"cpu": "1"}
    status["resources"] = {"requests": {"cpu": "1"}}
    assert amounts(container(cpu="1"), status=status, **spec).requests["cpu"] == 1000


@pytest.mark.parametrize(
    ("status", "resized"),
    [
        pytest.param({}, False, id="no status"),
        pytest.param(reported("2", "2"), False, id="as the spec says"),
        pytest.param(reported("1"), True, id="other requests"),
        pytest.param(reported("2", "1"), True, id="other allocation"),
        pytest.param(reported("2", "2", INFEASIBLE), False, id="a condition alone"),
    ],
)
def test_only_pods_that_differ_from_their_spec_are_looked_at(
    status: JsonObject, *, resized: bool
) -> None:
    assert is_resized({"containers": [container(cpu="2")]}, status) is resized


# --- kinds of resources -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("resource", "scalar"),
    [
        ("cpu", False),
        ("ephemeral-storage", False),
        ("hugepages-2Mi", True),
        ("attachable-volumes-aws-ebs", True),
        ("example.com/gpu", True),
        ("kubernetes.io/batch-cpu", True),
        ("requests.example.com/gpu", True),
    ],
)
def test_scalar_resources(resource: str, *, scalar: bool) -> None:
    assert is_scalar_resource(resource) is scalar
