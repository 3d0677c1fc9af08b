"""Records what happens in a cluster, whichever scheduler serves it, with rights to read alone.

`stellwerk record` runs it. Invariant: nothing is decided, and nothing is written to the API.
"""

import asyncio
import logging
import random
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Final

from stellwerk.client.credentials import load_credentials
from stellwerk.client.kubernetes import KubernetesClient
from stellwerk.client.reading import ReadOnlyClient
from stellwerk.handlers.lifecycle import OperatorOptions, run_operator
from stellwerk.journal.writer import JournalOptions
from stellwerk.metrics import Metrics
from stellwerk.scheduler.observers.recording import Recording, recording_to
from stellwerk.supervision import Ending, run_together
from stellwerk.wiring import Operator, OperatorSettings, beside_server
from stellwerk_kube.clock import SystemClock

logger = logging.getLogger(__name__)

_RECORDING_CHECK_SECONDS: Final = 1.0
"""Pause between two checks whether a part is full, or the recording has failed or ended."""


@dataclass(frozen=True, slots=True)
class RecordOptions:
    """The options of `stellwerk record`."""

    journal: JournalOptions
    kubeconfig: str | None = None
    context: str | None = None
    seconds: float = 0.0
    """0: until a signal."""


async def record(options: RecordOptions) -> Mapping[str, int]:
    """Record until SIGTERM, SIGINT or the time is over; how many entries of each kind there are.

    Raises:
        ConfigurationError: the cluster cannot be reached as configured, or the file not be written.
        SchedulerError: the watches ended for good, or the recording did.
    """
    clock, metrics, run = SystemClock(), Metrics(), OperatorSettings()
    credentials = await load_credentials(options.kubeconfig, options.context, clock=clock)
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(
            KubernetesClient(credentials, clock=clock, metrics=metrics, jitter=random.random)
        )
        version = await client.check_reachable()
        offline = ReadOnlyClient(client)
        recording = stack.enter_context(
            recording_to(
                options.journal,
                run.max_pod_complexity,
                beside_server(version, run.gates),
                clock,
                offline,
            )
        )
        if recording is None:
            raise RuntimeError("there is a file to record to")
        operator = Operator(offline, offline, metrics, clock, run, recording=recording)
        operator.loader.follow(beside_server(version, run.gates))
        stack.push_async_callback(operator.extenders.close)
        logger.info("recording Kubernetes %s at %s", version, credentials.server)
        ending = Ending()
        await run_together(
            ending.stop,
            recording=_look(operator, recording, ending, options.seconds),
            watches=run_operator(
                events=operator.handlers,
                client=offline,
                credentials=credentials,
                metrics=metrics,
                jitter=random.random,
                on_signal=ending.on_signal,
                options=OperatorOptions(),
                redelivery=operator.redelivery,
            ),
        )
        return recording.counts


async def _look(operator: Operator, recording: Recording, ending: Ending, seconds: float) -> None:
    """Begin new parts, and end in time."""
    await operator.barrier.wait()
    loop = asyncio.get_running_loop()
    until = loop.time() + seconds if seconds else float("inf")
    while loop.time() < until:
        recording.begin_part_where_full(operator.world)
        recording.raise_where_ended()
        await asyncio.sleep(min(_RECORDING_CHECK_SECONDS, max(0.0, until - loop.time())))
    ending.stop.set()
    await asyncio.Event().wait()
