"""Every kind of page on clusters of several sizes, with short names or the longest that there are.

Tests in a browser go through them; `make soak-page` makes a picture of each, at each width, light
and dark, to be looked at, and lets axe-core look at all of them. Invariant: the operator behind the
pages is a real one, which has decided all that is shown.
"""

from __future__ import annotations

import asyncio
import itertools
import shutil
import sys
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal
from urllib.parse import quote, urlencode

import axe_playwright_python
from playwright.async_api import async_playwright
from typing_extensions import override

from stellwerk.backend.queued_pod import Place
from stellwerk_cli.page.server import open_page
from tests.support.builders import make_node, make_pod, owned
from tests.support.device_cases import request
from tests.support.explaining_port import TAINT, ExplainingPort, explaining_port
from tests.support.in_process import eventually, make_profile, quiet
from tests.support.page_window import AcceptedSpecs, Through
from tests.support.pod_groups import make_group, make_member

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Collection, Sequence

    from playwright.async_api import Page

    from stellwerk_kube.json_values import JsonObject

Scheme = Literal["light", "dark"]
Look = tuple[int, Scheme]

WIDTHS: Final = (380, 800, 1400)
SCHEMES: Final[Sequence[Scheme]] = ("light", "dark")
_WAITING: Final = 120
_DEVICES: Final = 60
_DRIVER: Final = "gpu.example.com"


@dataclass(frozen=True, slots=True)
class Size:
    """A cluster to look at."""

    nodes: int
    longest: bool = False
    """Names are as long as the API allows."""

    @override
    def __str__(self) -> str:
        return f"{self.nodes}-nodes{'-longest-names' * self.longest}"

    def name(self, short: str) -> str:
        """A name of an object: 253 characters, or a few."""
        return _lengthened(short, 253) if self.longest else short

    def label(self, short: str) -> str:
        """A name of at most 63 characters."""
        return _lengthened(short, 63) if self.longest else short


SIZES: Final = (Size(0), Size(3), Size(3, longest=True), Size(5000))


def _lengthened(short: str, length: int) -> str:
    """The name with parts of at most 63 characters, to that length."""
    while len(short) < length:
        room = min(length - len(short), 63)
        short += f".{'x' * (room - 1)}" if length > 63 and room > 1 else "x" * room
    return short


@dataclass(frozen=True, slots=True)
class Tour:
    """A page that is served, and the addresses to go to, by what is there."""

    url: str
    places: dict[str, str]


@asynccontextmanager
async def toured(size: Size) -> AsyncIterator[Tour]:
    """Serve the page of a cluster of this size."""
    async with explaining_port() as operator:
        pods = await _fill(operator, size)
        async with open_page(Through(operator), api=AcceptedSpecs(*pods)) as url:
            yield Tour(url, _places(size))


def _places(size: Size) -> dict[str, str]:
    """The addresses by what is shown there."""
    name = size.name
    space = quote(size.label("team"), "")
    profile = f"/profiles/{quote(name('stellwerk'), '')}"
    tried = {"try": "yes", "NodeResourcesFit": "9"}
    driver, pool = size.label(_DRIVER), name("pool")
    web = f"{size.label('team')}/{name('web')}"
    return {
        "overview": "/",
        "queue": "/queue",
        "queue-filtered": "/queue?queue=gated",
        "queue-one-by-one": "/queue?view=pods&sort=-name",
        "queue-of-nothing": "/queue?q=nobody",
        "decisions": "/decisions",
        "nodes": "/nodes",
        "nodes-sorted": "/nodes?sort=memory&grid=memory&page=2",
        "node": f"/nodes/{name('node-1')}",
        "devices": "/devices",
        "device": f"/devices/{driver}/{pool}/{size.label('gpu-1')}",
        "claim": f"/claims/{space}/{name('used')}",
        "group": f"/groups/default/{name('group')}",
        "observed": "/observed",
        "observed-equal": "/observed?result=equal",
        "queue-observed": "/queue?queue=observed",
        "pod-compared": f"/pods/{space}/{name('elsewhere-2')}",
        "pod-observed": f"/pods/{space}/{name('awaits')}",
        "owner": f"/owners/{space}/ReplicaSet/{name('web')}",
        "profiles": "/profiles",
        "profile": profile,
        "profile-tried": f"{profile}?{urlencode(tried)}",
        "profile-tried-for-a-pod": f"{profile}?{urlencode(tried | {'pod': web})}",
        "profile-mistaken": f"{profile}?{urlencode(tried | {'NodeResourcesFit': 'many'})}",
        "shadow": f"/profiles/{quote(name('beside'), '')}",
        "pod-bound": f"/pods/{space}/{name('web')}",
        "pod-waiting": f"/pods/{space}/{name('large')}",
        "pod-member": f"/pods/default/{name('member-0')}",
        "pod-with-devices": f"/pods/{space}/{name('holder')}",
        "pod-unserved": f"/pods/{space}/{name('other')}",
        "pod-near": f"/pods/{space}/wai",
        "search": "/search?q=a",
        "search-of-nothing": "/search?q=nobody",
        "what-if": "/what-if",
        "what-if-decided": "/what-if?" + urlencode({"decide": "yes", "pod": _supposed(size)}),
        "drain": "/what-if?" + urlencode({"decide": "yes", "drain": name("node-1")}),
        "no-node": f"/nodes/{name('nobody')}",
        "no-page": "/nowhere",
        "help": "/help",
    }


