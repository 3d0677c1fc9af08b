"""The rules of small kinds: Namespace, ConfigMap, Secret, Lease, PodDisruptionBudget.

Called through their strategies. Invariant: a namespace has its own name as a label.
"""

from __future__ import annotations

import base64
import re
from typing import TYPE_CHECKING, Final

from stellwerk_cluster.admission.placement_validation import label_selector_causes
from stellwerk_cluster.apimachinery.failures import (
    Cause,
    bad_value,
    forbidden,
    forbidden_field,
    unsupported,
)
from stellwerk_cluster.apimachinery.objects import EMPTY, JsonValue

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stellwerk.models.json_values import JsonObject
    from stellwerk_cluster.admission.strategy import Reader
    from stellwerk_cluster.apimachinery.kinds import ResourceKind

_PROTECTED_NAMESPACES: Final = ("default", "kube-system", "kube-public")
_NAME_LABEL: Final = "kubernetes.io/metadata.name"
_CONFIG_KEY: Final = "[-._a-zA-Z0-9]+"
_PERCENT: Final = "[0-9]+%"
_EVICTION_POLICIES: Final = ("AlwaysAllow", "IfHealthyBudget")


def prepare_namespace(namespace: JsonObject, _cluster: Reader) -> None:
    """A new namespace is active, has its name as a label, and is held by its controller."""
    namespace["spec"] = {"finalizers": ["kubernetes"]}
    namespace["status"] = {"phase": "Active"}
    _label_with_name(namespace)


def prepare_namespace_update(new: JsonObject, old: JsonObject, subresource: str) -> None:
    """Only the finalize subresource changes the finalizers; the name label always comes back."""
    if subresource != "finalize":
        new["spec"] = old["spec"]


def default_namespace(namespace: JsonObject) -> None:
    """A namespace has its name as a label; a name that the server makes comes too late for it."""
    if not namespace["metadata"].get("generateName"):
        _label_with_name(namespace)


def _label_with_name(namespace: JsonObject) -> None:
    metadata = namespace["metadata"]
    labels = {**(metadata.get("labels") or {}), _NAME_LABEL: metadata.get("name", "")}
    metadata["labels"] = dict(sorted(labels.items()))


def protect_namespace(namespace: JsonObject, kind: ResourceKind) -> None:
    """Three namespaces stay.

    Raises:
        StatusError: it is one of them (403).
    """
    name = namespace["metadata"]["name"]
    if name in _PROTECTED_NAMESPACES:
        raise forbidden(kind, name, "this namespace may not be deleted")


def default_secret(secret: JsonObject) -> None:
    """Plain texts are encoded, the type is Opaque."""
    plain = secret.pop("stringData", None) or {}
    if plain:
        encoded = {key: base64.b64encode(value.encode()).decode() for key, value in plain.items()}
        secret["data"] = dict(sorted({**(secret.get("data") or {}), **encoded}.items()))
    secret.setdefault("type", "Opaque")


def validate_config_map(config_map: JsonObject) -> list[Cause]:
    """What is wrong with the keys of a config map."""
    data, binary = config_map.get("data") or EMPTY, config_map.get("binaryData") or EMPTY
    causes = [*_config_key_causes(data, "data"), *_config_key_causes(binary, "binaryData")]
    shared = [key for key in data if key in binary]
    return [
        *causes,
        *(
            bad_value(f"data[{key}]", key, "duplicate of key present in binaryData")
            for key in shared
        ),
    ]


def validate_secret(secret: JsonObject) -> list[Cause]:
    """What is wrong with the keys of a secret."""
    return list(_config_key_causes(secret.get("data") or EMPTY, "data"))


def _config_key_causes(data: JsonObject, field: str) -> Iterator[Cause]:
    for key in data:
        if not re.fullmatch(_CONFIG_KEY, key):
            yield bad_value(
                f"{field}[{key}]",
                key,
                "a valid config key must consist of alphanumeric characters, '-', '_' or "
                "'.' (e.g. 'key.name',  "
                f"or 'KEY_NAME',  or 'key-name', regex used for validation is '{_CONFIG_KEY}')",
            )


def validate_config_map_update(new: JsonObject, old: JsonObject, _subresource: str) -> list[Cause]:
    """What is wrong with a change of a config map or secret."""
    causes = validate_config_map(new)
    if old.get("immutable"):
        text = "field is immutable when `immutable` is set"
        changed = [
            name for name in ("immutable", "data", "binaryData") if new.get(name) != old.get(name)
        ]
        causes += [forbidden_field(name, text) for name in changed]
    return causes


def validate_lease(lease: JsonObject) -> list[Cause]:
    """What is wrong with a lease."""
    causes = []
    spec = lease["spec"]
    if spec.get("leaseDurationSeconds", 1) <= 0:
        text = "must be greater than 0"
        causes.append(bad_value("spec.leaseDurationSeconds", spec["leaseDurationSeconds"], text))
    if spec.get("leaseTransitions", 0) < 0:
        text = "must be greater than or equal to 0"
        causes.append(bad_value("spec.leaseTransitions", spec["leaseTransitions"], text))
    return causes


def validate_lease_update(new: JsonObject, _old: JsonObject, _subresource: str) -> list[Cause]:
    """As for a new lease."""
    return validate_lease(new)


def validate_budget(budget: JsonObject) -> list[Cause]:
    """What is wrong with a PodDisruptionBudget."""
    spec = budget["spec"]
    causes = []
    if "minAvailable" in spec and "maxUnavailable" in spec:
        shown = {
            "MinAvailable": spec["minAvailable"],
            "Selector": spec.get("selector"),
            "MaxUnavailable": spec["maxUnavailable"],
            "UnhealthyPodEvictionPolicy": spec.get("unhealthyPodEvictionPolicy"),
        }
        causes.append(
            bad_value("spec", shown, "minAvailable and maxUnavailable cannot be both set")
        )
    for name in ("minAvailable", "maxUnavailable"):
        if name in spec:
            causes += int_or_percent_causes(spec[name], f"spec.{name}")
    causes += label_selector_causes(spec.get("selector") or EMPTY, "spec.selector")
    policy = spec.get("unhealthyPodEvictionPolicy")
    if policy is not None and policy not in _EVICTION_POLICIES:
        causes.append(unsupported("spec.unhealthyPodEvictionPolicy", policy, _EVICTION_POLICIES))
    return causes


def validate_budget_update(new: JsonObject, _old: JsonObject, subresource: str) -> list[Cause]:
    """As for a new budget; its status is free."""
    return [] if subresource == "status" else validate_budget(new)


def int_or_percent_causes(value: JsonValue, field: str) -> list[Cause]:
    """What is wrong with a count or percentage."""
    if isinstance(value, str):
        if re.fullmatch(_PERCENT, value):
            return []
        text = (
            "a valid percent string must be a numeric string followed by an ending '%' "
            f"(e.g. '1%',  or '93%', regex used for validation is '{_PERCENT}')"
        )
        return [bad_value(field, value, text)]
    return [bad_value(field, value, "must be greater than or equal to 0")] if value < 0 else []
