"""The OpenAPI document of what the operator's port answers beside probes and metrics.

`serving.explanations` serves it. Invariant: every route of that module is described; a test asks
for each of them. The schemas are those of the answers' classes, with their docstrings.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final

from stellwerk import __version__
from stellwerk.answers.answer import PortAnswer, schemas
from stellwerk.answers.decisions import DecisionsPage
from stellwerk.answers.devices import ClaimExplanation, DeviceExplanation, DevicesPage
from stellwerk.answers.dump import CacheDump
from stellwerk.answers.group import GroupExplanation
from stellwerk.answers.nodes import NodeExplanation, NodesPage
from stellwerk.answers.observed import ObservedPage
from stellwerk.answers.pod import PodExplanation
from stellwerk.answers.profiles import ProfilesPage
from stellwerk.answers.queue import QueueHistoryPage, QueuePage
from stellwerk.answers.search import SearchPage
from stellwerk.answers.shadow import ShadowDiff
from stellwerk.answers.what_if import Supposition, WhatIf
from stellwerk.answers.workload import OwnedPods

Schema = dict[str, Any]
Kind = type[PortAnswer]

TEXT: Final[Schema] = {"type": "string"}
NUMBER: Final[Schema] = {"type": "integer"}
_EXPLANATIONS: Final = (PodExplanation, GroupExplanation, ClaimExplanation)
_OF_NODES: Final = (NodesPage, NodeExplanation)
_OF_DEVICES: Final = (DevicesPage, DeviceExplanation)
_ANSWERS: Final = (
    *_EXPLANATIONS,
    OwnedPods,
    *_OF_DEVICES,
    SearchPage,
    QueuePage,
    QueueHistoryPage,
    DecisionsPage,
    ProfilesPage,
    *_OF_NODES,
    ShadowDiff,
    ObservedPage,
    WhatIf,
    Supposition,
    CacheDump,
)
_PAGE_PARAMETERS: Final = [
    {"name": name, "in": "query", "schema": NUMBER} for name in ("limit", "offset")
]


@cache
def openapi_document() -> Schema:
    """The whole document, OpenAPI 3.0."""
    return {
        "openapi": "3.0.3",
        "info": {"title": "Stellwerk", "version": __version__},
        "paths": {
            "/explain/{namespace}/{pod}": _get(PodExplanation, "why a pod is where it is"),
            "/explain/{namespace}/podgroups/{group}": _get(
                GroupExplanation, "what a group of pods waits for, and what would make it fit"
            ),
            "/explain/{namespace}/resourceclaims/{claim}": _get(
                ClaimExplanation, "what a resource claim asks for and has, and whose it is"
            ),
            "/explain/{namespace}/owners/{kind}/{owner}": _get(
                OwnedPods, "the pods that a controller made"
            ),
            "/explain/devices": _list_or_one(
                _OF_DEVICES,
                "devices and the claims that hold them, or one and all that is known of it",
                "q",
                "node",
                "state",
            ),
            "/explain/search": _get(SearchPage, "objects by a part of their name"),
            "/queue": _get(QueuePage, "pods that wait"),
            "/queue/history": _get(
                QueueHistoryPage, "the queues, throughput and latency over time"
            ),
            "/decisions": _get(DecisionsPage, "recent placements, the newest first"),
            "/profiles": _get(ProfilesPage, "profiles that serve"),
            "/shadow/{profile}": _get(ShadowDiff, "what a profile would have decided differently"),
            "/observed": _get(
                ObservedPage, "how another scheduler's bindings compare with observed profiles"
            ),
            "/nodes": _list_or_one(
                _OF_NODES,
                "nodes and what is used of them, or one and who would fit there",
                "q",
                "label",
                "sort",
                "totals",
                "shares",
            ),
            "/openapi/v3": {
                "get": {
                    "summary": "this document",
                    "responses": {"200": {"description": "the document"}},
                }
            },
            "/debug/dump": _get(CacheDump, "what the scheduler knows, compared with the API"),
            "/what-if": {"post": _operation(WhatIf, "decide on a copy", Supposition)},
        },
        "components": {
            "schemas": schemas(_ANSWERS),
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}],
    }


def _list_or_one(answers: tuple[Kind, Kind], summary: str, *words: str) -> Schema:
    """A list with its filters, or the one that `explain` names."""
    found = _get(answers[0], summary)
    operation = found["get"]
    either = [{"$ref": f"#/components/schemas/{each.__name__}"} for each in answers]
    operation["responses"]["200"]["content"] = {"application/json": {"schema": {"anyOf": either}}}
    operation["responses"]["404"] = {"description": "there is none of that name"}
    operation["parameters"] = [*_PAGE_PARAMETERS, *_words("explain", *words)]
    return found


def _words(*names: str) -> list[Schema]:
    return [{"name": name, "in": "query", "schema": TEXT} for name in names]


def _path_parameters(*names: str) -> list[Schema]:
    return [{"name": name, "in": "path", "required": True, "schema": TEXT} for name in names]


def _get(answer: Kind, summary: str) -> Schema:
    named: dict[Kind, list[Schema]] = {
        PodExplanation: _path_parameters("namespace", "pod"),
        GroupExplanation: _path_parameters("namespace", "group"),
        ClaimExplanation: _path_parameters("namespace", "claim"),
        OwnedPods: _path_parameters("namespace", "kind", "owner"),
        SearchPage: [*_PAGE_PARAMETERS[:1], *_words("q")],
        QueuePage: [
            *_PAGE_PARAMETERS,
            *_words("q", "queue", "plugin", "controller", "reason", "sort", "by"),
        ],
        DecisionsPage: [*_PAGE_PARAMETERS, *_words("q", "node")],
        ShadowDiff: _path_parameters("profile"),
        ObservedPage: [*_PAGE_PARAMETERS[:1], *_words("profile")],
        ProfilesPage: [],
        QueueHistoryPage: _words("range"),
        CacheDump: [],
    }
    parameters = named.get(answer, _PAGE_PARAMETERS)
    return {"get": _operation(answer, summary) | {"parameters": parameters}}


def _operation(answer: Kind, summary: str, body: Kind | None = None) -> Schema:
    operation: Schema = {
        "summary": summary,
        "responses": {
            "200": {"description": summary, "content": _content(answer)},
            "429": {"description": "too many requests at once"},
            "503": {"description": "another replica leads; the answer names it"},
        },
    }
    if answer in _EXPLANATIONS:
        operation["responses"]["404"] = {"description": "nothing of that name is known"}
    if body is not None:
        operation["requestBody"] = {"required": True, "content": _content(body)}
    return operation


def _content(kind: Kind) -> Schema:
    return {"application/json": {"schema": {"$ref": f"#/components/schemas/{kind.__name__}"}}}
