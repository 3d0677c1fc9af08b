"""Which names of a definition are free, and what its condition says of those that are not.

Called by `definition_lifecycle`. Invariant: a name that one definition of a group has been given is
given to no other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stellwerk_cluster.apimachinery.objects import EMPTY

if TYPE_CHECKING:
    from collections.abc import Iterable

    from stellwerk.models.json_values import JsonObject


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
