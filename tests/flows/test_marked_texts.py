"""Texts that no decision reads, and credentials, get nowhere: not into logs, events, or answers.

Objects of every kind are filled with marks from the tables of the API's types; what names an object
is its own. Recordings are held in tests/unit/journal/test_kept.py.
"""

import logging

import aiohttp
import pytest

from stellwerk.journal.kept import kept
from stellwerk.logs import TRACE
from stellwerk.models.json_values import JsonObject
from stellwerk.serving.explanations import ExplanationRoutes
from stellwerk.serving.exposition import exposition
from stellwerk.serving.http import HttpServer, Probes
from tests.support.builders import make_node, make_pod
from tests.support.in_process import eventually, make_profile, quiet, running
from tests.support.marked_objects import KINDS, MARK, Marks

PASSWORD = f"{MARK}-password"
KEY = "bWFya2VkLXNlY3JldC1rZXk="


def credentials(url: str) -> JsonObject:
    """A profile with all that an extender's credentials may be."""
    extender = {
        "urlPrefix": url.replace("://", f"://{MARK}-user:{PASSWORD}@"),
        "filterVerb": "filter",
        "enableHTTPS": True,
        "tlsConfig": {"certData": KEY, "keyData": KEY},
        "ignorable": True,
    }
    return make_profile("gpu", extenders=[extender])


def marked(marks: Marks, kind: str) -> JsonObject:
    """An object that can be read, whose own names are no marks; what is not kept of it is one."""
    obj = marks.object(kind)
    metadata = {"name": kind.lower(), "uid": f"uid-{kind}", "resourceVersion": "7"}
    if kind not in {"Node", "Namespace", "PersistentVolume", "StorageClass", "PriorityClass"}:
        metadata["namespace"] = "default"
    obj["metadata"] = {**obj["metadata"], **metadata}
    if kind == "Pod":
        plain = make_pod("pod", scheduler_name="gpu")
        obj["metadata"]["namespace"] = "default"
        del obj["metadata"]["deletionTimestamp"], obj["spec"]["nodeName"]
        for field in (
            "schedulingGates",
            "resourceClaims",
            "affinity",
            "nodeSelector",
            "topologySpreadConstraints",
        ):
            del obj["spec"][field]
        obj["spec"]["schedulerName"] = plain["spec"]["schedulerName"]
        obj["status"]["phase"] = "Pending"
    return obj


def unread(marks: Marks, objects: list[JsonObject]) -> set[str]:
    """The marks that are in the objects and not in what decisions read of them."""
    whole, read = str(objects), str([kept(each["kind"], each) for each in objects])
    return {mark for mark in marks.paths if f"'{mark}'" in whole and f"'{mark}'" not in read}


async def test_marks_are_in_no_log_event_condition_metric_dump_or_answer(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(TRACE)
    marks = Marks(valid=True)
    objects = [marked(marks, kind) for kind in KINDS]
    async with running() as world:
        world.apply(make_profile("default-scheduler"), credentials("https://127.0.0.1:1"))
        world.apply(make_node("n1"))
        handlers = world.operator.handlers
        for kind, obj in zip(KINDS, objects, strict=True):
            if kind == "Pod":
                world.apply(obj)
            elif kind == "Node":
                handlers.on_node("ADDED", obj)
            else:
                handlers.on_object(kind, "ADDED", obj)
        world.apply(make_pod("plain", scheduler_name="gpu"), make_pod("other", cpu="1000"))
        await quiet()
        await eventually(lambda: world.node_of("plain") or world.condition("plain"))
        await world.status.write_changed()
        await world.operator.debugger.write()
        answers = await asked(world.operator.explanations)
        texts = {
            "events": str(world.notes.events),
            "writes": str(world.client.requests),
            # The last good spec in the status is the user's own, for the same readers.
            "conditions": str([world.profile("gpu")["conditions"], world.condition("pod")]),
            "metrics": exposition(world.metrics).decode(),
            "dump": "\n".join(world.operator.debugger.dump()),
            "answers": answers,
        }
    texts["log"] = caplog.text
    secret = unread(marks, objects)
    assert len(secret) > 1000
    for where, text in texts.items():
        assert PASSWORD not in text, where
        assert f"{MARK}-user" not in text, where
        assert KEY not in text, where
        assert not {marks.paths[mark] for mark in secret if mark in text}, where
    assert "gpu" in texts["answers"]
    assert logging.getLogger().isEnabledFor(TRACE)


async def asked(explanations: object) -> str:
    """All that the port answers, what-if among it."""
    routes = ExplanationRoutes(explanations, lambda: None).table  # type: ignore[arg-type]
    server = HttpServer(Probes(), bytes, list, routes=[*routes])
    url = f"http://127.0.0.1:{await server.start('127.0.0.1:0')}"
    found = ""
    supposed = {"pods": [make_pod("supposed", scheduler_name="gpu")]}
    async with aiohttp.ClientSession() as session:
        for path in ("/profiles", "/queue", "/decisions", "/nodes", "/explain/default/plain"):
            async with session.get(url + path) as answer:
                found += f"{path} {answer.status} {await answer.text()}\n"
        async with session.post(f"{url}/what-if", json=supposed) as answer:
            found += f"/what-if {answer.status} {await answer.text()}"
    await server.close()
    return found
