"""ElasticQuota objects, and the usage of each namespace.

Invariant: only the oldest quota of a namespace counts. If parts of a quota are invalid, the valid
parts count, and `faults` names the others.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from typing_extensions import override

from stellwerk.plugin_api import (
    Book,
    ChangeCursor,
    JsonObject,
    NodeInfo,
    ObjectStore,
    PodInfo,
    is_scalar_resource,
    resource_amount,
)
from stellwerk_plugins.quotas.amounts import (
    ALWAYS,
    UNBOUNDED,
    Amounts,
    added,
    exceeds,
    requested_by,
)

KIND: Final = "ElasticQuota"
_MAX_RESOURCES: Final = 256
"""Resources of one list in a quota. Further ones are not read."""


@dataclass(frozen=True, slots=True)
class Quota:
    """The guaranteed and the largest amounts of a namespace."""

    namespace: str
    name: str
    min: Amounts
    """Nothing where the object says nothing."""
    max: Amounts | None
    """None: without bound."""
    faults: tuple[str, ...] = field(default=(), compare=False)

    def over_max(self, used: Amounts, more: Amounts) -> bool:
        """Whether what is used is beyond the largest amount with something more."""
        if self.max is None:
            return False
        return exceeds(added(used, more), self.max, UNBOUNDED, more)

    def over_min(self, used: Amounts) -> bool:
        """Whether what is used is beyond the guaranteed amount: something is borrowed."""
        return exceeds(used, self.min, 0, used)

    def over_min_with(self, used: Amounts, more: Amounts) -> bool:
        """Whether use with something more is over the minimum."""
        return exceeds(added(used, more), self.min, 0, more)


def parse_quota(obj: JsonObject) -> Quota:
    """A scheduling.x-k8s.io/v1alpha1 ElasticQuota; raises nothing."""
    metadata = obj.get("metadata") or {}
    given = obj.get("spec")
    spec = given if isinstance(given, Mapping) else {}
    faults: list[str] = []
    lowest = _amounts(spec.get("min"), "min", faults)
    highest = _amounts(spec.get("max"), "max", faults)
    if lowest is not None and highest is not None:
        for resource, amount in lowest.items():
            if amount > highest.get(resource, 0 if resource in ALWAYS else UNBOUNDED):
                faults.append(f"spec.min.{resource} is above spec.max: not all of it can be used")
    return Quota(
        str(metadata.get("namespace") or "default"),
        str(metadata.get("name") or ""),
        lowest or {},
        highest,
        tuple(faults),
    )


def _amounts(given: object, place: str, faults: list[str]) -> Amounts | None:
    if given is None:
        return None
    amounts: dict[str, int] = {}
    if not isinstance(given, Mapping):
        faults.append(f"spec.{place} is not a list of resources: it counts as empty")
        return amounts
    for resource, text in list(given.items())[:_MAX_RESOURCES]:
        try:
            amount = resource_amount(str(resource), text)
        except (TypeError, ValueError, AttributeError):
            faults.append(f"spec.{place}.{str(resource)[:64]} is not a quantity: it is ignored")
            continue
        if amount < 0:
            faults.append(f"spec.{place}.{str(resource)[:64]} is below 0: it counts as 0")
        if resource in ALWAYS or is_scalar_resource(str(resource)):
            amounts[str(resource)] = max(0, amount)
    return amounts


class NamespaceUse(Book):
    """Requests of the pods on nodes, by namespace, and the nodes of these pods."""

    def __init__(self) -> None:
        self.used: dict[str, dict[str, int]] = {}
        """By namespace; only namespaces that have pods on nodes."""
        self.rows: dict[str, dict[int, int]] = {}
        """By namespace, the number of its pods on each row that has any."""

    @override
    def free(self, row: int, node: NodeInfo) -> None:
        for rows in self.rows.values():
            rows.pop(row, None)

    @override
    def count_pod(self, row: int, pod: PodInfo, change: int) -> None:
        namespace = pod.namespace
        used = self.used.setdefault(namespace, {})
        for resource, amount in requested_by(pod).items():
            used[resource] = used.get(resource, 0) + change * amount
            if not used[resource]:
                del used[resource]
        rows = self.rows.setdefault(namespace, {})
        rows[row] = rows.get(row, 0) + change
        if not rows[row]:
            del rows[row]
        if not rows:
            del self.rows[namespace], self.used[namespace]

    @override
    def fork(self) -> "NamespaceUse":
        fork = NamespaceUse()
        fork.used = {namespace: used.copy() for namespace, used in self.used.items()}
        fork.rows = {namespace: rows.copy() for namespace, rows in self.rows.items()}
        return fork


class Quotas:
    """The quotas of all namespaces that have one, by namespace."""

    def __init__(self, objects: ObjectStore) -> None:
        self._objects = objects
        self._cursor = ChangeCursor(objects.changes(KIND))
        self._of: dict[str, Quota] = {}
        self.doubled: dict[str, tuple[str, ...]] = {}
        """By namespace, the quotas that do not count beside the one that does."""

    def by_namespace(self) -> Mapping[str, Quota]:
        """The quotas, as the API last showed them."""
        if not self._cursor.current:
            self._cursor.catch_up()
            self._read()
        return self._of

    def _read(self) -> None:
        self._of, self.doubled = {}, {}
        for obj in sorted(self._objects.list(KIND), key=_age):
            quota = parse_quota(obj)
            if quota.namespace in self._of:
                beside = self.doubled.get(quota.namespace, ())
                self.doubled[quota.namespace] = (*beside, quota.name)
            else:
                self._of[quota.namespace] = quota


def _age(obj: JsonObject) -> str:
    return str((obj.get("metadata") or {}).get("creationTimestamp") or "")


class QuotaState:
    """Quotas and what is used of them, perhaps with pods added and taken away."""

    def __init__(self, quotas: Mapping[str, Quota], used_by: Callable[[str], Amounts]) -> None:
        self.quotas = quotas
        self._used_by = used_by
        self._changed: dict[str, dict[str, int]] = {}
        self._total: dict[str, int] | None = None

    def used(self, namespace: str) -> Amounts:
        """The sum over the pods of a namespace."""
        changed = self._changed.get(namespace)
        return self._used_by(namespace) if changed is None else changed

    def change(self, pod: PodInfo, times: int) -> None:
        """Add a pod (1) or take it away (−1)."""
        if pod.namespace not in self.quotas:
            return
        request = requested_by(pod)
        self._changed[pod.namespace] = added(self.used(pod.namespace), request, times)
        if self._total is not None:
            self._total = added(self._total, request, times)

    def copy(self) -> "QuotaState":
        """Copy the state, to be changed apart."""
        state = QuotaState(self.quotas, self._used_by)
        state._changed = {namespace: dict(used) for namespace, used in self._changed.items()}
        state._total = self.total() if self.quotas else None
        return state

    def total(self) -> dict[str, int]:
        """The sum over all quotas."""
        if self._total is None:
            self._total = summed(self.used(namespace) for namespace in self.quotas)
        return dict(self._total)

    def over_total_min(self, more: Amounts, total_min: Amounts) -> bool:
        """Whether all that is used, and something more, is beyond the sum of all guarantees."""
        used = added(self.total(), more)
        return exceeds(used, total_min, 0, used)


def summed(amounts: Iterable[Amounts]) -> dict[str, int]:
    """Amounts in sum."""
    total: dict[str, int] = {}
    for each in amounts:
        for resource, amount in each.items():
            total[resource] = total.get(resource, 0) + amount
    return total
