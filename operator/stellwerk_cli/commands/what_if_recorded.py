"""`stellwerk what-if --profile FILE --recording FILE`: newest decisions, repeated.

Called by that command. Invariant: each decision is compared on its own recorded World. A different
choice of the profile has no effect on later decisions.
"""

import argparse
import asyncio
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Final

from stellwerk.answers.answer import codec
from stellwerk.answers.shadow import ShadowDiff
from stellwerk.journal.decoding import JournalError
from stellwerk.journal.entries import Decided, GroupBegun, GroupDecided, Head, WatchEvent
from stellwerk.journal.reader import Journal, open_journal
from stellwerk.models.pod import PodInfo
from stellwerk.plugins.registry import known_plugins
from stellwerk.profiles.shadows import BesideGroup, Shadows
from stellwerk.profiles.spec.profile import KIND, LoadedProfile, load_profile
from stellwerk.world.decide import Decision
from stellwerk_cli.commands.output import show_written
from stellwerk_cli.commands.replay import entries_for
from stellwerk_cli.commands.shadow import shown_shadow
from stellwerk_kube.errors import ConfigurationError, ProfileError
from stellwerk_kube.json_values import JsonObject
from stellwerk_kube.untrusted_text import printable
from stellwerk_simulation.ready_profiles import manifest_in
from stellwerk_simulation.replaying import Replay

LAST: Final = 1000
_OF_SHADOWS: Final = frozenset({"shadowOf", "sampleOneIn"})
_RECORDED: Final = "the recorded profile"


def what_if_recorded(options: argparse.Namespace) -> int:
    """Print how many of the newest decisions another profile would have made otherwise, and which.

    Raises:
        ConfigurationError: a file cannot be used, or there is no decision to compare with.
    """
    asyncio.run(_print(options.recording, options.profile, options.last or LAST, options.output))
    return 0


async def _print(file: Path, profile: Path, last: int, form: str) -> None:
    beside = _Beside(profile)
    skipped, from_outside = _left_out(file, beside.scheduler_name, last)
    if from_outside:
        said = "stellwerk: no decisions in it: compared with the bindings of another scheduler"
        sys.stderr.write(f"{said}\n")
    journal = open_journal(file)
    answer = beside.compare(journal, skipped, from_outside=from_outside)
    if journal.damage:
        sys.stderr.write(printable(f"stellwerk: compared up to here: {journal.damage}") + "\n")
    written = codec(ShadowDiff).as_json(answer)
    show_written(written, form, shown_shadow())


class _Beside:
    """A profile that decides beside the recorded one, as a shadow does."""

    def __init__(self, file: Path) -> None:
        manifest = dict(manifest_in(file))
        spec = manifest.get("spec")
        spec = dict(spec) if isinstance(spec, dict) else {}
        self.scheduler_name = str(spec.pop("schedulerName", ""))
        """The schedulerName of the decisions that are compared."""
        if not self.scheduler_name:
            raise ConfigurationError(f"{file}: spec.schedulerName: required")
        for only_of_active in ("mode", "allowBeside", "selector", "extenders"):
            spec.pop(only_of_active, None)
        spec |= {"shadowOf": _RECORDED, "sampleOneIn": 1}
        self._profile = _loaded(file, {**manifest, "spec": spec})
        serving = {name: spec[name] for name in spec if name not in _OF_SHADOWS}
        self._serving = {**manifest, "spec": {**serving, "schedulerName": self.scheduler_name}}

    def compare(self, journal: Journal, skipped: int, *, from_outside: bool) -> ShadowDiff:
        """Compare the decisions after the first so many; `from_outside`: bindings, as it served."""
        replay: Replay | None = None
        looks = None
        for entry in entries_for(journal, self.scheduler_name if from_outside else ""):
            if isinstance(entry, Head):
                if replay is None:
                    replay = Replay(entry)
                    looks = _Look(replay, self._profile, self.scheduler_name, skipped)
                    if from_outside:
                        replay.operator.handlers.on_object(KIND, None, self._serving)
                        replay.beside_binding = looks
                    else:
                        replay.beside, replay.beside_group = looks, looks.before_group
            elif replay is None:
                raise JournalError("the journal does not begin with a head")
            elif from_outside and isinstance(entry, WatchEvent) and entry.kind == KIND:
                # The profile that is asked about serves alone. One of the cluster with the same
                # schedulerName would be refused, with an error in the log.
                continue
            else:
                replay.feed(entry)
        if replay is None or looks is None:
            raise JournalError(f"the journal is empty: {journal.damage or 'it has no entry'}")
        replay.finish()
        return replace(looks.found(), shadow_of=self.scheduler_name)


