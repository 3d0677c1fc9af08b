"""`leave` scales the Deployment that its question named, as it was then."""

import argparse
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from typing_extensions import override

from stellwerk.client.lease import Lease, LeaseRecord
from stellwerk_cli.commands import leave as command
from stellwerk_cli.commands.leave import _release
from stellwerk_kube.errors import Conflict
from stellwerk_kube.json_values import JsonObject
from tests.support.memory_client import MemoryClient

PATH = "/apis/apps/v1/namespaces/stellwerk/deployments/stellwerk"
OPTIONS = argparse.Namespace(dry_run=False, yes=False, timeout=1.0)


class OneDeployment(MemoryClient):
    """A Deployment whose scale is patched, compared by uid and resourceVersion."""

    def __init__(self) -> None:
        super().__init__()
        container = {"args": ["run", "--leader-elect=false"]}
        spec = {
            "replicas": 2,
            "selector": {"matchLabels": {"app": "stellwerk"}},
            "template": {"spec": {"containers": [container]}},
        }
        self.put(PATH, {"metadata": {"name": "stellwerk", "uid": "1"}, "spec": spec})

    @override
    async def patch(
        self,
        path: str,
        body: Mapping[str, Any],
        *,
        content_type: str = "application/merge-patch+json",
    ) -> JsonObject:
        stored = self.objects[PATH]
        for key in ("uid", "resourceVersion"):
            if body["metadata"][key] != stored["metadata"][key]:
                raise Conflict(f"patch {path}", 409, "Conflict", "the object has been modified")
        return self.put(PATH, {**stored, "spec": {**stored["spec"], **body["spec"]}})


def with_status(deployment: JsonObject) -> JsonObject:
    return {**deployment, "status": {"replicas": 2}}


def with_more_replicas(deployment: JsonObject) -> JsonObject:
    return {**deployment, "spec": {**deployment["spec"], "replicas": 3}}


def made_anew(deployment: JsonObject) -> JsonObject:
    return {**deployment, "metadata": {**deployment["metadata"], "uid": "2"}}


async def left(change: Callable[[JsonObject], JsonObject], patched: pytest.MonkeyPatch) -> int:
    """Answer yes, after another client has written; returns the replicas at the end."""
    client = OneDeployment()

    def confirmed(*_: object) -> bool:
        client.put(PATH, change(client.objects[PATH]))
        return True

    patched.setattr(command, "is_confirmed", confirmed)
    try:
        await command.leave(client, ("stellwerk", "stellwerk"), OPTIONS)  # type: ignore[arg-type]
    finally:
        replicas = int(client.objects[PATH]["spec"]["replicas"])
    return replicas


async def test_a_status_that_is_written_meanwhile_is_no_edit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert await left(with_status, monkeypatch) == 0


@pytest.mark.parametrize("change", [with_more_replicas, made_anew])
async def test_another_deployment_than_was_asked_about_stays(
    change: Callable[[JsonObject], JsonObject], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(Conflict):
        await left(change, monkeypatch)


async def test_a_lease_that_another_holder_took_meanwhile_stays_its_own() -> None:
    record = LeaseRecord("stellwerk-1_a", 15, "", "", 0)

    class Api:
        async def get(self) -> Lease:
            return Lease(record, {"metadata": {"name": "stellwerk", "resourceVersion": "1"}})

        async def update(self, lease: Lease, _: LeaseRecord) -> None:
            assert lease.obj["metadata"]["resourceVersion"] == "1"
            raise Conflict("replace the lease", 409, "Conflict", "the object has been modified")

    class Client:
        def lease(self, *_: str) -> Api:
            return Api()

    client: Any = Client()
    said = await _release(client, "stellwerk", "stellwerk", "stellwerk", {"stellwerk-1"})
    assert said == "lease stellwerk/stellwerk was taken by another holder meanwhile"
