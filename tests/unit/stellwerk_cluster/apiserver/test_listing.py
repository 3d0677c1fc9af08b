import base64
from random import Random
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stellwerk_cluster.apimachinery.failures import StatusError
from stellwerk_cluster.apimachinery.kinds import KindTable
from stellwerk_cluster.apiserver.listing import (
    ContinueToken,
    ListPage,
    list_page,
    parse_list_options,
    read_token,
    write_token,
)
from stellwerk_cluster.registry.api import Api
from stellwerk_cluster.registry.store import Store
from stellwerk_kube.clock import VirtualClock
from tests.support.odd_requests import odd_tokens


@pytest.fixture
def api() -> Api:
    api = Api(Store(), KindTable(), VirtualClock(), Random(1))
    api.create(api.kinds.resource("namespaces"), "", {"metadata": {"name": "default"}})
    for number in range(7):
        create(api, f"p{number}")
    return api


def create(api: Api, name: str) -> None:
    api.create(api.kinds.resource("configmaps"), "default", {"metadata": {"name": name}})


def page(api: Api, **query: Any) -> ListPage:
    kind = api.kinds.resource("configmaps")
    options = parse_list_options(
        kind, "default", "", {key: str(value) for key, value in query.items()}
    )
    return list_page(api.store, kind, options)


def names(found: ListPage) -> list[str]:
    return [entry.key[1] for entry in found.entries]


def test_all_pages_show_the_state_of_the_first(api: Api) -> None:
    first = page(api, limit=3)
    create(api, "p0a")
    create(api, "p5a")
    second = page(api, limit=3, **{"continue": first.token})
    third = page(api, limit=3, **{"continue": second.token})
    assert names(first) + names(second) + names(third) == [f"p{number}" for number in range(7)]
    assert first.revision == second.revision == third.revision
    assert (first.remaining, second.remaining, third.token) == (4, 1, "")


def test_a_token_from_before_the_compaction_is_gone_and_offers_another(api: Api) -> None:
    first = page(api, limit=3)
    create(api, "late")
    api.store.compact(api.store.revision)
    with pytest.raises(StatusError) as caught:
        page(api, limit=3, **{"continue": first.token})
    assert caught.value.code == 410
    rest = page(api, **{"continue": caught.value.metadata["continue"]})
    assert names(rest) == ["p3", "p4", "p5", "p6"]


def test_an_exact_version_shows_what_was(api: Api) -> None:
    revision = api.store.revision
    create(api, "later")
    found = page(api, resourceVersion=revision, resourceVersionMatch="Exact")
    assert "later" not in names(found)
    assert found.revision == revision


def test_version_zero_ignores_the_limit(api: Api) -> None:
    assert len(page(api, resourceVersion="0", limit=2).entries) == 7


def test_pages_of_all_namespaces_go_on_in_the_order_of_paths(api: Api) -> None:
    kind = api.kinds.resource("configmaps")
    for namespace in ("a", "a-b"):
        api.create(api.kinds.resource("namespaces"), "", {"metadata": {"name": namespace}})
        api.create(kind, namespace, {"metadata": {"name": "x"}})
    seen: list[tuple[str, str]] = []
    query = {"limit": "2"}
    for _ in range(5):
        found = list_page(api.store, kind, parse_list_options(kind, None, "", query))
        seen += [entry.key for entry in found.entries]
        query["continue"] = found.token
        if len(seen) == 2:
            create(api, "late")
    assert [key[0] for key in seen[:3]] == ["a-b", "a", "default"]
    assert [key[1] for key in seen[2:]] == [f"p{number}" for number in range(7)]


@pytest.mark.parametrize(
    ("query", "messages"),
    [
        pytest.param(
            {"sendInitialEvents": "true"},
            ["requires setting resourceVersionMatch to NotOlderThan"],
            id="initial events need a match",
        ),
        pytest.param(
            {"sendInitialEvents": "false", "resourceVersionMatch": "Exact"},
            [
                "requires setting resourceVersionMatch to NotOlderThan",
                'Unsupported value: "Exact": supported values: "NotOlderThan"',
            ],
            id="and no other one",
        ),
        pytest.param(
            {"resourceVersionMatch": "Exact", "continue": "x"},
            ["forbidden for watch unless", "Unsupported value", "when continue is provided"],
            id="all contradictions are told",
        ),
    ],
)
def test_the_options_of_a_watch_must_fit_together(
    api: Api, query: dict[str, str], messages: list[str]
) -> None:
    with pytest.raises(StatusError) as refused:
        page(api, watch="true", **query)
    causes = refused.value.body()["details"]["causes"]
    assert len(causes) == len(messages)
    assert all(text in cause["message"] for text, cause in zip(messages, causes, strict=True))


