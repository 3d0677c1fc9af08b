"""All controllers of the embedded cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stellwerk.embedded.apiserver.api import Api
    from stellwerk.embedded.work import Worker


def make_controllers(api: Api) -> list[Worker]:
    """One of each, following the store of `api`."""
    del api
    return []
