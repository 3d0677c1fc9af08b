"""Which profiles a process may serve, by what it is and by the right that it has."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from typing_extensions import override

from stellwerk.profiles.permission import (
    MAX_FIRST_ANSWER_SECONDS,
    MISSING_REVIEW_SECONDS,
    REVIEW_SECONDS,
    RightReview,
    SchedulingPermission,
)
from stellwerk_kube.errors import ApiError, Forbidden, NotFound, Unavailable
from stellwerk_kube.json_values import JsonObject
from tests.support.builders import make_node, make_pod
from tests.support.in_process import InProcess, eventually, make_profile, quiet, running
from tests.support.memory_client import MemoryClient

SELECTS_UNNAMED: JsonObject = {"selector": {"podSelector": {}}}
SELECTS_OTHERS: JsonObject = {"selector": {"schedulerNames": ["others"]}}

ALONE: JsonObject = {"allowBeside": False}

BESIDE = [
    pytest.param("a", {}, "Valid", id="a schedulerName of its own"),
    pytest.param("a", SELECTS_OTHERS, "Valid", id="a selector of other names"),
    pytest.param("a", SELECTS_UNNAMED, "BesideKubeScheduler", id="pods that name no scheduler"),
    pytest.param("default-scheduler", ALONE, "BesideKubeScheduler", id="the name itself"),
    pytest.param("default-scheduler", {"allowBeside": True}, "Valid", id="allowed beside"),
    pytest.param("default-scheduler", {"mode": "Observe"}, "Valid", id="observed"),
]


def verdict(world: InProcess, name: str) -> tuple[str, str, str]:
    """(reason of Accepted, Active, its reason)."""
    conditions = {each["type"]: each for each in world.profile(name)["conditions"]}
    active = conditions["Active"]
    return conditions["Accepted"]["reason"], active["status"], active["reason"]


def message(world: InProcess, name: str) -> str:
    """The message of Accepted."""
    conditions = {each["type"]: each for each in world.profile(name)["conditions"]}
    return str(conditions["Accepted"]["message"])


async def permit(world: InProcess, **facts: Any) -> None:
    """Change the facts about the process."""
    for name, value in facts.items():
        setattr(world.operator.loader.permission, name, value)
    world.operator.loader.on_permission()
    await world.status.write_changed()


@pytest.mark.parametrize(("name", "spec", "reason"), BESIDE)
async def test_beside_kube_scheduler_its_pods_are_not_served(
    name: str, spec: JsonObject, reason: str
) -> None:
    world = InProcess()
    await permit(world, is_only_scheduler=False)
    world.apply(make_profile(name, **spec))
    await world.status.write_changed()
    assert verdict(world, name)[0] == reason
    assert (name in world.profiles.served) == (reason == "Valid")


@pytest.mark.parametrize(("name", "spec", "_"), BESIDE)
async def test_with_the_lease_of_kube_scheduler_all_serve(
    name: str, spec: JsonObject, _: str
) -> None:
    world = InProcess()
    world.apply(make_profile(name, **spec))
    assert name in world.profiles.served


async def test_a_refusal_says_what_to_do() -> None:
    world = InProcess()
    await permit(world, is_only_scheduler=False)
    world.apply(make_profile("default-scheduler", **ALONE), make_profile("b", **SELECTS_UNNAMED))
    await world.status.write_changed()
    told = message(world, "default-scheduler")
    assert told.startswith("spec.schedulerName: kube-scheduler serves the pods of default-sch")
    for remedy in ("overlays/in-place", "takeOverDefaultScheduler: true", "Observe", "allowBeside"):
        assert remedy in told
    assert message(world, "b").startswith("spec.selector: kube-scheduler serves the pods of")


async def test_an_observer_serves_only_what_observes() -> None:
    world = InProcess()
    await permit(world, observe_only=True)
    world.apply(
        make_profile("seen", mode="Observe"),
        make_profile("default-scheduler", allowBeside=True),
        make_profile("own"),
    )
    await world.status.write_changed()
    assert world.profiles.served.keys() == {"seen"}
    for name in ("default-scheduler", "own"):
        assert verdict(world, name) == ("ObserveOnly", "False", "ObserveOnly")
        assert "--observe" in message(world, name)


async def test_a_profile_without_the_right_waits_for_it() -> None:
    world = InProcess()
    await permit(world, missing_right="create pods/binding")
    world.apply(make_profile("own"))
    await world.status.write_changed()
    assert verdict(world, "own") == ("RightMissing", "False", "RightMissing")
    assert "lacks the right to create pods/binding in all namespaces" in message(world, "own")
    await permit(world, missing_right="")
    assert verdict(world, "own") == ("Valid", "True", "Serving")
    await permit(world, missing_right="create pods/binding")
    assert verdict(world, "own") == ("RightMissing", "False", "RightMissing")
    assert not world.profiles.served


async def test_an_edit_to_schedule_without_the_right_goes_on_observing() -> None:
    world = InProcess()
    await permit(world, missing_right="create pods/binding")
    world.apply(make_profile("a", mode="Observe"))
    await world.status.write_changed()
    world.apply(make_profile("a", generation=2))
    await world.status.write_changed()
    assert verdict(world, "a") == ("RightMissing", "True", "LastGoodVersion")
    assert world.profiles.served["a"].observes
    await permit(world, missing_right="")
    assert verdict(world, "a") == ("Valid", "True", "Serving")
    assert not world.profiles.served["a"].observes


async def test_a_last_good_version_that_schedules_needs_the_right_too() -> None:
    world = InProcess()
    unknown: JsonObject = {"plugins": {"score": {"enabled": [{"name": "Foo"}]}}}
    world.apply(make_profile("a"))
    await world.status.write_changed()
    world.apply(make_profile("a", generation=2, **unknown))
    await world.status.write_changed()
    assert verdict(world, "a") == ("Invalid", "True", "LastGoodVersion")
    await permit(world, missing_right="create pods/binding")
    assert verdict(world, "a") == ("Invalid", "False", "Invalid")
    assert world.profile("a")["lastGoodGeneration"] == 1
    await permit(world, missing_right="")
    assert verdict(world, "a") == ("Invalid", "True", "LastGoodVersion")


async def test_a_profile_that_may_not_serve_claims_nothing() -> None:
    """Neither its name nor the order of the queue, whatever its age."""
    world = InProcess()
    await permit(world, is_only_scheduler=False)
    world.apply(
        make_profile("old", "default-scheduler", created=1, **ALONE),
        make_profile("young", "default-scheduler", created=2, mode="Observe"),
        make_profile("other", created=3),
    )
    await world.status.write_changed()
    assert verdict(world, "old")[0] == "BesideKubeScheduler"
    assert world.operator.loader.entries["old"].claims.age is None
    assert verdict(world, "young") == ("Valid", "True", "Observing")
    assert verdict(world, "other") == ("Valid", "True", "Serving")
    await permit(world, is_only_scheduler=True)
    assert verdict(world, "young")[0] == "SchedulerNameTaken"


async def test_pods_wait_for_the_right_and_are_bound_then() -> None:
    async with running() as world:
        await permit(world, missing_right="create pods/binding")
        world.apply(make_profile("own"), make_node("n1"), make_pod("p", scheduler_name="own"))
        await quiet()
        assert world.node_of("p") is None
        await permit(world, missing_right="")
        await eventually(lambda: world.node_of("p") == "n1")


class Reviewed(MemoryClient):
    """An API server that answers access reviews as a test says."""

    def __init__(self) -> None:
        super().__init__()
        self.answer: bool | ApiError | None = True
        """None: no answer ever comes."""
        self.asked: list[JsonObject] = []

    @override
    async def create(self, path: str, body: Mapping[str, Any]) -> JsonObject:
        assert path == "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
        self.asked.append(body["spec"]["resourceAttributes"])
        if isinstance(self.answer, ApiError):
            raise self.answer
        if self.answer is None:
            await asyncio.Event().wait()
        return {**body, "status": {"allowed": self.answer}}


def review() -> tuple[RightReview, SchedulingPermission, Reviewed, list[str]]:
    permission, client, changes = SchedulingPermission(), Reviewed(), list[str]()
    changed: Callable[[], None] = lambda: changes.append(permission.missing_right)  # noqa: E731
    return RightReview(permission, client, changed), permission, client, changes


async def test_the_right_is_asked_for_in_all_namespaces() -> None:
    asking, permission, client, changes = review()
    await asking.ask()
    assert client.asked == [
        {
            "verb": "create",
            "group": "",
            "version": "v1",
            "resource": "pods",
            "subresource": "binding",
        }
    ]
    client.answer = False
    await asking.ask()
    assert permission.missing_right == "create pods/binding"
    client.answer = True
    await asking.ask()
    assert changes == ["create pods/binding", ""]


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(Forbidden("create", 403, "Forbidden", "no"), id="refused"),
        pytest.param(NotFound("create", 404, "NotFound", "no"), id="not served"),
        pytest.param(Unavailable("create", 503, "Unavailable", "no"), id="away"),
    ],
)
async def test_without_an_answer_nothing_is_refused(answer: ApiError) -> None:
    asking, permission, client, changes = review()
    client.answer = answer
    await asking.ask()
    assert (permission.missing_right, changes) == ("", [])


async def test_an_answer_that_does_not_come_changes_nothing() -> None:
    asking, permission, client, _ = review()
    client.answer = False
    await asking.ask()
    client.answer = Unavailable("create", 503, "Unavailable", "no")
    await asking.ask()
    assert permission.missing_right == "create pods/binding"


@pytest.mark.skips_time
async def test_the_start_does_not_wait_for_an_answer_without_end() -> None:
    asking, permission, client, _ = review()
    client.answer = None
    begun = asyncio.get_running_loop().time()
    await asking.first()
    waited_seconds = asyncio.get_running_loop().time() - begun
    assert waited_seconds == pytest.approx(MAX_FIRST_ANSWER_SECONDS, abs=1)
    assert permission.missing_right == ""


@pytest.mark.skips_time
async def test_the_right_is_asked_for_again_from_time_to_time() -> None:
    asking, permission, client, _ = review()
    loop, running_review = asyncio.get_running_loop(), asyncio.create_task(asking.run())
    begun = loop.time()
    await asyncio.sleep(10 * REVIEW_SECONDS + 1)
    assert len(client.asked) == pytest.approx(10, abs=1)
    client.answer = False
    await asyncio.sleep(REVIEW_SECONDS + 1)
    client.asked.clear()
    await asyncio.sleep(10 * MISSING_REVIEW_SECONDS)
    assert len(client.asked) == pytest.approx(10, abs=1)
    client.answer = True
    await asyncio.sleep(MISSING_REVIEW_SECONDS + 1)
    assert permission.missing_right == ""
    client.asked.clear()
    permission.wanted.set()  # a profile was loaded
    await asyncio.sleep(2)
    assert len(client.asked) == 1
    assert loop.time() > begun
    running_review.cancel()


async def test_a_profile_that_schedules_has_the_right_asked_for_again() -> None:
    world = InProcess()
    wanted = world.operator.loader.permission.wanted
    world.apply(make_profile("a", mode="Observe"))
    assert not wanted.is_set()
    world.apply(make_profile("a", generation=2))
    assert wanted.is_set()
