"""Explanations of groups as tables.

`stellwerk explain podgroup` prints them. Invariant: everything printed is in the JSON.
"""

from collections.abc import Iterator, Mapping
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
    for remark in _remarks(explanation):
        to.print(f"  {remark}")
    would = explanation.get("wouldHappen") or {}
    _print_members(explanation, would, to)
    for line in _outcome(would):
        to.print(line)
    for each in explanation.get("wouldFit") or ():
        to.print(f"would fit with {each['nodes']} more node(s) like {each['like']}")


def _remarks(explanation: Json) -> Iterator[str]:
    if explanation.get("waitsFor"):
        yield explanation["waitsFor"]
    yield from explanation.get("remarks", ())
    for problem in explanation.get("problems", ()):
        yield f"not usable: {problem}"
    if "roomIsKeptSeconds" in explanation:
        left = explanation["roomIsKeptSeconds"]
        until = "while it is the first of its queue" if left is None else f"for {left} s more"
        yield f"room is kept for it, {until}"
    if "givenBackAfterSeconds" in explanation:
        after = explanation["givenBackAfterSeconds"]
        yield f"pods are given back {after} s after too few could be bound"


def _outcome(would: Json) -> Iterator[str]:
    if would.get("message"):
        yield f"now: {would['message']}"
    if would.get("placed"):
        yield f"now: it would be placed on {would['placement']}"
    if would.get("victims"):
        yield f"  by evicting {', '.join(would['victims'])}"
    if would.get("roomIsKeptOn"):
        yield f"  with room kept on {', '.join(would['roomIsKeptOn'])}"


def _print_members(explanation: Json, would: Json, to: Console) -> None:
    table = Table("Pod", "Node", "Queue", "Why not")
    reasons, nodes = would.get("reasons") or {}, would.get("nodes") or {}
    for member in explanation["members"]:
        pod, queue = member["pod"], member.get("queue", "")
        now = reasons.get(pod) or (f"would get {nodes[pod]}" if pod in nodes else "")
        table.add_row(pod, member["node"], queue, now or member.get("message", ""))
    to.print(table)
