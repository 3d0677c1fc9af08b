"""Authorization of device allocation: `resourceclaims/binding`, beside the status.

`registry.api` asks it; a module of its own as each kind of admission by user is. Drivers report
about devices in the same status, and are not to move allocations. Invariant: under AlwaysAllow
every user passes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from typing_extensions import override

from stellwerk_cluster.apimachinery.failures import forbidden
from stellwerk_cluster.apimachinery.objects import EMPTY
from stellwerk_cluster.identity.attributes import Attributes
from stellwerk_cluster.registry.user_admission import WriteAdmission

if TYPE_CHECKING:
    from stellwerk_cluster.apimachinery.kinds import ResourceKind
    from stellwerk_cluster.apimachinery.users import User
    from stellwerk_cluster.identity.authorizer import Authorizer
    from stellwerk_kube.json_values import JsonObject

_GROUP: Final = "resource.k8s.io"
_CLAIMS: Final = "resourceclaims"
_GUARDED: Final = ("allocation", "reservedFor")


class ClaimStatusAuthorization(WriteAdmission):
    """Refuses changes of allocations and reservations by users without that right."""

    def __init__(self, authorizer: Authorizer) -> None:
        """Ask `authorizer` what a user may do."""
        self._authorizer = authorizer

    @override
    def admit(
        self, kind: ResourceKind, obj: JsonObject, old: JsonObject | None, user: User | None
    ) -> None:
        if user is None or old is None or (kind.group, kind.plural) != (_GROUP, _CLAIMS):
            return
        status, before = obj.get("status") or EMPTY, old.get("status") or EMPTY
        if all(status.get(field) == before.get(field) for field in _GUARDED):
            return
        metadata = obj["metadata"]
        namespace, name = metadata.get("namespace", ""), metadata.get("name", "")
        # Admission does not see whether the request is a PUT or a PATCH: either right is enough.
        acts = (
            Attributes(verb, _GROUP, kind.version, _CLAIMS, "binding", name, namespace)
            for verb in ("update", "patch")
        )
        if not any(self._authorizer.decide(user, act).allowed for act in acts):
            text = (
                "changing status.allocation or status.reservedFor requires the right to update "
                "or patch resourceclaims/binding"
            )
            raise forbidden(kind, name, text)
