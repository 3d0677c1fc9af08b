"""The demo's manifests, as they lie in `examples/`: the documentation's own where possible.

A file begins with a comment line, its title, and perhaps a second one, "unschedulable": its pods go
nowhere; the rest is what a user would apply. Invariant: files are applied in the order of their
names.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files
from typing import Final

import yaml

from stellwerk.models.json_values import JsonObject
from stellwerk.models.pod import PodInfo

_RESOURCES: Final = {
    "Pod": ("pods", "", "default"),
    "Deployment": ("deployments", "apps", "default"),
    "PriorityClass": ("priorityclasses", "scheduling.k8s.io", ""),
}
_UNSCHEDULABLE: Final = "# unschedulable"


@dataclass(frozen=True, slots=True)
class Example:
    """One file: its title, its objects, and what is to become of its pods."""

    title: str
    schedulable: bool
    """Whether its pods are to get a node; the others get a condition that says why not."""
    objects: tuple[JsonObject, ...]

    @property
    def workloads(self) -> list[JsonObject]:
        """Its pods and deployments."""
        return [obj for obj in self.objects if obj["kind"] in {"Pod", "Deployment"}]

    @property
    def pod_count(self) -> int:
        """The number of pods that it makes."""
        return sum(obj["spec"].get("replicas", 1) for obj in self.workloads)

    def owns(self, pod: PodInfo) -> bool:
        """Whether a pod is one of the example's."""
        names = [(obj["metadata"]["name"], obj["kind"] == "Pod") for obj in self.workloads]
        return any(
            pod.name == name if is_pod else pod.name.startswith(f"{name}-")
            for name, is_pod in names
        )


def resource_of(obj: JsonObject) -> tuple[str, str, str]:
    """(plural, group, namespace) of an object of the demo."""
    return _RESOURCES[obj["kind"]]


def load_examples() -> list[Example]:
    """Every example, in the order of the file names."""
    return list(_read())


def load_nodes() -> list[JsonObject]:
    """The demo's nodes."""
    listed = yaml.safe_load(_text("nodes.yaml"))
    return list(listed["items"])


def _read() -> Iterator[Example]:
    directory = files(__package__) / "examples"
    for name in sorted(entry.name for entry in directory.iterdir()):
        if name[0].isdigit():
            text = _text(name)
            title, second, _ = text.split("\n", 2)
            objects = tuple(yaml.safe_load_all(text))
            yield Example(title.removeprefix("# "), second != _UNSCHEDULABLE, objects)


def _text(name: str) -> str:
    return (files(__package__) / "examples" / name).read_text(encoding="utf-8")
