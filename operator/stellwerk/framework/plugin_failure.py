"""The error that contains a plugin: whatever it did, the attempt fails with the plugin named.

Raised by the runtime and the binding points, caught once at the top of each attempt.
"""

from stellwerk.errors import SchedulerError
from stellwerk.models.untrusted_text import printable


class PluginFailure(SchedulerError):  # noqa: N818 named for what happened, as ApiError's children are
    """A plugin raised, or answered something that its extension point does not allow."""

    def __init__(self, plugin: str, point: str, message: str) -> None:
        message = printable(message)
        super().__init__(f'running {point} plugin "{plugin}": {message}')
        self.plugin = plugin
        self.point = point
        self.message = message
