"""The API server with a user's credentials, for commands that read or write objects.

Invariant: the client is closed when the block or the question ends.
"""

import random  # noqa: TID251 spreads retries of one command
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

from stellwerk.client.credentials import load_credentials
from stellwerk.client.kubernetes import KubernetesClient
from stellwerk.client.transport import RetryPolicy
from stellwerk.metrics import Metrics
from stellwerk_kube.clock import SystemClock

_Answer = TypeVar("_Answer")


@asynccontextmanager
async def open_client(
    kubeconfig: str | None, context: str | None, retry: RetryPolicy | None = None
) -> AsyncIterator[KubernetesClient]:
    """Yield a client with the user's credentials; it has not asked yet whether a server answers.

    `retry`: how often a refused request is made again, if not as ever.

    Raises:
        ConfigurationError: the cluster cannot be reached as configured.
    """
    async with KubernetesClient(
        await load_credentials(kubeconfig, context),
        clock=SystemClock(),
        metrics=Metrics(),
        jitter=random.random,
        retry=retry,
    ) as client:
        yield client


async def with_client(
    kubeconfig: str | None,
    context: str | None,
    ask: Callable[[KubernetesClient], Awaitable[_Answer]],
    retry: RetryPolicy | None = None,
) -> _Answer:
    """Return what `ask` gives; `retry` is as in `open_client`.

    Raises:
        ConfigurationError: the cluster cannot be reached as configured.
        ApiError: as `ask` does.
    """
    async with open_client(kubeconfig, context, retry) as client:
        await client.check_reachable()
        return await ask(client)
