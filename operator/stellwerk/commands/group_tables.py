"""Explanations of groups as tables.

`stellwerk explain podgroup` prints them. Invariant: everything printed is in the JSON.
"""

from collections.abc import Mapping
from typing import Any, TypeAlias

from rich.console import Console
from rich.table import Table

Json: TypeAlias = Mapping[str, Any]


def print_group(explanation: Json, to: Console) -> None:
    """Print an explanation of a group."""
    counts = f"{explanation['placed']} placed of {explanation['minCount']} needed"
    headline = f"{explanation['podGroup']}: {explanation['state']} ({counts}, "
    ended = f", {explanation['succeeded']} succeeded" if explanation["succeeded"] else ""
    to.print(f"{headline}{explanation['exist']} exist, {explanation['running']} running{ended})")
    if explanation.get("waitsFor"):
        to.print(f"  {explanation['waitsFor']}")
    for remark in explanation.get("remarks", ()):
        to.print(f"  {remark}")
    for problem in explanation.get("problems", ()):
        to.print(f"  not usable: {problem}")
    if "roomIsKeptSeconds" in explanation:
        left = explanation["roomIsKeptSeconds"]
        until = "while it is the first of its queue" if left is None else f"for {left} s more"
        to.print(f"  room is kept for it, {until}")
    if "givenBackAfterSeconds" in explanation:
        after = explanation["givenBackAfterSeconds"]
        to.print(f"  pods are given back {after} s after too few could be bound")
    would = explanation.get("wouldHappen") or {}
    _print_members(explanation, would, to)
    if would.get("message"):
        to.print(f"now: {would['message']}")
    if would.get("placed"):
        to.print(f"now: it would be placed on {would['placement']}")
    if would.get("victims"):
        to.print(f"  by evicting {', '.join(would['victims'])}")
    for each in explanation.get("wouldFit") or ():
        to.print(f"would fit with {each['nodes']} more node(s) like {each['like']}")


def _print_members(explanation: Json, would: Json, to: Console) -> None:
    table = Table("Pod", "Node", "Queue", "Why not")
    reasons, nodes = would.get("reasons") or {}, would.get("nodes") or {}
    for member in explanation["members"]:
        pod, queue = member["pod"], member.get("queue", "")
        now = reasons.get(pod) or (f"would get {nodes[pod]}" if pod in nodes else "")
        table.add_row(pod, member["node"], queue, now or member.get("message", ""))
    to.print(table)