class _Look:
    """Lets the other profile look at the decisions that count."""

    def __init__(
        self, replay: Replay, profile: LoadedProfile, scheduler_name: str, skipped: int
    ) -> None:
        known = replay.operator.loader.shadows
        # Those of the journal follow its profiles; this one is not among them.
        self._shadows = Shadows(known.world, known.services, known.seeded, known.metrics)
        for why in self._shadows.decide_beside([(profile, scheduler_name)], ()).values():
            raise ConfigurationError(f"the profile cannot decide: {why}")
        self._name, self._scheduler_name, self._skipped = profile.name, scheduler_name, skipped

    def __call__(self, pod: PodInfo, decision: Decision) -> None:
        """Compare one decision, on the World that it was made on."""
        if self._counts(decision.search.profile.scheduler_name):
            self._shadows.look(pod, decision, 0.0, self._shadows.world.objects.assumptions)

    def before_group(self, scheduler_name: str) -> BesideGroup | None:
        """Keep the World before a decision on a group, to compare it then; None: it is not."""
        if not self._counts(scheduler_name):
            return None
        return self._shadows.beside_group(scheduler_name, 0.0)

    def _counts(self, scheduler_name: str) -> bool:
        """Whether a decision is one of the newest of the schedulerName."""
        if scheduler_name != self._scheduler_name:
            return False
        self._skipped -= 1
        return self._skipped < 0

    def found(self) -> ShadowDiff:
        """The differences that were found."""
        described = self._shadows.described(self._name)
        assert described is not None  # noqa: S101 it was taken up at the beginning
        return described


def _loaded(file: Path, manifest: JsonObject) -> LoadedProfile:
    try:
        return load_profile(manifest, known_plugins())
    except ProfileError as error:
        raise ConfigurationError(f"{file}: {error}") from error


def _left_out(file: Path, scheduler_name: str, last: int) -> tuple[int, bool]:
    """Count a schedulerName's decisions before the last ones.

    True: there are none at all, and bindings are counted.

    Raises:
        ConfigurationError: there is none.
    """
    names: Counter[str] = Counter()
    begun = ""
    bindings, waiting = 0, set[str]()
    for entry in open_journal(file):
        if isinstance(entry, Decided):
            names[entry.scheduler_name] += 1
        elif isinstance(entry, GroupBegun):
            begun = entry.scheduler_name
        elif isinstance(entry, GroupDecided):
            names[begun] += 1
        elif isinstance(entry, WatchEvent) and entry.kind == "Pod":
            uid, node_name = _uid_and_node(entry.obj)
            bindings += bool(node_name) and uid in waiting
            (waiting.discard if node_name else waiting.add)(uid)
    if bindings and not names:
        return max(0, bindings - last), True
    if not names[scheduler_name]:
        found = f"; there are those of {', '.join(sorted(names))}" if names else ""
        message = f"no decision of schedulerName {scheduler_name} in it{found}"
        if not names:
            message = "the recording holds no decision, and no binding to compare with"
        raise ConfigurationError(f"{file}: {message}")
    return max(0, names[scheduler_name] - last), False


def _uid_and_node(pod: JsonObject) -> tuple[str, str]:
    metadata, spec = (
        part if isinstance(part := pod.get(name), dict) else {} for name in ("metadata", "spec")
    )
    return str(metadata.get("uid") or ""), str(spec.get("nodeName") or "")
