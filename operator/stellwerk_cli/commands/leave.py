"""`stellwerk leave`: the replicas of an installation end, and its lease is free when they have.

The chart's hook calls it before `helm uninstall` takes the operator's rights away, and people call
it before they delete the files. Invariant: nothing is changed but the number of replicas of the
Deployment that was named, and a lease that one of its pods has left behind.
"""

import argparse
import asyncio
from typing import TYPE_CHECKING, Any, Final

from stellwerk_cli.commands.arguments import seconds
from stellwerk_cli.commands.confirmation import add_write_arguments, is_confirmed
from stellwerk_cli.commands.port_arguments import add_access_arguments, operator_namespace
from stellwerk_kube.errors import ConfigurationError, Conflict, NotFound, SchedulerError

if TYPE_CHECKING:
    from stellwerk.client.kubernetes import KubernetesClient
    from stellwerk_kube.json_values import JsonObject

HELP: Final = "stop the operator's replicas before it is uninstalled, so that its lease is free"
EXAMPLES: Final = (
    "leave",
    "leave --deployment stellwerk/gpu-stellwerk --timeout 1m",
)
_MAX_CONFLICTS: Final = 5
"""Writes that are tried: the Deployment's controller writes the status of the same object."""
_NONE: Final = {"spec": {"replicas": 0}}
ENDING_CHECK_SECONDS: Final = 0.2
"""Pause between two lists of the pods that are ending. A pod takes a second or two."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments for the Deployment and its cluster."""
    parser.add_argument(
        "--deployment",
        metavar="NAMESPACE/NAME",
        default=f"{operator_namespace()}/stellwerk",
        help="the operator's Deployment, which is scaled to 0 (default: %(default)s)",
    )
    parser.add_argument(
        "--timeout",
        metavar="DURATION",
        type=seconds,
        default=seconds("45s"),
        help="how long to wait until its pods have ended (default: 45s)",
    )
    add_write_arguments(parser)
    add_access_arguments(parser)
    parser.set_defaults(log_level="warning")


def run(options: argparse.Namespace) -> int:
    """Scale to 0, wait until the pods are gone, and say what became of the lease."""
    from stellwerk_cli.commands.cluster_client import with_client  # noqa: PLC0415

    namespace, slash, name = options.deployment.rpartition("/")
    if not name or "/" in namespace or (slash and not namespace):
        raise ConfigurationError(f"--deployment {options.deployment}: expected NAMESPACE/NAME")
    named = namespace or operator_namespace(), name
    return asyncio.run(
        with_client(
            options.kubeconfig, options.context, lambda client: leave(client, named, options)
        )
    )


async def leave(
    client: "KubernetesClient", deployment_name: tuple[str, str], options: argparse.Namespace
) -> int:
    """End the pods of a Deployment, and release the lease where one of them has left it behind.

    `deployment_name`: its namespace and its name. Returns the exit status.

    Raises:
        ApiError: a right is missing, or the API server refused.
        ConfigurationError: the Deployment is none of Stellwerk's.
        SchedulerError: pods are still there after the time; the lease was not touched then, for
            its holder may still decide.
    """
    namespace, name = deployment_name
    path = f"/apis/apps/v1/namespaces/{namespace}/deployments/{name}"
    try:
        deployment = await client.get(path)
    except NotFound:
        print(f"there is no deployment {namespace}/{name}: nothing to leave")
        return 0
    lease_namespace, lease_name = _lease_of(deployment)
    pods_path = f"/api/v1/namespaces/{namespace}/pods?labelSelector={_selector_of(deployment)}"
    # Those that are there before: a lease that was left behind names one of them.
    ours = await _names(client, pods_path)
    if options.dry_run:
        await _scale_to_none(client, path, deployment, "?dryRun=All")
        print(f"deployment {namespace}/{name} would be scaled to 0, which ends {len(ours)} pods")
        return 0
    if not is_confirmed(options, f"Scale deployment {namespace}/{name} to 0?"):
        return 1
    await _scale_to_none(client, path, deployment)
    print(f"deployment {namespace}/{name} is scaled to 0", flush=True)
    deadline_seconds = asyncio.get_running_loop().time() + options.timeout
    while left := await _names(client, pods_path):
        ours |= left
        if asyncio.get_running_loop().time() >= deadline_seconds:
            raise SchedulerError(
                f"after {options.timeout:g} s there is still {', '.join(sorted(left))} in "
                f"{namespace}; the lease {lease_namespace}/{lease_name} was not touched"
            )
        await asyncio.sleep(ENDING_CHECK_SECONDS)
    if lease_name:
        print(await _release(client, lease_namespace, lease_name, namespace, ours))
    return 0


