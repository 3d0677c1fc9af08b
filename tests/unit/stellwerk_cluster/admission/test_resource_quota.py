from typing import Any

import pytest

from stellwerk_cluster.apimachinery.failures import StatusError
from stellwerk_cluster.cluster import ClusterOptions, EmbeddedCluster
from stellwerk_kube.clock import VirtualClock
from tests.support.embedded_rules import Rules, pod, pod_with


def limit_range(**limit: Any) -> dict[str, Any]:
    return {"metadata": {"name": "l"}, "spec": {"limits": [limit]}}


def quota(rules: Rules, hard: dict[str, str], **spec: Any) -> None:
    rules.create("resourcequotas", {"metadata": {"name": "q"}, "spec": {"hard": hard, **spec}})
    status = {"hard": hard, "used": dict.fromkeys(hard, "0")}
    rules.patch("resourcequotas", "q", {"status": status}, subresource="status")


def used(rules: Rules) -> dict[str, str]:
    found = rules.api.find("resourcequotas", "default", "q")
    assert found is not None
    result: dict[str, str] = found["status"]["used"]
    return result


def test_a_container_gets_the_limits_of_its_namespace() -> None:
    rules = Rules()
    limit = {"default": {"cpu": "500m", "memory": "1Gi"}, "defaultRequest": {"cpu": "100m"}}
    rules.create("limitranges", limit_range(type="Container", **limit))
    stored = rules.create("pods", pod_with(resources={"requests": {"memory": "1Gi"}}))
    assert stored["spec"]["containers"][0]["resources"] == {
        "limits": {"cpu": "500m", "memory": "1Gi"},
        "requests": {"cpu": "100m", "memory": "1Gi"},
    }
    assert stored["metadata"]["annotations"] == {
        "kubernetes.io/limit-ranger": (
            "LimitRanger plugin set: cpu request for container c; cpu, memory limit for container c"
        )
    }
    assert stored["status"]["qosClass"] == "Burstable"


@pytest.mark.parametrize(
    ("limit", "resources", "expected"),
    [
        pytest.param(
            {"type": "Container", "min": {"cpu": "200m"}},
            {"requests": {"cpu": "100m"}},
            "minimum cpu usage per Container is 200m, but request is 100m",
            id="too little",
        ),
        pytest.param(
            {"type": "Pod", "max": {"cpu": "1"}},
            {"limits": {"cpu": "2"}},
            "maximum cpu usage per Pod is 1, but limit is 2",
            id="too much",
        ),
        pytest.param(
            {"type": "Pod", "max": {"cpu": "1"}},
            {},
            "maximum cpu usage per Pod is 1.  No limit is specified",
            id="without end",
        ),
        pytest.param(
            {"type": "Pod", "maxLimitRequestRatio": {"cpu": "2"}},
            {"requests": {"cpu": "100m"}, "limits": {"cpu": "300m"}},
            "cpu max limit to request ratio per Pod is 2, but provided ratio is 3.000000",
            id="too far apart",
        ),
    ],
)
def test_a_pod_outside_the_bounds_is_forbidden(
    limit: dict[str, Any], resources: dict[str, Any], expected: str
) -> None:
    rules = Rules()
    rules.create("limitranges", limit_range(**limit))
    assert rules.refused("pods", pod_with(resources=resources)) == [
        f'403 pods "p" is forbidden: {expected}'
    ]


def test_a_limit_range_that_contradicts_itself_is_refused() -> None:
    body = limit_range(type="Container", min={"cpu": "2"}, max={"cpu": "1"})
    assert (
        'spec.limits[0].min[cpu]: Invalid value: "2": min value 2 is greater than max value 1'
        in Rules().refused("limitranges", body)
    )


def test_what_is_created_is_counted_and_what_exceeds_is_refused() -> None:
    rules = Rules()
    quota(rules, {"pods": "2", "requests.cpu": "1", "count/configmaps": "5"})
    rules.create("pods", pod_with(resources={"requests": {"cpu": "600m"}}))
    assert used(rules) == {"pods": "1", "requests.cpu": "600m", "count/configmaps": "0"}
    second = pod_with(resources={"requests": {"cpu": "500m"}})
    second["metadata"]["name"] = "q"
    assert rules.refused("pods", second) == [
        (
            '403 pods "q" is forbidden: exceeded quota: q, requested: requests.cpu=500m, '
            "used: requests.cpu=600m, limited: requests.cpu=1"
        )
    ]
    rules.create("configmaps", {"metadata": {"name": "c"}})
    assert used(rules)["count/configmaps"] == "1"


