"""Requests as no client should send them: at every verb, with every part of them possibly odd.

`odd_requests` is a Hypothesis strategy. Most requests are nearly right, since what is wholly wrong
is refused at the door: a body is a good one with a few values put in the place of others.
"""

import base64
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias
from urllib.parse import quote

import orjson
import yaml
from hypothesis import strategies as st

JsonValue: TypeAlias = Any

_JSON: Final = "application/json"
_PATCHES: Final = {
    "json": "application/json-patch+json",
    "merge": "application/merge-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "apply": "application/apply-patch+yaml",
}

POD: Final[JsonValue] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {
        "name": "odd",
        "namespace": "default",
        "labels": {"app": "web"},
        "annotations": {"a": "b"},
        "finalizers": ["example.com/hold"],
        "ownerReferences": [
            {"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "u", "controller": True}
        ],
    },
    "spec": {
        "schedulerName": "stellwerk",
        "priority": 0,
        "nodeSelector": {"a": "b"},
        "tolerations": [{"key": "a", "operator": "Exists", "effect": "NoExecute"}],
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [
                        {"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]}
                    ]
                }
            },
            "podAntiAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [
                    {"labelSelector": {"matchLabels": {"a": "b"}}, "topologyKey": "zone"}
                ]
            },
        },
        "topologySpreadConstraints": [
            {
                "maxSkew": 1,
                "topologyKey": "zone",
                "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": {"matchExpressions": [{"key": "a", "operator": "Exists"}]},
            }
        ],
        "containers": [
            {
                "name": "c",
                "image": "i",
                "ports": [{"containerPort": 80, "hostPort": 80, "protocol": "TCP"}],
                "env": [{"name": "A", "value": "b"}],
                "resources": {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "2"}},
                "volumeMounts": [{"name": "v", "mountPath": "/v"}],
                "livenessProbe": {"httpGet": {"port": 80}, "periodSeconds": 1},
            }
        ],
        "volumes": [{"name": "v", "emptyDir": {}}],
        "schedulingGates": [{"name": "example.com/gate"}],
    },
    "status": {"phase": "Pending", "conditions": [{"type": "Ready", "status": "False"}]},
}
_TEMPLATE: Final[JsonValue] = {
    "metadata": {"labels": {"app": "web"}},
    "spec": {"containers": [{"name": "c", "image": "i"}]},
}
_SELECTOR: Final[JsonValue] = {"matchLabels": {"app": "web"}}
_DEFINITION: Final[JsonValue] = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "odds.example.com"},
    "spec": {
        "group": "example.com",
        "scope": "Namespaced",
        "names": {"plural": "odds", "kind": "Odd", "shortNames": ["o"]},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {
                    "status": {},
                    "scale": {
                        "specReplicasPath": ".spec.replicas",
                        "statusReplicasPath": ".status.replicas",
                    },
                },
                "additionalPrinterColumns": [
                    {"name": "R", "type": "integer", "jsonPath": ".spec.replicas"}
                ],
                "selectableFields": [{"jsonPath": ".spec.replicas"}],
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            "spec": {
                                "type": "object",
                                "required": ["replicas"],
                                "x-kubernetes-validations": [{"rule": "self.replicas < 10"}],
                                "properties": {
                                    "replicas": {"type": "integer", "default": 1, "minimum": 0},
                                    "any": {"x-kubernetes-int-or-string": True},
                                    "list": {
                                        "type": "array",
                                        "maxItems": 4,
                                        "items": {"type": "string", "maxLength": 5},
                                        "x-kubernetes-list-type": "set",
                                    },
                                },
                            },
                            "status": {
                                "type": "object",
                                "x-kubernetes-preserve-unknown-fields": True,
                            },
                        },
                    }
                },
            }
        ],
    },
}


def _named(api_version: str, kind: str, **content: JsonValue) -> JsonValue:
    metadata = {"name": "odd", "labels": {"a": "b"}}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **content}


