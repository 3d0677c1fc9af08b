"""The checks of `stellwerk doctor` that read the API: definition, pods, lease, profiles and so on.

`commands.doctor` runs them in this order, and then those of `port_checks`. Invariant: a finding's
own text has only names, reasons and numbers (`allowed_text`). Messages of the cluster and lines of
logs are quoted separately.
"""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from stellwerk import __version__
from stellwerk.answers.diagnosis import Finding, State
from stellwerk.client.lease import (
    PUBLIC_KEY_ANNOTATION,
    Lease,
    is_of_stellwerk,
    leases_path,
    local_url,
)
from stellwerk.handlers.availability import kinds_in_use
from stellwerk.models.unserved_pods import (
    MAX_BOUND_PODS,
    MAX_EVENTS,
    STATIC_POD_OWNER,
    binding_moment,
    bound_pods_path,
    events_path,
    given_up,
    leases_of_name_path,
    moment_of,
    sign_of_scheduler,
    unserved_pods,
)
from stellwerk.profiles.spec.crd import crd_manifest
from stellwerk.profiles.spec.profile import API_VERSION, GROUP, PLURAL, VERSION
from stellwerk.profiles.spec.spec_fields import OBSERVE
from stellwerk_cli.commands.diagnosis.allowed_text import image, named, version, word
from stellwerk_cli.commands.diagnosis.survey import Unseen
from stellwerk_cli.commands.port_arguments import IN_PLACE
from stellwerk_kube.compatibility import (
    RECORDED,
    RELEASES,
    decided_by_default,
    release_of_server,
)
from stellwerk_kube.errors import ApiError
from stellwerk_kube.names import suggestion

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from datetime import datetime

    from stellwerk_cli.commands.diagnosis.survey import Survey
    from stellwerk_kube.json_values import JsonObject

_MAX_NAMED: Final = 5
"""Names that a finding lists; the others are counted."""
_QUOTED_LOG_LINES: Final = 8
"""Last lines of a crashed container's log that are quoted: an error's own line is among them."""
SECOND_LOOK_SECONDS: Final = 2.5
"""Pause before a lease that looks old is read again: a living holder renews it every 2 s."""
_RELEASE_TAG: Final = re.compile(r"v?[0-9]{1,4}\.[0-9]{1,4}\.[0-9]{1,4}")
"""A tag of a release; others, such as a commit, say nothing of a version."""
DEFAULT_SCHEDULER: Final = "default-scheduler"
_IMAGE_REASONS: Final = frozenset(
    {"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"}
)
_STATUSES: Final[Mapping[int, tuple[str, str]]] = {
    1: (
        "the lease was lost, or something failed",
        "read the last lines of its log; docs/troubleshooting.md explains each message",
    ),
    2: (
        "a mistake in its arguments, files or kubeconfig",
        "compare the container's args with `stellwerk run --help`",
    ),
    3: (
        "the API server did not answer when it started",
        "look at the pod's network and at the API server",
    ),
    137: (
        "it was killed: by its limit of memory, or because the liveness probe failed",
        "compare the limit with docs/operations.md, and read the pod's events",
    ),
}
"""Exit statuses of `stellwerk run`: what happened, and what to do."""


@dataclass(frozen=True, slots=True)
class HeldLease:
    """A lease of a scheduler with its state."""

    namespace: str
    name: str
    holder: str
    """Empty: it was released, or never held."""
    is_stellwerk: bool
    is_alive: bool
    is_local: bool = False
    """Whether it is of `stellwerk up` on this machine, which renews none: its port says more."""

    @property
    def key(self) -> tuple[str, str]:
        """Namespace and name."""
        return self.namespace, self.name


