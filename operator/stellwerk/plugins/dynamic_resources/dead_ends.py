"""Dead ends of the search for devices: branches in which too few devices are left.

`allocator` asks once a search has gone back often, so that most searches pay nothing for it.
Invariant: a branch is left out only if the search would find nothing in it, and would leave nothing
behind either, so the devices found are those of a search that tries everything. Not used where
requests share devices or counters, look at devices with adminAccess, or ask for all of them.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from stellwerk.models.resource_slice import Attribute, Device
from stellwerk.plugins.dynamic_resources.claims import (
    AllocationError,
    AllocationRequest,
    DeviceConstraint,
    RequestData,
)
from stellwerk.plugins.dynamic_resources.selectors import full_attribute_of

SavedState: TypeAlias = tuple[int, tuple[tuple[str, Attribute], ...]]
"""What a constraint remembers of devices: (their number, a value by request)."""
Positions: TypeAlias = int
"""A set of candidates: one bit for the position of each."""
_MOST_CANDIDATES: Final = 512
_MOST_NEEDS: Final = 12
"""Requests that are looked at together: every subset of them is."""
_MOST_VALUES: Final = 32


@dataclass(frozen=True, slots=True)
class _Need:
    """The devices that a request is still to get."""

    choices: Sequence[RequestData]
    """The alternatives that are open."""
    count: int
    """At least so many."""
    positions: Positions
    """Those that it could get."""

    def is_covered_by(self, constraint: DeviceConstraint) -> bool:
        """Whether a constraint speaks of the devices, whichever alternative is taken."""
        return all(constraint.covers(each.choice) for each in self.choices)


@dataclass(slots=True)
class DeadEnds:
    """The candidates that each request could get, and those that are taken."""

    allocation_request: AllocationRequest
    states: Callable[[int], Sequence[SavedState]]
    """What each constraint of a claim remembers of the devices taken."""
    _eligible: dict[RequestData, Positions] = field(default_factory=dict)
    _values: dict[DeviceConstraint, dict[Attribute, Positions]] = field(default_factory=dict)
    _kinds: list[Hashable] = field(default_factory=list)
    _position: dict[Device, int] = field(default_factory=dict)
    _taken: Positions = 0
    keeps_history: bool = False
    """Whether what was tried before makes a difference: it does to distinctAttribute."""

    @classmethod
    def of(
        cls,
        allocation_request: AllocationRequest,
        devices: Sequence[Device],
        could_get: Callable[[int, RequestData, Device], bool],
        states: Callable[[int], Sequence[SavedState]],
    ) -> "DeadEnds | None":
        """Those of a search over these devices; None: it has to try everything.

        Args:
            allocation_request: the claims.
            devices: the candidates.
            could_get: whether a request of the claim of that number could get a device.
            states: as the field.
        """
        found = cls(allocation_request, states)
        requests = [each for _, each in found._requests()]
        if (
            len(devices) > _MOST_CANDIDATES
            or any(each.choice.everything or each.choice.admin_access for each in requests)
            or any(each.traits.shareable or each.traits.consumes for each in devices)
        ):
            return None
        found._position = {device: position for position, device in enumerate(devices)}
        found._look_at_values(devices)
        found.keeps_history = any(each.distinct for each in found._values)
        try:
            found._look_at_devices(devices, could_get)
        except AllocationError:
            return None  # the search may come to the device for which a selector has no answer
        found._kinds = [
            (tuple([found._eligible[each] >> position & 1 for each in requests]), values)
            for position, values in enumerate(found._values_of(devices))
        ]
        return found

    def _requests(self) -> Iterator[tuple[int, RequestData]]:
        for number, claim in enumerate(self.allocation_request.claims):
            for choices in claim.requests:
                for wanted in choices:
                    yield number, wanted

    def _look_at_values(self, devices: Sequence[Device]) -> None:
        for claim in self.allocation_request.claims:
            for constraint in claim.spec.constraints:
                values = self._values[constraint] = {}
                for position, device in enumerate(devices):
                    value = full_attribute_of(device, constraint.attribute)
                    if value is not None:
                        values[value] = values.get(value, 0) | 1 << position

    def _values_of(self, devices: Sequence[Device]) -> list[tuple[Attribute | None, ...]]:
        names = {each.attribute: None for each in self._values}
        return [tuple([full_attribute_of(each, name) for name in names]) for each in devices]

    def _look_at_devices(
        self, devices: Sequence[Device], could_get: Callable[[int, RequestData, Device], bool]
    ) -> None:
        for number, wanted in self._requests():
            positions = 0
            for position, device in enumerate(devices):
                if could_get(number, wanted, device):
                    positions |= 1 << position
            for constraint in self.allocation_request.claims[number].spec.constraints:
                if constraint.covers(wanted.choice):
                    positions &= _union(self._values[constraint].values())
            self._eligible[wanted] = positions

    def kind(self, position: int) -> Hashable:
        """Equal for candidates that nothing in the claims tells apart."""
        return self._kinds[position]

    def take(self, device: Device) -> None:
        """A request has got the device."""
        self._taken |= 1 << self._position[device]

    def give_back(self, device: Device) -> None:
        """It has not, after all."""
        self._taken &= ~(1 << self._position[device])

    # --- what is left ---------------------------------------------------------------------------

    def is_reached(
        self, claim_index: int, request_index: int, wanted: RequestData, missing: int, start: int
    ) -> bool:
        """Whether the requests that are still to be met cannot all be, whatever they are given.

        Args:
            claim_index: the claim that is being looked at.
            request_index: its request that is.
            wanted: the alternative of that request.
            missing: the devices that it still has to get.
            start: the first candidate for them.
        """
        needs: list[_Need] = []
        for number, claim in enumerate(self.allocation_request.claims):
            if number < claim_index:
                continue
            own, first = [], 0
            states = self.states(number)
            if number == claim_index:
                first = request_index + 1
                if missing:
                    positions = self._for(number, wanted, states, wanted.choice.request)
                    own.append(_Need((wanted,), missing, positions & -(1 << start)))
            unfinished = wanted.choice.request if own else ""
            for choices in claim.requests[first:]:
                count = min(each.choice.count for each in choices)
                positions = _union(self._for(number, each, states, unfinished) for each in choices)
                own.append(_Need(choices, count, positions))
            if self._values_run_out(claim.spec.constraints, states, own):
                return True
            needs += own
        return _too_few((need.count, need.positions) for need in needs)

    def _for(
        self,
        claim_index: int,
        wanted: RequestData,
        states: Sequence[SavedState],
        unfinished: str,
    ) -> Positions:
        """The candidates that a request could get beside what is taken.

        `unfinished` is the request whose last device is not known yet.
        """
        positions, choice = self._eligible[wanted] & ~self._taken, wanted.choice
        constraints = self.allocation_request.claims[claim_index].spec.constraints
        for constraint, (_, values) in zip(constraints, states, strict=True):
            if not values or not constraint.covers(choice):
                continue
            with_value = self._values[constraint]
            if constraint.distinct:
                for request, value in values:
                    if request not in {unfinished, choice.request}:
                        positions &= ~with_value[value]
            else:
                positions &= with_value[values[0][1]]
        return positions

    def _values_run_out(
        self,
        constraints: Sequence[DeviceConstraint],
        states: Sequence[SavedState],
        needs: Sequence[_Need],
    ) -> bool:
        """Whether a constraint leaves too few values for what a claim still needs."""
        for constraint, (count, _) in zip(constraints, states, strict=True):
            with_value = self._values[constraint].values()
            covered = [each for each in needs if each.is_covered_by(constraint)]
            if not covered:
                continue
            if constraint.distinct:
                # Each request ends with another value.
                if len(with_value) <= _MOST_VALUES and _too_few(
                    (1, _indexes(each.positions & having for having in with_value))
                    for each in covered
                ):
                    return True
            elif not count:
                every = _union(each.positions for each in covered)
                most = max(((every & having).bit_count() for having in with_value), default=0)
                if sum(each.count for each in covered) > most:
                    return True
        return False


def _too_few(needs: Iterable[tuple[int, int]]) -> bool:
    """Whether some of the needs together ask for more than there is (Hall's condition).

    A need is (how many, the set to choose from); sets are bits.
    """
    merged: dict[int, int] = {}
    for count, every in needs:
        merged[every] = merged.get(every, 0) + count
    sums = [(0, 0)]
    for every, count in list(merged.items())[:_MOST_NEEDS]:
        with_it = [(total + count, union | every) for total, union in sums]
        if any(total > union.bit_count() for total, union in with_it):
            return True
        sums += with_it
    return False


def _indexes(sets: Iterable[int]) -> int:
    """The numbers of the sets that are not empty, as bits."""
    return sum(1 << index for index, each in enumerate(sets) if each)


def _union(sets: Iterable[Positions]) -> Positions:
    every = 0
    for each in sets:
        every |= each
    return every
