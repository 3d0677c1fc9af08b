"""Decides which version of a kind to watch: one that is served, readable, and allowed by the role.

`watching` asks before it watches a kind, because kopf repeats a forbidden request without end.
Invariant: a temporary failure to find out is never taken for an answer, no kind that every API
server has is ever taken for absent, and one that is served in unknown versions is never taken for
empty.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from stellwerk.client.reviews import may_itself
from stellwerk.models.api_kinds import API_KINDS, Served, chosen_version, unreadable_versions
from stellwerk_kube.errors import ApiError, NotAList, NotFound

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from stellwerk.framework.services import ClusterClient
    from stellwerk.handlers.delivery import Delivery
    from stellwerk.handlers.watched_kinds import WatchedKind
    from stellwerk_kube.json_values import JsonObject

logger = logging.getLogger(__name__)

CHECK_SECONDS: Final = 60.0
"""Longest pause between two looks at a kind that cannot be watched."""
_FIRST_CHECK_SECONDS: Final = 0.5
"""First pause between two looks; it doubles. Installing often creates the operator a moment before
its definitions and its role."""
_RETRY_SECONDS: Final = 2.0
"""Pause after a look that found nothing out, or that missed a kind for the first time."""
_FAILURES_PER_LINE: Final = 10
"""Failures in a row for one line of the log: refused credentials are refused for every kind."""
MAX_STORAGE_SECONDS: Final = 30.0
"""The longest wait for the storage of a kind: the server makes it in a second or two."""
_MISSES: Final = 2
"""Looks in a row that must miss a kind before it counts as absent: an API server that starts serves
some kinds later than others."""
_ALL: Final = "/apis"
_AGGREGATED: Final = "APIGroupDiscoveryList"
_FRESH_SECONDS: Final = 0.4
"""Time for which a document of discovery is used again: at the start every kind asks for it."""


@dataclass(frozen=True, slots=True)
class Obstacle:
    """The reason for which a kind cannot be watched."""

    reason: str
    absent: bool
    """The kind does not exist, so nothing of it does; False: it exists, and cannot be seen."""
    unreadable: bool = False
    """It is served, in no version that can be read."""


class Discovery:
    """The documents of the API's discovery: one for all groups, or the plain ones by version."""

    def __init__(self, client: ClusterClient, fresh_seconds: float = _FRESH_SECONDS) -> None:
        self._client = client
        self._fresh_seconds = fresh_seconds
        self._reading = asyncio.Lock()
        self._read_at_seconds = float("-inf")
        self._groups: dict[str, Served] | None = None
        """By group, what the aggregated document says; None: the server has none."""
        self._listed: dict[str, list[str]] = {}
        """The versions of each group by the plain document."""
        self._plain: dict[str, frozenset[str] | None] = {}
        """Plurals by the path of a version; None: it is not served."""

    async def of_group(self, group: str, readable: Iterable[str]) -> Served:
        """The plurals of each version of a group that is served.

        Of a server without the aggregated document: of the versions that can be read and, where it
        serves none of these, of all others.

        Raises:
            ApiError: it cannot be found out.
        """
        async with self._reading:
            await self._refresh(aggregated=bool(group))
            if group and self._groups is not None:
                return self._groups.get(group, {})
            found = {version: await self._version(group, version) for version in readable}
            if group and not any(found.values()):
                listed = self._listed.get(group, [])
                found |= {each: await self._version(group, each) for each in listed}
        return {version: plurals for version, plurals in found.items() if plurals is not None}

    async def _refresh(self, *, aggregated: bool) -> None:
        """Read anew what is not fresh."""
        now = asyncio.get_running_loop().time()
        if now - self._read_at_seconds > self._fresh_seconds:
            self._plain.clear()
            self._listed.clear()
            self._groups = None
            self._read_at_seconds = now
        elif self._groups is not None or self._listed or not aggregated:
            return
        if not aggregated:
            return
        try:
            document = await self._client.get(_ALL)
        except NotFound:
            return
        if document.get("kind") == _AGGREGATED:
            self._groups = dict(map(_aggregated, _items(document, "items")))
            return
        for group in _items(document, "groups"):
            versions = [str(each.get("version")) for each in group.get("versions") or ()]
            self._listed.setdefault(str(group.get("name")), []).extend(versions)

    async def _version(self, group: str, version: str) -> frozenset[str] | None:
        path = f"/apis/{group}/{version}" if group else f"/api/{version}"
        if path not in self._plain:
            try:
                document = await self._client.get(path)
            except NotFound:
                self._plain[path] = None
            else:
                if not isinstance(document.get("resources"), list):
                    raise NotAList(f"look up {path}", "it names no resources")
                named = {str(item.get("name")) for item in _items(document, "resources")}
                self._plain[path] = frozenset(named)
        return self._plain[path]


def _items(document: JsonObject, field: str) -> list[JsonObject]:
    found = document.get(field)
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def _aggregated(group: JsonObject) -> tuple[str, Served]:
    versions: dict[str, Any] = {
        str(version.get("version")): frozenset(
            str(resource.get("resource")) for resource in _items(version, "resources")
        )
        for version in _items(group, "versions")
    }
    return str((group.get("metadata") or {}).get("name")), versions


async def kinds_in_use(client: ClusterClient) -> tuple[dict[str, str], dict[str, str]]:
    """The version in which each negotiated kind would be watched, and why others would not be.

    What the role allows is not asked.

    Raises:
        ApiError: it cannot be found out.
    """
    discovery, used, off = Discovery(client), dict[str, str](), dict[str, str]()
    for row in API_KINDS.values():
        if not row.parser:
            continue
        served = await discovery.of_group(row.group, row.versions)
        version = chosen_version(row.plural, row.versions, served)
        if version is not None:
            used[row.kind] = f"{row.group}/{version}"
            continue
        unknown = unreadable_versions(row.plural, row.versions, served)
        why = f"the API serves no {row.plural} of {row.group}"
        if unknown:
            why = _unreadable(row.plural, row.group, unknown, row.versions)
        off[row.kind] = f"{why}: {row.lack}"
    return used, off


