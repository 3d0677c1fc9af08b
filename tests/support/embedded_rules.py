"""An embedded API without controllers, asked in process what it makes of an object.

Tables of rules use it. Invariant: each `Rules` has a store of its own.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from stellwerk_cluster.apimachinery.failures import StatusError
from stellwerk_cluster.apimachinery.patching import MERGE_PATCH
from stellwerk_cluster.cluster import ClusterOptions, EmbeddedCluster
from stellwerk_cluster.registry.write_options import WriteOptions

if TYPE_CHECKING:
    from collections.abc import Collection

JsonObject = dict[str, Any]


def pod(**spec: Any) -> JsonObject:
    """A pod with one container, and what else its specification says."""
    containers = [{"name": "c", "image": "registry.example/app:1"}]
    return {"metadata": {"name": "p"}, "spec": {"containers": containers, **spec}}


def pod_with(**container: Any) -> JsonObject:
    """A pod whose only container says this too."""
    made = pod()
    made["spec"]["containers"][0].update(container)
    return made


class Rules:
    """The verbs of an embedded API, and what they refuse."""

    def __init__(self, *plugins: str, gates: Collection[str] = ()) -> None:
        """`plugins`: admission plugins that are on besides the default ones; feature gates."""
        options = ClusterOptions(
            controllers=False,
            kubelet=None,
            heartbeats=False,
            seed=1,
            feature_gates=frozenset(gates),
        )
        self.cluster = EmbeddedCluster(0, options=options)
        self.api = self.cluster.api
        self.api.plugins |= set(plugins)

    def create(self, plural: str, body: JsonObject, group: str = "") -> JsonObject:
        """The stored object."""
        kind = self.api.kinds.resource(plural, group)
        namespace = "default" if kind.namespaced else ""
        return self.api.create(kind, namespace, copy.deepcopy(body)).obj

    def patch(
        self, plural: str, name: str, patch: JsonObject, *, group: str = "", subresource: str = ""
    ) -> JsonObject:
        """The object after a merge patch."""
        kind = self.api.kinds.resource(plural, group)
        key = ("default" if kind.namespaced else "", name)
        return self.api.patch(kind, key, patch, MERGE_PATCH, subresource=subresource).obj

    def refused(self, plural: str, body: JsonObject, group: str = "") -> list[str]:
        """The causes for which a new object is refused, as `field: message`; [] if it is not."""
        try:
            self.create(plural, body, group)
        except StatusError as error:
            return causes(error)
        return []

    def change_refused(self, plural: str, name: str, patch: JsonObject, **where: str) -> list[str]:
        """The causes for which a change is refused."""
        try:
            self.patch(plural, name, patch, **where)
        except StatusError as error:
            return causes(error)
        return []

    def warnings(self, plural: str, body: JsonObject, group: str = "") -> list[str]:
        """What the answer to a create warns of."""
        kind, options = self.api.kinds.resource(plural, group), WriteOptions()
        namespace = "default" if kind.namespaced else ""
        self.api.create(kind, namespace, copy.deepcopy(body), options)
        return options.warnings


def causes(error: StatusError) -> list[str]:
    """The causes of a refusal; without causes, its code and message."""
    found = (error.details or {}).get("causes")
    if not found:
        return [f"{error.code} {error.message}"]
    return [f"{each['field']}: {each['message']}" for each in found if "field" in each]
