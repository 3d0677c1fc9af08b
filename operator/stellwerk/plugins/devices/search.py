"""The search for devices on one node: depth first, the first solution counts.

The plugin runs one per node whose answer is not known. Claims, requests and alternatives are taken
in their order, devices in the order of `NodePools`, the devices of one request as combinations.
Invariant: a search leaves nothing behind but its answer, whatever ends it; it keeps a stack of its
own, for claims may ask for more devices than Python nests calls. Source: the allocator that is in
use by default in v1.36 ("incubating").
"""

from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from enum import Enum, auto
from itertools import islice
from typing import Protocol, TypeAlias

from typing_extensions import override

from stellwerk.models.device_capacity import Amounts
from stellwerk.models.resource_slice import Device
from stellwerk.plugins.devices.allocated import Allocated
from stellwerk.plugins.devices.claims import MOST_RESULTS
from stellwerk.plugins.devices.constraints import DeviceSet, device_sets
from stellwerk.plugins.devices.ledger import Ledger
from stellwerk.plugins.devices.patience import Patience
from stellwerk.plugins.devices.pools import NodePools, Pool
from stellwerk.plugins.devices.task import AllocationError, Task, Wanted

Candidate: TypeAlias = tuple[Device, Pool]


class Outcome(Enum):
    """What came of a part of the search."""

    FOUND = auto()
    FAILED = auto()
    TOO_MANY = auto()
    """A claim would be given more devices than it may have."""
    PAUSED = auto()
    """Nothing yet: others may have a turn first."""


@dataclass(frozen=True, slots=True)
class Result:
    """One device for one request."""

    wanted: Wanted
    device: Device
    consumed: Amounts | None
    """What it takes of a shared device; None: it is not shared."""


@dataclass(frozen=True, slots=True)
class Solution:
    """The devices for every claim."""

    results: tuple[tuple[Result, ...], ...]
    chosen: tuple[tuple[Wanted, ...], ...]
    """For every request of every claim the alternative that was taken."""
    ranks: tuple[int, ...]
    """The number of the alternative taken for each request that has alternatives."""


