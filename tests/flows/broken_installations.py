"""Installations of Stellwerk on an embedded cluster, each broken in one way.

`tests/flows/test_doctor.py` asks `stellwerk doctor` about them, and docs/doctor.md shows what it
says. The pods are made by the Deployment of the manifests; what their kubelets and their operator
would report is written into their status. Invariant: each way changes one thing of an installation
that works.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from copy import deepcopy
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import yaml

from stellwerk.client.lease import HOLDER_ANNOTATION, PUBLIC_KEY_ANNOTATION
from stellwerk.profiles.spec.crd import crd_manifest
from stellwerk.profiles.spec.profile import GROUP, OPERATOR_LABEL, PLURAL
from stellwerk_cluster.cluster import ClusterOptions, EmbeddedCluster
from stellwerk_cluster.hollow.kubelet import KubeletOptions
from stellwerk_cluster.identity.rbac import RBAC_GROUP
from stellwerk_cluster.registry.binding import bind
from stellwerk_kube.clock import rfc3339_microseconds
from stellwerk_kube.json_values import JsonObject
from tests.support.builders import make_pod
from tests.support.repository import ROOT
from tests.support.rights import ENFORCED, NAMESPACE, access_manifests, apply_access
from tests.support.running_operator import until

NEVER_SECONDS = 1e9
HOLDER: Final = "stellwerk-leader_1"
KUBE_SYSTEM: Final = ("kube-system", "kube-scheduler")


class Site:
    """A cluster, and what is written into it."""

    def __init__(self, cluster: EmbeddedCluster, kubeconfig: Path) -> None:
        self.cluster = cluster
        self.kubeconfig = kubeconfig

    def create(self, plural: str, group: str, obj: JsonObject) -> None:
        api = self.cluster.api
        api.create(api.kinds.resource(plural, group), obj["metadata"].get("namespace", ""), obj)

    def pods(self) -> list[JsonObject]:
        return [*self.cluster.api.all("pods", NAMESPACE)]

    def report(self, pod: JsonObject, status: JsonObject) -> None:
        """Write a pod's status, as its kubelet would."""
        api, metadata = self.cluster.api, pod["metadata"]
        key = (metadata["namespace"], metadata["name"])
        api.patch(api.kinds.resource("pods"), key, {"status": status}, subresource="status")

    def lease(self, key: tuple[str, str], holder: str = HOLDER, age_seconds: float = 0.0) -> None:
        """Write a lease that Stellwerk holds, last renewed a while ago."""
        namespace, name = key
        renewed = rfc3339_microseconds(datetime.now(UTC) - timedelta(seconds=age_seconds))
        self.create(
            "leases",
            "coordination.k8s.io",
            {
                "metadata": {
                    "name": name,
                    "namespace": namespace,
                    "annotations": {
                        HOLDER_ANNOTATION: holder,
                        PUBLIC_KEY_ANNOTATION: "sha256/none",
                    },
                },
                "spec": {
                    "holderIdentity": holder,
                    "leaseDurationSeconds": 15,
                    "renewTime": renewed,
                    "acquireTime": renewed,
                    "leaseTransitions": 1,
                },
            },
        )

    def profile(
        self, name: str, spec: JsonObject, *conditions: JsonObject, operator: str = ""
    ) -> None:
        """Write a profile with the conditions that its operator would give it."""
        api, now = self.cluster.api, rfc3339_microseconds(datetime.now(UTC)).replace(".000000", "")
        labels = {OPERATOR_LABEL: operator} if operator else {}
        self.create(PLURAL, GROUP, {"metadata": {"name": name, "labels": labels}, "spec": spec})
        given = [
            {"lastTransitionTime": now, "observedGeneration": 1, "message": "", **each}
            for each in conditions or (ACCEPTED, ACTIVE)
        ]
        kind = api.kinds.resource(PLURAL, GROUP)
        api.patch(kind, ("", name), {"status": {"conditions": given}}, subresource="status")

    async def bound_pods(self) -> list[JsonObject]:
        """The pods of the Deployment, each on a node, as kube-scheduler would leave them."""
        await until(lambda: len(self.pods()) == 2)
        kind = self.cluster.api.kinds.resource("pods")
        for number, pod in enumerate(self.pods(), 1):
            name = pod["metadata"]["name"]
            target = {"kind": "Node", "name": f"node-{number}"}
            binding = {"metadata": {"name": name}, "target": target}
            bind(self.cluster.api, kind, (NAMESPACE, name), binding)
        return self.pods()

    async def running_pods(self) -> None:
        """The same, running and ready."""
        for pod in await self.bound_pods():
            self.report(pod, {"phase": "Running", "conditions": [condition("Ready", "True")]})


