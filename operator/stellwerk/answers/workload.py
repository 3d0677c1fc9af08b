"""The pods of one controller: where they are, and why others wait.

`explain.lists.owned_pods` lists them; `stellwerk explain deployment/web` explains those that wait.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from stellwerk.answers.answer import PortAnswer
from stellwerk.answers.pod import PodExplanation
from stellwerk.answers.reading import ClusterReading


@dataclass(frozen=True, slots=True, kw_only=True)
class PodsWaitingAlike(PortAnswer):
    """Pods of a workload that wait for the same reason, and the explanation of one of them."""

    reason: str
    pods: Sequence[str]
    explanation: PodExplanation | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadExplanation(PortAnswer):
    """A controller's pods: where they are, and why others wait."""

    workload: str
    """KIND/NAME."""
    namespace: str
    pods: int
    with_node: int
    waiting: Sequence[PodsWaitingAlike]
    """The reason that concerns most pods first."""
    read: ClusterReading | None = None
    """The reading that the answer was decided on; absent: an operator gave it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnedPod(PortAnswer):
    """A pod of a controller, on a node or in a queue."""

    pod: str
    node: str | None = None
    queue: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnedPods(PortAnswer):
    """The pods that one controller made, those that wait first."""

    owner: str
    """KIND/NAME."""
    namespace: str
    total: int
    waiting: int
    items: Sequence[OwnedPod]
    """Some of them."""
