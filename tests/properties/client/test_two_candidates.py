"""Two candidates, and histories of everything that can go wrong: never do both write."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import cycle

from hypothesis import given, settings
from hypothesis import strategies as st
from typing_extensions import override

from stellwerk.client.connection import Fence
from stellwerk.client.election import LeaderElectionOptions
from stellwerk_kube.clock import VirtualClock
from stellwerk_kube.errors import LeaseLostError
from tests.support.examples import examples
from tests.support.lease_election import OPTIONS, Candidate, Fate, LeaseServer, OwnClock
from tests.support.skipped_time import run_skipping

PEACE_SECONDS = 60.0
DRIFT = 0.1
SMALLEST = LeaderElectionOptions(
    leader_elect=True,
    lease_duration_seconds=3,
    renew_deadline_seconds=2,
    retry_period_seconds=0.5,
)

fates = st.lists(st.sampled_from(Fate), min_size=1, max_size=12)
mishaps = st.lists(
    st.tuples(
        st.floats(0.01, 9.0),
        st.integers(0, 1),
        st.sampled_from(["pause", "stop", "kill", "wall clock jumps"]),
        st.floats(0.5, 40.0),
    ),
    max_size=8,
)


class CheckedFence(Fence):
    """Fails where it opens, or stays open, while another process's fence is open."""

    __slots__ = ("neighbours",)
    neighbours: list[Fence]

    @override
    def extend(self, closes_at_seconds: float) -> bool:
        extended = super().extend(closes_at_seconds)
        if extended:
            assert not [each for each in self.neighbours if each is not self and each.is_open]
        return extended


@dataclass
class Place:
    """Where one candidate runs after the other."""

    clock: OwnClock
    candidate: Candidate | None = None
    errors: int = 0


class World:
    def __init__(
        self,
        clock: VirtualClock,
        options: LeaderElectionOptions,
        fates: list[Fate],
        rates: tuple[float, float],
    ) -> None:
        self.server = LeaseServer()
        self.options = options
        self.fences: list[Fence] = []
        self.made = 0
        self.peaceful = False
        self._script = cycle(fates)
        self.places = [
            Place(OwnClock(clock, offset_seconds=1000.0 * number, rate=rate))
            for number, rate in enumerate(rates)
        ]

    def fate(self) -> Iterator[Fate]:
        while True:
            yield Fate.ANSWERED if self.peaceful else next(self._script)

    def start(self, place: Place) -> None:
        self.made += 1
        fence = CheckedFence(
            place.clock.monotonic, guarding=True, margin_seconds=self.options.margin_seconds
        )
        fence.neighbours = self.fences
        self.fences.append(fence)
        place.candidate = Candidate(
            self.server,
            place.clock,
            f"host_{self.made}",
            fates=self.fate(),
            options=self.options,
            fence=fence,
            jitter=lambda: 0.3,
        )

    async def end(self, place: Place, *, gracefully: bool) -> None:
        candidate, place.candidate = place.candidate, None
        if candidate is None:
            return
        if gracefully:
            await candidate.stop()
        else:
            await candidate.kill()
        self._check_end(candidate)
        self.fences.remove(candidate.fence)

    def _check_end(self, candidate: Candidate) -> None:
        if not candidate.task.cancelled():
            assert isinstance(candidate.task.exception(), LeaseLostError), candidate.task

    async def restart_losers(self) -> None:
        for place in self.places:
            candidate = place.candidate
            if candidate is None or candidate.task.done():
                await self.end(place, gracefully=False)
                self.start(place)


async def live(world: World, history: list[tuple[float, int, str, float]]) -> None:
    for place in world.places:
        world.start(place)
    for delay_seconds, number, mishap, amount in history:
        await asyncio.sleep(delay_seconds)
        place = world.places[number]
        if mishap == "pause" and place.candidate is not None:
            freezer = place.candidate.freezer
            freezer.stop()
            asyncio.get_running_loop().call_later(amount, freezer.go_on)
        elif mishap == "wall clock jumps":
            place.clock.wall_offset_seconds += amount * 1000 * (-1) ** round(amount)
        elif mishap in {"stop", "kill"}:
            await world.end(place, gracefully=mishap == "stop")
        await world.restart_losers()
    world.peaceful = True
    for _ in range(int(PEACE_SECONDS * 2)):
        await asyncio.sleep(0.5)
        await world.restart_losers()
    assert sum(fence.is_open for fence in world.fences) == 1, "in peace, one of them leads"
    for place in world.places:
        await world.end(place, gracefully=True)
    lease = world.server.lease()
    assert lease is not None
    assert lease.record.holder_identity == "", "the last one has released it"


@settings(max_examples=examples(150))
@given(
    history=mishaps,
    fates=fates,
    options=st.sampled_from([OPTIONS, SMALLEST]),
    rates=st.tuples(st.floats(1 - DRIFT, 1 + DRIFT), st.floats(1 - DRIFT, 1 + DRIFT)),
)
def test_never_are_two_fences_open_at_once(
    history: list[tuple[float, int, str, float]],
    fates: list[Fate],
    options: LeaderElectionOptions,
    rates: tuple[float, float],
) -> None:
    run_skipping(lambda clock: live(World(clock, options, fates, rates), history))
