"""A plan of moves carried out: cordons, then policy/v1 evictions, one at a time.

`stellwerk plan defrag --apply` calls it, with the user's own credentials. Invariant: nothing is
evicted after the first refusal, nor after a pod that did not come to a node where it was expected;
a cordon is undone only if this command made it and no other client has changed it.
"""

import asyncio
import os
import sys
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from stellwerk.client.kubernetes import KubernetesClient, pod_path
from stellwerk.client.transport import RetryPolicy
from stellwerk_cli.commands.cluster_client import with_client
from stellwerk_kube.clock import Clock, SystemClock
from stellwerk_kube.errors import ApiError, Conflict, NotFound, SchedulerError
from stellwerk_kube.json_values import JsonObject
from stellwerk_kube.untrusted_text import printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stellwerk.framework.services import ClusterClient
    from stellwerk.models.pod import PodInfo
    from stellwerk_simulation.current_placement import Rescheduled
    from stellwerk_simulation.defragmentation import DefragPlan

CORDON_ANNOTATION: Final = "stellwerk.dev/cordoned-for-a-move"
"""Annotation of a node that is cordoned while one pod moves: a random text of this cordon."""
_CORDON_TAINT: Final = "node.kubernetes.io/unschedulable"
_MOVE_CHECK_SECONDS: Final = 0.5
"""Pause between two reads of the pods that take the place of an evicted one."""
_FINISHED: Final = frozenset({"Succeeded", "Failed"})
_MAX_CONFLICTS: Final = 5
"""Writes of a node that are tried: a kubelet and controllers write the same object."""
_OF_CONTROLLERS: Final = ("kubernetes.io", "k8s.io")
"""Domains of annotations that Kubernetes' own controllers keep on nodes."""


class MoveError(SchedulerError):
    """A move that did not go as planned."""


def carry_out(
    kubeconfig: str | None,
    context: str | None,
    plan: "DefragPlan",
    seconds: float,
    *,
    dry_run: bool = False,
) -> int:
    """Evict what the plan says, and print what becomes of it; returns the exit status.

    `seconds`: how long to wait until an evicted pod has a node again. In a dry run the API server
    tries every write, and nothing changes.

    Raises:
        ConfigurationError: the cluster cannot be reached as configured.
    """
    # A budget refuses with 429: that is an answer, and not to be asked for again.
    once = RetryPolicy(attempts=1)
    return asyncio.run(
        with_client(
            kubeconfig,
            context,
            lambda client: _tried(client, plan) if dry_run else _carry_out(client, plan, seconds),
            once,
        )
    )


async def _tried(client: KubernetesClient, plan: "DefragPlan") -> int:
    """Have the API server try each write by itself: a refused one does not end the others."""
    refused = 0
    for node_name in plan.cordons:
        path = f"{_node_path(node_name)}?dryRun=All"
        try:
            await client.patch(path, {"spec": {"unschedulable": True}})
            _say(f"{node_name} would be cordoned")
        except ApiError as error:
            refused += 1
            _say(f"{node_name} would not be cordoned: {error}")
    for move in plan.moves:
        try:
            await _evict(client, move.pod, dry_run=True)
            _say(f"{move.pod.key} would be evicted from {move.pod.node_name}")
        except ApiError as error:
            refused += 1
            _say(f"{move.pod.key} would not be evicted: {error}")
    _say("nothing was changed")
    return 1 if refused else 0


async def _carry_out(client: KubernetesClient, plan: "DefragPlan", seconds: float) -> int:
    clock, done = SystemClock(), 0
    try:
        for node_name in plan.cordons:
            cordon = Cordon(client, node_name)
            await cordon.make(lasting=True)
            _say(f"{node_name} is cordoned{'' if cordon.is_made else ' already'}")
        for move in plan.moves:
            await _Move(client, clock, move, seconds).carry_out()
            done += 1
    except (ApiError, MoveError) as error:
        # What is cordoned stays so: the user decides whether to go on.
        _say(f"stopped after {done} of {len(plan.moves)} moves: {error}")
        return 1
    _say("the move is done" if done == 1 else f"the {done} moves are done")
    return 0


