"""Semantic versions."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import total_ordering
from typing import ClassVar, Final

from typing_extensions import override

from stellwerk_kube.cel import cost
from stellwerk_kube.cel.errors import EvaluationError
from stellwerk_kube.cel.signatures import Library
from stellwerk_kube.cel.values import MAX_UINT, OpaqueValue

VERSIONS: Final = Library()

_NUMBER: Final = r"(0|[1-9][0-9]*)"
_IDENTIFIER: Final = re.compile(r"[0-9A-Za-z-]+")
_CORE: Final = re.compile(rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}(?:-([^+]*))?(?:\+(.*))?", re.DOTALL)
_MAX_VERSION_CHARACTERS: Final = 4096
"""Characters of a semantic version: more than any release has, and read in microseconds."""
_PARTS: Final = 3
"""Parts of a version: major, minor and patch."""


@total_ordering
@dataclass(frozen=True, slots=True)
class Semver(OpaqueValue):
    """A version; build metadata counts neither for equality nor for order."""

    type_name: ClassVar[str] = "kubernetes.Semver"

    major: int
    minor: int
    patch: int
    prerelease: tuple[str, ...] = ()
    build: tuple[str, ...] = field(default=(), compare=False)

    def precedence(self) -> tuple[object, ...]:
        """The sort key of versions: a release comes after its pre-releases."""
        identifiers = tuple(
            (0, int(each), "") if each.isdigit() else (1, 0, each) for each in self.prerelease
        )
        return self.major, self.minor, self.patch, not identifiers, identifiers

    @override
    def __eq__(self, other: object) -> bool:
        return isinstance(other, Semver) and self.precedence() == other.precedence()

    @override
    def __hash__(self) -> int:
        return hash(self.precedence())

    def __lt__(self, other: Semver) -> bool:
        return self.precedence() < other.precedence()


def parse_version(text: str) -> Semver:
    """The version that a text says.

    Raises:
        EvaluationError: it says none.
    """
    if not text:
        raise EvaluationError("Version string empty")
    if text.count(".", 0, _MAX_VERSION_CHARACTERS) < _PARTS - 1:
        raise EvaluationError("No Major.Minor.Patch elements found")
    found = _CORE.fullmatch(text) if len(text) <= _MAX_VERSION_CHARACTERS else None
    if found is None:
        raise EvaluationError(_wrong_number(text))
    if max(len(found[group]) for group in (1, 2, 3)) > _MAX_PART_DIGITS:
        raise EvaluationError(_wrong_number(text))
    major, minor, patch = (int(found[group]) for group in (1, 2, 3))
    if max(major, minor, patch) > MAX_UINT:
        raise EvaluationError(_wrong_number(text))
    prerelease, build = (
        tuple(found[group].split(".")) if found[group] is not None else () for group in (4, 5)
    )
    _check(prerelease, "Prerelease")
    _check(build, "Build meta data")
    return Semver(major, minor, patch, prerelease, build)


_MAX_PART_DIGITS: Final = 21
"""Digits of one part of a version. Longer ones are no numbers of 64 bits."""


def _wrong_number(text: str) -> str:
    for name, part in zip(("major", "minor"), text.split("."), strict=False):
        if not part.isdigit():
            return f'Invalid character(s) found in {name} number "{part}"'
        if part != "0" and part.startswith("0"):
            return f'{name.capitalize()} number must not contain leading zeroes "{part}"'
    patch = re.split(r"[-+]", text.split(".", _PARTS - 1)[2], maxsplit=1)[0]
    if patch.isdigit() and patch.startswith("0"):
        return f'Patch number must not contain leading zeroes "{patch}"'
    return f'Invalid character(s) found in patch number "{patch}"'


def _check(identifiers: tuple[str, ...], name: str) -> None:
    for each in identifiers:
        if not each:
            raise EvaluationError(f"{name} is empty")
        if not _IDENTIFIER.fullmatch(each):
            raise EvaluationError(f'Invalid character(s) found in {name.lower()} "{each}"')
        if name == "Prerelease" and each.isdigit() and each != "0" and each.startswith("0"):
            text = f'Numeric PreRelease version must not contain leading zeroes "{each}"'
            raise EvaluationError(text)


def _normalized(text: str) -> Semver:
    """The version of a text that may have a leading v, leading zeroes, or less than three parts."""
    parts = text.removeprefix("v").split(".", _PARTS - 1)
    for place, part in enumerate(parts):
        if len(part) > 1:
            bare = part.lstrip("0")
            parts[place] = bare if bare[:1].isdigit() else f"0{bare}"
    if len(parts) < _PARTS and ("+" in parts[-1] or "-" in parts[-1]):
        raise EvaluationError("Short version cannot contain PreRelease/Build meta data")
    return parse_version(".".join(parts + ["0"] * (_PARTS - len(parts))))


@VERSIONS.function(
    "semver",
    "(string) -> kubernetes.Semver",
    "(string, bool) -> kubernetes.Semver",
    cost=cost.traversal,
)
def _semver(text: str, normalize: bool = False) -> Semver:  # noqa: FBT001, FBT002  (CEL's own form)
    return _normalized(text) if normalize else parse_version(text)


@VERSIONS.function("isSemver", "(string) -> bool", "(string, bool) -> bool", cost=cost.traversal)
def _is_semver(text: str, normalize: bool = False) -> bool:  # noqa: FBT001, FBT002
    try:
        _semver(text, normalize)
    except EvaluationError:
        return False
    return True


@VERSIONS.function("isGreaterThan", ".(kubernetes.Semver, kubernetes.Semver) -> bool")
def _is_greater(left: Semver, right: Semver) -> bool:
    return left > right


@VERSIONS.function("isLessThan", ".(kubernetes.Semver, kubernetes.Semver) -> bool")
def _is_less(left: Semver, right: Semver) -> bool:
    return left < right


@VERSIONS.function("compareTo", ".(kubernetes.Semver, kubernetes.Semver) -> int")
def _compare(left: Semver, right: Semver) -> int:
    return (left > right) - (left < right)


@VERSIONS.function("major", ".(kubernetes.Semver) -> int")
def _major(version: Semver) -> int:
    return version.major


@VERSIONS.function("minor", ".(kubernetes.Semver) -> int")
def _minor(version: Semver) -> int:
    return version.minor


@VERSIONS.function("patch", ".(kubernetes.Semver) -> int")
def _patch(version: Semver) -> int:
    return version.patch