@dataclass(frozen=True, slots=True)
class Installation:
    """The objects of one installation, as far as the caller sees them."""

    deployments: Sequence[JsonObject] | Unseen
    pods: Sequence[JsonObject] | Unseen
    leases: Sequence[HeldLease] | Unseen
    profiles: Sequence[JsonObject] | Unseen
    unseen_lease: Unseen | None = None
    """The reason for which kube-scheduler's lease could not be read, if it may be there."""

    @property
    def kube_scheduler_runs(self) -> bool | Unseen:
        """Whether kube-scheduler is seen to renew its lease."""
        if isinstance(self.leases, Unseen):
            return self.leases
        found = [each for each in self.leases if each.key == IN_PLACE]
        if not found and self.unseen_lease is not None:
            return self.unseen_lease
        return any(each.is_alive and not each.is_stellwerk for each in found)

    @property
    def leader(self) -> HeldLease | None:
        """The lease that a living Stellwerk holds."""
        leases = () if isinstance(self.leases, Unseen) else self.leases
        return next((each for each in leases if each.is_stellwerk and each.is_alive), None)

    @property
    def wanted_lease(self) -> tuple[str, str]:
        """The lease that the operator holds or would hold, by its arguments."""
        if self.leader is not None:
            return self.leader.key
        for pod in self._pod_specs():
            arguments = [str(each) for each in _container(pod).get("args") or ()]
            given = dict(each.partition("=")[::2] for each in arguments)
            namespace = given.get("--leader-elect-resource-namespace", IN_PLACE[0])
            return namespace, given.get("--leader-elect-resource-name", IN_PLACE[1])
        return "stellwerk", "stellwerk"

    @property
    def account(self) -> tuple[str, str] | None:
        """Namespace and name of the operator's service account.

        None: it has no pods, or a kubeconfig of its own, as a static pod has.
        """
        objects = [] if isinstance(self.deployments, Unseen) else [*self.deployments]
        objects += [] if isinstance(self.pods, Unseen) else self.pods
        for each, spec in zip(objects, self._pod_specs(), strict=True):
            arguments = _container(spec).get("args") or ()
            if any(str(argument).startswith("--kubeconfig") for argument in arguments):
                continue
            return each["metadata"]["namespace"], spec.get("serviceAccountName") or "default"
        return None

    @property
    def observes(self) -> bool:
        """Whether the operator was installed to observe, and needs only the rights for that."""
        return any(
            "--observe" in (_container(spec).get("args") or ()) for spec in self._pod_specs()
        )

    @property
    def image_versions(self) -> set[str]:
        """The versions that the tags of the operator's images say, as far as they are versions."""
        images = [str(_container(each).get("image")) for each in self._pod_specs()]
        tags = {each.rpartition("/")[2].partition("@")[0].partition(":")[2] for each in images}
        return {each.removeprefix("v") for each in tags if _RELEASE_TAG.fullmatch(each)}

    def _pod_specs(self) -> list[JsonObject]:
        deployments = () if isinstance(self.deployments, Unseen) else self.deployments
        pods = () if isinstance(self.pods, Unseen) else self.pods
        templates = [each["spec"]["template"]["spec"] for each in deployments]
        return [*templates, *(each["spec"] for each in pods)]


async def read_installation(survey: Survey) -> Installation:
    """Read Deployments, pods, leases and profiles."""
    namespace = quote(survey.namespace, safe="")
    found = await survey.list(f"/apis/apps/v1/namespaces/{namespace}/deployments")
    deployments = found if isinstance(found, Unseen) else [*filter(_runs_operator, found)]
    listed = await survey.list(f"/api/v1/namespaces/{namespace}/pods")
    pods: Sequence[JsonObject] | Unseen = listed
    if not isinstance(listed, Unseen):
        pods = [each for each in listed if _is_operator(each["spec"])]
        # Static pods of a control plane (manifests/static-pod).
        static = await survey.list(
            "/api/v1/namespaces/kube-system/pods?labelSelector=component%3Dstellwerk"
        )
        if not isinstance(static, Unseen) and survey.namespace != "kube-system":
            pods += [each for each in static if _is_operator(each["spec"])]
    profiles = await survey.list(f"/apis/{API_VERSION}/{PLURAL}")
    leases, unseen_lease = await _read_leases(survey)
    return Installation(deployments, pods, leases, profiles, unseen_lease)


def _runs_operator(deployment: JsonObject) -> bool:
    return _is_operator(deployment["spec"]["template"]["spec"])


def _is_operator(pod_spec: JsonObject) -> bool:
    """Whether a pod's container is `stellwerk run`, whatever its release and image are called."""
    container = _container(pod_spec)
    given = (container.get("command") or (), container.get("args") or ())
    words = [str(each) for texts in given for each in texts]
    return "run" in words[:4] and any(
        each.startswith(("--leader-elect", "--bind-address", "--operator-name")) for each in words
    )


def _container(pod_spec: JsonObject) -> JsonObject:
    containers: Sequence[JsonObject] = pod_spec.get("containers") or ()
    return next((each for each in containers if each.get("name") == "stellwerk"), None) or (
        containers[0] if containers else {}
    )


# --- versions and the definition ----------------------------------------------------------------


