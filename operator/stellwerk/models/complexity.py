"""The evaluations that a pod asks for, counted before any of it is compiled.

`models.pod` asks for pods that could exceed a limit, and the profile loader for profiles.
Invariant: a count is linear in the object and compiles nothing, so that what is refused for its
complexity has cost next to nothing.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from stellwerk_kube.json_values import JsonObject

DEFAULT_MAX_POD_COMPLEXITY: Final = 2000
"""Twenty times what any workload that we know asks for; decided in 50 ms on 5,000 nodes."""
_PAIRWISE: Final = 10
"""The count of a pod affinity term or a spread constraint: pods are summed over all nodes for it.
"""
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"


def too_complex(spec: JsonObject, limit: int) -> str:
    """The reason why a pod with this spec is not scheduled; empty: it is within the limit."""
    complexity = pod_complexity(spec)
    if complexity <= limit:
        return ""
    return (
        "too complex to schedule: terms, expressions, values, constraints, tolerations, containers,"
        f" ports, resources and volumes are too many ({complexity}, the limit is {limit})"
    )


def pod_complexity(spec: JsonObject) -> int:
    """Terms, expressions, values, constraints, tolerations, containers and the like, in all.

    Raises:
        KeyError, TypeError, ValueError, AttributeError: the spec is malformed.
    """
    affinity = spec.get("affinity") or {}
    listed = ("tolerations", "resourceClaims", "nodeSelector", "overhead")
    return (
        sum(len(spec.get(field) or ()) for field in listed)
        + volumes_complexity(spec)
        + sum(map(_selection, _node_terms(affinity.get("nodeAffinity") or {})))
        + sum(_PAIRWISE + _pairwise(term) for term in _pod_terms(affinity))
        + sum(_PAIRWISE + _pairwise(each) for each in spec.get("topologySpreadConstraints") or ())
        + sum(map(_container, spec.get("containers") or ()))
        + sum(map(_container, spec.get("initContainers") or ()))
        + _resources(spec)
    )


def too_many_defaults(spec: object, limit: int) -> str:
    """The reason why default constraints of a spec cannot be used; empty: they can, or are none.

    Each counts as one of the pod's own; what is malformed is left to validation.
    """
    configs = spec.get("pluginConfig") if isinstance(spec, dict) else None
    for config in configs if isinstance(configs, list) else ():
        args = config.get("args") if isinstance(config, dict) else None
        constraints = args.get("defaultConstraints") if isinstance(args, dict) else None
        count = _PAIRWISE * len(constraints) if isinstance(constraints, list) else 0
        if count > limit:
            return (
                "defaultConstraints: too complex to schedule with: topology spread constraints "
                f"count {_PAIRWISE} each ({count}, the limit is {limit})"
            )
    return ""


def volumes_complexity(spec: JsonObject) -> int:
    """The volumes' part, which no two pods have to share: each volume, and the monitors of disks.

    Raises:
        KeyError, TypeError, ValueError, AttributeError: the spec is malformed.
    """
    volumes = spec.get("volumes") or ()
    disks = [volume["rbd"] for volume in volumes if "rbd" in volume]
    return len(volumes) + sum(len((disk or {}).get("monitors") or ()) for disk in disks)


def _node_terms(affinity: JsonObject) -> Iterator[JsonObject]:
    yield from (affinity.get(_REQUIRED) or {}).get("nodeSelectorTerms") or ()
    for weighted in affinity.get(_PREFERRED) or ():
        yield weighted.get("preference") or {}


def _pod_terms(affinity: JsonObject) -> Iterator[JsonObject]:
    for kind in ("podAffinity", "podAntiAffinity"):
        terms = affinity.get(kind) or {}
        yield from terms.get(_REQUIRED) or ()
        for weighted in terms.get(_PREFERRED) or ():
            yield weighted["podAffinityTerm"]


def _pairwise(term: JsonObject) -> int:
    """A pod affinity term or a spread constraint, without what it counts as a whole."""
    # Of thousands of terms nearly all have none of these: no call for what is not there.
    count = 2
    for field in ("labelSelector", "namespaceSelector"):
        if term.get(field):
            count += _selection(term[field]) - 1
    for field in ("namespaces", "matchLabelKeys", "mismatchLabelKeys"):
        if field in term:
            count += len(term[field] or ())
    return count


def _selection(selector: Mapping[str, Any]) -> int:
    """A label selector or a node selector term: itself, its expressions and their values."""
    if not selector:
        return 1
    count = 1 + len(selector.get("matchLabels") or ())
    for field in ("matchExpressions", "matchFields"):
        for expression in selector.get(field) or ():
            count += 1 + len(expression.get("values") or ())
    return count


def _container(container: JsonObject) -> int:
    count = 1 + len(container.get("ports") or ())
    return count + _resources(container) if "resources" in container else count


def _resources(owner: JsonObject) -> int:
    resources = owner.get("resources") or {}
    return len(resources.get("requests") or ()) + len(resources.get("limits") or ())
