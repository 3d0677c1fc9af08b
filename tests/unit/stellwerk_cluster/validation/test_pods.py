from typing import Any

import pytest

from tests.support.embedded_rules import Rules, pod, pod_with

IN_RANGE = "must be between 1 and 65535, inclusive"
C = "spec.containers[0]"
TERM = "requiredDuringSchedulingIgnoredDuringExecution"


@pytest.fixture(scope="module")
def rules() -> Rules:
    return Rules()


def volume(**source: Any) -> dict[str, Any]:
    return pod(volumes=[{"name": "v", **source}])


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        pytest.param(
            pod_with(ports=[{"containerPort": 70000}]),
            [f"{C}.ports[0].containerPort: Invalid value: 70000: {IN_RANGE}"],
            id="a port is in range",
        ),
        pytest.param(
            pod_with(ports=[{"containerPort": 80, "name": "Web"}]),
            [
                (
                    f'{C}.ports[0].name: Invalid value: "Web": must contain only alpha-numeric '
                    "characters (a-z, 0-9), and hyphens (-)"
                )
            ],
            id="the name of a port is a service name",
        ),
        pytest.param(
            pod_with(ports=[{"containerPort": 80, "protocol": "ICMP"}]),
            [
                (
                    f'{C}.ports[0].protocol: Unsupported value: "ICMP": supported values: "SCTP", '
                    '"TCP", "UDP"'
                )
            ],
            id="a protocol is one of three",
        ),
        pytest.param(
            pod_with(
                ports=[{"containerPort": 1, "hostPort": 8}, {"containerPort": 2, "hostPort": 8}]
            ),
            [f'{C}.ports[1].hostPort: Duplicate value: "TCP//8"'],
            id="a port of the host is taken once",
        ),
        pytest.param(
            pod_with(env=[{"name": "A=B"}, {"value": "x"}]),
            [
                (
                    f'{C}.env[0].name: Invalid value: "A=B": a valid environment variable name '
                    "must "
                    "consist only of printable ASCII characters other than '='"
                ),
                f"{C}.env[1].name: Required value",
            ],
            id="variables have names",
        ),
        pytest.param(
            pod_with(
                env=[
                    {
                        "name": "A",
                        "value": "x",
                        "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}},
                    }
                ]
            ),
            [
                (
                    f'{C}.env[0].valueFrom: Invalid value: "": may not be specified '
                    f"when `value` is not empty"
                )
            ],
            id="a variable has one source",
        ),
        pytest.param(
            pod_with(volumeMounts=[{"name": "gone", "mountPath": "/x"}]),
            [f'{C}.volumeMounts[0].name: Not found: "gone"'],
            id="a mount names a volume of the pod",
        ),
        pytest.param(
            pod_with(livenessProbe={"httpGet": {"port": 80}, "successThreshold": 2}),
            [f"{C}.livenessProbe.successThreshold: Invalid value: 2: must be 1"],
            id="a container is alive after one success",
        ),
        pytest.param(
            pod_with(readinessProbe={"httpGet": {"port": 80}, "exec": {"command": ["x"]}}),
            [f"{C}.readinessProbe.httpGet: Forbidden: may not specify more than 1 handler type"],
            id="a probe asks in one way",
        ),
        pytest.param(
            pod_with(livenessProbe={}),
            [f"{C}.livenessProbe: Required value: must specify a handler type"],
            id="a probe asks in some way",
        ),
        pytest.param(
            pod_with(resources={"requests": {"example.com/gpu": "1"}}),
            [
                (
                    f"{C}.resources.limits: Required value: Limit must be set for "
                    f"non overcommitable resources"
                )
            ],
            id="an extended resource has a limit",
        ),
        pytest.param(
            pod_with(
                resources={"requests": {"example.com/gpu": "1"}, "limits": {"example.com/gpu": "2"}}
            ),
            [
                (
                    f'{C}.resources.requests: Invalid value: "1": must be equal to '
                    f"example.com/gpu limit of 2"
                )
            ],
            id="of an extended resource, request and limit are equal",
        ),
        pytest.param(
            pod_with(resources={"limits": {"hugepages-2Mi": "3Mi", "cpu": "1"}}),
            [
                (
                    f'{C}.resources.limits[hugepages-2Mi]: Invalid value: "3Mi": 3Mi is not '
                    "positive "
                    "integer multiple of hugepages-2Mi"
                ),
                (
                    f'{C}.resources.requests[hugepages-2Mi]: Invalid value: "3Mi": '
                    f"3Mi is not positive "
                    "integer multiple of hugepages-2Mi"
                ),
            ],
            id="huge pages come whole",
        ),
        pytest.param(
            pod_with(imagePullPolicy="Sometimes"),
            [
                (
                    f'{C}.imagePullPolicy: Unsupported value: "Sometimes": '
                    f'supported values: "Always", '
                    '"IfNotPresent", "Never"'
                )
            ],
            id="images are pulled in one of three ways",
        ),
        pytest.param(
            pod_with(image=" x"),
            [f'{C}.image: Invalid value: " x": must not have leading or trailing whitespace'],
            id="an image has no spaces around it",
        ),
        pytest.param(
            volume(hostPath={"path": "/a/../b"}),
            ["spec.volumes[0].hostPath.path: Invalid value: \"/a/../b\": must not contain '..'"],
            id="a path of the host does not lead upwards",
        ),
        pytest.param(
            volume(emptyDir={}, secret={"secretName": "s"}),
            ["spec.volumes[0].secret: Forbidden: may not specify more than 1 volume type"],
            id="a volume has one source",
        ),
        pytest.param(
            volume(configMap={"defaultMode": 4096}),
            [
                "spec.volumes[0].configMap.name: Required value",
                (
                    "spec.volumes[0].configMap.defaultMode: Invalid value: 4096: must be a number "
                    "between 0 and 0777 (octal), both inclusive"
                ),
            ],
            id="a config map has a name and a mode",
        ),
        pytest.param(
            pod(dnsPolicy="None"),
            ["spec.dnsConfig: Required value: must provide `dnsConfig` when `dnsPolicy` is None"],
            id="without a policy, name servers are given",
        ),
        pytest.param(
            pod(hostAliases=[{"ip": "300.1.1.1"}]),
            [
                (
                    'spec.hostAliases[0].ip: Invalid value: "300.1.1.1": must be a valid IP '
                    "address, "
                    "(e.g. 10.9.8.7 or 2001:db8::ffff)"
                )
            ],
            id="an alias is of an address",
        ),
        pytest.param(
            pod(activeDeadlineSeconds=0),
            [
                (
                    "spec.activeDeadlineSeconds: Invalid value: 0: must be between "
                    "1 and 2147483647, inclusive"
                )
            ],
            id="a deadline is in the future",
        ),
        pytest.param(
            pod(
                topologySpreadConstraints=[
                    {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"},
                    {"maxSkew": 2, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"},
                ]
            ),
            [
                (
                    "spec.topologySpreadConstraints[0].{topologyKey, whenUnsatisfiable}: Duplicate "
                    'value: "{zone, DoNotSchedule}"'
                )
            ],
            id="a constraint over a key is given once",
        ),
        pytest.param(
            pod(
                affinity={
                    "nodeAffinity": {
                        TERM: {
                            "nodeSelectorTerms": [
                                {
                                    "matchFields": [
                                        {"key": "spec.x", "operator": "In", "values": ["a"]}
                                    ]
                                }
                            ]
                        }
                    }
                }
            ),
            [
                (
                    f"spec.affinity.nodeAffinity.{TERM}.nodeSelectorTerms[0].matchFields[0].key: "
                    'Invalid value: "spec.x": not a valid field selector key'
                )
            ],
            id="nodes are selected by one field only",
        ),
        pytest.param(
            pod(securityContext={"runAsUser": -1}),
            [
                (
                    "spec.securityContext.runAsUser: Invalid value: -1: must be "
                    "between 0 and 2147483647, inclusive"
                )
            ],
            id="a user has a number",
        ),
        pytest.param(
            pod(os={"name": "windows"}, hostPID=True),
            ["spec.hostPID: Forbidden: cannot be set for a windows pod"],
            id="a pod of Windows has no processes of the host",
        ),
        pytest.param(
            pod(
                resourceClaims=[{"name": "a", "resourceClaimName": "x"}],
                initContainers=[{"name": "c", "image": "x"}],
            ),
            ['spec.initContainers[0].name: Duplicate value: "c"'],
            id="names are unique among all containers",
        ),
        pytest.param(
            pod_with(resources={"claims": [{"name": "b"}]}),
            [
                (
                    f'{C}.resources.claims[0]: Not found: "b": must be one of the names in '
                    "pod.spec.resourceClaims which is empty"
                )
            ],
            id="a claim of a container is one of the pod",
        ),
        pytest.param(
            pod(ephemeralContainers=[{"name": "d", "image": "x"}]),
            ["spec.ephemeralContainers: Forbidden: cannot be set on create"],
            id="ephemeral containers come later",
        ),
    ],
)
def test_a_pod_that_breaks_a_rule_is_refused(
    rules: Rules, body: dict[str, Any], expected: list[str]
) -> None:
    assert rules.refused("pods", body) == expected