def _supposed(size: Size) -> str:
    """A pod that no node takes, as YAML."""
    name, scheduler = size.name("supposed"), size.label("stellwerk")
    return (
        f"kind: Pod\nmetadata: {{name: {name}}}\nspec:\n  schedulerName: {scheduler}\n"
        '  containers:\n  - name: c\n    resources: {requests: {cpu: "99"}}\n'
    )


async def _fill(operator: ExplainingPort, size: Size) -> Sequence[JsonObject]:
    """Make the cluster, and wait until all is decided; returns pods that may be tried."""
    world, name = operator.world, size.name
    space, scheduler = size.label("team"), size.label("stellwerk")

    def pod(short: str, **spec: object) -> JsonObject:
        fields = {"namespace": space, "cpu": "1", "scheduler_name": scheduler}
        return make_pod(name(short), **(fields | spec))  # type: ignore[arg-type]

    world.apply(make_profile(name("stellwerk"), scheduler), _shadow(size))
    taint = {**TAINT, "key": f"{name('example.com')}/{size.label('dedicated')}"}
    for number in range(1, size.nodes + 1):
        node = make_node(
            name(f"node-{number}"),
            cpu="2" if number > 1 else "8",
            zone=size.label(f"zone-{number % 3}"),
            labels={f"{name('example.com')}/{size.label('disk')}": size.label("ssd")},
            taints=[taint] if number % 3 == 0 else [],
            unschedulable=number % 7 == 0,
            allocatable={"example.com/gpu": "8"} if number == 2 else None,
        )
        world.apply(node)
    _with_devices(operator, size)
    web = owned(pod("web"), name=name("web"))
    named = [{"name": "c", "resourceClaimName": name("used")}]
    at = name("node-1") if size.nodes else None
    holder = pod("holder", node_name=at, resourceClaims=named)
    large = pod("large", cpu="64")
    world.apply(web, holder, large, pod("other", scheduler_name=f"{scheduler[:-1]}"))
    world.apply(pod("gated", schedulingGates=[{"name": size.label("gate")}]))
    world.apply(make_group(name("group"), 3))
    for number in range(2):
        world.apply(make_member(name(f"member-{number}"), name("group"), scheduler_name=scheduler))
    for number in range(_WAITING if size.nodes > 100 else 2):
        world.apply(pod(f"waits-{number}", cpu="32"))
    for number in range(_WAITING if size.nodes > 100 else 3):
        hashed = pod(f"flood-5d9f-{number}", cpu="48", labels={"pod-template-hash": "5d9f"})
        world.apply(owned(hashed, name=name("flood-5d9f")))
    if size.nodes:
        await _observe(operator, size)
    await eventually(lambda: not size.nodes or "nodeName" in _stored(operator, web)["spec"])
    await eventually(lambda: {each.place for each in world.queue.entries.values()} <= _SETTLED)
    await quiet(200)
    return [_stored(operator, each) for each in (web, large)]


_SETTLED: Final = frozenset({Place.UNSCHEDULABLE, Place.GATED, Place.BACKOFF, Place.ERROR_BACKOFF})


