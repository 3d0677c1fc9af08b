"""Allocations between Reserve and the moment in which the API shows them.

DynamicResources writes them into the object store, where every profile sees them; `allocated`
counts them. Invariant: from Reserve on, a device is marked here or shown as allocated in the store,
without a moment between the two, until it is given back.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from stellwerk.framework.services import ObjectStore
from stellwerk.models.json_values import JsonObject
from stellwerk.models.pod_group_key import PodGroupKey
from stellwerk.snapshot.columns import ChangeCursor

KIND: Final = "AllocationInFlight"
"""A kind that only this module stores."""
_CLAIM: Final = "ResourceClaim"


@dataclass(slots=True)
class InFlight:
    """The marks that are set in one store."""

    objects: ObjectStore
    _cursor: ChangeCursor[tuple[str, str]] = field(init=False)

    def __post_init__(self) -> None:
        self._cursor = ChangeCursor(self.objects.changes(_CLAIM))

    def mark(
        self,
        uid: str,
        namespace: str,
        allocation: JsonObject,
        group: PodGroupKey | None = None,
    ) -> None:
        """An allocation is decided for the claim of this uid; members of the group may join it."""
        self.objects.hold(
            KIND,
            {
                "metadata": {"namespace": namespace, "name": uid},
                "status": {"allocation": allocation},
                "group": group,
                "joined": (),
            },
        )

    def shared_with(self, uid: str, namespace: str, group: PodGroupKey | None) -> JsonObject | None:
        """The allocation in flight that a member of the group may join; None: there is none."""
        mark = self.objects.get(KIND, namespace, uid)
        if mark is None or group is None or mark.get("group") != group:
            return None
        allocation: JsonObject = mark["status"]["allocation"]
        return allocation

    def join(self, uid: str, namespace: str, consumer: JsonObject) -> None:
        """Another pod uses the claim, too, and is reserved with the first one."""
        mark = self.objects.get(KIND, namespace, uid)
        if mark is not None:
            self.objects.hold(KIND, {**mark, "joined": (*mark.get("joined", ()), consumer)})

    def leave(self, uid: str, namespace: str, consumer: JsonObject) -> None:
        """It does not, after all; idempotent."""
        mark = self.objects.get(KIND, namespace, uid)
        if mark is not None:
            joined = tuple(each for each in mark.get("joined", ()) if each != consumer)
            self.objects.hold(KIND, {**mark, "joined": joined})

    def joined(self, uid: str, namespace: str) -> Sequence[JsonObject]:
        """The pods that use the claim beside the one that it was decided for."""
        mark = self.objects.get(KIND, namespace, uid)
        return () if mark is None else mark.get("joined", ())

    def stored(self, uid: str, namespace: str) -> JsonObject | None:
        """The claim as the API has it with what was in flight; None: it has not."""
        mark = self.objects.get(KIND, namespace, uid)
        return None if mark is None else mark.get("written")

    def has(self, uid: str, namespace: str) -> bool:
        """Whether an allocation of the claim is in flight."""
        return self.objects.get(KIND, namespace, uid) is not None

    def written(self, uid: str, namespace: str, claim: JsonObject) -> None:
        """The API has the allocation; the mark stays until the watch shows that."""
        mark = self.objects.get(KIND, namespace, uid)
        if mark is None:
            return
        metadata = claim["metadata"]
        self.objects.hold(KIND, {**mark, "written": claim, "doubtful": False})
        shown = self.objects.get(_CLAIM, namespace, metadata["name"])
        # A claim that was there when it was decided, and is not now, has been deleted since.
        deleted = shown is None and metadata.get("uid") == uid
        if deleted or (shown is not None and _overtakes(shown, claim)):
            self.forget(uid, namespace)

    def doubt(self, uid: str, namespace: str, *, doubtful: bool = True) -> None:
        """Whether the API has the allocation is not known, or it is known that it has not."""
        mark = self.objects.get(KIND, namespace, uid)
        if mark is not None:
            self.objects.hold(KIND, {**mark, "doubtful": doubtful})

    def is_in_doubt(self, uid: str, namespace: str) -> bool:
        """Whether it is not known if the API has the allocation."""
        mark = self.objects.get(KIND, namespace, uid)
        return mark is not None and bool(mark.get("doubtful"))

    def may_be_written(self, uid: str, namespace: str) -> bool:
        """Whether the API has the allocation, or may have it, and has not shown it."""
        mark = self.objects.get(KIND, namespace, uid)
        return mark is not None and ("written" in mark or bool(mark.get("doubtful")))

    def awaits(self, name: str, namespace: str) -> bool:
        """Whether the watch has yet to show what was written to the claim of this name."""
        return any(
            mark["written"]["metadata"]["name"] == name
            and mark["metadata"]["namespace"] == namespace
            for mark in self._written()
        )

    def forget(self, uid: str, namespace: str) -> None:
        """The allocation is given back, or shown; idempotent."""
        self.objects.let_go(KIND, {"metadata": {"namespace": namespace, "name": uid}})

    def settle(self) -> None:
        """Forget the marks of what the API has shown since."""
        if self._cursor.current:
            return
        changed = self._cursor.advance()
        for mark in self._written():
            claim = mark["written"]["metadata"]
            key = (claim.get("namespace") or "", claim["name"])
            shown = self.objects.get(_CLAIM, *key)
            # What changed and is gone was shown and deleted, perhaps both since the last look.
            gone = shown is None and (changed is None or key in changed)
            if gone or (shown is not None and _overtakes(shown, mark["written"])):
                self.forget(mark["metadata"]["name"], mark["metadata"]["namespace"])

    def _written(self) -> Sequence[JsonObject]:
        return [mark for mark in self.objects.list(KIND) if "written" in mark]


def _overtakes(shown: JsonObject, written: JsonObject) -> bool:
    """Whether the store shows what was written, or something later."""
    if shown["metadata"].get("uid") != written["metadata"].get("uid"):
        return True
    return _version(shown) >= _version(written)


def _version(claim: Mapping[str, JsonObject]) -> int:
    """The resourceVersion, which the API lets clients compare; 0: it is none of ours."""
    version = str(claim["metadata"].get("resourceVersion") or "")
    return int(version) if version.isdecimal() else 0
