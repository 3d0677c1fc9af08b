"""The pages: what they show, that no text becomes markup, and when there is no answer."""

import asyncio
import re
import shlex
import subprocess
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlencode, urljoin

import aiohttp
import orjson
import pytest
from typing_extensions import override

from stellwerk.answers.nodes import NodeFields
from stellwerk.answers.profile_history import AcceptedSpec, ProfileHistory
from stellwerk.client.operator_port import NoAnswer, PortRefusal
from stellwerk_cli.cli import build_parser, main
from stellwerk_cli.page import answers
from stellwerk_cli.page.answers import PodEvent
from stellwerk_cli.page.server import open_page
from stellwerk_cli.page.views import (
    LISTS,
    amount,
    command,
    file_name,
    for_words,
    local_time,
    resources_of,
    share,
    what_if_command,
)
from stellwerk_kube.json_values import JsonObject
from tests.support.builders import make_node, make_pod, owned
from tests.support.device_cases import device, held
from tests.support.explaining_port import explaining_port, two_nodes, with_devices
from tests.support.hostile_answers import EVIL, hostile_answers, hostile_device
from tests.support.in_process import make_profile, quiet
from tests.support.observed_answers import DIFFERS, observed_profile
from tests.support.page_window import (
    NOW,
    AcceptedSpecs,
    ScriptedPort,
    Through,
    Window,
    opened,
)
from tests.support.pod_groups import make_group, make_member

PAGES = ("/", "/queue", "/decisions", "/nodes", "/devices", "/profiles", "/what-if", "/help")


