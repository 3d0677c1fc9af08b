"""Revisions as objects of the API: what is written is read again, whatever a profile is called."""

import re
from datetime import UTC, datetime
from typing import Any

import pytest

from stellwerk.profiles.spec.revision import (
    SCHEDULED_ANNOTATION,
    Acceptance,
    read_revision,
    revision_object,
    revisions_by_profile,
    scheduled_patch,
    spec_digest,
)
from stellwerk_kube.json_values import JsonObject

AT = datetime(2026, 1, 1, 12, tzinfo=UTC)
SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")


def made(name: str = "packing", uid: str = "u1", number: int = 3, **spec: Any) -> JsonObject:
    return revision_object(Acceptance(name, uid, 5, spec, AT), number)


def test_what_is_written_is_read_again() -> None:
    obj = made(tieBreakSeed=7)
    obj["metadata"] |= scheduled_patch("r1", 12)["metadata"]
    read = read_revision(obj)
    assert read is not None
    assert (read.number, read.generation, read.profile_uid, read.uid) == (3, 5, "u1", "r1")
    assert (read.accepted_at, read.scheduled_pods) == ("2026-01-01T12:00:00Z", 12)
    assert read.spec == {"tieBreakSeed": 7}
    assert read.digest == spec_digest({"tieBreakSeed": 7, "weights": None})


@pytest.mark.parametrize("name", ["a", "x" * 253, f"{'x' * 199}-{'y' * 20}", f"{'a.' * 120}b"])
def test_any_name_of_a_profile_gives_the_name_of_a_revision(name: str) -> None:
    names = {made(name, uid)["metadata"]["name"] for uid in ("u1", "u2")}
    assert len(names) == 2, "another object of that name has revisions of its own"
    assert all(len(each) <= 253 and SUBDOMAIN.fullmatch(each) for each in names)


def test_specs_that_say_the_same_have_one_digest() -> None:
    assert spec_digest({"a": 1, "b": {"c": None}}) == spec_digest({"b": {}, "a": 1, "d": None})
    assert spec_digest({"a": 1}) != spec_digest({"a": 2})


EDITED: dict[str, tuple[JsonObject, tuple[str, int, JsonObject | None]]] = {
    "texts of another kind": (
        {"data": {"acceptedAt": "\x1b[2Jnow", "generation": "x", "spec": {"a": 1}}},
        ("", 0, {"a": 1}),
    ),
    "a spec that is none": (
        {"data": {"acceptedAt": "2026-01-01T12:00:00Z", "spec": [1]}},
        ("2026-01-01T12:00:00Z", 0, None),
    ),
    "a spec beyond all sizes": (
        {"data": {"spec": {"a": "x" * 300_000}}},
        ("", 0, None),
    ),
    "no data": ({"data": None}, ("", 0, None)),
}


@pytest.mark.parametrize(("change", "expected"), EDITED.values(), ids=list(EDITED))
def test_an_edited_revision_is_read_as_far_as_it_makes_sense(
    change: JsonObject, expected: tuple[str, int, JsonObject | None]
) -> None:
    read = read_revision({**made(), **change})
    assert read is not None
    assert (read.accepted_at, read.generation, read.spec) == expected


@pytest.mark.parametrize("count", ["-1", "1e9", "9" * 40, "٣x", ""])
def test_a_count_that_is_none_is_nothing(count: str) -> None:
    obj = made()
    obj["metadata"]["annotations"] = {SCHEDULED_ANNOTATION: count}
    read = read_revision(obj)
    assert read is not None
    assert read.scheduled_pods == 0


@pytest.mark.parametrize(
    "obj",
    [
        pytest.param(None, id="nothing"),
        pytest.param({"metadata": []}, id="metadata of another kind"),
        pytest.param({**made(), "revision": True}, id="a number that is a truth value"),
        pytest.param({**made(), "revision": 0}, id="the number 0"),
        pytest.param(
            {**made(), "metadata": {**made()["metadata"], "ownerReferences": []}}, id="no owner"
        ),
        pytest.param(
            {**made(), "metadata": {**made("p", "u2")["metadata"], "labels": {}}}, id="no label"
        ),
    ],
)
def test_what_is_no_revision_of_a_profile_is_not_taken_for_one(obj: object) -> None:
    assert read_revision(obj) is None


def test_they_are_in_the_order_of_their_numbers() -> None:
    objects = [made(number=number) for number in (10, 9, 2)] + [made("other", "u2", 1)]
    found = revisions_by_profile(objects)
    assert [each.number for each in found["u1"]] == [2, 9, 10]
    assert [each.number for each in found["u2"]] == [1]
