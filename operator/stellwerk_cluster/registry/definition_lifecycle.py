"""The lifecycle of a CustomResourceDefinition: names accepted, established, served, withdrawn.

Follows the collection of definitions from inside the store, whether controllers run or not.
Invariant: a definition whose condition Established is True has its versions in the table of kinds,
and one that is deleted has none; a name that one definition of a group has been given is given to
no other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stellwerk_cluster.apimachinery.objects import EMPTY, is_terminating, timestamp, with_value
from stellwerk_cluster.registry.custom_kinds import custom_rows
from stellwerk_cluster.registry.deletion import (
    DEFINITION_FINALIZER,
    DeleteOptions,
    delete_collection,
)
from stellwerk_cluster.registry.entries import ADDED, DELETED, StoreEvent

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator

    from stellwerk_cluster.registry.api import Api
    from stellwerk_kube.json_values import JsonObject

_ACCEPTED: Final = {
    "type": "NamesAccepted",
    "status": "True",
    "reason": "NoConflicts",
    "message": "no conflicts found",
}
_ESTABLISHED: Final = {
    "type": "Established",
    "status": "True",
    "reason": "InitialNamesAccepted",
    "message": "the initial names have been accepted",
}
_INSTALLING: Final = {**_ESTABLISHED, "status": "False", "reason": "Installing"}
_NOT_ACCEPTED: Final = {
    "type": "Established",
    "status": "False",
    "reason": "NotAccepted",
    "message": "not all names are accepted",
}


class DefinitionLifecycle:
    """Writes the conditions of definitions, and keeps the custom kinds in step with them."""

    def __init__(self, api: Api) -> None:
        """Follow the definitions in the store of `api`, and serve those that are there already."""
        self._api = api
        self._kind = api.kinds.resource("customresourcedefinitions", "apiextensions.k8s.io")
        definitions = api.store.collection(self._kind.storage_name)
        definitions.listeners.append(self._on_definition)
        api.store.listeners.append(self._on_change)
        for entry in definitions.entries():
            self._on_definition(StoreEvent(ADDED, entry, None))

    def _on_change(self, storage_name: str, event: StoreEvent) -> None:
        """The last object of a definition that ends lets it go."""
        if event.type == DELETED and not len(self._api.store.collection(storage_name)):
            definition = self._api.find(self._kind.storage_name, "", storage_name)
            if definition is not None and is_terminating(definition):
                self._release(definition)

    def _on_definition(self, event: StoreEvent) -> None:
        definition = event.entry.obj
        if event.type == DELETED:
            self._withdraw(definition, keep=())
            self._decide_again(definition)
        elif is_terminating(definition):
            if event.previous is None or not is_terminating(event.previous.obj):
                self._delete_objects(definition)
        elif _condition(definition, "NamesAccepted") != "True":
            self._decide_on_names(definition)
        elif _condition(definition, "Established") != "True":
            self._set_conditions(definition, (_ESTABLISHED,), {})
        elif (
            event.previous is None
            or event.previous.obj["spec"] != definition["spec"]
            or not self._serves(definition)
        ):
            self._serve(definition)

    def _decide_on_names(self, definition: JsonObject) -> None:
        """Accept the names of a definition, or refuse them because another kind has one of them."""
        clash, accepted = accepted_names(definition, self._others(definition))
        if not clash:
            names = definition["spec"]["names"]
            self._set_conditions(definition, (_ACCEPTED, _INSTALLING), {"acceptedNames": names})
        elif clash.items() - _named_condition(
            definition, "NamesAccepted"
        ).items() or accepted != definition["status"].get("acceptedNames"):
            self._set_conditions(definition, (clash, _NOT_ACCEPTED), {"acceptedNames": accepted})

    def _decide_again(self, gone: JsonObject) -> None:
        """Look anew at definitions that were refused names which have become free."""
        for other in list(self._others(gone)):
            if _condition(other, "NamesAccepted") == "False" and not is_terminating(other):
                self._decide_on_names(other)

    def _others(self, definition: JsonObject) -> Iterator[JsonObject]:
        """The other definitions of the group."""
        group, name = definition["spec"]["group"], definition["metadata"]["name"]
        for other in self._api.all(self._kind.storage_name):
            if other["spec"]["group"] == group and other["metadata"]["name"] != name:
                yield other

    def _set_conditions(
        self, definition: JsonObject, conditions: tuple[JsonObject, ...], changes: JsonObject
    ) -> None:
        now = timestamp(self._api.now())
        given = {each["type"]: {**each, "lastTransitionTime": now} for each in conditions}
        key = ("", definition["metadata"]["name"])

        def changed(obj: JsonObject) -> JsonObject:
            kept = {each["type"]: each for each in obj["status"].get("conditions") or ()}
            merged = list({**kept, **given}.values())
            return {**obj, "status": {**obj["status"], **changes, "conditions": merged}}

        self._api.modify(self._kind, key, changed, owned_under="status")

    def _serves(self, definition: JsonObject) -> bool:
        return any(
            self._api.kinds.find(row.group, row.version, row.plural)
            for row, _ in custom_rows(definition)
        )

    def _serve(self, definition: JsonObject) -> None:
        served = [(row, each) for row, each in custom_rows(definition) if each["served"]]
        self._withdraw(definition, keep=[row.version for row, _ in served])
        for row, version in served:
            self._api.custom.serve(row, version)

    def _withdraw(self, definition: JsonObject, keep: Container[str]) -> None:
        """Serve no other versions of the kind than those that are kept."""
        group, plural = definition["spec"]["group"], definition["spec"]["names"]["plural"]
        rows = [row for row in self._api.kinds if (row.group, row.plural) == (group, plural)]
        for row in rows:
            if row.custom and row.version not in keep:
                self._api.custom.withdraw(row)

    def _delete_objects(self, definition: JsonObject) -> None:
        """Delete the objects of a definition that ends; it goes with the last of them.

        Those with finalizers stay until these are removed.
        """
        name = definition["metadata"]["name"]
        row = next((row for row in self._api.kinds if row.storage_name == name), None)
        if _condition(definition, "Established") == "True" and row is not None:
            entries = self._api.store.collection(row.storage_name).entries()
            delete_collection(self._api, row, entries, DeleteOptions())
        if not len(self._api.store.collection(name)):
            self._release(definition)
            return
        deleting = {
            "type": "Terminating",
            "status": "True",
            "reason": "InstanceDeletionInProgress",
            "message": "CustomResource deletion is in progress",
        }
        self._set_conditions(definition, (deleting,), {})

    def _release(self, definition: JsonObject) -> None:
        key = ("", definition["metadata"]["name"])
        if self._api.find(self._kind.storage_name, *key) is not None:
            self._api.modify(self._kind, key, _released)


def _released(definition: JsonObject) -> JsonObject:
    finalizers = definition["metadata"].get("finalizers") or ()
    kept = [each for each in finalizers if each != DEFINITION_FINALIZER]
    return with_value(definition, ("metadata", "finalizers"), kept or None)


def _condition(definition: JsonObject, type_: str) -> str:
    return str(_named_condition(definition, type_).get("status", ""))


def _named_condition(definition: JsonObject, type_: str) -> JsonObject:
    conditions = (definition.get("status") or EMPTY).get("conditions") or ()
    return next((each for each in conditions if each["type"] == type_), EMPTY)


def accepted_names(
    definition: JsonObject, others: Iterable[JsonObject]
) -> tuple[JsonObject, JsonObject]:
    """The condition about names that are taken, empty if none is, and the names that are free.

    Of several clashes the condition names the last, in the order in which they are looked at.
    """
    resources, kinds = _taken(others)
    wanted = definition["spec"]["names"]
    had = (definition.get("status") or EMPTY).get("acceptedNames") or EMPTY
    accepted: JsonObject = {"plural": "", "kind": ""}
    clash: JsonObject = {}
    looked_at = (
        ("plural", "PluralConflict", resources),
        ("singular", "SingularConflict", resources),
        ("shortNames", "ShortNamesConflict", resources),
        ("kind", "KindConflict", kinds),
        ("listKind", "ListKindConflict", kinds),
    )
    for field, reason, taken in looked_at:
        names = wanted.get(field) or ()
        asked = (names,) if isinstance(names, str) else names
        clashing = [f'"{name}" is already in use' for name in asked if name in taken]
        if clashing and wanted.get(field) != had.get(field):
            message = clashing[0] if len(clashing) == 1 else f"[{', '.join(clashing)}]"
            clash = {
                "type": "NamesAccepted",
                "status": "False",
                "reason": reason,
                "message": message,
            }
        elif names:
            accepted[field] = names
    if wanted.get("categories"):
        accepted["categories"] = wanted["categories"]
    return clash, accepted


def _taken(others: Iterable[JsonObject]) -> tuple[set[str], set[str]]:
    """The names of resources and of kinds that other definitions of the group have."""
    resources: set[str] = set()
    kinds: set[str] = set()
    for other in others:
        names = (other.get("status") or EMPTY).get("acceptedNames") or EMPTY
        resources |= {names.get("plural", ""), names.get("singular", "")}
        resources |= set(names.get("shortNames") or ())
        kinds |= {names.get("kind", ""), names.get("listKind", "")}
    return resources - {""}, kinds - {""}
