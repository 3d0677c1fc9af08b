"""The writes that a process which only observes may send: its lease, statuses of profiles, reviews.

`app` makes one for `stellwerk run --observe`, and `Transport.send`, which every request but the
watches passes, asks it. The role of manifests/overlays/observe grants the same; this holds also
where a process has more rights. Invariant: reads pass; of writes nothing but what is listed here.
"""

import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final

from stellwerk.client.reviews import REVIEW_PATHS
from stellwerk.profiles.spec.profile import API_VERSION, PLURAL
from stellwerk_kube.errors import Forbidden

_READS: Final = frozenset({"GET", "HEAD"})
_STATUS: Final = re.compile(f"/apis/{re.escape(API_VERSION)}/{PLURAL}/[^/?]+/status")


class AllowedWrites:
    """The list of writes; everything else is refused before it is sent."""

    def __init__(self, leases: str = "", lease: str = "") -> None:
        """`leases` is the path of the namespace's leases and `lease` the own one; empty: none."""
        self._leases = leases
        self._name = lease

    def check(self, method: str, path: str, body: Mapping[str, Any] | None, act: str) -> None:
        """Refuse a request that is neither a read nor on the list; `act` says what it does.

        Raises:
            Forbidden: it is refused; nothing was sent.
        """
        if method in _READS or self._is_allowed(method, path, body):
            return
        raise Forbidden(
            act,
            HTTPStatus.FORBIDDEN,
            "ObserveOnly",
            "this process was started with --observe and writes only its lease and the status of "
            "profiles",
        )

    def _is_allowed(self, method: str, path: str, body: Mapping[str, Any] | None) -> bool:
        if method == "POST":
            is_own = ((body or {}).get("metadata") or {}).get("name") == self._name
            return path in REVIEW_PATHS or (path == self._leases and is_own)
        if method == "PUT":
            return bool(self._leases) and path == f"{self._leases}/{self._name}"
        return method == "PATCH" and _STATUS.fullmatch(path) is not None
