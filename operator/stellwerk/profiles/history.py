"""Keeps the last accepted specs of every SchedulerProfile, as ControllerRevisions.

The profile loader shows what is accepted (`RevisionHistory.look`), `app` runs the writer beside the
scheduler; `spec/revision.py` has the form of a revision. Invariant:
only the process that leads writes; nothing is written where nothing changed; of a profile ten
revisions remain; and whatever the API answers, scheduling goes on as if there were no history.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Self

from stellwerk.framework.services import ClusterClient
from stellwerk.profiles.entry import ProfileEntry
from stellwerk.profiles.loader import ProfileLoader
from stellwerk.profiles.spec.profile import LoadedProfile
from stellwerk.profiles.spec.revision import (
    KEPT_REVISIONS,
    MAX_REVISION_NUMBER,
    Acceptance,
    Revision,
    read_revision,
    revision_object,
    revision_path,
    revisions_by_profile,
    revisions_path,
    scheduled_patch,
    selection,
    spec_digest,
)
from stellwerk.world.profiles import ProfileActivity
from stellwerk_kube.clock import Clock
from stellwerk_kube.errors import ApiError, ConfigurationError, NotFound, NotLeader, SchedulerError

logger = logging.getLogger(__name__)

HISTORY_ROUND_SECONDS: Final = 1.0
"""Pause between two rounds: an accepted spec is written this much later at the most."""
COUNT_SECONDS: Final = 60.0
"""Time between two writes of the number of scheduled pods, while it changes."""
HISTORY_RETRY_SECONDS: Final = 30.0
"""Time without a call to the API after a failure."""


@dataclass(frozen=True, slots=True)
class _Noted:
    """A spec that was accepted, and what its profile had scheduled until then."""

    accepted: Acceptance
    scheduled_before: int


@dataclass(slots=True)
class _Tracked:
    """One profile: what was accepted of it, and which revision its pods are counted for."""

    activity: ProfileActivity
    good: LoadedProfile | None = None
    latest: _Noted | None = None
    pending: deque[_Noted] = field(default_factory=lambda: deque(maxlen=KEPT_REVISIONS))
    """Versions that may have to be written, oldest first."""
    counted: str = ""
    """The name of the revision that is in use; empty: not known yet."""
    carried: int = 0
    """Pods that this revision had scheduled before, as written in the cluster."""
    since: int = 0
    """The profile's pods that this process had scheduled when it began to count for `counted`."""

    def note(self, noted: _Noted) -> None:
        self.latest = noted
        self.pending.append(noted)

    def count_for(self, revision: Revision, since: int) -> None:
        """Count pods for this revision from here on."""
        self.counted, self.carried, self.since = revision.name, revision.scheduled_pods, since


