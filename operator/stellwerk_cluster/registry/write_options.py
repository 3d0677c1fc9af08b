"""The options of a write request: dry run, field validation, field manager, user.

Made by the HTTP layer from the query, read by the verbs. Invariant: one request has one of its own,
since the warnings of its answer collect in it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stellwerk_cluster.apimachinery.users import User


@dataclass(slots=True)
class WriteOptions:
    """The options of a write request, and the warnings that its answer carries."""

    dry_run: bool = False
    field_validation: str = "Warn"
    manager: str = ""
    """The owner of the fields that are written; without one, the API's own manager, if it has
    one."""
    shown_subresource: str = ""
    """The subresource that the ownership names, where the write takes another way."""
    user: User | None = None
    """The user that asks for it; None: the cluster itself."""
    force: bool = False
    """Whether an apply takes fields from their owners."""
    strict_errors: list[str] = field(default_factory=list)
    """Parts of the body that break strict decoding already, before the object is looked at."""
    strict_order: dict[str, int] = field(default_factory=dict)
    """The place in the body of each text about strict decoding, if it has fields twice."""
    warnings: list[str] = field(default_factory=list)
