"""Clusters with something to explain, and every question that is asked of them.

`test_recorded_answers` compares the answers with the recorded ones; `python -m
tests.support.recorded_answers` records them anew. Invariant: the answers are the same in every run:
time stands still, and ties are broken by a seed.
"""

import asyncio
import io
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from random import Random
from typing import Any, Final
from unittest.mock import patch

from stellwerk.answers import words
from stellwerk.answers.answer import codec
from stellwerk.answers.group import GroupExplanation
from stellwerk.answers.observed import ObservedPage
from stellwerk.answers.pod import PodExplanation
from stellwerk.answers.shadow import ShadowDiff
from stellwerk.answers.what_if import WhatIf
from stellwerk.world.decide import decide
from stellwerk_cli.commands.explained_group import print_group
from stellwerk_cli.commands.explained_pod import print_explanation
from stellwerk_cli.commands.observe import print_report
from stellwerk_cli.commands.printer import Printer
from stellwerk_cli.commands.shadow import print_shadow
from stellwerk_cli.commands.what_if_table import print_what_if
from stellwerk_kube.clock import VirtualClock
from stellwerk_kube.json_values import JsonObject
from stellwerk_simulation.cases.decide import Case
from tests.support.builders import make_node, make_pod, owned
from tests.support.device_cases import DRIVER, case, claim, device, held, request, selecting
from tests.support.explaining_port import ExplainingPort, explaining_port, two_nodes
from tests.support.gpu_cluster import gpu_node, gpu_pod
from tests.support.in_process import InProcess, eventually, make_profile, quiet
from tests.support.json_schema import described
from tests.support.pod_groups import constrained_to, make_group, make_member
from tests.support.repository import ROOT
from tests.support.storage import claim_volume, make_claim, make_class, make_volume

NAME: Final = "stellwerk"
_HOST: Final = "kubernetes.io/hostname"
_ZONE: Final = "topology.kubernetes.io/zone"
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_WEB: Final = {"app": "web"}
_TAINT: Final = {"key": "dedicated", "value": "gpu", "effect": "NoSchedule"}
_MATCHES_WEB: Final = {"matchLabels": _WEB}

Question = tuple[str, Any]
"""(path, body of a what-if or None)."""
Story = Callable[[ExplainingPort], Awaitable[Sequence[Question]]]

_DATA: Final = ROOT / "tests" / "data" / "answers"
_TABLES: Final[Sequence[tuple[str, type[Any], Callable[[Any, Printer], None]]]] = (
    ("/explain/default/podgroups/", GroupExplanation, print_group),
    ("/explain/", PodExplanation, print_explanation),
    ("/what-if", WhatIf, print_what_if),
    ("/shadow/", ShadowDiff, print_shadow),
    ("/observed", ObservedPage, print_report),
)


async def answers_of(story: Story) -> dict[str, Any]:
    """Question → status, answer and the table of it, in the order of the questions."""
    async with explaining_port(lambda _: Random(1)) as port:
        found: dict[str, Any] = {}
        for number, (path, body) in enumerate(await story(port)):
            status, answer = await (port.get(path) if body is None else port.post(path, body))
            title = path if body is None else f"{path} #{number}"
            found[title] = {"status": status, "answer": answer}
            if status == 200 and (printed := printed_answer(path, answer)):
                found[title]["printed"] = printed.splitlines()
        return found


def printed_answer(path: str, answer: Any) -> str:
    """The answer as the command that asks for it prints it; empty: none does."""
    output = io.StringIO()
    with patch.object(words, "SystemClock", _a_minute_later):
        for beginning, kind, show in _TABLES:
            if path.startswith(beginning):
                show(codec(kind).read(answer), Printer(output, width=100))
                break
    return output.getvalue()


def _a_minute_later() -> VirtualClock:
    clock = VirtualClock()
    clock.advance(60)
    return clock


def recorded(name: str) -> str:
    """What was recorded under a name, as text."""
    return (_DATA / f"{name}.json").read_text(encoding="utf-8")


def as_text(answers: Any) -> str:
    """Answers as they are recorded; fields in another order are another text."""
    return json.dumps(answers, indent=1, ensure_ascii=False) + "\n"


def explained(*names: str) -> list[Question]:
    return [(f"/explain/default/{name}", None) for name in names]


def supposed(*pods: JsonObject) -> list[Question]:
    return [("/what-if", {"pod": pod}) for pod in pods]


def of_ours(name: str, **fields: Any) -> JsonObject:
    return make_pod(name, scheduler_name=NAME, **fields)


