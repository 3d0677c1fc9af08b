"""Scores by measured load, of all nodes at once, equal those of one node at a time.

The readings below are of the documentation, with plain numbers and a Beta distribution of its own.
"""

import math
from collections.abc import Mapping, Sequence
from decimal import ROUND_CEILING, Decimal
from typing import Any, Final

from hypothesis import given, settings
from hypothesis import strategies as st

from stellwerk_kube.json_values import JsonObject
from stellwerk_simulation.cases.plugin_cases import decide_plugin_case

END_SECONDS: Final = 1_772_355_761
MILLIS: Final = st.sampled_from(["0", "1m", "250m", "333m", "500m", "1", "1500m", "3", "7"])
BYTES: Final = st.sampled_from(["0", "1", "100M", "512Mi", "715827882", "1Gi", "6Gi", "40Gi"])
VALUES: Final = st.one_of(
    st.integers(0, 100),
    st.floats(0, 130).map(lambda value: round(value, 4)),
    st.sampled_from([0, 100, 99.9999, 130]),
)


@st.composite
def amounts(draw: st.DrawFn) -> JsonObject:
    drawn = {"cpu": draw(st.none() | MILLIS), "memory": draw(st.none() | BYTES)}
    return {name: amount for name, amount in drawn.items() if amount is not None}


@st.composite
def containers(draw: st.DrawFn, name: str) -> JsonObject:
    limits: JsonObject = draw(st.one_of(st.just({}), amounts()))
    requests = {**limits, **draw(st.one_of(st.just({}), amounts()))}
    return {"name": name, "resources": {"requests": requests, "limits": limits}}


@st.composite
def pods(draw: st.DrawFn, name: str = "incoming", node_name: str = "") -> JsonObject:
    count = draw(st.integers(1, 3))
    spec: JsonObject = {"containers": [draw(containers(f"c{index}")) for index in range(count)]}
    if draw(st.integers(0, 3)) == 0:
        init = draw(containers("init"))
        spec["initContainers"] = [{**init, **draw(st.sampled_from([{}, ALWAYS]))}]
    if draw(st.integers(0, 3)) == 0:
        spec["overhead"] = draw(amounts())
    if node_name:
        spec["nodeName"] = node_name
    return {"metadata": {"name": name, "namespace": "default"}, "spec": spec}


ALWAYS: Final = {"restartPolicy": "Always"}


@st.composite
def metrics(draw: st.DrawFn) -> list[JsonObject]:
    kinds = st.sampled_from(["CPU", "CPU", "Memory", "Memory", "Energy"])
    operators = st.sampled_from(["AVG", "AVG", "STD", "Latest", "Unknown", "", None])
    listed = []
    for _ in range(draw(st.integers(0, 5))):
        metric = {"type": draw(kinds), "operator": draw(operators), "value": draw(VALUES)}
        listed.append({key: value for key, value in metric.items() if value is not None})
    return listed


@st.composite
def clusters(draw: st.DrawFn) -> JsonObject:
    """Nodes, pods on them, and what a load-watcher says."""
    nodes, measured, others = [], {}, []
    for index in range(draw(st.integers(1, 4))):
        name = f"node-{index}"
        cpu = draw(st.sampled_from(["0", "2", "4", "7910m", "64"]))
        memory = draw(st.sampled_from(["0", "4Gi", "33000000Ki", "64Gi"]))
        capacity = {"cpu": cpu, "memory": memory, "pods": "110"}
        allocatable = draw(
            st.sampled_from([capacity, {**capacity, "cpu": "1900m", "memory": "3Gi"}])
        )
        status = {"capacity": capacity, "allocatable": allocatable}
        nodes.append({"metadata": {"name": name}, "status": status})
        if draw(st.integers(0, 4)):
            measured[name] = {"metrics": draw(metrics())}
        others += [
            draw(pods(f"{name}-{number}", name)) for number in range(draw(st.integers(0, 3)))
        ]
    window = {"duration": "15m", "start": END_SECONDS - 900, "end": END_SECONDS}
    answer = {"timestamp": END_SECONDS, "window": window, "data": {"NodeMetricsMap": measured}}
    return {"nodes": nodes, "pods": others, "metrics": answer, "pod": draw(pods())}


# --- the reading, one node at a time ------------------------------------------------------------


def number(quantity: str) -> Decimal:
    suffixes = {"m": "0.001", "M": "1e6", "Ki": "1024", "Mi": "1048576", "Gi": "1073741824"}
    for suffix, factor in sorted(suffixes.items(), reverse=True):
        if quantity.endswith(suffix):
            return Decimal(quantity.removesuffix(suffix)) * Decimal(factor)
    return Decimal(quantity)


