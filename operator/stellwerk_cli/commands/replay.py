"""`stellwerk simulate --replay FILE`: a journal decided again, compared, and explained at a pod.

`stellwerk simulate` calls it. Invariant: a damaged journal is replayed up to the damage,
which is named; what is printed was computed from the entries before it.
"""

import argparse
import asyncio
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from stellwerk.answers.answer import codec
from stellwerk.answers.pod import PodExplanation
from stellwerk.journal.decoding import JournalError
from stellwerk.journal.entries import Decided, Entry, GroupDecided, Head, WatchEvent
from stellwerk.journal.reader import Journal, open_journal
from stellwerk.plugins.registry import known_plugins
from stellwerk.profiles.spec.profile import load_profile
from stellwerk_cli.commands.explained_pod import POD
from stellwerk_cli.commands.output import show_answer, show_written
from stellwerk_cli.commands.plan_defrag import TABLES
from stellwerk_cli.commands.printer import Column, Printer, console
from stellwerk_kube.compatibility import decided_as, older_meanings, patches_of
from stellwerk_kube.errors import AbsentError, ConfigurationError, ProfileError
from stellwerk_kube.json_values import JsonObject
from stellwerk_kube.untrusted_text import printable
from stellwerk_simulation.answers import (
    ReplayAnswer,
    ReplayComparison,
    ReplayDifference,
    ReplayedProfile,
)
from stellwerk_simulation.arrivals import typical_pods
from stellwerk_simulation.ready_profiles import (
    READY,
    check_names_a_file,
    manifest_in,
    ready_manifest,
)
from stellwerk_simulation.replay_result import ReplayResult
from stellwerk_simulation.replaying import Replay
from stellwerk_simulation.rerunning import AsRecorded, Outcomes, Rerun
from stellwerk_simulation.sources import read_recording

_MAX_SHOWN_DIFFERENCES: Final = 20
"""Differences that are printed. JSON has those that the replay keeps."""
_SEED: Final = 42
"""The seed of a rerun for which no seed is given."""


def replay(options: argparse.Namespace) -> int:
    """Replay; 0 if every decision is the recorded one, 1 if not."""
    form = options.output
    if options.until:
        return asyncio.run(_explain(options.replay, options.until, form))
    if options.profile:
        return asyncio.run(_rerun(options.replay, options.profile, options.seed or [_SEED], form))
    return asyncio.run(_replay(options.replay, form))


async def _rerun(file: Path, profiles: Sequence[str], seeds: Sequence[int], form: str) -> int:
    """The pods of a journal under other profiles, beside what the journal says of them.

    Where no pod asks for a profile, it decides all that arrive: what if it served?
    """
    manifests = [_ready(each, file) if each in READY else _checked(Path(each)) for each in profiles]
    recorded, damage = _as_recorded(file, manifests, _AS_THEY_ARE)
    whose = _AS_THEY_ARE
    if not recorded.arrived:
        whose = str(manifests[0]["spec"]["schedulerName"])
        recorded, damage = _as_recorded(file, manifests, whose)
    _print_damage(damage)
    if not recorded.arrived:
        raise ConfigurationError(f"{file}: no pod arrives in it")
    if whose:
        names = " or ".join(sorted({str(each["spec"]["schedulerName"]) for each in manifests}))
        said = f"stellwerk: no pod asks for schedulerName {names}: all are decided by the profile"
        print(printable(said), file=sys.stderr)
    rows = [("as recorded", recorded)]
    for path, manifest in zip(profiles, manifests, strict=True):
        own = str(manifest["spec"]["schedulerName"]) if whose else _AS_THEY_ARE
        for seed in seeds:
            title = path if len(seeds) == 1 else f"{path}, seed {seed}"
            rows.append((title, _run_again(file, manifest, seed, own)))
    if form in TABLES:
        print_outcomes(rows, console())
    else:
        show_answer(_compared(rows), form, [title for title, _ in rows])
    releases = [release for _, outcomes in rows for release in outcomes.releases]
    _print_releases(releases, damage.head)
    return 0