def check_versions(server: str, installed: Installation) -> Finding:
    """Compare the API server's version with the releases that are known, and images with both."""
    other = sorted(installed.image_versions - {__version__})
    if other:
        return Finding(
            check="versions",
            state="warning",
            what=f"stellwerk v{__version__}, API server {version(server)}, and pods of the "
            f"operator with an image of {_some(map(version, other))}",
            remedy="use the program of the release that is installed, or upgrade "
            "(docs/operations.md)",
        )
    what = f"stellwerk v{__version__}, API server {version(server)}"
    release = release_of_server(server)
    if release is None:
        return Finding(
            check="versions",
            state="warning",
            what=f"{what}, which is not a version of Kubernetes; "
            f"{decided_by_default(str(RECORDED))}",
        )
    minor = ".".join(server.removeprefix("v").split(".")[:2]).rstrip("+")
    if minor in RELEASES:
        said = decided_by_default(str(release))
        return Finding(check="versions", state="ok", what=f"{what}; {said}")
    return Finding(
        check="versions",
        state="warning",
        what=f"{what}; {decided_by_default(str(release))}, the nearest known release",
        remedy="docs/compatibility.md says what differs between releases",
    )


async def check_definition(survey: Survey) -> Finding:
    """Compare the definition of SchedulerProfiles with the one of this program."""
    name = f"{PLURAL}.{GROUP}"
    apply = "kubectl apply -f crds/"
    found = await survey.get(f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}")
    if isinstance(found, Unseen):
        if found.absent:
            what = f"the definition {name} is missing: the operator waits for it"
            return Finding(check="definition", state="failed", what=what, remedy=apply)
        served = await survey.get(f"/apis/{API_VERSION}")
        if isinstance(served, Unseen):
            what = f"the API server serves no {API_VERSION}"
            state: State = "failed" if served.absent else "unknown"
            return Finding(check="definition", state=state, what=what, remedy=apply)
        what = f"{API_VERSION} is served; its fields cannot be seen: {found.reason}"
        return Finding(check="definition", state="unknown", what=what)
    return _served_definition(name, found)


def _served_definition(name: str, found: JsonObject) -> Finding:
    """Compare a definition that is there with this program's."""
    apply = "kubectl apply -f crds/"
    versions = {each.get("name"): each for each in found["spec"].get("versions") or ()}
    if not versions.get(VERSION, {}).get("served"):
        what = f"{name} is not served in {VERSION}, which this program reads"
        return Finding(check="definition", state="failed", what=what, remedy=apply)
    conditions = _conditions(found)
    if conditions.get("Established", {}).get("status") != "True":
        refused = conditions.get("NamesAccepted", {})
        return Finding(
            check="definition",
            state="failed",
            what=f"{name} is not established: {word(refused.get('reason'))}",
            remedy="look for another definition with the same names",
            quoted=_messages(refused),
        )
    (ours,) = crd_manifest()["spec"]["versions"]
    here, there = _fields(ours), _fields(versions[VERSION])
    missing, unknown = sorted(here - there), sorted(there - here)
    if missing:
        what = f"{name} is older than this program: it lacks {_some(missing)}"
        return Finding(check="definition", state="warning", what=what, remedy=apply)
    if unknown:
        what = f"{name} is newer than this program: it also has {_some(unknown)}"
        remedy = "use the program of the release that is installed"
        return Finding(check="definition", state="warning", what=what, remedy=remedy)
    return Finding(
        check="definition", state="ok", what=f"{name} is served, with this program's fields"
    )


def _fields(served: JsonObject) -> set[str]:
    """The paths of all fields of a version's schema."""
    found = set[str]()
    pending: list[tuple[str, Any]] = [("", (served.get("schema") or {}).get("openAPIV3Schema"))]
    while pending:
        path, schema = pending.pop()
        if not isinstance(schema, dict):
            continue
        for name, below in (schema.get("properties") or {}).items():
            found.add(f"{path}.{name}".removeprefix("."))
            pending.append((f"{path}.{name}", below))
        pending += [(path, schema.get(key)) for key in ("items", "additionalProperties")]
    return found


# --- the operator's pods ------------------------------------------------------------------------


