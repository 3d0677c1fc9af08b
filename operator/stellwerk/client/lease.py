"""A Lease of coordination.k8s.io/v1 as client-go's leader election writes and reads it.

`elector` decides what stands in it. Invariant: an update carries the resourceVersion of the object
it replaces, so that of two writes over the same version one fails.
"""

from __future__ import annotations

import logging
from contextlib import aclosing
from dataclasses import dataclass
from http import HTTPStatus
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, Final, Protocol
from urllib.parse import quote, urlsplit

import orjson
from typing_extensions import override

from stellwerk.client.transport import ApiRequest, RequestClass
from stellwerk_kube.clock import rfc3339_microseconds, rfc3339_seconds
from stellwerk_kube.errors import ApiError, NotFound
from stellwerk_kube.names import is_subdomain

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping
    from datetime import datetime

    from stellwerk.client.transport import Transport
    from stellwerk_kube.json_values import JsonObject

logger = logging.getLogger(__name__)

_API_VERSION: Final = "coordination.k8s.io/v1"
URL_ANNOTATION: Final = "scheduling.stellwerk.dev/url"
"""The operator's port on this machine, where its holder is the one that the URL names."""
PUBLIC_KEY_ANNOTATION: Final = "scheduling.stellwerk.dev/public-key"
"""The fingerprint of the key with which the holder's port answers."""
POD_ANNOTATION: Final = "scheduling.stellwerk.dev/pod"
"""NAMESPACE/NAME of the holder's pod; a holder outside of a cluster writes none."""
HOLDER_ANNOTATION: Final = "scheduling.stellwerk.dev/holder"
"""The identity of the Stellwerk that wrote the annotations. kube-scheduler and older versions of
Stellwerk take a lease and leave what stands there, so that other annotations alone prove nothing.
"""
_OWN: Final = frozenset({PUBLIC_KEY_ANNOTATION, POD_ANNOTATION, HOLDER_ANNOTATION})
_WATCH_SECONDS: Final = 300
"""Time after which the API server ends the watch of the lease."""
_COMPONENT: Final = "stellwerk"
_MAX_TRANSITIONS: Final = (1 << 31) - 1
"""The largest number of transitions that a Lease can hold; the one after it is 0. A stranger may
have written it, and an API server refuses a larger one."""
_TOO_MUCH: Final = frozenset(
    {
        HTTPStatus.BAD_REQUEST,
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        HTTPStatus.UNPROCESSABLE_ENTITY,
    }
)
"""Statuses of an update that is refused for what others have written into the lease."""
_KEPT: Final = ("name", "namespace", "uid", "resourceVersion")
"""Metadata of a lease without what others have written into it."""
_RELEASED_SECONDS: Final = 1
"""The duration that a released lease has (`release`)."""


@dataclass(frozen=True, slots=True)
class LeaseRecord:
    """The record by which candidates know of each other (`LeaderElectionRecord`)."""

    holder_identity: str
    """Empty: the lease was released."""
    lease_duration_seconds: int
    acquire_time: str
    renew_time: str
    """Both MicroTime in UTC; written for people, no candidate compares it with its own clock."""
    lease_transitions: int

    def spec(self) -> JsonObject:
        """Return the spec of the Lease, in client-go's order."""
        return {
            "holderIdentity": self.holder_identity,
            "leaseDurationSeconds": self.lease_duration_seconds,
            "acquireTime": self.acquire_time,
            "renewTime": self.renew_time,
            "leaseTransitions": self.lease_transitions,
        }

    def taken(self, identity: str, duration_seconds: int, now: str) -> LeaseRecord:
        """Return the record that a candidate writes over this one, of its own or of another."""
        if self.holder_identity == identity:
            return LeaseRecord(
                identity, duration_seconds, self.acquire_time, now, self.lease_transitions
            )
        transitions = self.lease_transitions + 1
        if not 0 <= transitions <= _MAX_TRANSITIONS:
            transitions = 0
        return LeaseRecord(identity, duration_seconds, now, now, transitions)

    def released(self, now: datetime) -> LeaseRecord:
        """Return the record by which the lease is free for the next candidate."""
        moment = rfc3339_microseconds(now)
        return LeaseRecord("", _RELEASED_SECONDS, moment, moment, self.lease_transitions)


