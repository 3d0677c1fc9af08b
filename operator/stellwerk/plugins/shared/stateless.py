"""The base of plugins that take nothing from the handle and no arguments.

`registry.instantiate` makes every plugin with a handle and validated arguments; those that need
neither inherit this instead of each writing an empty constructor.
"""

from pydantic import BaseModel

from stellwerk.framework.services import Handle


class StatelessPlugin:
    """Accepts what every plugin is made with, and keeps nothing of it."""

    def __init__(self, _handle: Handle, _args: BaseModel | None = None) -> None:
        pass
