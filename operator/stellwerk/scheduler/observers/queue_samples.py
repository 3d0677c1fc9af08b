"""Samples the queues for the history that the page draws.

`app` runs it beside the scheduler, in every replica. Invariant: a sample that fails is logged, and
the next one is taken all the same.
"""

import asyncio
import logging

from stellwerk.explain.queue_history import SAMPLE_SECONDS, QueueHistory

logger = logging.getLogger(__name__)


async def sample_queues(history: QueueHistory) -> None:
    """Sample every few seconds, until cancelled."""
    while True:
        try:
            history.sample()
        except Exception:
            logger.exception("the queues could not be sampled")
        await asyncio.sleep(SAMPLE_SECONDS)
