"""The cluster of docs/choosing-a-profile.md: nodes and the pods on them, to be created."""

from stellwerk_kube.json_values import JsonObject
from tests.support.builders import make_node, make_pod

NODES = 36
_KINDS = (("api", 60, "1", "2Gi"), ("batch", 24, "3", "4Gi"), ("web", 90, "500m", "1Gi"))
"""In the order of their names, in which pods of one second arrive in a simulation, too."""


def nodes() -> list[JsonObject]:
    """36 nodes of 8 cores with a price."""
    made = [make_node(f"node-{number:02}", cpu="8", memory="32Gi") for number in range(NODES)]
    for node in made:
        node["metadata"]["annotations"] = {"simulation.stellwerk.dev/hourly-price": "0.40"}
    return made


def pods() -> list[JsonObject]:
    """Three deployments that have spread over the nodes."""
    made: list[JsonObject] = []
    for name, count, cpu, memory in _KINDS:
        for number in range(count):
            on = f"node-{len(made) % NODES:02}"
            pod = make_pod(f"{name}-{number:02}", cpu=cpu, memory=memory, node_name=on)
            del pod["metadata"]["uid"]
            pod["spec"]["containers"][0]["image"] = "registry.example/app:1"
            made.append(pod)
    return made