def condition(kind: str, status: str, reason: str = "", message: str = "") -> JsonObject:
    """A condition of an object."""
    given = {"type": kind, "status": status, "reason": reason, "message": message}
    return {key: text for key, text in given.items() if text}


ACCEPTED: Final = condition("Accepted", "True", "Valid")
ACTIVE: Final = condition("Active", "True", "Serving")


@asynccontextmanager
async def site(directory: Path) -> AsyncIterator[Site]:
    """A cluster whose kubelets report nothing of themselves, and an administrator of it."""
    kubelet = KubeletOptions(start_seconds=NEVER_SECONDS)
    async with EmbeddedCluster(
        2, options=ClusterOptions(identity=ENFORCED, kubelet=kubelet)
    ) as cluster:
        kubeconfig = directory / "kubeconfig"
        cluster.write_kubeconfig(kubeconfig)
        found = Site(cluster, kubeconfig)
        yield found


def install(
    on: Site,
    *,
    definition: JsonObject | None = None,
    access: list[JsonObject] | None = None,
    change: Callable[[JsonObject], object] = lambda _: None,
) -> None:
    """Apply definition, rights and Deployment of the manifests; `change`: of the Deployment."""
    on.create("customresourcedefinitions", "apiextensions.k8s.io", definition or crd_manifest())
    apply_access(on.cluster, deepcopy(access or access_manifests()))
    text = (ROOT / "manifests" / "20-deployment.yaml").read_text()
    deployment: JsonObject = yaml.safe_load(text)
    change(deployment)
    on.create("deployments", "apps", deployment)


async def works(on: Site) -> None:
    install(on)
    await on.running_pods()
    on.lease((NAMESPACE, "stellwerk"))
    on.profile("default", {"schedulerName": "stellwerk"})


async def nothing_is_installed(on: Site) -> None:
    del on


async def the_image_cannot_be_pulled(on: Site) -> None:
    install(on)
    for pod in await on.bound_pods():
        waiting = {"reason": "ImagePullBackOff", "message": 'Back-off pulling "stellwerk:0.1.0"'}
        on.report(pod, {"phase": "Pending", "containerStatuses": [status_of(waiting=waiting)]})


async def the_process_ends_at_once(on: Site) -> None:
    install(on)
    for pod in await on.bound_pods():
        waiting = {"reason": "CrashLoopBackOff", "message": "back-off 5m0s restarting"}
        ended = {"exitCode": 2, "reason": "Error"}
        crashed = status_of(waiting=waiting, last=ended, restarts=7)
        on.report(pod, {"phase": "Running", "containerStatuses": [crashed]})


async def its_memory_is_too_small(on: Site) -> None:
    install(on)
    for pod in await on.bound_pods():
        ended = {"exitCode": 137, "reason": "OOMKilled"}
        crashed = status_of(waiting={"reason": "CrashLoopBackOff"}, last=ended, restarts=3)
        on.report(pod, {"phase": "Running", "containerStatuses": [crashed]})


ENDED: Final = {"startedAt": "2026-01-01T00:00:00Z", "finishedAt": "2026-01-01T00:00:01Z"}


def status_of(waiting: JsonObject, last: JsonObject | None = None, restarts: int = 0) -> JsonObject:
    """The status of a container that does not run."""
    return {
        "name": "stellwerk",
        "image": "stellwerk:0.1.0",
        "imageID": "",
        "ready": False,
        "restartCount": restarts,
        "state": {"waiting": waiting},
        "lastState": {} if last is None else {"terminated": {**ENDED, **last}},
    }


