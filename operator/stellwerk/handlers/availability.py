"""Whether a kind can be watched: it exists, and the role allows to list and watch it.

Asked before a kind is watched, because kopf repeats a forbidden request without end. Invariant: a
temporary failure to find out is never taken for an answer, and no kind that every API server has is
ever taken for absent.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from stellwerk.errors import ApiError, Forbidden, NotAList, NotFound

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stellwerk.framework.services import ClusterClient
    from stellwerk.handlers.delivery import Delivery, WatchedKind

logger = logging.getLogger(__name__)

CHECK_SECONDS: Final = 60.0
_FIRST_CHECK_SECONDS: Final = 0.5
"""Installing often creates the operator a moment before its definitions and its role."""
_RETRY_SECONDS: Final = 2.0
_FAILURES_A_LINE: Final = 10
"""In a row: refused credentials are refused for every kind, again and again."""
_LOOKS: Final = 2
"""In a row that must miss a kind: an API server that starts serves some kinds later than others."""
_REVIEWS: Final = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


@dataclass(frozen=True, slots=True)
class Obstacle:
    """The reason for which a kind cannot be watched."""

    reason: str
    absent: bool
    """The kind does not exist, so nothing of it does; False: it exists, and cannot be seen."""


class Availability:
    """The API's discovery and access reviews, asked about one kind at a time."""

    def __init__(self, client: ClusterClient, *, check_seconds: float = CHECK_SECONDS) -> None:
        self._client = client
        self._check_seconds = check_seconds

    async def obstacle(self, watched: WatchedKind) -> Obstacle | None:
        """Return why a kind cannot be watched, or None if it can; waits until it is known."""
        missed = failures = 0
        while True:
            try:
                if await self._exists(watched):
                    return await self._missing_right(watched)
            except ApiError as error:
                failures += 1
                if failures % _FAILURES_A_LINE == 1:
                    logger.warning("cannot tell whether %s can be watched: %s", watched.kind, error)
                await asyncio.sleep(_RETRY_SECONDS)
                continue
            failures = 0
            missed += 1
            served = f"{watched.group_version_path}/{watched.plural}"
            if watched.core:
                logger.warning("the API serves no %s just now; looking again", served)
            elif missed == _LOOKS:
                return Obstacle(f"the API serves no {served}", absent=True)
            await asyncio.sleep(min(_RETRY_SECONDS, self._check_seconds))

    async def wait_for(self, delivery: Delivery) -> None:
        """Return once the kind can be watched; until then it is marked as unavailable."""
        pauses = self.pauses()
        while obstacle := await self.obstacle(delivery.watched):
            delivery.unavailable(obstacle.reason, absent=obstacle.absent)
            await asyncio.sleep(next(pauses))

    def pauses(self) -> Iterator[float]:
        """Return the seconds between one look and the next: at first short, in the end a minute."""
        pause_seconds = min(_FIRST_CHECK_SECONDS, self._check_seconds)
        while True:
            yield pause_seconds
            pause_seconds = min(2 * pause_seconds, self._check_seconds)

    async def _exists(self, watched: WatchedKind) -> bool:
        try:
            discovery = await self._client.get(watched.group_version_path)
        except NotFound:
            return False
        resources = discovery.get("resources")
        if not isinstance(resources, list):
            raise NotAList(f"look up {watched.group_version_path}", "it names no resources")
        served = {item.get("name") for item in resources if isinstance(item, dict)}
        return watched.plural in served

    async def _missing_right(self, watched: WatchedKind) -> Obstacle | None:
        for verb in ("list", "watch"):
            if not await self._may(verb, watched):
                reason = f"the role lacks the right to {verb} {watched.plural}"
                return Obstacle(reason, absent=False)
        return None

    async def _may(self, verb: str, watched: WatchedKind) -> bool:
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {
                "resourceAttributes": {
                    "verb": verb,
                    "group": watched.group,
                    "version": watched.version,
                    "resource": watched.plural,
                }
            },
        }
        try:
            answer = await self._client.create(_REVIEWS, review)
        except (NotFound, Forbidden):
            return True  # no reviews are served: the request itself will show it
        return bool(answer.get("status", {}).get("allowed"))
