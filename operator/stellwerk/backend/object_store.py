"""Every watched object that is neither a pod nor a node, as in the API, indexed as plugins need.

ResourceSlices are the exception: they are kept parsed, because they name every device of the
cluster. Event handlers set and remove; plugins read, and VolumeBinding assumes its next writes.
Invariant: an assumption replaces the stored object, in every answer and index but `stored`, until
it is restored or the API shows another resourceVersion or a deletion.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final, TypeAlias

from typing_extensions import override

from stellwerk.framework.services import ObjectStore
from stellwerk.snapshot.columns import Changes, CopyOnWrite
from stellwerk_kube.json_values import JsonObject, text
from stellwerk_kube.resource_slice import kept_slice

ObjectKey: TypeAlias = tuple[str, str]
"""Namespace ("" for cluster-scoped kinds) and name."""

_MAX_KEPT_CHANGES: Final = 8192
"""Changes of one kind that are kept. A reader that is further behind reads every object."""
_MAX_SET_ASIDE: Final = 256
"""Latest assumptions that can be set aside and restored: more than a pod has volumes and claims."""


def _claim_of_volume(volume: JsonObject) -> str:
    claim = volume["spec"].get("claimRef")
    return f"{claim.get('namespace', '')}/{claim['name']}" if claim else ""


def _attached_volume(attachment: JsonObject) -> str:
    return str((attachment["spec"].get("source") or {}).get("persistentVolumeName") or "")


_INDEXES: Final[Mapping[str, Mapping[str, Callable[[JsonObject], str]]]] = {
    "PersistentVolume": {"claim": _claim_of_volume},
    "PersistentVolumeClaim": {"volumeName": lambda claim: claim["spec"].get("volumeName") or ""},
    "VolumeAttachment": {
        "nodeName": lambda attachment: attachment["spec"]["nodeName"],
        "persistentVolumeName": _attached_volume,
    },
}
"""Kind → index → the value an object is found by; "" is not indexed."""
_KEPT: Final[Mapping[str, Callable[[JsonObject], JsonObject]]] = {"ResourceSlice": kept_slice}
"""Kind → a function that shortens its objects, for kinds that are too large to keep as they are."""


class _Table:
    """The objects of one kind."""

    def __init__(self, kind: str) -> None:
        self.objects: dict[ObjectKey, JsonObject] = {}
        """The objects that readers see: stored ones, or those assumed in their place."""
        self.replaced: dict[ObjectKey, JsonObject] = {}
        """The stored object behind each assumption."""
        self.changes: Changes[ObjectKey] = Changes(keep=_MAX_KEPT_CHANGES)
        self._kind = kind
        self._value_of = _INDEXES.get(kind, {})
        self._found: dict[str, CopyOnWrite[str, dict[ObjectKey, None]]] = {
            index: CopyOnWrite() for index in self._value_of
        }

    def write(self, key: ObjectKey, obj: JsonObject | None) -> None:
        """Show `obj` under the key from now on (None: nothing); a malformed one changes nothing."""
        indexed = {
            index: value_of(obj) if obj is not None else ""
            for index, value_of in self._value_of.items()
        }
        for value in indexed.values():
            text(value)
        before = self.objects.pop(key, None) if obj is None else self.objects.get(key)
        if obj is not None:
            self.objects[key] = obj
        for index, value_of in self._value_of.items():
            old = value_of(before) if before is not None else ""
            new = indexed[index]
            if old != new:
                self._move(self._found[index], key, old, new)
        self.changes.append(key)

    def found(self, index: str, value: str) -> Iterator[JsonObject]:
        """The objects with that value, in order of arrival."""
        return (self.objects[key] for key in self._found[index].get(value) or ())

    def fork(self) -> "_Table":
        """Copy the table; readers of the copy cannot ask for changes before it."""
        fork = _Table(self._kind)
        fork.objects, fork.replaced = self.objects.copy(), self.replaced.copy()
        fork.changes = Changes(self.changes.position, _MAX_KEPT_CHANGES)
        fork._found = {index: found.fork() for index, found in self._found.items()}
        return fork

    @staticmethod
    def _move(
        found: CopyOnWrite[str, dict[ObjectKey, None]], key: ObjectKey, old: str, new: str
    ) -> None:
        if old and (keys := found.to_change(old)) is not None:
            del keys[key]
            if not keys:
                found.discard(old)
        if new:
            keys = found.to_change(new)
            if keys is None:
                found.put(new, {key: None})
            else:
                keys[key] = None


_Assumed: TypeAlias = tuple[_Table, ObjectKey, JsonObject]
"""(table, key, the object that readers saw there before an assumption)."""


class IndexedObjectStore(ObjectStore):
    """The objects of every kind in dictionaries, found by name, namespace or index."""

    def __init__(self) -> None:
        self._tables: dict[str, _Table] = {}
        self.unseen: dict[str, str] = {}
        """Kinds whose objects cannot be seen, with the reason."""
        self.assumptions = 0
        """Number of assumptions made so far."""
        self._latest: deque[_Assumed] = deque(maxlen=_MAX_SET_ASIDE)
        self.on_held: Callable[[str, JsonObject], None] = lambda *_: None
        """Called with the kind and an object that a plugin holds here from now on."""
        self.on_let_go: Callable[[str, JsonObject], None] = lambda *_: None
        """Called with the kind and an object that a plugin held here."""

    @property
    def position(self) -> int:
        """A number that grows with each change of any object, an assumed one included."""
        return sum([table.changes.position for table in self._tables.values()])

    # --- what event handlers write --------------------------------------------------------------

    def set(self, kind: str, obj: JsonObject) -> JsonObject | None:
        """Add or update an object; returns what the API showed before (None: it was not there).

        Raises:
            KeyError, TypeError, AttributeError: the object is malformed; nothing has changed.
        """
        table, key = self._table(kind), _key(obj)
        kept = _KEPT.get(kind)
        if kept is not None:
            obj = kept(obj)
        before = table.replaced.get(key) or table.objects.get(key)
        if key in table.replaced:
            assumed = table.objects[key]
            if _resource_version(assumed) == _resource_version(obj):
                table.replaced[key] = obj
                return before
        table.write(key, obj)
        table.replaced.pop(key, None)
        return before

    def remove(self, kind: str, obj: JsonObject) -> JsonObject | None:
        """Remove the object of this name; returns what it was.

        Another uid than the object's means that the name has been re-used: nothing happens.
        """
        table, key = self._table(kind), _key(obj)
        before = table.replaced.get(key) or table.objects.get(key)
        uid = obj["metadata"].get("uid")
        if before is None or (uid and before["metadata"].get("uid") not in {uid, None}):
            return None
        table.replaced.pop(key, None)
        table.write(key, None)
        return before

    # --- what plugins read ----------------------------------------------------------------------

    @override
    def get(self, kind: str, namespace: str, name: str) -> JsonObject | None:
        """The object, or what is assumed in its place; not to be changed."""
        table = self._tables.get(kind)
        return table.objects.get((namespace, name)) if table else None

    @override
    def stored(self, kind: str, namespace: str, name: str) -> JsonObject | None:
        """The object as the API last showed it, whatever is assumed."""
        table = self._tables.get(kind)
        if table is None:
            return None
        return table.replaced.get((namespace, name)) or table.objects.get((namespace, name))

    @override
    def list(self, kind: str, namespace: str | None = None) -> Iterable[JsonObject]:
        """Every object of the kind (in the namespace), in order of arrival."""
        table = self._tables.get(kind)
        if table is None:
            return ()
        if namespace is None:
            return table.objects.values()
        return [obj for key, obj in table.objects.items() if key[0] == namespace]

    @override
    def why_unseen(self, kind: str) -> str:
        return self.unseen.get(kind, "")

    @override
    def list_by(self, kind: str, index: str, value: str) -> Iterable[JsonObject]:
        """The objects that an index of the kind finds by a value, in order of arrival.

        Raises:
            KeyError: the kind has no such index.
        """
        return self._table(kind).found(index, value)

    @override
    def changes(self, kind: str) -> Changes[ObjectKey]:
        """(namespace, name) of every object of that kind that changed, assumptions included."""
        return self._table(kind).changes

    # --- what VolumeBinding assumes -------------------------------------------------------------

    @override
    def assume(self, kind: str, obj: JsonObject) -> None:
        """Show `obj` in place of the stored object of the same resourceVersion.

        Raises:
            ValueError: the object is gone, or the stored one has another resourceVersion.
        """
        table, key = self._table(kind), _key(obj)
        stored = table.replaced.get(key) or table.objects.get(key)
        shown = "/".join(filter(None, key))
        if stored is None:
            raise ValueError(f"cannot assume {kind} {shown}: it does not exist")
        if _resource_version(stored) != _resource_version(obj):
            raise ValueError(
                f'"{shown}" is out of sync '
                f"(stored: {_resource_version(stored)}, assume: {_resource_version(obj)})"
            )
        self.assumptions += 1
        self._latest.append((table, key, table.objects[key]))
        table.replaced[key] = stored
        table.write(key, obj)

    @contextmanager
    def before(self, assumptions: int) -> Iterator[None]:
        """Show everything, inside a block, as it was when `assumptions` had this number.

        Nothing may be assumed or restored meanwhile.
        """
        made = self.assumptions - assumptions
        latest = list(self._latest)[-made:] if made else []
        again: list[tuple[_Table, ObjectKey, JsonObject, JsonObject]] = []
        for table, key, shown in reversed(latest):
            stored = table.replaced.get(key)
            if stored is not None:
                again.append((table, key, stored, table.objects[key]))
                table.write(key, shown)
                if shown is stored:
                    del table.replaced[key]
        try:
            yield
        finally:
            for table, key, stored, assumed in reversed(again):
                table.replaced[key] = stored
                table.write(key, assumed)

    @override
    def restore(self, kind: str, obj: JsonObject) -> None:
        """Take an assumption back, unless the API has overtaken it; idempotent."""
        table, key = self._table(kind), _key(obj)
        stored = table.replaced.get(key)
        if stored is not None and _resource_version(stored) == _resource_version(obj):
            del table.replaced[key]
            table.write(key, stored)

    # --- what DynamicResources keeps in flight --------------------------------------------------

    @override
    def hold(self, kind: str, obj: JsonObject) -> None:
        """Show an object of a kind that plugins alone write, in place of any of its name."""
        self._table(kind).write(_key(obj), obj)
        self.on_held(kind, obj)

    @override
    def let_go(self, kind: str, obj: JsonObject) -> None:
        """Take such an object away; idempotent."""
        table, key = self._table(kind), _key(obj)
        if key in table.objects:
            table.write(key, None)
            self.on_let_go(kind, obj)

    def fork(self) -> "IndexedObjectStore":
        """A store of the same objects and assumptions; neither side sees what the other changes."""
        fork = IndexedObjectStore()
        fork._tables = {kind: table.fork() for kind, table in self._tables.items()}
        fork.unseen = self.unseen.copy()
        return fork

    def _table(self, kind: str) -> _Table:
        table = self._tables.get(kind)
        if table is None:
            table = self._tables[kind] = _Table(kind)
        return table


def _key(obj: JsonObject) -> ObjectKey:
    metadata = obj["metadata"]
    return (metadata.get("namespace") or "", metadata["name"])


def _resource_version(obj: JsonObject) -> str:
    return str(obj["metadata"].get("resourceVersion") or "")
