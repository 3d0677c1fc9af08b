"""Finds the plugins of packages that were installed while the operator runs.

`app` runs it beside the scheduler, in every replica. Invariant: nothing is looked for, and nothing
is imported, unless a profile names a plugin that is not known.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import EntryPoint
from typing import Final

from stellwerk.plugins.registry import add_installed, installed_points, known_plugins
from stellwerk.scheduler.profiles.profile_loader import ProfileLoader

logger = logging.getLogger(__name__)

LOOK_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True)
class NewPlugins:
    """Looks every few seconds, for as long as a profile lacks a plugin."""

    loader: ProfileLoader
    installed: Callable[[], Sequence[EntryPoint]] = installed_points

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            if self.loader.lacks_plugins():
                await self.look()

    async def look(self) -> None:
        """Take in what was installed since the last look, and load the profiles that lack it."""
        # Reading every package's metadata takes long enough to be done beside the loop.
        found = add_installed(await asyncio.to_thread(self.installed))
        if found:
            logger.info("newly installed plugins: %s", ", ".join(sorted(found)))
            self.loader.on_new_plugins(known_plugins())
