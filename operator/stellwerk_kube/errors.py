"""The errors of Stellwerk: one small tree, each message with the act, the object and the reason.

`client` translates what the API says into these, once; everything else catches them. An
unschedulable pod is a `Status`, never one of these. Invariant: `str(error)` is one line that a
user can act on.
"""

from __future__ import annotations

import os
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from typing_extensions import override

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any


def in_words(error: BaseException | None) -> str:
    """Return an error as a line of a log shows it: its kind, and what it says."""
    if error is None:
        return "no error"
    kind, text = type(error).__name__, " ".join(str(error).split())
    return f"{kind}: {text}" if text else kind


class SchedulerError(Exception):
    """The root of everything that Stellwerk raises on purpose."""


class ConfigurationError(SchedulerError):
    """A mistake at start-up that the user can put right; the command line exits with 2."""


class AbsentError(SchedulerError):
    """A name that the cluster, the operator or a recording does not have; commands exit with 1."""


class UnreachableError(SchedulerError):
    """A server that does not answer, or is not the one it should be; commands exit with 3."""


class AccessRefusedError(UnreachableError):
    """A server that answers and refuses these credentials; commands exit with 1.

    `stellwerk run` waits for it as for one that does not answer: rights may be granted meanwhile.
    """


class RightsMissingError(SchedulerError):
    """A user may not read what a command cannot do without; commands exit with 1."""

    def __init__(self, message: str, manifests: Sequence[Mapping[str, Any]]) -> None:
        """`manifests` give the rights; the command line prints them, ready to be applied."""
        super().__init__(message)
        self.manifests = manifests


def cannot_listen(address: str, error: OSError) -> ConfigurationError:
    """Return the error for an address that another process has, or that is none of this host."""
    reason = os.strerror(error.errno).lower() if error.errno else str(error)
    return ConfigurationError(f"cannot listen on {address}: {reason}")


class ProfileError(SchedulerError):
    """A SchedulerProfile that cannot be used."""

    def __init__(self, field: str, message: str) -> None:
        """Keep the path of the field in the object (`spec.plugins…`) and what is wrong with it."""
        super().__init__(field, message)
        self.field = field
        self.message = message

    @override
    def __str__(self) -> str:
        return f"{self.field}: {self.message}"


class UnknownPluginError(ProfileError):
    """It names a plugin that is not installed, or not yet."""


class DestinationError(ProfileError):
    """A profile names an address that the operator may not call."""


class SecretRefusedError(SchedulerError):
    """The owner of a Secret does not let its content go to an address that a profile names."""


class ExtenderError(SchedulerError):
    """An extender refused a call, did not answer in time, or answered nonsense."""

    def __init__(self, extender: str, verb: str, message: str) -> None:
        """Keep the URL prefix and the verb; the message is what conditions and events show."""
        super().__init__(extender, verb, message)
        self.extender = extender
        self.verb = verb
        self.message = message

    @override
    def __str__(self) -> str:
        return self.message


class ApiError(SchedulerError):
    """The API refused a request, or did not answer."""

    def __init__(
        self,
        act: str,
        status: int | None,
        reason: str,
        message: str,
        *,
        retry_after_seconds: float | None = None,
    ) -> None:
        """Describe a failed request.

        Args:
            act: what was tried, with its object: "bind default/web to node-7".
            status: the HTTP status, or None when there was no answer at all.
            reason: the API's machine-readable reason ("Conflict"), or the network error's name.
            message: the API's own words.
            retry_after_seconds: the delay that the server asked for, where it named one.
        """
        super().__init__(act, status, reason, message)
        self.act = act
        self.status = status
        self.reason = reason
        self.message = message
        self.retry_after_seconds = retry_after_seconds
        self.earlier: ApiError | None = None
        """The failed attempt before this answer: it may have had its effect after all."""

    @property
    def met_another_object(self) -> bool:
        """Whether a patch that gives a uid found another object of the name: it was made anew.

        The API server says so by 422, because a patch may not change the uid, or by 409.
        """
        is_about_uid = "metadata.uid" in self.message or "UID in precondition" in self.message
        return self.status in {409, 422} and is_about_uid

    @property
    def may_have_been_applied(self) -> bool:
        """Whether this attempt, or one before it, may have had its effect without an answer."""
        error: ApiError | None = self
        while error is not None:
            if isinstance(error, Unavailable):
                return True
            error = error.earlier
        return False

    @override
    def __str__(self) -> str:
        cause = self.reason if self.status is None else str(self.status)
        return f"cannot {self.act}: {cause} {self.message}".rstrip()


class NotFound(ApiError):  # noqa: N818 - named as the API names the answer
    """404: the object, or its whole kind, does not exist."""


class Conflict(ApiError):  # noqa: N818 - named as the API names the answer
    """409: the object exists already, or is no longer what the request assumed.

    Also 422 for a patch with the uid of an object that was replaced under its name.
    """


class Forbidden(ApiError):  # noqa: N818 - named as the API names the answer
    """403: our role lacks the right, or admission refused the object."""


class Throttled(ApiError):  # noqa: N818 - named for what the API did
    """429: the API asks for the same request later."""


class Unavailable(ApiError):  # noqa: N818 - named for the state of the API
    """5xx, a refused or broken connection, or a timeout: the same request may succeed later."""


class OutcomeUnknown(Unavailable):
    """A write that may have been applied: only the object itself says whether it was."""

    @classmethod
    def of(cls, last: ApiError) -> OutcomeUnknown:
        """Return the same failure, as one that may have had its effect."""
        return cls(last.act, last.status, last.reason, last.message)


class NotAList(ApiError):  # noqa: N818 - named for the state of the answer
    """200 with something that is no list of the kind that was asked for."""

    def __init__(self, act: str, message: str) -> None:
        """Keep what was asked for, and what is wrong with the answer."""
        super().__init__(act, None, "NotAList", message)


class AnswerTooLarge(ApiError):  # noqa: N818 - named for the answer
    """An answer that was not read to its end, because it is larger than any that makes sense."""


class NotLeader(ApiError):  # noqa: N818 - named for the state of this process
    """Not sent: this process does not hold the lease, or its renew deadline has passed."""

    def __init__(self, act: str) -> None:
        """Keep what was to be written."""
        super().__init__(act, None, "NotLeader", "this process does not hold the lease")


class LeaseLostError(SchedulerError):
    """The lease passed to another process or could not be renewed in time; this one ends with 1."""


_BY_STATUS: dict[int, type[ApiError]] = {
    HTTPStatus.FORBIDDEN: Forbidden,
    HTTPStatus.NOT_FOUND: NotFound,
    HTTPStatus.CONFLICT: Conflict,
}


_OTHER_UID: Final = "is invalid: metadata.uid: Invalid value: "
"""Part of the API server's answer to a patch whose uid is not that of the object. To a replacement,
a deletion or an eviction with such a uid it answers 409."""


def api_error(
    act: str,
    status: int | None,
    reason: str,
    message: str,
    *,
    retry_after_seconds: float | None = None,
) -> ApiError:
    """Return the error that stands for an HTTP status; None as status means that no answer came."""
    if status == HTTPStatus.TOO_MANY_REQUESTS:
        kind: type[ApiError] = Throttled
    elif status is None or status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        kind = Unavailable
    else:
        kind = _BY_STATUS.get(status, ApiError)
        if status == HTTPStatus.UNPROCESSABLE_ENTITY and _OTHER_UID in message:
            kind = Conflict
    return kind(act, status, reason, message, retry_after_seconds=retry_after_seconds)
