"""The sum of a pod's requests, made in one pass, equals the plain definition."""

from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from stellwerk_kube.json_values import JsonObject
from stellwerk_kube.resource_amounts import resource_amounts

RESOURCES = ("memory", "example.com/a", "example.com/b", "hugepages-2Mi")
REQUESTS = st.dictionaries(st.sampled_from(RESOURCES), st.integers(0, 50), max_size=4)


def container(requests: dict[str, int], *, sidecar: bool = False) -> JsonObject:
    policy = {"restartPolicy": "Always"} if sidecar else {}
    quantities = {resource: str(amount) for resource, amount in requests.items()}
    return {"name": "c", "resources": {"requests": quantities}, **policy}


def plain(
    resource: str,
    containers: Iterable[dict[str, int]],
    inits: list[tuple[bool, dict[str, int]]],
    overhead: dict[str, int],
) -> int:
    """While the pod runs, or while the greediest init container does, sidecars before it beside."""

    def of_sidecars(until: int) -> int:
        return sum(requests.get(resource, 0) for sidecar, requests in inits[:until] if sidecar)

    running = sum(requests.get(resource, 0) for requests in containers) + of_sidecars(len(inits))
    starting = [
        requests.get(resource, 0) + of_sidecars(place) for place, (_, requests) in enumerate(inits)
    ]
    return max([running, *starting]) + overhead.get(resource, 0)


@given(
    st.lists(REQUESTS, min_size=1, max_size=4),
    st.lists(st.tuples(st.booleans(), REQUESTS), max_size=6),
    REQUESTS,
)
def test_the_sum_of_requests(
    containers: list[dict[str, int]],
    inits: list[tuple[bool, dict[str, int]]],
    overhead: dict[str, int],
) -> None:
    spec = {
        "containers": [container(requests) for requests in containers],
        "initContainers": [container(requests, sidecar=sidecar) for sidecar, requests in inits],
        "overhead": {resource: str(amount) for resource, amount in overhead.items()},
    }
    found = resource_amounts(spec).requests
    assert found.keys() <= set(RESOURCES)
    for resource in RESOURCES:
        assert found.get(resource, 0) == plain(resource, containers, inits, overhead)
