"""The schemas of everything that commands print for programs, as one document.

docs/answers.json is made of it (`python -m stellwerk_cli.commands.schemas`). Invariant: every kind
that a command prints as JSON or YAML is in it, by the `kind` that is printed.
"""

import sys
from typing import Any

import orjson

from stellwerk.answers.answer import PortAnswer, schemas
from stellwerk_cli.commands.tables import (
    API_VERSION,
    CLAIM,
    DEVICE,
    DIAGNOSIS,
    DUMP,
    GROUP,
    HISTORY,
    LISTS,
    NODE,
    POD,
    SHADOW,
    WHAT_IF,
    WORKLOAD,
    Shown,
)
from stellwerk_simulation.answers import (
    BenchAnswer,
    DefragAnswer,
    FitAnswer,
    ReplayAnswer,
    ReplayComparison,
    SimulationAnswer,
    SweepAnswer,
)


def printed_kinds() -> list[type[PortAnswer]]:
    """The classes of the answers that commands print."""
    shown: tuple[Shown[Any], ...] = (
        POD,
        GROUP,
        NODE,
        DEVICE,
        CLAIM,
        WORKLOAD,
        WHAT_IF,
        SHADOW,
        HISTORY,
        DUMP,
        DIAGNOSIS,
        *LISTS.values(),
    )
    return [
        *(each.kind for each in shown),
        SimulationAnswer,
        SweepAnswer,
        FitAnswer,
        DefragAnswer,
        ReplayAnswer,
        ReplayComparison,
        BenchAnswer,
    ]


def document() -> dict[str, Any]:
    """The document, in the dialect of OpenAPI 3.0."""
    found = schemas(printed_kinds())
    for kind in printed_kinds():
        schema = found[kind.__name__]
        known = {
            "apiVersion": {"type": "string", "enum": [API_VERSION]},
            "kind": {"type": "string", "enum": [kind.__name__]},
        }
        found[kind.__name__] = {**schema, "properties": {**known, **schema["properties"]}}
    return {
        "openapi": "3.0.3",
        "info": {"title": "Answers of Stellwerk's commands", "version": API_VERSION},
        "paths": {},
        "components": {"schemas": dict(sorted(found.items()))},
    }


def written() -> str:
    """The text of the file."""
    return orjson.dumps(document(), option=orjson.OPT_INDENT_2).decode() + "\n"


if __name__ == "__main__":
    sys.stdout.write(written())
