"""The table of `stellwerk profile history`.

Invariant: texts that come from the cluster are printed as they are, never as markup.
"""

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from stellwerk.models.untrusted_text import printable


def print_history(answer: Mapping[str, Any], to: Console) -> None:
    """Each accepted spec, newest first, with what differs from the one before."""
    revisions = answer["revisions"]
    if not revisions:
        name = answer["profile"]
        to.print(
            Text(f"SchedulerProfile {name} has no history here; -n names the operator's namespace")
        )
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("REVISION", "GENERATION"):
        table.add_column(title, justify="right")
    for title in ("ACCEPTED", "REPLACED"):
        table.add_column(title, no_wrap=True)
    table.add_column("PODS", justify="right")
    table.add_column("CHANGED", overflow="fold")
    before = [each["spec"] for each in revisions[1:]] + [None]
    for each, former in zip(revisions, before, strict=True):
        cells = (
            f"{each['revision']}",
            f"{each['generation'] or ''}",
            each["acceptedAt"],
            each["replacedAt"] or ("" if each is not revisions[0] else "in use"),
            f"{each['scheduledPods']}",
            _changed(former, each["spec"]),
        )
        table.add_row(*(Text(cell) for cell in cells))
    to.print(table)


def _changed(before: Mapping[str, Any] | None, after: Mapping[str, Any] | None) -> str:
    """The fields of the spec that differ."""
    if after is None:
        return "not kept: too large, or no spec"
    if before is None:
        return ""
    names = [name for name in {*before, *after} if before.get(name) != after.get(name)]
    return printable(", ".join(sorted(names))[:200])
