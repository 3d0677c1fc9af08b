"""The search for devices on one node: depth first, the first solution counts.

`node_verdicts` starts one search for each node whose answer is not known. The search tries claims,
requests and alternatives in their order, devices in the order of `NodePools`, and the devices of
one request as combinations. `allocating_state` counts what it takes, `constraints` says which
devices go together, `search_returns` gives back what it does not keep, and `dead_ends` cuts
branches off.

A search is a stack of frames, because claims may ask for more devices than Python nests calls. A
frame is one decision: a device, a list of alternatives, the end of a claim. `start` and `resume`
answer with an outcome or with the frame to run first; `Allocator._drive` runs them.

Invariant: a search leaves nothing behind but its answer, and never gives out more than there is.
Source: the allocator that v1.36 uses by default ("incubating"), with what v1.37 mends in it.
"""

from collections.abc import (
    Callable,
    Generator,
    Hashable,
    Iterator,
)
from dataclasses import dataclass, field
from enum import Enum, auto
from itertools import islice
from typing import Final, Protocol, TypeAlias

from typing_extensions import override

from stellwerk.plugins.dynamic_resources.allocating_state import AllocatingState
from stellwerk.plugins.dynamic_resources.claims import (
    AllocationError,
    AllocationRequest,
    RequestData,
)
from stellwerk.plugins.dynamic_resources.constraints import (
    ConstraintState,
    constraint_states,
    remembers_last_values_only,
)
from stellwerk.plugins.dynamic_resources.dead_ends import DeadEnds
from stellwerk.plugins.dynamic_resources.resource_pools import NodePools, Pool
from stellwerk.plugins.dynamic_resources.search_returns import (
    RECORDED,
    REPAIRED,
    DeviceInPool,
    RefusedDevice,
    Returns,
)
from stellwerk_kube.compatibility import ReleaseRule
from stellwerk_kube.device_capacity import Amounts
from stellwerk_kube.resource_claim import MAX_RESULTS
from stellwerk_kube.resource_slice import Device

_STEPS_PER_CLOCK_READ: Final = 32
"""Steps between two readings of the clock. A step takes microseconds, less than reading costs."""
_MAX_GIVEN_BACK: Final = 4
"""Devices that are given back before the search looks for dead ends: most searches need none."""

# --- the limit of time --------------------------------------------------------------------------


class FilterTimeoutError(Exception):
    """The searches of a scheduling attempt have taken too long."""


class FilterTimeout:
    """The limit of all searches of one attempt, by the clock and in steps.

    What a claim invents ends its own search, and does not take the time of every other pod.
    """

    def __init__(self, now_seconds: Callable[[], float], seconds: float, most_steps: int) -> None:
        """`seconds`: 0 is no limit; then the steps are the only one."""
        self._now_seconds = now_seconds
        self._until_seconds = now_seconds() + seconds if seconds > 0 else None
        self._steps_left = most_steps

    def step(self) -> bool:
        """Count one more device that is tried; returns whether it is time for a pause.

        Raises:
            FilterTimeoutError: the time or the steps are used up.
        """
        self._steps_left -= 1
        if self._steps_left < 0:
            raise FilterTimeoutError
        if self._steps_left % _STEPS_PER_CLOCK_READ:
            return False
        if self._until_seconds is not None and self._now_seconds() > self._until_seconds:
            raise FilterTimeoutError
        return True


# --- the search ---------------------------------------------------------------------------------


class SearchOutcome(Enum):
    """The outcome of a part of the search."""

    FOUND = auto()
    FAILED = auto()
    """No solution, which is no error (`node_verdicts.BROKEN`)."""
    TOO_MANY = auto()
    """A claim would be given more devices than it may have."""
    PAUSED = auto()
    """None yet: the search may be interrupted here."""


@dataclass(frozen=True, slots=True)
class DeviceResult:
    """One device for one request."""

    wanted: RequestData
    device: Device
    consumed: Amounts | None
    """The part that it takes of a shared device; None: it is not shared."""
    is_charged: bool = False
    """It has taken counters."""


@dataclass(frozen=True, slots=True)
class Solution:
    """The devices for every claim."""

    results: tuple[tuple[DeviceResult, ...], ...]
    chosen: tuple[tuple[RequestData, ...], ...]
    """For every request of every claim the alternative that was taken."""
    ranks: tuple[int, ...]
    """The number of the alternative taken for each request that has alternatives."""


