"""The API server with a user's credentials, for one question.

Commands that read or write objects use it. Invariant: the client is closed when
the answer is there.
"""

import random  # noqa: TID251 spreads retries of one command
from collections.abc import Awaitable, Callable
from typing import TypeVar

from stellwerk.client.credentials import load_credentials
from stellwerk.client.kubernetes import KubernetesClient
from stellwerk.client.transport import RetryPolicy
from stellwerk.metrics import Metrics
from stellwerk_kube.clock import SystemClock

_Answer = TypeVar("_Answer")


async def with_client(
    kubeconfig: str | None,
    context: str | None,
    ask: Callable[[KubernetesClient], Awaitable[_Answer]],
    retry: RetryPolicy | None = None,
) -> _Answer:
    """Return what `ask` gives; `retry`: how often a refused request is made again, if not as ever.

    Raises:
        ConfigurationError: the cluster cannot be reached as configured.
        ApiError: as `ask` does.
    """
    credentials = await load_credentials(kubeconfig, context)
    async with KubernetesClient(
        credentials,
        clock=SystemClock(),
        metrics=Metrics(),
        jitter=random.random,
        retry=retry,
    ) as client:
        await client.check_reachable()
        return await ask(client)
