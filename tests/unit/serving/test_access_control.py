"""Who may read the port: what the API server says, asked once in ten seconds."""

from dataclasses import dataclass, field
from datetime import timedelta
from unittest.mock import Mock

import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request
from typing_extensions import override

from stellwerk.client.reviews import ANONYMOUS, Identity
from stellwerk.serving.access_control import KEPT_ANSWER_SECONDS, AccessControl, Reviewer
from stellwerk_kube.clock import VirtualClock
from stellwerk_kube.errors import Unavailable

READER = Identity("prometheus", ("system:authenticated",))


@dataclass
class Cluster(Reviewer):
    """Knows one token, and one right."""

    tokens: dict[str, Identity] = field(default_factory=lambda: {"good": READER})
    asked: list[str] = field(default_factory=list)
    down: bool = False

    @override
    async def identify(self, token: str) -> Identity | None:
        self.asked.append(f"token {token}")
        if self.down:
            raise Unavailable("ask", 503, "ServiceUnavailable", "no answer")
        return self.tokens.get(token)

    @override
    async def may(self, identity: Identity, verb: str, path: str) -> bool:
        self.asked.append(f"{identity.name} {verb} {path}")
        return (identity, verb, path) == (READER, "get", "/metrics")


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@pytest.fixture
def access(cluster: Cluster, clock: VirtualClock) -> AccessControl:
    return AccessControl(cluster, clock)


def request(authorization: str = "", path: str = "/metrics") -> web.Request:
    headers = {"Authorization": authorization} if authorization else {}
    return make_mocked_request("GET", path, headers=headers)


async def test_a_user_with_the_right_passes(access: AccessControl, cluster: Cluster) -> None:
    await access.check(request("Bearer good"))
    assert cluster.asked == ["token good", "prometheus get /metrics"]


async def test_an_unknown_token_is_unauthorized(access: AccessControl) -> None:
    with pytest.raises(web.HTTPUnauthorized):
        await access.check(request("Bearer bad"))


async def test_without_credentials_the_anonymous_user_is_asked_about(
    access: AccessControl, cluster: Cluster
) -> None:
    with pytest.raises(web.HTTPForbidden) as refused:
        await access.check(request())
    assert refused.value.text == 'User "system:anonymous" cannot get path "/metrics"\n'
    assert cluster.asked == [f"{ANONYMOUS.name} get /metrics"]


async def test_a_right_holds_for_its_path_alone(access: AccessControl) -> None:
    await access.check(request("Bearer good"))
    with pytest.raises(web.HTTPForbidden):
        await access.check(request("Bearer good", "/metrics/resources"))


async def test_answers_hold_for_ten_seconds(
    access: AccessControl, cluster: Cluster, clock: VirtualClock
) -> None:
    await access.check(request("Bearer good"))
    clock.advance(KEPT_ANSWER_SECONDS - 0.001)
    await access.check(request("Bearer good"))
    assert len(cluster.asked) == 2
    cluster.tokens.clear()
    clock.advance(0.001)
    with pytest.raises(web.HTTPUnauthorized):
        await access.check(request("Bearer good"))


async def test_without_an_answer_nobody_passes_and_the_next_one_asks_anew(
    access: AccessControl, cluster: Cluster
) -> None:
    cluster.down = True
    with pytest.raises(web.HTTPServiceUnavailable):
        await access.check(request("Bearer good"))
    cluster.down = False
    await access.check(request("Bearer good"))


async def test_a_token_longer_than_any_is_not_asked_about(
    access: AccessControl, cluster: Cluster
) -> None:
    with pytest.raises(web.HTTPUnauthorized):
        await access.check(request(f"Bearer {'x' * 100_000}"))
    assert cluster.asked == []


async def test_invented_tokens_are_forgotten(access: AccessControl) -> None:
    for number in range(1100):
        with pytest.raises(web.HTTPUnauthorized):
            await access.check(request(f"Bearer invented-{number}"))
    assert len(access._identities._kept) == 1024  # noqa: SLF001 what memory holds


async def test_a_certificate_that_expires_on_an_open_connection_names_its_user_no_more(
    access: AccessControl, clock: VirtualClock
) -> None:
    until = clock.now() + timedelta(seconds=60)
    shown = {
        "subject": ((("commonName", "prometheus"),),),
        "notAfter": until.strftime("%b %d %H:%M:%S %Y GMT"),
    }
    transport = Mock(get_extra_info={"peercert": shown}.get)
    asked = make_mocked_request("GET", "/metrics", transport=transport)
    assert (await access.check(asked)).name == "prometheus"
    clock.advance(61)
    with pytest.raises(web.HTTPUnauthorized, match="Unauthorized") as refused:
        await access.check(asked)
    assert refused.value.text == "the client certificate has expired\n"
