"""Reviews: objects that are questions about users, tokens and rights, and are not stored.

Answered for the HTTP layer. Invariant: an answer about rights is what the authorizer decides, and a
request for the same act would be decided alike.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import orjson

from stellwerk_cluster.apimachinery.failures import FieldError, bad_request, bad_value, invalid_as
from stellwerk_cluster.apimachinery.objects import timestamp
from stellwerk_cluster.apimachinery.users import ANONYMOUS, User
from stellwerk_cluster.identity.attributes import Attributes
from stellwerk_cluster.identity.token_requests import review_token
from stellwerk_cluster.registry.write_rules import cannot_handle
from stellwerk_kube.schema.decoder import decode
from stellwerk_kube.schema.mismatches import DecodeError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from stellwerk_cluster.apimachinery.kinds import ResourceKind
    from stellwerk_cluster.identity.authentication import Authenticator
    from stellwerk_cluster.identity.authorizer import Authorizer, AuthorizerDecision, HeldRules
    from stellwerk_cluster.registry.field_manager import FieldManager
    from stellwerk_cluster.registry.write_options import WriteOptions
    from stellwerk_kube.json_values import JsonObject

REVIEW_GROUPS: Final = ("authentication.k8s.io", "authorization.k8s.io")
"""Groups whose objects are questions."""
_AUTHORIZATION: Final = "authorization.k8s.io"


@dataclass(frozen=True, slots=True)
class ReviewHandler:
    """Answers reviews by what authenticates and authorizes requests."""

    authenticator: Authenticator
    authorizer: Authorizer
    field_manager: FieldManager

    def answer(
        self,
        kind: ResourceKind,
        namespace: str,
        body: JsonObject,
        options: WriteOptions,
        now: datetime,
    ) -> JsonObject:
        """The review that the user of the options asks for, with its status filled in.

        Raises:
            StatusError: the review is malformed (400) or asks nothing (422).
        """
        try:
            review, _unknown = decode(kind.type_name, body)
        except DecodeError as error:
            raise cannot_handle(kind, str(error)) from error
        user = options.user or ANONYMOUS
        metadata = review.get("metadata") or {}
        if namespace:
            metadata["namespace"] = namespace
        spec = review.get("spec") or {}
        match kind.kind:
            case "SelfSubjectReview":
                metadata = {"creationTimestamp": timestamp(now)}
                status: JsonObject = {"userInfo": user.info()}
            case "TokenReview":
                status = review_token(self.authenticator, spec)
            case "SelfSubjectRulesReview":
                metadata, status = {}, self._rules(spec.get("namespace") or "", user)
                spec = {}
            case _:
                _check_asked(kind.kind, namespace, metadata, spec)
                asker = user if kind.kind.startswith("Self") else _reviewed(spec)
                status = _status(self.authorizer.decide(asker, _act(spec)))
        if spec and options.manager:
            owned = self.field_manager.created(kind, {"spec": spec}, options.manager, None)
            metadata = {**metadata, "managedFields": owned}
        answer: JsonObject = {
            "kind": kind.kind,
            "apiVersion": kind.api_version,
            "metadata": metadata,
        }
        if kind.kind != "SelfSubjectReview":
            answer["spec"] = spec
        return {**answer, "status": status}

    def _rules(self, namespace: str, user: User) -> JsonObject:
        if not namespace:
            raise bad_request("no namespace on request")
        return _rules_status(self.authorizer.held(user, namespace))


def _rules_status(held: HeldRules) -> JsonObject:
    documents = [rule.document() for rule in held.rules]
    status: JsonObject = {
        "resourceRules": [each for each in documents if "nonResourceURLs" not in each],
        "nonResourceRules": [each for each in documents if "nonResourceURLs" in each],
        "incomplete": bool(held.errors) or not held.complete,
    }
    if held.errors:
        status["evaluationError"] = ", ".join(held.errors)
    return status


def _status(decision: AuthorizerDecision) -> JsonObject:
    status: JsonObject = {"allowed": decision.allowed}
    if decision.reason:
        status["reason"] = decision.reason
    return status


def _reviewed(spec: JsonObject) -> User:
    extra = spec.get("extra") or {}
    return User(
        spec.get("user") or "",
        spec.get("uid") or "",
        tuple(spec.get("groups") or ()),
        tuple((key, tuple(values or ())) for key, values in extra.items()),
    )


def _act(spec: JsonObject) -> Attributes:
    resource = spec.get("resourceAttributes")
    if resource is None:
        url = spec["nonResourceAttributes"]
        return Attributes(url.get("verb", ""), path=url.get("path") or "/")
    return Attributes(
        *(
            resource.get(key) or ""
            for key in ("verb", "group", "version", "resource", "subresource", "name", "namespace")
        )
    )


def _check_asked(kind: str, namespace: str, metadata: JsonObject, spec: JsonObject) -> None:
    errors = [
        *_question_errors(spec),
        *(() if kind.startswith("Self") else _subject_errors(spec)),
        *_metadata_errors(kind, metadata),
        *(_local_errors(namespace, spec) if kind == "LocalSubjectAccessReview" else ()),
    ]
    if errors:
        raise invalid_as("", _AUTHORIZATION, "", errors)


def _question_errors(spec: JsonObject) -> Iterator[FieldError]:
    resource, url = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    if resource is not None and url is not None:
        shown = {"Path": url.get("path", ""), "Verb": url.get("verb", "")}
        why = "cannot be specified in combination with resourceAttributes"
        yield bad_value("spec.nonResourceAttributes", shown, why)
    elif resource is None and url is None:
        why = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
        yield FieldError(
            "spec.resourceAttributes", "FieldValueInvalid", f"Invalid value: null: {why}"
        )


def _subject_errors(spec: JsonObject) -> Iterator[FieldError]:
    if not spec.get("user") and not spec.get("groups"):
        yield bad_value("spec.user", "", "at least one of user or group must be specified")


def _metadata_errors(kind: str, metadata: JsonObject) -> Iterator[FieldError]:
    local = kind == "LocalSubjectAccessReview"
    free = ("namespace", "managedFields") if local else ("managedFields",)
    given = {key: value for key, value in metadata.items() if key not in free and value}
    if given:
        why = "must be empty except for namespace" if local else "must be empty"
        text = f"Invalid value: {orjson.dumps(given).decode()}: {why}"
        yield FieldError("metadata", "FieldValueInvalid", text)


def _local_errors(namespace: str, spec: JsonObject) -> Iterator[FieldError]:
    resource = spec.get("resourceAttributes")
    if resource is not None and (resource.get("namespace") or "") != namespace:
        given = resource.get("namespace") or ""
        yield bad_value("spec.resourceAttributes.namespace", given, "must match metadata.namespace")
    url = spec.get("nonResourceAttributes")
    if url is not None:
        shown = {"Path": url.get("path", ""), "Verb": url.get("verb", "")}
        yield bad_value("spec.nonResourceAttributes", shown, "disallowed on this kind of request")
