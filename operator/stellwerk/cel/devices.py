"""The environment of device selectors: one variable, `device`.

DynamicResources evaluates them, the embedded cluster refuses those that do not compile. Invariant:
a selector that compiles here gives a bool, or something whose type shows only when it runs.
"""

from __future__ import annotations

from typing import Final

from stellwerk.cel.environment import Environment, Program
from stellwerk.cel.errors import CompileError, Issue
from stellwerk.cel.types import BOOL, DYN, STRING, ObjectType, Type, map_of

DEVICE: Final = "device"
MOST_BYTES: Final = 10 * 1024
"""The longest expression."""
_ENVIRONMENT: Final = Environment(
    {
        DEVICE: ObjectType(
            "kubernetes.DRADevice",
            (),
            {
                "driver": STRING,
                "allowMultipleAllocations": BOOL,
                "attributes": map_of(STRING, map_of(STRING, DYN)),
                "capacity": map_of(STRING, map_of(STRING, Type("kubernetes.Quantity"))),
            },
        )
    }
)


def device_program(expression: str) -> Program:
    """The program of a selector.

    Raises:
        CompileError: it is no CEL, its types do not fit, or it gives something else than a bool.
    """
    program = _ENVIRONMENT.compile(expression)
    if program.result_type not in (BOOL, DYN):
        text = f"must evaluate to bool or the unknown type, not {program.result_type}"
        raise CompileError(expression, [Issue(0, text)])
    return program
