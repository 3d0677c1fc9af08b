"""Whatever a client sends, the embedded API answers; its log has no traceback."""

import http.client
import logging
from collections.abc import Iterator
from typing import Final

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from typing_extensions import override

from stellwerk_cluster.cluster import ClusterOptions, EmbeddedCluster
from tests.support.examples import examples
from tests.support.invariants import check_unaltered
from tests.support.odd_requests import GOOD_BODIES, THINGS, OddRequest, odd_requests
from tests.support.served_cluster import send, served

_LOGGER: Final = "stellwerk_cluster"


class _Failures(logging.Handler):
    """Collects what is logged as an error."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.records: list[str] = []

    @override
    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(logging.Formatter().format(record))


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    """A cluster with one object of every kind, and a custom kind."""
    with served(EmbeddedCluster(1, options=ClusterOptions(seed=1))) as cluster:
        definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
        json = {"Content-Type": "application/json"}
        assert send(cluster.url, "POST", definitions, orjson.dumps(THINGS), json)[0] == 201
        for path, body in GOOD_BODIES.items():
            status, answer = send(cluster.url, "POST", path, orjson.dumps(body), json)
            assert status in {201, 409}, answer
        yield cluster
        check_unaltered(cluster.store)


@pytest.fixture
def failures() -> Iterator[_Failures]:
    handler = _Failures()
    logging.getLogger(_LOGGER).addHandler(handler)
    yield handler
    logging.getLogger(_LOGGER).removeHandler(handler)


def make_again(url: str, request: OddRequest) -> None:
    """The object that a request is about exists, unless it has just been refused."""
    collection = request.path.partition("?")[0].partition("/odd")[0]
    if request.method != "POST" and collection in GOOD_BODIES:
        good = orjson.dumps(GOOD_BODIES[collection])
        send(url, "POST", collection, good, {"Content-Type": "application/json"})


def answered(url: str, request: OddRequest) -> tuple[int, str, bytes]:
    """The status, the media type and the body of the answer."""
    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=10)
    try:
        connection.request(request.method, request.path, request.content or None, request.headers)
        answer = connection.getresponse()
        streams = answer.status == 200 and "watch" in request.path
        body = b"" if streams else answer.read()
        return answer.status, answer.getheader("Content-Type", ""), body
    finally:
        connection.close()


def judge(url: str, request: OddRequest, failures: _Failures) -> None:
    failures.records.clear()  # of the request before, when Hypothesis looks for a smaller one
    make_again(url, request)
    status, media_type, body = answered(url, request)
    assert failures.records == []
    if status < 400:
        return
    if media_type.startswith("text/plain"):
        assert (status, body) == (404, b"404 page not found\n")
        return
    found = orjson.loads(body)
    assert (found["kind"], found["status"], found["code"]) == ("Status", "Failure", status)
    assert found["message"]
    assert found.get("reason") or status == 500  # as the API server says of unknown directives


@pytest.mark.timeout(300)
@settings(
    max_examples=examples(300),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(request=odd_requests())
def test_every_request_has_an_answer(
    cluster: EmbeddedCluster, failures: _Failures, request: OddRequest
) -> None:
    judge(cluster.url, request, failures)


@pytest.mark.long
@pytest.mark.timeout(0)
@settings(
    max_examples=10_000,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(request=odd_requests())
def test_ten_thousand_requests_have_answers(
    cluster: EmbeddedCluster, failures: _Failures, request: OddRequest
) -> None:
    judge(cluster.url, request, failures)
