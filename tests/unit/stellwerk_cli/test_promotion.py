"""A shadow takes the place of its profile and gives it back, however often it is interrupted."""

import json
from collections.abc import Mapping
from typing import Any

import pytest
from typing_extensions import override

from stellwerk.profiles.spec.spec_fields import PROMOTION_ANNOTATION
from stellwerk_cli.promotion import Promotion, prepare_promotion
from stellwerk_cli.promotion import promote as carry_out
from stellwerk_kube.errors import ApiError, Conflict, SchedulerError
from stellwerk_kube.json_values import JsonObject
from tests.support.memory_client import MemoryClient

PATH = "/apis/scheduling.stellwerk.dev/v1alpha1/schedulerprofiles"
WHOSE = {
    "schedulerName": "packing",
    "mode": "Observe",
    "allowBeside": True,
    "selector": {"namespaceSelector": {"matchLabels": {"team": "batch"}}},
}
ACTIVE = {**WHOSE, "weights": {"NodeResourcesFit": 5}}
SHADOW = {"shadowOf": "packing", "sampleOneIn": 3, "weights": {"ImageLocality": 2}}
"""Without a mode, as before an API server has set its default."""


def client() -> MemoryClient:
    stored = MemoryClient()
    for name, spec in {"packing": ACTIVE, "next": SHADOW}.items():
        metadata = {"name": name, "uid": name, "generation": 1}
        stored.put(f"{PATH}/{name}", {"metadata": metadata, "spec": spec})
    return stored


async def promote(stored: MemoryClient, name: str) -> Promotion:
    planned = await prepare_promotion(stored, name)
    await carry_out(stored, planned)
    return planned


def specs(stored: MemoryClient) -> list[JsonObject]:
    return [stored.objects[f"{PATH}/{name}"]["spec"] for name in ("packing", "next")]


EXCHANGED = [
    {**WHOSE, "weights": {"ImageLocality": 2}},
    {"shadowOf": "packing", "sampleOneIn": 3, "weights": {"NodeResourcesFit": 5}},
]


async def test_they_change_places_and_back() -> None:
    stored = client()
    done = await promote(stored, "next")
    assert (done.active["metadata"]["name"], done.resumed) == ("packing", False)
    assert specs(stored) == EXCHANGED
    await promote(stored, "next")
    assert specs(stored) == [ACTIVE, SHADOW]


async def test_a_dry_run_has_the_api_server_try_both_writes() -> None:
    stored = client()
    planned = await prepare_promotion(stored, "next")
    for name in ("packing", "next"):
        obj = stored.objects[f"{PATH}/{name}"]
        stored.objects[f"{PATH}/{name}?dryRun=All"] = obj
    await carry_out(stored, planned, dry_run=True)
    assert specs(stored) == [ACTIVE, SHADOW]
    assert stored.requests == [
        ("PUT", f"{PATH}/packing?dryRun=All"),
        ("PUT", f"{PATH}/next?dryRun=All"),
    ]


async def test_a_status_that_is_written_meanwhile_is_no_edit() -> None:
    stored = client()
    planned = await prepare_promotion(stored, "next")
    for name in ("packing", "next"):
        stored.put(f"{PATH}/{name}", {**stored.objects[f"{PATH}/{name}"], "status": {"x": 1}})
    await carry_out(stored, planned)
    assert specs(stored) == EXCHANGED


async def test_an_edit_in_between_is_not_overwritten() -> None:
    stored = client()
    planned = await prepare_promotion(stored, "next")
    edited = {**ACTIVE, "weights": {"NodeResourcesFit": 9}}
    stored.put(f"{PATH}/packing", {**stored.objects[f"{PATH}/packing"], "spec": edited})
    with pytest.raises(Conflict, match="edited meanwhile"):
        await carry_out(stored, planned)
    assert specs(stored) == [edited, SHADOW]


def noted(**fields: Any) -> str:
    """The annotation of a promotion that was interrupted before its second write, or another."""
    identities = {"activeIdentity": ["packing", 1], "shadowIdentity": ["next", 1]}
    return json.dumps({"active": "packing", "spec": ACTIVE, **identities, **fields})


class Raced(MemoryClient):
    """A client before whose writes another one has written `others`, one each."""

    def __init__(self, others: list[JsonObject]) -> None:
        super().__init__()
        self.objects, self.others = client().objects, others

    @override
    async def replace(self, path: str, body: Mapping[str, Any]) -> JsonObject:
        if self.others:
            self.put(path, {**self.objects[path], **self.others.pop(0)})
            raise Conflict(f"replace {path}", 409, "Conflict", "the object has been modified")
        return await super().replace(path, body)


async def test_a_status_that_is_written_between_two_writes_is_kept() -> None:
    stored = Raced([{"status": {"shadow": number}} for number in range(5)])
    await promote(stored, "next")
    assert specs(stored) == EXCHANGED
    assert stored.objects[f"{PATH}/next"]["status"] == {"shadow": 4}


async def test_a_status_that_is_written_without_end_is_a_conflict() -> None:
    stored = Raced([{"status": {"shadow": number}} for number in range(100)])
    with pytest.raises(Conflict):
        await promote(stored, "next")
    assert specs(stored) == [ACTIVE, SHADOW]


