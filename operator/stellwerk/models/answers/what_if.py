"""Suppositions, and the outcome of decisions on them, as they are asked and answered.

`explain.what_if` answers; the command, the page and the demo print it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from stellwerk.errors import ConfigurationError
from stellwerk.models.answers.answer import PortAnswer
from stellwerk.models.answers.pod import RecomputedExplanation
from stellwerk.models.json_values import JsonObject

MOST_NODES: Final = 1000
_FIELDS: Final = frozenset({"pod", "addNodes", "count", "drain", "profile"})


@dataclass(frozen=True, slots=True)
class Supposition(PortAnswer):
    """A question: the supposed pod, nodes, profile or drain."""

    pod: JsonObject | None = None
    """Decide for this one; absent: for those that a drain evicts, or all that wait."""
    add_nodes: Sequence[JsonObject] = ()
    """Nodes that there were, too."""
    count: int = 1
    """So many of each node."""
    drain: str = ""
    """A node that is drained."""
    profile: JsonObject | None = None
    """A SchedulerProfile that decides instead of the served one."""

    @classmethod
    def of(cls, body: object) -> "Supposition":
        """Read a request.

        Raises:
            ConfigurationError: it is malformed, or asks for too much.
        """
        if not isinstance(body, dict) or not _FIELDS.issuperset(body):
            raise ConfigurationError(
                f"expected an object with some of {', '.join(sorted(_FIELDS))}"
            )
        nodes, count = body.get("addNodes") or (), body.get("count", 1)
        if not isinstance(nodes, list | tuple) or not isinstance(count, int) or count < 1:
            raise ConfigurationError("addNodes is a list of nodes, count a number above 0")
        if len(nodes) * count > MOST_NODES:
            raise ConfigurationError(f"no more than {MOST_NODES} nodes can be added")
        pod, profile = body.get("pod"), body.get("profile")
        if not all(isinstance(each, dict | None) for each in (pod, profile)):
            raise ConfigurationError("pod and profile are objects")
        if not all(isinstance(each, dict) for each in nodes):
            raise ConfigurationError("addNodes is a list of nodes")
        return cls(pod, nodes, count, str(body.get("drain") or ""), profile)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedPod(PortAnswer):
    """A pod that gets a node."""

    pod: str
    node: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WouldPreempt(PortAnswer):
    """The victims that a pod without a node would preempt."""

    node: str
    victims: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class UnplacedPod(PortAnswer):
    """A pod that gets no node."""

    pod: str
    message: str
    would_preempt: WouldPreempt | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIf(PortAnswer):
    """Pods with their nodes, and pods without one with the reason."""

    drained: str | None = None
    compatibility: Sequence[str] = ()
    """The Kubernetes releases that the decisions followed."""
    left_out: int | None = None
    """So many pods were not looked at."""
    explanation: RecomputedExplanation | None = None
    """Of the pod that was supposed."""
    placed: Sequence[PlacedPod]
    unplaced: Sequence[UnplacedPod]
