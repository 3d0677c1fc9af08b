from typing import Any

import pytest

from stellwerk_cluster.admission.plugins import RBAC_PLUGINS, default_plugins, plugin_flags
from stellwerk_cluster.apimachinery.kinds import built_in_kinds
from stellwerk_cluster.apimachinery.strategy import KindStrategy
from stellwerk_cluster.registry.kind_strategy import parse_rules, strategy_of
from tests.support.embedded_rules import Rules, pod


def named(**rest: Any) -> dict[str, Any]:
    return {"metadata": {"name": "x"}, **rest}


def template(**spec: Any) -> dict[str, Any]:
    return {"metadata": {"labels": {"a": "b"}}, "spec": {**pod()["spec"], **spec}}


def workload(**spec: Any) -> dict[str, Any]:
    selector = {"matchLabels": {"a": "b"}}
    return named(spec={"selector": selector, "template": template(), **spec})


CLAIM = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
JOB = {"template": template(restartPolicy="Never")}


@pytest.mark.parametrize(
    ("plural", "group", "body", "expected"),
    [
        pytest.param(
            "nodes",
            "",
            named(status={"capacity": {"example.com/gpu": "500m"}}),
            [
                'status.capacity.example.com/gpu: Invalid value: "500m": must be an integer',
                'status.allocatable.example.com/gpu: Invalid value: "500m": must be an integer',
            ],
            id="devices of a node are whole",
        ),
        pytest.param(
            "nodes",
            "",
            named(spec={"podCIDRs": ["10.0.0.0/24", "10.0.1.0/24"]}),
            [
                (
                    'spec.podCIDRs: Invalid value: ["10.0.0.0/24","10.0.1.0/24"]: may specify '
                    "no more "
                    "than one CIDR for each IP family"
                )
            ],
            id="a node has one block of each family",
        ),
        pytest.param(
            "services",
            "",
            named(spec={"ports": [{"port": 80}, {"port": 80}]}),
            [
                "spec.ports[0].name: Required value",
                "spec.ports[1].name: Required value",
                (
                    'spec.ports[1]: Duplicate value: {"Name":"","Protocol":"TCP","AppProtocol":null'
                    ","
                    '"Port":80,"TargetPort":0,"NodePort":0}'
                ),
            ],
            id="ports of a service differ",
        ),
        pytest.param(
            "services",
            "",
            named(spec={"type": "ExternalName"}),
            ["spec.externalName: Required value"],
            id="an external service has a name",
        ),
        pytest.param(
            "services",
            "",
            named(spec={"type": "NodePort", "ports": [{"port": 80, "nodePort": 80}]}),
            [
                (
                    "spec.ports[0].nodePort: Invalid value: 80: provided port is not in the valid "
                    "range. The range of valid ports is 30000-32767"
                )
            ],
            id="a node port is in its range",
        ),
        pytest.param(
            "persistentvolumeclaims",
            "",
            named(spec={**CLAIM, "accessModes": ["ReadWriteOncePod", "ReadOnlyMany"]}),
            ["spec.accessModes: Forbidden: may not use ReadWriteOncePod with other access modes"],
            id="exclusive access is exclusive",
        ),
        pytest.param(
            "persistentvolumes",
            "",
            named(
                spec={
                    "accessModes": ["ReadWriteOnce"],
                    "capacity": {"storage": "1Gi"},
                    "local": {"path": "/x"},
                }
            ),
            ["spec.local.nodeAffinity: Required value: Local volume requires node affinity"],
            id="a local volume is on some node",
        ),
        pytest.param(
            "secrets",
            "",
            named(type="kubernetes.io/tls", data={"tls.crt": ""}),
            ["data[tls.key]: Required value"],
            id="a secret has the keys of its type",
        ),
        pytest.param(
            "configmaps",
            "",
            named(data={"a": "x" * (1 << 20) + "x"}),
            ["[]: Too long: may not be more than 1048576 bytes"],
            id="a config map has a size",
        ),
        pytest.param(
            "deployments",
            "apps",
            workload(template=template(restartPolicy="Never")),
            [
                (
                    'spec.template.spec.restartPolicy: Unsupported value: "Never": '
                    "supported values: "
                    '"Always"'
                )
            ],
            id="pods of a deployment are kept running",
        ),
        pytest.param(
            "deployments",
            "apps",
            workload(selector={}),
            ["spec.selector: Invalid value: {}: empty selector is invalid for deployment"],
            id="a deployment selects",
        ),
        pytest.param(
            "deployments",
            "apps",
            workload(strategy={"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 0}}),
            [
                (
                    "spec.strategy.rollingUpdate.maxUnavailable: Invalid value: 0: may not be 0 "
                    "when "
                    "`maxSurge` is 0"
                )
            ],
            id="a rollout moves",
        ),
        pytest.param(
            "jobs",
            "batch",
            named(spec={"template": template()}),
            [
                (
                    "spec.template.spec.restartPolicy: Required value: valid values: "
                    '"OnFailure", "Never"'
                )
            ],
            id="pods of a job end",
        ),
        pytest.param(
            "jobs",
            "batch",
            named(spec={**JOB, "completionMode": "Indexed"}),
            [],
            id="an indexed job counts to one by default",
        ),
        pytest.param(
            "cronjobs",
            "batch",
            named(spec={"schedule": "* * * *", "jobTemplate": {"spec": JOB}}),
            [
                (
                    'spec.schedule: Invalid value: "* * * *": expected exactly 5 fields, found 4: '
                    "[* * * *]"
                )
            ],
            id="a schedule has five fields",
        ),
        pytest.param(
            "ingresses",
            "networking.k8s.io",
            named(spec={}),
            ["spec: Required value: either `defaultBackend` or `rules` must be specified"],
            id="an ingress leads somewhere",
        ),
        pytest.param(
            "networkpolicies",
            "networking.k8s.io",
            named(spec={"podSelector": {}, "ingress": [{"from": [{}]}]}),
            ["spec.ingress[0].from[0]: Required value: must specify a peer"],
            id="a policy names its peers",
        ),
        pytest.param(
            "roles",
            "rbac.authorization.k8s.io",
            named(rules=[{"verbs": [], "resources": ["pods"], "apiGroups": [""]}]),
            ["rules[0].verbs: Required value: verbs must contain at least one value"],
            id="a rule allows something",
        ),
        pytest.param(
            "rolebindings",
            "rbac.authorization.k8s.io",
            named(roleRef={"kind": "Pod", "name": "x"}),
            ['roleRef.kind: Unsupported value: "Pod": supported values: "ClusterRole", "Role"'],
            id="a binding is to a role",
        ),
        pytest.param(
            "horizontalpodautoscalers",
            "autoscaling",
            named(
                spec={
                    "minReplicas": 3,
                    "maxReplicas": 2,
                    "scaleTargetRef": {"kind": "Deployment", "name": "x"},
                }
            ),
            ["spec.maxReplicas: Invalid value: 2: must be greater than or equal to `minReplicas`"],
            id="an autoscaler has room",
        ),
        pytest.param(
            "resourcequotas",
            "",
            named(spec={"hard": {"gold": "1"}}),
            [
                (
                    'spec.hard[gold]: Invalid value: "gold": must be a standard resource type or '
                    "fully "
                    "qualified"
                ),
                'spec.hard[gold]: Invalid value: "gold": must be a standard resource for quota',
            ],
            id="a quota limits what there is",
        ),
    ],
)
def test_an_object_that_breaks_a_rule_of_its_kind_is_refused(
    plural: str, group: str, body: dict[str, Any], expected: list[str]
) -> None:
    assert Rules().refused(plural, body, group) == expected


def test_a_claim_that_waits_does_not_grow() -> None:
    rules = Rules()
    rules.create("persistentvolumeclaims", named(spec=CLAIM))
    more = {"spec": {"resources": {"requests": {"storage": "2Gi"}}}}
    assert rules.change_refused("persistentvolumeclaims", "x", more) == [
        (
            '403 persistentvolumeclaims "x" is forbidden: only bound persistent volume claims '
            "can be "
            "expanded"
        )
    ]


def test_what_a_stateful_set_was_made_with_stays() -> None:
    rules = Rules()
    rules.create("statefulsets", workload(serviceName="a"), "apps")
    refusal = rules.change_refused(
        "statefulsets", "x", {"spec": {"serviceName": "b"}}, group="apps"
    )
    assert refusal == [
        (
            "spec: Forbidden: updates to statefulset spec for fields other than 'replicas', "
            "'ordinals', 'template', 'updateStrategy', 'revisionHistoryLimit', "
            "'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden"
        )
    ]


def test_two_services_have_two_node_ports() -> None:
    rules = Rules()
    ports = set()
    for name in ("a", "b"):
        spec = {"type": "NodePort", "ports": [{"port": 80}]}
        stored = rules.create("services", {"metadata": {"name": name}, "spec": spec})
        ports.add(stored["spec"]["ports"][0]["nodePort"])
    assert len(ports) == 2


def test_plugins_are_turned_on_and_off_by_name() -> None:
    assert plugin_flags().applied(enforced=False) == default_plugins()
    assert plugin_flags().applied(enforced=True) == default_plugins() | RBAC_PLUGINS
    flags = plugin_flags("PodTolerationRestriction", "LimitRanger, Priority")
    changed = flags.applied(enforced=False)
    assert changed == (default_plugins() | {"PodTolerationRestriction"}) - {
        "LimitRanger",
        "Priority",
    }
    with pytest.raises(ValueError, match="no admission plugin Nothing"):
        plugin_flags("Nothing")


@pytest.mark.parametrize("kind", [kind.type_name for kind in built_in_kinds()], ids=str)
def test_the_tables_name_functions_that_there_are(kind: str) -> None:
    assert isinstance(strategy_of(kind), KindStrategy)


def test_a_change_is_valid_if_the_object_is_and_the_rule_for_changes_agrees() -> None:
    strategy = strategy_of("ReplicaSet")
    old, new = ({"spec": {"replicas": count}} for count in (1, -1))
    errors = {error.field for error in strategy.validate_update(new, old, "")}
    assert "spec.replicas" in errors
    assert list(strategy.validate_update(new, old, "status")) == []


@pytest.mark.parametrize(
    ("rules", "error"),
    [
        pytest.param({"defaults": "defaults.pod_strategy.merge_label_keys"}, TypeError, id="word"),
        pytest.param({"default": "defaults.pod_strategy.nothing"}, AttributeError, id="function"),
        pytest.param({"default": "defaults.nowhere.default_pod"}, ImportError, id="module"),
        pytest.param({"default": "default_nothing"}, KeyError, id="shared function"),
    ],
)
def test_a_rule_that_does_not_exist_is_refused(
    rules: dict[str, str], error: type[Exception]
) -> None:
    with pytest.raises(error):
        parse_rules("Pod", rules)