@dataclass(frozen=True, slots=True)
class Lease:
    """A Lease as the API has it."""

    record: LeaseRecord
    obj: Mapping[str, Any]

    @classmethod
    def of(cls, obj: JsonObject) -> Lease:
        """Read an object; what is missing or malformed counts as empty, as in client-go."""
        spec = obj.get("spec") or {}
        return cls(
            LeaseRecord(
                str(spec.get("holderIdentity") or ""),
                _number(spec.get("leaseDurationSeconds")),
                str(spec.get("acquireTime") or ""),
                str(spec.get("renewTime") or ""),
                _number(spec.get("leaseTransitions")),
            ),
            obj,
        )


def leases_path(namespace: str) -> str:
    """The path of the leases of a namespace."""
    return f"/apis/{_API_VERSION}/namespaces/{quote(namespace, safe='')}/leases"


def public_key(lease: Lease) -> str:
    """The fingerprint that the holder's port has to show; empty: the lease has none."""
    return _annotation(lease, PUBLIC_KEY_ANNOTATION)


def is_of_stellwerk(lease: Lease) -> bool:
    """Whether the holder is a Stellwerk that says so, and not one that took the lease after it."""
    holder = lease.record.holder_identity
    return bool(holder) and _annotation(lease, HOLDER_ANNOTATION) == holder


def pod_of(lease: Lease) -> tuple[str, str] | None:
    """(namespace, name) of the holder's pod; None: the holder does not say, or says no names."""
    if not is_of_stellwerk(lease):
        return None
    return _pod_key(*_annotation(lease, POD_ANNOTATION).partition("/")[::2])


def own_pod(environ: Mapping[str, str]) -> dict[str, str]:
    """The annotation for the pod that we run in, as the downward API names it; empty: for none."""
    pod = _pod_key(environ.get("POD_NAMESPACE", ""), environ.get("POD_NAME", ""))
    return {} if pod is None else {POD_ANNOTATION: "/".join(pod)}


def _pod_key(namespace: str, name: str) -> tuple[str, str] | None:
    return (namespace, name) if is_subdomain(namespace) and is_subdomain(name) else None


def _annotation(lease: Lease, key: str) -> str:
    annotations = (lease.obj.get("metadata") or {}).get("annotations") or {}
    return str(annotations.get(key) or "")


def local_url(lease: Lease, server: str) -> str | None:
    """The operator's port beside an API server of this machine, as `stellwerk up` writes it.

    None: the lease names none, the holder is another one by now, or one of both addresses is not
    a loopback address, so that a right to write leases leads no request elsewhere.
    """
    url = _annotation(lease, URL_ANNOTATION)
    try:
        parts = urlsplit(url)
    except ValueError:
        return None
    if parts.scheme != "http" or parts.netloc != lease.record.holder_identity:
        return None
    if not (_is_loopback(parts.hostname) and _is_loopback(urlsplit(server).hostname)):
        return None
    return f"http://{parts.netloc}"


def _is_loopback(host: str | None) -> bool:
    try:
        return ip_address(host or "").is_loopback
    except ValueError:
        return False


class LeaseApi(Protocol):
    """One Lease in the API; every method raises ApiError, and none tries twice."""

    @property
    def key(self) -> str:
        """Namespace and name."""
        ...

    async def get(self) -> Lease | None:
        """Read it; None if it does not exist."""
        ...

    async def create(self, record: LeaseRecord) -> Lease:
        """Create it; Conflict if it exists."""
        ...

    async def update(self, lease: Lease, record: LeaseRecord) -> Lease:
        """Replace what was read; Conflict if it has changed since."""
        ...

    def watch(self) -> AsyncGenerator[Lease | None]:
        """Give the lease as it is and whenever it changes, until the API ends it; None: deleted."""
        ...

    async def report(self, lease: Lease, message: str, now: datetime) -> None:
        """Write an event about it."""
        ...