def test_a_name_that_is_taken_costs_nothing() -> None:
    rules = Rules()
    quota(rules, {"pods": "5"})
    rules.create("pods", pod())
    assert rules.refused("pods", pod()) == ['409 pods "p" already exists']
    assert used(rules) == {"pods": "1"}


def test_where_cpu_is_limited_containers_say_what_they_take() -> None:
    rules = Rules()
    quota(rules, {"requests.cpu": "1", "limits.memory": "1Gi"})
    assert rules.refused("pods", pod()) == [
        (
            '403 pods "p" is forbidden: failed quota: q: must specify limits.memory for: c; '
            "requests.cpu for: c"
        )
    ]


@pytest.mark.parametrize(
    ("scopes", "body", "counted"),
    [
        pytest.param(["BestEffort"], pod(), "1", id="best effort"),
        pytest.param(["NotBestEffort"], pod(), "0", id="not best effort"),
        pytest.param(["Terminating"], pod(activeDeadlineSeconds=5), "1", id="with a deadline"),
        pytest.param(["PriorityClass"], pod(), "0", id="without a class"),
    ],
)
def test_a_quota_counts_the_pods_of_its_scopes(
    scopes: list[str], body: dict[str, Any], counted: str
) -> None:
    rules = Rules()
    quota(rules, {"pods": "5"}, scopes=scopes)
    rules.create("pods", body)
    assert used(rules) == {"pods": counted}


def test_claims_count_by_their_class() -> None:
    rules = Rules()
    name = "fast.storageclass.storage.k8s.io/requests.storage"
    quota(rules, {"requests.storage": "10Gi", name: "5Gi"})
    size = {"requests": {"storage": "4Gi"}}
    spec = {"accessModes": ["ReadWriteOnce"], "resources": size, "storageClassName": "fast"}
    rules.create("persistentvolumeclaims", {"metadata": {"name": "a"}, "spec": spec})
    assert used(rules) == {"requests.storage": "4Gi", name: "4Gi"}
    assert rules.refused("persistentvolumeclaims", {"metadata": {"name": "b"}, "spec": spec}) == [
        (
            f'403 persistentvolumeclaims "b" is forbidden: exceeded quota: q, '
            f"requested: {name}=4Gi, "
            f"used: {name}=4Gi, limited: {name}=5Gi"
        )
    ]


def test_the_controller_counts_what_is_there_and_what_went() -> None:
    clock = VirtualClock()
    cluster = EmbeddedCluster(0, clock=clock, options=ClusterOptions(kubelet=None, seed=1))
    api = cluster.api
    quotas, pods = api.kinds.resource("resourcequotas"), api.kinds.resource("pods")
    api.create(pods, "default", pod())
    api.create(quotas, "default", {"metadata": {"name": "q"}, "spec": {"hard": {"pods": "3"}}})
    cluster.work.settle()
    status = api.get(quotas, "default", "q").obj["status"]
    assert status == {"hard": {"pods": "3"}, "used": {"pods": "1"}}
    api.patch(pods, ("default", "p"), {"status": {"phase": "Failed"}}, subresource="status")
    clock.advance(1)
    cluster.work.settle()
    assert api.get(quotas, "default", "q").obj["status"]["used"] == {"pods": "0"}


GOLD = "gold.deviceclass.resource.k8s.io/devices"
SILVER = "silver.deviceclass.resource.k8s.io/devices"


def device_claim(name: str, *requests: dict[str, Any]) -> dict[str, Any]:
    named = [{"name": f"r{place}", **each} for place, each in enumerate(requests)]
    return {"metadata": {"name": name}, "spec": {"devices": {"requests": named}}}


def exactly(class_name: str, **fields: Any) -> dict[str, Any]:
    return {"exactly": {"deviceClassName": class_name, **fields}}


