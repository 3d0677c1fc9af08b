"""The table of `stellwerk shadow diff`.

Invariant: what it shows is in the operator's answer; texts of users are printed as they are, never
as markup.
"""

from collections.abc import Mapping
from typing import Any, Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

_SHOWN: Final = 50


def print_shadow(answer: Mapping[str, Any], to: Console) -> None:
    """The counts, and the newest differences."""
    compared, differing = answer["compared"], answer["differing"]
    to.print(
        Text(
            f"{answer['profile']} decides beside {answer['shadowOf']}: {differing} of {compared} "
            f"decisions differ; its own nodes score {answer['meanGain']} more on the average"
        )
    )
    left_out = [f"{answer[name]} {name}" for name in ("skipped", "failed") if answer[name]]
    if left_out:
        to.print(Text(f"of {answer['decisions']} decisions, {' and '.join(left_out)}"))
    if answer.get("groups"):
        to.print(Text(f"{answer['groups']} decisions on groups of pods are not compared"))
    if not answer["differences"]:
        return
    table = Table(box=None, pad_edge=False)
    for title in ("POD", "NODE", "SHADOW'S"):
        table.add_column(title, overflow="fold")
    for title in ("SCORE", "SHADOW'S"):
        table.add_column(title, justify="right")
    table.add_column("MADE BY", overflow="fold")
    for each in answer["differences"][:_SHOWN]:
        why = ": ".join(part for part in (each["plugin"], each["reason"]) if part)
        row = (each["pod"], each["node"] or "none", each["shadowNode"] or "none")
        scores = (_number(each["total"]), _number(each["shadowTotal"]))
        table.add_row(*(Text(text) for text in (*row, *scores, why)))
    to.print(table)


def _number(total: int | None) -> str:
    return "" if total is None else str(total)
