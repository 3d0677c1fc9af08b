"""The cluster of docs/choosing-a-profile.md, as `kubectl get nodes,pods -o json` prints it."""

from stellwerk.models.json_values import JsonObject
from tests.support.builders import make_node, make_pod

NODES = 36
_KINDS = (("web", 90, "500m", "1Gi"), ("api", 60, "1", "2Gi"), ("batch", 24, "3", "4Gi"))


def kubectl_list() -> JsonObject:
    """36 nodes of 8 cores, over which three deployments and an agent have spread."""
    items = [make_node(f"node-{number:02}", cpu="8", memory="32Gi") for number in range(NODES)]
    for node in items:
        node["metadata"]["annotations"] = {"simulation.stellwerk.dev/hourly-price": "0.40"}
    count = 0
    for name, pods, cpu, memory in _KINDS:
        for number in range(pods):
            on = f"node-{count % NODES:02}"
            pod = make_pod(f"{name}-{number:02}", cpu=cpu, memory=memory, node_name=on)
            items.append({**pod, "kind": "Pod"})
            count += 1
    return {"apiVersion": "v1", "kind": "List", "items": items}
