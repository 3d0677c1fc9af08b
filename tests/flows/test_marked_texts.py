"""Texts that no decision reads, and credentials, get nowhere: not into logs, events, or answers.

Objects of every kind are filled with marks from the tables of the API's types; what names an object
is its own. Recordings are held in tests/unit/journal/test_recorded_fields.py.
"""

import io
import logging
import re

import aiohttp
import pytest
from typing_extensions import override

from stellwerk.journal.recorded_fields import kept
from stellwerk.logs import TRACE, TextFormatter
from stellwerk.serving.explanations import ExplanationRoutes
from stellwerk.serving.exposition import exposition
from stellwerk.serving.http import HttpServer, Probes
from stellwerk.wiring import Operator
from stellwerk_kube.json_values import JsonObject
from tests.support.builders import make_node, make_pod
from tests.support.findings import hold
from tests.support.in_process import InProcess, eventually, make_profile, quiet, running
from tests.support.marked_objects import KINDS, MARK, Marks
from tests.support.processes import command

PASSWORD = f"{MARK}-password"
KEY = "bWFya2VkLXNlY3JldC1rZXk="


def credentials(url: str) -> JsonObject:
    """A profile with all that the credentials of an extender and a source of load may be."""
    extender = {
        "urlPrefix": url.replace("://", f"://{MARK}-user:{PASSWORD}@"),
        "filterVerb": "filter",
        "enableHTTPS": True,
        "tlsConfig": {"certData": KEY, "keyData": KEY},
        "ignorable": True,
    }
    address = extender["urlPrefix"]
    provider = {"type": "Prometheus", "address": address, "token": f"{MARK}-token"}
    args = {"watcherAddress": address, "metricProvider": provider}
    return make_profile(
        "gpu",
        extenders=[extender],
        plugins={"score": {"enabled": [{"name": "TargetLoadPacking"}]}},
        pluginConfig=[{"name": "TargetLoadPacking", "args": args}],
    )


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


async def see(world: InProcess, objects: list[JsonObject]) -> None:
    """Have an operator watch the objects, beside a node and pods that can be read."""
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
        await see(world, objects)
        await eventually(lambda: world.node_of("plain") or world.condition("plain"))
        await world.status.write_changed()
        await world.operator.debugger.write()
        answers = await asked(world.operator)
        texts = {
            "events": str(world.notes.events),
            "writes": str(world.client.requests),
            # The last good spec in the status is the user's own, for the same readers.
            "conditions": str([world.profile("gpu")["conditions"], world.condition("pod")]),
            "metrics": exposition(world.metrics).decode(),
            "metrics of resources": b"".join(world.operator.resource_metrics()).decode(),
            "dump": "\n".join(world.operator.debugger.dump()),
            "answers": answers,
        }
    texts["log"] = caplog.text
    secret = unread(marks, objects)
    # A group's conditions are the scheduler's own words, which its explanation repeats.
    secret -= {
        each for each in secret if marks.paths[each] == "PodGroup.status.conditions[].message"
    }
    # What-if decides for pods of a template that is scaled: it reads of it what it reads of pods.
    secret -= {
        each
        for each in secret
        if marks.paths[each] == "ReplicaSet.spec.template.spec.schedulerName"
    }
    assert len(secret) > 1000
    credentials_of = (PASSWORD, f"{MARK}-user", f"{MARK}-token", KEY)
    shown = [(where, each) for where in texts for each in credentials_of if each in texts[where]]
    found = [
        (where, marks.paths[each]) for where in texts for each in secret if each in texts[where]
    ]
    print(shown, found)  # noqa: T201 what got where
    hold("credentials in texts", len(shown))
    hold("marks in texts", len(found))
    assert "gpu" in texts["answers"]
    assert logging.getLogger().isEnabledFor(TRACE)


async def asked(operator: Operator) -> str:
    """All that the port answers, what-if among it."""
    routes = ExplanationRoutes(operator.explanations, lambda: None, operator.debugger).table
    server = HttpServer(Probes(), bytes, list, routes=[*routes])
    url = f"http://127.0.0.1:{await server.start('127.0.0.1:0')}"
    found = ""
    async with aiohttp.ClientSession() as session:
        for path in ASKED:
            async with session.get(url + path) as answer:
                found += f"{path} {answer.status} {await answer.text()}\n"
        for body in SUPPOSED:
            async with session.post(f"{url}/what-if", json=body) as answer:
                found += f"/what-if {answer.status} {await answer.text()}\n"
    await server.close()
    asked = [*ASKED, "/what-if"]
    for route in routes:
        pattern = re.sub(r"\{\w+\}", "[^/]+", route.path)  # type: ignore[attr-defined]
        assert any(re.fullmatch(pattern, path) for path in asked), pattern
    return found