@dataclass(slots=True)
class Search:
    """One search on one node."""

    task: Task
    pools: NodePools
    ledger: Ledger
    patience: Patience
    results: list[list[Result]] = field(init=False)
    """For each claim what it is given."""
    sets: list[list[DeviceSet]] = field(init=False)
    """For each claim its constraints."""
    everything: dict[Wanted, list[Candidate]] = field(default_factory=dict)
    """What requests for all devices get."""
    candidates: list[Candidate] = field(init=False)
    """The devices of the usable pools."""
    chosen: dict[tuple[int, int], int] = field(default_factory=dict)
    """(claim, request) → the number of the alternative."""
    selected: dict[tuple[Wanted, Device], bool] = field(default_factory=dict)
    """What selectors and node selection said."""

    def __post_init__(self) -> None:
        parts = self.task.parts
        self.results = [[] for _ in parts]
        self.sets = [device_sets(part.demand.constraints) for part in parts]
        self.candidates = [
            (device, pool) for pool in self.pools.pools if pool.usable for device in pool.devices()
        ]

    def run(self) -> Generator[None, None, Solution | None]:
        """Search; returns the first solution (None: there is none) and yields now and then.

        Raises:
            AllocationError: a claim cannot be allocated anywhere, or it is not known.
            SearchTimeoutError: it takes too long.
        """
        for claim in range(len(self.task.parts)):
            yield from self._check_claim(claim)
        if (yield from self._drive()) is not Outcome.FOUND:
            return None
        chosen = tuple(
            tuple(
                choices[self.chosen.get((claim, request), 0)]
                for request, choices in enumerate(part.wanted)
            )
            for claim, part in enumerate(self.task.parts)
        )
        return Solution(tuple(map(tuple, self.results)), chosen, tuple(self._ranks()))

    def _ranks(self) -> Iterator[int]:
        for claim, part in enumerate(self.task.parts):
            for request, asked in enumerate(part.demand.requests):
                if asked.prioritized:
                    yield self.chosen[claim, request]

    def _drive(self) -> Generator[None, None, Outcome]:
        """Drive the frames: each answers with what came of it, or with a frame to run first."""
        stack: list[_Frame] = []
        step = enter(self, 0, 0)
        while True:
            if not isinstance(step, Outcome):
                stack.append(step)
                step = step.start()
            elif step is Outcome.PAUSED:
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

    def _check_claim(self, claim: int) -> Generator[None, None, None]:
        """Find what requests for all devices get, and whether the results can be so many."""
        least = 0
        for choices in self.task.parts[claim].wanted:
            counts = []
            for wanted in choices:
                if wanted.choice.everything:
                    self.everything[wanted] = yield from self._everything(claim, wanted)
                counts.append(self.count(wanted))
            least += min(counts)
        if least > MOST_RESULTS:
            raise AllocationError(
                f": number of requested devices {least} exceeds the claim limit of {MOST_RESULTS}",
                claim=claim,
            )

    def _everything(self, claim: int, wanted: Wanted) -> Generator[None, None, list[Candidate]]:
        found: list[Candidate] = []
        remaining = iter(self.candidates)
        for pool in self.pools.pools:
            if not pool.usable:
                raise _unusable(pool, claim, wanted)
            for candidate in islice(remaining, pool.size):
                if self.patience.step():
                    yield
                device = candidate[0]
                if self.selects(claim, wanted, device) and self.ledger.has_room(
                    device, wanted.choice.capacity
                ):
                    found.append(candidate)
        return found

    def count(self, wanted: Wanted) -> int:
        """How many devices a request is to get."""
        if wanted.choice.everything:
            return len(self.everything[wanted])
        return wanted.choice.count

    def selects(self, claim: int, wanted: Wanted, device: Device) -> bool:
        """Whether a request's selectors match a device, and the device is for this node."""
        found = self.selected.get((wanted, device))
        if found is None:
            found = wanted.selects(device, claim)
            if found and device.source.per_device:
                found = device.reach.includes(self.pools.node)
            self.selected[wanted, device] = found
        return found

    # --- one device -----------------------------------------------------------------------------

    def free(self, claim: int, wanted: Wanted, device: Device) -> bool:
        """Whether a request may have the device, as far as its use goes."""
        if wanted.choice.admin_access:
            return not self.ledger.taken_for(device, claim)
        return not self.ledger.in_use(device)

    def allocate(self, claim: int, wanted: Wanted, candidate: Candidate, *, must: bool) -> bool:
        """Take a device that the request selects, if counters, taints and constraints allow it.

        Raises:
            AllocationError: a constraint does not, and the request has to get it (`must`).
        """
        device, pool = candidate
        choice, ledger = wanted.choice, self.ledger
        shared_look = choice.admin_access and device.traits.shareable
        if not shared_look and not self.free(claim, wanted, device):
            return False
        if not ledger.counts(device, pool) or choice.untolerated(device.traits.taints):
            return False
        sets = self.sets[claim]
        for position, devices in enumerate(sets):
            if devices.add(choice, device):
                continue
            if must:
                raise AllocationError(
                    f", request {choice.name}: cannot add device {'/'.join(device.key)} "
                    "because a claim constraint would not be satisfied",
                    claim=claim,
                    request=choice.full_name,
                    of_node=True,
                )
            for added in sets[:position]:
                added.remove(choice)
            return False
        if not device.traits.shareable:
            ledger.take(device, claim)
        if not ledger.has_room(device, choice.capacity):
            return False
        consumed = ledger.consume(device, choice.capacity) if device.traits.shareable else None
        self.results[claim].append(Result(wanted, device, consumed))
        return True

    def deallocate(self, claim: int, candidate: Candidate) -> None:
        """Take back the last device that a claim was given."""
        device, pool = candidate
        result = self.results[claim].pop()
        for devices in self.sets[claim]:
            devices.remove(result.wanted.choice)
        if result.consumed is None:
            self.ledger.give_back(device, pool, claim)
        else:
            self.ledger.release(device, result.consumed)


def _unusable(pool: Pool, claim: int, wanted: Wanted) -> AllocationError:
    state = "being updated" if pool.incomplete else "invalid"
    return AllocationError(
        f", request {wanted.choice.name}: asks for all devices, but resource pool {pool.name} is "
        f"currently {state}",
        claim=claim,
        request=wanted.choice.full_name,
        of_node=True,
    )


def search(
    task: Task, pools: NodePools, allocated: Allocated, patience: Patience
) -> Generator[None, None, Solution | None]:
    """The devices of a node for a task (None: there are none); yields where it may pause.

    Raises:
        AllocationError: the attempt is to end with that error.
        SearchTimeoutError: it takes too long.
    """
    return Search(task, pools, Ledger(allocated), patience).run()


# --- frames -------------------------------------------------------------------------------------


class _Frame(Protocol):
    """A part of the search that waits for what comes of another."""

    def start(self) -> "_Step":
        """Begin."""
        ...

    def resume(self, outcome: Outcome) -> "_Step":
        """Go on with what came of the frame that was to run first."""
        ...


_Step: TypeAlias = Outcome | _Frame


