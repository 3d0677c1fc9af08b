"""The status of quotas: written when it says something else, and for each object by itself."""

import asyncio
from typing import Any

import pytest

from stellwerk.backend.object_store import IndexedObjectStore
from stellwerk.framework.handle import NothingMeasured
from stellwerk_kube.errors import ApiError
from stellwerk_kube.json_values import JsonObject
from stellwerk_plugins.quotas.quota import NamespaceUse, Quotas
from stellwerk_plugins.quotas.status import QuotaStatus
from tests.support.in_process import Notes


class Api:
    """Takes merge patches of statuses into the store, as a watch would deliver them."""

    def __init__(self, objects: IndexedObjectStore) -> None:
        self.objects = objects
        self.patched: list[str] = []
        self.refused: set[str] = set()

    async def patch(self, path: str, body: JsonObject) -> JsonObject:
        namespace, name = path.split("/")[5], path.split("/")[7]
        self.patched.append(namespace)
        if namespace in self.refused:
            raise ApiError(f"cannot patch {path}", 422, "Invalid", "status is not an object")
        obj: JsonObject = self.objects.get("ElasticQuota", namespace, name) or {}
        status = obj.get("status")
        old: JsonObject = status if isinstance(status, dict) else {}
        shown = old["used"] if isinstance(old.get("used"), dict) else {}
        used = {**shown, **body["status"].get("used", {})}
        new = {**old, **body["status"], "used": {k: v for k, v in used.items() if v is not None}}
        self.objects.set("ElasticQuota", {**obj, "status": new})
        return body


def quota(namespace: str, status: Any = None, **spec: Any) -> JsonObject:
    made = {"metadata": {"namespace": namespace, "name": "quota"}, "spec": spec}
    return made if status is None else {**made, "status": status}


class Watched:
    """Quotas, and the task that writes their status."""

    def __init__(self, *quotas: JsonObject) -> None:
        self.objects, self.notes, self.use = IndexedObjectStore(), Notes(), NamespaceUse()
        for each in quotas:
            self.objects.set("ElasticQuota", each)
        self.task = QuotaStatus(
            self.objects, Quotas(self.objects), self.use, self.notes, NothingMeasured()
        )
        self.api: Any = Api(self.objects)

    def run(self) -> None:
        asyncio.run(self.task.run(self.api))

    def status(self, namespace: str) -> JsonObject:
        status: JsonObject = (self.objects.get("ElasticQuota", namespace, "quota") or {})["status"]
        return status


def test_it_is_written_once_until_something_else_is_used() -> None:
    watched = Watched(quota("a", min={"cpu": "2"}))
    watched.run()
    watched.run()
    assert watched.api.patched == ["a"]
    assert watched.status("a") == {"used": {"cpu": "0"}}
    watched.use.used["a"] = {"cpu": 1500, "memory": 7}
    watched.run()
    assert watched.status("a")["used"] == {"cpu": "1500m", "memory": "7"}
    watched.use.used["a"] = {}
    watched.run()
    assert watched.status("a")["used"] == {"cpu": "0"}


def test_what_makes_no_sense_is_a_condition_and_one_event() -> None:
    watched = Watched(quota("a", min={"cpu": "-2"}), quota("b", min={"cpu": "2"}))
    for _ in range(3):
        watched.run()
    (condition,) = watched.status("a")["conditions"]
    assert (condition["status"], condition["reason"]) == ("False", "Invalid")
    assert "spec.min.cpu is below 0" in condition["message"]
    assert "conditions" not in watched.status("b")
    assert [reason for _, reason, _ in watched.notes.about("quota")] == ["Invalid"]
    watched.objects.set("ElasticQuota", quota("a", watched.status("a"), min={"cpu": "2"}))
    watched.run()
    assert watched.status("a")["conditions"][0]["status"] == "True"


@pytest.mark.parametrize(
    "status", ["none", 7, [], {"used": "much"}, {"conditions": "bad"}, {"conditions": [1, None]}]
)
def test_a_status_of_another_form_is_written_over(status: Any) -> None:
    watched = Watched(quota("a", status, min={"cpu": "-2"}))
    watched.run()
    assert watched.status("a")["used"] == {"cpu": "0"}


def test_a_quota_that_cannot_be_written_costs_no_other_its_status() -> None:
    namespaces = [f"n{number:03}" for number in range(120)]
    watched = Watched(*(quota(name, min={"cpu": "-2"}) for name in namespaces))
    watched.api.refused = set(namespaces[:60])
    for _ in range(6):
        with pytest.raises(ApiError, match="status is not an object"):
            watched.run()
    assert all(watched.status(name)["used"] for name in namespaces[60:])
    assert set(watched.api.patched) == set(namespaces)
    assert len(watched.notes.about("quota")) == len(namespaces)


def test_a_quota_that_was_made_anew_since_it_was_seen_gets_no_status_of_the_old_one() -> None:
    old = quota("a", min={"cpu": "2"})
    watched = Watched({**old, "metadata": {**old["metadata"], "uid": "old"}})
    bodies: list[JsonObject] = []

    async def refuse(path: str, body: JsonObject) -> JsonObject:
        bodies.append(body)
        message = 'metadata.uid: Invalid value: "old": field is immutable'
        raise ApiError(f"cannot patch {path}", 422, "Invalid", message)

    watched.api.patch = refuse
    watched.run()
    assert [each["metadata"] for each in bodies] == [{"uid": "old"}]
    watched.objects.set("ElasticQuota", quota("a", min={"cpu": "2"}))
    del watched.api.patch
    watched.run()
    assert watched.status("a") == {"used": {"cpu": "0"}}
