"""Dead ends of the search for devices: branches in which too few devices are left.

`allocator` asks once a search has gone back often, so that most searches pay nothing for it.
Invariant: a branch is left out only if the search would find nothing in it, and would leave nothing
behind either, so the devices found are those of a search that tries everything. Not used where
requests share devices or counters, look at devices with adminAccess, or ask for all of them.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise, product
from math import prod
from typing import Final, TypeAlias

from stellwerk.plugins.dynamic_resources.claims import (
    AllocationError,
    AllocationRequest,
    RequestData,
)
from stellwerk.plugins.dynamic_resources.selectors import attribute_reader
from stellwerk_kube.resource_claim import DeviceConstraint
from stellwerk_kube.resource_slice import Attribute, Device

SavedState: TypeAlias = tuple[int, tuple[tuple[str, Attribute], ...]]
"""The memory of a constraint: (number of devices, values with the request of each)."""
Positions: TypeAlias = int
"""A set of candidates: one bit for the position of each."""
_MAX_CANDIDATES: Final = 512
"""Candidates of a search in which dead ends are looked for. Sets of more cost too much."""
_MAX_NEEDS: Final = 12
"""Requests that are looked at together. Every subset of them is, so twelve make 4,096."""
_MAX_TRIED_VALUES: Final = 8
"""Values of an attribute with each of which a request is tried to end. With more, none is tried."""
_MAX_KEPT_LENGTHS: Final = 4096
"""Answers that are kept before all are forgotten."""
_MAX_WAYS: Final = 16
"""Ways to choose among the alternatives of later requests that are looked at one by one."""
_MAX_STEPS_PER_BRANCH: Final = 128
"""Steps in giving values to requests that are made for one branch."""


@dataclass(frozen=True, slots=True)
class _Need:
    """The devices that a request is still to get."""

    choices: Sequence[RequestData]
    """The alternatives that are open."""
    count: int
    """At least so many."""
    positions: Positions
    """Those that it could get."""
    tried: Positions
    """Those that it would get if there were no constraints."""
    is_unfinished: bool = False
    """It has some of its devices already, or is to get the first one now."""

    def is_covered_by(self, constraint: DeviceConstraint) -> bool:
        """Whether a constraint speaks of the devices, whichever alternative is taken."""
        return all(constraint.covers(each.choice) for each in self.choices)

    @property
    def request(self) -> str:
        """The name of the request."""
        return self.choices[0].choice.request

    def has_enough_of(self, positions: Positions) -> bool:
        """Whether these candidates are enough for it."""
        return (self.positions & positions).bit_count() >= self.count

    def of(self, positions: Positions, *, tried_too: bool) -> "_Need":
        """The need where only these of its candidates are left, or are even tried."""
        left = self.positions & positions
        tried = self.tried & positions if tried_too else self.tried
        return _Need(self.choices, self.count, left, tried, self.is_unfinished)


_Needs: TypeAlias = list[_Need]
_Requests: TypeAlias = Sequence[Sequence[RequestData]]
"""For each request its choices."""


@dataclass(slots=True)
class _Values:
    """The values that the candidates have of a constraint's attribute."""

    positions: dict[Attribute, Positions]
    numbers: list[int]
    """By position the number of the value; -1: none."""
    _lengths: dict[tuple[int, Positions, Positions], int] = field(default_factory=dict)

    @classmethod
    def of(cls, constraint: DeviceConstraint, devices: Sequence[Device]) -> "_Values":
        """Read the attribute of every candidate."""
        positions: dict[Attribute, Positions] = {}
        numbers, known = [], dict[Attribute, int]()
        read = attribute_reader(constraint.attribute)
        for position, device in enumerate(devices):
            value = read(device)
            if value is None:
                numbers.append(-1)
            else:
                positions[value] = positions.get(value, 0) | 1 << position
                numbers.append(known.setdefault(value, len(known)))
        return cls(positions, numbers)

    def length_with(self, runs: int, tried: Positions, among: Positions) -> int:
        """The least number of first candidates whose sequence has so many runs of one value.

        Only candidates of `tried` count, and of these the runs in which one of `among` lies.
        More than there are candidates: all of them have fewer runs.
        """
        key = runs, tried, among
        found = self._lengths.get(key)
        if found is None:
            if len(self._lengths) >= _MAX_KEPT_LENGTHS:
                self._lengths.clear()
            found = self._lengths[key] = self._length_with(runs, tried, among)
        return found

    def _length_with(self, runs: int, tried: Positions, among: Positions) -> int:
        last, left, is_counted = -2, tried, False
        while left:
            lowest = left & -left
            left ^= lowest
            number = self.numbers[lowest.bit_length() - 1]
            if number != last:
                last, is_counted = number, False
            if not is_counted and lowest & among:
                runs, is_counted = runs - 1, True
                if not runs:
                    return lowest.bit_length()
        return len(self.numbers) + 1