def whole(resource: str, amounts: Mapping[str, str]) -> int:
    """Millicores or bytes, rounded up."""
    exact = number(amounts.get(resource, "0")) * (1000 if resource == "cpu" else 1)
    return int(exact.to_integral_value(ROUND_CEILING))


def of_pod(pod: JsonObject, resource: str, which: str) -> int:
    """The sum of the containers, or the largest init container, and overhead."""
    spec = pod["spec"]

    def each(name: str) -> list[int]:
        return [whole(resource, one["resources"][which]) for one in spec.get(name, ())]

    total = max([sum(each("containers")), *each("initContainers")])
    return total + whole(resource, spec.get("overhead", {}))


def of_node(node: JsonObject, resource: str, which: str = "allocatable") -> int:
    return whole(resource, node["status"][which])


def measured(case: JsonObject, node: JsonObject) -> list[JsonObject] | None:
    found = case["metrics"]["data"]["NodeMetricsMap"].get(node["metadata"]["name"])
    return None if found is None else list(found["metrics"])


def utilisation(listed: Sequence[JsonObject]) -> list[float]:
    return [
        each["value"]
        for each in listed
        if each["type"] == "CPU" and each.get("operator") in {"AVG", "Latest"}
    ]


def mean_and_deviation(listed: Sequence[JsonObject], type_: str) -> tuple[float, float] | None:
    found = [each for each in listed if each["type"] == type_]
    if not found:
        return None
    averages = [each["value"] for each in found if each.get("operator") == "AVG"]
    latest = [each["value"] for each in found if each.get("operator", "") in {"", "Latest"}]
    deviations = [each["value"] for each in found if each.get("operator") == "STD"]
    return [0.0, *latest, *averages][-1], [0.0, *deviations][-1]


def rounded(value: float) -> int:
    return math.floor(value + 0.5) if value % 1 != 0.5 - 2**-54 else math.floor(value)


def is_at_edge(value: float) -> bool:
    """Whether the last digit of a float decides how a score is rounded."""
    return abs(value % 1 - 0.5) < 1e-6


def between(low: float, value: float, high: float) -> float:
    return max(low, min(value, high))


def agree(case: JsonObject, read: Mapping[str, float]) -> None:
    """Each node has the score that was read, or one of both where the last digit decides."""
    result = decide_plugin_case({"id": "drawn", "suite": "drawn", **case})
    assert result["raw"].keys() == read.keys()
    for name, value in read.items():
        if is_at_edge(value):
            assert abs(result["raw"][name] - value) < 1
        else:
            assert result["raw"][name] == rounded(value), name
    assert result["normalised"] == result["raw"]


# --- TargetLoadPacking --------------------------------------------------------------------------


def predicted_millis(pod: JsonObject, default: int, multiplier: float) -> int:
    total = whole("cpu", pod["spec"].get("overhead", {}))
    for container in pod["spec"]["containers"]:
        limits, requests = container["resources"]["limits"], container["resources"]["requests"]
        if "cpu" in limits:
            total += whole("cpu", limits)
        elif "cpu" in requests:
            total += rounded(whole("cpu", requests) * multiplier)
        else:
            total += default
    return total


def target_score(case: JsonObject, node: JsonObject, target: int, *expected: Any) -> float:
    loads = utilisation(measured(case, node) or ())
    if not loads:
        return 0
    name, capacity = node["metadata"]["name"], of_node(node, "cpu", "capacity")
    missing = sum(
        predicted_millis(pod, *expected)
        for pod in case["pods"]
        if pod["spec"]["nodeName"] == name
        and case["assigned"].get(f"default/{pod['metadata']['name']}", 0) > END_SECONDS - 60
    )
    load = 0.0
    if capacity:
        pod = predicted_millis(case["pod"], *expected)
        load = 100 * (loads[-1] / 100 * capacity + pod + missing) / capacity
    if load > 100:
        return 0
    if load > target:
        return target * (100 - load) / (100 - target)
    return (100 - target) * load / target + target


