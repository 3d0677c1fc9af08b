"""Manifests that the options of a command name: of the kinds it takes, with fields that exist.

`stellwerk what-if` reads pods, nodes and profiles with it; `simulate`, `plan` and `decide` have
what they read checked. Invariant: every document of every file is used or refused by name, or
counted where it was read from a cluster; a field that its kind does not have is refused, as the API
server refuses it with strict validation.
"""

import sys
from collections import Counter
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Final

from stellwerk.errors import ConfigurationError
from stellwerk.models.answers.what_if import MOST_PODS
from stellwerk.models.json_values import JsonObject
from stellwerk.models.pod_templates import pods_of as pods_of_controller
from stellwerk.models.profile import KIND as PROFILE
from stellwerk.models.untrusted_text import printable
from stellwerk.models.yaml_file import either, read_kinds

_FIELDS: Final = frozenset({"apiVersion", "kind", "metadata", "spec", "status"})
"""Of an object of this scheduler's own kinds, whose specs refuse unknown fields themselves."""


def read_manifests(option: str, file: str, kinds: Sequence[str]) -> list[JsonObject]:
    """All objects in a file, the items of lists among them; "-" is standard input.

    Raises:
        ConfigurationError: it cannot be read, is empty, or holds another kind or an unknown field.
    """
    at = f"{option} {file}"
    found = read_kinds(at, Path(file), kinds)
    for obj in found:
        check_fields(at, obj)
    return found


def check(
    at: str, objects: Sequence[JsonObject], kinds: AbstractSet[str], *, counts: bool = True
) -> None:
    """Look at the objects of a cluster: those that were written, and not read from one.

    What has a uid was read, and its fields were checked there. Of the objects that were read, those
    of kinds that are not used are counted on standard error, where the caller does not.

    Raises:
        ConfigurationError: one that was written is of a kind that is not used, or has an unknown
            field; `at` begins the message.
    """
    from stellwerk.models.schema.tables import object_types  # noqa: PLC0415 large tables

    known = {each.kind for each in object_types()}
    unused: Counter[str] = Counter()
    for obj in objects:
        kind, metadata = str(obj.get("kind") or ""), obj.get("metadata")
        is_read = isinstance(metadata, dict) and bool(metadata.get("uid"))
        if kind not in kinds and (is_read or kind not in known):
            unused[kind or "object without a kind"] += 1
        elif kind not in kinds:
            raise ConfigurationError(f"{at}: a {kind} is not used; {either(sorted(kinds))} is")
        elif not is_read:
            check_fields(at, obj)
    if unused and counts:
        numbers = ", ".join(f"{number} {kind}" for kind, number in sorted(unused.items()))
        sys.stderr.write(printable(f"stellwerk: {at}: not used: {numbers}") + "\n")


def check_fields(at: str, obj: JsonObject) -> None:
    """Refuse fields that the kind of an object does not have; `at` begins the message.

    Raises:
        ConfigurationError: there is one, or a value is of another type than its field.
    """
    from stellwerk.models.schema.decoder import decode  # noqa: PLC0415 large tables
    from stellwerk.models.schema.mismatches import DecodeError  # noqa: PLC0415 as above
    from stellwerk.models.schema.tables import object_types  # noqa: PLC0415 as above

    group = str(obj.get("apiVersion") or "").rpartition("/")[0]
    rows = [each for each in object_types() if each.kind == obj.get("kind")]
    rows.sort(key=lambda each: each.group != group)
    if not rows:
        if obj.get("kind") == PROFILE:
            _refuse(at, sorted({*obj} - _FIELDS))
        return
    try:
        _, unknown = decode(rows[0].type_name, obj)
    except DecodeError as error:
        raise ConfigurationError(f"{at}: {error}") from error
    _refuse(at, unknown)


def _refuse(at: str, unknown: Sequence[str]) -> None:
    if unknown:
        fields = ", ".join(f'"{path}"' for path in unknown)
        raise ConfigurationError(f"{at}: unknown field {fields}")


def pods_of(option: str, objects: Sequence[JsonObject], namespace: str) -> list[JsonObject]:
    """The pods themselves, and those that controllers make of their templates.

    `namespace`: of objects that name none.

    Raises:
        ConfigurationError: they are too many.
    """
    pods: list[JsonObject] = []
    for obj in objects:
        pods += pods_of_controller(obj, namespace, MOST_PODS)
        if len(pods) > MOST_PODS:
            raise ConfigurationError(f"{option}: more than {MOST_PODS} pods")
    return pods
