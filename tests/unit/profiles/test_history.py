"""What of a profile's specs is kept, by which process, and what an API that refuses does to it."""

import asyncio
import logging
from typing import Any

import pytest
from typing_extensions import override

from stellwerk.profiles.history import (
    COUNT_SECONDS,
    HISTORY_RETRY_SECONDS,
    RevisionHistory,
)
from stellwerk.profiles.spec.revision import (
    KEPT_REVISIONS,
    MAX_SPEC_BYTES,
    SCHEDULED_ANNOTATION,
    revisions_path,
)
from stellwerk_kube.clock import VirtualClock
from stellwerk_kube.errors import ApiError, Forbidden, Unavailable
from stellwerk_kube.json_values import JsonObject
from tests.support.in_process import InProcess, make_profile
from tests.support.memory_client import MemoryClient

NAMESPACE = "stellwerk"
PATH = revisions_path(NAMESPACE)
LOGGER = "stellwerk.profiles.history"


class Cluster:
    """Profiles as an operator takes them, and what it keeps of them."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.client = MemoryClient()
        self.generations: dict[str, int] = {}
        self.restart()

    def restart(self) -> None:
        """Another process, which sees the profiles when they are edited or shown again."""
        self.operator = InProcess(self.clock)
        self.history = RevisionHistory(self.client, self.clock, NAMESPACE)
        self.history.follow(self.operator.operator.loader)

    def edit(self, name: str = "packing", uid: str = "u1", **spec: Any) -> JsonObject:
        """A new generation; the operator sees it."""
        generation = self.generations[uid] = self.generations.get(uid, 0) + 1
        profile = make_profile(name, **spec)
        profile["metadata"] |= {"uid": uid, "generation": generation}
        self.operator.apply(profile)
        return profile

    async def write(self, *, after: float = 0.0) -> None:
        self.clock.advance(after)
        await self.history.write_due()

    def schedule(self, pods: int, name: str = "packing") -> None:
        """Have it schedule so many pods."""
        self.operator.operator.loader.entries[name].activity.scheduled_pods += pods

    def revisions(self) -> list[JsonObject]:
        """As stored, oldest first."""
        found = [each for path, each in self.client.objects.items() if path.startswith(PATH)]
        return sorted(found, key=lambda each: int(each["revision"]))

    def weights(self) -> list[int]:
        specs = [each["data"].get("spec") for each in self.revisions()]
        return [spec["weights"]["ImageLocality"] for spec in specs if spec is not None]

    def scheduled(self) -> list[str | None]:
        return [
            (each["metadata"].get("annotations") or {}).get(SCHEDULED_ANNOTATION)
            for each in self.revisions()
        ]


def weighted(weight: int) -> JsonObject:
    return {"weights": {"ImageLocality": weight}}


async def test_each_accepted_spec_is_kept_once() -> None:
    cluster = Cluster()
    cluster.edit(**weighted(1))
    await cluster.write()
    cluster.clock.advance(30)
    cluster.edit(**weighted(2))
    await cluster.write()
    (first, second) = cluster.revisions()
    assert [each["revision"] for each in (first, second)] == [1, 2]
    assert first["data"]["acceptedAt"] == "2026-01-01T00:00:00Z"
    assert second["data"]["acceptedAt"] == "2026-01-01T00:00:30Z"
    assert second["data"]["spec"]["weights"] == {"ImageLocality": 2}
    (owner,) = second["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["uid"]) == ("SchedulerProfile", "packing", "u1")
    assert "blockOwnerDeletion" not in owner, "it would need a right to the profile's finalizers"


async def test_edits_in_one_moment_are_all_kept_in_their_order() -> None:
    cluster = Cluster()
    for weight in (1, 2, 1, 3):
        cluster.edit(**weighted(weight))
    await cluster.write()
    assert cluster.weights() == [1, 2, 1, 3]


async def test_a_refused_edit_does_not_count() -> None:
    cluster = Cluster()
    cluster.edit(**weighted(1))
    await cluster.write()
    cluster.edit(weights={"NoSuchPlugin": 1})
    await cluster.write()
    cluster.edit(**weighted(1))
    await cluster.write()
    assert cluster.weights() == [1]


async def test_echoes_of_status_restarts_and_null_members_write_nothing() -> None:
    cluster = Cluster()
    profile = cluster.edit(**weighted(1))
    await cluster.write()
    writes = len(cluster.client.requests)
    cluster.operator.apply({**profile, "status": {"observedGeneration": 1}})
    await cluster.write(after=COUNT_SECONDS)
    cluster.restart()
    cluster.operator.apply({**profile, "spec": {**profile["spec"], "tieBreakSeed": None}})
    await cluster.write(after=COUNT_SECONDS)
    assert cluster.client.requests[writes:] == []


async def test_a_profile_made_again_under_its_name_has_a_history_of_its_own() -> None:
    cluster = Cluster()
    cluster.edit(**weighted(1))
    await cluster.write()
    cluster.operator.delete("SchedulerProfile", "packing")
    cluster.edit(uid="u2", **weighted(1))
    await cluster.write()
    owners = [each["metadata"]["ownerReferences"][0]["uid"] for each in cluster.revisions()]
    assert sorted(owners) == ["u1", "u2"]
    assert [each["revision"] for each in cluster.revisions()] == [1, 1]


async def test_ten_are_kept_of_each_profile() -> None:
    cluster = Cluster()
    cluster.edit("other", "u2", **weighted(7))
    for weight in range(1, KEPT_REVISIONS + 4):
        cluster.edit(**weighted(weight))
        await cluster.write()
    assert sorted(cluster.weights()) == sorted([7, *range(4, KEPT_REVISIONS + 4)])


async def test_pods_are_counted_for_the_spec_that_scheduled_them_over_restarts() -> None:
    cluster = Cluster()
    profile = cluster.edit(**weighted(1))
    await cluster.write()
    cluster.schedule(5)
    await cluster.write(after=COUNT_SECONDS)
    assert cluster.scheduled() == ["5"]
    cluster.restart()
    cluster.operator.apply(profile)
    cluster.schedule(2)
    await cluster.write(after=COUNT_SECONDS)
    assert cluster.scheduled() == ["7"]
    cluster.schedule(1)
    cluster.edit(**weighted(2))
    cluster.schedule(3)
    await cluster.write()
    await cluster.write(after=COUNT_SECONDS)
    assert cluster.scheduled() == ["8", "3"]


async def test_a_process_that_begins_to_lead_writes_nothing_that_is_written() -> None:
    cluster = Cluster()
    leader, standby = cluster.history, RevisionHistory(cluster.client, cluster.clock, NAMESPACE)

    def both(entries: Any) -> None:
        leader.look(entries)
        standby.look(entries)

    cluster.operator.operator.loader.on_judged = both
    for weight in (1, 2, 3):
        cluster.edit(**weighted(weight))
    await leader.write_due()
    writes = len(cluster.client.requests)
    await standby.write_due()
    assert cluster.client.requests[writes:] == []
    cluster.edit(**weighted(4))
    await standby.write_due()
    assert cluster.weights() == [1, 2, 3, 4]


async def test_nothing_is_asked_before_the_process_leads() -> None:
    cluster = Cluster()
    leading = asyncio.Event()
    cluster.edit(**weighted(1))
    task = asyncio.create_task(cluster.history.run(leading, None))
    for _ in range(10):
        await asyncio.sleep(0)
    assert cluster.client.requests == []
    leading.set()
    async with asyncio.timeout(60):
        while not cluster.revisions():  # noqa: ASYNC110 a fake cluster has no event
            await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait({task})


@pytest.mark.parametrize(
    "failure",
    [
        Forbidden("create", 403, "Forbidden", "no right"),
        Unavailable("create", None, "Timeout", "no answer"),
        ApiError("create", 422, "Invalid", "an admission webhook"),
    ],
    ids=["forbidden", "away", "refused"],
)
async def test_a_failure_is_one_line_and_is_made_up_for(
    failure: ApiError, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = Cluster()
    cluster.edit(**weighted(1))
    with caplog.at_level(logging.INFO, LOGGER):
        for _ in range(3):
            cluster.client.failures[PATH] = failure
            await cluster.write(after=HISTORY_RETRY_SECONDS)
            await cluster.write(after=1)
        assert len(cluster.client.requests) == 3, "the API is left alone for a while"
        assert [each.levelname for each in caplog.records] == ["WARNING"]
        cluster.edit(**weighted(2))
        await cluster.write(after=HISTORY_RETRY_SECONDS)
    assert cluster.weights() == [1, 2]
    assert caplog.messages[-1] == "the history of profiles is kept again"


async def test_one_profile_that_cannot_be_kept_does_not_hold_back_another() -> None:
    cluster = Cluster()
    cluster.edit("packing", "u1", **weighted(1))
    cluster.edit("other", "u2", **weighted(2))
    cluster.client.failures[PATH] = ApiError("create", 422, "Invalid", "no")
    await cluster.write()
    assert cluster.weights() == [2]


class LosingAnswers(MemoryClient):
    """Creates, and fails to say so."""

    lost = 0

    @override
    async def create(self, path: str, body: Any) -> JsonObject:
        made = await super().create(path, body)
        if self.lost:
            self.lost -= 1
            raise Unavailable("create", None, "Timeout", "no answer")
        return made


async def test_a_revision_whose_answer_was_lost_is_not_written_twice() -> None:
    cluster = Cluster()
    cluster.client = LosingAnswers()
    cluster.restart()
    cluster.client.lost = 1
    cluster.edit(**weighted(1))
    cluster.schedule(4)
    await cluster.write()
    await cluster.write(after=HISTORY_RETRY_SECONDS)
    await cluster.write(after=COUNT_SECONDS)
    assert cluster.weights() == [1]
    assert cluster.scheduled() == ["4"]


async def test_a_revision_that_another_client_deleted_is_written_again() -> None:
    cluster = Cluster()
    cluster.edit(**weighted(1))
    await cluster.write()
    cluster.client.objects.clear()
    cluster.schedule(3)
    await cluster.write(after=COUNT_SECONDS)
    await cluster.write(after=HISTORY_RETRY_SECONDS)
    await cluster.write(after=COUNT_SECONDS)
    assert cluster.weights() == [1]
    assert cluster.scheduled() == ["3"]


def make_anew(cluster: Cluster, index: int) -> tuple[str, JsonObject]:
    """Replace a revision by a stranger's object of its name; its path and what stands there."""
    revision = cluster.revisions()[index]
    path = f"{PATH}/{revision['metadata']['name']}"
    metadata = {"name": revision["metadata"]["name"], "uid": "stranger", "labels": {"of": "other"}}
    return path, cluster.client.put(path, {"revision": 1, "data": {}, "metadata": metadata})