@dataclass(frozen=True, slots=True)
class _OpenConstraint:
    """A constraint that what a claim still needs has to meet."""

    constraint: DeviceConstraint
    values: Sequence[tuple[str, Attribute]]
    """Those that it remembers, with the request of each."""
    covered: Sequence[int]
    """The needs of which it speaks."""
    comes_first: bool
    """Every distinctAttribute of its claim stands behind it."""


@dataclass(slots=True)
class DeadEnds:
    """The candidates that each request could get, and those that are taken."""

    allocation_request: AllocationRequest
    states: Callable[[int], Sequence[SavedState]]
    """The memory of each constraint of a claim about the devices taken."""
    last_values_only: bool
    """distinctAttribute remembers of each request the last device's value alone."""
    _could_get: dict[RequestData, Positions] = field(default_factory=dict)
    """By request the candidates that it could get if there were no constraints."""
    _eligible: dict[RequestData, Positions] = field(default_factory=dict)
    _values: dict[DeviceConstraint, _Values] = field(default_factory=dict)
    _kinds: list[Hashable] = field(default_factory=list)
    _position: dict[Device, int] = field(default_factory=dict)
    _taken: Positions = 0
    _looks: int = 0

    @classmethod
    def of(
        cls,
        allocation_request: AllocationRequest,
        devices: Sequence[Device],
        could_get: Callable[[int, RequestData, Device], bool],
        states: Callable[[int], Sequence[SavedState]],
        *,
        last_values_only: bool,
    ) -> "DeadEnds | None":
        """Those of a search over these devices; None: it has to try everything.

        Args:
            allocation_request: the claims.
            devices: the candidates.
            could_get: whether a request of the claim of that number could get a device.
            states: as the field.
            last_values_only: as the field.
        """
        found = cls(allocation_request, states, last_values_only)
        requests = [each for _, each in found._requests()]
        if (
            len(devices) > _MAX_CANDIDATES
            or any(each.choice.everything or each.choice.admin_access for each in requests)
            or any(each.traits.shareable or each.traits.consumes for each in devices)
        ):
            return None
        found._position = {device: position for position, device in enumerate(devices)}
        found._values = {
            constraint: _Values.of(constraint, devices)
            for claim in allocation_request.claims
            for constraint in claim.spec.constraints
        }
        try:
            found._look_at_devices(devices, could_get)
        except AllocationError:
            return None  # the search may come to the device for which a selector has no answer
        found._kinds = found._kinds_of(requests, len(devices))
        return found

    def _requests(self) -> Iterator[tuple[int, RequestData]]:
        for number, claim in enumerate(self.allocation_request.claims):
            for choices in claim.requests:
                for wanted in choices:
                    yield number, wanted

    def _look_at_devices(
        self, devices: Sequence[Device], could_get: Callable[[int, RequestData, Device], bool]
    ) -> None:
        known: dict[Hashable, Positions] = {}
        for number, wanted in self._requests():
            key = (
                id(wanted.device_class),
                wanted.selectors,
                wanted.choice.tolerations,
                wanted if wanted.choice.capacity else None,
            )
            if key not in known:
                known[key] = sum(
                    1 << position
                    for position, device in enumerate(devices)
                    if could_get(number, wanted, device)
                )
            positions = self._could_get[wanted] = known[key]
            for constraint in self.allocation_request.claims[number].spec.constraints:
                if constraint.covers(wanted.choice):
                    positions &= _union(self._values[constraint].positions.values())
            self._eligible[wanted] = positions

    def _kinds_of(self, requests: Sequence[RequestData], size: int) -> list[Hashable]:
        """Equal for candidates that nothing in the claims tells apart.

        Where the last values alone are remembered, what is between two candidates makes a
        difference: then those of one kind lie in one run of equal values.
        """
        distinct = [
            values.numbers for constraint, values in self._values.items() if constraint.distinct
        ]
        in_runs = self.last_values_only and bool(distinct)
        sets = {self._eligible[each] for each in requests}
        kinds: list[Hashable] = []
        run, last = 0, [-2] * len(distinct)
        for position in range(size):
            eligible = tuple([each >> position & 1 for each in sets])
            values = tuple([each.numbers[position] for each in self._values.values()])
            if in_runs:
                own = [each[position] for each in distinct]
                run, last = run + (own != last), own
            kinds.append((eligible, values, run))
        return kinds

    def kind(self, position: int) -> Hashable:
        """Equal for candidates with which the search has the same outcome, one after the other."""
        return self._kinds[position]

    def take(self, device: Device) -> None:
        """A request has got the device."""
        self._taken |= 1 << self._position[device]

    def give_back(self, device: Device) -> None:
        """It has not, after all."""
        self._taken &= ~(1 << self._position[device])

    def next_position(self, claim_index: int, wanted: RequestData, start: int) -> int:
        """The first candidate from `start` on that the request may get; -1: there is none.

        A candidate that distinctAttribute refuses, or that is refused after it, is none to leave
        out: what it remembers may change.
        """
        constraints = self.allocation_request.claims[claim_index].spec.constraints
        positions = self._could_get[wanted] & ~self._taken & -(1 << start)
        if positions and not any(each.distinct for each in constraints):
            positions &= self._for(claim_index, wanted, self.states(claim_index), "")
        return (positions & -positions).bit_length() - 1

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
        later = [claim.requests for claim in self.allocation_request.claims[claim_index:]]
        later[0] = later[0][request_index + 1 :]
        self._looks = _MAX_STEPS_PER_BRANCH
        if not self._may_be_met(claim_index, wanted, missing, start, later):
            return True
        ways = prod([len(choices) for requests in later for choices in requests])
        return 1 < ways <= _MAX_WAYS and not any(
            self._may_be_met(claim_index, wanted, missing, start, chosen)
            for chosen in _each_chosen(later)
        )

    def _may_be_met(
        self,
        claim_index: int,
        wanted: RequestData,
        missing: int,
        start: int,
        later: Sequence[_Requests],
    ) -> bool:
        """Whether there are enough devices for what is missing and `later`, by claim."""
        needs: _Needs = []
        open_constraints: list[_OpenConstraint] = []
        for number, requests in enumerate(later, claim_index):
            own: _Needs = []
            unfinished = ""
            states = self.states(number)
            if number == claim_index and missing:
                unfinished = wanted.choice.request
                after = -(1 << start)
                positions = self._for(number, wanted, states, unfinished) & after
                tried = self._tried(number, wanted, states) & after
                own.append(_Need((wanted,), missing, positions, tried, is_unfinished=True))
            for choices in requests:
                count = min([each.choice.count for each in choices])
                positions = _union(
                    [self._for(number, each, states, unfinished) for each in choices]
                )
                tried = _union([self._tried(number, each, states) for each in choices])
                own.append(_Need(choices, count, positions, tried))
            constraints = self.allocation_request.claims[number].spec.constraints
            for place, (constraint, state) in enumerate(zip(constraints, states, strict=True)):
                covered = [
                    len(needs) + index
                    for index, each in enumerate(own)
                    if each.is_covered_by(constraint)
                ]
                if covered and (constraint.distinct or not state[0]):
                    is_first = place < _first_distinct(constraints)
                    found = _OpenConstraint(constraint, state[1], covered, comes_first=is_first)
                    open_constraints.append(found)
            needs += own
        if _lacks_devices(needs):
            return False
        if len(open_constraints) > 1:
            open_constraints.sort(key=lambda each: self._number_of_values(needs, each))
        return not open_constraints or self._can_be_met(needs, open_constraints)

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
            with_value = self._values[constraint].positions
            if not constraint.distinct:
                positions &= with_value[values[0][1]]
                continue
            for request, value in values:
                if not self.last_values_only or request not in {unfinished, choice.request}:
                    positions &= ~with_value[value]
        return positions

    def _tried(
        self, claim_index: int, wanted: RequestData, states: Sequence[SavedState]
    ) -> Positions:
        """The candidates that distinctAttribute is asked about for a request.

        A matchAttribute before it refuses those with another value than it remembers.
        """
        positions = self._could_get[wanted] & ~self._taken
        constraints = self.allocation_request.claims[claim_index].spec.constraints
        first_states = states[: _first_distinct(constraints)]
        for constraint, (_, values) in zip(constraints, first_states, strict=False):
            if values and constraint.covers(wanted.choice):
                positions &= self._values[constraint].positions[values[0][1]]
        return positions

    def _number_of_values(self, needs: _Needs, constraint: "_OpenConstraint") -> int:
        """The values that a constraint may still take: the fewest are tried first."""
        if constraint.constraint.distinct:
            return _MAX_CANDIDATES + 1
        return len(self._values_with_enough(needs, constraint))

    def _values_with_enough(
        self, needs: _Needs, constraint: "_OpenConstraint"
    ) -> Sequence[Positions]:
        """By value of matchAttribute its candidates, where these could be enough."""
        covered = [needs[each] for each in constraint.covered]
        count = sum([each.count for each in covered])
        return [
            positions
            for positions in self._values[constraint.constraint].positions.values()
            if positions.bit_count() >= count
            and all(each.has_enough_of(positions) for each in covered)
        ]

    def _can_be_met(self, needs: _Needs, constraints: "Sequence[_OpenConstraint]") -> bool:
        """Whether there may be values for the constraints with which there are enough devices."""
        self._looks -= 1
        if self._looks < 0:
            return True
        if not constraints:
            return not _lacks_devices(needs)
        return any(
            self._can_be_met(narrowed, constraints[1:])
            for narrowed in self._narrowed(needs, constraints[0])
        )

    def _narrowed(self, needs: _Needs, constraint: "_OpenConstraint") -> Iterator[_Needs]:
        """The needs for each way in which the constraint may be met."""
        values, covered = self._values[constraint.constraint], constraint.covered
        if not constraint.constraint.distinct:
            if sum([needs[each].count for each in covered]) == 1:
                yield needs
                return
            for positions in self._values_with_enough(needs, constraint):
                yield _restricted(needs, covered, positions, tried_too=constraint.comes_first)
        elif self.last_values_only:
            own = [needs[each].request for each in covered if needs[each].is_unfinished]
            left = _union(values.positions.values())
            for request, value in constraint.values:
                if request not in own:
                    left &= ~values.positions[value]
            yield from self._last_values(needs, constraint, 0, left)
        elif not _lacks_values(values, [needs[each] for each in covered]):
            yield needs

    def _last_values(
        self, needs: _Needs, constraint: "_OpenConstraint", first: int, left: Positions
    ) -> Iterator[_Needs]:
        """The needs for each value that the last device of each covered request may have.

        A request gets at most one device of each run of a value: the next one is not taken until
        one with another value has been tried. `left` are the candidates with values that no
        request before the covered one of the number `first` ends with.
        """
        self._looks -= 1
        if first == len(constraint.covered) or self._looks < 0:
            yield needs
            return
        need, values = needs[constraint.covered[first]], self._values[constraint.constraint]
        tried, runs_needed = need.tried & left, need.count
        if need.is_unfinished and tried:
            own = dict(constraint.values).get(need.request)
            runs_needed += own is not None and bool(values.positions[own] & tried & -tried)
        length = 0
        if runs_needed > 1:
            length = values.length_with(runs_needed, tried, need.positions)
            if length > tried.bit_length():
                return
        if len(values.positions) > _MAX_TRIED_VALUES:
            yield from self._last_values(needs, constraint, first + 1, left)
            return
        later = constraint.covered[first + 1 :]
        for positions in values.positions.values():
            ending = need.positions & positions & left
            if ending and ending.bit_length() >= length:
                narrowed = _restricted(needs, later, ~positions, tried_too=False)
                yield from self._last_values(narrowed, constraint, first + 1, left & ~positions)


