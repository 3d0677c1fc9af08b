"""Recorded decisions of the load, NUMA, quota and simple plugins, and the comparison with them.

Invariant: what the real plugin leaves to chance (the node among equals) or to the last digit of a
power is compared as such, and all else exactly.
"""

import json
import lzma
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

RECORDED = Path(__file__).parents[1] / "data" / "recorded-plugins"
SUITES = (
    "simple-scores",
    "load-target",
    "load-variation",
    "load-risk",
    "load-peaks",
    "numa-filter",
    "numa-score",
    "quota-prefilter",
    "quota-preemption",
    "faults",
)
_FAULTS = ("panics", "error", "refuses", "misbehaves")

Json = Mapping[str, Any]


def cases(suite: str) -> Iterator[Json]:
    """The cases of a suite, in their order."""
    with lzma.open(RECORDED / f"{suite}.jsonl.xz", "rt", encoding="utf-8") as lines:
        for line in lines:
            yield json.loads(line)


def differences(case: Json, result: Json) -> list[str]:
    """The fields in which a result differs from the recording; empty if it agrees."""
    want = case["expected"]
    fault = next((fault for fault in _FAULTS if fault in want), None)
    if fault == "refuses":
        return [] if result.get("refuses") else ["refuses"]
    if fault:
        return [field for field in ("panics", "error") if field in result]
    exact = ("prefilter", "filter", "order", "postfilter")
    found = [field for field in exact if field in want and want[field] != result.get(field)]
    if "raw" in want:
        peaks = case["suite"] == "load-peaks"
        if not _same_raw(want["raw"], result.get("raw") or {}, loosely=peaks):
            found.append("raw")
        if not _same_normalised(want, result.get("normalised") or {}, loosely=peaks):
            found.append("normalised")
    if "preemption" in want and _preempts_otherwise(want["preemption"], result.get("preemption")):
        found.append("preemption")
    return found + [field for field in _FAULTS if field in result]


def _same_raw(want: Mapping[str, int], have: Mapping[str, int], *, loosely: bool) -> bool:
    if not loosely:
        return want == have
    return want.keys() == have.keys() and all(
        math.isclose(want[node], have[node], rel_tol=1e-9, abs_tol=1000) for node in want
    )


def _same_normalised(want: Json, have: Mapping[str, int], *, loosely: bool) -> bool:
    scores = want["normalised"]
    if not loosely:
        return bool(scores == have)
    most = max(want["raw"].values())
    slack = {node: int(raw == most and most != 0) for node, raw in want["raw"].items()}
    return scores.keys() == have.keys() and all(
        abs(scores[node] - have[node]) <= slack[node] for node in scores
    )


def _preempts_otherwise(want: Json | None, have: Json | None) -> bool:
    if not want or not have:
        return bool(want) != bool(have)
    node, candidates = have["node"], want["candidates"]
    return (
        node not in want["nodes"]
        or have["victims"] != candidates[node]["victims"]
        or have["nodes"] != want["nodes"]
        or have["candidates"] != candidates
    )
