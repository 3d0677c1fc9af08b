"""PriorityClasses, and the priorities that admission would have given to pods without one.

Event handlers update it and give `resolve_for` to the pod parser; `decide` fills one from its case.
Invariant: a priority that was resolved for a pod stays that pod's until the pod is gone, whichever
classes are added, made default or deleted meanwhile.
"""

from dataclasses import dataclass
from typing import Final

from stellwerk.models.scheduling_spec import PREEMPT_LOWER_PRIORITY
from stellwerk_kube.json_values import JsonObject, text, text_or_empty, whole_number

NO_PRIORITY: Final = (0, PREEMPT_LOWER_PRIORITY)
"""(priority, preemption policy) of a pod without a class, if no class is the default."""


@dataclass(frozen=True, slots=True)
class PriorityClass:
    """One class, as far as pods are concerned."""

    value: int
    preemption_policy: str = PREEMPT_LOWER_PRIORITY
    global_default: bool = False

    @property
    def resolved(self) -> tuple[int, str]:
        """The priority and preemption policy of a pod of the class."""
        return self.value, self.preemption_policy


_SYSTEM: Final = {
    "system-cluster-critical": PriorityClass(2_000_000_000),
    "system-node-critical": PriorityClass(2_000_001_000),
}
"""The API server makes these itself; they hold before it shows them, and without one (`decide`)."""


class PriorityClasses:
    """Priorities and preemption policies by class name, and by pod where they were resolved.

    Of a pod with a priority of its own the name of the class is not kept.
    """

    def __init__(self) -> None:
        self._classes: dict[str, PriorityClass] = dict(_SYSTEM)
        self._resolved: dict[str, tuple[int, str]] = {}
        """By uid, what pods without a priority of their own were given."""
        self.waiting: dict[str, str] = {}
        """By uid, the class that a pod names and that is not known yet ("": the default)."""
        self._synced = False

    # --- what event handlers write --------------------------------------------------------------

    def set(self, obj: JsonObject) -> frozenset[str]:
        """Add or update a class; returns the uids of pods that asked for it before it was known.

        Those are to be parsed again.

        Raises:
            KeyError, TypeError, ValueError: the object is malformed.
        """
        name = text(obj["metadata"]["name"])
        self._classes[name] = PriorityClass(
            value=whole_number(obj["value"]),
            preemption_policy=text_or_empty(obj.get("preemptionPolicy")) or PREEMPT_LOWER_PRIORITY,
            global_default=bool(obj.get("globalDefault")),
        )
        return self._answer(name)

    def remove(self, name: str) -> None:
        """A class is gone; pods keep the priority they have. System classes cannot go."""
        self._classes.pop(name, None)
        if name in _SYSTEM:
            self._classes[name] = _SYSTEM[name]

    def synced(self) -> frozenset[str]:
        """The first list is complete; returns the uids of pods to parse again.

        Only now is it known which class is the default, if any.
        """
        self._synced = True
        return self._answer("")

    def forget(self, uid: str) -> None:
        """A pod is gone."""
        self._resolved.pop(uid, None)
        self.waiting.pop(uid, None)

    # --- what the pod parser asks ---------------------------------------------------------------

    def resolve_for(self, uid: str, name: str) -> tuple[int, str]:
        """The answer of `resolve` for a pod; one that can no longer change is kept for that pod."""
        resolved = self._resolved.get(uid)
        if resolved is None:
            resolved = self.resolve(name)
            if name in self._classes if name else self._synced:
                self.waiting.pop(uid, None)
                self._resolved[uid] = resolved
            else:
                self.waiting[uid] = name
        return resolved

    def resolve(self, name: str) -> tuple[int, str]:
        """(priority, preemption policy) of a class as of now; "" asks for the default.

        A class that does not exist gives what no class gives: admission would have refused the pod.
        """
        found = self._classes.get(name) if name else self._default()
        return found.resolved if found is not None else NO_PRIORITY

    def fork(self) -> "PriorityClasses":
        """Copy the classes and resolved priorities; neither side sees changes of the other."""
        fork = PriorityClasses()
        fork._classes, fork._resolved = self._classes.copy(), self._resolved.copy()
        fork.waiting, fork._synced = self.waiting.copy(), self._synced
        return fork

    def _default(self) -> PriorityClass | None:
        """The global default; of several the lowest counts, as at admission."""
        defaults = (each for each in self._classes.values() if each.global_default)
        return min(defaults, key=lambda each: each.value, default=None)

    def _answer(self, name: str) -> frozenset[str]:
        """The pods that waited for a class, which are then no longer held as waiting."""
        uids = frozenset(uid for uid, wanted in self.waiting.items() if wanted == name)
        for uid in uids:
            del self.waiting[uid]
        return uids
