"""The amounts that a pod requests, or may use, in all, and the QoS class that follows from them.

Defaults of the API and the embedded cluster's admission, quotas and validation ask. Amounts are
those of all containers together, as kube-scheduler counts them. Invariant: a pod is read here,
never changed; sums are exact and become text, in canonical form, only at the end.
"""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Final

from stellwerk_kube.quantity import parse_quantity, quantity_text

if TYPE_CHECKING:
    from stellwerk_kube.json_values import JsonObject

_EMPTY: Final[JsonObject] = {}


class Amounts:
    """Amounts by resource; a text is remembered for the form of its sum, binary or decimal."""

    def __init__(self) -> None:
        """Nothing of anything."""
        self.values: dict[str, Fraction] = {}
        self._like: dict[str, str] = {}

    def add(self, amounts: JsonObject) -> None:
        """Add amounts as an object has them."""
        for name, text in amounts.items():
            before = self.values.get(name, Fraction(0))
            self.values[name] = before + parse_quantity(text)
            if not before:
                self._like[name] = str(text)

    def plus(self, amounts: JsonObject) -> Amounts:
        """These amounts and some more."""
        more = Amounts()
        more.values, more._like = dict(self.values), dict(self._like)
        more.add(amounts)
        return more

    def raise_to(self, other: Amounts) -> None:
        """Keep the larger of two amounts of each resource."""
        for name, value in other.values.items():
            if value > self.values.get(name, Fraction(-1)):
                self.values[name] = value
                self._like[name] = other._like[name]

    def texts(self) -> dict[str, str]:
        """The amounts in canonical form."""
        return {
            name: quantity_text(value, like=self._like[name]) for name, value in self.values.items()
        }


def pod_amounts(spec: JsonObject, part: str, *, whole_pod: bool = True) -> dict[str, str]:
    """The `requests` or `limits` of a pod, with sidecars and overhead.

    `whole_pod` False leaves out what the pod says for itself: its own resources and overhead.
    """
    running, total = Amounts(), Amounts()
    for container in spec.get("containers") or ():
        total.add(_of(container, part))
    starting = Amounts()
    for container in spec.get("initContainers") or ():
        if container.get("restartPolicy") == "Always":
            running.add(_of(container, part))
            total.add(_of(container, part))
            starting.raise_to(running)
        else:
            starting.raise_to(running.plus(_of(container, part)))
    total.raise_to(starting)
    if not whole_pod:
        return total.texts()
    own = (spec.get("resources") or _EMPTY).get(part) or _EMPTY
    for name, text in own.items():
        total.values.pop(name, None)
        total.add({name: text})
    overhead = spec.get("overhead") or _EMPTY
    if part == "limits":
        # A limit that is not there stays unlimited.
        overhead = {name: each for name, each in overhead.items() if name in total.values}
    total.add(overhead)
    return total.texts()


def _of(container: JsonObject, part: str) -> JsonObject:
    amounts: JsonObject = (container.get("resources") or _EMPTY).get(part) or _EMPTY
    return amounts


def qos_class(spec: JsonObject) -> str:
    """BestEffort without amounts, Guaranteed if every limit is its request, else Burstable.

    A pod's own resources count if they name an amount, as from 1.37 on (`ComputePodQOS`).
    """
    holders = [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]
    own = spec.get("resources") or _EMPTY
    if own.get("requests") or own.get("limits"):
        holders = [spec]
    pairs = [
        (
            resource,
            (each.get("resources") or _EMPTY).get("requests"),
            (each.get("resources") or _EMPTY).get("limits"),
        )
        for each in holders
        for resource in ("cpu", "memory")
    ]
    amounts = [
        ((requests or _EMPTY).get(name, "0"), (limits or _EMPTY).get(name, "0"))
        for name, requests, limits in pairs
    ]
    if all(request == limit == "0" for request, limit in amounts):
        return "BestEffort"
    if all(limit != "0" and _equal(request, limit) for request, limit in amounts):
        return "Guaranteed"
    return "Burstable"


def _equal(request: str, limit: str) -> bool:
    return request == limit or parse_quantity(request) == parse_quantity(limit)