def test_a_list_tells_all_that_contradicts_in_its_options(api: Api) -> None:
    with pytest.raises(StatusError) as refused:
        page(api, resourceVersionMatch="Any", sendInitialEvents="true")
    fields = [cause["field"] for cause in refused.value.body()["details"]["causes"]]
    assert fields == ["resourceVersionMatch", "resourceVersionMatch", "sendInitialEvents"]


_HEAD = "invalid continue token: continue key is not valid"
_GOOD = {"v": "meta.k8s.io/v1", "rv": 7, "start": "/p2\0"}


def _mismatch(found: str, field: str, type_name: str) -> str:
    place = f"Go struct field continueToken.{field} of type {type_name}"
    return f": json: cannot unmarshal {found} into {place}"


def encoded(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).decode().rstrip("=")


def refusal(text: str) -> str:
    with pytest.raises(StatusError) as caught:
        read_token(text, "default")
    assert caught.value.code == 400
    return caught.value.message


@pytest.mark.parametrize(
    ("namespace", "token"),
    [
        pytest.param("default", ContinueToken(7, ("default", "p2")), id="of one namespace"),
        pytest.param(None, ContinueToken(7, ("default", "p2")), id="across namespaces"),
        pytest.param(None, ContinueToken(7, ("", "n")), id="of a cluster-scoped kind"),
        pytest.param("default", ContinueToken(-1, ("default", "p2")), id="of the present"),
    ],
)
def test_a_token_is_read_as_it_was_written(namespace: str | None, token: ContinueToken) -> None:
    assert read_token(write_token(token, namespace), namespace) == token


def test_a_token_looks_like_the_api_servers() -> None:
    recorded = "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MjE4LCJzdGFydCI6Ii9wMlx1MDAwMCJ9"
    assert write_token(ContinueToken(218, ("default", "p2")), "default") == recorded
    present = "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6LTEsInN0YXJ0IjoicDJcdTAwMDAifQ"
    assert write_token(ContinueToken(-1, ("default", "p2")), "default") == present


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("x", "illegal base64 data at input byte 0"),
        ("e30=", "illegal base64 data at input byte 3"),
        ("eé", "illegal base64 data at input byte 1"),
        ("xxx", "invalid character 'Ç' looking for beginning of value"),
        (encoded(b"{"), "unexpected end of JSON input"),
    ],
)
def test_what_holds_no_json_is_refused(text: str, why: str) -> None:
    assert refusal(text) == f"{_HEAD}: {why}"


@pytest.mark.parametrize(
    ("payload", "why"),
    [
        ([], ": json: cannot unmarshal array into Go value of type storage.continueToken"),
        (5, ": json: cannot unmarshal number into Go value of type storage.continueToken"),
        (None, ": server does not recognize this encoded version "),
        ({}, ": server does not recognize this encoded version "),
        ({**_GOOD, "v": "v2"}, ": server does not recognize this encoded version v2"),
        (
            {**_GOOD, "start": 1},
            _mismatch("number", "start", "string"),
        ),
        (
            {**_GOOD, "rv": {}},
            _mismatch("object", "rv", "int64"),
        ),
        (
            {**_GOOD, "RV": True},
            _mismatch("bool", "rv", "int64"),
        ),
        (
            {**_GOOD, "rv": 1.5},
            _mismatch("number 1.5", "rv", "int64"),
        ),
        (
            {**_GOOD, "rv": (1 << 64) - 1},
            _mismatch("number 18446744073709551615", "rv", "int64"),
        ),
        (
            {**_GOOD, "rv": 0},
            ": incorrect encoded start resourceVersion (version meta.k8s.io/v1)",
        ),
        ({**_GOOD, "start": ""}, ": encoded start key empty (version meta.k8s.io/v1)"),
        ({**_GOOD, "start": "../secrets/a"}, ": ../secrets/a"),
        ({**_GOOD, "start": "//a"}, ": //a"),
        ({**_GOOD, "start": "a/"}, ": a/"),
    ],
)
def test_what_is_no_token_is_refused_in_words(payload: Any, why: str) -> None:
    assert refusal(encoded(orjson.dumps(payload))) == f"{_HEAD}{why}"


@given(text=odd_tokens(), namespace=st.sampled_from([None, "default"]))
def test_every_text_is_a_token_or_a_bad_request(text: str, namespace: str | None) -> None:
    try:
        token = read_token(text, namespace)
    except StatusError as refused:
        code = refused.code
    else:
        assert read_token(write_token(token, namespace), namespace).after == token.after
        return
    assert code == 400
