"""The objects that a run of `stellwerk bench` makes in a cluster: their record and deletion.

`bench` makes everything through `RunObjects`, and `bench --clean` reads the records of killed runs.
Invariant: an object is deleted only if the run's unguessable id is in its name and its uid is one
that the run wrote down, and only by that uid. A label proves nothing: a kubelet may write those of
its own node, and a tenant those of its own namespace.
"""

from __future__ import annotations

import asyncio
import re
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from typing_extensions import override

from stellwerk_kube.errors import ApiError, Conflict, NotFound, SchedulerError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence

    from stellwerk.framework.services import ClusterClient
    from stellwerk_kube.json_values import JsonObject

LABEL: Final = "stellwerk.dev/bench"
"""Label of everything that a run makes: its name. The taint of its nodes has the same key."""
NODES: Final = "/api/v1/nodes"
NAMESPACES: Final = "/api/v1/namespaces"
CLASSES: Final = "/apis/scheduling.k8s.io/v1/priorityclasses"
RECORDS: Final = "/api/v1/namespaces/kube-system/configmaps"
"""Namespace of the records: one in which no tenant may write, and which every cluster has."""
ID_BYTES: Final = 10
"""Random bytes in the name of a run. 80 bits cannot be guessed; 16 bytes would make the names of
namespaces longer than the 63 characters that they may have."""
MAX_BENCH_NODES: Final = 20_000
"""Nodes of a run: a line of the record has 43 bytes, and a ConfigMap takes 1 MiB."""
WRITERS: Final = 32
"""Requests that are under way at once. After SIGKILL so many objects may lack in the record."""
_CLEAN_SECONDS: Final = 300.0
"""Wait for the end of namespaces: their pods have no grace period, but many are deleted in turn."""
_POLL_SECONDS: Final = 0.2
_MADE: Final[Mapping[str, tuple[str, re.Pattern[str]]]] = {
    "node": (NODES, re.compile(r"-[0-9]{5,7}")),
    "priorityclass": (CLASSES, re.compile("")),
    "namespace": (NAMESPACES, re.compile(r"-[a-z-]{1,24}-[0-9a-f]{4}")),
}
"""Kind → its collection, and what follows the run's name in its names; in the order of deletion."""
_RUN: Final = re.compile(rf"bench-[0-9a-f]{{{2 * ID_BYTES}}}")
_UID: Final = re.compile(r"[0-9A-Za-z-]{1,64}")
_CONTENTS: Final = {
    "pod": ("pods", frozenset[str]()),
    "configmap": ("configmaps", frozenset({"kube-root-ca.crt"})),
    "persistentvolumeclaim": ("persistentvolumeclaims", frozenset[str]()),
    "service": ("services", frozenset[str]()),
}
"""Kinds that are counted in a namespace before it is deleted, without what Kubernetes puts in."""


@dataclass(frozen=True, slots=True)
class Made:
    """An object that a run has made."""

    kind: str
    name: str
    uid: str

    @property
    def path(self) -> str:
        """Its path at the API."""
        return f"{_MADE[self.kind][0]}/{quote(self.name, safe='')}"

    @override
    def __str__(self) -> str:
        """Kind and name, as `kubectl -o name` writes them."""
        return f"{self.kind}/{self.name}"


@dataclass(slots=True)
class Left:
    """Objects and records to delete, each by its uid, and the contents of their namespaces."""

    made: list[Made] = field(default_factory=list)
    records: list[tuple[str, str]] = field(default_factory=list)
    """(path, uid) of the ConfigMaps in which the objects were written down."""
    contents: dict[str, dict[str, int]] = field(default_factory=dict)
    """Namespace → kind → number of its objects."""
    unproven: list[str] = field(default_factory=list)
    """kind/name of what has the label and is in no record: it stays."""

    @override
    def __str__(self) -> str:
        """The numbers by kind, and for each namespace what is in it."""
        words = []
        for kind in _MADE:
            names = [each.name for each in self.made if each.kind == kind]
            if not names:
                continue
            if kind == "namespace":
                words += [
                    f"namespace {name} ({_counts(self.contents.get(name))})" for name in names
                ]
                continue
            first = f"{names[0]}{', …' if names[1:] else ''}"
            title = {"priorityclass": "PriorityClass"}.get(kind, kind)
            plural = {"priorityclass": "es"}.get(kind, "s") if names[1:] else ""
            words.append(f"{len(names)} {title}{plural} ({first})")
        return ", ".join(words)


