from random import Random
from typing import Any

import pytest

from stellwerk_cluster.apimachinery.failures import StatusError
from stellwerk_cluster.apimachinery.kinds import KindTable
from stellwerk_cluster.registry.api import Api
from stellwerk_cluster.registry.deletion import (
    DeleteOptions,
    delete,
    delete_collection,
    parse_delete_options,
)
from stellwerk_cluster.registry.store import Store
from stellwerk_kube.clock import VirtualClock
from stellwerk_kube.json_values import JsonObject


@pytest.fixture
def api() -> Api:
    api = Api(Store(), KindTable(), VirtualClock(), Random(1))
    api.create(api.kinds.resource("namespaces"), "", {"metadata": {"name": "default"}})
    return api


def create(api: Api, name: str, **metadata: Any) -> None:
    body = {"metadata": {"name": name, **metadata}}
    api.create(api.kinds.resource("configmaps"), "default", body)


def finalizers(api: Api, name: str) -> list[str] | None:
    found = api.find("configmaps", "default", name)
    return None if found is None else found["metadata"].get("finalizers", [])


@pytest.mark.parametrize(
    ("body", "query", "expected"),
    [
        pytest.param(None, {}, DeleteOptions(), id="nothing is said"),
        pytest.param(
            None,
            {"gracePeriodSeconds": "0", "propagationPolicy": "Orphan", "dryRun": "All"},
            DeleteOptions(grace_period_seconds=0, propagation="Orphan", dry_run=True),
            id="a query without a body",
        ),
        pytest.param(
            {"gracePeriodSeconds": 5},
            {"gracePeriodSeconds": "0"},
            DeleteOptions(grace_period_seconds=5),
            id="a body hides the query",
        ),
        pytest.param(
            {"gracePeriodSeconds": 0},
            {},
            DeleteOptions(grace_period_seconds=0),
            id="a grace of nothing",
        ),
        pytest.param(
            {"orphanDependents": False},
            {},
            DeleteOptions(propagation="Background"),
            id="no orphans",
        ),
        pytest.param(
            None, {"orphanDependents": "true"}, DeleteOptions(propagation="Orphan"), id="orphans"
        ),
        pytest.param({"dryRun": ["All"]}, {}, DeleteOptions(dry_run=True), id="a rehearsal"),
    ],
)
def test_options_of_a_deletion(
    body: JsonObject | None, query: dict[str, str], expected: DeleteOptions
) -> None:
    assert parse_delete_options(body, query) == expected


@pytest.mark.parametrize(
    ("body", "query", "code", "message"),
    [
        pytest.param(
            *(None, {"gracePeriodSeconds": "x"}, 400, 'parsing "x": invalid syntax'), id="no number"
        ),
        pytest.param(
            *(None, {"gracePeriodSeconds": "9" * 30}, 400, "value out of range"), id="too large"
        ),
        pytest.param(*(None, {"dryRun": "x"}, 422, "dryRun: Unsupported value"), id="dry run"),
        pytest.param(
            *({"propagationPolicy": "x"}, {}, 422, "propagationPolicy: Unsupported value"),
            id="policy",
        ),
        pytest.param(
            {"propagationPolicy": "Orphan", "orphanDependents": True},
            *({}, 422, "cannot be both set"),
            id="two policies",
        ),
    ],
)
def test_options_that_are_refused(
    body: JsonObject | None, query: dict[str, str], code: int, message: str
) -> None:
    with pytest.raises(StatusError, match=message) as caught:
        parse_delete_options(body, query)
    assert caught.value.code == code


@pytest.mark.parametrize(
    ("policy", "left"),
    [
        pytest.param("", ["example.com/hold", "orphan"], id="as it is"),
        pytest.param("Background", ["example.com/hold"], id="background"),
        pytest.param("Orphan", ["example.com/hold", "orphan"], id="orphan"),
        pytest.param("Foreground", ["example.com/hold", "foregroundDeletion"], id="foreground"),
    ],
)
def test_a_policy_is_a_finalizer(api: Api, policy: str, left: list[str]) -> None:
    create(api, "a", finalizers=["example.com/hold", "orphan"])
    kind = api.kinds.resource("configmaps")
    delete(api, kind, ("default", "a"), DeleteOptions(propagation=policy))
    assert finalizers(api, "a") == left


def test_a_collection_is_deleted_up_to_what_the_preconditions_forbid(api: Api) -> None:
    create(api, "a")
    create(api, "b", finalizers=["example.com/hold"])
    kind = api.kinds.resource("configmaps")
    entries = api.store.collection("configmaps").entries()
    with pytest.raises(StatusError, match="UID in the precondition"):
        delete_collection(api, kind, entries, DeleteOptions(uid="another"))
    assert len(delete_collection(api, kind, entries, DeleteOptions())) == 2
    assert (finalizers(api, "a"), finalizers(api, "b")) == (None, ["example.com/hold"])


def test_a_generated_name_that_is_taken_is_generated_anew(api: Api) -> None:
    kind = api.kinds.resource("configmaps")
    first = [
        api.create(kind, "default", {"metadata": {"generateName": "a-"}}).key for _ in range(3)
    ]
    again = Api(api.store, api.kinds, api.clock, Random(1))
    again.create(api.kinds.resource("namespaces"), "", {"metadata": {"name": "other"}})
    more = [
        again.create(kind, "default", {"metadata": {"generateName": "a-"}}).key for _ in range(3)
    ]
    assert len({*first, *more}) == 6
