"""A large object and what it was parsed to in a thread, until its event is handled.

`EventHandlers.prepare` makes one. Invariant: the object is held for as long as this is, so that its
id means this object and no other; what was raised is raised where the object is handled.
"""

from collections.abc import Callable
from typing import Generic, TypeVar

from stellwerk.models.json_values import JsonObject

Parsed = TypeVar("Parsed")


class PreparedObject(Generic[Parsed]):
    """An object whose parsing has ended, well or not."""

    __slots__ = ("__weakref__", "_failure", "_obj", "_parsed")

    def __init__(self, obj: JsonObject, parse: Callable[[JsonObject], Parsed]) -> None:
        """Parse the object; a ValueError is kept for `parsed`."""
        self._obj = obj
        self._parsed: Parsed | None = None
        self._failure: ValueError | None = None
        try:
            self._parsed = parse(obj)
        except ValueError as failure:
            # Its traceback would hold everything that parsing has seen.
            self._failure = failure.with_traceback(None)

    def parsed(self) -> Parsed:
        """What the object says.

        Raises:
            ValueError: it is malformed.
        """
        if self._parsed is None:
            raise self._failure or ValueError("nothing was parsed")
        return self._parsed