def _counts(numbers: Mapping[str, int] | None) -> str:
    found = [f"{number} {kind}{'s' * (number > 1)}" for kind, number in (numbers or {}).items()]
    return ", ".join(found) or "empty"


class RunObjects:
    """The objects of one run, written down in the cluster as they are made."""

    def __init__(self, client: ClusterClient, name: str) -> None:
        """`name`: the run's, with its unguessable id; it begins the names of all objects."""
        self._client, self._name = client, name
        self._record, self._record_uid = f"{RECORDS}/stellwerk-{name}", ""
        self._made: dict[tuple[str, str], Made] = {}
        self._uncertain: set[tuple[str, str]] = set()
        """(kind, name) of those whose creation was not answered."""
        self._lines = 0

    async def open(self) -> None:
        """Create the record, before anything else.

        Raises:
            ApiError: it cannot be created; nothing was made then.
        """
        metadata = {"name": f"stellwerk-{self._name}", "labels": {LABEL: self._name}}
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
        made = await self._client.create(RECORDS, body)
        self._record_uid = made["metadata"]["uid"]

    async def create(self, kind: str, bodies: Sequence[JsonObject]) -> None:
        """Create objects of a kind, and write down their uids after every few.

        Raises:
            ApiError: the API server refused one.
        """
        for first in range(0, len(bodies), WRITERS):
            some = bodies[first : first + WRITERS]
            try:
                await side_by_side(some, lambda body: self._create(kind, body))
            finally:
                names = [(kind, each["metadata"]["name"]) for each in some]
                await self._write_down([self._made[name] for name in names if name in self._made])

    async def _create(self, kind: str, body: JsonObject) -> None:
        key = (kind, body["metadata"]["name"])
        self._uncertain.add(key)
        try:
            made = await self._client.create(_MADE[kind][0], body)
        except Conflict as error:
            # An earlier attempt whose answer was lost may have made it; else it is a stranger's.
            if error.earlier is None:
                self._uncertain.discard(key)
            raise
        self._made[key] = Made(*key, made["metadata"]["uid"])
        self._uncertain.discard(key)

    async def _write_down(self, made: Sequence[Made]) -> None:
        if not made:
            return
        self._lines += 1
        text = "".join(f"{each.name.removeprefix(self._name)} {each.uid}\n" for each in made)
        # The uid is a precondition: another client's ConfigMap with this name stays as it is.
        metadata = {"uid": self._record_uid}
        data = {f"{made[0].kind}.{self._lines:05d}": text}
        await self._client.patch(self._record, {"metadata": metadata, "data": data})

    async def delete(self, kind: str, name: str) -> None:
        """Delete one of them, and wait until it is gone.

        Raises:
            SchedulerError: it is still there after a while.
        """
        await delete_exactly(self._client, Left([self._made[kind, name]]))

    async def delete_all(self) -> None:
        """Delete everything of the run, at last the record.

        Raises:
            SchedulerError: something is still there after a while, or the API does not let it go.
        """
        try:
            for kind, name in sorted(self._uncertain):
                await self._find(kind, name)
            records = [(self._record, self._record_uid)] if self._record_uid else []
            await delete_exactly(self._client, Left(list(self._made.values()), records))
        except ApiError as error:
            raise SchedulerError(
                f"not all of the run is deleted: {error}; stellwerk bench --clean deletes the rest"
            ) from error

    async def _find(self, kind: str, name: str) -> None:
        """Look whether a creation that was not answered has taken place."""
        try:
            found = await self._client.get(Made(kind, name, "").path)
        except NotFound:
            return
        if (found["metadata"].get("labels") or {}).get(LABEL) == self._name:
            self._made[kind, name] = Made(kind, name, found["metadata"]["uid"])


