"""Reads kinds of objects of a live cluster, page by page, and hands each object on.

`local_port` fills an Operator with it, `commands.live_objects` makes lists for simulations and
plans. Invariant: a page is dealt with and dropped before the one after the next is asked for; a
kind that the caller may not list, or that the server lacks, is an answer and no error, but for
nodes and pods.
"""

from __future__ import annotations

import logging
import re
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from stellwerk.client.paging import checked_page, pages
from stellwerk.handlers.availability import Discovery
from stellwerk.handlers.watched_kinds import WATCHED, WatchedKind
from stellwerk.models.api_kinds import chosen_version, newest_form, unreadable_versions
from stellwerk_kube.errors import ApiError, Forbidden, NotFound, RightsMissingError
from stellwerk_kube.json_values import JsonObject
from stellwerk_kube.untrusted_text import shown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from stellwerk.framework.services import ClusterClient

logger = logging.getLogger(__name__)

_ITEMS_PER_PAGE: Final = 250
"""Objects on a page of a list. The next page arrives while one is dealt with: two of them, of pods
of 8 KB, take about 30 MB as Python objects."""
_MAX_LIST_TRIES: Final = 3
"""Times that a list is begun. The server forgets the version of a list after five minutes, so that
a list which takes longer never ends."""
BY_KIND: Final = {each.kind: each for each in WATCHED}
"""Every kind that decisions read, with the place where the API serves it."""
_ROLE_NAME: Final = "stellwerk-reader"
_RBAC: Final = "rbac.authorization.k8s.io"
REFUSED_USER: Final = re.compile(r'User "([^"]{1,256})" cannot list')
"""The caller's name in the API server's refusal."""
_SERVICE_ACCOUNT: Final = "system:serviceaccount:"


def role_for(user: str, *verbs: str) -> list[JsonObject]:
    """The ClusterRole that gives rights to nodes and pods, and its binding to a caller.

    `user`: the caller's name as the API server says it; empty: it does not.
    """
    subject: JsonObject = {"kind": "User", "name": user or "YOUR-NAME", "apiGroup": _RBAC}
    if user.startswith(_SERVICE_ACCOUNT):
        namespace, _, name = user.removeprefix(_SERVICE_ACCOUNT).partition(":")
        subject = {"kind": "ServiceAccount", "name": name, "namespace": namespace}
    metadata = {"name": _ROLE_NAME}
    return [
        {
            "apiVersion": f"{_RBAC}/v1",
            "kind": "ClusterRole",
            "metadata": metadata,
            "rules": [{"apiGroups": [""], "resources": ["nodes", "pods"], "verbs": [*verbs]}],
        },
        {
            "apiVersion": f"{_RBAC}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": dict(metadata),
            "roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": _ROLE_NAME},
            "subjects": [subject],
        },
    ]


@dataclass(frozen=True, slots=True)
class Unread:
    """The reason for which a kind was not read."""

    reason: str
    absent: bool
    """The server does not have the kind, so that nothing of it exists; False: it cannot be seen."""


