"""The SchedulerProfile manifest that serves a pod manifest, as a running operator would say.

`stellwerk decide` asks for the cases that it makes of a cluster's objects, reruns of recordings for
the pods that arrive. Invariant: no two answers about equal objects differ.
"""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from stellwerk.models.scheduling_spec import DEFAULT_SCHEDULER_NAME
from stellwerk.profiles.spec.profile import parse_spec
from stellwerk.profiles.spec.selector import PodsSelected
from stellwerk.world.profile_selectors import UNDECIDED, ProfileSelectors
from stellwerk_kube.errors import ConfigurationError, ProfileError

if TYPE_CHECKING:
    from stellwerk_kube.selectors import LabelSelector

Json = Mapping[str, Any]


class ProfileManifests:
    """Profiles by schedulerName, and what their selectors match."""

    def __init__(self) -> None:
        self._specs: dict[str, Json] = {}
        self._selecting: list[tuple[tuple[str, str], PodsSelected]] = []
        """(creation time, name) of a profile, and its selector."""
        self._limits: dict[str, LabelSelector] = {}
        """The namespaces whose pods a profile takes, where not of all."""
        self._namespaces: dict[str, dict[str, Any]] = {}
        self._selectors = ProfileSelectors(self._namespaces.get)

    def add(self, profile: Json) -> None:
        """One more profile.

        Raises:
            ConfigurationError: it has a selector, and cannot be read.
        """
        spec, metadata = profile.get("spec") or {}, profile.get("metadata") or {}
        name = str(spec.get("schedulerName"))
        self._specs[name] = spec
        if spec.get("selector") is None and spec.get("namespaces") is None:
            return
        age = str(metadata.get("creationTimestamp") or ""), str(metadata.get("name") or "")
        try:
            parsed = parse_spec(spec)
        except ProfileError as error:
            raise ConfigurationError(f"SchedulerProfile {age[1]}: {error}") from error
        limit = None if parsed.namespaces is None else parsed.namespaces.compiled()
        if limit is not None:
            self._limits[name] = limit
        if parsed.selector is not None:
            self._selecting.append((age, PodsSelected.by(name, parsed.selector, limit)))
            self._selecting.sort(key=lambda each: each[0])
        self._selectors.serve([each for _, each in self._selecting], dict(self._limits))

    def choose_by(self, namespaces: Iterable[Json]) -> None:
        """Namespaces as they are from here on."""
        for each in namespaces:
            self._namespaces[str(each["metadata"]["name"])] = dict(each)

    def forget(self, namespace: str) -> None:
        """A namespace is gone."""
        self._namespaces.pop(namespace, None)

    def spec_for(self, pod: Json) -> Json:
        """The spec of the profile that serves a pod; empty: none does.

        Raises:
            ConfigurationError: that depends on a namespace that is not known.
        """
        name = self.name_for(pod)
        if name == UNDECIDED:
            metadata = pod.get("metadata") or {}
            namespace = metadata.get("namespace") or "default"
            raise ConfigurationError(
                f"which profile serves {namespace}/{metadata.get('name')} depends on the labels of "
                f"the namespace {namespace}, which is not among the objects"
            )
        return self._specs.get(name, {})

    def name_for(self, pod: Json) -> str:
        """The schedulerName of the profile that serves a pod, whether or not there is one."""
        metadata = pod.get("metadata") or {}
        name = str((pod.get("spec") or {}).get("schedulerName") or DEFAULT_SCHEDULER_NAME)
        namespace, labels = metadata.get("namespace") or "default", metadata.get("labels") or {}
        if name in self._selectors.by_scheduler_name:
            name = self._selectors.first(name, namespace, labels) or name
        return self._selectors.admitted(name, namespace)

    def serve(self, pod: Json) -> bool:
        """Whether one of the profiles serves a pod."""
        return self.name_for(pod) in self._specs

    def may_serve(self, pod: Json) -> bool:
        """Whether one would, if the labels of the pod or of its namespace were others."""
        name = str((pod.get("spec") or {}).get("schedulerName") or DEFAULT_SCHEDULER_NAME)
        return name in self._selectors.by_scheduler_name or name in self._limits