def _first_distinct(constraints: Sequence[DeviceConstraint]) -> int:
    """The place of the first distinctAttribute, or the number of constraints."""
    for place, each in enumerate(constraints):
        if each.distinct:
            return place
    return len(constraints)


def _each_chosen(later: Sequence[_Requests]) -> Iterator[Sequence[_Requests]]:
    """The requests, by claim, with one alternative of each."""
    ends = [0, *accumulate(map(len, later))]
    every = [[(each,) for each in choices] for requests in later for choices in requests]
    for chosen in product(*every):
        yield [chosen[start:end] for start, end in pairwise(ends)]


def _restricted(
    needs: _Needs, covered: Iterable[int], positions: Positions, *, tried_too: bool
) -> _Needs:
    """The needs, of which the covered ones choose from these candidates only."""
    narrowed = list(needs)
    for index in covered:
        narrowed[index] = narrowed[index].of(positions, tried_too=tried_too)
    return narrowed


def _lacks_devices(needs: Iterable[_Need]) -> bool:
    """Whether some of the needs together ask for more devices than they can have."""
    return _too_few((need.count, need.positions) for need in needs)


def _lacks_values(values: _Values, needs: Iterable[_Need]) -> bool:
    """Whether some of the needs together ask for more devices than there are values for them."""
    with_value = values.positions.values()
    if all(each.bit_count() == 1 for each in with_value):
        return False
    return _too_few(
        (need.count, _indexes(need.positions & each for each in with_value)) for need in needs
    )


def _too_few(needs: Iterable[tuple[int, int]]) -> bool:
    """Whether some of the needs together ask for more than there is (Hall's condition).

    A need is (how many, the set to choose from); sets are bits.
    """
    merged: dict[int, int] = {}
    for count, every in needs:
        merged[every] = merged.get(every, 0) + count
    sums = [(0, 0)]
    for every, count in list(merged.items())[:_MAX_NEEDS]:
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
