"""The objects of a live cluster that decisions read, as one list.

`stellwerk decide`, `simulate` and `plan` read them. Invariant: it only lists; kinds beside nodes
and pods that the cluster lacks, or does not show this user, are left out and named in one warning
(but for profiles where Stellwerk is not installed). A client is loaded only when a cluster is
asked.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from stellwerk_kube.json_values import JsonObject

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from stellwerk.client.kubernetes import KubernetesClient
    from stellwerk.handlers.watched_kinds import WatchedKind

logger = logging.getLogger(__name__)

_OF_GROUPS_AND_DEVICES: Final = frozenset(
    {
        "DeviceClass",
        "ResourceSlice",
        "ResourceClaim",
        "DeviceTaintRule",
        "PodGroup",
        "CoschedulingPodGroup",
    }
)
"""Kinds that clusters serve in one of several versions, or not at all. Cases do without them."""


class ObjectsOfServer(list[JsonObject]):
    """The objects of a live cluster, with the version of its API server."""

    server_version: str = ""
    """As `/version` has it, such as v1.37.0; decisions follow its release."""


def read_live_objects(kubeconfig: str | None, context: str | None) -> ObjectsOfServer:
    """Every object, each with its kind.

    Raises:
        ConfigurationError: the cluster cannot be reached as configured.
        RightsMissingError: nodes or pods may not be listed.
        ApiError: a list failed.
    """
    return _read(kubeconfig, context, _without_groups)


def read_objects_to_simulate(kubeconfig: str | None, context: str | None) -> ObjectsOfServer:
    """Read the objects, with groups of pods and claims for devices as far as the cluster has them.

    Raises:
        ConfigurationError: the cluster cannot be reached as configured.
        RightsMissingError: nodes or pods may not be listed.
        ApiError: a list failed.
    """
    return _read(kubeconfig, context, _with_templates)


def read_objects_to_plan(kubeconfig: str | None, context: str | None) -> ObjectsOfServer:
    """Every object, and the DaemonSets, whose pods each new node gets.

    Raises:
        ConfigurationError: the cluster cannot be reached as configured.
        RightsMissingError: nodes or pods may not be listed.
        ApiError: a list failed.
    """
    return _read(kubeconfig, context, _with_daemon_sets)


def _without_groups(kinds: Iterable[WatchedKind]) -> list[WatchedKind]:
    return [each for each in kinds if each.kind not in _OF_GROUPS_AND_DEVICES]


def _with_templates(kinds: Iterable[WatchedKind]) -> list[WatchedKind]:
    known = {each.kind: each for each in kinds}
    template = replace(
        known["ResourceClaim"], kind="ResourceClaimTemplate", plural="resourceclaimtemplates"
    )
    return [*known.values(), template]


def _with_daemon_sets(kinds: Iterable[WatchedKind]) -> list[WatchedKind]:
    from stellwerk.handlers.watched_kinds import WatchedKind  # noqa: PLC0415

    return [*_without_groups(kinds), WatchedKind("DaemonSet", "apps", "v1", "daemonsets")]


def _read(
    kubeconfig: str | None,
    context: str | None,
    choose: Callable[[Iterable[WatchedKind]], Iterable[WatchedKind]],
) -> ObjectsOfServer:
    import asyncio  # noqa: PLC0415

    from stellwerk_cli.commands.cluster_client import with_client  # noqa: PLC0415 aiohttp

    return asyncio.run(with_client(kubeconfig, context, partial(_read_kinds, choose)))


async def _read_kinds(
    choose: Callable[[Iterable[WatchedKind]], Iterable[WatchedKind]], client: KubernetesClient
) -> ObjectsOfServer:
    from stellwerk.profiles.spec.profile import KIND as PROFILE  # noqa: PLC0415 pydantic
    from stellwerk_cli.reading.reader import BY_KIND, objects_of  # noqa: PLC0415 kopf

    # Also pods that have finished, which a simulation may have come anew.
    kinds = [replace(each, field_selector=None) for each in choose(BY_KIND.values())]
    objects, unread = await objects_of(client, kinds)
    found = ObjectsOfServer(objects)
    found.server_version = await client.check_reachable()
    absent = [
        kind
        for kind, why in unread.items()
        if not why.absent or (kind != PROFILE and kind not in _OF_GROUPS_AND_DEVICES)
    ]
    if absent:
        why_absent = "the cluster lacks them, or this user may not list them"
        logger.warning("decided without any %s: %s", ", ".join(absent), why_absent)
    return found
