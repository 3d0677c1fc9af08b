"""One line on each type and on the fields that are asked about most: descriptions.toml.

Asked by `openapi`. Invariant: the text of a field is that of `Type.field` where the file has one,
and that of `field` otherwise.
"""

from __future__ import annotations

import tomllib
from functools import cache
from importlib import resources


def describe_type(type_name: str) -> str:
    """What a type is for; empty if the file does not say."""
    return _descriptions_file()["types"].get(type_name, "")


def describe_field(type_name: str, field_name: str) -> str:
    """What a field of a type means; empty if the file does not say."""
    fields = _descriptions_file()["fields"]
    return fields.get(f"{type_name}.{field_name}") or fields.get(field_name, "")


@cache
def _descriptions_file() -> dict[str, dict[str, str]]:
    directory = resources.files("stellwerk_cluster.apiserver")
    return tomllib.loads(directory.joinpath("descriptions.toml").read_text("utf-8"))
