"""Manifests that the options of a command name: of the kinds it takes, with fields that exist.

`stellwerk what-if` reads pods, nodes and profiles with it; `simulate`, `plan` and `decide` have
their files checked. Invariant: every document of every file
is used or refused by name; a field that its kind does not have is refused, as the API server
refuses it with strict validation.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from stellwerk.errors import ConfigurationError
from stellwerk.models.answers.what_if import MOST_PODS
from stellwerk.models.json_values import JsonObject
from stellwerk.models.pod_templates import POD_KINDS
from stellwerk.models.pod_templates import pods_of as pods_of_controller
from stellwerk.models.yaml_file import parse_yaml, read_yaml


def read_manifests(option: str, file: str, kinds: Sequence[str]) -> list[JsonObject]:
    """All objects in a file, the items of lists among them; "-" is standard input.

    Raises:
        ConfigurationError: it cannot be read, is empty, or holds another kind or an unknown field.
    """
    at = f"{option} {file}"
    found = [each for document in _documents(file) for each in _items(document)]
    if not found:
        raise ConfigurationError(f"{at}: there is no manifest in it")
    for obj in found:
        kind = obj.get("kind") if isinstance(obj, dict) else None
        if kind is None:
            raise ConfigurationError(f"{at}: a manifest has no kind, {_either(kinds)} is expected")
        if kind not in kinds:
            raise ConfigurationError(f"{at}: a {kind} is no {_either(kinds)}")
        check_fields(at, obj)
    return found


def check_file(option: str, file: Path) -> None:
    """Refuse nodes, pods and controllers of a file that were written, with unknown fields.

    What was read from a cluster has a uid, and was checked there.

    Raises:
        ConfigurationError: it cannot be read, or holds such a field.
    """
    from stellwerk_simulation.manifests import read_objects  # noqa: PLC0415 the scheduler

    for obj in read_objects(file):
        metadata = obj.get("metadata")
        is_read = not isinstance(metadata, dict) or metadata.get("uid")
        if obj.get("kind") in {"Node", *POD_KINDS} and not is_read:
            check_fields(f"{option} {file}", obj)


def check_fields(at: str, obj: JsonObject) -> None:
    """Refuse fields that the kind of an object does not have; `at` begins the message.

    Raises:
        ConfigurationError: there is one, or a value is of another type than its field.
    """
    from stellwerk_cluster.apimachinery.decoder import decode  # noqa: PLC0415 large tables
    from stellwerk_cluster.apimachinery.mismatches import MismatchError  # noqa: PLC0415 as above
    from stellwerk_cluster.schema.types import types  # noqa: PLC0415 as above

    kind = str(obj.get("kind"))
    if kind not in types():
        return
    try:
        _, unknown = decode(kind, obj)
    except MismatchError as error:
        raise ConfigurationError(f"{at}: {error}") from error
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


def _documents(file: str) -> list[object]:
    return parse_yaml("standard input", sys.stdin) if file == "-" else read_yaml(Path(file))


def _items(document: Any) -> list[Any]:  # noqa: ANN401 whatever stands in a file
    if document is None:
        return []
    if isinstance(document, dict) and isinstance(document.get("items"), list):
        return list(document["items"])
    return [document]


def _either(kinds: Sequence[str]) -> str:
    return kinds[0] if len(kinds) == 1 else f"{', '.join(kinds[:-1])} or {kinds[-1]}"
