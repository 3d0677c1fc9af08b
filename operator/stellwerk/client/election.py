"""The options of leader election on the command line, and whether they make sense.

`cli` fills it in, `elector` obeys. Invariant: options that were checked leave time between the last
write of one holder and the first of the next.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from stellwerk_kube.errors import ConfigurationError

JITTER_FACTOR: Final = 1.2
"""client-go's `JitterFactor`: a candidate waits up to 2.2 retry periods."""
_MIN_CALL_SECONDS: Final = 1.0
"""Shortest time limit of a request about the lease, whatever the renew deadline is."""
KUBE_SCHEDULER_LEASE: Final = ("kube-system", "kube-scheduler")
"""Namespace and name of kube-scheduler's lease, unless its configuration names another."""


@dataclass(frozen=True, slots=True)
class LeaderElectionOptions:
    """kube-scheduler's flags with its defaults, but for `leader_elect`, which is off."""

    leader_elect: bool = False
    lease_duration_seconds: float = 15.0
    """Time that the others wait after the last renewal that they saw."""
    renew_deadline_seconds: float = 10.0
    """After so long without a renewal the holder writes no more, and ends."""
    retry_period_seconds: float = 2.0
    resource_name: str = KUBE_SCHEDULER_LEASE[1]
    resource_namespace: str = KUBE_SCHEDULER_LEASE[0]

    @property
    def replaces_kube_scheduler(self) -> bool:
        """Whether the process writes only while it holds the lease that kube-scheduler takes."""
        lease = (self.resource_namespace, self.resource_name)
        return self.leader_elect and lease == KUBE_SCHEDULER_LEASE

    @property
    def margin_seconds(self) -> float:
        """The time in which the last writes of a holder arrive, before another one may begin."""
        return self.lease_duration_seconds - self.renew_deadline_seconds

    @property
    def call_timeout_seconds(self) -> float:
        """The time limit of a request about the lease (`NewFromKubeconfig`)."""
        return max(_MIN_CALL_SECONDS, self.renew_deadline_seconds / 2)

    @property
    def recorded_duration_seconds(self) -> int:
        """The duration as a Lease can hold it: in whole seconds, never shorter than it is."""
        return math.ceil(self.lease_duration_seconds)

    def check(self) -> None:
        """Refuse what kube-scheduler refuses.

        Raises:
            ConfigurationError: the durations leave no time, or the lease has no name.
        """
        lease, renew = self.lease_duration_seconds, self.renew_deadline_seconds
        if lease <= renew:
            raise ConfigurationError(
                f"--leader-elect-lease-duration ({lease:g}s) must be greater than "
                f"--leader-elect-renew-deadline ({renew:g}s)"
            )
        if renew <= JITTER_FACTOR * self.retry_period_seconds:
            raise ConfigurationError(
                f"--leader-elect-renew-deadline ({renew:g}s) must be greater than "
                f"{JITTER_FACTOR} times --leader-elect-retry-period "
                f"({self.retry_period_seconds:g}s)"
            )
        for flag, text in (
            ("--leader-elect-resource-name", self.resource_name),
            ("--leader-elect-resource-namespace", self.resource_namespace),
        ):
            if not text:
                raise ConfigurationError(f"{flag} must not be empty")