async def _scale_to_none(
    client: "KubernetesClient", path: str, asked_about: "JsonObject", query: str = ""
) -> None:
    """Scale a Deployment to 0 if it is the one that the user was asked about, as it was then.

    Raises:
        Conflict: it was edited or made anew meanwhile, or is written again and again.
    """
    present = asked_about
    for _ in range(_MAX_CONFLICTS):
        # The API compares both. The version alone changes with each status, so it is read anew.
        metadata = {key: present["metadata"].get(key) for key in ("uid", "resourceVersion")}
        try:
            await client.patch(f"{path}/scale{query}", {"metadata": metadata, **_NONE})
        except Conflict:
            present = await client.get(path)
            if _identity(present) != _identity(asked_about):
                raise
        else:
            return
    raise Conflict(f"patch {path}/scale", 409, "Conflict", "it keeps changing")


def _identity(deployment: "JsonObject") -> tuple[object, object]:
    """The parts of a Deployment that a write of its status does not change."""
    return deployment["metadata"].get("uid"), deployment.get("spec")


async def _names(client: "KubernetesClient", path: str) -> set[str]:
    pods, _ = await client.list(path)
    return {str(pod["metadata"]["name"]) for pod in pods}


def _selector_of(deployment: "JsonObject") -> str:
    """The Deployment's selector, for a query.

    Raises:
        ConfigurationError: it selects by more than labels, as none of Stellwerk's does.
    """
    from urllib.parse import quote  # noqa: PLC0415

    selector = deployment["spec"]["selector"]
    labels = selector.get("matchLabels") or {}
    if not labels or selector.get("matchExpressions"):
        raise ConfigurationError("the deployment does not select its pods as Stellwerk's does")
    return quote(",".join(f"{key}={value}" for key, value in sorted(labels.items())), safe="")


def _lease_of(deployment: "JsonObject") -> tuple[str, str]:
    """Namespace and name of the lease by the operator's own flags; empty names: it holds none.

    Raises:
        ConfigurationError: no container runs the operator, or its flags cannot be read.
    """
    from stellwerk_cli.commands import run as run_command  # noqa: PLC0415

    containers: list[dict[str, Any]] = deployment["spec"]["template"]["spec"]["containers"]
    found = [each["args"] for each in containers if (each.get("args") or [""])[0] == "run"]
    if not found:
        raise ConfigurationError("the deployment has no container with the argument `run`")
    parser = argparse.ArgumentParser(add_help=False, exit_on_error=False, allow_abbrev=False)
    run_command.add_arguments(parser)
    try:
        flags, _ = parser.parse_known_args(found[0][1:])
    except argparse.ArgumentError as error:
        raise ConfigurationError(f"the deployment's arguments: {error}") from error
    if not flags.leader_elect:
        return "", ""
    return flags.leader_elect_resource_namespace, flags.leader_elect_resource_name


async def _release(
    client: "KubernetesClient", namespace: str, name: str, pods_namespace: str, ours: set[str]
) -> str:
    """Release a lease that one of our pods still holds; what became of it, in words.

    The holder says in the lease which pod it is. Of an older version, or where the manifest lacks
    POD_NAME, its identity begins with the pod's name, unless the pod is in the host's network.
    """
    from stellwerk.client.lease import pod_of  # noqa: PLC0415
    from stellwerk_kube.clock import SystemClock  # noqa: PLC0415

    api = client.lease(namespace, name)
    lease = await api.get()
    if lease is None:
        return f"there is no lease {namespace}/{name}"
    holder = lease.record.holder_identity
    if not holder:
        return f"lease {namespace}/{name} is free"
    pod = pod_of(lease)
    pod_name = pod[1] if pod is not None else holder.rpartition("_")[0] or holder
    if pod_name not in ours or (pod is not None and pod[0] != pods_namespace):
        return f"lease {namespace}/{name} is held by {holder}, which is not one of these pods"
    try:
        await api.update(lease, lease.record.released(SystemClock().now()))
    except Conflict:  # its holder is gone, so another one has written
        return f"lease {namespace}/{name} was taken by another holder meanwhile"
    return f"lease {namespace}/{name}, left behind by {holder}, was released"
