"""The fields of pods and nodes, and the one check of objects that people write into a question.

`answers.what_if` reads every question with it, whichever door it comes through: the command,
the page or the operator's port. The table `api_fields.json` is written from the embedded cluster's
tables of the API, and a test compares both; the operator does not load those, which take 28 MB.
It stands alone because it knows the API's types and no question. Invariant: a field that Kubernetes
does not have is refused by its path, as the API server refuses it with strict validation.
"""

from collections.abc import Iterator, Mapping
from functools import cache
from importlib import resources
from itertools import islice
from typing import Final

import orjson

from stellwerk_kube.errors import ConfigurationError
from stellwerk_kube.json_values import JsonObject
from stellwerk_kube.names import suggestion

MAX_NAMED_FIELDS: Final = 5
"""Unknown fields that a message names; the rest is counted."""
_WORDS: Final[Mapping[str, tuple[tuple[type, ...], str]]] = {
    "string": ((str,), "a text"),
    "Time": ((str,), "a text"),
    "bool": ((bool,), "true or false"),
    "int": ((int,), "a whole number"),
    "Quantity": ((str, int, float), "a quantity"),
    "IntOrString": ((str, int), "a number or a text"),
}
"""JSON's types of each of the API's simple types, and its name in words."""


def check_object(at: str, kind: str, obj: JsonObject, *, is_server_newer: bool = False) -> None:
    """Refuse an object of another kind, with unknown fields, or with values of other types.

    Args:
        at: begins the message: the field of the question, or the option.
        kind: Pod or Node.
        obj: as it was written; `apiVersion` and `kind` may be left out.
        is_server_newer: the API server may know more fields, so that an object that was read from
            it (it has a uid) may have them.

    Raises:
        ConfigurationError: the object is refused.
    """
    named = obj.get("kind")
    if named is not None and named != kind:
        raise ConfigurationError(f"{at}: a {kind} is expected, this is a {named!s:.80}")
    unknown = list(islice(_unknown(at, kind, obj, ""), MAX_NAMED_FIELDS + 1))
    if len(unknown) > MAX_NAMED_FIELDS:
        unknown[-1] = "and more"
    was_read = is_server_newer and bool((obj.get("metadata") or {}).get("uid"))
    if unknown and not was_read:
        raise ConfigurationError(f"{at}: unknown field {', '.join(unknown)}")


def _unknown(at: str, type_name: str, value: object, path: str) -> Iterator[str]:
    """Give the unknown fields of a value, in quotation marks, with suggestions.

    Raises:
        ConfigurationError: the value, or one below it, is of another type than its field.
    """
    if value is None or type_name == "any":
        return
    wanted, words = _WORDS.get(type_name, ((dict,), "an object"))
    if type_name.startswith("["):
        wanted, words = (list,), "a list"
    is_wrong_bool = isinstance(value, bool) and bool not in wanted
    if not isinstance(value, wanted) or is_wrong_bool:
        raise ConfigurationError(f"{at}: {f'{path}: ' if path else ''}{words} is expected")
    if isinstance(value, list):
        for index, each in enumerate(value):
            yield from _unknown(at, type_name[1:-1], each, f"{path}[{index}]")
    elif isinstance(value, dict):
        is_map = type_name.startswith("{")
        fields = {} if is_map else _types()[type_name]
        for key, each in value.items():
            below = f"{path}.{key}" if path else str(key)
            if is_map or key in fields:
                inner = type_name[1:-1] if is_map else fields[key]
                yield from _unknown(at, inner, each, below)
            else:
                yield f'"{below}"{suggestion(str(key), fields)}'


@cache
def _types() -> Mapping[str, Mapping[str, str]]:
    """Types by name, and the type of each of their fields: `[T]` is a list, `{T}` a map."""
    text = resources.files(__package__).joinpath("api_fields.json").read_bytes()
    types: Mapping[str, Mapping[str, str]] = orjson.loads(text)
    return types