async def check_operator(survey: Survey, installed: Installation) -> list[Finding]:
    """Say which pods of the operator run, and why the others do not."""
    if isinstance(installed.pods, Unseen):
        what = f"pods of the operator cannot be seen: {installed.pods.reason}"
        return [Finding(check="operator", state="unknown", what=what)]
    findings = [*_deployment_findings(installed.deployments)]
    ready = 0
    alike: dict[str, tuple[Finding, list[str]]] = {}
    """Findings that hold for several pods, with their names."""
    for pod in installed.pods:
        if pod["metadata"].get("deletionTimestamp"):
            continue
        ready += _conditions(pod).get("Ready", {}).get("status") == "True"
        found = _pod_finding(pod, installed)
        if found is None:
            continue
        if found.state == "failed" and _restarts(pod) and found.what not in alike:
            found = replace(found, quoted=[*found.quoted, *await _last_lines(survey, pod)])
        alike.setdefault(found.what, (found, []))[1].append(named(pod["metadata"]["name"]))
    for found, names in alike.values():
        whose = f"pod {names[0]}" if len(names) == 1 else f"{len(names)} pods ({_some(names)})"
        findings.append(replace(found, what=f"{whose}: {found.what}"))
    if ready:
        what = f"{ready} of {len(installed.pods)} pods of the operator run and are ready"
        findings.insert(0, Finding(check="operator", state="ok", what=what))
    if findings:
        return findings
    leader = installed.leader
    if leader is not None:
        what = f"it has no pod in {survey.namespace}; {named(leader.holder)} runs elsewhere"
        return [Finding(check="operator", state="ok", what=what)]
    return [
        Finding(
            check="operator",
            state="failed",
            what=f"there is no pod of the operator in namespace {survey.namespace}",
            remedy="kubectl apply -f manifests/; -n names another namespace to look in",
        )
    ]


def _deployment_findings(deployments: Sequence[JsonObject] | Unseen) -> Iterator[Finding]:
    if isinstance(deployments, Unseen):
        return
    for each in deployments:
        name = f"deployment/{named(each['metadata']['name'])}"
        if each["spec"].get("replicas") == 0:
            yield Finding(
                check="operator",
                state="failed",
                what=f"{name} is scaled to 0 replicas",
                remedy=f"kubectl scale {name} --replicas=2 -n {each['metadata']['namespace']}",
            )
        failure = _conditions(each).get("ReplicaFailure", {})
        if failure.get("status") == "True":
            yield Finding(
                check="operator",
                state="failed",
                what=f"pods of {name} cannot be created: {word(failure.get('reason'))}",
                remedy="a quota, Pod Security or a webhook refuses them: see the message",
                quoted=_messages(failure),
            )


def _pod_finding(pod: JsonObject, installed: Installation) -> Finding | None:
    """The reason for which a pod is not running and ready, without its name; None: it is."""
    if not pod["spec"].get("nodeName"):
        return _unscheduled(pod, installed)
    status = pod.get("status") or {}
    statuses: Sequence[JsonObject] = (
        *(status.get("initContainerStatuses") or ()),
        *(status.get("containerStatuses") or ()),
    )
    for found in filter(None, (_container_finding(each) for each in statuses)):
        return found
    if _conditions(pod).get("Ready", {}).get("status") == "True":
        restarts = _restarts(pod)
        if restarts:
            ended = next(filter(None, map(_ended, statuses)), {})
            return Finding(
                check="operator",
                state="warning",
                what=f"ready, after {restarts} restarts; the last exit status was "
                f"{ended.get('exitCode', 'not kept')}",
                remedy="kubectl logs --previous shows how it ended",
            )
        return None
    return Finding(
        check="operator",
        state="warning",
        what=f"not ready on {named(pod['spec']['nodeName'])} ({word(status.get('phase'))})",
        remedy="a start takes seconds; `port` below says which check fails",
    )


def _container_finding(container: JsonObject) -> Finding | None:
    """The reason for which a container does not run; None: it runs, or starts."""
    waiting = (container.get("state") or {}).get("waiting") or {}
    reason = word(waiting.get("reason"))
    if reason in _IMAGE_REASONS:
        return Finding(
            check="operator",
            state="failed",
            what=f"the image {image(container.get('image'))} cannot be pulled ({reason})",
            remedy="name an image that its node can pull (docs/operations.md, Install), or "
            "give the pod a pull secret",
            quoted=_messages(waiting),
        )
    ended = _ended(container)
    if ended is not None and not container.get("ready"):
        code = ended.get("exitCode")
        happened, remedy = _STATUSES.get(
            code if isinstance(code, int) else 0, ("it ended", _STATUSES[1][1])
        )
        if ended.get("reason") == "OOMKilled":
            happened = "it had more memory than its limit (OOMKilled)"
        count = int(container.get("restartCount") or 0)
        return Finding(
            check="operator",
            state="failed",
            what=f"ended with exit status {code} after {count} restarts: {happened}",
            remedy=remedy,
            quoted=_messages(ended),
        )
    if waiting and reason not in {"ContainerCreating", "PodInitializing"}:
        return Finding(
            check="operator",
            state="failed",
            what=f"the container cannot start ({reason})",
            remedy="see the message: a Secret, a ConfigMap or a setting of the pod is wrong",
            quoted=_messages(waiting),
        )
    return None