async def find_left(client: ClusterClient) -> Left:
    """Read the records of all runs, and which of the objects in them are still there.

    Raises:
        ApiError: the API server refuses.
    """
    query = f"?labelSelector={quote(LABEL, safe='')}"
    left, recorded = Left(), set[Made]()
    for record in (await client.list(f"{RECORDS}{query}"))[0]:
        name = str(record["metadata"]["name"])
        run_name = name.removeprefix("stellwerk-")
        if name == run_name or not _RUN.fullmatch(run_name):
            continue
        left.records.append((f"{RECORDS}/{name}", record["metadata"]["uid"]))
        recorded |= set(_recorded(run_name, record.get("data") or {}))
    for kind, (path, _) in _MADE.items():
        for obj in (await client.list(f"{path}{query}"))[0]:
            each = Made(kind, obj["metadata"]["name"], obj["metadata"].get("uid", ""))
            if each in recorded:
                left.made.append(each)
            else:
                left.unproven.append(str(each))
    for each in left.made:
        if each.kind == "namespace":
            left.contents[each.name] = await _contents(client, each)
    return left


def _recorded(run_name: str, data: Mapping[str, Any]) -> Iterable[Made]:
    """The objects of a record; a line that no run writes counts for nothing."""
    for key, text in data.items():
        kind = key.partition(".")[0]
        if kind not in _MADE:
            continue
        for line in str(text).splitlines():
            suffix, _, uid = line.partition(" ")
            if _MADE[kind][1].fullmatch(suffix) and _UID.fullmatch(uid):
                yield Made(kind, run_name + suffix, uid)


async def _contents(client: ClusterClient, namespace: Made) -> dict[str, int]:
    found = {}
    for kind, (plural, own) in _CONTENTS.items():
        objects, _ = await client.list(f"{namespace.path}/{plural}")
        found[kind] = sum(each["metadata"]["name"] not in own for each in objects)
    return {kind: number for kind, number in found.items() if number}


async def delete_exactly(client: ClusterClient, left: Left) -> list[str]:
    """Delete these objects by their uids, and wait until they are gone; then their records.

    Returns kind/name of those whose name belongs to another object by now, which stays.

    Raises:
        ApiError: the API server refuses.
        SchedulerError: something is still there after a while.
    """
    replaced: list[str] = []

    async def delete(each: Made) -> None:
        try:
            await client.delete(each.path, each.uid)
        except NotFound:
            return
        except Conflict:
            # 409 also answers for a namespace that terminates already: its uid tells.
            if not await _is_there(client, each):
                replaced.append(str(each))

    for kind in _MADE:
        await side_by_side([each for each in left.made if each.kind == kind], delete)
    began, waiting = time.monotonic(), left.made
    while waiting := [each for each in waiting if await _is_there(client, each)]:
        if time.monotonic() - began > _CLEAN_SECONDS:
            raise SchedulerError(f"left: {Left(waiting)}; delete them by stellwerk bench --clean")
        await asyncio.sleep(_POLL_SECONDS)
    for path, uid in left.records:
        try:
            await client.delete(path, uid)
        except (NotFound, Conflict):
            continue
    return replaced


async def _is_there(client: ClusterClient, made: Made) -> bool:
    try:
        found = await client.get(made.path)
    except NotFound:
        return False
    return bool(found["metadata"].get("uid") == made.uid)


async def side_by_side(
    items: Iterable[Any], work: Callable[[Any], Coroutine[Any, Any, None]]
) -> None:
    """Do the work for each item, several at once; the first that fails ends all."""
    remaining = iter(items)

    async def each_of_them() -> None:
        for item in remaining:
            await work(item)

    tasks = [asyncio.create_task(each_of_them()) for _ in range(WRITERS)]
    try:
        await asyncio.gather(*tasks)
    finally:
        await ended(*tasks)


async def ended(*tasks: asyncio.Task[None]) -> None:
    """Cancel what still goes on, and wait for it."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
