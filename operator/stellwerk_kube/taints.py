"""Taints and tolerations: their scalar meaning, written once.

Evaluated once per distinct taint set by TaintToleration, by queueing hints and by the embedded
cluster. Invariant: both are immutable and hashable.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from stellwerk_kube.json_values import JsonObject, number_or_none, text, text_or_empty

NO_SCHEDULE: Final = "NoSchedule"
PREFER_NO_SCHEDULE: Final = "PreferNoSchedule"
NO_EXECUTE: Final = "NoExecute"
TAINT_EFFECTS: Final = (NO_SCHEDULE, PREFER_NO_SCHEDULE, NO_EXECUTE)
TOLERATION_OPERATORS: Final = ("Equal", "Exists", "Lt", "Gt")
UNSCHEDULABLE_TAINT_KEY: Final = "node.kubernetes.io/unschedulable"
_MAX_COMPARISONS: Final = 256
"""Comparisons of taints with tolerations that are made one by one. Beyond it, tolerations are
looked up by key."""


@dataclass(frozen=True, slots=True)
class Taint:
    """A taint: it keeps pods off a node unless they tolerate it."""

    key: str
    value: str
    effect: str


@dataclass(frozen=True, slots=True)
class Toleration:
    """A toleration: it lets a pod stand the taints that it matches.

    An empty key with Exists tolerates every key, an empty effect every effect.
    """

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None

    def tolerates(self, taint: Taint) -> bool:
        """Whether the taint is tolerated (`ToleratesTaint`, v1.36: no comparison operators)."""
        if self.effect and self.effect != taint.effect:
            return False
        if self.key and self.key != taint.key:
            return False
        if self.operator == "Exists":
            return True
        return self.operator == "Equal" and self.value == taint.value


def parse_taints(taints: Sequence[JsonObject] | None) -> tuple[Taint, ...]:
    """spec.taints of a node."""
    return tuple(
        Taint(text(item["key"]), text_or_empty(item.get("value")), text(item["effect"]))
        for item in taints or ()
    )


def parse_tolerations(tolerations: Sequence[JsonObject] | None) -> tuple[Toleration, ...]:
    """spec.tolerations of a pod."""
    return tuple(
        Toleration(
            text_or_empty(item.get("key")),
            text_or_empty(item.get("operator")) or "Equal",
            text_or_empty(item.get("value")),
            text_or_empty(item.get("effect")),
            number_or_none(item.get("tolerationSeconds")),
        )
        for item in tolerations or ()
    )


def tolerated_seconds(taints: Iterable[Taint], tolerations: Collection[Toleration]) -> float | None:
    """The seconds for which a pod stands the NoExecute taints of its node; None: without end.

    The taint eviction controller's `GetMinTolerationTime` (v1.36): each taint that no toleration
    stands ends it at once, and the shortest toleration counts.
    """
    shortest: float | None = None
    for taint in taints:
        if taint.effect != NO_EXECUTE:
            continue
        matching = [each for each in tolerations if each.tolerates(taint)]
        if not matching:
            return 0.0
        limits = [
            each.toleration_seconds for each in matching if each.toleration_seconds is not None
        ]
        if limits:
            shortest = min(limits) if shortest is None else min(shortest, *limits)
    return shortest


def untolerated(
    taints: Iterable[Taint], tolerations: Collection[Toleration], effects: Collection[str]
) -> list[Taint]:
    """The taints of the given effects that no toleration stands, in order."""
    considered = [taint for taint in taints if taint.effect in effects]
    if len(considered) * len(tolerations) > _MAX_COMPARISONS:
        return _untolerated_of_many(considered, tolerations)
    return [
        taint
        for taint in considered
        if not any(toleration.tolerates(taint) for toleration in tolerations)
    ]


def _untolerated_of_many(taints: list[Taint], tolerations: Collection[Toleration]) -> list[Taint]:
    """The untolerated taints by look-ups, since comparing each with each takes seconds."""
    every, stood = set[tuple[str, str]](), set[tuple[str, str, str]]()
    for each in tolerations:
        if each.operator == "Exists":
            every.add((each.key, each.effect))
        elif each.operator == "Equal":
            stood.add((each.key, each.value, each.effect))
    return [
        taint
        for taint in taints
        if not any(
            (key, effect) in every or (key, taint.value, effect) in stood
            for key in (taint.key, "")
            for effect in (taint.effect, "")
        )
    ]
