"""The default profile is made where the cluster has none; flows have the rest of its story."""

from stellwerk.profiles.default_profile import ensure_profile
from stellwerk.profiles.spec.profile import operator_of
from stellwerk_kube.errors import Conflict
from tests.support.in_process import InProcess


async def test_a_named_operator_makes_the_first_profile_of_its_name() -> None:
    world = InProcess()
    world.operator.loader.operator_name = "gpu"
    await ensure_profile(world.operator.loader, world.client, world.operator.handlers)
    assert set(world.profiles.served) == {"gpu"}
    assert operator_of(world.operator.loader.entries["gpu"].obj) == "gpu"


async def test_a_profile_that_another_client_makes_meanwhile_stays() -> None:
    world = InProcess()
    path = "/apis/scheduling.stellwerk.dev/v1alpha1/schedulerprofiles"
    world.client.failures[path] = Conflict("create", 409, "AlreadyExists", "default exists")
    await ensure_profile(world.operator.loader, world.client, world.operator.handlers)
    assert not world.client.objects
    assert not world.profiles.served
