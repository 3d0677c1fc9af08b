"""Eviction thresholds, as a KubeletConfiguration gives them, and allocatable.

Read from the file of `--kubelet-config`. Invariant: where the file names one hard threshold, those
that it does not name are off, as the kubelet has it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from stellwerk_cluster.apimachinery.objects import EMPTY
from stellwerk_kube.errors import ConfigurationError
from stellwerk_kube.quantity import parse_quantity, resource_amount

if TYPE_CHECKING:
    from collections.abc import Mapping
    from fractions import Fraction

    from stellwerk_kube.json_values import JsonObject

MEMORY, PIDS = "memory.available", "pid.available"
NODEFS, NODEFS_INODES = "nodefs.available", "nodefs.inodesFree"
IMAGEFS, IMAGEFS_INODES = "imagefs.available", "imagefs.inodesFree"
CONTAINERFS, CONTAINERFS_INODES = "containerfs.available", "containerfs.inodesFree"
SIGNALS: Final = (
    MEMORY,
    NODEFS,
    NODEFS_INODES,
    IMAGEFS,
    IMAGEFS_INODES,
    CONTAINERFS,
    CONTAINERFS_INODES,
    PIDS,
)
RESOURCE_OF: Final = {
    MEMORY: "memory",
    PIDS: "pids",
    **dict.fromkeys((NODEFS, IMAGEFS, CONTAINERFS), "ephemeral-storage"),
    **dict.fromkeys((NODEFS_INODES, IMAGEFS_INODES, CONTAINERFS_INODES), "inodes"),
}
CONDITION_OF: Final = {
    signal: {"memory": "MemoryPressure", "pids": "PIDPressure"}.get(resource, "DiskPressure")
    for signal, resource in RESOURCE_OF.items()
}
_DEFAULT_HARD: Final = {
    MEMORY: "100Mi",
    NODEFS: "10%",
    NODEFS_INODES: "5%",
    IMAGEFS: "15%",
    IMAGEFS_INODES: "5%",
}
_DURATION: Final = re.compile(r"(?:\d+(?:\.\d+)?(?:h|ms|m|s))+", re.ASCII)
_DURATION_PART: Final = re.compile(r"(\d+(?:\.\d+)?)(h|ms|m|s)", re.ASCII)
_UNIT_SECONDS: Final = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}


@dataclass(frozen=True, slots=True)
class ThresholdValue:
    """A quantity, or a share of what there is."""

    quantity: int = 0
    share: Fraction | None = None

    def of(self, capacity: int) -> int:
        """In the unit of the capacity."""
        return self.quantity if self.share is None else int(capacity * self.share)


@dataclass(frozen=True, slots=True)
class Threshold:
    """One signal, and below which amount of it the kubelet acts."""

    signal: str
    amount: ThresholdValue
    grace_seconds: float | None = None
    """Time that a soft threshold is met before pods go; None: a hard one."""
    minimum_reclaim: ThresholdValue = field(default_factory=ThresholdValue)

    @property
    def hard(self) -> bool:
        """Whether pods go at once."""
        return self.grace_seconds is None

    def is_met(self, available: int, capacity: int, *, until_reclaimed: bool = False) -> bool:
        """Whether there is too little, or not yet so much more as is to be reclaimed."""
        wanted = self.amount.of(capacity)
        if until_reclaimed:
            wanted += self.minimum_reclaim.of(capacity)
        return available < wanted


def _default_thresholds() -> tuple[Threshold, ...]:
    return tuple(Threshold(signal, _amount(text)) for signal, text in _DEFAULT_HARD.items())


@dataclass(frozen=True, slots=True)
class KubeletConfiguration:
    """The part of a KubeletConfiguration about eviction and allocatable."""

    thresholds: tuple[Threshold, ...] = field(default_factory=_default_thresholds)
    transition_seconds: float = 300.0
    """Time that a condition stays after its thresholds are no longer met."""
    max_pod_grace_seconds: int = 0
    """The grace of pods that a soft threshold evicts, at most."""
    reserved: Mapping[str, int] = field(default_factory=dict)
    """Amounts that system and kube keep for themselves, cpu in millicores."""
    memory_notification: bool = False
    """Whether the kernel says at once when memory falls below a threshold."""

    def allocatable(self, capacity: Mapping[str, str]) -> dict[str, str]:
        """The capacity of a node less what is reserved, and the hard thresholds."""
        allocatable = {}
        for name, text in capacity.items():
            total = resource_amount(name, text)
            kept = self.reserved.get(name, 0) + self._hard(name, total)
            if not kept:
                allocatable[name] = text
            else:
                left = max(0, total - kept)
                allocatable[name] = f"{left}m" if name == "cpu" else binary_quantity(left)
        return allocatable

    def _hard(self, resource: str, capacity: int) -> int:
        signal = {"memory": MEMORY, "ephemeral-storage": NODEFS}.get(resource)
        amounts = [each.amount for each in self.thresholds if each.hard and each.signal == signal]
        return amounts[0].of(capacity) if amounts else 0


def parse_configuration(document: object, file: str) -> KubeletConfiguration:
    """The configuration in a file's content.

    Raises:
        ConfigurationError: it is none, or the kubelet would not start with it.
    """
    where = f"--kubelet-config {file}"
    if not isinstance(document, dict) or document.get("kind") != "KubeletConfiguration":
        raise ConfigurationError(f"{where}: expected a KubeletConfiguration")
    try:
        return KubeletConfiguration(
            _thresholds(document),
            _seconds(document.get("evictionPressureTransitionPeriod", "5m")),
            int(document.get("evictionMaxPodGracePeriod", 0)),
            _reserved(document),
            bool(document.get("kernelMemcgNotification")),
        )
    except (TypeError, ValueError, AttributeError) as error:
        raise ConfigurationError(f"{where}: {error}") from error


def _thresholds(document: JsonObject) -> tuple[Threshold, ...]:
    hard = document.get("evictionHard") or _DEFAULT_HARD
    soft = document.get("evictionSoft") or EMPTY
    graces = document.get("evictionSoftGracePeriod") or EMPTY
    reclaim = document.get("evictionMinimumReclaim") or EMPTY
    for signal in (*hard, *soft, *graces, *reclaim):
        if signal not in SIGNALS:
            raise ValueError(f"{signal} is none of {', '.join(SIGNALS)}")
    missing = [signal for signal in soft if signal not in graces]
    if missing:
        message = f"grace period must be specified for the soft eviction threshold {missing[0]}"
        raise ValueError(message)
    least = {signal: _amount(text) for signal, text in reclaim.items()}
    found = [
        Threshold(signal, _amount(text), None, least.get(signal, ThresholdValue()))
        for signal, text in hard.items()
    ]
    found += [
        Threshold(
            signal, _amount(text), _seconds(graces[signal]), least.get(signal, ThresholdValue())
        )
        for signal, text in soft.items()
    ]
    return tuple(each for each in found if each.amount != ThresholdValue())


def _amount(text: object) -> ThresholdValue:
    """`500Mi` or `10%`; 0, 0% and 100% are no threshold."""
    given = str(text)
    if given.endswith("%"):
        share = parse_quantity(given[:-1]) / 100
        if not 0 <= share <= 1:
            raise ValueError(f"eviction percentage threshold {given} must be between 0% and 100%")
        return ThresholdValue() if share in {0, 1} else ThresholdValue(0, share)
    quantity = int(parse_quantity(given))
    if quantity < 0:
        raise ValueError(f"eviction threshold {given} must be positive")
    return ThresholdValue(quantity)


def _reserved(document: JsonObject) -> dict[str, int]:
    total: dict[str, int] = {}
    for field_name in ("systemReserved", "kubeReserved"):
        for name, text in (document.get(field_name) or EMPTY).items():
            total[name] = total.get(name, 0) + resource_amount(name, text)
    return total


def _seconds(text: object) -> float:
    given = str(text)
    if given == "0":
        return 0.0
    if not _DURATION.fullmatch(given):
        raise ValueError(f"{given!r} is not a duration")
    return sum(float(n) * _UNIT_SECONDS[unit] for n, unit in _DURATION_PART.findall(given))


def binary_quantity(amount: int) -> str:
    """A whole number with the largest binary suffix that leaves it whole."""
    suffixes = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"]
    place = 0
    while amount and amount % 1024 == 0 and place < len(suffixes) - 1:
        amount //= 1024
        place += 1
    return f"{amount}{suffixes[place]}"
