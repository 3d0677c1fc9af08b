"""The shapes of the answers on the operator's port, as JSON schemas of OpenAPI 3.0.

`serving.openapi` puts them into its document. Invariant: every answer has the described shape; a
test asks for each of them.
"""

from __future__ import annotations

from typing import Any, Final

Schema = dict[str, Any]

TEXT: Final[Schema] = {"type": "string"}
NUMBER: Final[Schema] = {"type": "integer"}
_TRUTH: Final[Schema] = {"type": "boolean"}
_TIME: Final[Schema] = {"type": "string", "format": "date-time"}


def _list(of: Schema) -> Schema:
    return {"type": "array", "items": of}


def _map(of: Schema) -> Schema:
    return {"type": "object", "additionalProperties": of}


def _object(required: dict[str, Schema], optional: dict[str, Schema] | None = None) -> Schema:
    properties = {**required, **(optional or {})}
    return {"type": "object", "required": list(required), "properties": properties}


_CHANGE: Final = _object(
    {"kind": TEXT},
    {
        "node": TEXT,
        "pod": TEXT,
        "amounts": _map(NUMBER),
        "taint": _map(TEXT),
        "taints": _list(TEXT),
        "labels": _map({}),
        "edit": TEXT,
        "claim": TEXT,
        "change": TEXT,
        "claims": _list(TEXT),
    },
)
_SUGGESTION: Final = _object(
    {
        "text": TEXT,
        "changes": _list(_CHANGE),
        "feasibleNodes": NUMBER,
        "nodes": _list(TEXT),
        "alternatives": _list(_list(_CHANGE)),
    },
    {"reason": TEXT},
)
_QUEUE_FACTS: Final = _object(
    {
        "queue": TEXT,
        "since": _TIME,
        "attempts": NUMBER,
        "unschedulableAttempts": NUMBER,
        "consecutiveErrors": NUMBER,
    },
    {
        "position": NUMBER,
        "nextRetry": _TIME,
        "gatedBy": TEXT,
        "rejectedBy": _list(TEXT),
        "wokenBy": _list(_object({"event": TEXT, "plugins": _list(TEXT)})),
    },
)
_VERDICTS: Final = _object(
    {"recomputedAt": _TIME},
    {
        "nodes": NUMBER,
        "feasible": NUMBER,
        "message": TEXT,
        "error": TEXT,
        "byPlugin": _list(
            _object(
                {
                    "plugin": TEXT,
                    "nodes": NUMBER,
                    "verdicts": _list(
                        _object(
                            {
                                "reasons": _list(TEXT),
                                "nodes": NUMBER,
                                "examples": _list(TEXT),
                            }
                        )
                    ),
                }
            )
        ),
        "firstReasons": _map(NUMBER),
        "nearest": _list(_object({"node": TEXT, "rejectedBy": _map(_list(TEXT))})),
        "preFilter": _object({"plugin": TEXT, "reasons": _list(TEXT)}),
        "onlyNodes": _list(TEXT),
    },
)
_CLAIM: Final = _object(
    {"claim": TEXT, "state": {"type": "string", "enum": ["missing", "needed", "allocated"]}},
    {"devices": _list(TEXT), "reservedFor": _list(TEXT)},
)
_REQUEST: Final = _object(
    {
        "claim": TEXT,
        "request": TEXT,
        "deviceClass": TEXT,
        "count": {"anyOf": [NUMBER, {"type": "string", "enum": ["All"]}]},
        "considered": NUMBER,
        "free": NUMBER,
        "nodes": NUMBER,
        "nodesWithEnough": NUMBER,
        "notTaken": _list(_object({"reason": TEXT, "devices": NUMBER, "examples": _list(TEXT)})),
    },
    {"errors": _list(_object({"claim": TEXT, "request": TEXT, "error": TEXT, "nodes": NUMBER}))},
)
_DEVICES: Final = _object(
    {"claims": _list(_CLAIM)},
    {
        "requests": _list(_REQUEST),
        "poolsLeftOut": _list(_object({"pool": TEXT, "reason": TEXT})),
    },
)
_GPUS: Final = _object(
    {"devices": NUMBER, "milliOfEach": NUMBER},
    {
        "numbers": _list(NUMBER),
        "nodesWithGpus": NUMBER,
        "idleMilli": NUMBER,
        "mostFreeMilli": NUMBER,
        "wholeDevicesIdle": NUMBER,
        "nearest": _list(
            _object({"node": TEXT, "freeMilli": _list(NUMBER), "rejectedByOthers": _TRUTH})
        ),
    },
)
_SCORE: Final = _object({"raw": NUMBER, "normalized": NUMBER, "weighted": NUMBER})
_DECISION: Final = _object(
    {
        "decidedAt": _TIME,
        "attempts": NUMBER,
        "nodes": NUMBER,
        "evaluated": NUMBER,
        "feasible": NUMBER,
        "tied": NUMBER,
        "nominated": _TRUTH,
        "best": _list(
            _object({"node": TEXT, "rank": NUMBER, "total": NUMBER, "scores": _map(_SCORE)})
        ),
    },
    {
        "others": _object(
            {
                "countedAt": _TIME,
                "nodes": NUMBER,
                "reasons": _list(
                    _object({"plugin": TEXT, "reasons": _list(TEXT), "nodes": NUMBER})
                ),
            }
        )
    },
)
_VICTIMS: Final = _list(_object({"pod": TEXT, "priority": NUMBER}))
_CANDIDATE: Final = {"node": TEXT, "budgetViolations": NUMBER, "victims": _VICTIMS}
_EXPLANATION: Final = _object(
    {
        "pod": TEXT,
        "state": {
            "type": "string",
            "enum": ["bound", "waiting", "scheduling", "unserved", "terminating", "preempted"],
        },
    },
    {
        "uid": TEXT,
        "schedulerName": TEXT,
        "selectedBy": TEXT,
        "priority": NUMBER,
        "preempted": _object(
            {
                "by": TEXT,
                "byPriority": NUMBER,
                "priority": NUMBER,
                "node": TEXT,
                "decidedAt": _TIME,
            }
        ),
        "lastPreemption": _object(
            {
                "decidedAt": _TIME,
                "candidates": NUMBER,
                "others": _list(_object(_CANDIDATE)),
                "nominatedNode": TEXT,
                **_CANDIDATE,
            },
            {
                "tookPlace": _list(
                    _object({"pod": TEXT, "priority": NUMBER, "bound": _TRUTH, "decidedAt": _TIME})
                )
            },
        ),
        "node": TEXT,
        "note": TEXT,
        "decision": _DECISION,
        "queue": _QUEUE_FACTS,
        "lastAttempt": _object({"endedAt": _TIME}, {"message": TEXT}),
        "verdicts": _VERDICTS,
        "devices": _DEVICES,
        "gpus": _GPUS,
        "wouldGetNode": TEXT,
        "wouldFit": _list(_SUGGESTION),
        "preemption": _map({}),
        "reason": TEXT,
        "served": _list(TEXT),
        "nearest": TEXT,
    },
)
_QUEUE: Final = _object(
    {
        "counts": _map(NUMBER),
        "total": NUMBER,
        "items": _list(
            _object(
                {
                    "pod": TEXT,
                    "queue": TEXT,
                    "schedulerName": TEXT,
                    "priority": NUMBER,
                    "since": _TIME,
                    "attempts": NUMBER,
                },
                {"rejectedBy": _list(TEXT)},
            )
        ),
    }
)
_HISTORY: Final = _object(
    {
        "everySeconds": {"type": "number"},
        "items": _list(
            _object(
                {
                    "at": _TIME,
                    "active": NUMBER,
                    "backoff": NUMBER,
                    "unschedulable": NUMBER,
                    "gated": NUMBER,
                    "scheduled": NUMBER,
                }
            )
        ),
    }
)
_DECISIONS: Final = _object(
    {
        "total": NUMBER,
        "items": _list(
            _object(
                {
                    "pod": TEXT,
                    "node": TEXT,
                    "schedulerName": TEXT,
                    "decidedAt": _TIME,
                    "attempts": NUMBER,
                    "feasible": NUMBER,
                    "nodes": NUMBER,
                    "tied": NUMBER,
                }
            )
        ),
    }
)
_CONDITION: Final = _object(
    {
        "type": TEXT,
        "status": TEXT,
        "reason": TEXT,
        "message": TEXT,
        "lastTransitionTime": _TIME,
        "observedGeneration": NUMBER,
    }
)
_PROFILES: Final = _object(
    {
        "items": _list(
            _object(
                {
                    "name": TEXT,
                    "schedulerName": TEXT,
                    "generation": NUMBER,
                    "plugins": _map(_list(TEXT)),
                    "weights": _map(NUMBER),
                    "scheduledPods": NUMBER,
                    "extenders": _TRUTH,
                }
            )
        ),
        "refused": _list(_object({"schedulerName": TEXT, "reason": TEXT})),
        "objects": _list(
            _object({"name": TEXT, "generation": NUMBER, "conditions": _list(_CONDITION)})
        ),
    }
)
_NODES: Final = _object(
    {
        "total": NUMBER,
        "items": _list(
            _object(
                {
                    "name": TEXT,
                    "allocatable": _map(NUMBER),
                    "requested": _map(NUMBER),
                    "labels": _map(TEXT),
                    "taints": _list(_object({"key": TEXT, "value": TEXT, "effect": TEXT})),
                    "unschedulable": _TRUTH,
                }
            )
        ),
    }
)
_WHAT_IF: Final = _object(
    {
        "placed": _list(_object({"pod": TEXT, "node": TEXT})),
        "unplaced": _list(_object({"pod": TEXT, "message": TEXT}, {"wouldPreempt": _map({})})),
    },
    {"drained": TEXT, "leftOut": NUMBER, "explanation": _map({})},
)
_SUPPOSITION: Final = _object(
    {},
    {
        "pod": _map({}),
        "addNodes": _list(_map({})),
        "count": NUMBER,
        "drain": TEXT,
        "profile": _map({}),
    },
)
_SHADOW: Final = _object(
    {
        "profile": TEXT,
        "shadowOf": TEXT,
        "decisions": NUMBER,
        "compared": NUMBER,
        "differing": NUMBER,
        "skipped": NUMBER,
        "failed": NUMBER,
        "meanGain": TEXT,
        "differences": _list(
            _object(
                {
                    "at": _TIME,
                    "pod": TEXT,
                    "node": TEXT,
                    "shadowNode": TEXT,
                    "total": NUMBER | {"nullable": True},
                    "shadowTotal": NUMBER | {"nullable": True},
                    "plugin": TEXT,
                    "reason": TEXT,
                }
            )
        ),
    }
)
_GROUP: Final = _object(
    {
        "podGroup": TEXT,
        "api": TEXT,
        "state": TEXT,
        "minCount": NUMBER,
        "exist": NUMBER,
        "placed": NUMBER,
        "running": NUMBER,
        "succeeded": NUMBER,
        "members": _list(_object({"pod": TEXT, "node": TEXT}, {"queue": TEXT, "message": TEXT})),
    },
    {
        "waitsFor": TEXT,
        "remarks": _list(TEXT),
        "queue": TEXT,
        "roomIsKeptSeconds": NUMBER | {"nullable": True},
        "givenBackAfterSeconds": NUMBER,
        "topology": _list(TEXT),
        "problems": _list(TEXT),
        "conditions": _list(_map({})),
        "error": TEXT,
        "wouldHappen": _object(
            {
                "placed": _TRUTH,
                "placements": NUMBER,
                "attempts": NUMBER,
                "placement": TEXT,
                "nodes": _map(TEXT),
            },
            {
                "message": TEXT,
                "reasons": _map(TEXT),
                "victims": _list(TEXT),
                "roomIsKeptOn": _list(TEXT),
            },
        ),
        "wouldFit": _list(_object({"nodes": NUMBER, "like": TEXT, "allocatable": _map(NUMBER)})),
    },
)
SCHEMAS: Final[dict[str, Schema]] = {
    "Explanation": _EXPLANATION,
    "GroupExplanation": _GROUP,
    "Queue": _QUEUE,
    "QueueHistory": _HISTORY,
    "Decisions": _DECISIONS,
    "Profiles": _PROFILES,
    "Nodes": _NODES,
    "Shadow": _SHADOW,
    "WhatIf": _WHAT_IF,
    "Supposition": _SUPPOSITION,
}