def test_annotations_together_have_a_size() -> None:
    body = pod()
    body["metadata"]["annotations"] = {"a": "x" * (256 << 10)}
    assert Rules().refused("pods", body) == [
        "metadata.annotations: Too long: may not be more than 262144 bytes"
    ]


def test_two_controllers_of_one_pod_are_refused() -> None:
    owner = {"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "u", "controller": True}
    body = pod()
    body["metadata"]["ownerReferences"] = [owner, owner]
    (error,) = Rules().refused("pods", body)
    assert error.endswith('Found "true" in references for Node/n and Node/n')


def test_keys_of_labels_become_expressions_of_a_new_pod() -> None:
    constraint = {
        "maxSkew": 1,
        "topologyKey": "zone",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {},
        "matchLabelKeys": ["rev", "none"],
    }
    body = pod(topologySpreadConstraints=[constraint])
    body["metadata"]["labels"] = {"rev": "7"}
    stored = Rules().create("pods", body)["spec"]["topologySpreadConstraints"][0]
    assert stored["labelSelector"]["matchExpressions"] == [
        {"key": "rev", "operator": "In", "values": ["7"]}
    ]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        pytest.param(
            pod(nodeSelector={"beta.kubernetes.io/os": "linux"}),
            [
                (
                    "spec.nodeSelector[beta.kubernetes.io/os]: deprecated since "
                    'v1.14; use "kubernetes.io/os" instead'
                )
            ],
            id="a label that went",
        ),
        pytest.param(
            pod_with(resources={"requests": {"memory": "1500m"}}),
            [
                (
                    'spec.containers[0].resources.requests[memory]: fractional byte value "1500m" '
                    "is "
                    "invalid, must be an integer"
                )
            ],
            id="a fraction of a byte",
        ),
        pytest.param(
            pod_with(env=[{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]),
            [
                (
                    'spec.containers[0].env[1]: hides previous definition of "A", '
                    "which may be dropped when using apply"
                )
            ],
            id="a variable twice",
        ),
        pytest.param(
            pod_with(ports=[{"containerPort": 80}, {"containerPort": 80}]),
            [
                (
                    "spec.containers[0].ports[1]: duplicate port definition with "
                    "spec.containers[0].ports[0]"
                )
            ],
            id="a port twice",
        ),
        pytest.param(
            pod(terminationGracePeriodSeconds=-1),
            [
                (
                    "spec.terminationGracePeriodSeconds: must be >= 0; negative "
                    "values are invalid and will be treated as 1"
                )
            ],
            id="a grace period below zero",
        ),
        pytest.param(pod(), [], id="nothing to say"),
    ],
)
def test_what_is_allowed_and_doubtful_is_warned_of(
    body: dict[str, Any], expected: list[str]
) -> None:
    assert Rules().warnings("pods", body) == expected


def test_warnings_are_no_longer_than_a_page() -> None:
    body = pod_with(ports=[{"containerPort": 80}] * 5000)
    assert 0 < len("".join(Rules().warnings("pods", body))) <= 4096


def test_a_pod_with_very_many_mistakes_is_refused_with_the_first_of_them() -> None:
    found = Rules().refused(
        "pods", {"metadata": {"name": "p"}, "spec": {"containers": [{}] * 20_000}}
    )
    assert len(found) == 1000