_AS_THEY_ARE: Final = ""
"""Pods keep their schedulerNames."""


def entries_for(journal: Journal, scheduler_name: str) -> Iterator[Entry]:
    """The entries of a journal, pods with this schedulerName."""
    for entry in journal:
        if scheduler_name and isinstance(entry, WatchEvent) and entry.kind == "Pod":
            spec = entry.obj.get("spec")
            if isinstance(spec, dict) and isinstance(spec.get("containers"), list):
                named = {**spec, "schedulerName": scheduler_name}
                yield replace(entry, obj={**entry.obj, "spec": named})
                continue
        yield entry


def _as_recorded(
    file: Path, manifests: Sequence[JsonObject], scheduler_name: str
) -> tuple[Outcomes, Journal]:
    recorded, journal = AsRecorded(manifests), open_journal(file)
    for entry in entries_for(journal, scheduler_name):
        recorded.feed(entry)
    return recorded.finish(), journal


def _compared(rows: Sequence[tuple[str, Outcomes]]) -> ReplayComparison:
    return ReplayComparison(
        profiles=[
            ReplayedProfile(
                profile=title,
                compatibility=list(outcomes.releases),
                placed=outcomes.placed,
                arrived=outcomes.arrived,
                waited_p50_seconds=outcomes.waited(0.5),
                waited_p99_seconds=outcomes.waited(0.99),
                nodes_in_use=outcomes.nodes_in_use,
                most_nodes_in_use=outcomes.most_nodes_in_use,
                preempted=outcomes.preempted,
            )
            for title, outcomes in rows
        ]
    )


def _ready(name: str, file: Path) -> JsonObject:
    """The ready profile of a name, for the pods of a journal.

    Raises:
        ConfigurationError: no pod arrives in the journal.
    """
    pods = read_recording(file).trace_pods()
    return ready_manifest(name, typical_pods(pods), pods)


def _checked(file: Path) -> JsonObject:
    """The profile of a file, which may schedule pods.

    Raises:
        ConfigurationError: it may not, or cannot be used.
    """
    check_names_a_file(str(file), f"--profile {file}: there is no such profile")
    manifest = dict(manifest_in(file))
    try:
        loaded = load_profile(manifest, known_plugins())
    except ProfileError as error:
        raise ConfigurationError(f"{file}: {error}") from error
    if loaded.spec.shadow_of:
        raise ConfigurationError(f"{file}: spec.shadowOf: a shadow schedules no pods")
    return manifest


def _run_again(file: Path, manifest: JsonObject, seed: int, scheduler_name: str) -> Outcomes:
    rerun: Rerun | None = None
    for entry in entries_for(open_journal(file), scheduler_name):
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


def _object(part: object) -> JsonObject:
    """A part of an object; empty where it is malformed."""
    return part if isinstance(part, dict) else {}


def _print_damage(journal: Journal) -> None:
    if journal.damage:
        print(printable(f"stellwerk: replayed up to here: {journal.damage}"), file=sys.stderr)


def _print_releases(releases: Iterable[str], head: Head | None) -> None:
    """Print which releases decisions followed, and what the recorder meant by a release."""
    if not releases:
        return
    print(f"stellwerk: {decided_as(releases)}", file=sys.stderr)
    meanings = older_meanings(patches_of(head.patches)) if head is not None else ()
    if meanings:
        said = f"stellwerk: as the recorder of the journal knew them, {', '.join(meanings)}"
        print(said, file=sys.stderr)


async def _replay(file: Path, form: str) -> int:
    journal = open_journal(file)
    result = _run(journal, None).result
    if journal.damage and not (result.decisions or result.bound_by_others):
        raise JournalError(journal.damage)
    _print_damage(journal)
    if form in TABLES:
        _print(result)
    else:
        show_answer(_answer(result), form, [each.key for each in result.differences])
    _print_releases(result.releases, journal.head)
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


