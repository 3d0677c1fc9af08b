"""The profiles that serve and those that are refused, as a list.

The operator's port serves it to the page and to `stellwerk doctor`. Invariant: it is made in steps.
"""

from collections.abc import Iterable
from typing import Final

from stellwerk.answers.profiles import (
    ApiServerFields,
    ProfileObject,
    ProfilesPage,
    RefusedProfile,
    ServingProfile,
)
from stellwerk.explain.steps import Steps
from stellwerk.models.api_kinds import API_KINDS
from stellwerk.profiles.spec.plugin_description import ExtensionPoint
from stellwerk.world.world import World

_MAX_PROFILES_PER_STEP: Final = 50
"""Profiles that are written before the next decision may be made; one lists many plugins."""


def profiles_page(world: World, objects: Iterable[ProfileObject]) -> Steps[ProfilesPage]:
    """Every profile that serves, why others do not, and what the objects' conditions say."""
    yield
    items, described = list[ServingProfile](), list[ProfileObject]()
    for profile in list(world.profiles.served.values()):
        items.append(
            ServingProfile(
                name=profile.loaded.name,
                scheduler_name=profile.scheduler_name,
                generation=profile.loaded.generation,
                plugins={
                    point.value: list(profile.loaded.plugins.at(point)) for point in ExtensionPoint
                },
                weights=dict(profile.loaded.plugins.weights),
                scheduled_pods=profile.activity.scheduled_pods,
                extenders=profile.extenders is not None,
                compatibility=str(profile.compatibility.version),
            )
        )
        if len(items) % _MAX_PROFILES_PER_STEP == 0:
            yield
    for each in objects:
        described.append(each)
        if len(described) % _MAX_PROFILES_PER_STEP == 0:
            yield
    refused = [
        RefusedProfile(scheduler_name=name, reason=reason)
        for name, reason in world.profiles.refusals.items()
    ]
    return ProfilesPage(
        items=items, refused=refused, objects=described, api_server=_api_server(world)
    )


def _api_server(world: World) -> ApiServerFields:
    off = {
        kind: f"{lack.reason}: {API_KINDS[kind].lack}" if kind in API_KINDS else lack.reason
        for kind, lack in world.lacks.items()
    }
    return ApiServerFields(
        version=world.profiles.server_version,
        compatibility=str(world.profiles.compatibility.version),
        versions_in_use=dict(world.versions),
        off=off,
    )
