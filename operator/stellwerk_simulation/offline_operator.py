"""The operator's own parts without a cluster: what a journal is decided again with.

Replays and reruns drive one. Invariant: nothing reaches a cluster, and time is what entries say.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from stellwerk.framework.handle import RandomNumbers
from stellwerk.framework.offline import Offline
from stellwerk.framework.services import ClusterClient
from stellwerk.framework.watch_handlers import WatchHandlers
from stellwerk.journal.entries import Head, WatchEvent
from stellwerk.metrics import Metrics
from stellwerk.wiring import Operator, OperatorSettings
from stellwerk_kube.clock import VirtualClock, parse_moment
from stellwerk_kube.compatibility import (
    RECORDED,
    Compatibility,
    FeatureGates,
    patches_of,
    release_named,
)

logger = logging.getLogger(__name__)


def offline_operator(
    head: Head, numbers: Callable[[int | None], RandomNumbers], client: ClusterClient | None = None
) -> tuple[Operator, VirtualClock]:
    """An operator as the one that recorded, and its clock; needs a running event loop.

    `client`: what plugins write to; None: nothing may be written.
    """
    offline, clock = Offline(), VirtualClock(parse_moment(head.started_at))
    options = OperatorSettings()
    if head.max_pod_complexity:
        options = OperatorSettings(max_pod_complexity=head.max_pod_complexity)
    operator = Operator(client or offline, offline, Metrics(), clock, options, numbers=numbers)
    operator.loader.follow(_compatibility(head))
    return operator, clock


def _compatibility(head: Head) -> Compatibility:
    """The release that the recorded decisions followed where a profile named none.

    Raises:
        ConfigurationError: this version does not know it.
    """
    patches = patches_of(head.patches)
    if not head.release:
        return Compatibility.with_release(RECORDED, patches=patches)
    gates = FeatureGates.parse(head.feature_gates)
    return Compatibility.with_server(release_named(head.release, patches), gates, patches)


@contextmanager
def skipping_malformed(event: WatchEvent) -> Iterator[None]:
    """Let a malformed object end the block, as the operator that recorded it has skipped it."""
    try:
        yield
    except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError) as error:
        name = event.obj["metadata"]["name"]
        logger.warning("%s %s is malformed and skipped: %s", event.kind, name, error)


def deliver(handlers: WatchHandlers, event: WatchEvent) -> None:
    """Hand an event to the handlers of its kind, as a watch does."""
    with skipping_malformed(event):
        if event.kind == "Pod":
            handlers.on_pod(event.event_type, event.obj)
        elif event.kind == "Node":
            handlers.on_node(event.event_type, event.obj)
        else:
            handlers.on_object(event.kind, event.event_type, event.obj)