ASKED = (
    *(
        "/debug/dump",
        "/profiles",
        "/queue",
        "/queue?by=controller",
        "/queue/history",
        "/decisions",
        "/nodes",
        "/shadow/gpu",
        "/observed",
    ),
    *("/explain/default/plain", "/explain/default/pod", "/explain/default/nothing"),
    *("/explain/default/podgroups/podgroup", "/explain/default/resourceclaims/resourceclaim"),
    *("/explain/default/owners/ReplicaSet/replicaset", "/explain/devices", "/openapi/v3"),
    *("/explain/search", "/explain/search?q=p"),
)
"""Each path of the port that answers with what objects say."""
SUPPOSED: tuple[JsonObject, ...] = (
    {"pod": make_pod("supposed", scheduler_name="gpu")},
    {"pod": make_pod("supposed", scheduler_name="gpu"), "addNodes": [make_node("more")]},
    {"drain": "n1"},
    {"taint": ["n1 a=b:NoExecute"], "relabel": ["n1 disk=ssd"]},
    {"delete": ["node/n1"]},
    {"scale": ["replicaset/replicaset=3"]},
)


OBEYED = "\x1b]0;title\x07\x1b[2J\x9b31m\r\u202e\u2028\x7f"
"""Titles, colours, returns and directions: what a terminal obeys."""


class Obeyed(Marks):
    """Objects in which every text holds what a terminal obeys."""

    @override
    def mark(self, path: str) -> str:
        plain = super().mark(path)
        mark = f"{plain}{OBEYED}end"
        self.paths[mark] = self.paths.pop(plain)
        return mark


async def test_no_text_of_any_object_moves_a_terminal_or_breaks_a_line_of_the_log() -> None:
    marks = Obeyed(valid=True)
    objects = [marked(marks, kind) for kind in KINDS]
    logged = io.StringIO()
    handler = logging.StreamHandler(logged)
    handler.setFormatter(TextFormatter())
    root, level = logging.getLogger(), logging.getLogger().level
    root.addHandler(handler)
    root.setLevel(TRACE)
    try:
        async with running() as world:
            await see(world, objects)
            world.apply(make_pod("asking", scheduler_name=f"none{OBEYED}end"))
            await world.status.write_changed()
            await world.operator.debugger.write()
            operator = world.operator
            routes = ExplanationRoutes(operator.explanations, lambda: None, operator.debugger).table
            server = HttpServer(Probes(), bytes, list, routes=[*routes])
            url = f"http://127.0.0.1:{await server.start('127.0.0.1:0')}"
            texts = []
            for asked in COMMANDS:
                _, printed, said = await command(*asked.split(), "--url", url)
                texts += [printed, said]
            await server.close()
            everywhere = {
                "metrics": exposition(world.metrics).decode(),
                "metrics of resources": b"".join(operator.resource_metrics()).decode(),
                "events": "\n".join(note for *_, note in world.notes.events),
                "conditions": "\n".join(
                    [*(world.condition("asking") or ()), *(world.condition("other") or ())]
                    + [each["message"] for each in world.profile("gpu")["conditions"]]
                ),
            }
    finally:
        root.removeHandler(handler)
        root.setLevel(level)
    shown = "".join(texts)
    assert shown.count("title") > 5
    lines = logged.getvalue().split("\n")
    assert len(lines) > 10
    written = "".join((*shown.split("\n"), *lines))
    hold("control characters", sum(not each.isprintable() for each in written))
    for where, text in everywhere.items():
        assert text, where
        moves = {each for each in text if not each.isprintable() and each != "\n"}
        assert moves == set(), where
        broken = [line for line in text.split("\n") if line.startswith(("title", "31m", "end"))]
        assert broken == [], where
    # A line of the log that a text had broken would begin with the rest of that text.
    assert not [line for line in lines if line.startswith(("title", "31m", "end"))]


COMMANDS = (
    *("explain pod plain", "explain pod pod", "explain pod other", "explain pod asking"),
    *("explain pod asking -o json", "explain pod asking -o yaml", "explain pod nowhere"),
    *("explain node n1", "explain node node", "explain podgroup podgroup"),
    *("explain job nothing", "queue -A", "queue -A -o yaml", "queue -A -o name"),
    *("decisions -A", "nodes", "nodes -o json", "nodes -o yaml"),
    *("what-if --drain n1", "what-if --drain n1 -o json", "shadow diff gpu"),
)
