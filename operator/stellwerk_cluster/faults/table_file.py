"""Reads a table of faults from a file.

`stellwerk cluster --faults` and tests call it. Invariant: a mistake in the file is one line that
names the file, the entry and the field.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from stellwerk.errors import ConfigurationError
from stellwerk.models.yaml_file import read_one_yaml
from stellwerk_cluster.faults.table import FaultTable, title_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pydantic_core import ErrorDetails

_TAGS = ("union_tag_not_found", "union_tag_invalid")


def read_fault_table(path: Path) -> FaultTable:
    """The table of a file.

    Raises:
        ConfigurationError: it cannot be read, or something in it is wrong.
    """
    content = read_one_yaml(path)
    try:
        return FaultTable.model_validate({} if content is None else content)
    except ValidationError as error:
        raise ConfigurationError(f"{path}: {_mistake(error, content)}") from error


def _mistake(error: ValidationError, content: object) -> str:
    """The first mistake."""
    detail = error.errors(include_url=False)[0]
    location = detail["loc"]
    text = _text(detail)
    if len(location) > 1 and location[0] == "faults" and isinstance(location[1], int):
        entry = _entry(content, location[1])
        # pydantic puts the value of `fault` between the entry and its fields.
        field = "fault" if detail["type"] in _TAGS else _path(location[3:])
        return f"entry {_title(location[1], entry)}: {field + ': ' if field else ''}{text}"
    return f"{_path(location)}: {text}" if location else text


def _entry(content: object, place: int) -> dict[str, Any]:
    entries = content.get("faults") if isinstance(content, dict) else None
    entry = entries[place] if isinstance(entries, list) else None
    return entry if isinstance(entry, dict) else {}


def _title(place: int, entry: dict[str, Any]) -> str:
    return title_of(place, str(entry.get("name") or entry.get("fault") or ""))


def _path(location: Sequence[int | str]) -> str:
    steps = [f"[{step}]" if isinstance(step, int) else f".{step}" for step in location]
    return "".join(steps).removeprefix(".")


def _text(detail: ErrorDetails) -> str:
    text = detail["msg"][:1].lower() + detail["msg"][1:]
    if detail["type"] in _TAGS:
        known = (detail.get("ctx") or {}).get("expected_tags")
        return f"must be one of {known}" if known else "which fault it is must be said"
    if detail["type"] == "extra_forbidden":
        return "there is no such field"
    if detail["type"] == "missing":
        return "required"
    return " ".join(text.split())