class Availability:
    """The API's discovery and access reviews, asked about one kind at a time."""

    def __init__(self, client: ClusterClient, *, check_seconds: float = CHECK_SECONDS) -> None:
        self.check_seconds = check_seconds
        """The longest pause between two looks."""
        self._client = client
        self._discovery = Discovery(client, min(_FRESH_SECONDS, check_seconds / 4))

    async def obstacle(self, watched: WatchedKind) -> Obstacle | None:
        """Return why a kind cannot be watched, or None if it can; waits until it is known."""
        found = await self.find(watched)
        return found if isinstance(found, Obstacle) else None

    async def find(self, watched: WatchedKind, in_use: str = "") -> WatchedKind | Obstacle:
        """Return the kind in the version to watch, or why it cannot be; waits until it is known.

        `in_use`: the version in which it is known already, if it is.
        """
        missed = failures = 0
        while True:
            try:
                found = await self._look(watched, in_use)
                if found is not None:
                    return found
            except ApiError as error:
                failures += 1
                if failures % _FAILURES_PER_LINE == 1:
                    logger.warning("cannot tell whether %s can be watched: %s", watched.kind, error)
                await asyncio.sleep(_RETRY_SECONDS)
                continue
            failures = 0
            missed += 1
            served = f"{watched.group_version_path}/{watched.plural}"
            if watched.core:
                logger.warning("the API serves no %s just now; looking again", served)
            elif missed == _MISSES or (watched.may_be_absent and not in_use):
                # What was there before may only be hidden by a server that starts.
                return Obstacle(_absence(watched), absent=True)
            await asyncio.sleep(min(_RETRY_SECONDS, self.check_seconds))

    async def wait_for(self, delivery: Delivery) -> None:
        """Return once the kind can be watched; until then it is marked as unavailable."""
        for pause_seconds in self.pauses():
            if await self.is_there(delivery):
                return
            await asyncio.sleep(pause_seconds)

    async def until_stored(self, watched: WatchedKind) -> None:
        """Wait until the API server has storage for a kind, if a definition brings the kind.

        Discovery names such a kind once its definition is Established. The server begins to make
        its storage at the first request, and refuses watches until that is done (429, `storage is
        (re)initializing`), and so a question that only its cache can answer. What lasts longer is
        left to the list, which reports it.
        """
        if not watched.is_defined:
            return
        path = f"{watched.collection_path}?fieldSelector=metadata.name%3Dnone&resourceVersion=0"
        with suppress(TimeoutError, ApiError):
            async with asyncio.timeout(MAX_STORAGE_SECONDS):
                await self._client.get(path)  # asked again after a 429, with the pause it names

    async def is_there(self, delivery: Delivery) -> bool:
        """Return whether a kind can be watched, in the version that it says then."""
        found = await self.find(delivery.watched, delivery.listed_version)
        if isinstance(found, Obstacle):
            delivery.unavailable(found.reason, absent=found.absent, unreadable=found.unreadable)
            return False
        delivery.use_version(found.version)
        return True

    async def is_gone(self, watched: WatchedKind) -> bool:
        """Return whether a kind that is watched is served no longer in its version.

        Discovery must say so and the collection itself: of several API servers one may be older.

        Raises:
            ApiError: it cannot be found out.
        """
        served = await self._discovery.of_group(watched.group, watched.versions)
        if watched.plural in served.get(watched.version, ()):
            return False
        try:
            await self._client.get(f"{watched.collection_path}?limit=1")
        except NotFound:
            return True
        return False

    def pauses(self) -> Iterator[float]:
        """Return the seconds between one look and the next: at first short, in the end a minute."""
        pause_seconds = min(_FIRST_CHECK_SECONDS, self.check_seconds)
        while True:
            yield pause_seconds
            pause_seconds = min(2 * pause_seconds, self.check_seconds)

    async def _look(self, watched: WatchedKind, in_use: str) -> WatchedKind | Obstacle | None:
        """The kind in the version to watch, or what is in the way; None: it is not served."""
        served = await self._discovery.of_group(watched.group, watched.versions)
        version = chosen_version(watched.plural, watched.versions, served, in_use)
        if version is not None:
            found = replace(watched, version=version)
            return await self._missing_right(found) or found
        unknown = unreadable_versions(watched.plural, watched.versions, served)
        if not unknown:
            return None
        reason = _unreadable(watched.plural, watched.group, unknown, watched.versions)
        return Obstacle(reason, absent=False, unreadable=True)

    async def _missing_right(self, watched: WatchedKind) -> Obstacle | None:
        for verb in ("list", "watch"):
            if not await may_itself(
                self._client, verb, watched.group, watched.version, watched.plural
            ):
                reason = f"the role lacks the right to {verb} {watched.plural}"
                return Obstacle(reason, absent=False)
        return None


def _unreadable(plural: str, group: str, unknown: list[str], readable: Iterable[str]) -> str:
    return (
        f"the API serves {plural} of {group} in {', '.join(unknown)}, and this version of "
        f"Stellwerk reads {', '.join(readable)}"
    )


def _absence(watched: WatchedKind) -> str:
    if watched.readable:
        return f"the API serves no {watched.plural} of {watched.group}"
    return f"the API serves no {watched.group_version_path}/{watched.plural}"
