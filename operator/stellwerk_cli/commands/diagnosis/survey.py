"""Reads of the objects of an installation, made once and without a write.

The checks of `commands.diagnosis` share one `Survey`, so that no list is read twice. Invariant: it
sends GET, and POST for access reviews alone; a refused read is an `Unseen` that names the missing
right, and never an empty list.
"""

from __future__ import annotations

import asyncio
import re
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from typing_extensions import override

from stellwerk.client.paging import pages
from stellwerk_kube.errors import ApiError, Forbidden, NotFound

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from stellwerk.client.kubernetes import KubernetesClient
    from stellwerk_kube.json_values import JsonObject

MAX_OBJECTS: Final = 20_000
"""Objects of one list that are read. A page has 500; 20,000 pods are about 100 MB of JSON."""
_PAGE_ITEMS: Final = 500
MAX_LOG_LINES: Final = 200
"""Lines from the end of a container's log that are read."""
MAX_LOG_BYTES: Final = 256 << 10
"""Bytes of a container's log that are read, however long its lines are."""
MAX_LINES_SECONDS: Final = 15.0
"""Time for the lines of an answer. A kubelet that is away would hold a request for its log."""
_REVIEWS: Final = "/apis/authorization.k8s.io/v1"
_PATH: Final = re.compile(
    r"/(?:api/v1|apis/(?P<group>[^/]+)/[^/]+)(?:/namespaces/(?P<namespace>[^/]+))?"
    r"/(?P<resource>[^/?]+)(?:/(?P<name>[^/?]+))?(?:/(?P<part>[^/?]+))?(?:\?.*)?"
)


@dataclass(frozen=True, slots=True)
class Unseen:
    """The reason for which something could not be read."""

    reason: str
    """Completes "cannot be seen: …"."""
    absent: bool = False
    """The API server answered that there is none (404)."""
    forbidden: bool = False
    """The caller lacks the right (403)."""


@dataclass(frozen=True, slots=True)
class Right:
    """A right as an access review asks for it."""

    verb: str
    resource: str = ""
    """With its subresource, such as pods/log."""
    group: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""
    """A path of a server that is no object of the API; then all but the verb is empty."""

    @override
    def __str__(self) -> str:
        """The right in words: get lease stellwerk in namespace stellwerk."""
        if self.path:
            return f"{self.verb} {self.path}"
        named = f" {self.name}" if self.name else ""
        where = f" in namespace {self.namespace}" if self.namespace else ""
        return f"{self.verb} {self.resource}{named}{where}"

    def attributes(self) -> Mapping[str, JsonObject]:
        """The attributes of a review."""
        if self.path:
            return {"nonResourceAttributes": {"path": self.path, "verb": self.verb}}
        resource, _, part = self.resource.partition("/")
        given = {
            "verb": self.verb,
            "group": self.group,
            "resource": resource,
            "subresource": part,
            "namespace": self.namespace,
            "name": self.name,
        }
        return {"resourceAttributes": {key: text for key, text in given.items() if text}}


@dataclass(frozen=True, slots=True)
class Survey:
    """Reads from one API server, at one moment."""

    client: KubernetesClient
    namespace: str
    """The operator's."""
    now: datetime

    async def list(self, path: str, *, limit: int = MAX_OBJECTS) -> Sequence[JsonObject] | Unseen:
        """Return the items of a collection, at most the limit of them."""
        found: list[JsonObject] = []
        try:
            async for page in pages(self.client.get, path, limit=min(limit, _PAGE_ITEMS)):
                found += page.get("items") or ()
                if len(found) >= limit:
                    break
        except ApiError as error:
            return _unseen(error, "list", path)
        return found[:limit]

    async def get(self, path: str) -> JsonObject | Unseen:
        """Return an object."""
        try:
            return await self.client.get(path)
        except ApiError as error:
            return _unseen(error, "get", path)

    async def log(
        self, namespace: str, pod: str, container: str, *, previous: bool = False
    ) -> Sequence[str] | Unseen:
        """Return the last lines of a container's log; `previous`: of the run that ended last."""
        path = (
            f"/api/v1/namespaces/{namespace}/pods/{pod}/log?container={container}"
            f"&tailLines={MAX_LOG_LINES}&limitBytes={MAX_LOG_BYTES}"
            f"{'&previous=true' if previous else ''}"
        )
        return await self.lines("get", path, MAX_LOG_LINES)

    async def lines(self, verb: str, path: str, limit: int) -> Sequence[str] | Unseen:
        """Return the first lines of an answer that is text, or that does not end."""
        found: list[str] = []
        try:
            async with (
                asyncio.timeout(MAX_LINES_SECONDS),
                aclosing(self.client.watch(path)) as lines,
            ):
                async for line in lines:
                    found.append(line.decode(errors="replace").rstrip("\r\n"))
                    if len(found) == limit:
                        break
        except ApiError as error:
            return _unseen(error, verb, path)
        except (TimeoutError, ValueError):  # ValueError: a line that is longer than aiohttp reads
            return Unseen("the API server does not answer that: no lines in time")
        return found

    async def may(self, right: Right) -> bool | Unseen:
        """Return whether the caller has a right."""
        return await self._review("selfsubjectaccessreviews", {**right.attributes()}, "Self")

    async def user_may(self, user: str, groups: Sequence[str], right: Right) -> bool | Unseen:
        """Return whether another user has a right; only some callers may ask that."""
        spec = {**right.attributes(), "user": user, "groups": list(groups)}
        return await self._review("subjectaccessreviews", spec, "")

    async def _review(self, plural: str, spec: Mapping[str, object], whose: str) -> bool | Unseen:
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": f"{whose}SubjectAccessReview",
            "spec": spec,
        }
        path = f"{_REVIEWS}/{plural}"
        try:
            answer = await self.client.create(path, review)
        except ApiError as error:
            return _unseen(error, "create", path)
        return bool((answer.get("status") or {}).get("allowed"))


def right_of(verb: str, path: str) -> Right:
    """Return the right that a request for a path needs."""
    match = _PATH.fullmatch(path)
    if match is None:
        return Right(verb, path=path.partition("?")[0])
    part = match["part"]
    return Right(
        verb,
        f"{match['resource']}/{part}" if part else match["resource"],
        match["group"] or "",
        unquote(match["namespace"] or ""),
        unquote(match["name"] or ""),
    )


def _unseen(error: ApiError, verb: str, path: str) -> Unseen:
    """The error in words that hold nothing of the server's own text, which may name URLs."""
    if isinstance(error, Forbidden):
        return Unseen(f"needs the right to {right_of(verb, path)}", forbidden=True)
    if isinstance(error, NotFound):
        return Unseen("the API server has none", absent=True)
    status = error.status if error.status is not None else error.reason
    return Unseen(f"the API server does not answer that: {status}")
