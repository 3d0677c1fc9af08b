from random import Random
from typing import Any

import pytest

from stellwerk.clock import VirtualClock
from stellwerk_cluster.apimachinery.failures import StatusError
from stellwerk_cluster.apimachinery.kinds import KindTable
from stellwerk_cluster.apiserver.listing import ListPage, list_page, parse_list_options
from stellwerk_cluster.registry.api import Api
from stellwerk_cluster.registry.store import Store


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