@dataclass(slots=True)
class Allocator:
    """One search for devices on one node."""

    allocation_request: AllocationRequest
    pools: NodePools
    allocating: AllocatingState
    timeout: FilterTimeout
    results: list[list[DeviceResult]] = field(init=False)
    """The devices that each claim is given."""
    constraints: list[list[ConstraintState]] = field(init=False)
    """The state of the constraints of each claim."""
    everything: dict[RequestData, list[DeviceInPool]] = field(default_factory=dict)
    """The devices that requests for all devices get."""
    candidates: list[DeviceInPool] = field(init=False)
    """The devices of the usable pools."""
    chosen: dict[tuple[int, int], int] = field(default_factory=dict)
    """(claim, request) → the number of the alternative."""
    selected: dict[RequestData, dict[Device, bool]] = field(init=False)
    """The answers of selectors and node selection; requests with equal selectors share them."""
    dead_ends: DeadEnds | None = None
    """The check that cuts branches short once the search has gone back often; None: nothing
    does."""
    _given_back: int = 0
    """The devices that were taken back so far."""
    _returns: Returns = field(init=False)
    """The rule for giving back devices that the search does not keep."""

    def __post_init__(self) -> None:
        claims = self.allocation_request.claims
        answers: dict[Hashable, dict[Device, bool]] = {}
        self.selected = {
            wanted: answers.setdefault((id(wanted.device_class), wanted.selectors), {})
            for claim in claims
            for choices in claim.requests
            for wanted in choices
        }
        self.results = [[] for _ in claims]
        rules = self.allocating.rules
        self.constraints = [constraint_states(claim.spec.constraints, rules) for claim in claims]
        self._returns = REPAIRED if ReleaseRule.GIVE_COUNTERS_BACK in rules else RECORDED
        self.candidates = [
            (device, pool) for pool in self.pools.pools if pool.usable for device in pool.devices()
        ]

    def search(self) -> Generator[None, None, Solution | None]:
        """Find the first solution (None: there is none); yields where it may be interrupted.

        Raises:
            AllocationError: the scheduling attempt is to end with that error.
            FilterTimeoutError: it takes too long.
        """
        for claim_index in range(len(self.allocation_request.claims)):
            yield from self._check_claim(claim_index)
        if (yield from self._drive()) is not SearchOutcome.FOUND:
            return None
        chosen = tuple(
            tuple(
                choices[self.chosen.get((claim_index, request_index), 0)]
                for request_index, choices in enumerate(claim.requests)
            )
            for claim_index, claim in enumerate(self.allocation_request.claims)
        )
        return Solution(tuple(map(tuple, self.results)), chosen, tuple(self._ranks()))

    def _ranks(self) -> Iterator[int]:
        for claim_index, claim in enumerate(self.allocation_request.claims):
            for request_index, asked in enumerate(claim.spec.requests):
                if asked.prioritized:
                    yield self.chosen[claim_index, request_index]

    def _drive(self) -> Generator[None, None, SearchOutcome]:
        """Drive the frames: each answers with its outcome, or with a frame to run first."""
        stack: list[_Frame] = []
        step = enter(self, 0, 0)
        while True:
            if not isinstance(step, SearchOutcome):
                stack.append(step)
                step = step.start()
            elif step is SearchOutcome.PAUSED:
                yield
                step = stack[-1].resume(step)
            elif stack:
                stack.pop()
                if not stack:
                    return step
                step = stack[-1].resume(step)
            else:
                return step

    # --- before the search ----------------------------------------------------------------------

    def _check_claim(self, claim_index: int) -> Generator[None, None, None]:
        """Find the devices for requests for all, and refuse more results than a claim may have."""
        least = 0
        for choices in self.allocation_request.claims[claim_index].requests:
            counts = []
            for wanted in choices:
                if wanted.choice.everything:
                    self.everything[wanted] = yield from self._everything(claim_index, wanted)
                counts.append(self.count(wanted))
            least += min(counts)
        if least > MAX_RESULTS:
            raise AllocationError(
                f": number of requested devices {least} exceeds the claim limit of {MAX_RESULTS}",
                claim=claim_index,
            )

    def _everything(
        self, claim_index: int, wanted: RequestData
    ) -> Generator[None, None, list[DeviceInPool]]:
        found: list[DeviceInPool] = []
        allocating, remaining = self.allocating, iter(self.candidates)
        has_room = allocating.has_room
        if ReleaseRule.ALL_MEANS_ALL in allocating.rules:
            has_room = allocating.is_large_enough
        for pool in self.pools.pools:
            if not pool.usable:
                refuses = ReleaseRule.ALL_REFUSES_ITS_NODE in allocating.rules
                raise _unusable(pool, claim_index, wanted, refuses_node=refuses)
            for candidate in islice(remaining, pool.size):
                if self.timeout.step():
                    yield
                device = candidate[0]
                if self.selects(claim_index, wanted, device) and has_room(
                    device, wanted.choice.capacity
                ):
                    found.append(candidate)
        return found

    def count(self, wanted: RequestData) -> int:
        """The number of devices that a request is to get."""
        if wanted.choice.everything:
            return len(self.everything[wanted])
        return wanted.choice.count

    def selects(self, claim_index: int, wanted: RequestData, device: Device) -> bool:
        """Whether a request's selectors match a device, and the device is for this node."""
        answers = self.selected[wanted]
        found = answers.get(device)
        if found is None:
            found = wanted.selects(device, claim_index)
            if found and device.source.per_device:
                found = device.reach.includes(self.pools.node)
            answers[device] = found
        return found

    # --- one device -----------------------------------------------------------------------------

    def free(self, claim_index: int, wanted: RequestData, device: Device) -> bool:
        """Whether a request may have the device, as far as its use goes."""
        if wanted.choice.admin_access:
            return not self.allocating.taken_for(device, claim_index)
        return not self.allocating.in_use(device)

    def allocate_device(
        self, claim_index: int, wanted: RequestData, candidate: DeviceInPool, *, must: bool
    ) -> bool:
        """Take a device that the request selects, if counters, taints and constraints allow it.

        That it is free and has room is known of a device that the request does not have to get.

        Raises:
            AllocationError: a constraint does not, and the request has to get it (`must`).
        """
        device, pool = candidate
        choice, allocating = wanted.choice, self.allocating
        shared_look = not must or (choice.admin_access and device.traits.shareable)
        if not shared_look and not self.free(claim_index, wanted, device):
            return False
        is_charged = allocating.is_charged(device)
        if is_charged and not allocating.charge(device, pool):
            return False
        taints = device.traits.taints
        if (taints and choice.untolerated(taints)) or not self._meets_constraints(
            claim_index, wanted, device, must=must
        ):
            self._returns.after_refusal(allocating, candidate, is_charged=is_charged)
            return False
        if must and not allocating.has_room(device, choice.capacity):
            refusal = RefusedDevice(claim_index, wanted, candidate, is_charged)
            self._returns.after_lack_of_room(allocating, refusal, self.constraints[claim_index])
            return False
        if not device.traits.shareable:
            allocating.take(device, claim_index)
        consumed = allocating.consume(device, choice.capacity) if device.traits.shareable else None
        self.results[claim_index].append(DeviceResult(wanted, device, consumed, is_charged))
        if self.dead_ends is not None:
            self.dead_ends.take(device)
        return True

    def _meets_constraints(
        self, claim_index: int, wanted: RequestData, device: Device, *, must: bool
    ) -> bool:
        """Take the device up in the claim's constraints, or in none; returns whether all let it in.

        Raises:
            AllocationError: one does not, and the request has to get the device (`must`).
        """
        choice, constraints = wanted.choice, self.constraints[claim_index]
        for position, constraint in enumerate(constraints):
            if constraint.add(choice, device):
                continue
            if must:
                raise AllocationError(
                    f", request {choice.name}: cannot add device {'/'.join(device.key)} "
                    "because a claim constraint would not be satisfied",
                    claim=claim_index,
                    request=choice.full_name,
                    of_node=True,
                )
            for added in constraints[:position]:
                added.remove(choice)
            return False
        return True

    def deallocate_device(self, claim_index: int, candidate: DeviceInPool) -> None:
        """Take back the last device that a claim was given."""
        device, pool = candidate
        result = self.results[claim_index].pop()
        for constraint in self.constraints[claim_index]:
            constraint.remove(result.wanted.choice)
        if result.consumed is None:
            self.allocating.give_back(device, claim_index)
            if result.is_charged:
                self.allocating.refund(device, pool)
        else:
            self._returns.after_share(
                self.allocating, candidate, result.consumed, is_charged=result.is_charged
            )
        self._given_back += 1
        if self.dead_ends is not None:
            self.dead_ends.give_back(device)
        elif self._given_back == _MAX_GIVEN_BACK:
            self.dead_ends = self._look_for_dead_ends()

    def _look_for_dead_ends(self) -> DeadEnds | None:
        found = DeadEnds.of(
            self.allocation_request,
            [device for device, _ in self.candidates],
            self._could_get,
            lambda claim_index: [each.saved() for each in self.constraints[claim_index]],
            last_values_only=remembers_last_values_only(self.allocating.rules),
        )
        if found is not None:
            for results in self.results:
                for result in results:
                    found.take(result.device)
        return found

    def _could_get(self, claim_index: int, wanted: RequestData, device: Device) -> bool:
        """Whether a request could get the device if no other request had it."""
        return (
            not self.allocating.is_held(device)
            and self.selects(claim_index, wanted, device)
            and self.allocating.has_room(device, wanted.choice.capacity)
            and not (device.traits.taints and wanted.choice.untolerated(device.traits.taints))
        )


