"""The extenders of all profiles: made when a profile names them, closed when none does.

The profile loader calls `serve` with what the served profiles name. Calls under way go on with the
extender that they began with, and end before its connections are closed. Invariant: equal extenders
are one, with one set of connections.
"""

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from stellwerk.backend.cache import Cache
from stellwerk.client.connection import Fence
from stellwerk.client.extender import CREDENTIALS_SECONDS, ExtenderReach, HttpExtender
from stellwerk.framework.services import ClusterClient
from stellwerk.framework.time_budget import TimeBudget
from stellwerk.metrics import Metrics
from stellwerk.profiles.spec.extender_spec import Extender
from stellwerk.scheduler.extenders.profile_extenders import CalledExtender, ProfileExtenders
from stellwerk.scheduler.extenders.raw_objects import RawObjects, Wanted
from stellwerk.world.extenders import AnswerSink, Extenders, RecordedExtenders
from stellwerk_kube.clock import Clock
from stellwerk_kube.errors import DestinationError


@dataclass(frozen=True, slots=True)
class ExtenderLacks:
    """Files, addresses and Secrets that a profile's extenders lack, in words; empty: none."""

    files: str = ""
    addresses: str = ""
    secrets: str = ""
    is_known: bool = True
    """Whether all of it has been looked at."""


class ExtenderPool:
    """The extenders of all profiles; equal ones are one, with one set of connections."""

    def __init__(
        self,
        client: ClusterClient,
        raw: RawObjects,
        cache: Cache,
        clock: Clock,
        metrics: Metrics,
        budget: TimeBudget,
        fence: Fence | None = None,
        reach: ExtenderReach | None = None,
    ) -> None:
        self._client = client
        self._raw = raw
        self._cache = cache
        self._clock = clock
        self._metrics = metrics
        self._budget = budget
        self._fence = fence
        self._reach = reach or ExtenderReach()
        self._extenders: dict[Extender, CalledExtender] = {}
        """The clients of extenders, by what profiles say of them."""
        self._naming: Counter[Extender] = Counter()
        """The number of times that profiles name an extender. Without any it is closed."""
        self._served: dict[str, tuple[Sequence[Extender], Extenders]] = {}
        """(what a profile says, what it is served with), by schedulerName."""
        self._wants: dict[str, Wanted] = {}
        """The objects that extenders are sent, by schedulerName of their profile."""
        self._closing: set[asyncio.Task[None]] = set()
        self._checks: dict[Extender, asyncio.Task[None]] = {}
        """Checks of credentials and addresses before the first call, and of credentials again and
        again."""
        self.sink: AnswerSink | None = None
        """Takes the answers of extenders down; set before profiles are served."""

    def serve(self, scheduler_name: str, specs: Sequence[Extender]) -> None:
        """Give one profile these extenders; those that no profile names any more are closed."""
        before = self._served[scheduler_name][0] if scheduler_name in self._served else ()
        if specs == before:
            return
        if specs:
            self._naming.update(specs)
            called = ProfileExtenders(
                [self._extender(spec) for spec in specs], scheduler_name, self._budget
            )
            sink = self.sink
            served = called if sink is None else RecordedExtenders(called, sink)
            self._served[scheduler_name] = specs, served
        else:
            del self._served[scheduler_name]
        self._want(scheduler_name, specs)
        self._naming.subtract(before)
        for spec in set(before):
            if not self._naming[spec]:
                del self._naming[spec]
                if check := self._checks.pop(spec, None):
                    check.cancel()
                self._retire(self._extenders.pop(spec))

    def of(self, scheduler_name: str) -> Extenders | None:
        """The extenders of a profile; None: it has none."""
        served = self._served.get(scheduler_name)
        return None if served is None else served[1]

    async def close(self) -> None:
        """Close every connection."""
        for scheduler_name in list(self._served):
            self.serve(scheduler_name, ())
        await asyncio.gather(*self._closing, return_exceptions=True)

    def refuse(self, specs: Sequence[Extender]) -> None:
        """Refuse extenders that may not be called, whatever their names lead to.

        Raises:
            DestinationError: names the field, and the flag that would grant it.
        """
        for index, spec in enumerate(specs):
            for url in spec.called_urls:
                if reason := self._reach.destinations.refusal(url):
                    raise DestinationError(f"spec.extenders[{index}].urlPrefix", reason)

    def lacks(self, specs: Sequence[Extender]) -> ExtenderLacks:
        """Things that extenders of a profile could not be given when it was tried last."""
        files, addresses, secrets, is_known = [], [], [], True
        for index, spec in enumerate(specs):
            extender = self._extenders.get(spec)
            if extender is not None:
                field, http = f"spec.extenders[{index}]", extender.http
                is_known = is_known and (http.is_checked or not http.is_to_be_checked)
                if http.unusable_files:
                    files.append(f"{field}.tlsConfig: {http.unusable_files}")
                if http.refused_address:
                    addresses.append(f"{field}.urlPrefix: {http.refused_address}")
                if http.unusable_secret:
                    secrets.append(f"{field}: {http.unusable_secret}")
        return ExtenderLacks("; ".join(files), "; ".join(addresses), "; ".join(secrets), is_known)

    def _extender(self, spec: Extender) -> CalledExtender:
        extender = self._extenders.get(spec)
        if extender is None:
            http = HttpExtender(
                spec,
                self._client.get,
                clock=self._clock,
                metrics=self._metrics,
                fence=self._fence,
                reach=self._reach,
            )
            extender = self._extenders[spec] = CalledExtender(http, self._raw, self._cache)
            if http.is_to_be_checked:
                loop = asyncio.get_running_loop()
                self._checks[spec] = loop.create_task(_check_on(http), name="extender credentials")
        return extender

    def _want(self, scheduler_name: str, specs: Sequence[Extender]) -> None:
        """Have the objects kept that extenders are sent as they are."""
        if specs:
            self._wants[scheduler_name] = _wanted(scheduler_name, specs)
        else:
            del self._wants[scheduler_name]
        wants = self._wants.values()
        self._raw.want(
            Wanted(
                frozenset().union(*(each.scheduler_names for each in wants)),
                nodes=any(each.nodes for each in wants),
                bound_pods=any(each.bound_pods for each in wants),
            )
        )

    def _retire(self, extender: CalledExtender) -> None:
        """Attempts under way may still call it; a call opens what it needs, and closes it again."""
        task = asyncio.get_running_loop().create_task(extender.http.close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)


async def _check_on(http: HttpExtender) -> None:
    """Check an extender before its first call, and its credentials for as long as it is named."""
    await http.check()
    while http.has_credentials:
        await asyncio.sleep(CREDENTIALS_SECONDS)
        await http.check()


def _wanted(scheduler_name: str, specs: Sequence[Extender]) -> Wanted:
    is_asked = any(spec.filter_verb or spec.prioritize_verb or spec.preempt_verb for spec in specs)
    return Wanted(
        frozenset({scheduler_name} if is_asked else ()),
        nodes=any(
            (spec.filter_verb or spec.prioritize_verb) and not spec.node_cache_capable
            for spec in specs
        ),
        bound_pods=any(spec.preempt_verb and not spec.node_cache_capable for spec in specs),
    )
