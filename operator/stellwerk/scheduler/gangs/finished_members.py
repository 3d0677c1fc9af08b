"""Members that ran to their end: the pods' watch leaves them out, so that they are looked up.

Group events ask when a member on a node has gone, or when a group that has run is found with too
few pods. Invariant: a group is looked up at most once at a time, however many of its pods go.
"""

import asyncio
import logging
from collections.abc import Callable
from contextvars import Context
from typing import Final
from urllib.parse import quote

from stellwerk.errors import SchedulerError
from stellwerk.framework.services import ClusterClient
from stellwerk.models.json_values import JsonObject
from stellwerk.models.pod_group_key import COSCHEDULING_API, COSCHEDULING_LABEL, PodGroupKey
from stellwerk.world.world import World

logger = logging.getLogger(__name__)

PATIENCE_SECONDS: Final = 0.5
"""Several members often end together."""
RETRY_SECONDS: Final = 5.0
"""After this the API is asked again where it gave no answer."""
_FINISHED: Final = "fieldSelector=" + quote("status.phase!=Running,status.phase!=Pending", safe="")


class FinishedMembers:
    """Lists the finished pods of groups, in the background."""

    def __init__(
        self, world: World, client: ClusterClient, on_found: Callable[[PodGroupKey], None]
    ) -> None:
        """`on_found` is called with a group of which more pods have finished than were known."""
        self._world, self._client, self._on_found = world, client, on_found
        self._tasks: dict[PodGroupKey, asyncio.Task[None]] = {}
        self._wanted: dict[PodGroupKey, bool] = {}
        """Groups to be looked up; False: only if they still wait by then."""

    def look_up(self, key: PodGroupKey, *, waiting_only: bool = False) -> None:
        """Find out which members of a group have finished.

        `waiting_only`: unless the group gets all its pods before long, as while they are listed.
        """
        self._wanted[key] = self._wanted.get(key, False) or not waiting_only
        if key in self._tasks:
            return
        task = asyncio.get_running_loop().create_task(
            self._look_up(key), name=f"finished pods of {key.shown}", context=Context()
        )
        self._tasks[key] = task
        task.add_done_callback(lambda _: self._tasks.pop(key, None))

    async def _look_up(self, key: PodGroupKey) -> None:
        delay_seconds = PATIENCE_SECONDS
        while key in self._wanted:
            await asyncio.sleep(delay_seconds)
            is_due = self._wanted.pop(key)
            members = self._world.pod_groups.groups.get(key)
            if members is None or not (is_due or members.lacks_finished):
                return
            if not await self._list(key):
                self._wanted[key] = is_due or self._wanted.get(key, False)
                delay_seconds = RETRY_SECONDS

    async def _list(self, key: PodGroupKey) -> bool:
        """Ask for the finished pods of a group; False: there was no answer."""
        path = f"/api/v1/namespaces/{quote(key.namespace, safe='')}/pods?{_FINISHED}"
        if key.api == COSCHEDULING_API:
            path += f"&labelSelector={quote(f'{COSCHEDULING_LABEL}={key.name}', safe='')}"
        try:
            pods, _ = await self._client.list(path)
        except SchedulerError as failure:
            logger.warning("cannot look up finished pods of %s: %s", key.shown, failure)
            return False
        members = self._world.pod_groups.groups.get(key)
        if members is None:
            return True
        members.is_looked_up = True
        found = {
            pod["metadata"]["uid"]: pod["status"]["phase"]
            for pod in pods
            if _is_member(pod, key) and pod["metadata"]["uid"] not in members.pods
        }
        if found != members.finished:
            members.finished = found
            self._on_found(key)
        return True


def _is_member(pod: JsonObject, key: PodGroupKey) -> bool:
    if (pod.get("status") or {}).get("phase") not in {"Succeeded", "Failed"}:
        return False
    if key.api == COSCHEDULING_API:
        labels = pod["metadata"].get("labels") or {}
        return bool(labels.get(COSCHEDULING_LABEL) == key.name)
    group = (pod.get("spec") or {}).get("schedulingGroup") or {}
    return bool(group.get("podGroupName") == key.name)
