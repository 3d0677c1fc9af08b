"""The configuration that the cluster's scheduler is assumed to have, and where it was taken from.

`local_port` decides by it. Invariant: what is not known is said among the remarks; nothing of a
host is read but the file that the user names.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import orjson

from stellwerk.profiles.spec.profile import TAKEOVER_PROFILE_MANIFEST
from stellwerk_cli.convert.conversion import convert_text
from stellwerk_kube.compatibility import (
    NEWEST_PATCHES,
    NEWEST_RELEASED,
    Compatibility,
    FeatureGates,
    PatchRelease,
    is_newer_than_known,
    release_of_server,
)
from stellwerk_kube.errors import ApiError, ConfigurationError, Forbidden, NotFound, ProfileError
from stellwerk_kube.untrusted_text import shown
from stellwerk_kube.yaml_file import read_small_file

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from stellwerk.framework.services import ClusterClient
    from stellwerk_kube.json_values import JsonObject

_CONFIG_MAP: Final = "configmap/"
_SCHEDULER_PODS: Final = (
    "/api/v1/namespaces/kube-system/pods?labelSelector=component%3Dkube-scheduler&limit=10"
)
"""kubeadm, kind, minikube and others run kube-scheduler as a static pod with this label. Managed
control planes show no pod."""
_GROUP_GATE: Final = "GenericWorkload"
"""The gate by which kube-scheduler places the pods of a PodGroup together."""
_MINOR: Final = re.compile(r"v?1\.([0-9]+)")


@dataclass(slots=True)
class Assumed:
    """Profiles as manifests, the release that they follow, and what is to be said about them."""

    source: str
    compatibility: Compatibility
    manifests: list[JsonObject]
    remarks: list[str] = field(default_factory=list)
    is_known: bool = False
    """Whether the user has named it, or a pod of the scheduler is there: then a SchedulerProfile
    that serves the same schedulerName is what an operator has left behind."""


async def assumed_configuration(client: ClusterClient, version: str, config: str) -> Assumed:
    """The configuration that is assumed beside an API server of this version.

    `config`: a file, or configmap/NAMESPACE/NAME, that has it; empty: none was named.

    Raises:
        ConfigurationError: the file or ConfigMap cannot be used.
        ApiError: the ConfigMap cannot be read.
    """
    remarks = list[str]()
    found = await _shown_by_its_pod(client)
    release = _release(version, found, remarks)
    gates = _known_gates(found.gates if found is not None else "", release, remarks)
    compatibility = Compatibility.with_server(release, gates)
    if config:
        manifests = _converted(config, await _text_of(client, config), remarks)
        return Assumed(_source_named(config), compatibility, manifests, remarks, is_known=True)
    if found is not None and found.config:
        remarks.append(
            f"the scheduler's own configuration cannot be seen: {found.config} lies on the host of "
            f"{found.pod}; --config FILE takes it"
        )
    if found is None:
        source = f"the defaults of kube-scheduler {release}"
        remarks.append(
            "assumed are the defaults of its release, because no pod of kube-scheduler can be "
            "seen here; --config takes its configuration"
        )
    else:
        source = f"the arguments of {found.pod} and the defaults of kube-scheduler {release}"
    places_groups = _GROUP_GATE in gates.enabled(release.release)
    spec = {**TAKEOVER_PROFILE_MANIFEST["spec"], "gangScheduling": places_groups}
    manifests = [{**TAKEOVER_PROFILE_MANIFEST, "spec": spec}]
    return Assumed(source, compatibility, manifests, remarks, is_known=found is not None)


# --- what the scheduler's pod shows --------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _SchedulerPod:
    """kube-scheduler as its pod shows it."""

    pod: str
    """NAMESPACE/NAME."""
    tag: str
    """The image's tag, such as v1.36.2; empty: the image is named by its digest alone."""
    gates: str
    config: str
    """The path of `--config` on its host; empty: it has none."""


