"""An operator's answer about an observed scheduler, as tests of its table and its page take it.

Invariant: the counts of the days add up to those of the profile, as in a real answer.
"""

from typing import Any

from stellwerk.answers.observed import CLASS_WORDS

NOW = "2026-11-22T10:00:00.000Z"


def counts(*by_class: int) -> dict[str, int]:
    """Counts by class, in the order in which they are shown."""
    return dict(zip(CLASS_WORDS, by_class, strict=True))


def comparison(pod: str, result: str = "equal", **fields: Any) -> dict[str, Any]:
    """One binding, by default equal to our decision."""
    found = {
        "at": NOW,
        "pod": f"default/{pod}",
        "node": "n1",
        "result": result,
        "bestNodes": ["n1", "n2"],
        "best": 2,
        "feasible": 3,
        "total": 412,
        "bestTotal": 412,
        "plugin": "",
        "points": 0,
        "plugins": [],
        "reason": "",
        "scheduledAfterSeconds": 0.006,
    }
    return found | fields


DIFFERS = comparison(
    "web-7",
    "differs",
    bestNodes=["n3"],
    best=1,
    bestTotal=424,
    plugin="NodeResourcesFit",
    points=15,
    plugins=[
        {"plugin": "NodeResourcesFit", "points": 15},
        {"plugin": "ImageLocality", "points": -3},
    ],
)
REJECTED = comparison(
    "db-0",
    "differs",
    bestNodes=["n3"],
    best=1,
    total=None,
    plugin="TaintToleration",
    reason="node(s) had untolerated taint(s)",
)
FOUND_NONE = comparison(
    "large-0",
    "foundNone",
    bestNodes=[],
    best=0,
    feasible=0,
    total=None,
    bestTotal=None,
    plugin="NodeResourcesFit",
    reason="0/3 nodes are available: 3 Insufficient cpu.",
)
UNKNOWN = comparison(
    "burst-3",
    "notComparable",
    bestNodes=[],
    best=0,
    feasible=0,
    total=None,
    bestTotal=None,
    reason="another pod was bound within a second, and without it n1 is among our best",
)


def observed_profile(**fields: Any) -> dict[str, Any]:
    """A profile that has observed default-scheduler for two days."""
    found = {
        "name": "beside",
        "schedulerName": "default-scheduler",
        "since": "2026-11-21T02:11:00Z",
        "waiting": 2,
        "decisions": 1300,
        "skippedDecisions": 40,
        "bindings": 1207,
        "compared": 1204,
        "pending": 3,
        "counts": counts(1170, 0, 13, 1, 20),
        "shares": {
            "equal": 0.971761,
            "sampled": 0.0,
            "differs": 0.010797,
            "foundNone": 0.000831,
            "notComparable": 0.016611,
        },
        "latency": {
            "count": 1200,
            "measured": 1200,
            "p50Seconds": 0.006,
            "p90Seconds": 0.011,
            "p99Seconds": 0.032,
        },
        "percentageOfNodesToScore": 100,
        "days": [
            {"day": "2026-11-22", "compared": 204, "counts": counts(200, 0, 3, 0, 1)},
            {"day": "2026-11-21", "compared": 1000, "counts": counts(970, 0, 10, 1, 19)},
        ],
        "reasons": [
            {"plugin": "NodeResourcesFit", "reason": "", "count": 12, "points": 180},
            {
                "plugin": "TaintToleration",
                "reason": "node(s) had untolerated taint(s)",
                "count": 1,
                "points": 0,
            },
        ],
        "incomparable": [{"reason": UNKNOWN["reason"], "count": 20}],
        "comparisons": [DIFFERS, comparison("web-6"), REJECTED, FOUND_NONE, UNKNOWN],
        "compatibility": "1.36.2",
        "shadows": [{"name": "packing", "compared": 120, "differing": 80, "meanGainPoints": 31.5}],
    }
    return found | fields
