"""`stellwerk simulate --replay FILE`: a journal decided again, compared, and explained at a pod.

`stellwerk simulate` calls it. Invariant: a damaged journal is replayed up to the damage,
which is named; what is printed was computed from the entries before it.
"""

import argparse
import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from rich.table import Table

from stellwerk.commands.tables import console, print_explanation
from stellwerk.errors import ConfigurationError, ProfileError
from stellwerk.journal.decoding import JournalError
from stellwerk.journal.entries import Decided, Entry, GroupDecided, Head
from stellwerk.journal.reader import Journal, open_journal
from stellwerk.models.json_values import JsonObject
from stellwerk.models.profile import load_profile
from stellwerk.models.untrusted_text import printable
from stellwerk.plugins.registry import known_plugins
from stellwerk_simulation.ready_profiles import manifest_in
from stellwerk_simulation.replay_result import ReplayResult
from stellwerk_simulation.replaying import Replay
from stellwerk_simulation.rerunning import AsRecorded, Outcomes, Rerun

_SHOWN: Final = 20
_SEED: Final = 42


def replay(options: argparse.Namespace) -> int:
    """Replay; 0 if every decision is the recorded one, 1 if not."""
    if options.until:
        return asyncio.run(_explain(options.replay, options.until))
    if options.profile:
        return asyncio.run(_rerun(options.replay, options.profile, options.seed or [_SEED]))
    return asyncio.run(_replay(options.replay))


async def _rerun(file: Path, profiles: Sequence[str], seeds: Sequence[int]) -> int:
    """The pods of a journal under other profiles, beside what the journal says of them."""
    manifests = [_checked(Path(each)) for each in profiles]
    names = sorted({str(each["spec"]["schedulerName"]) for each in manifests})
    recorded = AsRecorded(manifests)
    journal = open_journal(file)
    for entry in journal:
        recorded.feed(entry)
    _print_damage(journal)
    rows = [("as recorded", recorded.finish())]
    if not recorded.outcomes.arrived:
        selects = any(each["spec"].get("selector") for each in manifests)
        whose = f"{' or '.join(names)}{', or of a selector,' if selects else ''}"
        raise ConfigurationError(f"{file}: no pod of schedulerName {whose} arrives in it")
    for path, manifest in zip(profiles, manifests, strict=True):
        for seed in seeds:
            title = path if len(seeds) == 1 else f"{path}, seed {seed}"
            rows.append((title, _run_again(file, manifest, seed)))
    print_outcomes(rows)
    return 0


def _checked(file: Path) -> JsonObject:
    """The profile of a file, which may schedule pods.

    Raises:
        ConfigurationError: it may not, or cannot be used.
    """
    manifest = dict(manifest_in(file))
    try:
        loaded = load_profile(manifest, known_plugins())
    except ProfileError as error:
        raise ConfigurationError(f"{file}: {error}") from error
    if loaded.spec.shadow_of:
        raise ConfigurationError(f"{file}: spec.shadowOf: a shadow schedules no pods")
    return manifest


def _run_again(file: Path, manifest: JsonObject, seed: int) -> Outcomes:
    rerun: Rerun | None = None
    for entry in open_journal(file):
        if rerun is None:
            if not isinstance(entry, Head):
                break
            rerun = Rerun(entry, [manifest], seed)
            for name, why in rerun.refusals.items():
                raise ConfigurationError(f"the profile for {name} cannot serve: {why}")
        rerun.feed(entry)
    if rerun is None:
        raise JournalError(f"{file}: the journal does not begin with a head")
    return rerun.finish()


def _print_damage(journal: Journal) -> None:
    if journal.damage:
        print(printable(f"stellwerk: replayed up to here: {journal.damage}"), file=sys.stderr)


async def _replay(file: Path) -> int:
    journal = open_journal(file)
    result = _run(journal, None).result
    if journal.damage and not (result.decisions or result.bound_by_others):
        raise JournalError(journal.damage)
    _print_damage(journal)
    _print(result)
    return 1 if result.decisions != result.equal else 0


def _run(journal: Journal, until: tuple[str, int] | None) -> Replay:
    """Replay a journal, up to a decision: (NAMESPACE/NAME of a pod, which of its attempts)."""
    replayed: Replay | None = None
    for entry in journal:
        if isinstance(entry, Head):
            if replayed is None:
                replayed = Replay(entry)
            continue
        if replayed is None:
            raise JournalError("the journal does not begin with a head")
        replayed.feed(entry)
        if until is not None and until in _decided(entry):
            return replayed
    if replayed is None:
        raise JournalError(f"the journal is empty: {journal.damage or 'it has no entry'}")
    replayed.finish()
    return replayed


def _decided(entry: Entry) -> Sequence[tuple[str, int]]:
    """The pods that an entry decides: (namespace/name, which of its attempts)."""
    if isinstance(entry, Decided):
        return [(entry.key, entry.attempts)]
    if isinstance(entry, GroupDecided):
        return [(key, attempts) for _, key, attempts, _, _ in entry.members]
    return ()


async def _explain(file: Path, key: str) -> int:
    """Stop behind the newest decision for a pod, and explain it there."""
    namespace, slash, name = key.rpartition("/")
    wanted = key if slash else f"default/{name}"
    attempts = max(
        (
            attempts
            for entry in open_journal(file)
            for decided, attempts in _decided(entry)
            if decided == wanted
        ),
        default=0,
    )
    if not attempts:
        raise ConfigurationError(f"--until {key}: {file} holds no decision for this pod")
    replayed = _run(open_journal(file), (wanted, attempts))
    print_explanation(replayed.explain(namespace or "default", name), console())
    return 0


def _print(result: ReplayResult) -> None:
    if result.decisions:
        groups = f", {result.groups} of them on groups" if result.groups else ""
        print(f"{result.decisions} decisions{groups}, {result.equal} as recorded")
        if result.unknown:
            print(f"{result.unknown} for pods that the journal does not hold")
        for each in result.differences[:_SHOWN]:
            after = f"attempt {each.attempts}, after {each.seconds:.3f} s"
            print(printable(f"{each.key}, {after}:"))
            print(printable(f"  recorded: {each.recorded}"))
            print(printable(f"  now:      {each.replayed}"))
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


def print_outcomes(rows: Sequence[tuple[str, Outcomes]]) -> None:
    """A table of how the pods fared, a line each."""
    table = Table(box=None, pad_edge=False)
    table.add_column("PROFILE")
    for title in ("PLACED", "OF", "WAITED P50", "P99", "NODES", "AT MOST", "PREEMPTED"):
        table.add_column(title, justify="right")
    for title, outcomes in rows:
        table.add_row(
            title,
            str(outcomes.placed),
            str(outcomes.arrived),
            f"{outcomes.waited(0.5):.2f} s",
            f"{outcomes.waited(0.99):.2f} s",
            f"{outcomes.nodes_in_use:.1f}",
            str(outcomes.most_nodes_in_use),
            str(outcomes.preempted),
        )
    console().print(table)


def _share(part: int, whole: int) -> str:
    return f"{part} ({100 * part / whole:.1f} %)"