def _unscheduled(pod: JsonObject, installed: Installation) -> Finding:
    """The reason for which a pod of the operator has no node."""
    condition = _conditions(pod).get("PodScheduled", {})
    scheduler = pod["spec"].get("schedulerName") or DEFAULT_SCHEDULER
    if condition.get("reason") == "Unschedulable":
        return Finding(
            check="operator",
            state="failed",
            what=f"no node fits, says {named(scheduler)}",
            remedy="add nodes, or change what the pod asks for: see the message",
            quoted=_messages(condition),
        )
    profiles = () if isinstance(installed.profiles, Unseen) else installed.profiles
    own = scheduler in _names_of(profiles)
    other = installed.kube_scheduler_runs if scheduler == DEFAULT_SCHEDULER else False
    if other is True or (own and installed.leader is not None):
        what = f"waiting for {named(scheduler)}, which runs"
        return Finding(
            check="operator",
            state="warning",
            what=what,
            remedy="run `stellwerk doctor` again in a moment",
        )
    if isinstance(other, Unseen):
        what = f"waiting for {named(scheduler)}; whether it runs cannot be seen: {other.reason}"
        remedy = "ask an administrator whether it runs"
        return Finding(check="operator", state="warning", what=what, remedy=remedy)
    if own:
        what = (
            f"waiting for {named(scheduler)}, which is Stellwerk itself. No replica of it runs, "
            "so the cluster has no scheduler"
        )
    else:
        what = f"waiting for {named(scheduler)}, but no such scheduler seems to run"
    return Finding(
        check="operator",
        state="failed",
        what=what,
        remedy="start kube-scheduler; or, until the pods run, `stellwerk run --leader-elect "
        "--kubeconfig FILE` from any machine, with an administrator's kubeconfig and the "
        "lease of the pods' arguments (docs/operations.md, Where it is the only scheduler)",
    )


async def _last_lines(survey: Survey, pod: JsonObject) -> list[str]:
    """The last lines of the log of the run that ended, or why they cannot be read."""
    metadata, container = pod["metadata"], _container(pod["spec"]).get("name", "")
    lines: Sequence[str] | Unseen = Unseen("there is no log")
    for previous in (True, False):
        lines = await survey.log(
            metadata["namespace"], metadata["name"], container, previous=previous
        )
        if not isinstance(lines, Unseen) and lines:
            return [f"log: {line}" for line in lines[-_QUOTED_LOG_LINES:]]
    return [f"log cannot be seen: {lines.reason}"] if isinstance(lines, Unseen) else []


def _ended(container: JsonObject) -> JsonObject | None:
    """The end of the container's last run."""
    for state in ("state", "lastState"):
        ended: JsonObject | None = (container.get(state) or {}).get("terminated")
        if ended:
            return ended
    return None


def _restarts(pod: JsonObject) -> int:
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    return sum(
        int(each.get("restartCount") or 0) or (_ended(each) is not None) for each in statuses
    )


# --- leases -------------------------------------------------------------------------------------


async def _read_leases(survey: Survey) -> tuple[Sequence[HeldLease] | Unseen, Unseen | None]:
    """The leases of the operator's namespace and kube-scheduler's, with the state of each.

    Also the reason for which the latter cannot be read.
    """
    first, other = await _lease_objects(survey)
    if isinstance(first, Unseen):
        return first, other
    old = [each for each in first if _age_seconds(each, survey) > _duration_seconds(each)]
    again: Mapping[tuple[str, str], JsonObject] = {}
    if any(_spec(each).get("renewTime") and _spec(each).get("holderIdentity") for each in old):
        # The clock of this machine may be wrong, so the holder gets the time to renew it.
        await asyncio.sleep(SECOND_LOOK_SECONDS)
        second, _ = await _lease_objects(survey)
        again = {} if isinstance(second, Unseen) else {_key(each): each for each in second}
    leases = []
    for each in first:
        before = _spec(each)
        after = _spec(again.get(_key(each), each))
        renewed = after.get("renewTime") != before.get("renewTime")
        is_local = local_url(Lease.of(each), survey.client.server) is not None
        holder = str(after.get("holderIdentity") or "")
        leases.append(
            HeldLease(
                *_key(each),
                holder,
                is_stellwerk=_is_ours(Lease.of(each), survey),
                is_alive=bool(holder) and (is_local or renewed or each not in old),
                is_local=is_local,
            )
        )
    return leases, other