@pytest.mark.parametrize(
    ("requests", "counted"),
    [
        pytest.param([exactly("gold", count=2)], {GOLD: "2"}, id="a number"),
        pytest.param([exactly("gold")], {GOLD: "1"}, id="one, if nothing is said"),
        pytest.param([exactly("gold", allocationMode="All")], {GOLD: "32"}, id="all there are"),
        pytest.param(
            [exactly("gold", count=2), exactly("gold"), exactly("silver")],
            {GOLD: "3", SILVER: "1"},
            id="several requests",
        ),
        pytest.param(
            [
                {
                    "firstAvailable": [
                        {"name": "a", "deviceClassName": "gold", "count": 3},
                        {"name": "b", "deviceClassName": "gold"},
                        {"name": "c", "deviceClassName": "silver", "count": 2},
                    ]
                }
            ],
            {GOLD: "3", SILVER: "2"},
            id="of alternatives, the largest of each class",
        ),
    ],
)
def test_devices_count_by_their_class(
    requests: list[dict[str, Any]], counted: dict[str, str]
) -> None:
    rules = Rules()
    quota(rules, {GOLD: "40", SILVER: "40", "count/resourceclaims.resource.k8s.io": "5"})
    rules.create("resourceclaims", device_claim("c", *requests), "resource.k8s.io")
    assert used(rules) == {
        GOLD: counted[GOLD],
        SILVER: counted.get(SILVER, "0"),
        "count/resourceclaims.resource.k8s.io": "1",
    }


def test_devices_beyond_the_quota_are_refused_and_the_controller_counts_them() -> None:
    cluster = EmbeddedCluster(0, clock=VirtualClock(), options=ClusterOptions(kubelet=None, seed=1))
    api = cluster.api
    quotas = api.kinds.resource("resourcequotas")
    claims = api.kinds.resource("resourceclaims", "resource.k8s.io")
    api.create(quotas, "default", {"metadata": {"name": "q"}, "spec": {"hard": {GOLD: "3"}}})
    cluster.work.settle()
    api.create(claims, "default", device_claim("a", exactly("gold", count=2)))
    with pytest.raises(StatusError) as refused:
        api.create(claims, "default", device_claim("b", exactly("gold", count=2)))
    assert refused.value.message.endswith(
        f"exceeded quota: q, requested: {GOLD}=2, used: {GOLD}=2, limited: {GOLD}=3"
    )
    api.patch(quotas, ("default", "q"), {"spec": {"hard": {GOLD: "9"}}})
    cluster.work.settle()
    assert api.get(quotas, "default", "q").obj["status"]["used"] == {GOLD: "2"}


def test_a_pod_that_gets_a_deadline_counts_in_the_other_scope() -> None:
    clock = VirtualClock()
    cluster = EmbeddedCluster(0, clock=clock, options=ClusterOptions(kubelet=None, seed=1))
    api = cluster.api
    quotas, pods = api.kinds.resource("resourcequotas"), api.kinds.resource("pods")
    for scope in ("Terminating", "NotTerminating"):
        spec = {"hard": {"pods": "1"}, "scopes": [scope]}
        api.create(quotas, "default", {"metadata": {"name": scope.lower()}, "spec": spec})
    cluster.work.settle()

    def counts() -> list[str]:
        found = (api.get(quotas, "default", name).obj for name in ("terminating", "notterminating"))
        return [each["status"]["used"]["pods"] for each in found]

    api.create(pods, "default", pod())
    assert counts() == ["0", "1"]
    api.patch(pods, ("default", "p"), {"metadata": {"labels": {"a": "b"}}})
    api.patch(pods, ("default", "p"), {"spec": {"activeDeadlineSeconds": 60}})
    assert counts()[0] == "1"
    clock.advance(1)
    cluster.work.settle()
    assert counts() == ["1", "0"]
    second = pod(activeDeadlineSeconds=5)
    second["metadata"]["name"] = "second"
    with pytest.raises(StatusError, match="exceeded quota: terminating"):
        api.create(pods, "default", second)
    third = pod()
    third["metadata"]["name"] = "third"
    api.create(pods, "default", third)
    with pytest.raises(StatusError, match="exceeded quota: terminating"):
        api.patch(pods, ("default", "third"), {"spec": {"activeDeadlineSeconds": 60}})


