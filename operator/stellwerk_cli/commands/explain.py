"""`stellwerk explain KIND/NAME`: why pods are where they are, and what would help.

The command line calls it; `kubectl stellwerk explain …` is the same. Pods, pod groups, nodes,
devices and claims are explained by the operator or, without one, by `reading/`, which `door` opens;
of a controller the API server names the pods. Invariant: it only reads.
"""

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from stellwerk_cli.commands.door import DoorAddress, add_door_arguments, door_address
from stellwerk_cli.commands.port_arguments import (
    add_exit_code_argument,
    add_namespace_argument,
    add_output_arguments,
    split_name,
)
from stellwerk_kube.errors import ConfigurationError
from stellwerk_kube.names import suggestion

if TYPE_CHECKING:
    from stellwerk_cli.commands.door import Door
    from stellwerk_cli.commands.output import Shown
    from stellwerk_kube.json_values import JsonObject

HELP: Final = "explain why a pod is on its node or why it waits, and what would help"
EXAMPLES: Final = (
    "explain pod hello",
    "explain pod team/web-0 --watch",
    "explain pod/hello -n team -o json",
    "explain deployment/web",
    "explain node/node-1",
    "explain podgroup training -o yaml",
    "explain device/gpu.example.com/node-1/gpu-0",
    "explain resourceclaim/training -n team",
)


KINDS: Final[Mapping[str, str]] = {
    "pod": "pod",
    "pods": "pod",
    "po": "pod",
    "podgroup": "podgroup",
    "podgroups": "podgroup",
    "node": "node",
    "nodes": "node",
    "no": "node",
    "device": "device",
    "devices": "device",
    "resourceclaim": "resourceclaim",
    "resourceclaims": "resourceclaim",
    "deployment": "deployment",
    "deployments": "deployment",
    "deploy": "deployment",
    "replicaset": "replicaset",
    "replicasets": "replicaset",
    "rs": "replicaset",
    "statefulset": "statefulset",
    "statefulsets": "statefulset",
    "sts": "statefulset",
    "daemonset": "daemonset",
    "daemonsets": "daemonset",
    "ds": "daemonset",
    "job": "job",
    "jobs": "job",
}
"""Words for a kind, and the kind."""
_WORKLOADS: Final = {
    "deployment": "/apis/apps/v1/namespaces/{namespace}/deployments/{name}",
    "replicaset": "/apis/apps/v1/namespaces/{namespace}/replicasets/{name}",
    "statefulset": "/apis/apps/v1/namespaces/{namespace}/statefulsets/{name}",
    "daemonset": "/apis/apps/v1/namespaces/{namespace}/daemonsets/{name}",
    "job": "/apis/batch/v1/namespaces/{namespace}/jobs/{name}",
}
_FINISHED: Final = frozenset({"Succeeded", "Failed"})
_MAX_EXPLAINED_PODS: Final = 50
"""Waiting pods of a workload that the operator explains. The others are named without a reason."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments for the object, and for the form of the answer."""
    parser.add_argument(
        "what",
        nargs="+",
        metavar="KIND NAME | KIND/NAME",
        help="a kind (pod, podgroup, node, device, resourceclaim, deployment, replicaset, "
        "statefulset, daemonset or job) and a name; NAMESPACE/NAME is a name as well, and "
        "DRIVER/POOL/DEVICE is the name of a device",
    )
    add_namespace_argument(parser)
    parser.add_argument(
        "-w", "--watch", action="store_true", help="print the answer again whenever it changes"
    )
    add_output_arguments(parser)
    add_exit_code_argument(parser, "a pod or a claim waits, or none would fit on the node")
    add_door_arguments(parser)
    parser.set_defaults(log_level="warning")


def run(options: argparse.Namespace) -> int:
    """Ask, and print the answer."""
    import asyncio  # noqa: PLC0415

    kind, name = _kind_and_name(options.what)
    address = door_address(options)
    if kind in {"node", "device"}:
        namespace = ""
    else:
        namespace, name = split_name(options, name)
    is_no = asyncio.run(_explain(address, kind, namespace, name, options))
    return 1 if is_no and options.exit_code else 0


def _kind_and_name(words: Sequence[str]) -> tuple[str, str]:
    """(kind, name) of `KIND NAME` or `KIND/NAME`.

    Raises:
        ConfigurationError: it is neither, or of another kind.
    """
    kind, name = words[0], words[-1]
    if len(words) == 1:
        kind, _, name = words[0].partition("/")
    kind = kind.lower()
    if kind not in KINDS:
        known = sorted(set(KINDS.values()))
        near = suggestion(kind, KINDS) or f"; kinds are {', '.join(known)}"
        raise ConfigurationError(f"cannot explain {kind!r}: expected KIND NAME{near}")
    if len(words) > len(("KIND", "NAME")) or not name:
        expected = f"expected one name of a {KINDS[kind]}"
        listed = "; `stellwerk queue` lists the pods that wait" * (KINDS[kind] == "pod")
        raise ConfigurationError(f"explain {' '.join(words)}: {expected}{listed}")
    return KINDS[kind], name


