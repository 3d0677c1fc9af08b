"""The key under which answers about a pod's specification are kept: its own bytes.

Pods of one template have one specification, and what depends on nothing else is found once for all
of them. Invariant: two specifications with one key are equal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import orjson

if TYPE_CHECKING:
    from stellwerk.models.json_values import JsonObject

SPECS_KEPT: Final = 1024
_LONGEST: Final = 8 * 1024
"""Longer ones are rare, and not worth their room."""


def memo_key(spec: JsonObject) -> bytes | None:
    """The key of a specification; None where answers depend on the name of the pod, too."""
    if any("ephemeral" in volume for volume in spec.get("volumes") or ()):
        return None
    content = orjson.dumps(spec)
    return content if len(content) <= _LONGEST else None