@pytest.mark.parametrize(
    "edit",
    [
        {"spec": {**SHADOW, "sampleOneIn": 9}},
        {"metadata": {"name": "next", "annotations": {PROMOTION_ANNOTATION: "{}"}}},
    ],
    ids=["spec", "annotation"],
)
async def test_an_edit_between_two_writes_is_not_overwritten(edit: JsonObject) -> None:
    stored = Raced([edit])
    with pytest.raises(Conflict, match="has been modified"):
        await promote(stored, "next")
    assert not [path for verb, path in stored.requests if verb == "PUT"]


@pytest.mark.parametrize("name", ["packing", "next"])
async def test_a_profile_that_was_made_anew_meanwhile_is_not_overwritten(name: str) -> None:
    stored = client()
    planned = await prepare_promotion(stored, "next")
    obj = stored.objects[f"{PATH}/{name}"]
    stored.put(f"{PATH}/{name}", {**obj, "metadata": {**obj["metadata"], "uid": "another"}})
    with pytest.raises(Conflict, match="edited meanwhile"):
        await carry_out(stored, planned)
    assert specs(stored) == [ACTIVE, SHADOW]


async def test_an_annotation_that_comes_between_question_and_act_is_not_followed() -> None:
    stored = client()
    planned = await prepare_promotion(stored, "next")
    shadow = stored.objects[f"{PATH}/next"]
    shadow["metadata"]["annotations"] = {PROMOTION_ANNOTATION: noted()}
    with pytest.raises(Conflict, match="edited meanwhile"):
        await carry_out(stored, planned)
    assert specs(stored) == [ACTIVE, SHADOW]


async def test_a_shadow_gives_no_selector() -> None:
    stored = client()
    spec = {**SHADOW, "selector": {}, "namespaces": ["kube-system"], "schedulerName": "x"}
    stored.put(f"{PATH}/next", {**stored.objects[f"{PATH}/next"], "spec": spec})
    planned = await prepare_promotion(stored, "next")
    assert planned.active_spec == EXCHANGED[0]


async def test_an_edit_after_an_interruption_is_not_overwritten() -> None:
    stored = Failing(2, applied=True)
    stored.objects = client().objects
    with pytest.raises(ApiError):
        await promote(stored, "next")
    active = stored.objects[f"{PATH}/packing"]
    edited = {**active["spec"], "weights": {"NodeResourcesFit": 9}}
    stored.put(f"{PATH}/packing", {**active, "spec": edited})
    with pytest.raises(SchedulerError, match="does not match these profiles"):
        await promote(stored, "next")
    assert specs(stored) == [edited, SHADOW]


class Failing(MemoryClient):
    """Fails at one write, before or after it took effect."""

    def __init__(self, at: int, *, applied: bool) -> None:
        super().__init__()
        self.left, self.applied = at, applied

    @override
    async def replace(self, path: str, body: Mapping[str, Any]) -> JsonObject:
        self.left -= 1
        if not self.left and not self.applied:
            raise ApiError("replace", 500, "InternalError", "no answer")
        answer = await super().replace(path, body)
        if not self.left:
            raise ApiError("replace", 500, "InternalError", "the answer was lost")
        return answer


@pytest.mark.parametrize("applied", [False, True], ids=["refused", "answer lost"])
@pytest.mark.parametrize("write", [1, 2, 3])
async def test_an_interrupted_promotion_is_finished_by_promoting_again(
    write: int, *, applied: bool
) -> None:
    stored = Failing(write, applied=applied)
    stored.objects = client().objects
    with pytest.raises(ApiError):
        await promote(stored, "next")
    over = write == 3 and applied
    if not over:
        await promote(stored, "next")
    assert specs(stored) == EXCHANGED
    annotations = stored.objects[f"{PATH}/next"]["metadata"].get("annotations", {})
    assert PROMOTION_ANNOTATION not in annotations


@pytest.mark.parametrize(
    "annotation",
    [
        pytest.param("garbage", id="no JSON"),
        pytest.param('["packing"]', id="no object"),
        pytest.param('{"active": "packing", "spec": 5}', id="no spec"),
        pytest.param('{"active": "other", "spec": {}}', id="of another profile"),
        pytest.param('{"active": "packing", "spec": {"schedulerName": "x"}}', id="another name"),
        pytest.param(noted(spec={**ACTIVE, "selector": {}}), id="another selector"),
        pytest.param(noted(spec={**ACTIVE, "namespaces": ["kube-system"]}), id="namespaces"),
        pytest.param(noted(spec={**ACTIVE, "weights": {}}), id="a spec that it never had"),
        pytest.param(noted(activeIdentity=["other", 1]), id="another uid"),
        pytest.param(noted(activeIdentity=["packing", 0]), id="another generation"),
        pytest.param(noted(shadowIdentity=["next", 0]), id="the shadow was edited since"),
        pytest.param(noted(more=1), id="a further field"),
        pytest.param(noted(activeIdentity=None), id="no identity"),
    ],
)
async def test_what_no_promotion_has_written_is_not_resumed(annotation: str) -> None:
    stored = client()
    shadow = stored.objects[f"{PATH}/next"]
    shadow["metadata"]["annotations"] = {PROMOTION_ANNOTATION: annotation}
    with pytest.raises(SchedulerError, match="does not match these profiles"):
        await promote(stored, "next")
    assert specs(stored) == [ACTIVE, SHADOW]


@pytest.mark.parametrize(
    ("name", "message"),
    [("packing", "has no spec.shadowOf"), ("absent", "there is no SchedulerProfile absent")],
)
async def test_what_shadows_nothing_is_not_promoted(name: str, message: str) -> None:
    with pytest.raises(SchedulerError, match=message):
        await promote(client(), name)