def _is_ours(lease: Lease, survey: Survey) -> bool:
    """Whether the holder is a Stellwerk; one of an older release says so less clearly."""
    if is_of_stellwerk(lease) or local_url(lease, survey.client.server) is not None:
        return True
    metadata = lease.obj["metadata"]
    is_own = metadata["namespace"] == survey.namespace
    return is_own and PUBLIC_KEY_ANNOTATION in (metadata.get("annotations") or {})


async def _lease_objects(survey: Survey) -> tuple[Sequence[JsonObject] | Unseen, Unseen | None]:
    path = leases_path(survey.namespace)
    own = await survey.list(path)
    if isinstance(own, Unseen):
        # Readers of explanations may get the one lease, and list none.
        one = await survey.get(f"{path}/stellwerk")
        if not isinstance(one, Unseen):
            own = [one]
        elif one.absent:
            own = []
    namespace, name = IN_PLACE
    other = await survey.get(f"{leases_path(namespace)}/{name}")
    if isinstance(other, Unseen):
        return own, None if other.absent else other
    return (own if isinstance(own, Unseen) else [*own, other]), None


def check_leases(installed: Installation) -> list[Finding]:
    """Say who holds each lease, and whether the holder is alive."""
    if isinstance(installed.leases, Unseen):
        what = f"leases cannot be seen: {installed.leases.reason}"
        return [Finding(check="lease", state="unknown", what=what)]
    findings = []
    if installed.unseen_lease is not None:
        what = f"kube-scheduler's lease cannot be seen: {installed.unseen_lease.reason}"
        findings.append(Finding(check="lease", state="unknown", what=what))
    for lease in installed.leases:
        key = f"{named(lease.namespace)}/{named(lease.name)}"
        whose = "Stellwerk" if lease.is_stellwerk else "another scheduler"
        gone = "it was released"
        if lease.holder:
            gone = f"its last holder {named(lease.holder)} no longer renews it"
        if lease.is_alive:
            renews = "a sandbox on this machine" if lease.is_local else "which renews it"
            what = f"{key} is held by {named(lease.holder)} ({whose}), {renews}"
            findings.append(Finding(check="lease", state="ok", what=what))
        elif installed.leader is not None and not lease.holder:
            # Left behind when the operator took another lease, as in kube-scheduler's place.
            continue
        elif lease.is_stellwerk or lease.key == installed.wanted_lease:
            what = f"{key}: {gone}, and no replica holds it"
            # Another operator leads: this one is a second one that is away, or was taken down.
            state: State = "failed" if installed.leader is None else "warning"
            remedy = "see the operator's pods above: one that runs takes the lease"
            findings.append(Finding(check="lease", state=state, what=what, remedy=remedy))
        elif lease.key == IN_PLACE and DEFAULT_SCHEDULER in _observed_names(installed):
            # What it bound and reported counts as a sign of life for minutes after its end.
            what = f"{key}: {gone}, so the kube-scheduler that a profile observes does not run"
            remedy = "start kube-scheduler, unless another scheduler places its pods"
            findings.append(Finding(check="lease", state="warning", what=what, remedy=remedy))
    if not installed.leases:
        namespace, name = installed.wanted_lease
        what = f"there is no lease {named(namespace)}/{named(name)}: no replica has ever led"
        remedy = "see the operator's pods above, and its right to create leases"
        findings.append(Finding(check="lease", state="failed", what=what, remedy=remedy))
    return findings


def _spec(lease: JsonObject) -> JsonObject:
    spec: JsonObject = lease.get("spec") or {}
    return spec


def _key(lease: JsonObject) -> tuple[str, str]:
    return lease["metadata"]["namespace"], lease["metadata"]["name"]


def _age_seconds(lease: JsonObject, survey: Survey) -> float:
    """The seconds since the last renewal, or to it: where clocks differ, neither says anything."""
    renewed = moment_of(_spec(lease).get("renewTime"))
    return float("inf") if renewed is None else abs((survey.now - renewed).total_seconds())


def _duration_seconds(lease: JsonObject) -> int:
    return Lease.of(lease).record.lease_duration_seconds


# --- profiles and pods --------------------------------------------------------------------------


