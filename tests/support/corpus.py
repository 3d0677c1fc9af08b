"""kube-scheduler's recorded decisions, and how a decision of ours is held against one.

Owns the reading of `tests/data/corpus` and the rules of comparison; conformance tests call it.
Invariant: what kube-scheduler leaves to chance (the node among equals) is compared as a set, and
all else exactly.
"""

import json
import lzma
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CORPUS = Path(__file__).parents[1] / "data" / "corpus"
SUITES = (
    "basic-resources",
    "dynamic-resources",
    "image-locality",
    "interpod-affinity",
    "mixed",
    "node-affinity",
    "nodename-unschedulable-ports",
    "preemption",
    "scoring-strategies",
    "taints",
    "topology-spread",
    "volumes",
)

_EXACT_FIELDS = ("error", "prefilter", "filter", "scores", "total", "message")
_DEVICE_FIELDS = (
    "allocations",
    "deallocate",
    "delete",
    "preenqueue",
    "extendedResourceClaims",
    "bindErrors",
    "reservedFor",
)
_EXACT_PREEMPTION_FIELDS = ("code", "message", "nominatedNodes", "candidates")


@dataclass(frozen=True, slots=True)
class Recording:
    """One case as `stellwerk decide` reads it, and the result that kube-scheduler v1.36.2 gave."""

    case: Mapping[str, Any]
    expected: Mapping[str, Any]

    @property
    def id(self) -> str:
        """The name of the case, unique over all suites."""
        return str(self.expected["id"])


def read_suite(suite: str) -> Iterator[Recording]:
    """The recordings of one suite, in their order."""
    with lzma.open(CORPUS / f"{suite}.jsonl.xz", "rt", encoding="utf-8") as lines:
        for line in lines:
            recorded = json.loads(line)
            yield Recording(recorded["case"], recorded["expected"])


def differences(
    expected: Mapping[str, Any], got: Mapping[str, Any], *, ignore: Collection[str] = ()
) -> list[str]:
    """The fields in which a result differs from the recorded one, the most telling first.

    A field of preemption is named "preemption.victims"; ignoring "preemption" ignores all of them.
    """
    if expected.get("error"):
        # The cycle ends with it; which node is looked at first is left to chance.
        wanted = expected.get("errors", [expected["error"]])
        return [] if got.get("error") in wanted else ["error"]
    found = [field for field in _EXACT_FIELDS if expected.get(field) != got.get(field)]
    found += _device_differences(expected, got)
    if sorted(expected["selected"]) != sorted(got.get("selected") or ()):
        found.append("selected")
    # allFilters is extra: a result may leave it out, and suite mixed has none recorded.
    if "allFilters" in expected.keys() & got.keys() and expected["allFilters"] != got["allFilters"]:
        found.append("allFilters")
    found += _preemption_differences(expected.get("preemption"), got.get("preemption"))
    return [
        field for field in found if field not in ignore and field.partition(".")[0] not in ignore
    ]


def _device_differences(expected: Mapping[str, Any], got: Mapping[str, Any]) -> list[str]:
    """The differing fields of cases with resource claims; an absent one is empty."""
    return [
        field
        for field in _DEVICE_FIELDS
        if (expected.get(field) or None) != (got.get(field) or None)
    ]


def _preemption_differences(
    expected: Mapping[str, Any] | None, got: Mapping[str, Any] | None
) -> list[str]:
    if expected is None or got is None:
        return [] if expected is got else ["preemption"]
    found = [
        f"preemption.{field}"
        for field in _EXACT_PREEMPTION_FIELDS
        if expected.get(field) != got.get(field)
    ]
    node_name = got.get("nominatedNode")
    if node_name not in (expected["nominatedNodes"] or [None]):
        found.append("preemption.nominatedNode")
    elif node_name and got.get("victims") != expected["candidates"][node_name]["victims"]:
        found.append("preemption.victims")
    return found