def _unusable(
    pool: Pool, claim_index: int, wanted: RequestData, *, refuses_node: bool
) -> AllocationError:
    state = "being updated" if pool.incomplete else "invalid"
    return AllocationError(
        f", request {wanted.choice.name}: asks for all devices, but resource pool {pool.name} is "
        f"currently {state}",
        claim=claim_index,
        request=wanted.choice.full_name,
        of_node=True,
        refuses_node=refuses_node,
    )


# --- frames -------------------------------------------------------------------------------------


class _Frame(Protocol):
    """A part of the search that waits for the outcome of another."""

    def start(self) -> "_Step":
        """Begin."""
        ...

    def resume(self, outcome: SearchOutcome) -> "_Step":
        """Go on with the outcome of the frame that was to run first."""
        ...


_Step: TypeAlias = SearchOutcome | _Frame


def enter(allocator: Allocator, claim_index: int, request_index: int) -> _Step:
    """Begin with a request of a claim."""
    claims = allocator.allocation_request.claims
    if claim_index >= len(claims):
        return SearchOutcome.FOUND
    claim = claims[claim_index]
    if request_index >= len(claim.requests):
        return _EndOfClaim(allocator, claim_index)
    if claim.spec.requests[request_index].prioritized:
        return _Alternatives(allocator, claim_index, request_index)
    return _device(allocator, claim_index, request_index, claim.requests[request_index][0])