def check_profiles(installed: Installation) -> list[Finding]:
    """Say which profiles are not accepted, and which no operator serves."""
    profiles = installed.profiles
    if isinstance(profiles, Unseen):
        if profiles.absent:
            what = "there are no SchedulerProfiles without their definition"
            return [
                Finding(
                    check="profiles", state="failed", what=what, remedy="kubectl apply -f crds/"
                )
            ]
        what = f"SchedulerProfiles cannot be seen: {profiles.reason}"
        return [Finding(check="profiles", state="unknown", what=what)]
    findings, active = [], 0
    for each in profiles:
        name = f"schedulerprofile {named(each['metadata']['name'])}"
        conditions = _conditions(each)
        accepted, serves = conditions.get("Accepted", {}), conditions.get("Active", {})
        if not accepted:
            findings.append(
                Finding(
                    check="profiles",
                    state="warning",
                    what=f"{name} has no condition: no operator that runs serves it",
                    remedy="see the operator's pods; its label "
                    "scheduling.stellwerk.dev/operator may name another operator",
                )
            )
        elif accepted.get("status") != "True":
            is_served = serves.get("status") == "True"
            findings.append(
                Finding(
                    check="profiles",
                    state="warning" if is_served else "failed",
                    what=f"{name} is not accepted ({word(accepted.get('reason'))})"
                    + ("; its last good version serves" if is_served else ""),
                    remedy=f"kubectl describe {name}; docs/troubleshooting.md explains the reason",
                    quoted=_messages(accepted),
                )
            )
        elif serves.get("status") != "True":
            what = f"{name} is accepted and does not serve ({word(serves.get('reason'))})"
            findings.append(
                Finding(check="profiles", state="failed", what=what, quoted=_messages(serves))
            )
        elif (ready := conditions.get("Ready", {})).get("status") == "False":
            # It lacks a file, an address or a Secret that it names: its extenders fail.
            what = f"{name} serves and is not ready ({word(ready.get('reason'))})"
            remedy = f"kubectl describe {name}; docs/troubleshooting.md explains its conditions"
            findings.append(
                Finding(
                    check="profiles",
                    state="warning",
                    what=what,
                    remedy=remedy,
                    quoted=_messages(ready),
                )
            )
        else:
            active += 1
    if active:
        verb = "profiles are" if active > 1 else "profile is"
        what = f"{active} {verb} accepted and active"
        findings.insert(0, Finding(check="profiles", state="ok", what=what))
    if findings:
        return findings
    what = "there is no SchedulerProfile; the operator creates `default` when it first leads"
    return [Finding(check="profiles", state="warning", what=what, remedy="see the lease, above")]


def served_names(installed: Installation) -> set[str]:
    """The schedulerNames that a scheduler that is seen to run serves."""
    names = {DEFAULT_SCHEDULER} if installed.kube_scheduler_runs is True else set[str]()
    if installed.leader is None or isinstance(installed.profiles, Unseen):
        return names
    active = [
        each
        for each in installed.profiles
        if _conditions(each).get("Active", {}).get("status") == "True"
        and (each.get("spec") or {}).get("mode") != OBSERVE
    ]
    return names | _names_of(active)


def _observed_names(installed: Installation) -> set[str]:
    """The schedulerNames of other schedulers that profiles observe."""
    profiles = () if isinstance(installed.profiles, Unseen) else installed.profiles
    return _names_of(each for each in profiles if (each.get("spec") or {}).get("mode") == OBSERVE)


def _names_of(profiles: Iterable[JsonObject]) -> set[str]:
    """The schedulerNames of pods that profiles serve, by name or by selector."""
    names = set[str]()
    for each in profiles:
        spec = each.get("spec") or {}
        selector = spec.get("selector")
        if spec.get("schedulerName"):  # a shadow has none
            names.add(str(spec["schedulerName"]))
        if selector is not None:
            names |= set(selector.get("schedulerNames") or (DEFAULT_SCHEDULER,))
    return names


_MAX_EXAMINED_NAMES: Final = 20
"""schedulerNames for which signs of a scheduler are looked for: three requests for each."""
_NOT_EXAMINED: Final = "only the first names were checked for signs of another scheduler"