async def _observe(operator: ExplainingPort, size: Size) -> None:
    """Another scheduler binds pods, alike and not, while a profile observes it; one pod waits."""
    world, name, scheduler = operator.world, size.name, size.label("another")
    world.apply(make_profile(name("another"), scheduler, mode="Observe"))
    space = size.label("team")
    for number, node in enumerate(("node-1", "node-2", "node-3")):
        fields = {"namespace": space, "cpu": "250m", "scheduler_name": scheduler}
        bound = make_pod(name(f"elsewhere-{number}"), **fields)  # type: ignore[arg-type]
        world.apply(bound)
        await quiet(100)
        world.clock.advance(0.25)
        world.apply({**bound, "spec": {**bound["spec"], "nodeName": name(node)}})
        world.clock.advance(3)
        await eventually(lambda seen=number + 1: _compared(operator) == seen)  # type: ignore[misc]
    waiting = make_pod(name("awaits"), namespace=space, cpu="99", scheduler_name=scheduler)
    message = f"0/{size.nodes} nodes are available: {size.nodes} Insufficient cpu."
    waiting["status"]["conditions"] = [
        {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    ]
    world.apply(waiting)


def _compared(operator: ExplainingPort) -> int:
    return sum(each.compared for each in operator.world.operator.observer.described(0))


def _stored(operator: ExplainingPort, pod: JsonObject) -> JsonObject:
    metadata = pod["metadata"]
    path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"
    found: JsonObject = operator.world.client.objects[path]
    return found


def _shadow(size: Size) -> JsonObject:
    """A profile that packs beside the one that decides."""
    packing = {"name": "NodeResourcesFit", "args": {"scoringStrategy": {"type": "MostAllocated"}}}
    of = size.name("stellwerk")
    shadow = make_profile(size.name("beside"), created=5, shadowOf=of, pluginConfig=[packing])
    del shadow["spec"]["schedulerName"]
    return shadow


def _with_devices(operator: ExplainingPort, size: Size) -> None:
    """Devices of node-1 that share counters, one of which a claim has."""
    driver, pool, card = size.label(_DRIVER), size.name("pool"), size.label("card")
    takes = [{"counterSet": card, "counters": {size.label("memory"): {"value": "20Gi"}}}]
    key = f"{size.name('example.com')}/{size.label('model')[:32]}"
    described = {
        "attributes": {key: {"string": size.label("large")}, "index": {"int": 7}},
        "capacity": {size.label("memory"): {"value": "40Gi"}},
        "taints": [{"key": size.label("hot"), "value": "yes", "effect": "NoSchedule"}],
    }
    devices = [
        {"name": size.label(f"gpu-{number}"), "consumesCounters": takes, **described}
        for number in range(_DEVICES)
    ]
    spec: JsonObject = {"driver": driver, "nodeName": size.name("node-1")}
    spec["pool"] = {"name": pool, "generation": 1, "resourceSliceCount": 2}
    counters = {size.label("memory"): {"value": "160Gi"}}
    result = {"request": "r", "driver": driver, "pool": pool, "device": size.label("gpu-1")}
    claim = {
        "metadata": {"name": size.name("used"), "namespace": size.label("team"), "uid": "used"},
        "spec": {"devices": {"requests": [request(deviceClassName=size.name("gpu"))]}},
        "status": {
            "allocation": {"devices": {"results": [result]}},
            "reservedFor": [{"resource": "pods", "name": size.name("holder"), "uid": "holder"}],
        },
    }
    for kind, name, spec_ in (
        ("DeviceClass", size.name("gpu"), {"selectors": []}),
        (
            "ResourceSlice",
            size.name("sets"),
            {**spec, "sharedCounters": [{"name": card, "counters": counters}]},
        ),
        ("ResourceSlice", size.name("cards"), {**spec, "devices": devices}),
    ):
        written: JsonObject = {"metadata": {"name": name}, "spec": spec_}
        operator.world.operator.handlers.on_object(kind, None, written)
    operator.world.operator.handlers.on_object("ResourceClaim", None, claim)


# --- what is seen there ---------------------------------------------------------------------------


async def looked_at(
    page: Page, tour: Tour, looks: Collection[Look], folder: Path | None = None
) -> list[str]:
    """Go everywhere, and return what is too wide for the window or wrong by axe-core's rules.

    Args:
        page: one that was opened with the address of the tour.
        tour: where to go.
        looks: the widths and schemes in which axe-core looks.
        folder: pictures are kept there; None: none are made.
    """
    origin, wrong = tour.url.partition("/?")[0], list[str]()
    for name, place in tour.places.items():
        await page.goto(origin + place)
        await page.evaluate(AXE.read_text(encoding="utf-8"))
        for width, scheme in itertools.product(WIDTHS, SCHEMES):
            if scheme == "dark" and folder is None and (width, scheme) not in looks:
                continue  # it is as wide as the light one
            await page.set_viewport_size({"width": width, "height": 900})
            await page.emulate_media(color_scheme=scheme)
            if folder is not None:
                path = folder / f"{width}-{scheme}" / f"{name}.png"
                await page.screenshot(path=path, full_page=True)
            wide = await page.evaluate("document.documentElement.scrollWidth")
            if wide > width:
                wrong.append(f"{name} is {wide} wide in a window of {width}")
            if (width, scheme) in looks:
                found = await page.evaluate("axe.run()")
                wrong += [f"{name}: axe ran {found}"] * (len(found["passes"]) <= _LEAST_RULES)
                wrong += [
                    f"{name}, {width}, {scheme}: {each['id']}: {node['html']}"
                    for each in found["violations"]
                    for node in each["nodes"]
                ]
    return wrong


AXE: Final = Path(axe_playwright_python.__file__).parent / "axe.min.js"
_LEAST_RULES: Final = 10


async def _look_at_all(folder: Path) -> int:
    """Make all pictures, and print what is wrong."""
    wrong = 0
    async with async_playwright() as playwright:
        chromium = await playwright.chromium.launch(executable_path=shutil.which("chromium"))
        for size in SIZES:
            async with toured(size) as tour:
                page = await chromium.new_page()
                await page.goto(tour.url)
                every = set(itertools.product(WIDTHS, SCHEMES))
                for each in await looked_at(page, tour, every, folder / f"{size}"):
                    print(f"{size}: {each}")  # noqa: T201 a command of developers
                    wrong += 1
                await page.close()
        await chromium.close()
    return min(wrong, 1)


if __name__ == "__main__":
    sys.exit(asyncio.run(_look_at_all(Path(sys.argv[1]))))
