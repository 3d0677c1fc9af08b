"""The schemas of everything that commands print for programs, as one document.

docs/answers.json is made of it (`python -m stellwerk_cli.commands.schemas`). Invariant: every kind
that a command prints as JSON or YAML is in it, by the `kind` that is printed.
"""

import sys
from collections.abc import Sequence
from typing import Any, Final

import orjson

from stellwerk.answers.answer import PortAnswer, schemas
from stellwerk_cli.commands.doctor import shown_diagnosis
from stellwerk_cli.commands.dump import shown_dump
from stellwerk_cli.commands.explained_devices import CLAIM, DEVICE
from stellwerk_cli.commands.explained_group import GROUP
from stellwerk_cli.commands.explained_node import NODE
from stellwerk_cli.commands.explained_pod import POD
from stellwerk_cli.commands.explained_workload import WORKLOAD
from stellwerk_cli.commands.listings import shown_lists
from stellwerk_cli.commands.observe import shown_observed
from stellwerk_cli.commands.output import API_VERSION, Shown
from stellwerk_cli.commands.profile import shown_history
from stellwerk_cli.commands.shadow import shown_shadow
from stellwerk_cli.commands.what_if_table import WHAT_IF
from stellwerk_simulation.answers import (
    BenchAnswer,
    DefragAnswer,
    FitAnswer,
    ReplayAnswer,
    ReplayComparison,
    SimulationAnswer,
    SweepAnswer,
)

SHOWN: Final[Sequence[Shown[Any]]] = (
    POD,
    GROUP,
    NODE,
    DEVICE,
    CLAIM,
    WORKLOAD,
    WHAT_IF,
    shown_shadow(),
    shown_observed(),
    shown_history(),
    shown_dump(),
    shown_diagnosis(),
    *shown_lists().values(),
    *(each.as_read for each in shown_lists().values() if each.as_read is not None),
)
"""Every answer that has a table."""


def printed_kinds() -> list[type[PortAnswer]]:
    """The classes of the answers that commands print."""
    return [
        *(each.kind for each in SHOWN),
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