class RevisionHistory:
    """Notes accepted specs as they come, and writes them when it may."""

    def __init__(self, client: ClusterClient, clock: Clock, namespace: str | None) -> None:
        """Keep nothing yet; without a namespace, `run` says where."""
        self._client = client
        self._clock = clock
        self._namespace = namespace or ""
        self._tracked: dict[str, _Tracked] = {}
        """By uid of the profile."""
        self._uids: dict[str, str] = {}
        """The uids of these profiles, by name."""
        self._revisions: dict[str, list[Revision]] | None = None
        """The revisions in the cluster, without their specs, by uid of the profile; None: they are
        still to be read."""
        self._count_at_seconds = 0.0
        self._retry_at_seconds = 0.0
        self._failing = False

    def follow(self, loader: ProfileLoader) -> Self:
        """Look whenever the loader's verdicts are new."""
        loader.on_judged = self.look
        return self

    def look(self, entries: Mapping[str, ProfileEntry | None]) -> None:
        """Note which specs are accepted now that were not before; None: the profile is gone."""
        for name, entry in entries.items():
            uid = "" if entry is None else str(entry.obj["metadata"].get("uid") or "")
            before = self._uids.pop(name, uid)
            if before != uid:
                self._tracked.pop(before, None)
                (self._revisions or {}).pop(before, None)
            if entry is None or not uid or (entry.good is not None and entry.good.observes):
                continue
            self._uids[name] = uid
            tracked = self._tracked.setdefault(uid, _Tracked(entry.activity))
            if entry.good is None or entry.good is tracked.good or entry.good_spec is None:
                continue
            tracked.good = entry.good
            accepted = Acceptance(
                entry.name, uid, entry.good.generation, entry.good_spec, self._clock.now()
            )
            tracked.note(_Noted(accepted, entry.activity.scheduled_pods))

    async def run(self, leading: asyncio.Event, own_namespace: str | None) -> None:
        """Write what was noted, from the time on when this process leads, until cancelled.

        In the namespace that was named, or in the process's own; without either, nothing.
        """
        self._namespace = self._namespace or own_namespace or ""
        await (leading if self._namespace else asyncio.Event()).wait()
        while True:
            try:
                await self.write_due()
            except Exception:
                logger.exception("the history of profiles could not be computed")
                self._retry_at_seconds = self._clock.monotonic() + HISTORY_RETRY_SECONDS
            await asyncio.sleep(HISTORY_ROUND_SECONDS)

    async def write_due(self) -> None:
        """Write what is new, and once a minute the counts; a failure is logged once."""
        now = self._clock.monotonic()
        counts_due = self._count_at_seconds <= now
        if now < self._retry_at_seconds or not self._has_work(counts_due=counts_due):
            return
        if counts_due:
            self._count_at_seconds = now + COUNT_SECONDS
        try:
            if self._revisions is None:
                self._revisions = await self._read()
        except SchedulerError as failure:
            self._failed(failure)
            return
        failures = [
            each
            for uid, tracked in list(self._tracked.items())
            if (each := await self._write(uid, tracked, self._revisions, counts_due=counts_due))
        ]
        if failures:
            self._failed(failures[0])
        elif self._failing:
            self._failing = False
            logger.info("the history of profiles is kept again")

    def _has_work(self, *, counts_due: bool) -> bool:
        return any(
            each.pending or (counts_due and each.activity.scheduled_pods)
            for each in self._tracked.values()
        )

    def _failed(self, failure: SchedulerError) -> None:
        """Begin again later, with what the cluster holds then."""
        self._revisions = None
        self._retry_at_seconds = self._clock.monotonic() + HISTORY_RETRY_SECONDS
        for tracked in self._tracked.values():
            # What was written may be what has vanished: the latest is compared again.
            if tracked.latest is not None and not tracked.pending:
                tracked.pending.append(tracked.latest)
        if not self._failing and not isinstance(failure, NotLeader):
            self._failing = True
            logger.warning(
                "the history of profiles cannot be kept in namespace %s, but scheduling "
                "continues: %s",
                self._namespace,
                failure,
            )

    async def _read(self) -> dict[str, list[Revision]]:
        """Read what the cluster holds; specs are left there."""
        objects, _ = await self._client.list(f"{revisions_path(self._namespace)}?{selection()}")
        return {
            uid: [replace(each, spec=None) for each in revisions]
            for uid, revisions in revisions_by_profile(objects).items()
        }

    async def _write(
        self,
        uid: str,
        tracked: _Tracked,
        kept: dict[str, list[Revision]],
        *,
        counts_due: bool,
    ) -> SchedulerError | None:
        """Write what one profile has pending; returns why it could not be written."""
        revisions = kept.setdefault(uid, [])
        try:
            while tracked.pending:
                noted = tracked.pending[0]
                await self._take(tracked, revisions, noted)
                # A burst of edits may have pushed it out meanwhile.
                if tracked.pending and tracked.pending[0] is noted:
                    tracked.pending.popleft()
            if counts_due:
                await self._count(tracked, revisions, tracked.activity.scheduled_pods)
        except SchedulerError as failure:
            return failure
        except Exception:
            # A spec that cannot be written down at all: it serves, and has no history.
            logger.exception("a SchedulerProfile has no history")
            tracked.pending.clear()
            tracked.latest = None
        return None

    async def _take(self, tracked: _Tracked, revisions: list[Revision], noted: _Noted) -> None:
        """Write one accepted spec, unless the newest revision is it, or follows it."""
        accepted = noted.accepted
        if revisions:
            newest = revisions[-1]
            if newest.digest == spec_digest(accepted.spec):
                if tracked.counted != newest.name:
                    tracked.count_for(newest, noted.scheduled_before)
                return
            if accepted.generation < newest.generation:
                # The process that led before has written it, and more.
                return
            await self._count(tracked, revisions, noted.scheduled_before)
        revision = await self._create(accepted, revisions[-1].number + 1 if revisions else 1)
        revisions.append(revision)
        tracked.count_for(revision, noted.scheduled_before)
        while len(revisions) > KEPT_REVISIONS:
            await self._delete(revisions[0])
            del revisions[0]

    async def _create(self, accepted: Acceptance, number: int) -> Revision:
        if number >= MAX_REVISION_NUMBER:
            raise ConfigurationError(
                f"the newest revision of SchedulerProfile {accepted.profile} has the highest "
                "possible number; delete it"
            )
        body = revision_object(accepted, number)
        path = revisions_path(self._namespace)
        revision = read_revision(await self._client.create(path, body))
        if revision is None:
            name = body["metadata"]["name"]
            raise ApiError(f"create {path}/{name}", None, "Changed", "the stored revision differs")
        return replace(revision, spec=None)

    async def _count(self, tracked: _Tracked, revisions: list[Revision], scheduled: int) -> None:
        """Write how many pods the newest revision has scheduled, if that is another number."""
        if not revisions or revisions[-1].name != tracked.counted:
            return
        newest = revisions[-1]
        total = tracked.carried + scheduled - tracked.since
        if total == newest.scheduled_pods:
            return
        path = revision_path(self._namespace, newest.name)
        await self._client.patch(path, scheduled_patch(newest.uid, total))
        revisions[-1] = replace(newest, scheduled_pods=total)

    async def _delete(self, revision: Revision) -> None:
        try:
            path = revision_path(self._namespace, revision.name)
            await self._client.delete(path, revision.uid)
        except NotFound:
            logger.debug("the revision %s is gone already", revision.name)
