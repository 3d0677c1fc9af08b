"""Reviews of who a client is and what it may do: one user, who may do everything.

Called by the HTTP layer. Invariant: the answer repeats the question and allows it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from stellwerk.models.json_values import JsonObject

USER: Final = "stellwerk-admin"
REVIEW_GROUPS: Final = ("authentication.k8s.io", "authorization.k8s.io")
"""Groups whose objects are questions: they are answered and not stored."""
_GROUPS: Final = ("system:masters", "system:authenticated")
_EVERYTHING: Final = ["*"]


def answer_review(body: JsonObject) -> JsonObject:
    """The review with its status filled in."""
    if body["kind"] == "SelfSubjectReview":
        status: JsonObject = {"userInfo": {"username": USER, "groups": list(_GROUPS)}}
    elif body["kind"] == "SelfSubjectRulesReview":
        rules = {"verbs": _EVERYTHING, "apiGroups": _EVERYTHING, "resources": _EVERYTHING}
        status = {
            "resourceRules": [rules],
            "nonResourceRules": [{"verbs": _EVERYTHING, "nonResourceURLs": _EVERYTHING}],
            "incomplete": False,
        }
    else:
        status = {"allowed": True, "reason": "the embedded cluster allows everything"}
    return {**body, "metadata": body.get("metadata") or {}, "status": status}
