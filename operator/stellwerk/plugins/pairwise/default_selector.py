"""The selector that a pod's services and controller imply, for spreading pods that ask for nothing.

PodTopologySpread's default constraints and SelectorSpread use it. Invariant: the result is that of
`helper.DefaultSelector` (v1.36) on the current objects.
"""

from collections.abc import Iterable, Mapping
from typing import Final
from weakref import WeakKeyDictionary

from stellwerk.framework.services import ObjectStore
from stellwerk.models.pod import LabelSet, PodInfo
from stellwerk.snapshot.columns import ChangeCursor
from stellwerk_kube.json_values import JsonObject
from stellwerk_kube.selectors import LabelSelector, parse_label_selector

_CONTROLLER_KINDS: Final = {
    "v1 ReplicationController": "ReplicationController",
    "apps/v1 ReplicaSet": "ReplicaSet",
    "apps/v1 StatefulSet": "StatefulSet",
}


class DefaultSelectors:
    """Selectors by pod, remembered while services and the controller's selector stay the same."""

    def __init__(self, objects: ObjectStore) -> None:
        self._objects = objects
        self._services_cursor = ChangeCursor(objects.changes("Service"))
        self._services: dict[str, dict[tuple[str, str], list[Mapping[str, str]]]] = {}
        """Namespace → one label of the selector → selectors of services."""
        self._known: WeakKeyDictionary[LabelSet, list[tuple[object, LabelSelector | None]]] = (
            WeakKeyDictionary()
        )
        """LabelSet → (selector of the controller, result) of each controller that has such pods."""

    def of(self, pod: PodInfo) -> LabelSelector | None:
        """The selector of the pod's kind; None: nothing selects it."""
        self._read_services()
        of_controller = self._controller_selector(pod)
        if of_controller is None and pod.namespace not in self._services:
            return None
        known = self._known.setdefault(pod.label_set, [])
        for key, selector in known:
            if key == of_controller:
                return selector
        selector = self._derive(pod, of_controller)
        known.append((of_controller, selector))
        return selector

    def _read_services(self) -> None:
        cursor = self._services_cursor
        if cursor.position == cursor.changes.position:
            return
        cursor.catch_up()
        self._services.clear()
        self._known.clear()
        for service in self._objects.list("Service"):
            selector = (service.get("spec") or {}).get("selector")
            if selector:
                namespace = service["metadata"].get("namespace") or "default"
                label = next(iter(selector.items()))
                by_label = self._services.setdefault(namespace, {})
                by_label.setdefault(label, []).append(selector)

    def _controller_selector(self, pod: PodInfo) -> tuple[str, JsonObject] | None:
        """(kind, spec.selector) of the controller, if it is one that has a selector."""
        if pod.owner is None or pod.owner[0] not in _CONTROLLER_KINDS:
            return None
        kind = _CONTROLLER_KINDS[pod.owner[0]]
        controller = self._objects.get(kind, pod.namespace, pod.owner[1])
        if controller is None:
            return None
        selector = (controller.get("spec") or {}).get("selector")
        return None if selector is None else (kind, selector)

    def _derive(
        self, pod: PodInfo, controller: tuple[str, JsonObject] | None
    ) -> LabelSelector | None:
        labels: dict[str, str] = {}
        for selector in self._matching_services(pod):
            labels |= selector
        more: LabelSelector | None = None
        if controller is not None:
            kind, selector = controller
            if kind == "ReplicationController":
                labels |= selector
            else:
                more = parse_label_selector(selector)
        merged = parse_label_selector({"matchLabels": labels})
        requirements = merged.requirements if merged else ()
        if more is not None:
            requirements = tuple(dict.fromkeys((*requirements, *more.requirements)))
        return LabelSelector(requirements) if requirements else None

    def _matching_services(self, pod: PodInfo) -> Iterable[Mapping[str, str]]:
        by_label = self._services.get(pod.namespace, {})
        for label in pod.labels.items():
            for selector in by_label.get(label, ()):
                if selector.items() <= pod.labels.items():
                    yield selector