async def _shown_by_its_pod(client: ClusterClient) -> _SchedulerPod | None:
    """The scheduler's image and arguments; None: no pod of it can be seen."""
    try:
        page = await client.get(_SCHEDULER_PODS)
    except (Forbidden, NotFound):
        return None
    for pod in page.get("items") or ():
        container = _first_container(pod)
        if container is None:
            continue
        arguments = _flags([*_texts(container.get("command")), *_texts(container.get("args"))])
        image, _, _ = str(container.get("image") or "").partition("@")
        return _SchedulerPod(
            shown(f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"),
            image.rpartition(":")[2] if ":" in image.rpartition("/")[2] else "",
            arguments.get("feature-gates", ""),
            shown(arguments.get("config", "")),
        )
    return None


def _first_container(pod: object) -> dict[str, Any] | None:
    """The first container of a pod that has a name; None: it is no such pod."""
    metadata = pod.get("metadata") if isinstance(pod, dict) else None
    spec = pod.get("spec") if isinstance(pod, dict) else None
    if not isinstance(metadata, dict) or not isinstance(spec, dict):
        return None
    if not {"namespace", "name"} <= metadata.keys():
        return None
    containers = spec.get("containers")
    first = containers[0] if isinstance(containers, list) and containers else None
    return first if isinstance(first, dict) else None


def _texts(values: object) -> list[str]:
    return [each for each in values if isinstance(each, str)] if isinstance(values, list) else []


def _flags(words: Iterable[str]) -> dict[str, str]:
    """The flags of a command line, written --name=value or --name value."""
    found, name = dict[str, str](), ""
    for word in words:
        if word.startswith("-"):
            name, equals, value = word.lstrip("-").partition("=")
            found[name] = value
            name = "" if equals else name
        elif name:
            found[name], name = word, ""
    return found


def _release(version: str, found: _SchedulerPod | None, remarks: list[str]) -> PatchRelease:
    """The release that is decided as: the scheduler's image's, else the API server's."""
    of_image = release_of_server(found.tag) if found is not None else None
    whose, said = ("kube-scheduler", found.tag) if of_image and found else ("the server", version)
    release = of_image or release_of_server(version)
    if release is None:
        remarks.append(f"the server has no version of Kubernetes: {shown(version) or 'none'}")
        return PatchRelease(NEWEST_RELEASED, NEWEST_PATCHES[NEWEST_RELEASED])
    minor = _MINOR.match(said)
    if is_newer_than_known(said):
        remarks.append(f"{whose} is {shown(said)}, newer than what is known here: {release}")
    elif minor is not None and int(minor[1]) < release.release:
        remarks.append(f"{whose} is {shown(said)}, older than what is known here: {release}")
    return release


def _known_gates(text: str, release: PatchRelease, remarks: list[str]) -> FeatureGates:
    """The feature gates that are known; others are remarked on."""
    kept = list[str]()
    for each in filter(None, map(str.strip, text.split(","))):
        try:
            problems = list(FeatureGates.parse(each).problems(release.release))
        except ConfigurationError as error:
            problems = [str(error)]
        if problems:
            remarks.append(shown(f"its feature gate {each} is not followed: {problems[0]}"))
        else:
            kept.append(each)
    return FeatureGates.parse(",".join(kept))


# --- a configuration that the user names ----------------------------------------------------------


def _source_named(config: str) -> str:
    if config.startswith(_CONFIG_MAP):
        return f"the ConfigMap {config.removeprefix(_CONFIG_MAP)}"
    return f"the file {config}"


async def _text_of(client: ClusterClient, config: str) -> str:
    """The text of the file or the ConfigMap."""
    if not config.startswith(_CONFIG_MAP):
        try:
            return read_small_file(Path(config)).decode()
        except OSError as error:
            raise ConfigurationError(
                f"--config {config}: cannot be read: {error.strerror}"
            ) from error
        except UnicodeDecodeError as error:
            raise ConfigurationError(f"--config {config}: not text: {error}") from error
    namespace, slash, name = config.removeprefix(_CONFIG_MAP).partition("/")
    if not (namespace and slash and name) or "/" in name:
        raise ConfigurationError(f"--config {config}: expected configmap/NAMESPACE/NAME")
    try:
        found = await client.get(
            f"/api/v1/namespaces/{quote(namespace, safe='')}/configmaps/{quote(name, safe='')}"
        )
    except NotFound as error:
        raise ConfigurationError(f"--config {config}: there is no such ConfigMap") from error
    except ApiError as error:
        raise ConfigurationError(f"--config {config}: {error}") from error
    return orjson.dumps({"apiVersion": "v1", "kind": "ConfigMap", **found}).decode()


def _converted(config: str, text: str, remarks: list[str]) -> list[JsonObject]:
    """The profiles of a KubeSchedulerConfiguration."""
    try:
        conversion = convert_text(text)
    except (ConfigurationError, ProfileError) as error:
        raise ConfigurationError(f"--config {config}: {error}") from error
    remarks += (shown(f"--config: {each}") for each in _of_decisions(conversion.warnings))
    profiles = [each for each in conversion.manifests if each["kind"] != "Secret"]
    if not profiles:
        raise ConfigurationError(f"--config {config}: it holds no KubeSchedulerConfiguration")
    return profiles


def _of_decisions(warnings: Iterable[str]) -> Iterator[str]:
    """The warnings of a conversion without those about flags of `stellwerk run`."""
    return (each for each in warnings if "has no counterpart; " not in each)