GOOD_BODIES: Final[dict[str, JsonValue]] = {
    "/api/v1/namespaces/default/pods": POD,
    "/api/v1/nodes": _named(
        "v1",
        "Node",
        spec={"taints": [{"key": "a", "effect": "NoSchedule"}], "unschedulable": True},
        status={
            "capacity": {"cpu": "1"},
            "allocatable": {"cpu": "1", "memory": "1Gi"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    ),
    "/api/v1/namespaces": _named("v1", "Namespace", spec={"finalizers": ["kubernetes"]}),
    "/api/v1/namespaces/default/configmaps": _named("v1", "ConfigMap", data={"a": "b"}),
    "/api/v1/namespaces/default/secrets": _named("v1", "Secret", data={"a": "Yg=="}),
    "/api/v1/namespaces/default/services": _named(
        "v1",
        "Service",
        spec={"ports": [{"port": 80, "targetPort": "http"}], "selector": {"a": "b"}},
    ),
    "/api/v1/namespaces/default/serviceaccounts": _named("v1", "ServiceAccount"),
    "/api/v1/namespaces/default/persistentvolumeclaims": _named(
        "v1",
        "PersistentVolumeClaim",
        spec={"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    ),
    "/api/v1/persistentvolumes": _named(
        "v1",
        "PersistentVolume",
        spec={
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "hostPath": {"path": "/p"},
            "claimRef": {"namespace": "default", "name": "c"},
        },
    ),
    "/api/v1/namespaces/default/resourcequotas": _named(
        "v1", "ResourceQuota", spec={"hard": {"pods": "1"}}
    ),
    "/api/v1/namespaces/default/limitranges": _named(
        "v1", "LimitRange", spec={"limits": [{"type": "Container", "default": {"cpu": "1"}}]}
    ),
    "/api/v1/namespaces/default/events": _named(
        "v1",
        "Event",
        involvedObject={"kind": "Pod", "name": "odd", "namespace": "default"},
        reason="r",
        count=1,
        type="Normal",
    ),
    "/apis/events.k8s.io/v1/namespaces/default/events": _named(
        "events.k8s.io/v1",
        "Event",
        eventTime="2024-01-01T00:00:00.000000Z",
        reportingController="c",
        reportingInstance="i",
        action="a",
        reason="r",
        regarding={"kind": "Pod", "name": "odd", "namespace": "default"},
        type="Normal",
    ),
    "/apis/apps/v1/namespaces/default/deployments": _named(
        "apps/v1",
        "Deployment",
        spec={
            "replicas": 1,
            "selector": _SELECTOR,
            "template": _TEMPLATE,
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%"}},
        },
    ),
    "/apis/apps/v1/namespaces/default/statefulsets": _named(
        "apps/v1",
        "StatefulSet",
        spec={"replicas": 1, "serviceName": "s", "selector": _SELECTOR, "template": _TEMPLATE},
    ),
    "/apis/apps/v1/namespaces/default/daemonsets": _named(
        "apps/v1", "DaemonSet", spec={"selector": _SELECTOR, "template": _TEMPLATE}
    ),
    "/apis/apps/v1/namespaces/default/replicasets": _named(
        "apps/v1", "ReplicaSet", spec={"selector": _SELECTOR, "template": _TEMPLATE}
    ),
    "/apis/batch/v1/namespaces/default/jobs": _named(
        "batch/v1",
        "Job",
        spec={
            "completions": 1,
            "template": {
                "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}
            },
        },
    ),
    "/apis/batch/v1/namespaces/default/cronjobs": _named(
        "batch/v1",
        "CronJob",
        spec={
            "schedule": "* * * * *",
            "jobTemplate": {
                "spec": {
                    "template": {
                        "spec": {
                            "restartPolicy": "Never",
                            "containers": [{"name": "c", "image": "i"}],
                        }
                    }
                }
            },
        },
    ),
    "/apis/policy/v1/namespaces/default/poddisruptionbudgets": _named(
        "policy/v1", "PodDisruptionBudget", spec={"minAvailable": "50%", "selector": _SELECTOR}
    ),
    "/apis/scheduling.k8s.io/v1/priorityclasses": _named(
        "scheduling.k8s.io/v1", "PriorityClass", value=1, preemptionPolicy="Never"
    ),
    "/apis/storage.k8s.io/v1/storageclasses": _named(
        "storage.k8s.io/v1",
        "StorageClass",
        provisioner="p",
        allowedTopologies=[{"matchLabelExpressions": [{"key": "z", "values": ["a"]}]}],
    ),
    "/apis/storage.k8s.io/v1/csinodes": _named(
        "storage.k8s.io/v1", "CSINode", spec={"drivers": [{"name": "d", "nodeID": "n"}]}
    ),
    "/apis/node.k8s.io/v1/runtimeclasses": _named(
        "node.k8s.io/v1", "RuntimeClass", handler="h", overhead={"podFixed": {"cpu": "1m"}}
    ),
    "/apis/coordination.k8s.io/v1/namespaces/default/leases": _named(
        "coordination.k8s.io/v1", "Lease", spec={"holderIdentity": "h", "leaseDurationSeconds": 1}
    ),
    "/apis/networking.k8s.io/v1/namespaces/default/ingresses": _named(
        "networking.k8s.io/v1",
        "Ingress",
        spec={"defaultBackend": {"service": {"name": "s", "port": {"number": 80}}}},
    ),
    "/apis/rbac.authorization.k8s.io/v1/clusterroles": _named(
        "rbac.authorization.k8s.io/v1",
        "ClusterRole",
        rules=[{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}],
    ),
    "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings": _named(
        "rbac.authorization.k8s.io/v1",
        "RoleBinding",
        roleRef={"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"},
        subjects=[{"kind": "User", "name": "u", "apiGroup": "rbac.authorization.k8s.io"}],
    ),
    "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers": _named(
        "autoscaling/v2",
        "HorizontalPodAutoscaler",
        spec={
            "maxReplicas": 2,
            "scaleTargetRef": {"kind": "Deployment", "name": "d", "apiVersion": "apps/v1"},
        },
    ),
    "/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers": _named(
        "autoscaling/v1",
        "HorizontalPodAutoscaler",
        spec={"maxReplicas": 2, "scaleTargetRef": {"kind": "Deployment", "name": "d"}},
    ),
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions": _DEFINITION,
    "/apis/example.com/v1/namespaces/default/things": {
        "apiVersion": "example.com/v1",
        "kind": "Thing",
        "metadata": {"name": "odd"},
        "spec": {"replicas": 1, "any": "5%", "list": ["a"]},
        "status": {"replicas": 1},
    },
    "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews": {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}},
    },
}
"""A collection, and an object that can be created in it."""

THINGS: Final[JsonValue] = {
    **_DEFINITION,
    "metadata": {"name": "things.example.com"},
    "spec": {**_DEFINITION["spec"], "names": {"plural": "things", "kind": "Thing"}},
}
"""The definition of the custom kind that is asked for."""

_SUBRESOURCES: Final[dict[str, JsonValue]] = {
    "status": {"status": {"phase": "Running"}},
    "scale": {"spec": {"replicas": 2}},
    "binding": {"target": {"kind": "Node", "name": "n"}, "metadata": {"name": "odd"}},
    "eviction": {"metadata": {"name": "odd"}, "deleteOptions": {"gracePeriodSeconds": 0}},
    "token": {"spec": {"audiences": ["a"], "expirationSeconds": 600}},
    "resize": {"spec": {"containers": [{"name": "c", "resources": {}}]}},
    "ephemeralcontainers": {"spec": {"ephemeralContainers": [{"name": "e", "image": "i"}]}},
    "finalize": {"spec": {"finalizers": []}},
    "log": {},
    "exec": {},
}
_DELETE_OPTIONS: Final[JsonValue] = {
    "kind": "DeleteOptions",
    "apiVersion": "v1",
    "gracePeriodSeconds": 0,
    "preconditions": {"uid": "u", "resourceVersion": "1"},
    "propagationPolicy": "Background",
    "dryRun": ["All"],
}

odd_numbers = st.sampled_from(
    [0, -1, 1, 1 << 31, 1 << 63, -(1 << 63), 1e308, 1.5, 1e-320, (1 << 53) + 1]
)
odd_texts = st.one_of(
    st.sampled_from(
        [
            "",
            " ",
            "odd",
            "-1",
            "1Ei",
            "1e400",
            "0x1",
            "a/b",
            "A" * 300,
            "../..",
            "100%",
            "null",
            "\x00",
            "é",
            "{}",
            "[]",
            "$patch",
            "2024-01-01T00:00:00Z",
            "9" * 400,
            "-0",
            "1.5.5",
        ]
    ),
    st.text(st.characters(codec="utf-8"), max_size=5),
)
odd_values = st.recursive(
    st.one_of(st.none(), st.booleans(), odd_numbers, odd_texts),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(odd_texts, inner, max_size=3)
    ),
    max_leaves=5,
)
_deep = st.integers(1, 1200).map(lambda depth: b"[" * depth + b"]" * depth)

_QUERY_VALUES: Final[dict[str, list[str]]] = {
    "limit": ["1", "0", "-1", "x", "9" * 30, "1.5"],
    "continue": ["x", "e30", "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MSwic3RhcnQiOjF9", "é", "=", ""],
    "resourceVersion": ["0", "1", "x", "-1", "9" * 30, "²", ""],
    "resourceVersionMatch": ["Exact", "NotOlderThan", "x", ""],
    "labelSelector": [
        "a=b",
        "a in (b",
        "!",
        "=",
        "a>b",
        "a notin (b,,)",
        ",",
        "()",
        "!a=b",
        "a>99",
    ],
    "fieldSelector": ["metadata.name=odd", "a=b", "=", "metadata.name", "\\", "spec.x!=", ",,"],
    "timeoutSeconds": ["0", "1", "x", "-1", "9" * 30],
    "allowWatchBookmarks": ["true", "x"],
    "sendInitialEvents": ["true", "false", "x", ""],
    "watch": ["x", "false", "0"],
    "dryRun": ["All", "x", ""],
    "fieldManager": ["m", "x" * 200, "\u0001", ""],
    "fieldValidation": ["Strict", "Warn", "Ignore", "x", ""],
    "force": ["true", "x"],
    "gracePeriodSeconds": ["0", "-1", "x", "9" * 30, ""],
    "propagationPolicy": ["Orphan", "Foreground", "Background", "x", ""],
    "orphanDependents": ["true", "x"],
    "pretty": ["true", "x"],
    "includeObject": ["Object", "None", "x"],
    "ignoreStoreReadErrorWithClusterBreakingPotential": ["true", "x"],
}
_MEDIA_TYPES: Final = (
    _JSON,
    "application/yaml",
    "application/vnd.kubernetes.protobuf",
    "text/plain",
    "",
    "application/json; charset=utf-16",
    ";",
    *_PATCHES.values(),
)
_ACCEPTS: Final = (
    "application/json",
    "*/*",
    "",
    ";",
    ",",
    "text/html",
    "application/json;as=Table;v=v1;g=meta.k8s.io",
    "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
    "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
    "application/json;as=Table;v=v9",
    "application/json;as=x",
    "application/vnd.kubernetes.protobuf",
    "application/vnd.kubernetes.protobuf;as=Table;v=v1;g=meta.k8s.io,application/json",
    "application/yaml",
    "application/json;as=Table;v=v1;g=meta.k8s.io;=;q=x",
)
_ODD_PATHS: Final = (
    "/",
    "/api",
    "/apis",
    "/api/v1",
    "/api/v2",
    "/apis/x",
    "/apis/apps",
    "/apis/apps/v9",
    "/apis/apps/v1/x",
    "/api/v1/namespaces/default",
    "/api/v1/namespaces//pods",
    "/api/v1/namespaces/default/x/y/z",
    "/api/v1/watch",
    "/api/v1/watch/namespaces",
    "/api/v1/namespaces/default/nodes",
    "/api/v1/pods/odd",
    "/api/v1/pods",
    "/openapi/v2",
    "/openapi/v3",
    "/openapi/v3/apis/x",
    "/version",
    "/healthz",
    "/readyz/x",
    "/metrics",
    "/api/v1/namespaces/default/bindings",
    "/api/v1/namespaces/%00/pods",
    "/api/v1/namespaces/default/pods/%2F",
    "/api/v1/namespaces/default/pods/..%2f..",
    "/api/v1/namespaces/default/pods/odd/status/x",
    "/api/v1/componentstatuses",
)


@st.composite
def odd_tokens(draw: st.DrawFn) -> str:
    """Tokens that continue a list, of which little may be right."""
    payload: JsonValue = {
        "v": draw(st.one_of(st.just("meta.k8s.io/v1"), odd_values)),
        "rv": draw(st.one_of(st.integers(-2, 500), odd_values)),
        "start": draw(st.one_of(st.sampled_from(["/odd\0", "default/odd\0", "odd"]), odd_values)),
    }
    content = orjson.dumps(_encodable(draw(st.one_of(st.just(payload), odd_values))))
    match draw(st.integers(0, 9)):
        case 0:
            content = content[: draw(st.integers(0, len(content)))]
        case 1:
            content = draw(st.one_of(st.binary(max_size=12), _deep))
        case 2:
            return draw(odd_texts)
        case _:
            pass
    return base64.urlsafe_b64encode(content).decode().rstrip("=")


@dataclass(frozen=True, slots=True)
class OddRequest:
    """One request."""

    method: str
    path: str
    headers: dict[str, str] = field(default_factory=dict)
    content: bytes = b""


@st.composite
def altered(draw: st.DrawFn, body: JsonValue) -> JsonValue:
    """The body with a few values put in the place of others, or taken away."""
    for _ in range(draw(st.integers(0, 3))):
        body = _altered_once(draw, body)
    return body


def _altered_once(draw: st.DrawFn, value: JsonValue) -> JsonValue:
    if isinstance(value, dict) and value and draw(st.integers(0, 4)):
        name = draw(st.sampled_from(sorted(value)))
        change = draw(st.integers(0, 7))
        if change == 0:
            return {key: each for key, each in value.items() if key != name}
        if change == 1:
            return {**value, draw(odd_texts): draw(odd_values)}
        return {**value, name: _altered_once(draw, value[name])}
    if isinstance(value, list) and value and draw(st.integers(0, 3)):
        if draw(st.booleans()):
            return [*value, draw(st.sampled_from(value))]
        return [_altered_once(draw, value[0]), *value[1:]]
    return draw(odd_values)


@st.composite
def json_patches(draw: st.DrawFn, body: JsonValue) -> JsonValue:
    """A JSON patch whose operations and paths are odd."""
    paths = st.one_of(
        st.sampled_from(
            [
                "",
                "/",
                "/metadata",
                "/metadata/labels/app",
                "/spec/containers/0",
                "/spec/x/y",
                "/spec/containers/-",
                "/spec/containers/99",
                "/metadata/name",
                "~2",
                "/~1",
                "x",
                "/metadata/annotations/a~1b",
                "/spec",
                "/status",
                "/spec/containers/-1",
            ]
        ),
        odd_values,
    )
    operations = st.one_of(
        st.sampled_from(["add", "remove", "replace", "move", "copy", "test", "x"]), odd_values
    )
    operation = st.fixed_dictionaries(
        {}, optional={"op": operations, "path": paths, "from": paths, "value": odd_values}
    )
    patch = draw(st.lists(st.one_of(operation, operation, odd_values), max_size=3))
    return patch if draw(st.integers(0, 9)) else draw(altered(body))


@st.composite
def object_patches(draw: st.DrawFn, body: JsonValue) -> JsonValue:
    """A merge or strategic patch with odd values and directives."""
    patch = draw(altered(body))
    if not isinstance(patch, dict) or draw(st.booleans()):
        return patch
    directive = draw(
        st.sampled_from(
            [
                "$patch",
                "$retainKeys",
                "$setElementOrder/containers",
                "$deleteFromPrimitiveList/a",
                "$setElementOrder/finalizers",
                "$deleteFromPrimitiveList/finalizers",
                "$x",
            ]
        )
    )
    value = draw(
        st.one_of(
            st.sampled_from(["delete", "replace", "merge", "x", ["a"], [{"name": "c"}], [1]]),
            odd_values,
        )
    )
    place = draw(st.sampled_from(["", "metadata", "spec"]))
    if not place:
        return {**patch, directive: value}
    inner = patch.get(place)
    return {**patch, place: {**(inner if isinstance(inner, dict) else {}), directive: value}}


@st.composite
def _queries(draw: st.DrawFn) -> str:
    names = draw(st.lists(st.sampled_from(sorted(_QUERY_VALUES)), max_size=3))
    pairs = [f"{name}={quote(draw(_query_values(name)))}" for name in names]
    return f"?{'&'.join(pairs)}" if pairs else ""


def _query_values(name: str) -> st.SearchStrategy[str]:
    known = st.sampled_from(_QUERY_VALUES[name])
    if name == "continue":
        return st.one_of(known, odd_tokens())
    return st.one_of(known, known, known, odd_texts)


@st.composite
def _bodies(draw: st.DrawFn, body: JsonValue, method: str) -> tuple[str, bytes]:
    """A media type and the bytes of a body."""
    media_type = _JSON
    if method == "PATCH":
        sort = draw(st.sampled_from(sorted(_PATCHES)))
        media_type = _PATCHES[sort]
        patch = json_patches(body) if sort == "json" else object_patches(body)
        content = orjson.dumps(_encodable(draw(patch)))
    else:
        content = orjson.dumps(_encodable(draw(altered(body))))
    match draw(st.integers(0, 19)):
        case 0:
            content = content[: draw(st.integers(0, len(content)))]
        case 1:
            content = draw(st.one_of(st.binary(max_size=40), _deep))
        case 2:
            text = yaml.safe_dump(orjson.loads(content), allow_unicode=True)
            media_type, content = "application/yaml", text.encode()
        case 3:
            media_type = draw(st.sampled_from(_MEDIA_TYPES))
        case 4:
            media_type = "application/vnd.kubernetes.protobuf"
            content = b"k8s\x00" + draw(st.binary(max_size=60))
        case 5:
            # Fields that stand twice.
            content = content[:-1] + b"," + content[1:] if content[:1] == b"{" else content
        case _:
            pass
    return media_type, content


def _encodable(value: JsonValue) -> JsonValue:
    """Numbers that JSON's writer does not take are written as the largest ones it takes."""
    if isinstance(value, dict):
        return {key: _encodable(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_encodable(each) for each in value]
    return float(value) if isinstance(value, int) and abs(value) >= 1 << 63 else value


@st.composite
def odd_requests(draw: st.DrawFn) -> OddRequest:
    """One request, odd in one way or several."""
    method = draw(st.sampled_from(["POST", "PUT", "PATCH", "DELETE", "GET", "POST", "PATCH"]))
    collection = draw(st.sampled_from(sorted(GOOD_BODIES)))
    body = GOOD_BODIES[collection]
    path = collection
    if method != "POST" and draw(st.integers(0, 9)):
        path += "/odd"
    subresource = ""
    if draw(st.integers(0, 3)) == 0:
        subresource = draw(st.sampled_from(sorted(_SUBRESOURCES)))
        path = f"{collection}/odd/{subresource}"
        given = _SUBRESOURCES[subresource]
        body = {**given} if draw(st.booleans()) else {**body, **given}
    if method == "DELETE":
        body = _DELETE_OPTIONS
    if draw(st.integers(0, 19)) == 0:
        path = draw(st.sampled_from(_ODD_PATHS))
    query = draw(_queries()) if draw(st.booleans()) else ""
    headers = {}
    if draw(st.integers(0, 4)) == 0:
        headers["Accept"] = draw(st.sampled_from(_ACCEPTS))
    content = b""
    if method != "GET":
        headers["Content-Type"], content = draw(_bodies(body, method))
    return OddRequest(method, path + query, headers, content)
