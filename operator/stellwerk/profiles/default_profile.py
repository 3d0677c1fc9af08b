"""The default profile: made where the cluster has no SchedulerProfile, so that pods are scheduled.

`app` calls `ensure_profile` once after the first list of profiles, and runs `keep_profile` beside
the scheduler. Invariant: an existing profile, however invalid, is never replaced.
"""

import asyncio
import logging
from typing import Final

from stellwerk.framework.services import ClusterClient
from stellwerk.framework.watch_handlers import WatchHandlers
from stellwerk.profiles.loader import ProfileLoader
from stellwerk.profiles.spec.profile import API_VERSION, KIND, PLURAL, first_profile
from stellwerk_kube.errors import Conflict, Forbidden, SchedulerError

logger = logging.getLogger(__name__)

_PATH: Final = f"/apis/{API_VERSION}/{PLURAL}"

EMPTY_SECONDS: Final = 1.0
"""Seconds without any profile before the default one is made again. A profile that is replaced by
force is deleted and created within less."""
MAX_RETRY_SECONDS: Final = 5.0
"""Longest pause between two attempts to make the default profile. Each costs a request while the
definition is missing, and a definition that comes back is noticed within this time."""


async def ensure_profile(
    loader: ProfileLoader, client: ClusterClient, handlers: WatchHandlers
) -> None:
    """Create the default profile if there is none; from memory if it cannot be created.

    So a fresh installation schedules; an existing profile, however invalid, is never replaced.
    """
    if loader.entries:
        return
    manifest = first_profile(loader.operator_name)
    try:
        created = await client.create(_PATH, manifest)
    except Conflict:
        return
    except SchedulerError as failure:
        _serve_from_memory(loader, handlers, failure)
        if not isinstance(failure, Forbidden):
            loader.emptied.set()  # for `keep_profile`
    else:
        handlers.on_object(KIND, "ADDED", created)


async def keep_profile(
    loader: ProfileLoader, client: ClusterClient, handlers: WatchHandlers
) -> None:
    """Make the default profile whenever the cluster has none, until cancelled.

    The definition of SchedulerProfiles may be gone with the last one. Then no profile can be
    created, and none is served from memory, because those that were there are expected back. The
    log, `/readyz` and `stellwerk_served_profiles` say meanwhile that no profile serves.
    """
    while True:
        await loader.emptied.wait()
        loader.emptied.clear()
        await asyncio.sleep(EMPTY_SECONDS)
        if not loader.entries:
            logger.warning(
                "no SchedulerProfile is left, so no pod is scheduled. The default one is "
                "created as soon as the API server accepts it"
            )
        pause_seconds = EMPTY_SECONDS
        while loader.is_empty():
            try:
                created = await client.create(_PATH, first_profile(loader.operator_name))
            except Conflict:
                break  # the watch will show it
            except Forbidden as failure:
                if not loader.entries:
                    _serve_from_memory(loader, handlers, failure)
                break
            except SchedulerError as failure:
                # The definition is missing or on its way out, or the API server is away.
                logger.debug("the default profile cannot be made yet: %s", failure)
                await asyncio.sleep(pause_seconds)
                pause_seconds = min(2 * pause_seconds, MAX_RETRY_SECONDS)
                continue
            if loader.is_empty():
                logger.info("SchedulerProfile %s was created", created["metadata"]["name"])
                handlers.on_object(KIND, "ADDED", created)


def _serve_from_memory(
    loader: ProfileLoader, handlers: WatchHandlers, failure: SchedulerError
) -> None:
    manifest = first_profile(loader.operator_name)
    logger.warning(
        "no SchedulerProfile exists and none can be created; serving %s from memory: %s",
        manifest["spec"]["schedulerName"],
        failure,
    )
    handlers.on_object(KIND, "ADDED", manifest)
    loader.in_memory = manifest["metadata"]["name"]
