"""The OpenAPI document of what the operator's port answers beside probes and metrics.

`serving.explanations` serves it. Invariant: every route of that module is described; a test asks
for each of them.
"""

from __future__ import annotations

from typing import Final

from stellwerk import __version__
from stellwerk.serving.openapi_schemas import NUMBER, SCHEMAS, TEXT, Schema

_PATH_PARAMETERS: Final = [
    {"name": name, "in": "path", "required": True, "schema": TEXT} for name in ("namespace", "pod")
]
_PROFILE_PARAMETER: Final = {"name": "profile", "in": "path", "required": True, "schema": TEXT}
_GROUP_PARAMETERS: Final = [
    {"name": name, "in": "path", "required": True, "schema": TEXT}
    for name in ("namespace", "group")
]
_PAGE_PARAMETERS: Final = [
    {"name": name, "in": "query", "schema": NUMBER} for name in ("limit", "offset")
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
