"""Defaults of kinds that are stored and shown, and that nothing in the embedded cluster acts upon.

Called through their strategies. Invariant: only fields that the client left out are filled in.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stellwerk_cluster.admission.autoscaling import default_behavior

if TYPE_CHECKING:
    from stellwerk.models.json_values import JsonObject

_RBAC: Final = "rbac.authorization.k8s.io"
_CPU_PERCENT: Final = 80


def default_autoscaler(autoscaler: JsonObject) -> None:
    """At least one replica, for four fifths of the cpu."""
    spec = autoscaler["spec"]
    spec.setdefault("minReplicas", 1)
    if not spec.get("metrics"):
        target = {"type": "Utilization", "averageUtilization": _CPU_PERCENT}
        spec["metrics"] = [{"type": "Resource", "resource": {"name": "cpu", "target": target}}]
    default_behavior(autoscaler)


def default_network_policy(policy: JsonObject) -> None:
    """It is about what comes in; about what goes out, if it has rules for that; ports are TCP."""
    spec = policy["spec"]
    if not spec.get("policyTypes"):
        spec["policyTypes"] = ["Ingress", *(["Egress"] if spec.get("egress") else [])]
    for rule in (*(spec.get("ingress") or ()), *(spec.get("egress") or ())):
        for port in rule.get("ports") or ():
            port.setdefault("protocol", "TCP")


def default_role_binding(binding: JsonObject) -> None:
    """Roles, users and groups are of the group of access rules."""
    reference = binding["roleRef"]
    if not reference.get("apiGroup"):
        reference["apiGroup"] = _RBAC
    for subject in binding.get("subjects") or ():
        if subject.get("kind") in ("User", "Group") and not subject.get("apiGroup"):
            subject["apiGroup"] = _RBAC
