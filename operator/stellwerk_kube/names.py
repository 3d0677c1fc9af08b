"""The syntax of Kubernetes names and durations, for all packages.

The patterns and lengths of names stand here alone. Who refuses a name takes them and has words of
its own: `stellwerk_cluster/apimachinery/names.py` and `cel/library/formats.py` the API server's,
the models of profiles those of their schema. Called by these, by NodeResourcesFit, the converter
and the command line. CEL reads durations by itself (`cel/library/moments.py`): exactly, in
nanoseconds and with Go's overflow, while this module's are seconds as a float, for settings.
Invariant: each function is a pure predicate, parser or writer of one string.
"""

import re
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Final

LABEL: Final = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
"""The pattern of an RFC 1123 label, as the name of a namespace is."""
SUBDOMAIN: Final = rf"{LABEL}(\.{LABEL})*"
"""The pattern of an RFC 1123 subdomain, as names of most objects are."""
DNS_1035_LABEL: Final = "[a-z]([-a-z0-9]*[a-z0-9])?"
"""The pattern of an RFC 1035 label, as the name of a Service is."""
NAME_PART: Final = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
"""The pattern of a qualified name behind its prefix, and of a label's value that is not empty."""
MAX_LABEL_CHARACTERS: Final = 63
"""Length of labels of both kinds, of the name in a qualified name, and of a label's value."""
MAX_SUBDOMAIN_CHARACTERS: Final = 253
"""Length of a subdomain."""

_LABEL: Final = re.compile(LABEL)
_SUBDOMAIN: Final = re.compile(SUBDOMAIN)
_DNS_1035_LABEL: Final = re.compile(DNS_1035_LABEL)
_NAME_PART: Final = re.compile(NAME_PART)

_NATIVE_DOMAIN: Final = "kubernetes.io/"
_QUOTA_PREFIX: Final = "requests."

_DURATION_PART: Final = re.compile(r"(\d+\.?\d*|\.\d+)(ns|us|µs|μs|ms|s|m|h)")
_SECONDS: Final = {
    "ns": 1e-9,
    "us": 1e-6,
    "µs": 1e-6,
    "μs": 1e-6,
    "ms": 1e-3,
    "s": 1.0,
    "m": 60.0,
    "h": 3600.0,
}

_MAX_ALIKE_NAMES: Final = 3
"""Names that are compared by their edits: difflib ranks a swap behind a letter that is missing."""
_MAX_MISSPELT_CHARACTERS: Final = 128
"""Characters of a name that is compared with others: what that costs grows with its square."""


def is_label_value(value: str) -> bool:
    """Whether a label may have this value: empty, or up to 63 name characters."""
    return not value or (
        len(value) <= MAX_LABEL_CHARACTERS and _NAME_PART.fullmatch(value) is not None
    )


def is_label(value: str) -> bool:
    """Whether the string is an RFC 1123 label, as names of namespaces are."""
    return len(value) <= MAX_LABEL_CHARACTERS and _LABEL.fullmatch(value) is not None


def is_dns_1035_label(value: str) -> bool:
    """Whether the string is an RFC 1035 label, as names of Services are."""
    return len(value) <= MAX_LABEL_CHARACTERS and _DNS_1035_LABEL.fullmatch(value) is not None


def is_subdomain(value: str) -> bool:
    """Whether the string is an RFC 1123 subdomain, as object names are."""
    return len(value) <= MAX_SUBDOMAIN_CHARACTERS and _SUBDOMAIN.fullmatch(value) is not None


def is_qualified_name(value: str) -> bool:
    """Whether the string is a label key or resource name: `[prefix.example/]name`."""
    prefix, slash, name = value.rpartition("/")
    if slash and not is_subdomain(prefix):
        return False
    return len(name) <= MAX_LABEL_CHARACTERS and _NAME_PART.fullmatch(name) is not None


def is_extended_resource(value: str) -> bool:
    """Whether the name is that of a resource outside Kubernetes' own (IsExtendedResourceName)."""
    if "/" not in value or _NATIVE_DOMAIN in value or value.startswith(_QUOTA_PREFIX):
        return False
    return is_qualified_name(value) and is_qualified_name(_QUOTA_PREFIX + value)


