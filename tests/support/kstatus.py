"""The status of any object as Flux, Helm 4 and `kubectl` plugins compute it: kstatus of cli-utils.

It is the part of `status.Compute` that applies to a custom resource (`checkGenericProperties`,
`checkReadyCondition`, pkg/kstatus/status of sigs.k8s.io/cli-utils 0.37), in the same order.
"""

from stellwerk_kube.json_values import JsonObject


def kstatus(obj: JsonObject) -> str:
    """InProgress, Failed, Current or Terminating."""
    metadata, status = obj["metadata"], obj.get("status") or {}
    if metadata.get("deletionTimestamp"):
        return "Terminating"
    observed = status.get("observedGeneration")
    if "generation" in metadata and observed is not None and observed != metadata["generation"]:
        return "InProgress"
    conditions = status.get("conditions") or ()
    for each in conditions:
        if each["status"] == "True" and each["type"] in {"Reconciling", "Stalled"}:
            return "InProgress" if each["type"] == "Reconciling" else "Failed"
    for each in conditions:
        if each["type"] == "Ready":
            return "Current" if each["status"] == "True" else "InProgress"
    return "Current"
