"""Nodes and pods as JSON, for extenders that are sent whole objects.

Event handlers feed it, extender calls read it. Raw objects are large, so only what some extender is
sent is kept, and what is missing (an extender appeared later) is read from the API when it is
needed. Invariant: what is kept is what the latest event showed, as Go would write it.
"""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from stellwerk.client.extender import go_json
from stellwerk.framework.services import ClusterClient
from stellwerk.models.pod import PodInfo
from stellwerk_kube.errors import NotFound
from stellwerk_kube.json_values import JsonObject

_NODES: Final = "/api/v1/nodes"
MAX_PARALLEL_READS: Final = 16
"""Pods that are read from the API at the same time."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """The objects that extenders are sent."""

    scheduler_names: frozenset[str] = frozenset()
    """Unbound pods of these profiles."""
    nodes: bool = False
    bound_pods: bool = False
    """Victims, by an extender with a preempt verb that keeps no nodes itself."""


class RawObjects:
    """Pods by uid and nodes by name, where extenders are sent them."""

    def __init__(self, client: ClusterClient) -> None:
        self._client = client
        self.wanted = Wanted()
        self.wants_any = False
        """True: extenders are sent objects, so that some are kept."""
        self._nodes: dict[str, bytes] = {}
        self._nodes_listed = False
        """True: every node is kept. Before, only those that changed since nodes are wanted."""
        self._pods: dict[str, bytes] = {}
        """By uid."""

    def want(self, wanted: Wanted) -> None:
        """Keep this from now on, and nothing else."""
        if wanted == self.wanted:
            return
        if not wanted.nodes:
            self._nodes.clear()
            self._nodes_listed = False
        if not wanted.scheduler_names or (self.wanted.bound_pods and not wanted.bound_pods):
            self._pods.clear()
        self.wanted = wanted
        self.wants_any = bool(wanted.scheduler_names)

    # --- what event handlers tell ---------------------------------------------------------------

    def on_pod(self, pod: PodInfo, obj: JsonObject, profile_name: str) -> None:
        """A pod was added or changed; `profile_name` is empty if no profile serves it."""
        wanted = self.wanted
        if wanted.bound_pods if pod.node_name else profile_name in wanted.scheduler_names:
            self._pods[pod.uid] = _pod_json(obj)
        else:
            self._pods.pop(pod.uid, None)

    def on_pod_gone(self, uid: str) -> None:
        """A pod was deleted, or has finished."""
        self._pods.pop(uid, None)

    def on_node(self, name: str, obj: JsonObject | None) -> None:
        """A node was added or changed, or is gone (None)."""
        if obj is not None and self.wanted.nodes:
            self._nodes[name] = _node_json(obj)
        else:
            self._nodes.pop(name, None)

    # --- what extender calls ask ----------------------------------------------------------------

    async def pod(self, pod: PodInfo) -> bytes:
        """Return a pod's JSON.

        Raises:
            ApiError: it is not kept, and cannot be read; NotFound if it is gone.
        """
        kept = self._pods.get(pod.uid)
        if kept is not None:
            return kept
        path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}"
        obj = await self._client.get(path)
        if obj["metadata"].get("uid") != pod.uid:
            raise NotFound(f"get {path}", None, "NotFound", "the name belongs to another pod now")
        return _pod_json(obj)

    async def pods(self, pods: Iterable[PodInfo]) -> dict[str, bytes]:
        """Return the JSON of pods by uid.

        Raises:
            ApiError: one is not kept, and cannot be read.
        """
        slots = asyncio.Semaphore(MAX_PARALLEL_READS)

        async def read(pod: PodInfo) -> tuple[str, bytes]:
            async with slots:
                return pod.uid, await self.pod(pod)

        return dict(await asyncio.gather(*(read(pod) for pod in pods)))

    async def nodes(self, names: Sequence[str]) -> list[bytes]:
        """Return the JSON of nodes; one that was deleted meanwhile is left out.

        Raises:
            ApiError: they are not kept yet, and cannot be listed.
        """
        if not self._nodes_listed:
            items, _ = await self._client.list(_NODES)
            for item in items:
                # What an event showed since is at least as new.
                self._nodes.setdefault(item["metadata"]["name"], _node_json(item))
            self._nodes_listed = self.wanted.nodes
        return [self._nodes[name] for name in names if name in self._nodes]


def _pod_json(obj: JsonObject) -> bytes:
    """A pod without kind and managed fields, as kube-scheduler keeps it."""
    metadata = {key: value for key, value in obj["metadata"].items() if key != "managedFields"}
    return go_json(_without_type({**obj, "metadata": metadata}))


def _node_json(obj: JsonObject) -> bytes:
    return go_json(_without_type(obj))


def _without_type(obj: JsonObject) -> JsonObject:
    """An object as Go writes it after a typed client has read it."""
    return {key: value for key, value in obj.items() if key not in {"apiVersion", "kind"}}