# --- pods and listings --------------------------------------------------------------------------


async def of_pods(port: ExplainingPort) -> Sequence[Question]:
    """Bound, too large, of no profile, gated, terminating, decided elsewhere; what is supposed."""
    await two_nodes(port)
    world = port.world
    world.apply(of_ours("gated", cpu="1", schedulingGates=[{"name": "example.com/later"}]))
    world.apply(of_ours("elsewhere", cpu="100m", node_name="small"))
    world.apply(make_pod("stranger", cpu="1", scheduler_name="another-one-altogether"))
    for name in ("ending", "ending-on-a-node"):
        ending = of_ours(name, cpu="9", node_name="small" if name != "ending" else None)
        ending["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        world.apply(ending)
    world.apply(of_ours("one-label", cpu="1", nodeSelector={"disk": "ssd"}))
    broken = make_profile("broken", created=7, plugins={"score": {"enabled": [{"name": "X"}]}})
    world.apply(broken)
    world.clock.advance(3)
    await quiet(100)
    world.operator.explanations.history.sample()
    tolerant = of_ours("large", cpu="4", tolerations=[{"operator": "Exists"}])
    profile = make_profile("supposed", plugins={"filter": {"disabled": [{"name": "*"}]}})
    return [
        *explained("web", "large", "other", "gated", "elsewhere", "stranger", "ending"),
        *explained("ending-on-a-node", "one-label", "none"),
        *((f"/{each}", None) for each in ("queue", "queue/history", "decisions", "profiles")),
        ("/nodes", None),
        ("/nodes?limit=1&offset=1", None),
        ("/queue?limit=x", None),
        ("/queue?limit=0", None),
        ("/shadow/stellwerk", None),
        *supposed(tolerant, of_ours("small", cpu="1", memory="64Gi"), {"spec": {}}),
        ("/what-if", {"addNodes": [make_node("new", cpu="4")], "count": 2}),
        ("/what-if", {"drain": "small"}),
        ("/what-if", {"drain": "none"}),
        ("/what-if", {"taint": ["small kept=yes:NoExecute"], "relabel": ["small disk=ssd"]}),
        ("/what-if", {"delete": ["node/small"]}),
        ("/what-if", {"delete": ["node/smal"]}),
        ("/what-if", {"scale": ["deployment/web=1"]}),
        ("/what-if", {"podz": []}),
        ("/what-if", {"addNodes": [{}], "count": 10_000}),
        ("/what-if", {"profile": profile}),
        ("/what-if", {"profile": {"spec": {"weights": 1}}}),
    ]


async def of_a_queue(port: ExplainingPort) -> Sequence[Question]:
    """Pods that wait in activeQ and in backoffQ, and one that is being decided; scores and ties."""
    world = port.world
    world.apply(make_profile(NAME))
    world.apply(*(make_node(f"n{number}", cpu="4", zone=f"z{number}") for number in range(3)))
    world.apply(make_node("large", cpu="16"))
    spread = {
        "maxSkew": 1,
        "topologyKey": _ZONE,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": _MATCHES_WEB,
    }
    web = {"labels": _WEB, "topologySpreadConstraints": [spread]}
    for number in range(4):
        world.apply(of_ours(f"web{number}", cpu="1", **web))
        await quiet(50)
    world.apply(of_ours("big", cpu="40", priority=2))
    await quiet(100)
    for task in asyncio.all_tasks():
        if "Scheduler.run" in repr(task.get_coro()):
            task.cancel()
    await quiet(5)
    world.apply(of_ours("later", cpu="1"), of_ours("last", cpu="1", priority=1))
    # A larger node wakes the pod, which waits in backoffQ first.
    world.apply(make_node("n4", cpu="64", taints=[_TAINT]))
    return [*explained("web0", "web3", "big", "later", "last"), ("/queue", None)]


async def of_preemption(port: ExplainingPort) -> Sequence[Question]:
    """A victim, gone and still there; its preemptor; who took the place; who may not preempt."""
    world = port.world
    world.apply(make_profile(NAME), make_node("a", cpu="2"), make_node("b", cpu="2"))
    world.apply(make_node("c", cpu="1"))
    world.apply(of_ours("low", cpu="2", priority=1, node_name="a"))
    world.apply(of_ours("lower", cpu="2", priority=0, node_name="b"))
    world.apply(of_ours("never", cpu="2", priority=5, preemptionPolicy="Never"))
    await quiet(100)
    world.apply(of_ours("waiting", cpu="9", priority=9))
    await quiet(100)
    explanations, now = world.operator.explanations, world.clock.monotonic
    occupied = make_pod("victim", cpu="1", priority=1, node_name="c")
    case = {"id": "p", "nodes": [make_node("c", cpu="1")], "pods": [occupied]}
    preempting = Case(case | {"pod": make_pod("waiting", cpu="1", priority=9)})
    decision = decide(preempting.world, preempting.pod, preempting.profile)
    explanations.evictions.keep(decision, "2026-01-01T00:00:00Z", now())
    taking = Case(case | {"pods": [], "pod": make_pod("taker", cpu="1", priority=10)})
    taken = decide(taking.world, taking.pod, taking.profile)
    explanations.records.keep(taken, 1, now() + 1)
    asked: list[Question] = [*explained("never", "waiting", "victim", "low", "lower")]
    asked += supposed(of_ours("high", cpu="2", priority=9), of_ours("never", cpu="2", priority=9))
    asked.append(("/explain/default/never", None))
    return asked


# --- what would help ----------------------------------------------------------------------------


def _affinity(kind: str, **term: Any) -> JsonObject:
    term = {"topologyKey": _ZONE, "labelSelector": _MATCHES_WEB, **term}
    return {"affinity": {kind: {_REQUIRED: [term]}}}


def _spread(key: str = _ZONE, **fields: Any) -> JsonObject:
    constraint = {
        "maxSkew": 1,
        "topologyKey": key,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": _MATCHES_WEB,
        **fields,
    }
    return {"topologySpreadConstraints": [constraint], "labels": _WEB}


def _node_affinity(*terms: Sequence[Mapping[str, Any]]) -> JsonObject:
    written = [{"matchExpressions": list(term)} for term in terms]
    return {"affinity": {"nodeAffinity": {_REQUIRED: {"nodeSelectorTerms": written}}}}


def _named_node(name: str) -> JsonObject:
    field = {"key": "metadata.name", "operator": "In", "values": [name, "gone"]}
    terms = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    return {"affinity": {"nodeAffinity": {_REQUIRED: terms}}, "nodeSelector": {"disk": "ssd"}}


def _volume_objects(world: InProcess) -> None:
    objects = {
        "StorageClass": [make_class()],
        "PersistentVolume": [
            make_volume("far", claim="bound", nodes={_ZONE: ["z9"]}),
            make_volume("zonal", claim="zoned", labels={_ZONE: "z8"}),
        ],
        "PersistentVolumeClaim": [
            make_claim("bound", volume="far"),
            make_claim("zoned", volume="zonal"),
            make_claim("immediate", storage_class="at-once"),
        ],
    }
    for kind, found in objects.items():
        for each in found:
            world.operator.handlers.on_object(kind, None, each)


async def of_changes(port: ExplainingPort) -> Sequence[Question]:
    """What each plugin turns away, and what would help against it."""
    world = port.world
    world.apply(make_profile(NAME))
    taints = [_TAINT, {"key": "new", "effect": "NoExecute"}]
    world.apply(
        make_node("a", cpu="4", zone="z1", labels={"disk": "hdd", "generation": "3"}),
        make_node("b", cpu="4", zone="z2", taints=taints),
        make_node("c", cpu="4", zone="z2", unschedulable=True),
        make_node("d", cpu="8"),
    )
    port_8080 = {"containerPort": 8080, "hostPort": 8080}
    serving = of_ours("serving", cpu="3", node_name="a", labels=_WEB)
    serving["spec"]["containers"][0]["ports"] = [port_8080]
    repelling = _affinity("podAntiAffinity", labelSelector={"matchLabels": {"app": "db"}})
    world.apply(
        serving,
        of_ours("second", cpu="3", node_name="d", labels=_WEB, priority=3),
        of_ours("third", cpu="2", node_name="b", labels=_WEB, **repelling),
    )
    _volume_objects(world)
    await quiet(100)
    db = {"labels": {"app": "db"}}
    ported = of_ours("ported", cpu="1", nodeSelector={_HOST: "a"})
    ported["spec"]["containers"][0]["ports"] = [port_8080]
    in_ssd = {"key": "disk", "operator": "In", "values": ["ssd", "nvme"]}
    newer = {"key": "generation", "operator": "Gt", "values": ["4"]}
    no_disk = {"key": "disk", "operator": "DoesNotExist"}
    return supposed(
        of_ours("resources", cpu="7"),
        of_ours("too-large", cpu="20", memory="1Ti"),
        of_ours("selecting", cpu="1", nodeSelector={"disk": "ssd", "arch": "arm"}),
        of_ours("affine", cpu="1", **_node_affinity([in_ssd, newer], [no_disk, newer])),
        of_ours(
            "affine-and-selecting", cpu="1", nodeSelector={"a": "b"}, **_node_affinity([newer])
        ),
        of_ours("cordoned", cpu="4", nodeSelector={_HOST: "c"}),
        of_ours("tainted", cpu="2", nodeSelector={_HOST: "b"}),
        ported,
        of_ours("spread", cpu="1", **_spread()),
        of_ours("spread-over-rack", cpu="1", **_spread("rack")),
        of_ours("tight", cpu="100m", **_spread(minDomains=5)),
        of_ours("beside-web", cpu="1", **_affinity("podAffinity", topologyKey="rack")),
        of_ours(
            "beside-db",
            cpu="1",
            **_affinity("podAffinity", labelSelector={"matchLabels": {"app": "x"}}),
        ),
        of_ours("away-from-web", cpu="100m", **_affinity("podAntiAffinity", topologyKey=_HOST)),
        of_ours(
            "repelled",
            cpu="2",
            **db,
            nodeSelector={_ZONE: "z2"},
            tolerations=[{"operator": "Exists"}],
        ),
        of_ours("unlabelled", cpu="1", nodeSelector={_HOST: "d"}, **_spread()),
        of_ours("named-node", cpu="1", **_named_node("d")),
        of_ours("on-a-volume", cpu="1", volumes=claim_volume("bound")),
        of_ours("in-a-zone", cpu="1", volumes=claim_volume("zoned")),
        of_ours("of-no-claim", cpu="1", volumes=claim_volume("missing")),
        of_ours("immediate", cpu="1", volumes=claim_volume("immediate")),
        of_ours("much", cpu="9", nodeSelector={"disk": "ssd"}, volumes=claim_volume("bound")),
    )


async def of_gpus(port: ExplainingPort) -> Sequence[Question]:
    """GPUs that pods share: held, and too few."""
    world = port.world
    enabled: JsonObject = {"plugins": {"multiPoint": {"enabled": [{"name": "GpuShare"}]}}}
    world.apply(make_profile(NAME, **enabled))
    world.apply(
        *(gpu_node(name, number) for name, number in (("full", 1), ("half", 2), ("none", 0)))
    )
    world.apply(
        gpu_pod("p0", devices=1, on="full", ids="0"),
        gpu_pod("p1", devices=1, on="half", ids="0"),
        gpu_pod("p2", milli=600, on="half", ids="1"),
    )
    sharing, whole = gpu_pod("sharing", milli=700), gpu_pod("whole", devices=1)
    both = gpu_pod("both", milli=500, devices=1)
    for each in (sharing, whole, both):
        each["spec"]["schedulerName"] = NAME
    world.apply(sharing, whole)
    await quiet(100)
    fits = gpu_pod("fits", milli=400)
    fits["spec"]["schedulerName"] = NAME
    return [*explained("p1", "p2", "sharing", "whole"), *supposed(both, fits)]


async def of_devices(port: ExplainingPort) -> Sequence[Question]:
    """Devices of claims: allocated, in use, tainted, of another model, of a contradicting pool."""
    world = port.world
    world.apply(make_profile(NAME))
    small = selecting(f'device.attributes["{DRIVER}"].model == "small"')
    tainted = [{"key": "broken", "effect": "NoSchedule"}]
    written = case(
        claim("mine", request(count=2)),
        claim("smaller", request(**small)),
        claim("failing", request(**selecting(f'device.attributes["{DRIVER}"].absent == 1'))),
        claim("free", request()),
        claim(
            "alternatives",
            {
                "name": "r",
                "firstAvailable": [
                    {
                        "name": "x",
                        "deviceClassName": "gpu",
                        "allocationMode": "ExactCount",
                        "count": 5,
                    },
                    {"name": "y", "deviceClassName": "gpu", "allocationMode": "All"},
                ],
            },
        ),
        claim(
            "bound-together", request(count=3), constraints=[{"matchAttribute": f"{DRIVER}/group"}]
        ),
        claim("everything", request(allocationMode="All", count=0)),
        held("idle", "gpu-3", by="nobody"),
        held("held", "gpu-0", by="uid-default-holder"),
        devices=[
            device("gpu-0"),
            device("gpu-1", taints=tainted),
            device("gpu-2"),
            device("gpu-3", "small"),
        ],
    )
    written["resourceclaims"][-1]["status"]["reservedFor"][0]["name"] = "holder"
    broken: JsonObject = {
        "driver": DRIVER,
        "nodeName": "b",
        "devices": [device("gpu-0"), device("gpu-0")],
    }
    broken["pool"] = {"name": "b", "generation": 1, "resourceSliceCount": 1}
    world.apply(*written["nodes"])
    slices = [*written["resourceslices"], {"metadata": {"name": "b"}, "spec": broken}]
    for kind, objects in (
        ("DeviceClass", written["deviceclasses"]),
        ("ResourceSlice", slices),
        ("ResourceClaim", written["resourceclaims"]),
    ):
        for each in objects:
            world.operator.handlers.on_object(kind, None, each)

    def using(name: str, *claims: str, **fields: Any) -> JsonObject:
        named = [{"name": each, "resourceClaimName": each} for each in claims]
        return of_ours(name, cpu="1", resourceClaims=named, **fields)

    world.apply(owned(using("holder", "held", node_name="a")))
    world.apply(using("waiting", "mine"), using("of-none", "absent"))
    await quiet(200)
    together = ("smaller", "failing", "alternatives", "bound-together", "everything")
    return [
        *explained("holder", "waiting", "of-none"),
        *supposed(using("free", "free"), *(using(each, each) for each in together)),
        *supposed(using("two", "mine", "smaller")),
        ("/what-if", {"drain": "a"}),
    ]


async def of_groups(port: ExplainingPort) -> Sequence[Question]:
    """Groups that wait for pods, for room and for their turn, and one that is placed."""
    world = port.world
    world.apply(make_node("n", cpu="2", zone="z1"), make_node("m", cpu="3", zone="z2"))
    annotations = {"scheduling.stellwerk.dev/reserves-room": "true"}
    giving_back = {"scheduling.stellwerk.dev/give-back-seconds": "60"}
    world.apply(
        make_group("few", 3),
        make_group("first", 2, {**annotations, "scheduling.stellwerk.dev/queue": "q"}),
        make_group("second", 2, {**annotations, "scheduling.stellwerk.dev/queue": "q"}),
        make_group("large", 7, annotations | giving_back),
        make_group("placed", 2),
        make_group(
            "misspelt", 2, schedulingConstraints=constrained_to("topology.kubernetes.io/zoen")
        ),
    )
    world.apply(*(make_member(f"few{n}", "few", cpu="1") for n in range(2)))
    for name in ("first", "second"):
        world.apply(*(make_member(f"{name}{n}", name, cpu="4") for n in range(2)))
    world.apply(of_ours("occupying", cpu="2", node_name="n", priority=0))
    world.apply(*(make_member(f"pre{n}", "preempting", cpu="1", priority=9) for n in range(2)))
    world.apply(make_group("preempting", 2))
    world.apply(*(make_member(f"large{n}", "large", cpu="1") for n in range(7)))
    world.apply(*(make_member(f"placed{n}", "placed", cpu="1", node_name="m") for n in range(2)))
    world.apply(*(make_member(f"misspelt{n}", "misspelt", cpu="1") for n in range(2)))
    world.apply(make_member("orphan", "few-of-them", cpu="1"))
    args = {"reservation": {"maxNodes": "100%"}}
    granting = [{"name": "GangScheduling", "args": args}]
    world.apply(make_profile(NAME, gangScheduling=True, pluginConfig=granting))
    # Conditions are written as time allows: of all groups but those that wait for pods.
    await eventually(lambda: _groups_with_a_condition(world) == 6)
    await asyncio.sleep(0.3)
    await quiet(300)
    names = (
        "first",
        "second",
        "preempting",
        "few",
        "large",
        "placed",
        "misspelt",
        "few-of-them",
        "none",
    )
    return [
        *((f"/explain/default/podgroups/{name}", None) for name in names),
        *explained("large0", "few0"),
        ("/queue", None),
    ]


def _groups_with_a_condition(world: InProcess) -> int:
    found = [each.group for each in world.operator.world.pod_groups.groups.values()]
    return sum(group is not None and bool(group.conditions) for group in found)


async def of_a_selector(port: ExplainingPort) -> Sequence[Question]:
    """Pods that a profile's selector takes from another one; a plugin that breaks."""
    world = port.world
    selector = {"podSelector": _MATCHES_WEB}
    world.apply(make_profile("default-scheduler"), make_profile("of-web", selector=selector))
    world.apply(make_node("n", cpu="2"))
    world.apply(make_pod("web", cpu="1", labels=_WEB), make_pod("web-large", cpu="9", labels=_WEB))
    world.apply(make_pod("db", cpu="1"))
    await quiet(100)
    world.apply(make_pod("unserved", cpu="1", scheduler_name="of-wep"))
    return [*explained("web", "web-large", "db", "unserved"), ("/profiles", None)]


async def of_a_shadow(port: ExplainingPort) -> Sequence[Question]:
    """What a profile with shadowOf would have decided otherwise."""
    world = port.world
    packing = {"name": "NodeResourcesFit", "args": {"scoringStrategy": {"type": "MostAllocated"}}}
    shadow = make_profile("next", created=5, sampleOneIn=1, shadowOf=NAME, pluginConfig=[packing])
    shadow["spec"]["plugins"] = {"filter": {"disabled": [{"name": "TaintToleration"}]}}
    del shadow["spec"]["schedulerName"]
    taint = {"key": "k", "value": "v", "effect": "NoSchedule"}
    world.apply(make_profile(NAME), shadow, make_node("t", cpu="16", taints=[taint]))
    world.apply(*(make_node(f"n{number}", cpu="4") for number in range(3)))
    for number in range(6):
        world.apply(of_ours(f"p{number}", cpu="500m"))
        await quiet(20)
    world.apply(of_ours("big", cpu="8"))
    await quiet(20)
    return [("/shadow/next", None), ("/shadow/none", None), ("/profiles", None)]


async def of_an_observed_scheduler(port: ExplainingPort) -> Sequence[Question]:
    """Bindings of another scheduler: equal, different by points and by a filter, and none found."""
    world = port.world
    taint = {"key": "k", "value": "v", "effect": "NoSchedule"}
    packing = {"name": "NodeResourcesFit", "args": {"scoringStrategy": {"type": "MostAllocated"}}}
    shadow = make_profile("next", created=5, shadowOf=NAME, sampleOneIn=1, pluginConfig=[packing])
    shadow["spec"]["skipIfWaitedSeconds"] = 60
    del shadow["spec"]["schedulerName"]
    observed = make_profile(NAME, mode="Observe", percentageOfNodesToScore=100)
    world.apply(observed, shadow, make_node("t", cpu="16", taints=[taint]))
    world.apply(*(make_node(f"n{number}", cpu="4") for number in range(3)))
    world.apply(of_ours("before", cpu="2", node_name="n0"))
    await quiet(50)
    for compared, (name, node, cpu) in enumerate(
        (("equal", "n1", "1"), ("crowded", "n0", "1"), ("tainted", "t", "1"), ("large", "n2", "9"))
    ):
        world.apply(of_ours(name, cpu=cpu))
        await quiet(50)
        world.clock.advance(0.25)
        world.apply(of_ours(name, cpu=cpu, node_name=node))
        world.clock.advance(3)
        await eventually(partial(_has_compared, world, compared + 1))
    held = of_ours("held", cpu="32")
    message = "0/4 nodes are available: the other scheduler says so."
    held["status"]["conditions"] = [
        {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    ]
    world.apply(of_ours("waits", cpu="1"), held)
    await quiet(100)
    names = ("before", "equal", "crowded", "tainted", "large", "waits", "held")
    return [
        *explained(*names),
        ("/observed", None),
        ("/observed?profile=none", None),
        ("/decisions", None),
        ("/queue", None),
        ("/queue?by=controller", None),
        ("/shadow/next", None),
    ]


def _has_compared(world: InProcess, bindings: int) -> bool:
    return all(each.compared == bindings for each in world.operator.observer.described(0))


STORIES: Final[Mapping[str, Story]] = {
    "pods": of_pods,
    "a-queue": of_a_queue,
    "preemption": of_preemption,
    "changes": of_changes,
    "gpus": of_gpus,
    "devices": of_devices,
    "groups": of_groups,
    "a-selector": of_a_selector,
    "a-shadow": of_a_shadow,
    "an-observed-scheduler": of_an_observed_scheduler,
}


async def _record() -> None:
    for name, story in STORIES.items():
        (_DATA / f"{name}.json").write_text(as_text(await answers_of(story)), encoding="utf-8")
    async with explaining_port() as port:
        _, document = await port.get("/openapi/v3")
    (_DATA / "openapi.json").write_text(as_text(described(document)), encoding="utf-8")


if __name__ == "__main__":
    asyncio.run(_record())