class ApiLease(LeaseApi):
    """A Lease behind an API server."""

    def __init__(
        self,
        transport: Transport,
        namespace: str,
        name: str,
        annotations: Callable[[], Mapping[str, str]] = dict,
    ) -> None:
        """Name the lease, and what its holder says in annotations; nothing is asked yet."""
        self._transport = transport
        self._annotations = annotations
        self._namespace = namespace
        self._name = name
        self._collection = leases_path(namespace)
        self._path = f"{self._collection}/{quote(name, safe='')}"

    @property
    @override
    def key(self) -> str:
        return f"{self._namespace}/{self._name}"

    @override
    async def get(self) -> Lease | None:
        request = ApiRequest("GET", self._path, act=f"read lease {self.key}")
        try:
            return Lease.of(await self._transport.send(request, attempts=1))
        except NotFound:
            return None

    @override
    async def create(self, record: LeaseRecord) -> Lease:
        body = {
            "kind": "Lease",
            "apiVersion": _API_VERSION,
            "metadata": self._said({"name": self._name, "namespace": self._namespace}, record),
            "spec": record.spec(),
        }
        return await self._write("POST", self._collection, body, f"create lease {self.key}")

    @override
    async def update(self, lease: Lease, record: LeaseRecord) -> Lease:
        metadata = self._said(lease.obj.get("metadata") or {}, record)
        act = f"update lease {self.key}"
        body = {**lease.obj, "metadata": metadata, "spec": record.spec()}
        try:
            return await self._write("PUT", self._path, body, act)
        except ApiError as refused:
            if refused.status not in _TOO_MUCH:
                raise
            logger.warning("%s; writing it without what others have added", refused)
        # Annotations may have 256 KiB in all. Who fills them could keep every candidate out.
        bare: JsonObject = {key: metadata[key] for key in _KEPT if key in metadata}
        body = {
            "kind": "Lease",
            "apiVersion": _API_VERSION,
            "metadata": self._said(bare, record),
            "spec": record.spec(),
        }
        return await self._write("PUT", self._path, body, act)

    def _said(self, metadata: Mapping[str, Any], record: LeaseRecord) -> JsonObject:
        """Metadata with the holder's annotations, without those of a holder before it."""
        annotations = {
            key: text
            for key, text in (metadata.get("annotations") or {}).items()
            if key not in _OWN
        }
        own = self._annotations()
        if own and record.holder_identity:
            annotations |= {HOLDER_ANNOTATION: record.holder_identity, **own}
        said = {key: value for key, value in metadata.items() if key != "annotations"}
        return {**said, "annotations": annotations} if annotations else said

    async def _write(self, method: str, path: str, body: JsonObject, act: str) -> Lease:
        request = ApiRequest(method, path, body, act=act, fenced=False)
        return Lease.of(await self._transport.send(request, attempts=1))

    @override
    async def watch(self) -> AsyncGenerator[Lease | None]:
        selector = quote(f"metadata.name={self._name}", safe="")
        path = (
            f"{self._collection}?watch=1&fieldSelector={selector}&timeoutSeconds={_WATCH_SECONDS}"
        )
        async with aclosing(self._transport.stream(path)) as lines:
            async for line in lines:
                try:
                    event = orjson.loads(line)
                    type_, obj = event["type"], event["object"]
                    lease = Lease.of(obj)
                except (ValueError, KeyError, TypeError, AttributeError):
                    return  # not what a watch says: begin anew
                if type_ in {"ADDED", "MODIFIED"}:
                    yield lease
                elif type_ == "DELETED":
                    yield None
                else:
                    return

    @override
    async def report(self, lease: Lease, message: str, now: datetime) -> None:
        if self._transport.allowed_writes is not None:
            return  # a process that only observes writes no events
        metadata = lease.obj.get("metadata") or {}
        path = f"/api/v1/namespaces/{quote(self._namespace, safe='')}/events"
        request = ApiRequest(
            "POST",
            path,
            self._event(metadata, message, now),
            act=f"report on lease {self.key}",
            class_=RequestClass.EVENTS,
            wants_answer=False,
        )
        await self._transport.send(request)

    def _event(self, metadata: Mapping[str, Any], message: str, now: datetime) -> JsonObject:
        """Return an event as client-go's older recorder writes it, which leader election uses."""
        second = rfc3339_seconds(now)
        nanoseconds = int(now.timestamp()) * 1_000_000_000 + now.microsecond * 1000
        return {
            "kind": "Event",
            "apiVersion": "v1",
            "metadata": {"name": f"{self._name}.{nanoseconds:x}", "namespace": self._namespace},
            "involvedObject": {
                "kind": "Lease",
                "namespace": self._namespace,
                "name": self._name,
                "uid": metadata.get("uid") or "",
                "apiVersion": _API_VERSION,
                "resourceVersion": metadata.get("resourceVersion") or "",
            },
            "reason": "LeaderElection",
            "message": message,
            "source": {"component": _COMPONENT},
            "firstTimestamp": second,
            "lastTimestamp": second,
            "count": 1,
            "type": "Normal",
            "eventTime": None,
            "reportingComponent": _COMPONENT,
            "reportingInstance": "",
        }


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0
