"""The conditions that other tools read: kstatus by Flux and Helm, a Lua rule by Argo CD."""

import re
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import yaml

from stellwerk.profiles.conditions import readiness_statements
from stellwerk.profiles.spec.crd import PENDING_STATUS
from stellwerk_kube.json_values import JsonObject
from tests.support.in_process import InProcess, make_profile
from tests.support.kstatus import kstatus
from tests.support.repository import ROOT

UNKNOWN: JsonObject = {"plugins": {"score": {"enabled": [{"name": "Foo"}]}}}
SHADOW: JsonObject = {"schedulerName": None, "shadowOf": "a"}


async def stored(*profiles: JsonObject, missing_right: str = "") -> JsonObject:
    """The last of some profiles, with the status that it gets."""
    world = InProcess()
    world.operator.loader.permission.missing_right = missing_right
    for each in profiles:
        world.apply(each)
        await world.status.write_changed()
    name = profiles[-1]["metadata"]["name"]
    return {**profiles[-1], "status": world.profile(name)}


def shadow(name: str, of: str) -> JsonObject:
    profile = make_profile(name)
    profile["spec"] = {"shadowOf": of}
    return profile


def edited(profile: JsonObject) -> JsonObject:
    """The object after an edit that no operator has seen."""
    return {**profile, "metadata": {**profile["metadata"], "generation": 2}}


async def valid() -> JsonObject:
    return await stored(make_profile("a"))


async def refused() -> JsonObject:
    return await stored(make_profile("a", **UNKNOWN))


async def refused_edit() -> JsonObject:
    return await stored(make_profile("a"), make_profile("a", generation=2, **UNKNOWN))


async def mended() -> JsonObject:
    return await stored(make_profile("a", **UNKNOWN), make_profile("a", generation=2))


async def taken() -> JsonObject:
    return await stored(make_profile("a", created=1), make_profile("b", "a", created=2))


async def shadowing() -> JsonObject:
    return await stored(make_profile("a"), shadow("b", "a"))


async def observing() -> JsonObject:
    """Its extenders are nobody's to ask: their Secrets are not read either."""
    secret = {"namespace": "stellwerk", "name": "s"}
    extender = {"urlPrefix": "https://e.tools:1", "filterVerb": "filter", "secretRef": secret}
    return await stored(make_profile("a", mode="Observe", extenders=[extender]))


async def without_the_right() -> JsonObject:
    """The next process of the operator, or the same one with more rights, may accept it."""
    return await stored(make_profile("a"), missing_right="create pods/binding")


async def nothing_to_shadow() -> JsonObject:
    return await stored(shadow("b", "a"))


async def unseen() -> JsonObject:
    return {**make_profile("a"), "status": dict(PENDING_STATUS)}


async def unseen_edit() -> JsonObject:
    return edited(await valid())