@settings(max_examples=30, deadline=None)
@given(
    clusters(),
    st.sampled_from([-1, 0, 1, 40, 73, 99, 100]),
    st.sampled_from(["1", "1.5", "0.33"]),
    st.sampled_from([{"cpu": "1000m"}, {"cpu": "100m"}, {"memory": "1Gi"}]),
    st.data(),
)
def test_target_load_packing(
    cluster: JsonObject, target: int, multiplier: str, default: JsonObject, data: st.DataObject
) -> None:
    seen = st.sampled_from([None, -300, -60, -59, 0, 5])
    assigned = {
        f"default/{pod['metadata']['name']}": END_SECONDS + late
        for pod in cluster["pods"]
        if (late := data.draw(seen)) is not None
    }
    args = {"targetUtilization": target, "defaultRequestsMultiplier": multiplier}
    args |= {"defaultRequests": default}
    case = {**cluster, "plugin": "TargetLoadPacking", "args": args, "assigned": assigned}
    expected = whole("cpu", default), float(multiplier)
    read = {
        node["metadata"]["name"]: target_score(case, node, target if target > 0 else 40, *expected)
        for node in case["nodes"]
    }
    agree(case, read)


# --- LoadVariationRiskBalancing -----------------------------------------------------------------


def variation_score(case: JsonObject, node: JsonObject, margin: float, root: float) -> float:
    scores = []
    for resource, type_ in (("cpu", "CPU"), ("memory", "Memory")):
        known = mean_and_deviation(measured(case, node) or (), type_)
        if known is None:
            continue
        capacity = of_node(node, resource) / (1 if resource == "cpu" else 2**20)
        request = of_pod(case["pod"], resource, "requests") / (1 if resource == "cpu" else 2**20)
        if capacity <= 0:
            scores.append(0.0)
            continue
        used, deviation = (between(0, value * capacity / 100, capacity) for value in known)
        mu = between(0, (used + request) / capacity, 1)
        exponent = 1 / root if root else math.inf
        sigma = between(0, between(0, deviation / capacity, 1) ** exponent * margin, 1)
        scores.append((1 - (mu + sigma) / 2) * 100)
    return min(scores, default=0)


@settings(max_examples=30, deadline=None)
@given(clusters(), st.sampled_from([-1, 0, 0.5, 1, 3.5]), st.sampled_from([-2, 0, 0.5, 1, 2, 10]))
def test_load_variation_risk_balancing(
    cluster: JsonObject, margin: float, sensitivity: float
) -> None:
    args = {"safeVarianceMargin": margin, "safeVarianceSensitivity": sensitivity}
    case = {**cluster, "plugin": "LoadVariationRiskBalancing", "args": args}
    factor, root = (value if value >= 0 else 1 for value in (margin, sensitivity))
    read = {
        node["metadata"]["name"]: variation_score(case, node, factor, root)
        for node in case["nodes"]
    }
    agree(case, read)


# --- LowRiskOverCommitment ----------------------------------------------------------------------


def beta_below(alpha: float, beta: float, x: float) -> float:
    """The Beta distribution's function, by a series whose terms are all positive."""
    if x <= 0 or x >= 1:
        return float(x >= 1)
    if x > alpha / (alpha + beta):
        return 1 - beta_below(beta, alpha, 1 - x)
    log = math.lgamma(alpha + beta) - math.lgamma(alpha + 1) - math.lgamma(beta)
    factor = math.exp(log + alpha * math.log(x) + beta * math.log1p(-x))
    term = total = 1.0
    for step in range(1, 200_000):
        term *= (alpha + beta + step - 1) / (alpha + step) * x
        total += term
        if term < total * 1e-17:
            break
    return factor * total


def load_risk(mu: float, sigma: float, capacity: int, requested: int, limited: int) -> float:
    """The probability that the load is beyond what is requested, given the limits."""
    threshold = between(0, min(requested, capacity) / capacity, 1) if capacity else 0
    alpha = beta = 0.0
    if mu and sigma and sigma**2 < mu * (1 - mu):
        size = mu * (1 - mu) / (sigma * sigma + mu * mu - mu * mu) - 1
        alpha, beta = mu * size, (1 - mu) * size
    if mu == 0 or (sigma == 0 and mu <= threshold):
        within = 1.0
    elif sigma == 0:
        within = 0.0
    else:
        within = beta_below(alpha, beta, threshold) if alpha else 0
    if limited < capacity and min(requested, capacity) <= limited:
        if limited == 0:
            within = 1
        elif alpha and (below := beta_below(alpha, beta, limited / capacity)) > 0:
            within = between(0, within / below, 1)
    return 1 - within