class _Move:
    """One eviction, until the pod that takes the place of the evicted one has a node."""

    def __init__(
        self, client: KubernetesClient, clock: Clock, move: "Rescheduled", seconds: float
    ) -> None:
        self._client, self._clock, self._move = client, clock, move
        self._until = clock.monotonic() + seconds

    async def carry_out(self) -> None:
        """Evict, and wait.

        Raises:
            ApiError: the eviction was refused, or pods cannot be read.
            MoveError: the pod came to another node, or to none in time.
        """
        if not self._move.held:
            await self._replace()
            return
        node_name = self._move.pod.node_name
        cordon = Cordon(self._client, node_name)
        await cordon.make()
        try:
            await self._replace()
        finally:
            is_undone = await cordon.undo()
        # The next pod may be expected there, which the taint of a cordoned node would prevent.
        while is_undone and _has_cordon_taint(await self._client.get(_node_path(node_name))):
            await self._pause("its node keeps the taint of a cordoned one")

    async def _replace(self) -> None:
        pod = self._move.pod
        before = {each["metadata"]["uid"] for each in await self._pods()}
        await _evict(self._client, pod)
        await self._gone()
        if pod.owner is None:
            _say(f"{pod.key} is evicted from {pod.node_name}; nothing recreates it")
            return
        name, node_name = await self._successor(before)
        if node_name not in (self._move.node_name, *self._move.ties):
            message = f"{pod.key} was expected on {self._move.node_name}, but {name} is on"
            raise MoveError(f"{message} {node_name}")
        _say(f"{pod.key} is evicted from {pod.node_name}; {name} is on {node_name}")

    async def _gone(self) -> None:
        uid = self._move.pod.uid
        while any(each["metadata"]["uid"] == uid for each in await self._pods()):
            await self._pause("still runs")

    async def _successor(self, before: set[str]) -> tuple[str, str]:
        """(name, node) of the pod that the controller makes in place of the evicted one."""
        owner = self._move.pod.owner
        uid = owner[2] if owner is not None else ""
        while True:
            for each in await self._pods():
                node_name = (each.get("spec") or {}).get("nodeName")
                if each["metadata"]["uid"] not in before and node_name and _owned(each, uid):
                    return str(each["metadata"]["name"]), str(node_name)
            await self._pause("has no successor with a node")

    async def _pods(self) -> "Sequence[JsonObject]":
        """The pods of the namespace that have not finished."""
        path = pod_path(self._move.pod.namespace, "").removesuffix("/")
        found, _ = await self._client.list(path)
        return [pod for pod in found if (pod.get("status") or {}).get("phase") not in _FINISHED]

    async def _pause(self, state: str) -> None:
        """Wait a little.

        Raises:
            MoveError: the time is over.
        """
        if self._clock.monotonic() >= self._until:
            raise MoveError(f"{self._move.pod.key} was evicted, but {state} after the wait")
        await asyncio.sleep(_MOVE_CHECK_SECONDS)