def parse_duration(text: str) -> float:
    """Return the seconds of a duration in Go's notation, such as `1m30s` or `250ms`.

    Raises:
        ValueError: the text is no duration.
    """
    sign = -1.0 if text.startswith("-") else 1.0
    rest = text.removeprefix("-") if sign < 0 else text.removeprefix("+")
    if rest == "0":
        return 0.0
    parts = _DURATION_PART.findall(rest)
    if not parts or "".join(number + unit for number, unit in parts) != rest:
        message = f'"{text}" is not a duration such as "5s" or "1m30s"'
        raise ValueError(message)
    return sign * sum(float(number) * _SECONDS[unit] for number, unit in parts)


def suggestion(name: str, known: Iterable[str]) -> str:
    """Return `; did you mean "X"?` for a known name that this one may be a misspelling of.

    At most every third letter is wrong: names that only have parts in common are no suggestion.
    """
    near = misspelt(name, known)
    return "" if near is None else f'; did you mean "{near}"?'


def misspelt(name: str, known: Iterable[str]) -> str | None:
    """The known name that this one may be a misspelling of; None: there is none."""
    if len(name) > _MAX_MISSPELT_CHARACTERS:
        return None
    by_lower = {candidate.lower(): candidate for candidate in known}
    # difflib knows no swapped letters: of the few names that it finds alike, edits choose.
    close = get_close_matches(name.lower(), by_lower, n=_MAX_ALIKE_NAMES, cutoff=0.6)
    best = min(close, key=lambda each: _edits(name.lower(), each), default="")
    if not close or _edits(name.lower(), best) > (len(name) + 2) // 3:
        return None
    return by_lower[best]


def _edits(before: str, after: str) -> int:
    """Return how many letters have to be added, dropped, replaced or swapped with the next.

    The distance of optimal string alignment: a row of its table for each letter of `before`.
    """
    rows = [list(range(len(after) + 1))]
    for count, letter in enumerate(before, 1):
        last, row = rows[-1], [count]
        for place, other in enumerate(after, 1):
            cheapest = min(last[place - 1] + (letter != other), last[place] + 1, row[-1] + 1)
            is_swapped = before[count - 2 : count] == after[place - 2 : place][::-1]
            if count > 1 and place > 1 and is_swapped:
                cheapest = min(cheapest, rows[-2][place - 2] + 1)
            row.append(cheapest)
        rows.append(row)
    return rows[-1][-1]


_MINUTE: Final = 60
_HOUR: Final = 60 * _MINUTE
_DAY: Final = 24 * _HOUR
_YEAR: Final = 365 * _DAY
_LETTERS: Final = {1: "s", _MINUTE: "m", _HOUR: "h", _DAY: "d", _YEAR: "y"}
_SCALES: Final = (
    (2 * _MINUTE, 1, 0),
    (10 * _MINUTE, _MINUTE, 1),
    (3 * _HOUR, _MINUTE, 0),
    (8 * _HOUR, _HOUR, _MINUTE),
    (2 * _DAY, _HOUR, 0),
    (8 * _DAY, _DAY, _HOUR),
    (2 * _YEAR, _DAY, 0),
    (8 * _YEAR, _YEAR, _DAY),
)
"""Below each limit: the unit that is shown, and the smaller one shown beside it (0: none)."""


def duration_text(duration_seconds: float) -> str:
    """A duration in the one or two units that matter (duration.HumanDuration, v1.36)."""
    seconds = int(duration_seconds)
    if seconds < -1:
        return "<invalid>"
    seconds = max(0, seconds)
    for limit, unit, smaller in _SCALES:
        if seconds < limit:
            whole, rest = divmod(seconds, unit)
            small = rest // smaller if smaller else 0
            tail = f"{small}{_LETTERS[smaller]}" if small else ""
            return f"{whole}{_LETTERS[unit]}{tail}"
    return f"{seconds // _YEAR}y"
