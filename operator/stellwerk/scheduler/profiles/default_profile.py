"""The profile that is created where none exists, so that a fresh installation schedules.

Invariant: an existing profile, of whatever name and validity, is never replaced.
"""

import logging
from typing import Final

from stellwerk.errors import Conflict, SchedulerError
from stellwerk.framework.services import ClusterClient
from stellwerk.framework.watch_handlers import WatchHandlers
from stellwerk.models.profile import API_VERSION, DEFAULT_PROFILE_MANIFEST, KIND, PLURAL
from stellwerk.scheduler.profiles.profile_loader import ProfileLoader

logger = logging.getLogger(__name__)

_PATH: Final = f"/apis/{API_VERSION}/{PLURAL}"


async def ensure_profile(
    loader: ProfileLoader, client: ClusterClient, handlers: WatchHandlers
) -> None:
    """Create the default profile if there is none; from memory if it cannot be created."""
    if loader.entries:
        return
    try:
        created = await client.create(_PATH, DEFAULT_PROFILE_MANIFEST)
    except Conflict:
        return
    except SchedulerError as failure:
        logger.warning(
            "no SchedulerProfile exists and none can be created; serving %s from memory: %s",
            DEFAULT_PROFILE_MANIFEST["spec"]["schedulerName"],
            failure,
        )
        created = dict(DEFAULT_PROFILE_MANIFEST)
    handlers.on_object(KIND, "ADDED", created)
