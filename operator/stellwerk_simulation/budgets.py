"""The PodDisruptionBudgets of a simulation: what each still allows while pods come and go.

A simulation tells it about pods. Invariant: as in a cluster whose disruption controller is never
late, and where every pod with a node is healthy, `status.disruptionsAllowed` is true whenever
preemption reads it.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Final

from stellwerk.models.json_values import JsonObject
from stellwerk.models.pod import PodInfo
from stellwerk.models.selectors import LabelSelector, parse_label_selector
from stellwerk.world.world import World
from stellwerk_simulation.manifest_errors import made

_KIND: Final = "PodDisruptionBudget"
_PERCENT: Final = "%"
_MOST_PCT: Final = 100


class Budgets:
    """Every budget of a World, with the pods that it speaks of."""

    def __init__(self, world: World, source: str) -> None:
        """Begin without pods.

        Raises:
            ConfigurationError: a budget is wrong; names it and the source.
        """
        self._objects = world.objects
        self._budgets = [made(_Budget, obj, source) for obj in world.objects.list(_KIND)]
        for budget in self._budgets:
            self._write(budget)

    def arrived(self, pod: PodInfo) -> None:
        """There is a pod more, without a node."""
        self._count(pod, expected=1)

    def bound(self, pod: PodInfo) -> None:
        """It has a node."""
        self._count(pod, healthy=1)

    def gone(self, pod: PodInfo) -> None:
        """There is one less, which had a node or not."""
        self._count(pod, expected=-1, healthy=-1 if pod.node_name else 0)

    def _count(self, pod: PodInfo, expected: int = 0, healthy: int = 0) -> None:
        for budget in self._of(pod):
            budget.counts["expected"] += expected
            budget.counts["healthy"] += healthy
            self._write(budget)

    def _of(self, pod: PodInfo) -> Iterator["_Budget"]:
        return (budget for budget in self._budgets if budget.speaks_of(pod))

    def _write(self, budget: "_Budget") -> None:
        status = {"disruptionsAllowed": budget.allowed()}
        self._objects.set(_KIND, {**budget.obj, "status": status})


class _Budget:
    """One budget, and how many pods it speaks of."""

    def __init__(self, obj: JsonObject) -> None:
        """Read it.

        Raises:
            KeyError, TypeError, ValueError, AttributeError: it is wrong.
        """
        self.obj = obj
        self._namespace = obj["metadata"].get("namespace") or "default"
        spec = obj.get("spec") or {}
        self._selector: LabelSelector | None = parse_label_selector(spec.get("selector"))
        self._least, self._most_away = spec.get("minAvailable"), spec.get("maxUnavailable")
        self.counts: Counter[str] = Counter()
        """Of its pods: all of them are expected, those with a node are healthy."""
        self.allowed()

    def speaks_of(self, pod: PodInfo) -> bool:
        """Whether it protects the pod."""
        if self._selector is None or pod.namespace != self._namespace:
            return False
        return self._selector.matches(pod.labels)

    def allowed(self) -> int:
        """How many of its pods may be disrupted now."""
        expected, healthy = self.counts["expected"], self.counts["healthy"]
        if self._most_away is None:
            desired = _absolute(1 if self._least is None else self._least, expected)
        else:
            desired = max(0, expected - _absolute(self._most_away, expected))
        return max(0, healthy - desired)


def _absolute(value: object, total: int) -> int:
    """A number of pods, or a percentage of them, rounded up.

    Raises:
        ValueError: it is neither.
    """
    text = str(value)
    share = text.removesuffix(_PERCENT)
    if not (share.isascii() and share.isdecimal()) or len(share) > len(str(1 << 31)):
        raise ValueError(f"{text[:40]!r} is neither a number of pods nor a percentage")
    return int(share) if share == text else -(-int(share) * total // _MOST_PCT)
