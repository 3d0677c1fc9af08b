"""Access rules: what one covers, and what several cover together.

Pure functions over the rules of roles, used by the authorizer, by reviews and where rights are
given to others. Invariant: `covers` errs on the side of refusal, as Kubernetes does.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Final

import orjson

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from stellwerk_cluster.identity.attributes import Attributes
    from stellwerk_kube.json_values import JsonObject

ALL: Final = "*"


@dataclass(frozen=True, slots=True)
class PolicyRule:
    """One rule of a role."""

    verbs: tuple[str, ...]
    groups: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    urls: tuple[str, ...] = ()

    def allows(self, asked: Attributes) -> bool:
        """Whether the rule allows the act."""
        if asked.verb not in self.verbs and ALL not in self.verbs:
            return False
        if asked.path:
            return any(_covers_url(url, asked.path) for url in self.urls)
        return (
            (asked.group in self.groups or ALL in self.groups)
            and self._has_resource(asked.resource, asked.subresource)
            and (not self.names or asked.name in self.names)
        )

    def _has_resource(self, resource: str, subresource: str) -> bool:
        if ALL in self.resources:
            return True
        if not subresource:
            return resource in self.resources
        return f"{resource}/{subresource}" in self.resources or f"*/{subresource}" in self.resources

    def covers(self, single: PolicyRule) -> bool:
        """Whether the rule gives what a rule for a single act gives."""
        return (
            _has_all(self.verbs, single.verbs)
            and _has_all(self.groups, single.groups)
            and all(self._has_resource(*_split(each)) for each in single.resources)
            and all(any(_covers_url(own, url) for own in self.urls) for url in single.urls)
            and (not self.names or (bool(single.names) and set(single.names) <= set(self.names)))
        )

    def document(self) -> JsonObject:
        """The rule as an object."""
        members = {
            "verbs": self.verbs,
            "apiGroups": self.groups,
            "resources": self.resources,
            "resourceNames": self.names,
            "nonResourceURLs": self.urls,
        }
        return {key: list(value) for key, value in members.items() if value}

    def text(self) -> str:
        """The rule as messages quote it."""
        members = {
            "APIGroups": self.groups,
            "Resources": self.resources,
            "NonResourceURLs": self.urls,
            "ResourceNames": self.names,
            "Verbs": self.verbs,
        }
        shown = (f"{key}:{quoted(value)}" for key, value in members.items() if value)
        return f"{{{', '.join(shown)}}}"


EVERYTHING: Final = (
    PolicyRule((ALL,), groups=(ALL,), resources=(ALL,)),
    PolicyRule((ALL,), urls=(ALL,)),
)


def rule_of(document: JsonObject) -> PolicyRule:
    """The rule that an object says."""
    return PolicyRule(
        verbs=_texts(document, "verbs"),
        groups=_texts(document, "apiGroups"),
        resources=_texts(document, "resources"),
        names=_texts(document, "resourceNames"),
        urls=_texts(document, "nonResourceURLs"),
    )


def missing_rights(held: Sequence[PolicyRule], asked: Iterable[PolicyRule]) -> list[PolicyRule]:
    """The rules asked for that are not held, put together by resource."""
    missing = [
        single
        for rule in asked
        for single in _single_acts(rule)
        if not any(own.covers(single) for own in held)
    ]
    return list(_compact(missing))


def quoted(texts: Iterable[str]) -> str:
    """A list of texts as Go quotes it: `["a" "b"]`."""
    return f"[{' '.join(orjson.dumps(text).decode() for text in texts)}]"


def _single_acts(rule: PolicyRule) -> Iterator[PolicyRule]:
    """The rule taken apart: one verb on one resource of one group, or on one URL."""
    names: Iterable[tuple[str, ...]] = [(name,) for name in rule.names] or [()]
    for group, resource, verb in product(rule.groups, rule.resources, rule.verbs):
        for name in names:
            yield PolicyRule((verb,), (group,), (resource,), name)
    for url, verb in product(rule.urls, rule.verbs):
        yield PolicyRule((verb,), urls=(url,))


def _compact(singles: Iterable[PolicyRule]) -> Iterator[PolicyRule]:
    together: dict[PolicyRule, list[str]] = {}
    for single in singles:
        if single.urls:
            yield single
            continue
        place = PolicyRule((), single.groups, single.resources, single.names)
        together.setdefault(place, []).extend(single.verbs)
    for place, verbs in together.items():
        yield PolicyRule(tuple(verbs), place.groups, place.resources, place.names)


def _has_all(held: tuple[str, ...], asked: tuple[str, ...]) -> bool:
    return ALL in held or all(each in held for each in asked)


def _split(resource: str) -> tuple[str, str]:
    name, _, subresource = resource.partition("/")
    return name, subresource


def _covers_url(url: str, path: str) -> bool:
    if url in (ALL, path):
        return True
    return url.endswith(ALL) and path.startswith(url.rstrip(ALL))


def _texts(document: JsonObject, key: str) -> tuple[str, ...]:
    return tuple(document.get(key) or ())
