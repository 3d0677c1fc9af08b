"""The revisions of DaemonSets and StatefulSets: what `kubectl rollout history` and `undo` read.

Used by their controllers. Invariant: the template of the workload has the highest number, and equal
templates share one ControllerRevision.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

import orjson

from stellwerk_cluster.apimachinery.objects import (
    controller_of,
    key_of,
    labels_of,
    meta,
    with_value,
)
from stellwerk_cluster.controllers.workload import template_hash
from stellwerk_cluster.registry.deletion import DeleteOptions, delete

if TYPE_CHECKING:
    from collections.abc import Collection

    from stellwerk_cluster.controllers.index import Index
    from stellwerk_cluster.registry.api import Api
    from stellwerk_kube.json_values import JsonObject

REVISIONS: Final = "controllerrevisions.apps"


class RevisionHistory:
    """Keeps the ControllerRevisions of one kind of workload."""

    def __init__(self, api: Api, index: Index, hash_label: str) -> None:
        """`hash_label` is the label under which a revision carries the hash of its template."""
        self._api = api
        self._index = index
        self._hash_label = hash_label
        self._kind = api.kinds.resource("controllerrevisions", "apps")

    def current(self, workload: JsonObject, reference: JsonObject) -> JsonObject:
        """The revision of the workload's template, made or moved to the front if need be."""
        owned = self.of(workload)
        data = _data(workload)
        highest = max((each["revision"] for each in owned), default=0)
        found = next((each for each in owned if each["data"] == data), None)
        if found is None:
            return self._create(workload, reference, data, highest + 1)
        if found["revision"] < highest:
            change = partial(with_value, path=("revision",), value=highest + 1)
            return self._api.modify(self._kind, key_of(found), change, owned_under="").obj
        return found

    def of(self, workload: JsonObject) -> list[JsonObject]:
        """The revisions that the workload controls, oldest number first."""
        uid = workload["metadata"]["uid"]
        owned = [
            each
            for each in self._index.owned(uid, REVISIONS)
            if (controller_of(each) or {}).get("uid") == uid
        ]
        return sorted(owned, key=lambda each: int(each["revision"]))

    def truncate(self, workload: JsonObject, live: Collection[str]) -> None:
        """Forget the oldest revisions beyond the limit; those of these names have pods."""
        idle = [each for each in self.of(workload) if each["metadata"]["name"] not in live]
        surplus = len(idle) - workload["spec"].get("revisionHistoryLimit", 10)
        for each in idle[: max(0, surplus)]:
            delete(self._api, self._kind, key_of(each), DeleteOptions())

    def _create(
        self, workload: JsonObject, reference: JsonObject, data: JsonObject, number: int
    ) -> JsonObject:
        metadata, template = workload["metadata"], workload["spec"]["template"]
        digest = template_hash(template)
        body = {
            "metadata": {
                "name": f"{metadata['name']}-{digest}",
                "labels": {**labels_of(template), self._hash_label: digest},
                "annotations": dict(meta(workload).get("annotations") or {}),
                "ownerReferences": [reference],
            },
            "data": data,
            "revision": number,
        }
        return self._api.create(self._kind, metadata["namespace"], body).obj


def template_of(revision: JsonObject) -> JsonObject:
    """The pod template that a revision holds."""
    template = revision["data"]["spec"]["template"]
    return {key: value for key, value in template.items() if key != "$patch"}


def _data(workload: JsonObject) -> JsonObject:
    """A patch that makes the template of a workload what it is now.

    Clients in Go compare its bytes with those that they write themselves (`kubectl rollout undo`),
    and Go writes the keys of a map in their order.
    """
    template = {**workload["spec"]["template"], "$patch": "replace"}
    patch: JsonObject = orjson.loads(
        orjson.dumps({"spec": {"template": template}}, option=orjson.OPT_SORT_KEYS)
    )
    return patch