async def test_a_count_is_not_written_to_another_object_of_the_revision_s_name() -> None:
    cluster = Cluster()
    cluster.edit(**weighted(1))
    await cluster.write()
    path, stranger = make_anew(cluster, 0)
    cluster.schedule(3)
    await cluster.write(after=COUNT_SECONDS)
    assert cluster.client.objects[path] == stranger


async def test_another_object_of_an_old_revision_s_name_is_not_deleted() -> None:
    cluster = Cluster()
    for weight in range(KEPT_REVISIONS):
        cluster.edit(**weighted(weight))
        await cluster.write()
    path, stranger = make_anew(cluster, 0)
    cluster.edit(**weighted(KEPT_REVISIONS))
    await cluster.write()
    assert cluster.client.objects[path] == stranger
    await cluster.write(after=HISTORY_RETRY_SECONDS)
    assert cluster.client.objects[path] == stranger
    assert cluster.weights()[-1:] == [KEPT_REVISIONS]


async def test_a_huge_spec_is_noted_without_its_text() -> None:
    cluster = Cluster()
    address = f"https://{'x' * 60}.example/"
    extenders = [{"urlPrefix": f"{address}{'y' * 1000}{n}"} for n in range(MAX_SPEC_BYTES // 1000)]
    cluster.operator.operator.loader.entries.clear()
    cluster.edit(**weighted(1))
    entry = cluster.operator.operator.loader.entries["packing"]
    entry.good_spec = {"extenders": extenders}
    again = RevisionHistory(cluster.client, cluster.clock, NAMESPACE)
    for _ in range(2):
        again.look({"packing": entry})
        await again.write_due()
    (kept,) = cluster.revisions()
    assert "spec" not in kept["data"]
    assert kept["data"]["leftOutBytes"] > MAX_SPEC_BYTES


HOSTILE = {
    "no number": {"revision": None},
    "a number beyond all": {"revision": 2**53},
    "a number that is a text": {"revision": "7"},
    "of no profile": {"metadata": {"name": "x", "labels": {}}},
    "no metadata": {"metadata": None},
}


@pytest.mark.parametrize("change", HOSTILE.values(), ids=list(HOSTILE))
async def test_revisions_that_others_made_up_are_left_alone(change: JsonObject) -> None:
    cluster = Cluster()
    cluster.edit(**weighted(1))
    await cluster.write()
    (stored,) = cluster.revisions()
    cluster.client.objects[f"{PATH}/x"] = {**stored, **change}
    cluster.restart()
    cluster.edit(**weighted(2))
    await cluster.write()
    del cluster.client.objects[f"{PATH}/x"]
    assert cluster.weights() == [1, 2]


async def test_an_edited_revision_is_taken_for_what_it_says() -> None:
    cluster = Cluster()
    profile = cluster.edit(**weighted(1))
    await cluster.write()
    (stored,) = cluster.revisions()
    stored["data"] = ["no", "object"]
    stored["metadata"]["annotations"] = {SCHEDULED_ANNOTATION: "-1e9"}
    cluster.restart()
    cluster.operator.apply(profile)
    await cluster.write()
    assert [each["revision"] for each in cluster.revisions()] == [1, 2]


async def test_the_highest_number_ends_the_history_with_a_line_and_nothing_else(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cluster = Cluster()
    cluster.edit(**weighted(1))
    await cluster.write()
    (stored,) = cluster.revisions()
    stored["revision"] = 2**53 - 1
    cluster.restart()
    cluster.edit(**weighted(2))
    await cluster.write()
    assert "delete it" in caplog.text
    assert len(cluster.revisions()) == 1


async def test_without_a_namespace_nothing_is_kept() -> None:
    cluster = Cluster()
    history = RevisionHistory(cluster.client, cluster.clock, None)
    history.follow(cluster.operator.operator.loader)
    cluster.edit(**weighted(1))
    leading = asyncio.Event()
    leading.set()
    task = asyncio.create_task(history.run(leading, None))
    for _ in range(10):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait({task})
    assert cluster.client.requests == []
