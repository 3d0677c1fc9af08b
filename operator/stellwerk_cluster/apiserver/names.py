"""The syntax of names, labels, annotations and finalizers, with the API's wording.

Called by validation of every kind. Invariant: each function returns what is wrong with one text,
nothing if it is right.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from stellwerk_cluster.apiserver.failures import Cause, bad_value

if TYPE_CHECKING:
    from stellwerk.models.json_values import JsonObject

_LABEL: Final = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN: Final = rf"{_LABEL}(\.{_LABEL})*"
_NAME_PART: Final = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_LABEL_VALUE: Final = f"({_NAME_PART})?"
_LABEL_LENGTH: Final = 63
_SUBDOMAIN_LENGTH: Final = 253
_STANDARD_FINALIZERS: Final = ("kubernetes", "orphan", "foregroundDeletion")

_LABEL_RE: Final = re.compile(_LABEL)
_SUBDOMAIN_RE: Final = re.compile(_SUBDOMAIN)
_NAME_PART_RE: Final = re.compile(_NAME_PART)
_LABEL_VALUE_RE: Final = re.compile(_LABEL_VALUE)


def subdomain_errors(text: str) -> tuple[str, ...]:
    """What keeps a text from being a lowercase RFC 1123 subdomain."""
    errors = []
    if len(text) > _SUBDOMAIN_LENGTH:
        errors.append(f"must be no more than {_SUBDOMAIN_LENGTH} characters")
    if not _SUBDOMAIN_RE.fullmatch(text):
        errors.append(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric "
            "characters, '-' or '.', "
            "and must start and end with an alphanumeric character (e.g. 'example.com', "
            f"regex used for validation is '{_SUBDOMAIN}')"
        )
    return tuple(errors)


@lru_cache(maxsize=1 << 14)
def label_errors(text: str) -> tuple[str, ...]:
    """What keeps a text from being a lowercase RFC 1123 label."""
    errors = []
    if len(text) > _LABEL_LENGTH:
        errors.append(f"must be no more than {_LABEL_LENGTH} characters")
    if not _LABEL_RE.fullmatch(text):
        errors.append(
            "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', "
            "and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', "
            f"regex used for validation is '{_LABEL}')"
        )
    return tuple(errors)


@lru_cache(maxsize=1 << 14)
def qualified_name_errors(text: str) -> tuple[str, ...]:
    """What keeps a text from being a qualified name (the key of a label)."""
    prefix, slash, name = text.rpartition("/")
    errors = []
    if slash:
        if not prefix:
            errors.append("prefix part must be non-empty")
        else:
            errors.extend(f"prefix part {each}" for each in subdomain_errors(prefix))
    if not name:
        errors.append("name part must be non-empty")
    elif len(name) > _LABEL_LENGTH:
        errors.append(f"name part must be no more than {_LABEL_LENGTH} characters")
    if not _NAME_PART_RE.fullmatch(name):
        errors.append(
            "name part must consist of alphanumeric characters, '-', '_' or '.', and must "
            "start and end with an "
            "alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', "
            f"regex used for validation is '{_NAME_PART}')"
        )
    return tuple(errors)


@lru_cache(maxsize=1 << 14)
def label_value_errors(text: str) -> tuple[str, ...]:
    """What keeps a text from being the value of a label."""
    errors = []
    if len(text) > _LABEL_LENGTH:
        errors.append(f"must be no more than {_LABEL_LENGTH} bytes")
    if not _LABEL_VALUE_RE.fullmatch(text):
        errors.append(
            "a valid label must be an empty string or consist of alphanumeric characters, "
            "'-', '_' or '.', and must start and end with an alphanumeric character "
            "(e.g. 'MyValue',  or 'my_value',  or '12345', "
            f"regex used for validation is '{_LABEL_VALUE}')"
        )
    return tuple(errors)


def label_causes(labels: dict[str, str], field: str) -> list[Cause]:
    """The wrong keys and values of a set of labels."""
    return [
        cause
        for key, value in labels.items()
        for cause in (
            *(bad_value(field, key, error) for error in qualified_name_errors(key)),
            *(bad_value(field, value, error) for error in label_value_errors(value)),
        )
    ]


def metadata_causes(metadata: JsonObject) -> list[Cause]:
    """The wrong labels, annotations and finalizers of an object."""
    causes = label_causes(metadata.get("labels") or {}, "metadata.labels")
    for key in metadata.get("annotations") or {}:
        causes += [
            bad_value("metadata.annotations", key, error)
            for error in qualified_name_errors(key.lower())
        ]
    for position, name in enumerate(metadata.get("finalizers") or ()):
        field = f"metadata.finalizers[{position}]"
        causes += [bad_value(field, name, error) for error in qualified_name_errors(name)]
        if "/" not in name and name not in _STANDARD_FINALIZERS:
            causes.append(
                bad_value(
                    field,
                    name,
                    "name is neither a standard finalizer name nor is it fully qualified",
                )
            )
    return causes