async def check_unserved_pods(survey: Survey, installed: Installation) -> list[Finding]:
    """Name the waiting pods whose schedulerName no scheduler serves."""
    pods = await survey.list("/api/v1/pods?fieldSelector=spec.nodeName%3D%2Cstatus.phase%3DPending")
    if isinstance(pods, Unseen):
        what = f"waiting pods cannot be seen: {pods.reason}"
        return [Finding(check="waiting pods", state="unknown", what=what)]
    served = served_names(installed)
    findings = []
    if isinstance(installed.kube_scheduler_runs, Unseen):
        # It may well run: its pods are not called unserved.
        served.add(DEFAULT_SCHEDULER)
    unserved = unserved_pods(pods, served, survey.now)
    for number, (name, keys) in enumerate(unserved.items()):
        sign, unseen = "", _NOT_EXAMINED
        if number < _MAX_EXAMINED_NAMES:
            said = [
                given_up((each.get("status") or {}).get("conditions") or ())
                for each in pods
                if (each["spec"].get("schedulerName") or DEFAULT_SCHEDULER) == name
            ]
            since = max((each for each in said if each is not None), default=None)
            sign, unseen = await _sign_of(survey, name, since)
        if sign:
            continue
        near = suggestion(name, served)
        waits = f"{_counted(len(keys), 'pod')} wait{'s' if len(keys) == 1 else ''}"
        is_certain = name == DEFAULT_SCHEDULER or near
        findings.append(
            Finding(
                check="waiting pods",
                state="failed" if is_certain and not unseen else "warning",
                what=f"{waits} for {named(name)}, which no known scheduler serves{near}: "
                f"{_some(map(named, keys))}{f'; {unseen}' if unseen else ''}",
                remedy="correct schedulerName, create a SchedulerProfile that has it, or start "
                "the scheduler",
            )
        )
    if findings:
        return findings
    what = f"each of {_counted(len(pods), 'waiting pod')} has a scheduler, or is new"
    return [Finding(check="waiting pods", state="ok", what=what)]


async def _sign_of(survey: Survey, name: str, since: datetime | None) -> tuple[str, str]:
    """The sign that a scheduler of a name runs, and what could not be looked at for one."""
    unseen = list[str]()

    async def read(what: str, path: str, limit: int) -> Sequence[JsonObject]:
        found = await survey.list(path, limit=limit)
        if isinstance(found, Unseen):
            unseen.append(f"{what} cannot be seen: {found.reason}")
            return ()
        return found

    leases = await read("its lease", leases_of_name_path(name), MAX_EVENTS)
    events = await read("its events", events_path(name), MAX_EVENTS)
    bindings = []
    for pod in await read("its pods", bound_pods_path(name), MAX_BOUND_PODS):
        moment = binding_moment((pod.get("status") or {}).get("conditions") or ())
        owners = pod["metadata"].get("ownerReferences") or ()
        is_static = any(
            f"{each['apiVersion']} {each['kind']}" == STATIC_POD_OWNER for each in owners
        )
        if moment is not None and not is_static:
            key = f"{pod['metadata'].get('namespace', '')}/{pod['metadata']['name']}"
            bindings.append((key, moment))
    sign = sign_of_scheduler(
        name, leases=leases, events=events, bindings=bindings, now=survey.now, since=since
    )
    return sign, "; ".join(unseen)


# --- the API server -----------------------------------------------------------------------------


async def check_api(survey: Survey) -> list[Finding]:
    """Say in which versions kinds are read, which are off, and whether lists can be streamed."""
    findings = []
    try:
        used, off = await kinds_in_use(survey.client)
    except ApiError as error:
        what = f"discovery cannot be seen: {error.status or error.reason}"
        findings.append(Finding(check="API server", state="unknown", what=what))
    else:
        versions = ", ".join(f"{kind} {served}" for kind, served in sorted(used.items()))
        what = f"read: {versions or 'no groups of pods and no devices'}"
        if off:
            what += f"; not served: {', '.join(sorted(off))}"
        remedy = "docs/compatibility.md says what is off without a kind" if off else ""
        findings.append(Finding(check="API server", state="ok", what=what, remedy=remedy))
    findings.append(await _check_streamed_lists(survey))
    return findings


async def _check_streamed_lists(survey: Survey) -> Finding:
    """Ask for one streamed list, as the operator does, and end it after its first line."""
    path = (
        "/api/v1/namespaces?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"
        "&allowWatchBookmarks=true&timeoutSeconds=1"
    )
    found = await survey.lines("watch", path, 1)
    if isinstance(found, Unseen):
        if found.forbidden:
            what = f"streamed lists cannot be seen: {found.reason}"
            return Finding(check="API server", state="unknown", what=what)
        what = "it streams no lists; the operator reads pages, which costs more memory"
        return Finding(check="API server", state="ok", what=what)
    return Finding(check="API server", state="ok", what="it streams lists")


# --- texts --------------------------------------------------------------------------------------


def _conditions(obj: JsonObject) -> Mapping[str, JsonObject]:
    conditions = (obj.get("status") or {}).get("conditions") or ()
    return {str(each.get("type")): each for each in conditions}


def _messages(condition: JsonObject) -> list[str]:
    message = condition.get("message")
    return [str(message)] if message else []


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _some(names: Iterable[str]) -> str:
    listed = list(names)
    more = len(listed) - _MAX_NAMED
    shown = ", ".join(listed[:_MAX_NAMED])
    return f"{shown} and {more:,} more" if more > 0 else shown
