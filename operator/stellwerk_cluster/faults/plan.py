"""The choice of the fault that strikes a request, by its attributes: verb, resource, name.

`injector` parses each request once, and asks. Method, path and query are all that is needed, so
that a proxy can match requests to a real API, too. Invariant: what is drawn depends on the seed,
the entry, the request and how often that request came before, and on nothing else: not on the order
in which different requests arrive, so that a run can be repeated.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from stellwerk_cluster.faults.table import LIST, WATCH, EndlessPages, Outage, StreamFault

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stellwerk_cluster.faults.table import AnyFault, FaultTable
    from stellwerk_kube.clock import Clock


_METHODS: Final = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_OF_NAMESPACES: Final = ("status", "finalize")
_MIN_NAMESPACED_PARTS: Final = 3
"""Parts of a path from which it can name objects of a namespace: `namespaces`, its name, their
plural."""


@dataclass(frozen=True, slots=True)
class RequestAttributes:
    """A request in RBAC's words."""

    verb: str
    resource: str
    """Plural, with its subresource; of what is no resource, the path."""
    namespace: str = ""
    name: str = ""
    revision: str = ""
    """The resourceVersion that a list or watch gives."""
    user_agent: str = ""
    begins_with_list: bool = False
    """Whether a watch is to begin with a list."""

    @property
    def identity(self) -> str:
        """The text that equal requests share."""
        return f"{self.verb} {self.resource} {self.namespace}/{self.name}"


def parse_request(
    method: str, path: str, query: Mapping[str, str], user_agent: str = ""
) -> RequestAttributes:
    """The attributes of a request."""
    parts = [unquote(part) for part in path.split("/") if part]
    rest = _below_version(parts)
    if not rest:
        return RequestAttributes(_METHODS.get(method, "get"), path, user_agent=user_agent)
    namespace = ""
    if (
        rest[0] == "namespaces"
        and len(rest) >= _MIN_NAMESPACED_PARTS
        and rest[2] not in _OF_NAMESPACES
    ):
        namespace, rest = rest[1], rest[2:]
    name = rest[1] if len(rest) > 1 else ""
    return RequestAttributes(
        _verb(method, name, query),
        "/".join([rest[0], *rest[2:]]),
        namespace,
        name,
        query.get("resourceVersion", ""),
        user_agent,
        _is_set(query, "sendInitialEvents"),
    )


def _below_version(parts: list[str]) -> list[str]:
    """The parts behind the group and version; none if the path names no resource."""
    match parts:
        case ["api", _, *rest] | ["apis", _, _, *rest]:
            return rest
        case _:
            return []


def _verb(method: str, name: str, query: Mapping[str, str]) -> str:
    if method in {"GET", "HEAD"}:
        if _is_set(query, "watch"):
            return "watch"
        return "get" if name else "list"
    if method == "DELETE" and not name:
        return "deletecollection"
    return _METHODS.get(method, "get")


def _is_set(query: Mapping[str, str], name: str) -> bool:
    return query.get(name, "false").lower() not in {"false", "0", "f"}


_WHOLE: Final = 1 << 64


class Draws:
    """Numbers in [0, 1), each a function of the seed and of what it is for."""

    def __init__(self, seed: int, *purpose: object) -> None:
        """Draw for a purpose; the same seed and purpose give the same numbers."""
        self._seed = seed
        self._purpose = purpose

    def fraction(self, *detail: object) -> float:
        """The number for a detail of the purpose."""
        text = "\0".join(map(str, (self._seed, *self._purpose, *detail)))
        digest = blake2b(text.encode(), digest_size=8).digest()
        return int.from_bytes(digest) / _WHOLE

    def within(self, span: tuple[float, float], *detail: object) -> float:
        """A number of the span."""
        return span[0] + (span[1] - span[0]) * self.fraction(*detail)


@dataclass(frozen=True, slots=True)
class Strike:
    """A fault that strikes one request."""

    title: str
    fault: AnyFault
    number: int
    """Requests that the entry has struck before this one."""
    draws: Draws


class FaultPlan:
    """A table in force, and what it has done so far."""

    def __init__(self, table: FaultTable, seed: int, clock: Clock) -> None:
        """Draw with `seed`; the table comes into force with `arm`."""
        self.seed = seed
        self.struck: Counter[str] = Counter()
        """Strikes of each entry, by its title; endings and events of watches count too."""
        self._entries = list(zip(table.titles(), table.faults, strict=True))
        self._clock = clock
        self._armed_at_seconds: float | None = None
        self._matched: Counter[str] = Counter()
        self._chosen: Counter[str] = Counter()
        self._met: Counter[tuple[str, str]] = Counter()

    def arm(self) -> None:
        """Bring the table into force; its time begins now."""
        self._armed_at_seconds = self._clock.monotonic()

    def disarm(self) -> None:
        """Let everything through from now on; streams that are silent stay so."""
        self._armed_at_seconds = None

    @property
    def now_seconds(self) -> float:
        """The clock's time."""
        return self._clock.monotonic()

    @property
    def elapsed_seconds(self) -> float | None:
        """Since the table came into force; None if it is not."""
        if self._armed_at_seconds is None:
            return None
        return self._clock.monotonic() - self._armed_at_seconds

    @property
    def outages(self) -> list[tuple[str, Outage]]:
        """The entries that take the whole server away."""
        return [(title, fault) for title, fault in self._entries if isinstance(fault, Outage)]

    def counts(self) -> list[tuple[str, int]]:
        """The number of times that each entry has struck, in the order of the table."""
        return [(title, self.struck[title]) for title, _ in self._entries]

    def is_due(self, fault: AnyFault) -> bool:
        """Whether the entry's time is now."""
        elapsed = self.elapsed_seconds
        if elapsed is None:
            return False
        return fault.between is None or fault.between[0] <= elapsed < fault.between[1]

    def strikes(self, asked: RequestAttributes) -> list[Strike]:
        """The faults that strike a request, in the order of the table.

        Those of a watch that begins before the table is in force wait for that.
        """
        if self._armed_at_seconds is None and asked.verb != WATCH:
            return []
        found = []
        for title, fault in self._entries:
            strike = self._strike(title, fault, asked)
            if strike is not None:
                found.append(strike)
        return found

    def _strike(self, title: str, fault: AnyFault, asked: RequestAttributes) -> Strike | None:
        if not _matches(fault, asked):
            return None
        is_of_stream = isinstance(fault, StreamFault)
        if not (is_of_stream or self.is_due(fault)):
            return None
        self._matched[title] += 1
        met = self._met[title, asked.identity]
        self._met[title, asked.identity] += 1
        draws = Draws(self.seed, title, asked.identity, met)
        number = self._chosen[title]
        if (
            (fault.every is not None and self._matched[title] % fault.every)
            or draws.fraction("strike") >= fault.probability
            or (fault.times is not None and number >= fault.times)
        ):
            return None
        self._chosen[title] += 1
        if not is_of_stream:
            self.struck[title] += 1
        return Strike(title, fault, number, draws)


def _matches(fault: AnyFault, asked: RequestAttributes) -> bool:
    """Whether the entry is about such requests, at whatever time."""
    if isinstance(fault, Outage) or (isinstance(fault, StreamFault) and asked.verb != WATCH):
        return False
    if isinstance(fault, EndlessPages) and asked.verb != LIST:
        return False
    if isinstance(fault, StreamFault) and fault.of_lists and not asked.begins_with_list:
        return False
    return (
        (not fault.verbs or asked.verb in fault.verbs)
        and (not fault.resources or asked.resource in fault.resources)
        and asked.user_agent.startswith(fault.user_agent)
    )