def _answer(result: ReplayResult) -> ReplayAnswer:
    by_others = bool(result.bound_by_others)
    return ReplayAnswer(
        compatibility=list(result.releases),
        decisions=result.decisions,
        equal=result.equal,
        groups=result.groups,
        unknown=result.unknown,
        differences=[
            ReplayDifference(
                pod=each.key,
                attempt=each.attempts,
                after_seconds=each.seconds,
                recorded=each.recorded,
                now=each.replayed,
            )
            for each in result.differences
        ],
        bound_by_others=result.bound_by_others if by_others else None,
        among_best=result.among_best if by_others else None,
        feasible=result.feasible if by_others else None,
    )


async def _explain(file: Path, key: str, form: str) -> int:
    """Stop behind the newest decision for a pod, or before another scheduler's, and explain it."""
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
        explanation = _before_binding(open_journal(file), wanted)
        if explanation is None:
            raise AbsentError(f"--until {key}: {file} holds no decision for this pod")
    else:
        replayed = _run(open_journal(file), (wanted, attempts))
        explanation = replayed.explain(namespace or "default", name)
    show_written(codec(PodExplanation).as_json(explanation), form, POD)
    return 0


def _before_binding(journal: Journal, wanted: str) -> PodExplanation | None:
    """The explanation of a pod right before another scheduler bound it.

    None: the journal does not show it waiting, and bound then.
    """
    replayed: Replay | None = None
    for entry in journal:
        if replayed is None:
            replayed = Replay(entry) if isinstance(entry, Head) else None
            continue
        if isinstance(entry, WatchEvent) and entry.kind == "Pod":
            metadata, spec = (_object(entry.obj.get(part)) for part in ("metadata", "spec"))
            key = f"{metadata.get('namespace') or 'default'}/{metadata.get('name')}"
            waits = metadata.get("uid") in replayed.world.queue.entries
            if key == wanted and waits and spec.get("nodeName"):
                found = replayed.explain_waiting(*wanted.split("/", 1))
                bound = f"another scheduler bound it to {spec['nodeName']} then"
                note = f"{found.note}; {bound}" if found.note else bound
                return replace(found, note=note)
        replayed.feed(entry)
    return None


def _print(result: ReplayResult) -> None:
    if result.decisions:
        groups = f", {result.groups} of them on groups" if result.groups else ""
        print(f"{result.decisions} decisions{groups}, {result.equal} as recorded")
        if result.unknown:
            print(f"{result.unknown} for pods that the journal does not hold")
        for each in result.differences[:_MAX_SHOWN_DIFFERENCES]:
            after = f"attempt {each.attempts}, after {each.seconds:.3f} s"
            print(printable(f"{each.key}, {after}:"))
            print(printable(f"  recorded: {each.recorded}"))
            print(printable(f"  now:      {each.replayed}"))
        left = result.decisions - result.equal - result.unknown - _MAX_SHOWN_DIFFERENCES
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


def print_outcomes(rows: Iterable[tuple[str, Outcomes]], to: Printer) -> None:
    """Print a line for each profile: how the pods fared under it."""
    titles = ("PLACED", "OF", "WAITED P50", "P99", "NODES", "AT MOST", "PREEMPTED")
    to.table(
        [Column("PROFILE"), *(Column(title, is_number=True) for title in titles)],
        (
            (
                profile,
                f"{outcomes.placed}",
                f"{outcomes.arrived}",
                f"{outcomes.waited(0.5):.2f} s",
                f"{outcomes.waited(0.99):.2f} s",
                f"{outcomes.nodes_in_use:.1f}",
                f"{outcomes.most_nodes_in_use}",
                f"{outcomes.preempted}",
            )
            for profile, outcomes in rows
        ),
    )


def _share(part: int, whole: int) -> str:
    return f"{part} ({100 * part / whole:.1f} %)"