def _device(
    allocator: Allocator,
    claim_index: int,
    request_index: int,
    wanted: RequestData,
    number: int = 0,
    start: int = 0,
) -> _Step:
    """Begin with the device of that number of a request."""
    count = allocator.count(wanted)
    if wanted.choice.everything and not count:
        return SearchOutcome.FAILED
    if number >= count:
        return enter(allocator, claim_index, request_index + 1)
    if len(allocator.results[claim_index]) + count - number > MAX_RESULTS:
        return SearchOutcome.TOO_MANY
    return _OneDevice(allocator, claim_index, request_index, wanted, number, start)


@dataclass(slots=True)
class _EndOfClaim(_Frame):
    """All requests of a claim have their devices; the next claim follows."""

    allocator: Allocator
    claim_index: int

    @override
    def start(self) -> _Step:
        step = enter(self.allocator, self.claim_index + 1, 0)
        return self.resume(step) if isinstance(step, SearchOutcome) else step

    @override
    def resume(self, outcome: SearchOutcome) -> _Step:
        # Other devices for this claim may leave the next one an alternative with fewer.
        return SearchOutcome.FAILED if outcome is SearchOutcome.TOO_MANY else outcome


@dataclass(slots=True)
class _Alternatives(_Frame):
    """A request with alternatives: the first with which everything after it works out."""

    allocator: Allocator
    claim_index: int
    request_index: int
    _number: int = -1
    _all_too_many: bool = True

    @override
    def start(self) -> _Step:
        return self._next()

    @override
    def resume(self, outcome: SearchOutcome) -> _Step:
        return self._next() if self._failed(outcome) else outcome

    def _failed(self, outcome: SearchOutcome) -> bool:
        """Note the outcome of an alternative; returns whether the next one is to be tried."""
        if outcome is SearchOutcome.FOUND:
            self.allocator.chosen[self.claim_index, self.request_index] = self._number
            return False
        if outcome is not SearchOutcome.TOO_MANY:
            self._all_too_many = False
        return True

    def _next(self) -> _Step:
        choices = self.allocator.allocation_request.claims[self.claim_index].requests[
            self.request_index
        ]
        while self._number + 1 < len(choices):
            self._number += 1
            step = _device(
                self.allocator, self.claim_index, self.request_index, choices[self._number]
            )
            if not isinstance(step, SearchOutcome) or not self._failed(step):
                return step
        return SearchOutcome.TOO_MANY if self._all_too_many else SearchOutcome.FAILED