def enter(search_: Search, claim: int, request: int) -> _Step:
    """Begin with a request of a claim."""
    parts = search_.task.parts
    if claim >= len(parts):
        return Outcome.FOUND
    part = parts[claim]
    if request >= len(part.wanted):
        return _EndOfClaim(search_, claim)
    if part.demand.requests[request].prioritized:
        return _Alternatives(search_, claim, request)
    return _device(search_, claim, request, part.wanted[request][0], 0, 0)


def _device(
    search_: Search, claim: int, request: int, wanted: Wanted, number: int, start: int
) -> _Step:
    """Begin with the device of that number of a request."""
    count = search_.count(wanted)
    if wanted.choice.everything and not count:
        return Outcome.FAILED
    if number >= count:
        return enter(search_, claim, request + 1)
    if len(search_.results[claim]) + count - number > MOST_RESULTS:
        return Outcome.TOO_MANY
    return _OneDevice(search_, claim, request, wanted, number, start)


@dataclass(slots=True)
class _EndOfClaim(_Frame):
    """All requests of a claim have their devices; the next claim follows."""

    search: Search
    claim: int

    @override
    def start(self) -> _Step:
        step = enter(self.search, self.claim + 1, 0)
        return self.resume(step) if isinstance(step, Outcome) else step

    @override
    def resume(self, outcome: Outcome) -> _Step:
        # Other devices for this claim may leave the next one an alternative with fewer.
        return Outcome.FAILED if outcome is Outcome.TOO_MANY else outcome


@dataclass(slots=True)
class _Alternatives(_Frame):
    """A request with alternatives: the first with which everything after it works out."""

    search: Search
    claim: int
    request: int
    _number: int = -1
    _all_too_many: bool = True

    @override
    def start(self) -> _Step:
        return self._next()

    @override
    def resume(self, outcome: Outcome) -> _Step:
        return self._next() if self._failed(outcome) else outcome

    def _failed(self, outcome: Outcome) -> bool:
        """Note what came of an alternative; returns whether the next one is to be tried."""
        if outcome is Outcome.FOUND:
            self.search.chosen[self.claim, self.request] = self._number
            return False
        if outcome is not Outcome.TOO_MANY:
            self._all_too_many = False
        return True

    def _next(self) -> _Step:
        choices = self.search.task.parts[self.claim].wanted[self.request]
        while self._number + 1 < len(choices):
            self._number += 1
            step = _device(self.search, self.claim, self.request, choices[self._number], 0, 0)
            if not isinstance(step, Outcome) or not self._failed(step):
                return step
        return Outcome.TOO_MANY if self._all_too_many else Outcome.FAILED


@dataclass(slots=True)
class _OneDevice(_Frame):
    """One device of a request: the candidates one after the other."""

    search: Search
    claim: int
    request: int
    wanted: Wanted
    number: int
    position: int
    """Of the next candidate."""
    _taken: Candidate | None = None

    @override
    def start(self) -> _Step:
        return self._only() if self.wanted.choice.everything else self._next()

    @override
    def resume(self, outcome: Outcome) -> _Step:
        if outcome is Outcome.PAUSED:
            return self._next()
        if outcome is Outcome.FOUND:
            return outcome
        if self._taken is not None:
            self.search.deallocate(self.claim, self._taken)
            self._taken = None
        if outcome is Outcome.TOO_MANY or self.wanted.choice.everything:
            return outcome
        return self._next()

    def _only(self) -> _Step:
        """Take the device that is due: a request for all has no choice."""
        candidate = self.search.everything[self.wanted][self.number]
        self.search.patience.step()
        if not self.search.allocate(self.claim, self.wanted, candidate, must=True):
            return Outcome.FAILED
        return self._go_on_with(candidate)

    def _next(self) -> _Step:
        """Go on with the next candidate that can be taken."""
        candidates = self.search.candidates
        while self.position < len(candidates):
            if self.search.patience.step():
                return Outcome.PAUSED
            candidate = candidates[self.position]
            self.position += 1
            if self._takes(candidate):
                step = self._go_on_with(candidate)
                if step is not Outcome.FAILED:
                    return step
        return Outcome.FAILED

    def _takes(self, candidate: Candidate) -> bool:
        search_, claim, wanted = self.search, self.claim, self.wanted
        device = candidate[0]
        return (
            search_.free(claim, wanted, device)
            and search_.selects(claim, wanted, device)
            and search_.ledger.has_room(device, wanted.choice.capacity)
            and search_.allocate(claim, wanted, candidate, must=False)
        )

    def _go_on_with(self, candidate: Candidate) -> _Step:
        """Begin with what follows a device that was taken; it is given back where that fails."""
        step = _device(
            self.search, self.claim, self.request, self.wanted, self.number + 1, self.position
        )
        if not isinstance(step, Outcome):
            self._taken = candidate
        elif step is not Outcome.FOUND:
            self.search.deallocate(self.claim, candidate)
        return step