@dataclass
class KindReader:
    """Reads kinds through one client."""

    client: ClusterClient
    counts: dict[str, int] = field(default_factory=dict)
    """The objects that were read of each kind, also while its list goes on."""

    def __post_init__(self) -> None:
        self._discovery = Discovery(self.client)

    async def read(
        self,
        kind: WatchedKind,
        take: Callable[[JsonObject], None],
        restart: Callable[[], None] = lambda: None,
        namespace: str = "",
    ) -> WatchedKind | Unread:
        """Hand on every object of a kind; returns the kind in the version that was read.

        Args:
            kind: as the table of kinds has it.
            take: is given each object, with kind and version. A ValueError or the like skips it.
            restart: is called before the list begins anew, because the server has forgotten it.
            namespace: only objects of it; empty: of all.

        Raises:
            RightsMissingError: it is nodes or pods, and they may not be listed.
            ApiError: the list failed.
        """
        try:
            found = await self._in_version(kind)
            if isinstance(found, Unread):
                return found
            await self._list(found, take, restart, namespace)
        except Forbidden as error:
            if kind.indispensable:
                user = REFUSED_USER.search(error.message)
                raise RightsMissingError(
                    f"you may not list {kind.plural} of the whole cluster, and nothing can be "
                    "decided without nodes and the pods of all namespaces; the ClusterRole on "
                    f"standard output gives both rights: {error.message}",
                    role_for(user[1] if user else "", "list"),
                ) from error
            return Unread(f"you may not list {kind.plural}", absent=False)
        except NotFound:
            return Unread(f"the server has no {kind.plural}", absent=True)
        return found

    async def _in_version(self, kind: WatchedKind) -> WatchedKind | Unread:
        """The kind in the newest version that is served and can be read."""
        if not kind.readable:
            return kind
        served = await self._discovery.of_group(kind.group, kind.versions)
        version = chosen_version(kind.plural, kind.versions, served)
        if version is not None:
            return replace(kind, version=version)
        unknown = unreadable_versions(kind.plural, kind.versions, served)
        if unknown:
            versions = f"{', '.join(unknown)}, and not in {', '.join(kind.versions)}"
            return Unread(f"the server has {kind.plural} in {versions}", absent=False)
        return Unread(f"the server has no {kind.plural} of {kind.group}", absent=True)

    async def _list(
        self,
        kind: WatchedKind,
        take: Callable[[JsonObject], None],
        restart: Callable[[], None],
        namespace: str,
    ) -> None:
        path = kind.path
        if namespace:
            path = path.replace(
                kind.group_version_path, f"{kind.group_version_path}/namespaces/{namespace}", 1
            )
        for attempt in range(1, _MAX_LIST_TRIES + 1):
            self.counts[kind.kind] = 0
            try:
                await self._pages(kind, path, take)
            except ApiError as error:
                if error.status != HTTPStatus.GONE or attempt == _MAX_LIST_TRIES:
                    raise
                logger.info("the list of %s has expired and begins anew: %s", kind.plural, error)
                restart()
            else:
                return

    async def _pages(
        self, kind: WatchedKind, path: str, take: Callable[[JsonObject], None]
    ) -> None:
        api_version = f"{kind.group}/{kind.version}" if kind.group else kind.version
        named = {"kind": kind.api_kind, "apiVersion": api_version}
        async with aclosing(
            pages(self.client.get, path, limit=_ITEMS_PER_PAGE, ahead=True)
        ) as found:
            async for page in found:
                items = checked_page(page, kind.api_kind)["items"] or ()
                for item in items:
                    _take(item, named, take)
                self.counts[kind.kind] += len(items)


def _take(item: object, named: JsonObject, take: Callable[[JsonObject], None]) -> None:
    """Hand on one object; one that is malformed is skipped, as an operator skips it."""
    try:
        # Items of a list say neither their kind nor their version.
        take(newest_form({**item, **named}))  # type: ignore[dict-item] # a TypeError skips it
    except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError) as error:
        metadata = item.get("metadata") if isinstance(item, dict) else None
        name = metadata.get("name") if isinstance(metadata, dict) else None
        logger.warning("%s", shown(f"a {named['kind']} is malformed and skipped: {name}: {error}"))


async def objects_of(
    client: ClusterClient, kinds: Iterable[WatchedKind]
) -> tuple[list[JsonObject], dict[str, Unread]]:
    """Every object of these kinds as one list, and the kinds that were not read.

    Raises:
        RightsMissingError: nodes or pods may not be listed.
        ApiError: a list failed.
    """
    reader, objects, unread = KindReader(client), list[JsonObject](), dict[str, Unread]()
    for kind in kinds:
        of_kind = list[JsonObject]()
        found = await reader.read(kind, of_kind.append, of_kind.clear)
        objects += of_kind
        if isinstance(found, Unread):
            unread[kind.kind] = found
    return objects, unread
