"""The OpenAPI document of what the operator's port answers beside probes and metrics.

`serving.explanations` serves it. Invariant: every route of that module is described, and every
answer has the described shape; a test asks for each of them.
"""

from __future__ import annotations

from typing import Any, Final

from stellwerk import __version__

Schema = dict[str, Any]

_TEXT: Final[Schema] = {"type": "string"}
_NUMBER: Final[Schema] = {"type": "integer"}
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
    {"kind": _TEXT},
    {
        "node": _TEXT,
        "pod": _TEXT,
        "amounts": _map(_NUMBER),
        "taint": _map(_TEXT),
        "taints": _list(_TEXT),
        "labels": _map({}),
        "edit": _TEXT,
    },
)
_SUGGESTION: Final = _object(
    {
        "text": _TEXT,
        "changes": _list(_CHANGE),
        "feasibleNodes": _NUMBER,
        "nodes": _list(_TEXT),
        "alternatives": _list(_list(_CHANGE)),
    },
    {"reason": _TEXT},
)
_QUEUE_FACTS: Final = _object(
    {
        "queue": _TEXT,
        "since": _TIME,
        "attempts": _NUMBER,
        "unschedulableAttempts": _NUMBER,
        "consecutiveErrors": _NUMBER,
    },
    {
        "position": _NUMBER,
        "nextRetry": _TIME,
        "gatedBy": _TEXT,
        "rejectedBy": _list(_TEXT),
        "wokenBy": _list(_object({"event": _TEXT, "plugins": _list(_TEXT)})),
    },
)
_VERDICTS: Final = _object(
    {"recomputedAt": _TIME},
    {
        "nodes": _NUMBER,
        "feasible": _NUMBER,
        "message": _TEXT,
        "error": _TEXT,
        "byPlugin": _list(
            _object(
                {
                    "plugin": _TEXT,
                    "nodes": _NUMBER,
                    "verdicts": _list(
                        _object(
                            {
                                "reasons": _list(_TEXT),
                                "nodes": _NUMBER,
                                "examples": _list(_TEXT),
                            }
                        )
                    ),
                }
            )
        ),
        "firstReasons": _map(_NUMBER),
        "nearest": _list(_object({"node": _TEXT, "rejectedBy": _map(_list(_TEXT))})),
        "preFilter": _object({"plugin": _TEXT, "reasons": _list(_TEXT)}),
        "onlyNodes": _list(_TEXT),
    },
)
_SCORE: Final = _object({"raw": _NUMBER, "normalized": _NUMBER, "weighted": _NUMBER})
_DECISION: Final = _object(
    {
        "decidedAt": _TIME,
        "attempts": _NUMBER,
        "nodes": _NUMBER,
        "evaluated": _NUMBER,
        "feasible": _NUMBER,
        "tied": _NUMBER,
        "nominated": _TRUTH,
        "best": _list(
            _object({"node": _TEXT, "rank": _NUMBER, "total": _NUMBER, "scores": _map(_SCORE)})
        ),
    },
    {
        "others": _object(
            {
                "countedAt": _TIME,
                "nodes": _NUMBER,
                "reasons": _list(
                    _object({"plugin": _TEXT, "reasons": _list(_TEXT), "nodes": _NUMBER})
                ),
            }
        )
    },
)
_VICTIMS: Final = _list(_object({"pod": _TEXT, "priority": _NUMBER}))
_CANDIDATE: Final = {"node": _TEXT, "budgetViolations": _NUMBER, "victims": _VICTIMS}
_EXPLANATION: Final = _object(
    {
        "pod": _TEXT,
        "state": {
            "type": "string",
            "enum": ["bound", "waiting", "scheduling", "unserved", "terminating", "preempted"],
        },
    },
    {
        "uid": _TEXT,
        "schedulerName": _TEXT,
        "priority": _NUMBER,
        "preempted": _object(
            {
                "by": _TEXT,
                "byPriority": _NUMBER,
                "priority": _NUMBER,
                "node": _TEXT,
                "decidedAt": _TIME,
            }
        ),
        "lastPreemption": _object(
            {
                "decidedAt": _TIME,
                "candidates": _NUMBER,
                "others": _list(_object(_CANDIDATE)),
                "nominatedNode": _TEXT,
                **_CANDIDATE,
            },
            {
                "tookPlace": _list(
                    _object(
                        {"pod": _TEXT, "priority": _NUMBER, "bound": _TRUTH, "decidedAt": _TIME}
                    )
                )
            },
        ),
        "node": _TEXT,
        "note": _TEXT,
        "decision": _DECISION,
        "queue": _QUEUE_FACTS,
        "lastAttempt": _object({"endedAt": _TIME}, {"message": _TEXT}),
        "verdicts": _VERDICTS,
        "wouldGetNode": _TEXT,
        "wouldFit": _list(_SUGGESTION),
        "preemption": _map({}),
        "reason": _TEXT,
        "served": _list(_TEXT),
        "nearest": _TEXT,
    },
)
_QUEUE: Final = _object(
    {
        "counts": _map(_NUMBER),
        "total": _NUMBER,
        "items": _list(
            _object(
                {
                    "pod": _TEXT,
                    "queue": _TEXT,
                    "schedulerName": _TEXT,
                    "priority": _NUMBER,
                    "since": _TIME,
                    "attempts": _NUMBER,
                },
                {"rejectedBy": _list(_TEXT)},
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
                    "active": _NUMBER,
                    "backoff": _NUMBER,
                    "unschedulable": _NUMBER,
                    "gated": _NUMBER,
                    "scheduled": _NUMBER,
                }
            )
        ),
    }
)
_DECISIONS: Final = _object(
    {
        "total": _NUMBER,
        "items": _list(
            _object(
                {
                    "pod": _TEXT,
                    "node": _TEXT,
                    "schedulerName": _TEXT,
                    "decidedAt": _TIME,
                    "attempts": _NUMBER,
                    "feasible": _NUMBER,
                    "nodes": _NUMBER,
                    "tied": _NUMBER,
                }
            )
        ),
    }
)
_CONDITION: Final = _object(
    {
        "type": _TEXT,
        "status": _TEXT,
        "reason": _TEXT,
        "message": _TEXT,
        "lastTransitionTime": _TIME,
        "observedGeneration": _NUMBER,
    }
)
_PROFILES: Final = _object(
    {
        "items": _list(
            _object(
                {
                    "name": _TEXT,
                    "schedulerName": _TEXT,
                    "generation": _NUMBER,
                    "plugins": _map(_list(_TEXT)),
                    "weights": _map(_NUMBER),
                    "scheduledPods": _NUMBER,
                    "extenders": _TRUTH,
                }
            )
        ),
        "refused": _list(_object({"schedulerName": _TEXT, "reason": _TEXT})),
        "objects": _list(
            _object({"name": _TEXT, "generation": _NUMBER, "conditions": _list(_CONDITION)})
        ),
    }
)
_NODES: Final = _object(
    {
        "total": _NUMBER,
        "items": _list(
            _object(
                {
                    "name": _TEXT,
                    "allocatable": _map(_NUMBER),
                    "requested": _map(_NUMBER),
                    "labels": _map(_TEXT),
                    "taints": _list(_object({"key": _TEXT, "value": _TEXT, "effect": _TEXT})),
                    "unschedulable": _TRUTH,
                }
            )
        ),
    }
)
_WHAT_IF: Final = _object(
    {
        "placed": _list(_object({"pod": _TEXT, "node": _TEXT})),
        "unplaced": _list(_object({"pod": _TEXT, "message": _TEXT}, {"wouldPreempt": _map({})})),
    },
    {"drained": _TEXT, "leftOut": _NUMBER, "explanation": _map({})},
)
_SUPPOSITION: Final = _object(
    {},
    {
        "pod": _map({}),
        "addNodes": _list(_map({})),
        "count": _NUMBER,
        "drain": _TEXT,
        "profile": _map({}),
    },
)
_SHADOW: Final = _object(
    {
        "profile": _TEXT,
        "shadowOf": _TEXT,
        "decisions": _NUMBER,
        "compared": _NUMBER,
        "differing": _NUMBER,
        "skipped": _NUMBER,
        "failed": _NUMBER,
        "meanGain": _TEXT,
        "differences": _list(
            _object(
                {
                    "at": _TIME,
                    "pod": _TEXT,
                    "node": _TEXT,
                    "shadowNode": _TEXT,
                    "total": _NUMBER | {"nullable": True},
                    "shadowTotal": _NUMBER | {"nullable": True},
                    "plugin": _TEXT,
                    "reason": _TEXT,
                }
            )
        ),
    }
)
_GROUP: Final = _object(
    {
        "podGroup": _TEXT,
        "api": _TEXT,
        "state": _TEXT,
        "minCount": _NUMBER,
        "exist": _NUMBER,
        "placed": _NUMBER,
        "running": _NUMBER,
        "succeeded": _NUMBER,
        "members": _list(
            _object({"pod": _TEXT, "node": _TEXT}, {"queue": _TEXT, "message": _TEXT})
        ),
    },
    {
        "waitsFor": _TEXT,
        "topology": _list(_TEXT),
        "problems": _list(_TEXT),
        "conditions": _list(_map({})),
        "error": _TEXT,
        "wouldHappen": _object(
            {
                "placed": _TRUTH,
                "placements": _NUMBER,
                "attempts": _NUMBER,
                "placement": _TEXT,
                "nodes": _map(_TEXT),
            },
            {"message": _TEXT, "reasons": _map(_TEXT), "victims": _list(_TEXT)},
        ),
        "wouldFit": _list(_object({"nodes": _NUMBER, "like": _TEXT, "allocatable": _map(_NUMBER)})),
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
_PATH_PARAMETERS: Final = [
    {"name": name, "in": "path", "required": True, "schema": _TEXT} for name in ("namespace", "pod")
]
_PROFILE_PARAMETER: Final = {"name": "profile", "in": "path", "required": True, "schema": _TEXT}
_GROUP_PARAMETERS: Final = [
    {"name": name, "in": "path", "required": True, "schema": _TEXT}
    for name in ("namespace", "group")
]
_PAGE_PARAMETERS: Final = [
    {"name": name, "in": "query", "schema": _NUMBER} for name in ("limit", "offset")
]


def openapi_document() -> Schema:
    """The whole document, OpenAPI 3.0."""
    return {
        "openapi": "3.0.3",
        "info": {"title": "Stellwerk", "version": __version__},
        "paths": {
            "/explain/{namespace}/{pod}": _get("Explanation", "why a pod is where it is"),
            "/explain/{namespace}/podgroups/{group}": _get(
                "GroupExplanation", "what a group of pods waits for, and what would make it fit"
            ),
            "/queue": _get("Queue", "pods that wait"),
            "/queue/history": _get("QueueHistory", "how many pods waited over the last hour"),
            "/decisions": _get("Decisions", "pods that got a node, the last one first"),
            "/profiles": _get("Profiles", "profiles that serve"),
            "/shadow/{profile}": _get("Shadow", "what a profile would have decided otherwise"),
            "/nodes": _get("Nodes", "nodes and what is used of them"),
            "/openapi/v3": {
                "get": {
                    "summary": "this document",
                    "responses": {"200": {"description": "the document"}},
                }
            },
            "/what-if": {"post": _operation("WhatIf", "decide on a copy", "Supposition")},
        },
        "components": {
            "schemas": SCHEMAS,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}],
    }


def _get(schema: str, summary: str) -> Schema:
    named = {
        "Explanation": _PATH_PARAMETERS,
        "GroupExplanation": _GROUP_PARAMETERS,
        "Shadow": [_PROFILE_PARAMETER],
        "Profiles": [],
        "QueueHistory": [],
    }
    parameters = named.get(schema, _PAGE_PARAMETERS)
    return {"get": _operation(schema, summary) | {"parameters": parameters}}


def _operation(schema: str, summary: str, body: str = "") -> Schema:
    operation: Schema = {
        "summary": summary,
        "responses": {
            "200": {"description": summary, "content": _content(schema)},
            "429": {"description": "too many are asked for at once"},
            "503": {"description": "another replica leads; the answer names it"},
        },
    }
    if schema in {"Explanation", "GroupExplanation"}:
        operation["responses"]["404"] = {"description": "nothing of that name is known"}
    if body:
        operation["requestBody"] = {"required": True, "content": _content(body)}
    return operation


def _content(schema: str) -> Schema:
    return {"application/json": {"schema": {"$ref": f"#/components/schemas/{schema}"}}}
