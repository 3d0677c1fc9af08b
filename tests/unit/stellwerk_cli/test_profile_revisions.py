"""The way back to a former spec: what is written, and what is refused."""

from datetime import UTC, datetime
from typing import Any

import pytest

from stellwerk.plugins.registry import known_plugins
from stellwerk.profiles.spec.profile import load_profile
from stellwerk.profiles.spec.revision import Acceptance, revision_object, revisions_path
from stellwerk_cli.profile_revisions import prepare_rollback, read_history, roll_back
from stellwerk_kube.errors import AbsentError, Conflict, ProfileError
from stellwerk_kube.json_values import JsonObject
from tests.support.answers import as_json
from tests.support.memory_client import MemoryClient

PROFILE = "/apis/scheduling.stellwerk.dev/v1alpha1/schedulerprofiles/packing"
REVISIONS = revisions_path("stellwerk")


def spec(weight: int, **more: Any) -> JsonObject:
    return {"schedulerName": "packing", "weights": {"ImageLocality": weight}, **more}


def check(profile: JsonObject) -> None:
    load_profile(profile, known_plugins())


def kept(client: MemoryClient, *specs: JsonObject) -> MemoryClient:
    """The profile has the last of them."""
    metadata = {"name": "packing", "uid": "u1"}
    client.put(PROFILE, {"metadata": metadata, "spec": specs[-1]})
    for number, each in enumerate(specs, 1):
        accepted = Acceptance("packing", "u1", number, each, datetime(2026, 1, number, tzinfo=UTC))
        obj = revision_object(accepted, number)
        client.put(f"{REVISIONS}/{obj['metadata']['name']}", obj)
    return client


async def rolled_back(client: MemoryClient, number: int | None) -> JsonObject:
    history = await read_history(client, "stellwerk", "packing")
    await roll_back(client, prepare_rollback(history, number, check), dry_run=False)
    written: JsonObject = client.objects[PROFILE]["spec"]
    return written


async def test_the_history_says_when_each_was_replaced() -> None:
    client = kept(MemoryClient(), spec(1), spec(2))
    answer = (await read_history(client, "stellwerk", "packing")).answer()
    assert [(each.revision, each.accepted_at, each.replaced_at) for each in answer.revisions] == [
        (2, "2026-01-02T00:00:00Z", None),
        (1, "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"),
    ]


async def test_a_profile_without_revisions_has_an_empty_history() -> None:
    client = kept(MemoryClient(), spec(1))
    history = await read_history(client, "kube-system", "packing")
    assert as_json(history.answer()) == {"profile": "packing", "revisions": []}


@pytest.mark.parametrize(("number", "weight"), [(1, 1), (None, 2)], ids=["named", "the last"])
async def test_a_former_spec_is_written_again(number: int | None, weight: int) -> None:
    client = kept(MemoryClient(), spec(1), spec(2), spec(3))
    assert await rolled_back(client, number) == spec(weight)


async def test_after_a_refused_edit_the_spec_in_use_is_written_again() -> None:
    client = kept(MemoryClient(), spec(1), spec(2))
    refused = spec(-5)
    client.put(PROFILE, {"metadata": {"name": "packing", "uid": "u1"}, "spec": refused})
    assert await rolled_back(client, None) == spec(2)


async def test_going_back_twice_comes_to_the_first_spec_again() -> None:
    client = kept(MemoryClient(), spec(1), spec(2), spec(1))
    assert await rolled_back(client, None) == spec(2)


async def test_a_history_of_the_present_spec_alone_is_no_way_back() -> None:
    with pytest.raises(AbsentError, match="no other accepted spec; kept are: 1"):
        await rolled_back(kept(MemoryClient(), spec(1)), None)


async def test_the_scheduler_name_stays() -> None:
    client = kept(MemoryClient(), {**spec(1), "schedulerName": "other"}, spec(2))
    assert await rolled_back(client, 1) == spec(1)


async def test_what_is_in_use_is_not_written() -> None:
    client = kept(MemoryClient(), spec(1), spec(2))
    await rolled_back(client, 2)
    assert client.requests == []


@pytest.mark.parametrize(
    ("number", "message"), [(7, r"no revision 7; kept are: 1, 2"), (0, "no revision 0")]
)
async def test_a_revision_that_is_not_kept_is_named_with_those_that_are(
    number: int, message: str
) -> None:
    with pytest.raises(AbsentError, match=message):
        await rolled_back(kept(MemoryClient(), spec(1), spec(2)), number)


@pytest.mark.parametrize(
    "hostile",
    [
        pytest.param(spec(-5), id="a weight that cannot be"),
        pytest.param(spec(1, extenders=[{"urlPrefix": "file:///etc"}]), id="an extender's address"),
        pytest.param({"schedulerName": "packing", "weights": "all"}, id="another shape"),
    ],
)
async def test_a_spec_that_another_client_made_up_is_not_written(hostile: JsonObject) -> None:
    client = kept(MemoryClient(), hostile, spec(2))
    with pytest.raises(ProfileError):
        await rolled_back(client, 1)
    assert client.requests == []


async def test_revisions_of_another_object_of_that_name_do_not_count() -> None:
    client = kept(MemoryClient(), spec(1), spec(2))
    client.objects[PROFILE]["metadata"]["uid"] = "u2"
    with pytest.raises(AbsentError, match="no other accepted spec; kept are: none"):
        await rolled_back(client, None)


@pytest.mark.parametrize(
    ("uid", "weight"),
    [pytest.param("u1", 3, id="another spec"), pytest.param("u2", 2, id="made anew")],
)
async def test_an_edit_in_between_is_not_overwritten(uid: str, weight: int) -> None:
    client = kept(MemoryClient(), spec(1), spec(2))
    history = await read_history(client, "stellwerk", "packing")
    client.put(PROFILE, {"metadata": {"name": "packing", "uid": uid}, "spec": spec(weight)})
    with pytest.raises(Conflict):
        await roll_back(client, prepare_rollback(history, 1, check), dry_run=False)


async def test_a_profile_that_does_not_exist_is_named() -> None:
    with pytest.raises(AbsentError, match="there is no SchedulerProfile packing"):
        await read_history(MemoryClient(), "stellwerk", "packing")
