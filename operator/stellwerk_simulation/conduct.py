"""How a run goes on, whatever its profile.

Experiments make one, simulations follow it. Invariant: it can be pickled, and is the same for all
runs of an experiment.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Conduct:
    """What is done with time, and with pods that no node takes."""

    timed: bool = False
    """Pods arrive and leave by the times of the trace; otherwise one by one, and stay."""
    queues: bool = False
    """A pod that no node takes waits in the queue; otherwise it is dropped for good."""
    plan_seconds: float = 0.0
    """Of virtual time, until a plan that was asked for is there."""