async def the_only_scheduler_is_away(on: Site) -> None:
    """In kube-scheduler's place, and both replicas were away at once."""

    def in_place(deployment: JsonObject) -> None:
        arguments: list[str] = deployment["spec"]["template"]["spec"]["containers"][0]["args"]
        arguments[3:5] = [
            "--leader-elect-resource-name=kube-scheduler",
            "--leader-elect-resource-namespace=kube-system",
        ]

    install(on, change=in_place)
    text = (ROOT / "manifests" / "overlays" / "in-place" / "lease.yaml").read_text()
    for each in yaml.safe_load_all(text):
        on.create(f"{each['kind'].lower()}s", RBAC_GROUP, each)
    on.lease(KUBE_SYSTEM, age_seconds=600)
    on.profile("default-scheduler", {"schedulerName": "default-scheduler"})
    await until(lambda: len(on.pods()) == 2)


async def it_is_scaled_to_0(on: Site) -> None:
    install(on, change=lambda deployment: deployment["spec"].update(replicas=0))
    on.lease((NAMESPACE, "stellwerk"), holder="")


async def a_right_is_missing(on: Site) -> None:
    access = deepcopy(access_manifests())
    for role in access:
        if role["kind"] == "ClusterRole" and role["metadata"]["name"] == "stellwerk":
            role["rules"] = [
                each for each in role["rules"] if each["resources"] != ["pods/binding"]
            ]
    install(on, access=access)
    await on.running_pods()
    on.lease((NAMESPACE, "stellwerk"))
    on.profile("default", {"schedulerName": "stellwerk"})


async def the_definition_is_of_an_older_release(on: Site) -> None:
    definition = crd_manifest()
    (version,) = definition["spec"]["versions"]
    del version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"][
        "percentageOfNodesToScore"
    ]
    install(on, definition=definition)
    await on.running_pods()
    on.lease((NAMESPACE, "stellwerk"))
    on.profile("default", {"schedulerName": "stellwerk"})


async def the_leader_is_silent(on: Site) -> None:
    install(on)
    await on.running_pods()
    on.lease((NAMESPACE, "stellwerk"), age_seconds=120)
    on.profile("default", {"schedulerName": "stellwerk"})


async def a_profile_is_refused(on: Site) -> None:
    await works(on)
    refused = condition("Accepted", "False", "Invalid", "spec.plugins.score: no plugin Fit")
    inactive = condition("Active", "False", "NotServing")
    on.profile("packing", {"schedulerName": "packing"}, refused, inactive)


async def a_secret_may_not_go_there(on: Site) -> None:
    await works(on)
    refused = condition("Ready", "False", "NotAllowed", "its annotation has to name http://a:80")
    on.profile("packing", {"schedulerName": "packing"}, ACCEPTED, ACTIVE, refused)


async def pods_name_a_scheduler_that_is_not_there(on: Site) -> None:
    await works(on)
    for number in range(3):
        pod: JsonObject = make_pod(f"web-{number}", scheduler_name="stelwerk")
        del pod["metadata"]["uid"]
        on.create("pods", "", pod)
    await asyncio.sleep(0)


BROKEN: Final[Mapping[str, Callable[[Site], Awaitable[None]]]] = {
    "nothing is installed": nothing_is_installed,
    "the image cannot be pulled": the_image_cannot_be_pulled,
    "the process ends at once": the_process_ends_at_once,
    "its limit of memory is too small": its_memory_is_too_small,
    "it is the only scheduler, and both replicas were away at once": the_only_scheduler_is_away,
    "the Deployment is scaled to 0": it_is_scaled_to_0,
    "its role lacks a right": a_right_is_missing,
    "the definition is of an older release": the_definition_is_of_an_older_release,
    "the leader does not renew its lease": the_leader_is_silent,
    "a profile names a Secret that may not go to its address": a_secret_may_not_go_there,
    "a profile is refused": a_profile_is_refused,
    "pods name a scheduler that is not there": pods_name_a_scheduler_that_is_not_there,
}
"""What is broken, in the words of docs/doctor.md."""
