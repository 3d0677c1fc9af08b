import pytest

from stellwerk_kube.errors import (
    ApiError,
    Conflict,
    Forbidden,
    NotFound,
    ProfileError,
    Throttled,
    Unavailable,
    api_error,
)


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        pytest.param(404, NotFound, id="gone"),
        pytest.param(409, Conflict, id="changed"),
        pytest.param(403, Forbidden, id="no right"),
        pytest.param(429, Throttled, id="too many requests"),
        pytest.param(500, Unavailable, id="server error"),
        pytest.param(None, Unavailable, id="no answer"),
        pytest.param(422, ApiError, id="any other refusal"),
    ],
)
def test_status_decides_the_class(status: int | None, expected: type[ApiError]) -> None:
    error = api_error("bind default/web to node-7", status, "Reason", "words")
    assert type(error) is expected


def test_a_patch_with_the_uid_of_another_object_is_a_conflict() -> None:
    # As recorded: a patch with a uid gets 422, where a deletion with one gets 409.
    message = 'Pod "a" is invalid: metadata.uid: Invalid value: "22": field is immutable'
    error = api_error("patch the status of default/a", 422, "Invalid", message)
    assert type(error) is Conflict
    other = 'Pod "a" is invalid: spec: Invalid value: "metadata.uid": field is immutable'
    assert type(api_error("patch", 422, "Invalid", other)) is ApiError


def test_message_has_act_object_and_reason() -> None:
    error = api_error("bind default/web to node-7", 409, "Conflict", "pod is already assigned")
    assert str(error) == "cannot bind default/web to node-7: 409 pod is already assigned"


def test_message_without_an_answer_names_the_network_error() -> None:
    error = api_error("list nodes", None, "ClientConnectorError", "connection refused")
    assert str(error) == "cannot list nodes: ClientConnectorError connection refused"


def test_throttled_keeps_the_delay_that_the_server_named() -> None:
    error = api_error("list nodes", 429, "TooManyRequests", "slow", retry_after_seconds=3)
    assert isinstance(error, Throttled)
    assert error.retry_after_seconds == 3


def test_profile_error_begins_with_the_field() -> None:
    assert str(ProfileError("spec.plugins.score.enabled[2]", 'unknown plugin "Foo"')) == (
        'spec.plugins.score.enabled[2]: unknown plugin "Foo"'
    )