def risk_score(
    case: JsonObject, node: JsonObject, window: float, weights: Mapping[str, float]
) -> float:
    pod, listed = case["pod"], measured(case, node)
    asked = [
        of_pod(pod, resource, which)
        for resource in ("cpu", "memory")
        for which in ("requests", "limits")
    ]
    if listed is None or not any(asked):
        return 0
    here = [each for each in case["pods"] if each["spec"]["nodeName"] == node["metadata"]["name"]]
    worst = 0.0
    for resource, type_ in (("cpu", "CPU"), ("memory", "Memory")):
        capacity = of_node(node, resource)
        requests = [of_pod(each, resource, "requests") for each in [*here, pod]]
        limits = [
            max(of_pod(each, resource, "limits"), request)
            for each, request in zip([*here, pod], requests, strict=True)
        ]
        limit, request = sum(limits), min(sum(requests), capacity)
        by_limit = (limit - capacity) / (limit - request) if limit > capacity else 0
        by_load, known = 0.0, mean_and_deviation(listed, type_)
        if known is not None:
            mu, sigma = (between(0, value / 100, 1) if capacity else 0 for value in known)
            sigma = min(sigma * math.sqrt(window), math.sqrt(mu * (1 - mu) * 0.99))
            by_load = load_risk(mu, sigma, capacity, sum(requests[:-1]), sum(limits[:-1]))
        weight = weights.get(resource, 0.5)
        weight = weight if 0 <= weight <= 1 else 0.5
        worst = max(worst, between(0, weight * by_limit + (1 - weight) * by_load, 1))
    return 100 * (1 - worst)


@settings(max_examples=30, deadline=None)
@given(
    clusters(),
    st.sampled_from([-1, 0, 1, 5, 30]),
    st.dictionaries(
        st.sampled_from(["cpu", "memory"]), st.sampled_from([-1.0, 0.0, 0.3, 1.0, 2.0])
    ),
)
def test_low_risk_over_commitment(
    cluster: JsonObject, window: int, weights: dict[str, float]
) -> None:
    args = {"smoothingWindowSize": window, "riskLimitWeights": weights}
    case = {**cluster, "plugin": "LowRiskOverCommitment", "args": args}
    smoothing = float(window if window > 0 else 5)
    read = {
        node["metadata"]["name"]: risk_score(case, node, smoothing, weights)
        for node in case["nodes"]
    }
    agree(case, read)


# --- Peaks --------------------------------------------------------------------------------------


def framework_request(pod: JsonObject) -> int:
    """Millicores: sidecars run on beside what comes after them."""
    spec, beside, most = pod["spec"], 0, 0
    for container in spec.get("initContainers", ()):
        asked = whole("cpu", container["resources"]["requests"])
        if container.get("restartPolicy") == "Always":
            beside += asked
            most = max(most, beside)
        else:
            most = max(most, beside + asked)
    running = sum(whole("cpu", each["resources"]["requests"]) for each in spec["containers"])
    return max(most, running + beside) + whole("cpu", spec.get("overhead", {}))


def added_power(case: JsonObject, node: JsonObject, models: JsonObject) -> int:
    loads = utilisation(measured(case, node) or ())
    model = models.get(node["metadata"]["name"], {"k1": 0.0, "k2": 0.0})
    if not loads:
        return 0
    capacity = of_node(node, "cpu", "capacity")
    asked = framework_request(case["pod"])
    load = 100 * (loads[0] / 100 * capacity + asked) / capacity if capacity else 0
    if load > 100:
        return 0
    raised: float = math.exp(model["k2"] * load) - math.exp(model["k2"] * loads[0])
    return math.trunc(float(model["k1"]) * raised * 1e15)


@settings(max_examples=30, deadline=None)
@given(clusters(), st.data())
def test_peaks(cluster: JsonObject, data: st.DataObject) -> None:
    models = {
        f"node-{index}": {
            "k0": 100.0,
            "k1": data.draw(st.sampled_from([-20.5, 0.0, 1.25, 64.2449])),
            "k2": data.draw(st.sampled_from([-0.1403, 0.0, 0.00015, 0.022525])),
        }
        for index in range(data.draw(st.integers(1, 4)))
    }
    args = {"WatcherAddress": "http://load-watcher:2020", "NodePowerModel": models}
    case = {**cluster, "plugin": "Peaks", "args": args}
    result = decide_plugin_case({"id": "drawn", "suite": "drawn", **case})
    read = {node["metadata"]["name"]: added_power(case, node, models) for node in case["nodes"]}
    for name, value in read.items():
        assert math.isclose(result["raw"][name], value, rel_tol=1e-9, abs_tol=1000), name
    raw = result["raw"]
    lowest, highest = min(raw.values()), max(raw.values())
    for name, value in raw.items():
        if not lowest and not highest:
            assert result["normalised"][name] == 0
        elif lowest == highest:
            assert result["normalised"][name] == 100
        else:
            share = 100.0 * (value - lowest) / (highest - lowest)
            assert result["normalised"][name] == 100 - math.trunc(share)
