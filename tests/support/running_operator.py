"""The operator as `stellwerk run` starts it, in this process, on an embedded cluster's port."""

import asyncio
import gc
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, nullcontext
from pathlib import Path
from typing import Any
from unittest.mock import patch

from stellwerk.app import RunOptions, run
from stellwerk.profiles import history as profile_history
from stellwerk.profiles import permission, unserved
from stellwerk.profiles import status_writer as profile_status_writing
from stellwerk.profiles.spec.profile import GROUP, PLURAL
from stellwerk.scheduler.extenders import pool as extender_pool
from stellwerk.serving.port import PortOptions
from stellwerk_cluster.cluster import EmbeddedCluster
from stellwerk_kube.destinations import UrlPrefix
from stellwerk_kube.json_values import JsonObject
from tests.support.definitions import profile_definition
from tests.support.rights import write_operator_kubeconfig


@asynccontextmanager
async def operator_on(
    cluster: EmbeddedCluster,
    directory: Path,
    history_namespace: str | None = None,
    on_port: Callable[[int], None] = lambda _: None,
    *,
    is_prompt: bool = True,
    extender_allow: tuple[UrlPrefix, ...] = (),
    **settings: Any,
) -> AsyncIterator[None]:
    """Run until the block ends; an error of the operator is the block's.

    `is_prompt`: what it looks after now and then, it looks after at once. `settings` are further
    fields of RunOptions.

    It has the rights of the manifests (`tests.support.rights`), which the cluster must enforce.
    """
    kubeconfig = directory / "kubeconfig"
    write_operator_kubeconfig(cluster, kubeconfig)
    options = RunOptions(
        kubeconfig=str(kubeconfig),
        port=PortOptions("127.0.0.1:0", plain_http=True),
        history_namespace=history_namespace,
        extender_allow=extender_allow,
        **settings,
    )
    with prompt() if is_prompt else nullcontext():
        async with _running(options, on_port):
            yield


@contextmanager
def prompt() -> Iterator[None]:
    """What an operator of this process looks after now and then, it looks after at once.

    How often it does is for unit tests in virtual time.
    """
    with (
        patch.object(profile_status_writing, "STATUS_ROUND_SECONDS", 0.05),
        patch.object(profile_status_writing, "MIN_COUNTS_SECONDS", 0.1),
        patch.object(profile_history, "HISTORY_ROUND_SECONDS", 0.05),
        patch.object(unserved, "ROUND_SECONDS", 0.1),
        patch.object(permission, "MIN_REVIEW_SECONDS", 0.05),
        patch.object(permission, "MISSING_REVIEW_SECONDS", 0.1),
        patch.object(extender_pool, "CREDENTIALS_SECONDS", 0.2),
    ):
        yield


@asynccontextmanager
async def _running(options: RunOptions, on_port: Callable[[int], None]) -> AsyncIterator[None]:
    # The operator takes the collector for its own process's.
    with patch.object(gc, "freeze"):
        task = asyncio.create_task(run(options, on_port), name="operator")
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait({task})
    if not task.cancelled():
        task.result()


def install(cluster: EmbeddedCluster, *profiles: JsonObject) -> None:
    """Create the definition and these profiles."""
    api = cluster.api
    definitions = api.kinds.resource("customresourcedefinitions", "apiextensions.k8s.io")
    api.create(definitions, "", profile_definition())
    for profile in profiles:
        api.create(api.kinds.resource(PLURAL, GROUP), "", profile)


def profile_status(cluster: EmbeddedCluster, name: str) -> JsonObject:
    """The status of a profile, empty before it has one."""
    kind = cluster.api.kinds.resource(PLURAL, GROUP)
    status: JsonObject = cluster.api.get(kind, "", name).obj.get("status") or {}
    return status


def is_active(cluster: EmbeddedCluster, name: str, generation: int = 1) -> bool:
    """Whether this generation of a profile schedules pods."""
    status = profile_status(cluster, name)
    conditions = {each["type"]: each["status"] for each in status.get("conditions", ())}
    return (
        status.get("observedGeneration", 0) >= generation
        and conditions.get("Accepted") == conditions.get("Active") == "True"
    )


async def until(condition: Callable[[], Any], seconds: float = 60.0) -> None:
    """Wait until something is true."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 any condition, without an event to wait for
            await asyncio.sleep(0.02)
