"""The extenders of all profiles: made when a profile names them, closed when none does.

The profile loader calls `serve` with what the served profiles name. Invariant: equal extenders are
one, with one set of connections.
"""

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass

from stellwerk.backend.cache import Cache
from stellwerk.client.connection import Fence
from stellwerk.client.extender import ExtenderReach, HttpExtender
from stellwerk.clock import Clock
from stellwerk.errors import DestinationError
from stellwerk.framework.services import ClusterClient
from stellwerk.framework.time_budget import TimeBudget
from stellwerk.metrics import Metrics
from stellwerk.models.extender_spec import Extender
from stellwerk.scheduler.extenders.profile_extenders import CalledExtender, ProfileExtenders
from stellwerk.scheduler.extenders.raw_objects import RawObjects, Wanted
from stellwerk.world.extenders import AnswerSink, Extenders, RecordedExtenders


@dataclass(frozen=True, slots=True)
class ExtenderLacks:
    """Files and addresses that a profile's extenders could not be given, in words; empty: none."""

    files: str = ""
    addresses: str = ""


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
        self._extenders: list[CalledExtender] = []
        self._closing: set[asyncio.Task[None]] = set()
        self._checks: set[asyncio.Task[None]] = set()
        """Of files and addresses, before the first call."""
        self.sink: AnswerSink | None = None
        """Takes the answers of extenders down; set before profiles are served."""

    def serve(self, wanted: Mapping[str, Sequence[Extender]]) -> Mapping[str, Extenders]:
        """The extenders of each profile that has any; those that are in no profile are closed."""
        before, self._extenders = self._extenders, []
        served: dict[str, Extenders] = {
            scheduler_name: ProfileExtenders(
                [self._extender(spec, before) for spec in specs], scheduler_name, self._budget
            )
            for scheduler_name, specs in wanted.items()
            if specs
        }
        self._raw.want(_wanted(wanted))
        for extender in before:
            if extender not in self._extenders:
                self._retire(extender)
        if (sink := self.sink) is not None:
            return {name: RecordedExtenders(each, sink) for name, each in served.items()}
        return served

    async def close(self) -> None:
        """Close every connection."""
        for check in self._checks:
            check.cancel()
        self.serve({})
        await asyncio.gather(*self._closing, *self._checks, return_exceptions=True)

    def refuse(self, specs: Sequence[Extender]) -> None:
        """Refuse extenders that may not be called, whatever their names lead to.

        Raises:
            DestinationError: names the field, and the flag that would grant it.
        """
        for index, spec in enumerate(specs):
            prefix = spec.shown_url_prefix
            verbs = (spec.filter_verb, spec.prioritize_verb, spec.preempt_verb, spec.bind_verb)
            for verb in ("", *verbs):
                if reason := self._reach.destinations.refusal(f"{prefix.rstrip('/')}/{verb}"):
                    raise DestinationError(f"spec.extenders[{index}].urlPrefix", reason)

    def lacks(self, specs: Sequence[Extender]) -> ExtenderLacks:
        """Things that extenders of a profile could not be given when it was tried last."""
        files, addresses = [], []
        for index, spec in enumerate(specs):
            for extender in self._extenders:
                if extender.spec == spec:
                    field, http = f"spec.extenders[{index}]", extender.http
                    if http.unusable_files:
                        files.append(f"{field}.tlsConfig: {http.unusable_files}")
                    if http.refused_address:
                        addresses.append(f"{field}.urlPrefix: {http.refused_address}")
        return ExtenderLacks("; ".join(files), "; ".join(addresses))

    def _extender(self, spec: Extender, before: Sequence[CalledExtender]) -> CalledExtender:
        for extender in (*self._extenders, *before):
            if extender.spec == spec:
                break
        else:
            http = HttpExtender(
                spec,
                self._client.get,
                clock=self._clock,
                metrics=self._metrics,
                fence=self._fence,
                reach=self._reach,
            )
            extender = CalledExtender(http, self._raw, self._cache)
            if http.is_to_be_checked:
                _run_beside(http.check(), self._checks)
        if extender not in self._extenders:
            self._extenders.append(extender)
        return extender

    def _retire(self, extender: CalledExtender) -> None:
        """Attempts under way may still call it; a call opens what it needs, and closes it again."""
        _run_beside(extender.http.close(), self._closing)


def _run_beside(work: Coroutine[None, None, None], tasks: set[asyncio.Task[None]]) -> None:
    task = asyncio.get_running_loop().create_task(work)
    tasks.add(task)
    task.add_done_callback(tasks.discard)


def _wanted(specs: Mapping[str, Sequence[Extender]]) -> Wanted:
    every = [spec for each in specs.values() for spec in each]
    return Wanted(
        frozenset(
            name
            for name, each in specs.items()
            if any(spec.filter_verb or spec.prioritize_verb or spec.preempt_verb for spec in each)
        ),
        nodes=any(
            (spec.filter_verb or spec.prioritize_verb) and not spec.node_cache_capable
            for spec in every
        ),
        bound_pods=any(spec.preempt_verb and not spec.node_cache_capable for spec in every),
    )
