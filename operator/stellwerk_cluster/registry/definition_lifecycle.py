"""What becomes of a CustomResourceDefinition: names accepted, established, served, withdrawn.

Follows the collection of definitions from inside the store, whether controllers run or not.
Invariant: a definition whose condition Established is True has its versions in the table of kinds,
and one that is deleted has none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stellwerk_cluster.apimachinery.objects import EMPTY, is_terminating, timestamp, with_value
from stellwerk_cluster.registry.custom_kinds import custom_row
from stellwerk_cluster.registry.deletion import DEFINITION_FINALIZER
from stellwerk_cluster.registry.entries import DELETED, StoreEvent

if TYPE_CHECKING:
    from stellwerk.models.json_values import JsonObject
    from stellwerk_cluster.registry.api import Api

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
_CLASH: Final = {"type": "NamesAccepted", "status": "False", "reason": "ListKindConflict"}
_NOT_ACCEPTED: Final = {
    "type": "Established",
    "status": "False",
    "reason": "NotAccepted",
    "message": "not all names are accepted",
}
_NO_NAMES: Final = {"plural": "", "kind": ""}


class DefinitionLifecycle:
    """Writes the conditions of definitions, and keeps the custom kinds in step with them."""

    def __init__(self, api: Api) -> None:
        """Follow the definitions in the store of `api`."""
        self._api = api
        self._kind = api.kinds.resource("customresourcedefinitions", "apiextensions.k8s.io")
        definitions = api.store.collection(self._kind.storage_name)
        definitions.listeners.append(self._on_definition)

    def _on_definition(self, event: StoreEvent) -> None:
        definition = event.entry.obj
        if event.type == DELETED:
            return
        if is_terminating(definition):
            self._withdraw(definition)
        elif not _condition(definition, "NamesAccepted"):
            self._decide_on_names(definition)
        elif _condition(definition, "NamesAccepted") == "True":
            if _condition(definition, "Established") != "True":
                self._set_conditions(definition, (_ESTABLISHED,), {})
            elif (
                event.previous is None
                or event.previous.obj["spec"] != definition["spec"]
                or not self._serves(definition)
            ):
                self._serve(definition)

    def _decide_on_names(self, definition: JsonObject) -> None:
        """Accept the names of a definition, or refuse them because another kind has one of them."""
        spec = definition["spec"]
        names = spec["names"]
        clash = any(
            row.custom and (row.group, row.list_name) == (spec["group"], names["listKind"])
            for row in self._api.kinds
            if row.plural != names["plural"]
        )
        if clash:
            accepted = {"acceptedNames": {**_NO_NAMES, "plural": names["plural"]}}
            taken = {**_CLASH, "message": f'"{names["listKind"]}" is already in use'}
            self._set_conditions(definition, (taken, _NOT_ACCEPTED), accepted)
        else:
            self._set_conditions(definition, (_ACCEPTED, _INSTALLING), {"acceptedNames": names})

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

        self._api.modify(self._kind, key, changed)

    def _serves(self, definition: JsonObject) -> bool:
        spec = definition["spec"]
        return any(
            self._api.kinds.find(spec["group"], version["name"], spec["names"]["plural"])
            for version in spec["versions"]
        )

    def _serve(self, definition: JsonObject) -> None:
        spec = definition["spec"]
        for version in spec["versions"]:
            row = custom_row(spec, version)
            if version["served"]:
                self._api.custom.serve(row, version)
            else:
                self._api.custom.withdraw(row)

    def _withdraw(self, definition: JsonObject) -> None:
        """Delete the objects of a definition that ends, then remove its finalizer."""
        spec = definition["spec"]
        for version in spec["versions"]:
            row = custom_row(spec, version)
            if self._api.kinds.find(row.group, row.version, row.plural) is None:
                continue
            collection = self._api.store.collection(row.storage_name)
            for entry in collection.entries():
                self._api.store.remove(row.storage_name, entry)
            self._api.custom.withdraw(row)
        self._api.modify(self._kind, ("", definition["metadata"]["name"]), _released)


def _released(definition: JsonObject) -> JsonObject:
    finalizers = definition["metadata"].get("finalizers") or ()
    kept = [each for each in finalizers if each != DEFINITION_FINALIZER]
    return with_value(definition, ("metadata", "finalizers"), kept or None)


def _condition(definition: JsonObject, type_: str) -> str:
    for condition in (definition.get("status") or EMPTY).get("conditions") or ():
        if condition["type"] == type_:
            return str(condition["status"])
    return ""
