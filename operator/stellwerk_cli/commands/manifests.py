"""Manifests that the options of `stellwerk what-if` name: pods, nodes and profiles.

Invariant: every document of every file is used, or counted in one line; a file that has nothing to
be used is refused by name, and so is a field that its kind does not have.
"""

import sys
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from stellwerk.answers.what_if import MAX_SUPPOSED_PODS
from stellwerk_kube import admission
from stellwerk_kube.admission import Admission
from stellwerk_kube.errors import ConfigurationError
from stellwerk_kube.json_values import JsonObject
from stellwerk_kube.pod_templates import CRON_JOB, POD, template_of, with_template
from stellwerk_kube.untrusted_text import printable
from stellwerk_kube.yaml_file import either, read_objects
from stellwerk_simulation.manifest_reader import admitted, counted
from stellwerk_simulation.pod_templates import POD_KINDS, pod_of_controller

_POD_KINDS: Final = (*POD_KINDS, CRON_JOB)
"""The kinds that a question about pods takes. Of a CronJob it is one run."""


def read_manifests(
    option: str, file: str, kinds: Sequence[str], beside: AbstractSet[str] = frozenset()
) -> list[JsonObject]:
    """All objects of these kinds in a file, the items of lists among them; "-": standard input.

    Objects of the kinds `beside` come with them. Those of other kinds are counted on standard
    error.

    Raises:
        ConfigurationError: it cannot be read, is empty, has none of these kinds, or an unknown
            field.
    """
    at, used = f"{option} {file}", beside | frozenset(kinds)
    found = admitted(at, read_objects(Path(file)), used)
    if not found:
        raise ConfigurationError(f"{at}: it contains no manifest")
    if any(not obj.get("kind") for obj in found):
        raise ConfigurationError(f"{at}: a manifest has no kind, {either(kinds)} is expected")
    if not any(obj["kind"] in kinds for obj in found):
        there = counted(found, frozenset())
        raise ConfigurationError(f"{at}: there is no {either(kinds)} in it, but {there}")
    say_unused(at, found, used)
    return [obj for obj in found if obj["kind"] in used]


def say_unused(at: str, objects: Sequence[JsonObject], used: AbstractSet[str]) -> None:
    """Count objects of kinds that are not used in one line on standard error."""
    if unused := counted(objects, used):
        sys.stderr.write(printable(f"stellwerk: {at}: not used: {unused}") + "\n")


@dataclass(frozen=True, slots=True)
class ManifestPods:
    """The pods of one manifest: a pod, or what a controller makes of its template."""

    pod: JsonObject
    """One of them as it is admitted; a controller's has the controller's name."""
    controller: JsonObject | None = None
    """None: the manifest is a pod's."""
    count: int | None = None
    """The number of pods that the user wants; None: as many as the manifest says."""

    @property
    def pods(self) -> int:
        """The number of pods."""
        if self.count is not None:
            return self.count
        return 1 if self.controller is None else template_of(self.controller, "default").count

    @property
    def only(self) -> JsonObject:
        """The manifest of the pod, if there is one."""
        if self.controller is None:
            return self.pod
        metadata = self.pod["metadata"]
        return {**self.pod, "metadata": {**metadata, "name": f"{metadata['name']}-0"}}

    @property
    def template(self) -> JsonObject:
        """The entry of the question's `templates`."""
        if self.controller is None:
            return {"template": self.pod, "count": self.pods}
        metadata = self.pod["metadata"]
        kept = {key: metadata[key] for key in ("labels", "annotations") if key in metadata}
        template = {"metadata": kept, "spec": self.pod["spec"]}
        named = {**(self.controller.get("metadata") or {}), "namespace": metadata["namespace"]}
        return {
            "template": {**with_template(self.controller, template), "metadata": named},
            "count": self.pods,
        }


def read_pods(
    option: str, file: str, namespace: str, count: int | None = None
) -> list[ManifestPods]:
    """The pods in a file, and those that controllers make of their templates.

    They are admitted by the LimitRanges and classes in the file. `namespace`: of objects that name
    none; `count`: of the pods of each manifest, instead of its own number.

    Raises:
        ConfigurationError: as `read_manifests`; the pods are too many, or an API server would
            refuse one.
    """
    found = read_manifests(option, file, _POD_KINDS, admission.KINDS)
    beside, pods = Admission(found, namespace), list[ManifestPods]()
    for obj in found:
        if obj["kind"] not in _POD_KINDS:
            continue
        if obj["kind"] == POD:
            beside.pod(obj)
            metadata = {"namespace": namespace, **(obj.get("metadata") or {})}
            pods.append(ManifestPods({**obj, "metadata": metadata}, None, count))
        else:
            made = pod_of_controller(obj, namespace, beside)
            pods.append(ManifestPods(made, obj, count))
    alone = sum(each.controller is None and each.count is None for each in pods)
    if alone > MAX_SUPPOSED_PODS:
        raise ConfigurationError(f"{option}: more than {MAX_SUPPOSED_PODS} pods")
    return pods
