"""The history of a SchedulerProfile as its user reads it, and the way back to one of its specs.

`stellwerk profile` calls it with the user's own credentials. Invariant: only revisions in the
operator's own namespace count, since a right to write in another would be enough to make some up; a
rollback writes the spec of one profile, after it was checked, and its name and schedulerName stay.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any
from urllib.parse import quote

from stellwerk.answers.profile_history import AcceptedSpec, ProfileHistory
from stellwerk.framework.services import ClusterClient
from stellwerk.profiles.spec.profile import API_VERSION, PLURAL
from stellwerk.profiles.spec.revision import (
    Revision,
    revisions_by_profile,
    revisions_path,
    selection,
    spec_digest,
)
from stellwerk_cli.promotion import replace_profile
from stellwerk_kube.errors import AbsentError, Conflict, NotFound
from stellwerk_kube.json_values import JsonObject

Check = Callable[[JsonObject], None]
"""Raises ProfileError if a SchedulerProfile cannot be used."""


@dataclass(frozen=True, slots=True)
class History:
    """A profile, and its accepted specs, oldest first."""

    profile: JsonObject
    revisions: Sequence[Revision]

    def numbered(self, number: int | None) -> Revision:
        """The revision of that number, or the newest whose spec is not the profile's present one.

        After an edit that was refused that is the revision which is in use.

        Raises:
            AbsentError: there is none.
        """
        name = self.profile["metadata"]["name"]
        kept = ", ".join(str(each.number) for each in self.revisions) or "none"
        if number is None:
            for each in reversed(self.revisions):
                if not self.is_present(each):
                    return each
            raise AbsentError(
                f"SchedulerProfile {name} has no other accepted spec; kept are: {kept}"
            )
        # Of two with one number, which no operator has made, the first is as good as the other.
        for each in self.revisions:
            if each.number == number:
                return each
        raise AbsentError(f"SchedulerProfile {name} has no revision {number}; kept are: {kept}")

    def is_present(self, revision: Revision) -> bool:
        """Whether the profile has the spec of a revision."""
        return spec_digest(self.profile.get("spec")) == revision.digest

    def answer(self) -> ProfileHistory:
        """The history as it is shown, newest first."""
        listed = [
            AcceptedSpec(
                revision=each.number,
                generation=each.generation,
                accepted_at=each.accepted_at,
                replaced_at=newer.accepted_at if newer else None,
                scheduled_pods=each.scheduled_pods,
                spec=each.spec,
            )
            for each, newer in zip_longest(self.revisions, self.revisions[1:])
        ]
        return ProfileHistory(profile=self.profile["metadata"]["name"], revisions=listed[::-1])


@dataclass(frozen=True, slots=True)
class Rollback:
    """The objects that are written, or would be."""

    revision: Revision
    before: JsonObject
    after: JsonObject
    """The profile with its former spec."""

    @property
    def changes(self) -> bool:
        """Whether the profile's spec is another afterwards."""
        return spec_digest(self.before.get("spec")) != spec_digest(self.after["spec"])


async def read_history(client: ClusterClient, namespace: str, name: str) -> History:
    """Read the revisions that the operator kept of a profile in a namespace.

    Raises:
        AbsentError: there is no such profile.
        ApiError: the API server refuses.
    """
    try:
        profile = await client.get(_path(name))
    except NotFound as error:
        raise AbsentError(f"there is no SchedulerProfile {name}") from error
    uid = str(profile["metadata"].get("uid", ""))
    objects, _ = await client.list(f"{revisions_path(namespace)}?{selection(uid)}")
    return History(profile, revisions_by_profile(objects).get(uid, []))


def prepare_rollback(history: History, number: int | None, check: Check) -> Rollback:
    """Return what going back to a revision would write.

    Raises:
        AbsentError: there is no such revision, or its spec is not kept.
        ProfileError: the spec cannot be used any more, or was made up by another client.
    """
    revision = history.numbered(number)
    if revision.spec is None:
        raise AbsentError(f"the spec of revision {revision.number} is not kept")
    before = history.profile
    wanted: dict[str, Any] = {k: v for k, v in revision.spec.items() if k != "schedulerName"}
    if "schedulerName" in before["spec"]:
        wanted["schedulerName"] = before["spec"]["schedulerName"]
    done = Rollback(revision, before, {**before, "spec": wanted})
    check(done.after)
    return done


async def roll_back(client: ClusterClient, rollback: Rollback, *, dry_run: bool) -> None:
    """Write the former spec; in a dry run, have the API server try it.

    Raises:
        Conflict: the profile was written meanwhile.
        ApiError: the API server refuses.
    """
    if not rollback.changes:
        return
    path = _path(rollback.after["metadata"]["name"])
    # The operator writes the status all the time: only another spec is an edit in between.
    present = await client.get(path)
    before = rollback.before
    if (present["metadata"].get("uid"), present.get("spec")) != (
        before["metadata"].get("uid"),
        before.get("spec"),
    ):
        raise Conflict(
            f"replace {path}", 409, "Conflict", "it was edited meanwhile: run the command again"
        )
    query = "?dryRun=All" if dry_run else ""
    await replace_profile(
        client, present, lambda profile: {**profile, "spec": rollback.after["spec"]}, query
    )


def _path(name: str) -> str:
    return f"/apis/{API_VERSION}/{PLURAL}/{quote(name, safe='')}"
