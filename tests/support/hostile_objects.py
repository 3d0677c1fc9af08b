"""Objects that ask for more than any cluster holds, each in a way of its own.

`hostile_fields` has the plain ones, field by field; `hostile_world` measures what both cost.
"""

from collections.abc import Callable
from typing import Any, Final

from stellwerk_kube.json_values import JsonObject
from tests.support.builders import make_node, make_pod


def _affinity(kind: str, **fields: Any) -> dict[str, Any]:
    return {"affinity": {kind: fields}}


def _required_node_affinity(terms: list[JsonObject]) -> dict[str, Any]:
    return _affinity(
        "nodeAffinity",
        requiredDuringSchedulingIgnoredDuringExecution={"nodeSelectorTerms": terms},
    )


def _expression(key: str, operator: str, *values: str) -> JsonObject:
    return {"key": key, "operator": operator, **({"values": list(values)} if values else {})}


def _pod_term(key: str, label: str) -> JsonObject:
    return {"topologyKey": key, "labelSelector": {"matchLabels": {"app": label}}}


OBJECTS: Final[dict[str, Callable[[], JsonObject]]] = {
    "3,000 node affinity terms Gt a number of 300 digits": lambda: make_pod(
        "p",
        **_required_node_affinity(
            [
                {
                    "matchExpressions": [
                        _expression("kubernetes.io/hostname", "Gt", "9" * 299 + str(i))
                    ]
                }
                for i in range(3000)
            ]
        ),
    ),
    "8,000 node affinity terms": lambda: make_pod(
        "p",
        **_required_node_affinity(
            [{"matchExpressions": [_expression(f"key-{i}", "Exists")]} for i in range(8000)]
        ),
    ),
    "8,000 values of one expression": lambda: make_pod(
        "p",
        **_required_node_affinity(
            [
                {
                    "matchExpressions": [
                        _expression(
                            "kubernetes.io/hostname", "In", *(f"v-{i}" for i in range(8000))
                        )
                    ]
                }
            ]
        ),
    ),
    "8,000 preferred node affinity terms": lambda: make_pod(
        "p",
        **_affinity(
            "nodeAffinity",
            preferredDuringSchedulingIgnoredDuringExecution=[
                {
                    "weight": 1,
                    "preference": {"matchExpressions": [_expression(f"key-{i}", "NotIn", "a")]},
                }
                for i in range(8000)
            ],
        ),
    ),
    "8,000 required pod anti-affinity terms with keys of their own": lambda: make_pod(
        "p",
        **_affinity(
            "podAntiAffinity",
            requiredDuringSchedulingIgnoredDuringExecution=[
                _pod_term(f"key-{i}", "x") for i in range(8000)
            ],
        ),
    ),
    "8,000 pod affinity terms with selectors of their own": lambda: make_pod(
        "p",
        **_affinity(
            "podAntiAffinity",
            requiredDuringSchedulingIgnoredDuringExecution=[
                _pod_term("kubernetes.io/hostname", f"x{i}") for i in range(8000)
            ],
        ),
    ),
    "3,000 soft spread constraints": lambda: make_pod(
        "p",
        topologySpreadConstraints=[
            {
                "maxSkew": 1,
                "topologyKey": f"key-{i}",
                "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": {"matchLabels": {"app": f"x{i}"}},
            }
            for i in range(3000)
        ],
    ),
    "20,000 nodeSelector entries": lambda: make_pod(
        "p", nodeSelector={f"key-{i}": "v" for i in range(20000)}
    ),
    "20,000 tolerations": lambda: make_pod(
        "p", tolerations=[{"key": f"key-{i}", "operator": "Exists"} for i in range(20000)]
    ),
    "1,000 invented extended resources": lambda: make_pod(
        "p", requests={f"example.com/r{i}": "1" for i in range(1000)}
    ),
    "1,000 invented extended resources, bound": lambda: make_pod(
        "p", node_name="n0", requests={f"example.com/r{i}": "1" for i in range(1000)}
    ),
    "8,000 anti-affinity terms with keys of their own, bound": lambda: make_pod(
        "p",
        node_name="n0",
        **_affinity(
            "podAntiAffinity",
            requiredDuringSchedulingIgnoredDuringExecution=[
                _pod_term(f"key-{i}", "x") for i in range(8000)
            ],
        ),
    ),
    "660 node affinity terms Gt (just within the limit)": lambda: make_pod(
        "p",
        **_required_node_affinity(
            [
                {"matchExpressions": [_expression("kubernetes.io/hostname", "Gt", str(i))]}
                for i in range(660)
            ]
        ),
    ),
    "1,990 nodeSelector entries (just within the limit)": lambda: make_pod(
        "p", nodeSelector={f"key-{i}": "v" for i in range(1990)}
    ),
    "150 soft spread constraints by hostname (just within the limit)": lambda: make_pod(
        "p",
        topologySpreadConstraints=[
            {
                "maxSkew": 1 + i,
                "topologyKey": "kubernetes.io/hostname",
                "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": {"matchLabels": {"app": f"x{i}"}},
            }
            for i in range(150)
        ],
    ),
    "150 anti-affinity terms by hostname (just within the limit)": lambda: make_pod(
        "p",
        **_affinity(
            "podAntiAffinity",
            requiredDuringSchedulingIgnoredDuringExecution=[
                _pod_term("kubernetes.io/hostname", f"x{i}") for i in range(150)
            ],
        ),
    ),
    "20,000 labels": lambda: make_pod("p", labels={f"key-{i}": "v" for i in range(20000)}),
    "10,000 host ports": lambda: make_pod(
        "p",
        containers=[
            {
                "name": "main",
                "image": "app",
                "ports": [{"containerPort": i + 1, "hostPort": i + 1} for i in range(10000)],
            }
        ],
    ),
    "5,000 containers": lambda: make_pod(
        "p",
        containers=[
            {"name": f"c{i}", "image": f"image-{i}", "resources": {"requests": {"cpu": "1m"}}}
            for i in range(5000)
        ],
    ),
    "3,000 volumes": lambda: make_pod(
        "p",
        volumes=[
            {"name": f"v{i}", "persistentVolumeClaim": {"claimName": f"c{i}"}} for i in range(3000)
        ],
    ),
    "10,000 scheduling gates": lambda: make_pod(
        "p", schedulingGates=[{"name": f"gate-{i}"} for i in range(10000)]
    ),
    "a quantity of 100,000 digits": lambda: make_pod("p", requests={"cpu": "9" * 100000}),
    "a node with 20,000 labels": lambda: make_node(
        "hostile", labels={f"key-{i}": "v" for i in range(20000)}
    ),
    "a node with 1,000 extended resources": lambda: make_node(
        "hostile", allocatable={f"example.com/r{i}": "1" for i in range(1000)}
    ),
    "a node with 10,000 taints": lambda: make_node(
        "hostile",
        taints=[{"key": f"key-{i}", "effect": "NoSchedule", "value": "v"} for i in range(10000)],
    ),
    "a node with 10,000 images": lambda: make_node(
        "hostile", images=[{"names": [f"image-{i}"], "sizeBytes": 1 << 30} for i in range(10000)]
    ),
    "30,000 anti-affinity terms, bound": lambda: make_pod(
        "p",
        node_name="n0",
        **_affinity(
            "podAntiAffinity",
            requiredDuringSchedulingIgnoredDuringExecution=[
                {"topologyKey": f"k{i}", "labelSelector": {}} for i in range(30000)
            ],
        ),
    ),
}