class Markup(HTMLParser):
    """What a browser would see as elements, attributes and text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.texts: list[str] = []
        self.feed(page)

    @override
    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]

    @override
    def handle_data(self, data: str) -> None:
        self.texts.append(data)


async def test_no_text_of_the_operator_becomes_markup() -> None:
    port = ScriptedPort()
    async with opened(port, api=EvilSpecs()) as window:
        port.answers |= hostile_answers()
        texts = [await shown(window, path) for path in PAGES]
        texts += [await shown(window, f"/pods/a/{it}") for it in ("bound", "waiting", "failed")]
        texts += [await shown(window, path) for path in ("/claims/a/x", "/owners/a/Job/x")]
        texts += [await shown(window, f"/{path}/x") for path in ("nodes", "profiles")]
        texts += [await shown(window, path) for path in ("/search?q=x", "/groups/a/x")]
        texts += [await shown(window, f"/nodes?grid={quote(EVIL)}&sort={quote(EVIL)}")]
        texts += [await shown(window, f"/queue?sort={quote(EVIL)}&open={quote(EVIL)}")]
        texts += [await shown(window, f"/what-if?of=a/b&profile_of=x&changes={CHANGES}")]
        texts.append(await shown(window, f"/profiles/x?try=yes&{quote(EVIL)}=9"))
        texts.append(await shown(window, f"/profiles/x?try=yes&{quote(EVIL)}=9&pod={quote(EVIL)}"))
        port.answers["/explain/devices"] = hostile_device()
        texts.append(await shown(window, f"/devices/{quote(EVIL)}"))
        texts.append((await window.get("/pods/a/%3Cscript%3Ealert(1)%3C%2Fscript%3E"))[1])
        typed = EVIL.replace("\u202e", "")
        evil_form = dict.fromkeys(("nodes", "pod", "profile", "count", "drain"), typed)
        texts.append((await window.post("/what-if", evil_form))[1])
        texts.append((await window.post("/what-if", {"drain": typed}))[1])
        evil_page = await window.get("/queue?page=%3Cscript%3E")
        texts.append(evil_page[1])
    for text in texts:
        page = Markup(text)
        assert page.tags.count("script") == 1, "the page's own"
        assert {name for name, _ in page.attributes if name.startswith("on")} == set()
        assert "style" not in {name for name, _ in page.attributes}
        addresses = [value for name, value in page.attributes if name in {"href", "src", "action"}]
        assert all(each.startswith(("/", "?", "#")) for each in addresses)
        assert not any(each.startswith("//") for each in addresses)
        assert "\u202e" not in text, "no text turns others round"
        assert not any("49" in each for each in page.texts), "no template in a text is evaluated"
    assert sum("<script>alert('x')</script>" in t for p in texts for t in Markup(p).texts) > 20


CHANGES = quote(orjson.dumps([{"kind": EVIL, "edit": EVIL}]).decode())


class EvilSpecs(AcceptedSpecs):
    """An API server that knows pods and specs whose every text is markup."""

    @override
    async def history(self, profile: str) -> ProfileHistory:
        spec = {"weights": {EVIL: 1}, EVIL: EVIL}
        accepted = AcceptedSpec(
            revision=1,
            generation=1,
            accepted_at=EVIL,
            scheduled_pods=1,
            spec=spec,
            replaced_at=EVIL,
        )
        return ProfileHistory(profile=EVIL, revisions=[accepted])

    @override
    async def pod(self, namespace: str, name: str) -> JsonObject:
        return {"metadata": {"name": EVIL, "namespace": EVIL}, "spec": {"nodeName": EVIL}}

    @override
    async def events(self, namespace: str, name: str) -> Sequence[PodEvent]:
        return [PodEvent(EVIL, EVIL, EVIL, EVIL, 1)]


async def shown(window: Window, path: str) -> str:
    status, text = await window.get(path)
    assert status == 200, text
    return text


async def test_every_page_of_a_real_operator_is_shown() -> None:
    async with explaining_port() as operator:
        await two_nodes(operator)
        operator.world.apply(make_group("team", 2), make_member("member", "team"))
        await quiet(100)

        async with opened(Through(operator)) as window:
            overview = await shown(window, "/")
            assert "default/web" in overview
            assert "default/large" in overview
            assert "tainted" in await shown(window, "/nodes")
            node = await shown(window, "/nodes/tainted")
            assert "dedicated=gpu:NoSchedule" in node
            assert "default/large" in node
            assert "No node is like that" in await shown(window, "/nodes?q=nobody")
            assert "1 node;" in await shown(window, "/nodes?q=taint&sort=cpu")
            assert (await window.get("/nodes/nobody"))[0] == 404
            group = await shown(window, "/groups/default/team")
            assert "/pods/default/member" in group
            assert "/groups/default/team" in await shown(window, "/pods/default/member")
            profiles = await shown(window, "/profiles")
            assert 'chip good">✓ Accepted: True' in profiles
            assert "Overlapping: True" not in profiles
            bound = await shown(window, "/pods/default/web")
            assert "Why the others were not" in bound
            waiting = await shown(window, "/pods/default/large")
            assert "tolerate dedicated=gpu:NoSchedule → 1 node" in waiting
            assert 'title="NodeResourcesFit: Insufficient cpu"' in waiting
            assert "Nearest name" in await shown(window, "/pods/default/other")
            assert (await window.get("/pods/default/none"))[0] == 404
            _, drained = await window.post("/what-if", {"drain": "small"})
            assert "default/web" in drained
            _, acted = await window.post(
                "/what-if", {"taint": "small a=b:NoSchedule", "relabel": "small disk=ssd"}
            )
            assert 'Supposed: <span class="name">relabel small disk=ssd</span>' in acted
            assert "taint small a=b:NoSchedule" in acted
            assert "decisions follow Kubernetes" in drained
            _, added = await window.post("/what-if", {"nodes": str(make_node("new", cpu="8"))})
            assert "new" in added
            status, text = await window.post("/what-if", {"drain": "no-such-node"})
            assert (status, "there is no node" in text) == (422, True)
            _, text = await window.post(
                "/what-if", {"pod": str(make_pod("big", cpu="99", scheduler_name="stellwerk"))}
            )
            assert "What would make it fit" in text


async def test_devices_claims_and_controllers_have_their_pages() -> None:
    async with explaining_port() as operator:
        devices = [device("gpu-0"), device("gpu-1")]
        with_devices(operator, held("used", "gpu-1", by="holder"), devices=devices)
        operator.world.apply(make_profile("stellwerk"))
        named = [{"name": "c", "resourceClaimName": "used"}]
        pod = make_pod("holder", cpu="1", node_name="a", resourceClaims=named)
        operator.world.apply(owned(pod, kind="Job"))
        await quiet(100)
        async with opened(Through(operator)) as window:
            listed = await shown(window, "/devices")
            assert "2 devices, 1 held by claims" in listed
            assert "gpu.example.com/a, 1 of 2 held" in words_of(listed)
            assert listed.count('class="square held"') == 1
            assert listed.count('class="square"') == 1
            assert 'href="/claims/default/used"' in listed
            assert "gpu-1" not in await shown(window, "/devices?state=free")
            claim = await shown(window, "/claims/default/used")
            assert 'href="/pods/default/holder"' in claim
            assert 'href="/devices/gpu.example.com/a/gpu-1"' in claim
            pod_page = await shown(window, "/pods/default/holder")
            assert 'href="/owners/default/Job/web"' in pod_page
            assert 'href="/claims/default/used"' in pod_page
            assert 'href="/devices/gpu.example.com/a/gpu-1"' in pod_page
            assert 'href="/devices/gpu.example.com/a/gpu-0"' in listed
            one = await shown(window, "/devices/gpu.example.com/a/gpu-1")
            for place in ("/claims/default/used", "/pods/default/holder", "/nodes/a"):
                assert f'href="{place}"' in one
            assert "stellwerk explain device/gpu.example.com/a/gpu-1" in one
            free = await shown(window, "/devices/gpu.example.com/a/gpu-0")
            assert "No claim holds it." in free
            status, text = await window.get("/devices/gpu.example.com/a/gpu-9")
            assert (status, "there is no device" in text) == (404, True)
            text = await shown(window, "/devices/gpu.example.com/a/gpu-1?format=json")
            assert orjson.loads(text)["device"]["claims"] == ["default/used"]
            node = await shown(window, "/nodes/a")
            assert 'href="/pods/default/holder"' in node
            assert 'class="square held" href="/devices/gpu.example.com/a/gpu-1"' in node
            assert "2: default/used" in words_of(node)
            assert 'href="/pods/default/holder"' in await shown(window, "/owners/default/Job/web")
            assert (await window.get("/claims/default/none"))[0] == 404


async def test_a_profile_shows_its_history_and_tries_weights() -> None:
    async with explaining_port() as operator:
        await two_nodes(operator)
        async with opened(Through(operator), api=AcceptedSpecs()) as window:
            page = await shown(window, "/profiles/stellwerk")
            assert "stellwerk profile rollback stellwerk" in page
            assert 'name="NodeResourcesFit" value="1"' in page
            tried = await shown(window, "/profiles/stellwerk?try=yes&NodeResourcesFit=9")
            assert "With NodeResourcesFit at 9" in tried
            assert 'href="/pods/default/large"' in tried
            assert "\n  shadowOf: stellwerk\n" in tried
            assert "NodeResourcesFit: 9" in tried
            for weight in ("0", "x"):
                status, text = await window.get(
                    f"/profiles/stellwerk?try=y&NodeResourcesFit={weight}"
                )
                assert (status, "a weight is a number" in text) == (422, True)
            status, text = await window.get("/profiles/stellwerk?try=yes&NodeResourcesFit=1")
            assert (status, "no weight was changed" in text) == (422, True)
            assert (await window.get("/profiles/nobody"))[0] == 404
        async with opened(Through(operator)) as window:
            page = await shown(window, "/profiles/stellwerk")
            assert "cannot reach the API server" in page
            assert 'name="try"' not in page


def weights(**more: str) -> str:
    return "/profiles/stellwerk?" + urlencode({"try": "yes", "NodeResourcesFit": "9", **more})


async def test_weights_are_tried_for_one_pod_that_waits_or_has_a_node() -> None:
    web = make_pod("web", cpu="1", scheduler_name="stellwerk", node_name="small")
    large = make_pod("large", cpu="4", scheduler_name="stellwerk")
    async with explaining_port() as operator:
        await two_nodes(operator)
        async with opened(Through(operator), api=AcceptedSpecs(web, large)) as window:
            for name in ("web", "large"):
                pod_page = await shown(window, f"/pods/default/{name}")
                address = f'href="/profiles/stellwerk?pod=default%2F{name}#weights"'
                assert address in pod_page
            form = await shown(window, "/profiles/stellwerk?pod=default%2Fweb")
            assert 'name="pod" value="default/web"' in form
            bound = words_of(await shown(window, weights(pod="web")))
            assert "default/web would get small if it were decided now: the one that it is" in bound
            assert "It is decided as if it had no node" in bound
            assert "stellwerk what-if --profile profile.yaml --pod web -n default" in bound
            waiting = words_of(await shown(window, weights(pod="default/large")))
            assert "default/large gets no node: 0/2 nodes are available" in waiting
            assert "It is decided alone" in waiting
            status, text = await window.get(weights(pod="default/nobody"))
            assert (status, "pods &#34;nobody&#34; not found" in text) == (422, True)


def words_of(page: str) -> str:
    """What a reader sees, with one space between two words."""
    texts = " ".join("".join(Markup(page).texts).split())
    return texts.replace(" .", ".")


async def test_a_bound_pod_says_why_in_a_sentence_and_has_its_requests_and_events() -> None:
    async with explaining_port() as operator:
        await two_nodes(operator)
        operator.world.apply(make_node("b", cpu="2"))
        operator.world.apply(make_pod("second", cpu="1", scheduler_name="stellwerk"))
        await quiet(100)
        async with opened(Through(operator), api=AcceptedSpecs()) as window:
            only = words_of(await shown(window, "/pods/default/web"))
            assert "small: the only one of 2 nodes that took it." in only
            page = words_of(await shown(window, "/pods/default/second"))
            assert re.search(
                r"b: the best of 2 nodes that took it, \d+ points above the next "
                r"\(small\), by NodeResources",
                page,
            )
            assert "Equal on the nodes that are shown: TaintToleration 300" in page
            assert "cpu 1" in page
            assert "0/3 nodes are available for second" in page


async def test_the_list_of_profiles_shows_what_differs_from_the_default() -> None:
    async with explaining_port() as operator:
        await two_nodes(operator)
        score = {"disabled": [{"name": "ImageLocality"}], "enabled": []}
        operator.world.apply(
            make_profile(
                "other", "other", weights={"NodeResourcesFit": 7}, plugins={"score": score}
            )
        )
        await quiet(100)
        async with opened(Through(operator)) as window:
            page = await shown(window, "/profiles")
            assert page.count("Plugins and weights are those of the default.") == 1
            assert "<li>NodeResourcesFit has weight 7 instead of 1</li>" in page
            assert "<li>without ImageLocality</li>" in page
            assert 'class="bar"' not in page


async def test_a_group_says_in_a_sentence_how_many_fit_and_what_is_missing() -> None:
    port = ScriptedPort()
    reason = "0/3 nodes are available: 3 cannot allocate all claims."
    would_happen = {
        "placed": False, "placements": 1, "attempts": 1, "placement": "",
        "nodes": {f"ml/m-{n}": "gpu-1" for n in range(3)}, "message": reason,
        "lacking": "4 linked devices of class gpu", "missing": "1 of 4 members gets no node",
        "reasons": {"ml/m-3": reason},
    }  # fmt: skip
    members = [{"pod": f"ml/m-{n}", "node": "", "message": reason} for n in range(4)]
    port.answers["/explain/ml/podgroups/team"] = {
        "podGroup": "ml/team", "api": "a", "state": "waiting for room", "minCount": 4, "exist": 4,
        "placed": 0, "running": 0, "succeeded": 0, "members": members, "wouldHappen": would_happen,
        "wouldFit": [{"nodes": 1, "like": "gpu-1", "allocatable": {}}],
    }  # fmt: skip
    async with opened(port) as window:
        page = words_of(await shown(window, "/groups/ml/team"))
        assert (
            "3 of 4 fit; missing: 4 linked devices of class gpu; would fit with 1 more node like "
            "gpu-1." in page
        )
        assert page.count(reason) == 2, "of the members, and of what would happen now"


async def test_nodes_have_a_picture_whose_cells_lead_to_their_page_of_the_list() -> None:
    async with varied() as window:
        page = await shown(window, "/nodes?q=a")
        assert page.count("<path class=") >= 2
        assert '<a href="?page=1&amp;grid=cpu&amp;q=a#nodes" aria-label="Nodes 1 to 3, up to' in (
            page.replace("?page=1&amp;q=a&amp;grid=cpu#", "?page=1&amp;grid=cpu&amp;q=a#")
        )
        memory = await shown(window, "/nodes?grid=memory")
        assert 'aria-current="true">memory' in memory
        assert "No node is like that" in await shown(window, "/nodes?q=nobody&grid=cpu")
        node = await shown(window, "/nodes/small")
        assert re.search(r'<a class="name" href="/pods/default/web">.*cpu 1<.*>0</td>', node)


async def test_what_if_offers_names_and_begins_with_its_summary() -> None:
    pods = [deployed("flood", number, cpu="32") for number in range(4)]
    async with varied(*pods) as window:
        form = await shown(window, "/what-if")
        assert '<option value="tainted"></option>' in form
        assert "<option>default/large</option>" in form
        assert "<option>stellwerk</option>" in form
        filled = words_of(await shown(window, "/what-if?of=default/large&profile_of=stellwerk"))
        assert "name: large" in filled
        assert "NodeResourcesFit: 3" in filled
        status, text = await window.get("/what-if?of=&profile_of=stellwerk")
        assert (status, "name: stellwerk" in text) == (200, True)
        decided = words_of(await shown(window, "/what-if?decide=yes&relabel=small%20disk=ssd"))
        assert "0 of 6 pods get a node, 6 find no node." in decided
        assert re.search(r"4 pods of default/flood \(Deployment\).* get no node: 0/4", decided)


async def test_the_help_is_searched() -> None:
    async with opened() as window:
        found = await shown(window, "/help?q=untolerated+taint")
        assert '<tr id="node-s-had-untolerated-taint-s">' in found
        assert '<tr id="insufficient">' not in found
        assert "1 message has" in found
        assert "0 messages have" in await shown(window, "/help?q=nobody-says-so")
        (head,) = re.findall(r"<thead>(.*?)</thead>", found)
        assert head.index(">do<") < head.index(">it means<"), "what to do stands second"


async def test_a_shadow_shows_what_it_would_have_decided() -> None:
    port = ScriptedPort()
    hostile = hostile_answers()
    port.answers |= {"/profiles": hostile["/profiles"], "/shadow/x": hostile["/shadow/x"]}
    async with opened(port) as window:
        page = await shown(window, "/profiles/x")
        assert "1 of 1 compared decisions differ" in page
        assert "stellwerk promote x" in page


async def test_an_answer_has_an_address_a_command_and_a_file() -> None:
    async with explaining_port() as operator:
        await two_nodes(operator)
        async with opened(Through(operator)) as window:
            sent = window.plain().post(
                f"{window.origin}/what-if",
                data={"drain": "small", "count": "1"},
                headers={"Origin": window.origin},
                allow_redirects=False,
            )
            async with sent as answer:
                place = answer.headers["Location"]
                assert (answer.status, place) == (303, "/what-if?count=1&drain=small&decide=yes")
            text = await shown(window, place)
            assert "If <span" in text
            assert "stellwerk what-if --drain small" in text
            long = {"pod": f"# {'x' * 7000}\n{make_pod('big', scheduler_name='stellwerk')}"}
            status, text = await window.post("/what-if", long)
            assert (status, "What would happen" in text, "Download JSON" in text) == (
                200,
                True,
                False,
            )
            for path, command in {
                "/pods/default/web": "stellwerk explain pod/web -n default",
                "/nodes/small": "stellwerk explain node/small",
                "/nodes?label=a%3Db": "stellwerk nodes --selector=a=b",
                "/queue": "stellwerk queue --all-namespaces",
                "/decisions?q=web": "stellwerk decisions --all-namespaces --match=web",
                "/queue?plugin=P": "stellwerk queue --all-namespaces --plugin=P",
                "/devices?state=free": "stellwerk devices --state=free",
            }.items():
                assert command in await shown(window, path)
            _, expected_answer = await operator.get("/explain/default/web")
            status, text, headers = await window.whole("/pods/default/web?format=json")
            assert (status, orjson.loads(text)) == (200, expected_answer)
            assert headers["Content-Disposition"] == 'attachment; filename="pods-default-web.json"'
            assert 'href="?q=web&amp;format=json"' in await shown(window, "/decisions?q=web")


GPU_0, GPU_1 = "gpu.example.com/a/gpu-0", "gpu.example.com/a/gpu-1"
FILTERED = {
    "/queue?q=arg": ["default/large"],
    "/queue?q=nobody": [],
    "/queue?queue=unschedulable": ["default/large"],
    "/queue?queue=gated": ["default/gated"],
    "/queue?plugin=NodeResourcesFit": ["default/large"],
    "/queue?plugin=NodePorts": [],
    "/queue?queue=gated&q=large": [],
    "/decisions?q=web": ["default/web"],
    "/decisions?node=small": ["default/web"],
    "/decisions?node=tainted": [],
    "/nodes?q=a": ["a", "small", "tainted"],
    "/nodes?q=a&sort=cpu": ["small", "a", "tainted"],
    "/nodes?label=zone": ["a"],
    "/nodes?label=zone%3Dz1": ["a"],
    "/nodes?label=zone%3Dz2": [],
    "/devices?q=gpu-1": [GPU_1],
    "/devices?state=held": [GPU_1],
    "/devices?state=free": [GPU_0],
    "/devices?node=b": [],
    "/devices?node=a&q=gpu-0": [GPU_0],
}
UNKNOWN = {
    "/queue?queue=slow": "a queue is one of active, ",
    "/devices?state=broken": "a device is held or free, not ",
    "/nodes?sort=colour": "no node offers ",
    "/nodes?label=%2F%2F": "a label is KEY or KEY=VALUE, not ",
}


@asynccontextmanager
async def varied(*objects: JsonObject) -> AsyncIterator[Window]:
    """A window on pods that wait and do not, on nodes with labels, on devices, and on more."""
    async with explaining_port() as operator:
        await two_nodes(operator)
        devices = [device("gpu-0"), device("gpu-1")]
        with_devices(operator, held("used", "gpu-1", by="holder"), devices=devices)
        operator.world.apply(
            make_node("a", cpu="2", labels={"zone": "z1"}), make_node("b", cpu="2")
        )
        gates = [{"name": "g"}]
        operator.world.apply(make_pod("gated", scheduler_name="stellwerk", schedulingGates=gates))
        operator.world.apply(*objects)
        await quiet(100)
        large = make_pod("large", cpu="4", scheduler_name="stellwerk")
        async with opened(Through(operator), api=AcceptedSpecs(large)) as window:
            window.operator_url = operator.url
            yield window


def rows_of(page: str, address: str) -> list[str]:
    """The names in the first column of the list."""
    body = page.partition("<tbody>")[2].partition("</tbody>")[0]
    prefix = "/pods" if address in {"/queue", "/decisions"} else address
    return [unquote(each) for each in re.findall(rf'href="{prefix}/([^"]*)"', body)]


async def test_every_filter_is_in_the_address_and_says_so_where_nothing_is_like_that() -> None:
    filters = {(page.address, each) for page in LISTS for each in page.filters}
    tried, found = set[tuple[str, str]](), dict[str, list[str]]()
    async with varied() as window:
        for address in FILTERED:
            path, _, query = address.partition("?")
            tried |= {(path, each.partition("=")[0]) for each in query.split("&")}
            page = await shown(window, address)
            found[address] = rows_of(page, path)
            assert ('class="empty"' in page) == (not found[address]), address
            assert f'href="?{query.replace("&", "&amp;")}&amp;format=json"' in page
    assert found == FILTERED
    assert tried == filters, "each filter of each list"


class Outline(Markup):
    """Where a page leads, what it is called, and the commands on it."""

    def __init__(self, page: str) -> None:
        super().__init__(page)
        self.links = {value for name, value in self.attributes if name == "href"}
        self.commands = [
            line
            for written in re.findall(r'<pre id="command"[^>]*>(.*?)</pre>', page, re.DOTALL)
            for line in unescape(written).splitlines()
        ]
        self.title = unescape(re.findall(r"<title>(.*?)</title>", page, re.DOTALL)[0])
        self.headings = [each for each in self.tags if each == "h1"]


KINDS_OF_PAGES = {
    "", "queue", "decisions", "nodes", "nodes/", "devices", "devices/", "claims/", "groups/",
    "owners/", "profiles", "profiles/", "pods/", "help", "what-if",
}  # fmt: skip


async def test_every_link_leads_to_a_page_with_a_title_and_every_command_is_answered(
    capsys: pytest.CaptureFixture[str],
) -> None:
    member, group = make_member("member", "team"), make_group("team", 2)
    named = [{"name": "c", "resourceClaimName": "used"}]
    holder = make_pod("holder", cpu="1", node_name="a", resourceClaims=named)
    async with varied(group, member, holder) as window:
        seen, commands, todo = set[str](), set[str](), {"/"}
        while todo:
            path = todo.pop()
            seen.add(path)
            status, text, headers = await window.whole(path)
            assert status == 200, path
            if not headers["Content-Type"].startswith("text/html"):
                continue
            page = Outline(text)
            assert (page.title.endswith("Stellwerk"), len(page.headings) > 0) == (True, True), path
            commands |= set(page.commands)
            # Headers that sort have tests of their own: each would be a page of each list.
            led = {each for each in page.links if "sort=" not in each}
            todo |= {urljoin(path, each).partition("#")[0] for each in led} - seen
        kinds = {re.sub(r"(?<=/).*", "", path[1:].partition("?")[0]) for path in seen}
        assert kinds == {*KINDS_OF_PAGES, "static/"}
        assert len(commands) > len(KINDS_OF_PAGES)
        for each in sorted(commands):
            words = shlex.split(each)
            if words[0] == "stellwerk":
                build_parser().parse_args(words[1:])
            if words[0] == "stellwerk" and is_asked_of_the_operator(words[1:]):
                asked = [*words[1:], "--url", window.operator_url]
                assert await asyncio.to_thread(main, asked) == 0, each
                assert capsys.readouterr().out


def is_asked_of_the_operator(words: list[str]) -> bool:
    """Whether a command asks the operator alone: others ask the API server, or read files."""
    of_controllers = words[0] == "explain" and words[1].startswith(("replicaset/", "job/"))
    reads_files = any(word.endswith(".yaml") for word in words)
    return words[0] != "profile" and not of_controllers and not reads_files


def deployed(name: str, number: int, **spec: Any) -> JsonObject:
    """A pod of a Deployment."""
    made = f"{name}-5d9f"
    labels = {"pod-template-hash": "5d9f"}
    pod = make_pod(f"{made}-{number}", labels=labels, scheduler_name="stellwerk", **spec)
    return owned(pod, name=made)


async def test_pods_of_one_controller_that_wait_alike_are_one_row_that_can_be_opened() -> None:
    pods = [deployed("flood", number, cpu="32") for number in range(60)]
    async with varied(*pods) as window:
        grouped = await shown(window, "/queue")
        assert 'href="/owners/default/Deployment/flood"' in grouped
        assert '/pods/default/flood-5d9f-1"' not in grouped
        assert ">60 pods</a>" in grouped
        assert ">60 pods</a>" in await shown(window, "/"), "the overview has the same rows"
        (row,) = re.findall(r'href="(\?open=[^"]*)" aria-expanded="false">60 pods', grouped)
        opened = await shown(window, f"/queue{unescape(row)}")
        assert opened.count('class="part"') == 51, "50 pods, and a link to all"
        (rest,) = re.findall(r'href="(/queue\?view=pods[^"]*)">All 60 pods', opened)
        listed = await shown(window, unescape(rest))
        assert "page 1 of 2" in listed
        assert "default/large" not in listed
        assert "60 pods of" in words_of(listed)
        one_by_one = await shown(window, "/queue?view=pods&q=flood&page=2")
        assert len(rows_of(one_by_one, "/queue")) == 10
        owner = await shown(window, "/owners/default/Deployment/flood")
        assert "60 pods, 60 waiting" in owner


async def test_a_click_on_a_header_sorts_and_another_one_turns_the_order_round() -> None:
    pods = [deployed("flood", number, cpu="32", priority=5) for number in range(3)]
    async with varied(*pods) as window:
        orders = {
            "pods": ["flood", "gated", "large"],
            "name": ["flood", "gated", "large"],
            "-name": ["large", "gated", "flood"],
            "-priority": ["large", "gated", "flood"],
        }
        for sort, names in orders.items():
            page = await shown(window, f"/queue?sort={sort}")
            body = page.partition("<tbody>")[2]
            found = re.findall(r'<td class="long"><a class="name" href="[^"]*/([^"/]*)"', body)
            assert found == names, sort
        page = await shown(window, "/queue?sort=priority&q=e")
        assert 'aria-sort="ascending"><a href="?page=1&amp;q=e&amp;sort=-priority">' in page
        assert '<a href="?page=1&amp;q=e&amp;sort=age">' in page
        status, text = await window.get("/queue?sort=colour")
        assert (status, "the queue is sorted by one of name, reason, " in text) == (422, True)


async def test_what_no_list_has_gets_a_sentence() -> None:
    async with varied() as window:
        for address, sentence in UNKNOWN.items():
            status, text = await window.get(address)
            assert (status, sentence in text) == (422, True), address
            assert f'href="{address.partition("?")[0]}">Show the list without filters' in text
        assert "The list ends with page 1." in await shown(window, "/nodes?page=7")
        for path in ("/nothing", "/pods/a/b/c", "/claims"):
            status, text = await window.get(path)
            assert (status, f"there is no page {path}" in text) == (404, True)


async def test_the_overview_and_a_profile_have_commands_and_files_too() -> None:
    async with explaining_port() as operator:
        await two_nodes(operator)
        async with opened(Through(operator), api=AcceptedSpecs()) as window:
            overview = await shown(window, "/")
            for name in ("queue --all-namespaces", "decisions --all-namespaces", "nodes"):
                assert f"stellwerk {name}\n" in overview.replace("</pre>", "\n")
            text = await shown(window, "/?format=json")
            assert set(orjson.loads(text)) == {"history", "decisions", "waiting", "nodes"}
            text = await shown(window, "/profiles/stellwerk?format=json")
            assert set(orjson.loads(text)) == {"profile", "serving", "history"}


async def test_reasons_lead_to_what_to_do() -> None:
    async with explaining_port() as operator:
        await two_nodes(operator)
        async with opened(Through(operator)) as window:
            pod = await shown(window, "/pods/default/large")
            assert '<a href="/help#insufficient"' in pod
            assert '<a href="/help#node-s-had-untolerated-taint-s"' in pod
            page = await shown(window, "/help")
            assert '<tr id="insufficient">' in page
            assert '<tr id="node-s-had-untolerated-taint-s">' in page


async def test_pods_that_no_scheduler_serves_are_on_the_overview_and_in_the_queue() -> None:
    async with explaining_port() as port:
        port.world.apply(make_profile("stellwerk"), make_pod("lost", scheduler_name="stelwerk"))
        async with opened(Through(port)) as window:
            for address in ("/", "/queue", "/queue?queue=unserved"):
                page = await shown(window, address)
                assert 'href="/pods/default/lost"' in page, address
                assert "Served schedulerNames: stellwerk" in page, address
                assert unescape(page).count('did you mean "stellwerk"?') == 1, address
                assert "No pod waits." not in page, address
            assert 'href="/queue?queue=unserved"' in await shown(window, "/")
            assert "Served schedulerNames" in await shown(window, "/pods/default/lost")


async def test_a_suggestion_is_tried_by_a_link_that_fills_the_form_in() -> None:
    large = make_pod("large", cpu="4", scheduler_name="stellwerk")
    async with explaining_port() as operator:
        await two_nodes(operator)
        async with opened(Through(operator), api=AcceptedSpecs(large)) as window:
            page = await shown(window, "/pods/default/large")
            links = [unescape(each) for each in re.findall(r'href="(/what-if\?of=[^"]*)"', page)]
            assert len(links) == page.count("<li><span>")
            for each in links:
                assert "is filled in for" in words_of(await shown(window, each)), each
            tolerated = words_of(await shown(window, links[0]))
            assert re.search("default/large ?✓ tainted", tolerated)
            assert "key: dedicated" in tolerated
            status, text = await window.get("/what-if?of=default/large&changes=%7B")
            assert (status, "changes: " in text) == (422, True)
            status, text = await window.get("/what-if?of=default/nobody&changes=[]")
            assert (status, "not found" in text) == (422, True)
        async with opened(Through(operator)) as window:
            status, text = await window.get(links[0])
            assert (status, "cannot reach the API server" in text) == (422, True)


@pytest.mark.parametrize(
    ("would", "classes"),
    [
        ({"wouldGetNode": "a"}, ["answer"]),
        ({"wouldWait": "its group waits for 2 more pods"}, ["mistake"]),
    ],
)
async def test_bad_news_is_never_in_the_green_box(
    would: dict[str, Any], classes: list[str]
) -> None:
    port = ScriptedPort()
    fields = {"pod": "a/b", "state": "waiting", "priority": 0, "schedulerName": "s", **would}
    verdicts = {"recomputedAt": NOW, "nodes": 1, "feasible": 1}
    changes = [{"kind": "deletePod", "pod": "a/c", "node": "n", "budget": "a/budget"}]
    forbidden: dict[str, Any] = {"text": "delete a/c (budget a/budget forbids its eviction now)"}
    forbidden |= {"changes": changes, "feasibleNodes": 1, "nodes": ["n"], "alternatives": []}
    port.answers["/explain/a/b"] = {**fields, "verdicts": verdicts, "wouldFit": [forbidden]}
    async with opened(port) as window:
        page = await shown(window, "/pods/a/b")
        assert re.findall(r'<p class="(answer|mistake)">It would get', page) == classes
        assert page.count('<li class="warn">') == (classes == ["mistake"])


async def test_who_was_evicted_for_whom_is_on_both_pages() -> None:
    async with explaining_port() as operator:
        world = operator.world
        world.apply(make_profile("stellwerk"), make_node("a", cpu="1"))
        world.apply(make_pod("low", cpu="1", priority=1, scheduler_name="stellwerk"))
        await quiet(100)
        world.apply(make_pod("high", cpu="1", priority=9, scheduler_name="stellwerk"))
        await quiet(200)
        async with opened(Through(operator)) as window:
            victim = words_of(await shown(window, "/pods/default/low"))
            assert re.search(r"Preempted at \S+ on a by default/high, which has priority 9", victim)
            preemptor = words_of(await shown(window, "/pods/default/high"))
            assert re.search(r"it preempted default/low \(1\) on a", preemptor)


async def test_a_job_of_10000_pods_is_asked_on_the_page() -> None:
    template = {"spec": make_pod("x", cpu="100m", scheduler_name="stellwerk")["spec"]}
    job = {"kind": "Job", "metadata": {"name": "train"}, "spec": {"template": template}}
    form = {"pod": str(job), "copies": "10000"}
    async with explaining_port() as port:
        await two_nodes(port)
        async with opened(Through(port)) as window:
            status, page = await window.post("/what-if", form)
            assert status == 200
            words = words_of(page)
            summary = re.search(r"(\d+) of 10,000 pods get a node, ([\d,]+) find no node", words)
            assert summary is not None, words[-3000:]
            placed = int(summary[1])
            assert 1 < placed < 20
            assert words.index(summary[0]) < words.index("default/job/train")
            assert f"{10_000 - placed:,} pods get no node: 0/2 nodes are available" in words
            assert "pod.yaml=10000" in words


async def test_misspelt_fields_are_refused_on_the_page_too() -> None:
    pod = "metadata: {name: p}\nspec: {nodeselector: {}, containers: []}\n"
    query = urlencode({"pod": pod, "decide": "yes"})
    async with explaining_port() as port:
        await two_nodes(port)
        async with opened(Through(port)) as window:
            status, page = await window.get(f"/what-if?{query}")
            assert status == 422
            assert 'unknown field "spec.nodeselector"' in unescape(page)


async def test_tiles_lead_to_their_queues_and_the_cluster_has_its_sums() -> None:
    async with explaining_port() as operator:
        await two_nodes(operator)
        async with opened(Through(operator)) as window:
            overview = await shown(window, "/")
            assert 'href="/queue?queue=unschedulable"' in overview
            assert "10% · 1 of 10" in overview
            assert "default/large" in await shown(window, "/queue?queue=unschedulable")
            assert "No pod that waits is like that" in await shown(window, "/queue?queue=gated")


@pytest.mark.parametrize(
    ("type_", "status", "chip"),
    [
        ("Accepted", "True", "good"),
        ("Accepted", "False", "bad"),
        ("Stalled", "True", "bad"),
        ("Reconciling", "True", "bad"),
        ("Overlapping", "True", "bad"),
        ("Overlapping", "False", "good"),
        ("InlineCredentials", "True", "bad"),
        ("InlineCredentials", "False", "good"),
    ],
)
async def test_a_condition_is_good_or_bad_by_what_it_says(
    type_: str, status: str, chip: str
) -> None:
    port = ScriptedPort()
    condition = {
        "type": type_,
        "status": status,
        "reason": "Because",
        "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
        "observedGeneration": 1,
    }
    profile = {"name": "packing", "generation": 1, "conditions": [condition]}
    port.answers["/profiles"] = {"items": [], "refused": [], "objects": [profile]}
    async with opened(port) as window:
        sign = "✓" if chip == "good" else "✕"
        assert f'chip {chip}">{sign} {type_}: {status}' in await shown(window, "/profiles")


async def test_the_page_says_which_api_server_there_is_and_what_is_off() -> None:
    port = ScriptedPort()
    server = {
        "version": "v1.37.1",
        "compatibility": "1.37",
        "versionsInUse": {"ResourceClaim": "resource.k8s.io/v1"},
        "off": {"PodGroup": "the API serves <none>"},
    }
    port.answers["/profiles"] = {"items": [], "refused": [], "objects": [], "apiServer": server}
    async with opened(port) as window:
        text = await shown(window, "/profiles")
    assert "Kubernetes v1.37.1" in text
    assert "decisions follow Kubernetes 1.37 unless a profile names a release" in text
    assert '✓ ResourceClaim</span> <span class="quiet">resource.k8s.io/v1' in text
    assert 'PodGroup: off</span> <span class="quiet">the API serves &lt;none&gt;' in text


@pytest.mark.parametrize(
    ("failure", "status"),
    [
        pytest.param(NoAnswer("no answer from there"), 503, id="no operator"),
        pytest.param(PortRefusal(403, "User may not"), 403, id="no right"),
        pytest.param(
            PortRefusal(503, "this replica is not the leader", "other"), 502, id="a standby"
        ),
        pytest.param(PortRefusal(429, "too many"), 429, id="too many"),
    ],
)
async def test_where_there_is_no_answer_the_page_says_why(failure: Exception, status: int) -> None:
    port = ScriptedPort()
    async with opened(port) as window:
        port.answers["/nodes"] = failure
        got, text = await window.get("/nodes")
        assert (got, f"{failure}" in text) == (status, True)


async def test_a_page_that_has_not_changed_is_not_sent_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(answers, "FRESH_SECONDS", 0.0)
    port = ScriptedPort()
    async with opened(port) as window:
        _, _, headers = await window.whole("/queue")
        tag = headers["ETag"]
        assert (await window.get("/queue", If_None_Match=tag))[0] == 304
        port.answers["/queue"]["total"] = 7
        status, text = await window.get("/queue", If_None_Match=tag)
        assert (status, "7 pods" in text) == (200, True)


@pytest.mark.parametrize(
    ("typed", "place"),
    [
        pytest.param("default/gated", "/pods/default/gated", id="a whole name"),
        pytest.param("mall", "/nodes/small", id="a part of one name"),
        pytest.param("LARGE", "/pods/default/large", id="capitals"),
        pytest.param("tainted", "/nodes/tainted", id="a node"),
        pytest.param("stellwerk", "/profiles/stellwerk", id="a profile"),
        pytest.param("used", "/claims/default/used", id="a claim"),
        pytest.param("team", "/groups/default/team", id="a group"),
        pytest.param("packed", "/owners/default/Deployment/packed", id="a controller"),
    ],
)
async def test_a_part_of_one_name_leads_to_its_page(typed: str, place: str) -> None:
    labels = {"pod-template-hash": "5d9f"}
    packed = owned(make_pod("p-1", labels=labels, scheduler_name="x"), name="packed-5d9f")
    async with varied(packed, make_group("team", 2)) as window:
        asked = window.plain().get(
            f"{window.origin}/search", params={"q": typed}, allow_redirects=False
        )
        async with asked as answer:
            assert (answer.status, answer.headers["Location"]) == (303, place)
        assert (await window.get(place))[0] == 200


async def test_several_names_are_a_list_and_none_is_not_found_with_what_is_near() -> None:
    async with varied(make_pod("big", namespace="ml"), make_pod("bigger", namespace="a")) as window:
        page = words_of(await shown(window, "/search?q=bi"))
        assert "ml/big pod, unserved" in page
        assert "<title>a/bigger" in await shown(window, "/search?q=big+a/")
        several = await shown(window, "/search?q=t")
        assert 'href="/nodes/tainted"' in several
        assert 'href="/pods/default/large"' in several
        status, near = await window.get("/search?q=lrage")
        assert (status, '<h1 id="title">Not found' in near) == (404, True)
        assert 'href="/pods/default/large"' in near
        status, page = await window.get("/search?q=%22%3E%3Cscript%3E")
        assert (status, Markup(page).tags.count("script")) == (404, 1)
        assert "Type a part of a name" in await shown(window, "/search")
        status, page = await window.get(f"/search?q={'x' * 999}")
        assert status == 404


async def test_what_is_not_there_is_not_found_and_names_like_it_are_links() -> None:
    async with varied() as window:
        for path, place in {
            "/pods/default/we": "/pods/default/web",
            "/pods/elsewhere/web": "/pods/default/web",
            "/nodes/smal": "/nodes/small",
            "/claims/default/usde": "/claims/default/used",
            "/profiles/stelwerk": "/profiles/stellwerk",
        }.items():
            status, page = await window.get(path)
            assert (status, "<h1>Not found</h1>" in page) == (404, True), path
            assert f'href="{place}"' in page, path


async def test_a_list_is_shown_a_page_at_a_time() -> None:
    port = ScriptedPort()
    item: dict[str, Any] = {"pod": "a/b", "node": "n", "schedulerName": "s", "decidedAt": NOW}
    item |= {"attempts": 1, "feasible": 1, "nodes": 1, "tied": 1}
    port.answers["/decisions"] = {"total": 101, "items": [item]}
    async with opened(port) as window:
        text = await shown(window, "/decisions?page=2")
        assert "page 2 of 3" in text
        assert port.asked[-1][0] == "/decisions?limit=50&offset=50"
        await shown(window, "/decisions?page=99999999999999999999")
        await shown(window, "/decisions?page=-1")


async def test_a_form_that_is_too_large_is_refused() -> None:
    async with opened() as window:
        status, _ = await window.post("/what-if", {"pod": "x" * 300_000})
        assert status == 413


@pytest.mark.parametrize(
    ("resource", "value", "shown"),
    [
        pytest.param("cpu", 300, "300m", id="less than a core"),
        pytest.param("cpu", 2500, "2.5", id="cores"),
        pytest.param("cpu", 0, "0", id="no core"),
        pytest.param("memory", 6 << 30, "6 Gi", id="memory"),
        pytest.param("memory", 1000, "1000", id="bytes"),
        pytest.param("hugepages-2Mi", 4 << 20, "4 Mi", id="huge pages"),
        pytest.param("example.com/gpu", 8, "8", id="anything else"),
    ],
)
def test_amounts_have_kubectl_s_units(resource: str, value: int, shown: str) -> None:
    assert amount(resource, value) == shown


def test_shares_of_nothing_are_all_or_nothing() -> None:
    assert [share(0, 0), share(1, 0), share(1, 3), share(3, 2)] == [0, 100, 33, 150]


def offering(allocatable: dict[str, int]) -> NodeFields:
    return NodeFields(
        name="n", allocatable=allocatable, requested={}, labels={}, taints=(), unschedulable=False
    )


def test_native_resources_come_first_and_a_row_is_bounded() -> None:
    nodes = [
        offering({"a.b/c": 1, "memory": 5, "cpu": 4}),
        offering({"pods": 3, "z": 0}),
    ]
    assert resources_of(nodes, 10) == ["cpu", "memory", "pods", "a.b/c"]
    assert resources_of([offering({f"r{n}": 1 for n in range(999)})], 10)[0] == "r0"
    assert len(resources_of([offering({f"r{n}": 1 for n in range(999)})], 10)) == 10


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (-5, "< 1 min"),
        (59, "< 1 min"),
        (60, "1 min"),
        (7199, "119 min"),
        (7200, "2 h"),
        (2e5, "2 d"),
    ],
)
def test_a_period_has_one_unit_and_stays_for_a_while(seconds: float, words: str) -> None:
    begin = datetime.now(UTC) - timedelta(seconds=seconds)
    assert for_words(begin.isoformat()) == words
    assert for_words("soon") == "soon"


def test_what_is_no_time_is_shown_as_it_is() -> None:
    assert local_time("soon") == "soon"
    assert local_time("2026-11-22T10:00:59.000Z").endswith(":59")


def test_a_command_is_read_back_word_by_word() -> None:
    words = ["stellwerk", "explain", "pod/$(touch x)", "-n", "a'b; c"]
    assert shlex.split(command(*words[:2], "", *words[2:])) == words


def test_manifests_become_files_that_the_command_reads(tmp_path: Path) -> None:
    pod = "kind: Pod\nEND\nname: $HOME `id`"
    form = {"pod": pod.replace("\n", "\r\n"), "nodes": "kind: Node", "count": "3", "drain": "n 1"}
    form |= {"taint": "n1 a=$b:NoExecute c-\r\nn2 d-", "delete": "pod/shop/`x y`"}
    script = what_if_command(form)
    called = tmp_path / "stellwerk"
    called.write_text('#!/bin/sh\nprintf "%s\\n" "$@" > called\n')
    called.chmod(0o755)
    subprocess.run(
        ["/bin/sh", "-c", script],
        check=True,
        cwd=tmp_path,
        env={"PATH": f"{tmp_path}:/bin:/usr/bin"},
    )
    assert (tmp_path / "pod.yaml").read_text() == f"{pod}\n"
    words = (tmp_path / "called").read_text().split("\n")[:-1]
    assert words == [
        "what-if", "--add-nodes", "nodes.yaml", "--count", "3", "--pod", "pod.yaml",
        "--drain", "n 1", "--taint", "n1", "a=$b:NoExecute", "c-", "--taint", "n2", "d-",
        "--delete", "pod/shop/`x y`",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("path", "name"),
    [("/", "overview.json"), ("/pods/a/b", "pods-a-b.json"), ('/nodes/"x\n/..', "nodes-x.json")],
)
def test_a_file_is_named_after_its_page(path: str, name: str) -> None:
    assert file_name(path) == name


@asynccontextmanager
async def observing() -> AsyncIterator[Window]:
    """A window on an operator that observes default-scheduler."""
    port = ScriptedPort()
    port.answers["/observed"] = {"items": [observed_profile()]}
    async with opened(port) as window:
        yield window


async def test_every_page_says_that_nothing_is_written_about_an_observed_scheduler() -> None:
    async with observing() as window:
        for place in ("/", "/queue", "/observed", "/nowhere"):
            _, text = await window.get(place)
            assert "observing <a" in text, place
            assert "nothing is written" in text
            assert 'href="/observed"' in text
    async with opened() as window:
        _, text = await window.get("/")
    assert "observ" not in text


async def test_the_comparison_has_shares_reasons_and_differences_with_their_pods() -> None:
    async with observing() as window:
        status, text = await window.get("/observed")
        _, equal = await window.get("/observed?result=equal")
        _, unknown = await window.get("/observed?result=no-class")
    assert status == 200
    plain = " ".join(re.sub(r"<[^>]*>", " ", text).split())
    assert "1,204 bindings compared, 3 not yet" in plain
    assert "equal 97.2 % 1,170" in plain
    assert "sum 100.0 %" in plain
    assert "p99 32 ms" in plain
    assert "2026-11-21 97.0 %" in plain
    assert "A shadow&#39;s regret is of one step" in text
    for name in ("web-7", "db-0", "large-0"):
        assert f'href="/pods/default/{name}"' in text
        assert f'href="/pods/default/{name}"' not in equal
    assert 'href="/pods/default/web-6"' not in text
    assert 'href="/pods/default/web-6"' in equal
    assert 'href="/pods/default/web-7"' in unknown


async def test_a_page_without_observed_profiles_says_what_observes() -> None:
    port = ScriptedPort()
    port.answers["/observed"] = {"items": []}
    async with opened(port) as window:
        status, text = await window.get("/observed")
    assert (status, "No profile observes another scheduler." in text) == (200, True)


async def test_decisions_show_bindings_of_observed_schedulers() -> None:
    port = ScriptedPort()
    port.answers["/decisions"] = {"total": 0, "items": [], "observed": [DIFFERS]}
    async with opened(port) as window:
        _, text = await window.get("/decisions")
    assert 'href="/pods/default/web-7"' in text
    assert "No pod has been placed yet." not in text


async def test_what_is_assumed_of_a_followed_cluster_stands_above_every_page() -> None:
    async with (
        open_page(ScriptedPort(), remarks=lambda: ["without StorageClass: <b>"]) as url,
        aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as session,
        session.get(url) as answer,
    ):
        text = await answer.text()
    assert "nothing is written to this cluster" in text
    assert "<li>without StorageClass: &lt;b&gt;</li>" in text