def test_a_pod_of_before_a_quota_may_be_labelled() -> None:
    rules = Rules()
    rules.create("pods", pod())
    quota(rules, {"requests.cpu": "1"})
    assert rules.change_refused("pods", "p", {"metadata": {"labels": {"a": "b"}}}) == []


def test_scopes_are_about_pods_alone() -> None:
    rules = Rules()
    quota(rules, {"count/configmaps": "0", "pods": "5"}, scopes=["NotTerminating"])
    rules.create("configmaps", {"metadata": {"name": "c"}})
    rules.create("pods", pod())
    assert used(rules) == {"count/configmaps": "0", "pods": "1"}


@pytest.mark.parametrize(
    ("operator", "values", "counted"),
    [("Exists", None, "1"), ("In", ["gold"], "1"), ("In", ["silver"], "0"), ("NotIn", ["x"], "2")],
)
def test_claims_count_in_the_scope_of_their_volume_attributes(
    operator: str, values: list[str] | None, counted: str
) -> None:
    rules = Rules()
    given = {"values": values} if values else {}
    expression = {"scopeName": "VolumeAttributesClass", "operator": operator, **given}
    selector = {"matchExpressions": [expression]}
    quota(rules, {"persistentvolumeclaims": "5"}, scopeSelector=selector)
    wanted = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    for name, more in (("a", {"volumeAttributesClassName": "gold"}), ("b", {})):
        body = {"metadata": {"name": name}, "spec": {**wanted, **more}}
        rules.create("persistentvolumeclaims", body)
    assert used(rules) == {"persistentvolumeclaims": counted}


def test_what_an_update_no_longer_uses_is_free() -> None:
    clock = VirtualClock()
    cluster = EmbeddedCluster(0, clock=clock, options=ClusterOptions(kubelet=None, seed=1))
    api = cluster.api
    quotas, services = api.kinds.resource("resourcequotas"), api.kinds.resource("services")
    hard = {"services.nodeports": "3"}
    api.create(quotas, "default", {"metadata": {"name": "q"}, "spec": {"hard": hard}})
    cluster.work.settle()
    spec = {"type": "NodePort", "ports": [{"port": 80}]}
    api.create(services, "default", {"metadata": {"name": "s"}, "spec": spec})
    assert api.get(quotas, "default", "q").obj["status"]["used"] == {"services.nodeports": "1"}
    api.patch(services, ("default", "s"), {"spec": {"type": "ClusterIP"}})
    clock.advance(1)
    cluster.work.settle()
    assert api.get(quotas, "default", "q").obj["status"]["used"] == {"services.nodeports": "0"}


def test_a_plugin_that_is_off_by_default_acts_once_it_is_on() -> None:
    term = {"topologyKey": "zone", "labelSelector": {}}
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    body = pod(affinity=affinity)
    assert Rules().refused("pods", body) == []
    assert Rules("LimitPodHardAntiAffinityTopology").refused("pods", body) == [
        (
            '403 pods "p" is forbidden: affinity.PodAntiAffinity.RequiredDuringScheduling has '
            "TopologyKey zone but only key kubernetes.io/hostname is allowed"
        )
    ]


def test_devices_are_tolerated_where_the_plugin_is_on() -> None:
    amounts = {"limits": {"example.com/gpu": "1"}}
    stored = Rules("ExtendedResourceToleration").create("pods", pod_with(resources=amounts))
    assert {"key": "example.com/gpu", "operator": "Exists"} in stored["spec"]["tolerations"]


def test_tolerations_beyond_the_namespace_are_forbidden_where_the_plugin_is_on() -> None:
    rules = Rules("PodTolerationRestriction")
    allowed = '[{"operator": "Exists", "effect": "NoExecute"}]'
    annotations = {"scheduler.alpha.kubernetes.io/tolerationsWhitelist": allowed}
    rules.patch("namespaces", "default", {"metadata": {"annotations": annotations}})
    body = pod(tolerations=[{"key": "a", "operator": "Exists", "effect": "NoSchedule"}])
    assert rules.refused("pods", body) == [
        (
            '403 pods "p" is forbidden: pod tolerations (possibly merged with namespace default '
            "tolerations) conflict with its namespace whitelist"
        )
    ]