async def _explain(
    address: DoorAddress, kind: str, namespace: str, name: str, options: argparse.Namespace
) -> bool:
    """Print the answer; whether it is a no: something waits."""
    from stellwerk_cli.commands.door import open_door  # noqa: PLC0415
    from stellwerk_cli.commands.explained_devices import CLAIM, DEVICE  # noqa: PLC0415
    from stellwerk_cli.commands.explained_group import GROUP  # noqa: PLC0415
    from stellwerk_cli.commands.explained_node import NODE  # noqa: PLC0415
    from stellwerk_cli.commands.explained_pod import POD  # noqa: PLC0415
    from stellwerk_cli.commands.explained_workload import WORKLOAD  # noqa: PLC0415
    from stellwerk_cli.commands.output import show  # noqa: PLC0415

    form, watch = options.output, options.watch
    inside, last = f"/explain/{quote(namespace, safe='')}", quote(name, safe="")
    asked: dict[str, tuple[str, Shown[Any], Callable[[Mapping[str, Any]], bool]]] = {
        "pod": (f"{inside}/{last}", POD, lambda pod: pod["state"] != "bound"),
        "podgroup": (f"{inside}/podgroups/{last}", GROUP, lambda it: it["state"] != "placed"),
        "node": (f"/nodes?explain={last}", NODE, lambda node: not node["fitting"]),
        "device": (f"/explain/devices?explain={last}", DEVICE, lambda _: False),
        "resourceclaim": (
            f"{inside}/resourceclaims/{last}",
            CLAIM,
            lambda claim: claim["state"] != "allocated",
        ),
    }
    async with open_door(address) as door:
        if kind in asked:
            path, shown, is_no = asked[kind]
            answer = await show(lambda: door.ask_json(path), form, shown, watch=watch, door=door)
            return is_no(answer)
        answer = await show(
            lambda: _workload(options, door, kind, namespace, name),
            form,
            WORKLOAD,
            watch=watch,
            door=door,
        )
        return bool(answer["waiting"])


async def _workload(
    options: argparse.Namespace, port: "Door", kind: str, namespace: str, name: str
) -> Mapping[str, Any]:
    """The pods of a controller, those that wait by the reason that the operator gives."""
    from stellwerk.answers.answer import codec  # noqa: PLC0415
    from stellwerk.answers.pod import PodExplanation  # noqa: PLC0415
    from stellwerk.answers.workload import PodsWaitingAlike, WorkloadExplanation  # noqa: PLC0415
    from stellwerk.client.operator_port import PortRefusal  # noqa: PLC0415
    from stellwerk_cli.commands.cluster_client import with_client  # noqa: PLC0415

    async def read(client: Any) -> list["JsonObject"]:  # noqa: ANN401 a KubernetesClient
        path = _WORKLOADS[kind].format(namespace=quote(namespace), name=quote(name))
        workload = await client.get(path)
        pods, _ = await client.list(f"/api/v1/namespaces/{quote(namespace)}/pods")
        return [pod for pod in pods if _selects(workload, pod)]

    pods = await with_client(options.kubeconfig, options.context, read)
    waiting = [pod for pod in pods if not pod["spec"].get("nodeName")]
    alike: dict[str, list[str]] = {}
    first: dict[str, PodExplanation] = {}
    for pod in waiting[:_MAX_EXPLAINED_PODS]:
        pod_name = pod["metadata"]["name"]
        try:
            path = f"/explain/{quote(namespace, safe='')}/{quote(pod_name, safe='')}"
            found = await port.get(path, PodExplanation)
            reason = _reason(found)
            first.setdefault(reason, found)
        except PortRefusal as refusal:
            reason = f"{refusal}"
        alike.setdefault(reason, []).append(f"{namespace}/{pod_name}")
    if len(waiting) > _MAX_EXPLAINED_PODS:
        rest = [f"{namespace}/{pod['metadata']['name']}" for pod in waiting[_MAX_EXPLAINED_PODS:]]
        alike["not explained: there are too many"] = rest
    reading = next((each.read for each in first.values() if each.read is not None), None)
    first = {reason: replace(each, read=None) for reason, each in first.items()}
    ordered = sorted(alike.items(), key=lambda each: -len(each[1]))
    return codec(WorkloadExplanation).as_json(
        WorkloadExplanation(
            workload=f"{kind}/{name}",
            namespace=namespace,
            pods=len(pods),
            with_node=len(pods) - len(waiting),
            waiting=[
                PodsWaitingAlike(reason=reason, pods=names, explanation=first.get(reason))
                for reason, names in ordered
            ],
            read=reading,
        )
    )


def _selects(workload: "JsonObject", pod: "JsonObject") -> bool:
    """Whether a pod that is not over is one of a controller's."""
    from stellwerk_kube.selectors import parse_label_selector  # noqa: PLC0415

    selector = parse_label_selector((workload.get("spec") or {}).get("selector"))
    over = (pod.get("status") or {}).get("phase") in _FINISHED
    labels = pod["metadata"].get("labels") or {}
    return selector is not None and not over and selector.matches(labels)


def _reason(explanation: Any) -> str:  # noqa: ANN401 a PodExplanation
    """The reason for which a pod waits, in a line that is the same for those that wait alike."""
    verdicts = explanation.verdicts
    return (
        explanation.reason
        or explanation.would_wait
        or (verdicts is not None and (verdicts.error or verdicts.message))
        or "it has not been tried yet"
    )