@dataclass(slots=True)
class _OneDevice(_Frame):
    """One device of a request: the candidates one after the other."""

    allocator: Allocator
    claim_index: int
    request_index: int
    wanted: RequestData
    number: int
    position: int
    """The position of the next candidate."""
    _taken: DeviceInPool | None = None
    _hopeless: frozenset[Hashable] = frozenset()
    """The kinds of candidates with which nothing was found."""

    @override
    def start(self) -> _Step:
        return self._only() if self.wanted.choice.everything else self._next()

    @override
    def resume(self, outcome: SearchOutcome) -> _Step:
        if outcome is SearchOutcome.PAUSED:
            return self._next()
        if outcome is SearchOutcome.FOUND:
            return outcome
        if self._taken is not None:
            self._give_back(self._taken)
            self._taken = None
        if outcome is SearchOutcome.TOO_MANY or self.wanted.choice.everything or self._is_over():
            return outcome
        return self._next()

    def _only(self) -> _Step:
        """Take the device that is due: a request for all has no choice."""
        candidate = self.allocator.everything[self.wanted][self.number]
        self.allocator.timeout.step()
        if not self.allocator.allocate_device(self.claim_index, self.wanted, candidate, must=True):
            return SearchOutcome.FAILED
        return self._go_on_with(candidate)

    def _next(self) -> _Step:
        """Go on with the next candidate that can be taken."""
        candidates = self.allocator.candidates
        while self._has_candidate():
            if self.allocator.timeout.step():
                return SearchOutcome.PAUSED
            candidate = candidates[self.position]
            self.position += 1
            if self._takes(candidate):
                step = self._go_on_with(candidate)
                if step is not SearchOutcome.FAILED:
                    return step
                if self._is_over():
                    return step
        return SearchOutcome.FAILED

    def _has_candidate(self) -> bool:
        """Whether there is a next candidate, without those that cannot help."""
        dead_ends = self.allocator.dead_ends
        if dead_ends is None:
            return self.position < len(self.allocator.candidates)
        position = dead_ends.next_position(self.claim_index, self.wanted, self.position)
        while position >= 0 and dead_ends.kind(position) in self._hopeless:
            position = dead_ends.next_position(self.claim_index, self.wanted, position + 1)
        if position >= 0:
            self.position = position
        return position >= 0

    def _is_dead_end(self, dead_ends: DeadEnds, number: int) -> bool:
        """Whether the devices from that number on cannot be found, nor those of later requests."""
        return dead_ends.is_reached(
            self.claim_index,
            self.request_index,
            self.wanted,
            self.allocator.count(self.wanted) - number,
            self.position,
        )

    def _is_over(self) -> bool:
        """Whether no further candidate can help."""
        dead_ends = self.allocator.dead_ends
        return dead_ends is not None and self._is_dead_end(dead_ends, self.number)

    def _give_back(self, candidate: DeviceInPool) -> None:
        """Give the last candidate back, with which nothing was found."""
        self.allocator.deallocate_device(self.claim_index, candidate)
        dead_ends = self.allocator.dead_ends
        if dead_ends is not None:
            self._hopeless |= {dead_ends.kind(self.position - 1)}

    def _takes(self, candidate: DeviceInPool) -> bool:
        """Take the candidate if it can be; dead ends leave out those that are not for it."""
        allocator, claim_index, wanted = self.allocator, self.claim_index, self.wanted
        device = candidate[0]
        return (
            allocator.dead_ends is not None
            or (
                allocator.free(claim_index, wanted, device)
                and allocator.selects(claim_index, wanted, device)
                and allocator.allocating.has_room(device, wanted.choice.capacity)
            )
        ) and allocator.allocate_device(claim_index, wanted, candidate, must=False)

    def _go_on_with(self, candidate: DeviceInPool) -> _Step:
        """Search for the rest after taking a device, which is given back where that fails."""
        number, dead_ends = self.number + 1, self.allocator.dead_ends
        if dead_ends is not None and self._is_dead_end(dead_ends, number):
            self.allocator.deallocate_device(self.claim_index, candidate)
            self._hopeless |= {dead_ends.kind(self.position - 1)}
            return SearchOutcome.FAILED
        step = _device(
            self.allocator,
            self.claim_index,
            self.request_index,
            self.wanted,
            number,
            self.position,
        )
        if not isinstance(step, SearchOutcome):
            self._taken = candidate
        elif step is not SearchOutcome.FOUND:
            self._give_back(candidate)
        return step