class Cordon:
    """The cordon of one node, which only its maker undoes.

    `kubectl cordon` of a node that is cordoned already leaves no trace in it. So its maker is
    known by an annotation with a random text, and the cordon stays if another client has removed
    it, or has written an annotation of its own meanwhile.
    """

    def __init__(self, client: "ClusterClient", node_name: str) -> None:
        self._client, self._node_name, self._path = client, node_name, _node_path(node_name)
        self._mark = os.urandom(16).hex()
        self._uid = ""
        self._annotations: JsonObject = {}
        self.is_made = False

    async def make(self, *, lasting: bool = False) -> None:
        """Cordon the node, unless it is cordoned; with the mark, unless it is to stay so.

        Raises:
            ApiError: the API server refuses, or others write the node again and again.
        """
        for attempt in range(1, _MAX_CONFLICTS + 1):
            node = await self._client.get(self._path)
            if (node.get("spec") or {}).get("unschedulable"):
                if not lasting:
                    self._say_kept(_why_cordoned(node))
                return
            self._uid = node["metadata"].get("uid", "")
            self._annotations = _annotations_of_others(node)
            written = {} if lasting else {CORDON_ANNOTATION: self._mark}
            try:
                await self._write(node, written, {"unschedulable": True})
            except Conflict:
                if attempt == _MAX_CONFLICTS:
                    raise
            else:
                self.is_made = True
                return

    async def undo(self) -> bool:
        """Uncordon the node if this cordon is as it was made; returns whether it takes pods again.

        Raises:
            ApiError: the API server refuses, or others write the node again and again.
        """
        if not self.is_made:
            return False
        for attempt in range(1, _MAX_CONFLICTS + 1):
            try:
                node = await self._client.get(self._path)
            except NotFound:
                _say(f"{self._node_name} is gone")
                return False
            is_cordoned = bool((node.get("spec") or {}).get("unschedulable"))
            if (changed := self._changed(node)) is not None:
                if is_cordoned:
                    self._say_kept(changed)
                return not is_cordoned
            spec: JsonObject = {"unschedulable": None} if is_cordoned else {}
            try:
                await self._write(node, {CORDON_ANNOTATION: None}, spec)
            except Conflict:
                if attempt == _MAX_CONFLICTS:
                    raise
            else:
                break
        return True

    def _changed(self, node: JsonObject) -> str | None:
        """The sign that the cordon is not this one any more; None: there is none."""
        if node["metadata"].get("uid", "") != self._uid:
            return "it is another node of this name"
        found = (node["metadata"].get("annotations") or {}).get(CORDON_ANNOTATION)
        if found != self._mark:
            how = "gone" if found is None else "another"
            return f"the annotation {CORDON_ANNOTATION} of this cordon is {how}"
        others = _annotations_of_others(node)
        changed = sorted(
            key
            for key in self._annotations.keys() | others.keys()
            if self._annotations.get(key) != others.get(key)
        )
        return f"its annotation {changed[0]} was changed meanwhile" if changed else None

    async def _write(self, node: JsonObject, annotations: JsonObject, spec: JsonObject) -> None:
        """Patch the node if it is still what was read: the API compares uid and version."""
        metadata = {key: node["metadata"].get(key) for key in ("uid", "resourceVersion")}
        body = {"metadata": {**metadata, "annotations": annotations}, "spec": spec}
        await self._client.patch(self._path, body)

    def _say_kept(self, reason: str) -> None:
        _say(f"{self._node_name} stays cordoned: {reason}; kubectl uncordon ends that")


def _why_cordoned(node: JsonObject) -> str:
    if CORDON_ANNOTATION in (node["metadata"].get("annotations") or {}):
        return "by a plan defrag --apply that was interrupted or is still running"
    return "it was cordoned before"


def _annotations_of_others(node: JsonObject) -> JsonObject:
    """The annotations of a node that neither this command nor Kubernetes writes."""
    return {
        key: value
        for key, value in (node["metadata"].get("annotations") or {}).items()
        if key != CORDON_ANNOTATION and not key.partition("/")[0].endswith(_OF_CONTROLLERS)
    }


async def _evict(client: KubernetesClient, pod: "PodInfo", *, dry_run: bool = False) -> None:
    options: dict[str, object] = {"preconditions": {"uid": pod.uid}}
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": pod.name, "namespace": pod.namespace},
        "deleteOptions": options | ({"dryRun": ["All"]} if dry_run else {}),
    }
    await client.create(f"{pod_path(pod.namespace, pod.name)}/eviction", body)


def _node_path(name: str) -> str:
    return f"/api/v1/nodes/{quote(name, safe='')}"


def _has_cordon_taint(node: JsonObject) -> bool:
    taints = (node.get("spec") or {}).get("taints") or ()
    return any(taint.get("key") == _CORDON_TAINT for taint in taints)


def _owned(pod: JsonObject, uid: str) -> bool:
    owners = pod["metadata"].get("ownerReferences") or ()
    return any(owner.get("uid") == uid and owner.get("controller") for owner in owners)


def _say(text: str) -> None:
    """One line, beside the plan that may be JSON on standard output."""
    sys.stderr.write(f"{printable(text)}\n")
