"""The types that fields have in the API server's program, as its errors name them.

Called when the decoders of a type are made. Invariant: a name is that of the program, or the one
that follows from types.txt.
"""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import Final

_PLAIN: Final = {
    "string": "string",
    "bool": "bool",
    "int": "int32",
    "float": "float64",
    "Quantity": "resource.Quantity",
    "Time": "v1.Time",
    "MicroTime": "v1.MicroTime",
    "IntOrString": "intstr.IntOrString",
    "bytes": "[]uint8",
    "any": "interface {}",
}
_MAP: Final = "map["


@cache
def _named() -> dict[tuple[str, str], str]:
    """By type and field: what types.txt does not say."""
    file = resources.files("stellwerk_cluster.apimachinery").joinpath("go_types.txt")
    found: dict[tuple[str, str], str] = {}
    type_name = ""
    for line in file.read_text("utf-8").splitlines():
        if line.startswith("#"):
            continue
        words = line.split()
        if not line.startswith(" "):
            type_name = words.pop(0)
        for word in words:
            name, _, go_type = word.partition("=")
            found[type_name, name] = go_type
    return found


def go_type(owner: str, field: str, type_text: str) -> str:
    """The Go type of a field of a type; `type_text` is what types.txt has for it."""
    return _named().get((owner, field)) or plain_go_type(type_text)


def plain_go_type(type_text: str) -> str:
    """The Go type that follows from a type of types.txt."""
    if type_text.startswith("["):
        return f"[]{plain_go_type(type_text[1:-1])}"
    if type_text.startswith("{"):
        return f"{_MAP}string]{plain_go_type(type_text[1:-1])}"
    return _PLAIN.get(type_text, f"v1.{type_text}")


def go_element(container: str, plain: str) -> str:
    """The Go type of the parts of a list or map; `plain` is what types.txt has for the parts."""
    if container.startswith("[]"):
        return container.removeprefix("[]")
    if container.startswith(_MAP):
        return container.partition("]")[2]
    return plain_go_type(plain)
