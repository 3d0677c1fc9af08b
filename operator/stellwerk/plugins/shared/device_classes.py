"""Device classes by name, and by the extended resource that they back.

DynamicResources and NodeResourcesFit have one each, which follows the object store. Invariant:
after `refresh`, a resource is backed by the class that was created last of those that name it, and
of several by the first in the alphabet.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from stellwerk.framework.services import ObjectStore
from stellwerk.models.pod_claims import CLASS_RESOURCE_PREFIX
from stellwerk.snapshot.columns import ChangeCursor
from stellwerk_kube.compatibility import AS_RECORDED, Compatibility, ReleaseRule
from stellwerk_kube.json_values import JsonObject, text, text_or_empty
from stellwerk_kube.resource_claim import selector_expressions

logger = logging.getLogger(__name__)

KIND: Final = "DeviceClass"


@dataclass(frozen=True, slots=True, eq=False)
class DeviceClass:
    """A class, as it adds to the requests that name it."""

    name: str
    created: str
    """metadata.creationTimestamp, which sorts as text."""
    extended_resource: str
    """The resource that it backs; empty: none but the one that has its name."""
    selectors: tuple[str, ...]
    config: Sequence[JsonObject]


class DeviceClasses:
    """The classes that the store shows."""

    def __init__(self, objects: ObjectStore, rules: Compatibility = AS_RECORDED) -> None:
        """Follow the classes of a store; `rules` say whether they back extended resources."""
        self._objects = objects
        self._backs = ReleaseRule.BACK_EXTENDED_RESOURCES in rules
        self._cursor = ChangeCursor(objects.changes(KIND))
        self._classes: Mapping[str, DeviceClass] = {}
        self._backing: Mapping[str, DeviceClass] = {}
        self.version = 0
        """The number of times that they have changed."""

    def refresh(self) -> None:
        """Take over what the store shows now; classes are few."""
        if self._cursor.current:
            return
        self._cursor.catch_up()
        self.version += 1
        parsed = [_parsed(obj) for obj in self._objects.list(KIND)]
        self._classes = {each.name: each for each in parsed if each is not None}
        by_name = sorted(self._classes.values(), key=lambda each: each.name, reverse=True)
        # The last one that is written counts: the latest, and of several the first by name.
        newest_last = sorted(by_name, key=lambda each: each.created)
        self._backing = {each.extended_resource: each for each in newest_last}

    def get(self, name: str) -> DeviceClass | None:
        """The class of that name."""
        return self._classes.get(name)

    def backing(self, resource: str) -> DeviceClass | None:
        """The class that backs an extended resource."""
        if not self._backs:
            return None
        if resource.startswith(CLASS_RESOURCE_PREFIX):
            return self._classes.get(resource.removeprefix(CLASS_RESOURCE_PREFIX))
        return self._backing.get(resource) if resource else None


def _parsed(obj: JsonObject) -> DeviceClass | None:
    """The class; None: it is malformed, and as good as absent."""
    metadata, spec = obj["metadata"], obj.get("spec") or {}
    try:
        return DeviceClass(
            name=text(metadata["name"]),
            created=text_or_empty(metadata.get("creationTimestamp")),
            extended_resource=text_or_empty(spec.get("extendedResourceName")),
            selectors=selector_expressions(spec),
            config=spec.get("config") or (),
        )
    except (KeyError, TypeError, AttributeError) as error:
        logger.warning("DeviceClass %s is left out: %r", metadata["name"], error)
        return None