async def going() -> JsonObject:
    profile = await refused()
    profile["metadata"] = {**profile["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}
    return profile


CASES = [
    (valid, "Current", "Healthy", ("True", "Serving")),
    (mended, "Current", "Healthy", ("True", "Serving")),
    (observing, "Current", "Healthy", ("True", "Observing")),
    (shadowing, "Current", "Healthy", ("True", "Shadowing")),
    (refused, "Failed", "Degraded", ("False", "Invalid")),
    (refused_edit, "Failed", "Degraded", ("False", "Invalid")),
    (taken, "Failed", "Degraded", ("False", "SchedulerNameTaken")),
    (without_the_right, "InProgress", "Progressing", ("False", "RightMissing")),
    (nothing_to_shadow, "Failed", "Degraded", ("False", "NothingToShadow")),
    (unseen, "InProgress", "Progressing", ("Unknown", "Pending")),
    (unseen_edit, "InProgress", "Progressing", ("True", "Serving")),
    (going, "Terminating", "Degraded", ("False", "Invalid")),
]


@pytest.mark.parametrize(("make", "health"), [(make, health) for make, _, health, _ in CASES])
async def test_argo_cd_shows_what_the_profile_does(make: Callable[[], Any], health: str) -> None:
    assert health_by_argo_cd(await make())[0] == health


@pytest.mark.parametrize(
    ("make", "status", "ready"), [(make, status, ready) for make, status, _, ready in CASES]
)
async def test_kstatus_reads_what_the_profile_does(
    make: Callable[[], Any], status: str, ready: tuple[str, str]
) -> None:
    profile = await make()
    assert kstatus(profile) == status
    conditions = {each["type"]: each for each in profile["status"]["conditions"]}
    assert (conditions["Ready"]["status"], conditions["Ready"]["reason"]) == ready
    marks = {"Reconciling", "Stalled"} & conditions.keys()
    assert bool(marks) == (ready[0] != "True"), "kstatus: abnormal conditions are there while true"
    for each in marks:
        assert conditions[each]["status"] == "True"
        assert conditions[each]["reason"] == conditions["Ready"]["reason"]
    if make not in (unseen, unseen_edit):
        generation = profile["metadata"]["generation"]
        assert {each["observedGeneration"] for each in conditions.values()} == {generation}


async def test_argo_cd_shows_the_reason_of_a_refusal() -> None:
    health, message = health_by_argo_cd(await refused())
    assert (health, 'unknown plugin "Foo"' in message) == ("Degraded", True)
    assert health_by_argo_cd(make_profile("a"))[0] == "Progressing"
    assert health_by_argo_cd({**make_profile("a"), "status": {}})[0] == "Progressing"


@pytest.mark.parametrize("type_", ["ExtenderFilesUsable", "SecretsUsable"])
def test_a_profile_that_lacks_what_it_names_is_not_ready(type_: str) -> None:
    accepted, active = ("Accepted", "True", "Valid", ""), ("Active", "True", "Serving", "pods")
    fault = (type_, "False", "NotAllowed", "write it")
    assert list(readiness_statements(accepted, active, [fault])) == [
        ("Ready", "False", "NotAllowed", "write it"),
        ("Stalled", "True", "NotAllowed", "write it"),
    ]
    mended = (type_, "True", "NothingFound", "")
    assert list(readiness_statements(accepted, active, [mended])) == [
        ("Ready", "True", "Serving", "pods")
    ]


def test_a_profile_whose_secrets_are_being_read_is_neither_ready_nor_stalled() -> None:
    accepted, active = ("Accepted", "True", "Valid", ""), ("Active", "True", "Serving", "pods")
    said = list(readiness_statements(accepted, active, [], is_known=False))
    assert [(type_, status) for type_, status, _, _ in said] == [
        ("Ready", "Unknown"),
        ("Reconciling", "True"),
    ]
    refused = ("Accepted", "False", "Invalid", "wrong")
    assert [each[0] for each in readiness_statements(refused, active, [], is_known=False)] == [
        "Ready",
        "Stalled",
    ]


async def test_a_version_is_reported_once_it_is_judged() -> None:
    world = InProcess()
    world.apply(make_profile("a"))
    await world.status.write_changed()
    with world.operator.loader.unchanged():  # a scheduling cycle waits for an extender
        world.apply(make_profile("a", generation=2, **UNKNOWN))
        await world.status.write_changed()
        assert world.profile("a") == {}
    await world.status.write_changed()
    status = world.profile("a")
    accepted = next(each for each in status["conditions"] if each["type"] == "Accepted")
    assert (status["observedGeneration"], accepted["status"]) == (2, "False")


def health_by_argo_cd(obj: JsonObject) -> tuple[str, str]:
    """The health that Argo CD shows by the rule of docs/profiles.md."""
    lupa = pytest.importorskip("lupa", reason="make tools installs lupa, which runs Lua")
    page = (ROOT / "docs" / "profiles.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```yaml\n(kind: ConfigMap\n.*?)```", page, re.DOTALL)
    (rule,) = yaml.safe_load(block)["data"].values()
    lua = lupa.LuaRuntime(unpack_returned_tuples=True)

    def table(value: Any) -> Any:
        if isinstance(value, Mapping):
            return lua.table_from({key: table(each) for key, each in value.items()})
        return lua.table_from(map(table, value)) if isinstance(value, list) else value

    found = lua.eval(f"function(obj) {rule} end")(table(obj))
    return found["status"], found["message"]
