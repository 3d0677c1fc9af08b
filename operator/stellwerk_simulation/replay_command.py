"""`stellwerk simulate --replay FILE`: a journal decided again, compared, and explained at a pod.

Called by the command of the simulation. Invariant: a damaged journal is replayed up to the damage,
which is named; what is printed was computed from the entries before it.
"""

import argparse
import asyncio
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from stellwerk.commands.output import show
from stellwerk.commands.tables import print_explanation
from stellwerk.errors import ConfigurationError, SchedulerError
from stellwerk.journal.entries import Decided, Head, WatchEvent
from stellwerk.journal.reader import Journal, open_journal
from stellwerk.models.json_values import JsonObject
from stellwerk.models.profile import KIND, TAKEOVER_PROFILE_MANIFEST
from stellwerk_simulation.replaying import Replay, ReplayResult

_SHOWN: Final = 20


def replay(options: argparse.Namespace) -> int:
    """Replay; 0 if every decision is the recorded one, 1 if not."""
    return asyncio.run(_replay(options.replay, options.until))


async def _replay(file: Path, until: str) -> int:
    if until:
        return await _explain(file, until)
    journal = open_journal(file)
    replayed = _run(journal, None)
    if journal.damage:
        print(f"stellwerk: replayed up to here: {journal.damage}", file=sys.stderr)
    _print(replayed.result)
    return 1 if replayed.result.decisions != replayed.result.equal else 0


def _run(journal: Journal, until: tuple[str, int] | None) -> Replay:
    """Replay a journal, up to a decision: (NAMESPACE/NAME of a pod, which of its attempts)."""
    replayed: Replay | None = None
    for entry in journal:
        if isinstance(entry, Head):
            if replayed is None:
                replayed = Replay(entry)
            continue
        if replayed is None:
            raise SchedulerError("the journal does not begin with a head")
        replayed.feed(entry)
        if isinstance(entry, Decided) and (entry.key, entry.attempts) == until:
            return replayed
    if replayed is None:
        raise SchedulerError(f"the journal is empty: {journal.damage or 'it has no entry'}")
    return replayed


async def _explain(file: Path, key: str) -> int:
    """Stop behind the newest decision for a pod, and explain it there."""
    namespace, slash, name = key.rpartition("/")
    wanted = key if slash else f"default/{name}"
    attempts = max(
        (
            entry.attempts
            for entry in open_journal(file)
            if isinstance(entry, Decided) and entry.key == wanted
        ),
        default=0,
    )
    if not attempts:
        raise ConfigurationError(f"--until {key}: {file} holds no decision for this pod")
    replayed = _run(open_journal(file), (wanted, attempts))
    answer = replayed.explain(namespace or "default", name)

    async def told() -> Mapping[str, Any]:
        return answer

    await show(told, "table", print_explanation)
    return 0


def _print(result: ReplayResult) -> None:
    if result.decisions:
        print(f"{result.decisions} decisions, {result.equal} as recorded")
        if result.unknown:
            print(f"{result.unknown} for pods that the journal does not hold")
        for each in result.differences[:_SHOWN]:
            print(f"{each.key}, attempt {each.attempts}, after {each.seconds:.3f} s:")
            print(f"  recorded: {each.recorded}")
            print(f"  now:      {each.replayed}")
        left = result.decisions - result.equal - result.unknown - _SHOWN
        if left > 0:
            print(f"and {left} more")
    if result.bound_by_others:
        print(
            f"{result.bound_by_others} bindings of another scheduler: on one of the best nodes "
            f"{_share(result.among_best, result.bound_by_others)}, on a feasible one "
            f"{_share(result.feasible, result.bound_by_others)}"
        )
    if not result.decisions and not result.bound_by_others:
        print("the journal holds no decision and no binding")


def _share(part: int, whole: int) -> str:
    return f"{part} ({100 * part / whole:.1f} %)"
