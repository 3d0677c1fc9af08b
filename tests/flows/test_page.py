"""The page in a browser: headless Chromium, as a user would meet it.

What is judged: it shows what has just happened and follows, nothing is logged as an error, nothing
is loaded from elsewhere, every text is legible, and it can be used by keyboard, at both widths.
"""

import os
import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from stellwerk.client.operator_port import NoAnswer
from stellwerk_cli.page.server import open_page
from tests.support.builders import make_pod
from tests.support.hostile_answers import hostile_answers
from tests.support.page_window import NOW, ScriptedPort
from tests.support.processes import Process, fetch, running, server_of, until
from tests.support.repository import ROOT

try:
    from playwright.async_api import Browser, Page, async_playwright, expect

    from tests.support.page_tour import SIZES, Look, Size, Tour, looked_at, toured
except ImportError:
    if os.environ.get("STELLWERK_REQUIRE_TOOLS"):
        raise
    pytest.skip("playwright or axe-core is not installed", allow_module_level=True)

pytestmark = pytest.mark.long

PATIENCE_MS = 60_000
"""A busy machine is no failure."""
PLACES = (
    "/",
    "/queue",
    "/decisions",
    "/nodes",
    "/profiles",
    "/what-if",
    "/devices",
    "/nodes/node-1",
    "/profiles/stellwerk",
    "/pods/default/web",
    "/pods/default/large",
    "/pods/default/none",
)
LEGIBILITY = ROOT / "tests" / "flows" / "legibility.js"


class Watched:
    """A browser's page, and what went wrong in it."""

    def __init__(self, page: Page, origin: str) -> None:
        self.page = page
        self.origin = origin
        self.wrong: list[str] = []
        page.on("console", self._on_console)
        page.on("pageerror", lambda error: self.wrong.append(f"{error}"))
        page.on("dialog", lambda dialog: self.wrong.append(f"dialog: {dialog.message}"))
        page.on("request", self._on_request)

    def _on_console(self, message: Any) -> None:
        # The browser itself logs every answer that is no success.
        if message.type in {"error", "warning"} and "Failed to load" not in message.text:
            self.wrong.append(message.text)

    def _on_request(self, request: Any) -> None:
        if not request.url.startswith(self.origin):
            self.wrong.append(f"loads {request.url}")

    async def go(self, place: str) -> None:
        await self.page.goto(self.origin + place)


@asynccontextmanager
async def browser(require_tool: Callable[[str], str]) -> AsyncIterator[Browser]:
    async with async_playwright() as playwright:
        chromium = await playwright.chromium.launch(executable_path=require_tool("chromium"))
        try:
            expect.set_options(timeout=PATIENCE_MS)
            yield chromium
        finally:
            await chromium.close()


@asynccontextmanager
async def window(chromium: Browser, url: str, **context: Any) -> AsyncIterator[Watched]:
    """A window that was opened with the printed address; nothing may go wrong in it."""
    opened = await chromium.new_context(**context)
    opened.set_default_timeout(PATIENCE_MS)
    page = await opened.new_page()
    watched = Watched(page, url.partition("/?")[0])
    await page.goto(url)
    try:
        yield watched
    finally:
        await opened.close()
    assert watched.wrong == []


@asynccontextmanager
async def touring(
    require_tool: Callable[[str], str], size: Size
) -> AsyncIterator[tuple[Tour, Watched]]:
    """A cluster of a size, and a window of its page."""
    async with (
        toured(size) as tour,
        browser(require_tool) as chromium,
        window(chromium, tour.url) as it,
    ):
        yield tour, it


class Sandbox:
    """`stellwerk up` with a pod that is bound and one that waits."""

    def __init__(self, process: Process, api: str, url: str) -> None:
        self.process = process
        self.url = url
        self._pods = f"{api}/api/v1/namespaces/default/pods"

    async def create(self, name: str, cpu: str) -> None:
        await fetch(self._pods, make_pod(name, cpu=cpu))


@asynccontextmanager
async def sandbox(directory: Path) -> AsyncIterator[Sandbox]:
    kubeconfig, log = directory / "kubeconfig", directory / "log"
    async with running(log, "up", "--nodes", "3", "--kubeconfig", str(kubeconfig)) as up:

        async def is_up() -> bool:
            return "Stop: Ctrl-C" in log.read_text()

        await until(is_up, up)
        url = re.findall(r"^Page: +(\S+)$", log.read_text(), re.MULTILINE)[0]
        box = Sandbox(up, server_of(kubeconfig), url)
        await box.create("web", "1")
        await box.create("large", "64")
        yield box


async def test_it_shows_what_was_just_decided_and_follows(
    tmp_path: Path, require_tool: Callable[[str], str]
) -> None:
    async with (
        sandbox(tmp_path) as box,
        browser(require_tool) as chromium,
        window(chromium, box.url) as it,
    ):
        page = it.page
        await expect(page.get_by_role("link", name="default/web")).to_be_visible()
        link = page.get_by_role("link", name="default/web")
        await link.focus()
        await box.create("second", "1")
        second = page.get_by_role("link", name="default/second")
        await expect(second).to_be_visible()
        await expect(link).to_be_focused()
        assert page.url == f"{it.origin}/", "the key is not in the address"
        follow = page.get_by_role("button", name="Follow live")
        await follow.click()
        await expect(follow).to_have_attribute("aria-pressed", "false")
        await box.create("third", "1")
        async with page.expect_response(lambda answer: answer.request.resource_type == "fetch"):
            await follow.click()
        await expect(page.get_by_role("link", name="default/third")).to_be_visible()
        await second.click()
        await expect(page.get_by_text("chosen")).to_be_visible()
        await expect(page.get_by_role("cell", name="Scheduled").first).to_be_visible()
        cells = page.locator("table.scores td.cell")
        assert await cells.count() % 3 == 0
        assert await cells.count() >= 3, "three nodes × the plugins that differ"


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_every_page_is_legible_and_fits(
    scheme: str, tmp_path: Path, require_tool: Callable[[str], str]
) -> None:
    async with sandbox(tmp_path) as box, browser(require_tool) as chromium:
        for width in (1280, 400):
            context = {"viewport": {"width": width, "height": 900}, "color_scheme": scheme}
            async with window(chromium, box.url, **context) as it:
                await it.go("/pods/default/large")
                await expect(it.page.get_by_text("What would make it fit")).to_be_visible()
                for place in PLACES:
                    await it.go(place)
                    await judge_legibility(it.page, width, place)


async def judge_legibility(page: Page, width: int, place: str) -> None:
    """No text is too pale, none hangs over the edge; everything that can be opened is open."""
    for each in await page.locator("summary").all():
        await each.click()
    wide = await page.evaluate("document.documentElement.scrollWidth")
    assert wide <= width, place
    found = await page.evaluate(LEGIBILITY.read_text())
    assert found["texts"] > 10, place
    assert found["illegible"] == [], place


async def test_it_is_used_by_keyboard_alone(
    tmp_path: Path, require_tool: Callable[[str], str]
) -> None:
    async with (
        sandbox(tmp_path) as box,
        browser(require_tool) as chromium,
        window(chromium, box.url) as it,
    ):
        page, keys = it.page, it.page.keyboard
        await keys.press("Tab")
        assert "Skip to the content" in await page.evaluate(NAMES_OF_FOCUSED)
        await keys.press("Enter")
        assert await page.evaluate("document.activeElement.id") == "content"
        await it.go("/")
        await tab_to(page, "Profiles")
        await keys.press("Enter")
        await expect(page.get_by_role("heading", name="Profiles")).to_be_visible()
        await tab_to(page, "find")
        await keys.type("large")
        await keys.press("Enter")
        await expect(page.get_by_role("heading", name="default/large")).to_be_visible()
        await tab_to(page, "Nodes and the plugins that turn them away")
        await it.go("/what-if")
        await tab_to(page, "drain")
        await keys.type("node-1")
        await keys.press("Enter")
        await expect(page.get_by_role("heading", name="If node-1 were drained")).to_be_focused()


async def test_a_part_of_a_name_is_found_as_one_types_and_by_a_page_without_a_script(
    require_tool: Callable[[str], str],
) -> None:
    async with touring(require_tool, Size(3)) as (tour, it):
        page, keys = it.page, it.page.keyboard
        await it.go("/")
        await tab_to(page, "find")
        await keys.type("wait")
        suggested = page.locator("#suggestions a")
        await expect(suggested).to_have_count(3)
        await expect(page.locator("#suggested")).to_have_text("3 suggestions")
        await keys.press("ArrowDown")
        await keys.press("ArrowDown")
        await expect(suggested.nth(1)).to_be_focused()
        await keys.press("ArrowUp")
        await keys.press("Escape")
        await expect(page.locator("#suggestions")).to_be_hidden()
        await expect(page.locator("#find")).to_be_focused()
        await keys.type("s-1")
        await expect(suggested).to_have_count(1)
        await keys.press("ArrowDown")
        await keys.press("Enter")
        await expect(page.get_by_role("heading", name="team/waits-1")).to_be_visible()
        chromium = page.context.browser
        assert chromium is not None
        async with window(chromium, tour.url, java_script_enabled=False) as plain:
            await plain.page.get_by_label("Find by a part of the name").last.fill("wait")
            await plain.page.keyboard.press("Enter")
            await expect(plain.page.locator("#found a")).to_have_count(3)
            await plain.page.locator("#find").fill("arg")
            await plain.page.keyboard.press("Enter")
            await expect(plain.page.get_by_role("heading", name="team/large")).to_be_visible()
            await plain.page.locator("#find").fill("lrage")
            await plain.page.keyboard.press("Enter")
            await expect(plain.page.get_by_role("heading", name="Not found")).to_be_visible()
            await expect(plain.page.get_by_role("link", name="team/large")).to_be_visible()


async def test_a_row_of_the_queue_is_opened_and_a_header_sorts_by_keyboard(
    require_tool: Callable[[str], str],
) -> None:
    port = ScriptedPort()
    alike: dict[str, Any] = {
        "namespace": "shop",
        "longestWaiting": "shop/web-1",
        "queues": {"unschedulablePods": 9},
    }
    alike |= {"profiles": ["stellwerk"], "priority": 0, "attempts": 3, "waitsSince": NOW}
    group = {
        **alike,
        "controller": "Deployment/web",
        "pods": 150,
        "rejectedBy": ["NodeResourcesFit"],
    }
    port.answers["/queue"] |= {"total": 150, "groups": [group], "groupsTotal": 1}
    async with (
        open_page(port) as url,
        browser(require_tool) as chromium,
        window(chromium, url, viewport={"width": 1400, "height": 900}) as it,
    ):
        page, keys = it.page, it.page.keyboard
        await it.go("/queue")
        await tab_to(page, "Attempts")
        await keys.press("Enter")
        header = page.get_by_role("columnheader", name="Attempts")
        await expect(header).to_have_attribute("aria-sort", "ascending")
        await tab_to(page, "150 pods")
        await keys.press("Enter")
        row = page.get_by_role("link", name="150 pods", exact=True)
        await expect(row).to_have_attribute("aria-expanded", "true")
        assert "open=shop" in page.url
        assert "sort=attempts" in page.url
        assert any("controller=shop%2FDeployment%2Fweb" in path for path, _ in port.asked)


async def test_charts_have_ranges_and_values_under_the_pointer_and_by_keyboard(
    require_tool: Callable[[str], str],
) -> None:
    port = ScriptedPort()
    none: dict[str, Any] = {"active": 0, "backoff": 0, "unschedulable": 0, "gated": 0}
    points = [
        {
            **none,
            "at": f"2026-11-22T10:00:{5 * n:02}.000Z",
            "scheduled": n,
            "seconds": 5,
            "bound": n,
        }
        for n in range(11)
    ]
    port.answers["/queue/history"] |= {"items": points, "began": NOW, "keptSeconds": 43200}
    async with (
        open_page(port) as url,
        browser(require_tool) as chromium,
        window(chromium, url, viewport={"width": 1400, "height": 900}) as it,
    ):
        page, keys, reading = it.page, it.page.keyboard, it.page.locator("#reading")
        await tab_to(page, "1 hour")
        await keys.press("Enter")
        await expect(page.get_by_role("link", name="1 hour")).to_have_attribute(
            "aria-current", "true"
        )
        assert any(path.startswith("/queue/history?range=1h") for path, _ in port.asked)
        await expect(page.locator("#kept")).to_contain_text("when this replica began to lead")
        await tab_to(page, "Charts over time; the arrow keys left and right read the values")
        await keys.press("ArrowLeft")
        await expect(reading).to_contain_text("2 bound and 0 failed per s")
        await keys.press("ArrowLeft")
        await expect(reading).to_contain_text("1.8 bound and 0 failed per s")
        plot = page.locator("#charts svg").first
        box = await plot.bounding_box()
        assert box is not None
        await page.mouse.move(box["x"] + box["width"] * 0.5, box["y"] + 20)
        await expect(reading).to_contain_text("1 bound and 0 failed per s")
        await expect(page.locator("#charts .cursor.at")).to_have_count(3)
        points.append({**points[-1], "at": "2026-11-22T10:00:55.000Z", "bound": 11})
        await expect(page.locator("#charts")).to_have_attribute(
            "data-readings", re.compile("2.2 bound")
        )
        # It stays at its moment.
        await expect(reading).to_contain_text("1 bound")


async def test_bars_follow_a_number_that_is_typed_on_one_scale(
    require_tool: Callable[[str], str],
) -> None:
    async with touring(require_tool, Size(3)) as (tour, it):
        page, keys = it.page, it.page.keyboard
        await it.go(tour.places["profile"])
        widths = (
            "[...document.querySelectorAll('.weights rect')].map((it) => it.getAttribute('width'))"
        )
        before = await page.evaluate(widths)
        await tab_to(page, "NodeResourcesFit")
        await keys.press("Control+a")
        await keys.type("30")
        after = [float(width) for width in await page.evaluate(widths)]
        assert after != [float(width) for width in before]
        assert sorted(after)[-2:] == [10.0, 100.0], "TaintToleration has 3 of 30"
        lengths = await page.evaluate(
            "[...document.querySelectorAll('.weights svg')].map((it) => it.clientWidth)"
        )
        assert len(set(lengths)) == 1, "bars of one list have one length"


async def test_a_stretch_of_the_picture_and_a_square_are_reached_by_keyboard(
    require_tool: Callable[[str], str],
) -> None:
    async with touring(require_tool, Size(5000)) as (_, it):
        page, keys = it.page, it.page.keyboard
        await it.go("/nodes?q=node-49")
        picture = await page.locator(".node-grid").evaluate("it => it.outerHTML.length")
        assert picture < 200_000
        await tab_to(page, "Nodes 51 to 100, up to 0% requested")
        await keys.press("Enter")
        await expect(page).to_have_url(re.compile("page=2"))
        await it.go("/nodes")
        picture = await page.locator(".node-grid").evaluate("it => it.outerHTML.length")
        assert 50_000 < picture < 200_000
        await it.go("/devices")
        await tab_to(page, "2 gpu.example.com/pool/gpu-1: held by team/used, tainted")
        await keys.press("Enter")
        await expect(page.get_by_role("heading", name="gpu.example.com/pool/gpu-1")).to_be_visible()


async def test_a_suggestion_is_tried_by_a_link_and_misspelt_fields_are_refused(
    require_tool: Callable[[str], str],
) -> None:
    async with touring(require_tool, Size(3)) as (tour, it):
        page, keys = it.page, it.page.keyboard
        await it.go(tour.places["pod-waiting"])
        await tab_to(page, "Try: request 5.75 instead of 64 CPU")
        await keys.press("Enter")
        await expect(page.get_by_text("The form below is filled in for")).to_be_visible()
        await expect(page.get_by_text("1 of 1 pod gets a node.")).to_be_visible()
        pod = page.get_by_label("these pods were added")
        await expect(pod).to_have_value(re.compile("cpu: 5750m"))
        await pod.fill("kind: Pod\nmetadata: {name: p}\nspec: {nodeselector: {}, containers: []}")
        await page.get_by_role("button", name="Decide").click()
        await expect(page.get_by_role("alert").filter(has_text="unknown field")).to_contain_text(
            'unknown field "spec.nodeselector"'
        )
        await expect(pod).to_have_value(re.compile("nodeselector"))
        await it.go("/what-if")
        await page.get_by_label("Begin with a pod that waits").select_option("team/large")
        await page.get_by_label("and the profile").select_option("stellwerk")
        await page.get_by_role("button", name="Fill in").click()
        await expect(pod).to_have_value(re.compile("name: large"))
        await expect(page.get_by_label("all waiting pods were decided")).to_have_value(
            re.compile("kind: SchedulerProfile")
        )


FORMS = {
    "/queue": ({"Pod": "large", "Rejected by": "NodeResourcesFit"}, "1 pod,"),
    "/decisions": ({"Pod": "web"}, "1 are so"),
    "/nodes": ({"Name": "node-1", "Label": "example.com/disk=ssd"}, "1 node;"),
    "/devices": ({"Driver, pool or name": "gpu-1"}, "11 devices,"),
    "/what-if": ({"a node were drained": "node-1"}, "If node-1 were drained"),
    "/profiles/stellwerk": (
        {"NodeResourcesFit": "9", "for this pod": "team/web"},
        "With NodeResourcesFit at 9",
    ),
}
"""What is typed into each form, and what is said then."""


async def test_every_form_is_filled_in_and_sent_by_keyboard_alone(
    require_tool: Callable[[str], str],
) -> None:
    async with touring(require_tool, Size(3)) as (_, it):
        page, keys = it.page, it.page.keyboard
        for place, (typed, said) in FORMS.items():
            await it.go(place)
            await keys.press("Tab")
            assert "Skip to the content" in await page.evaluate(NAMES_OF_FOCUSED), place
            await keys.press("Enter")
            for label, text in typed.items():
                await tab_to(page, label)
                await keys.press("Control+a")
                await keys.type(text)
            await keys.press("Enter")
            await expect(page.get_by_text(said).first).to_be_visible()
        await it.go("/nodes")
        await tab_to(page, "Order")
        await keys.type("most memory")
        await tab_to(page, "Show")
        await keys.press("Enter")
        await expect(page).to_have_url(re.compile("sort=memory"))


async def test_tab_passes_everything_in_order_and_is_trapped_nowhere(
    require_tool: Callable[[str], str],
) -> None:
    async with touring(require_tool, Size(3)) as (tour, it):
        for place in tour.places.values():
            await it.go(place)
            count = await it.page.evaluate(PASSED_BY_TAB)
            order = []
            for _ in range(count):
                await it.page.keyboard.press("Tab")
                order.append(await it.page.evaluate("passed.indexOf(document.activeElement)"))
            assert order[:-1] == [*range(1, count)], place
            assert order[-1] in {-1, 0}, "after the last one the page is left, or begins anew"


PASSED_BY_TAB = """
const all = "a[href], button, input, select, textarea, summary, [tabindex='0']";
passed = [...document.querySelectorAll(all)].filter((it) => it.checkVisibility());
passed[0].focus();
passed.length
"""
"""Keep what Tab has to pass, in the order in which it stands on the page, and focus the first."""


async def tab_to(page: Page, name: str) -> None:
    """Press Tab until an element of this name or id has the focus, which must be seen each time."""
    for _ in range(100):
        await page.keyboard.press("Tab")
        outline = await page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
        assert outline == "solid"
        if name in await page.evaluate(NAMES_OF_FOCUSED):
            return
    pytest.fail(f"{name} cannot be reached by keyboard")


NAMES_OF_FOCUSED = """
(({id, ariaLabel, textContent, labels}) => [
  ariaLabel, id, textContent.trim(),
  ...[...labels || []].map((label) => [...label.childNodes].filter((part) => !part.value)
    .map((part) => part.textContent).join("").trim()),
])(document.activeElement)
"""
"""All by which it may be called: labels without the fields in them."""


LOOKS: Mapping[Size, Sequence[Look]] = {Size(3, longest=True): [(380, "light"), (1400, "dark")]}
"""The widths and schemes that axe-core sees a cluster in; `make soak-page` is for all of them."""


@pytest.mark.parametrize("size", SIZES, ids=str)
async def test_every_page_fits_and_axe_finds_nothing_on_it(
    size: Size, require_tool: Callable[[str], str]
) -> None:
    async with touring(require_tool, size) as (tour, it):
        assert await looked_at(it.page, tour, LOOKS.get(size, ())) == []


async def test_what_goes_on_beyond_an_edge_shows_a_sign(require_tool: Callable[[str], str]) -> None:
    port = ScriptedPort()
    port.answers |= hostile_answers()
    async with (
        open_page(port) as url,
        browser(require_tool) as chromium,
        window(chromium, url, viewport={"width": 380, "height": 900}) as it,
    ):
        await it.go("/decisions")
        table = it.page.get_by_role("region", name="Table of decisions")
        await expect(table).to_have_attribute("data-more", "right")
        assert "linear-gradient" in await table.evaluate("it => getComputedStyle(it).maskImage")
        await table.evaluate("it => it.scrollBy(9999, 0)")
        await expect(table).to_have_attribute("data-more", "left")
        await it.page.set_viewport_size({"width": 1800, "height": 900})
        await expect(it.page.locator("[data-more~=right]")).to_have_count(0)


async def test_a_command_is_copied(require_tool: Callable[[str], str]) -> None:
    async with (
        open_page(ScriptedPort()) as url,
        browser(require_tool) as chromium,
        window(chromium, url, permissions=["clipboard-read", "clipboard-write"]) as it,
    ):
        await it.go("/queue")
        await it.page.get_by_role("button", name="Copy as command").click()
        await expect(it.page.locator("#news")).to_have_text("Copied.")
        assert await it.page.evaluate("navigator.clipboard.readText()") == (
            "stellwerk queue --all-namespaces"
        )


async def test_hostile_texts_run_nothing(require_tool: Callable[[str], str]) -> None:
    port = ScriptedPort()
    port.answers |= hostile_answers()
    async with (
        open_page(port) as url,
        browser(require_tool) as chromium,
        window(chromium, url, viewport={"width": 400, "height": 900}) as it,
    ):
        for place in (*PLACES[:6], "/pods/a/bound", "/pods/a/waiting", "/pods/a/failed"):
            await it.go(place)
            wide = await it.page.evaluate("document.documentElement.scrollWidth")
            assert wide <= 400, place
        await it.go("/what-if?drain=%22%3E%3Cscript%3Ealert(1)%3C/script%3E")
        await it.page.get_by_role("button", name="Decide").click()
        await expect(it.page.locator("#answer")).to_be_visible()


async def test_when_the_operator_is_away_the_last_data_stay_greyed_with_their_time(
    require_tool: Callable[[str], str],
) -> None:
    port = ScriptedPort()
    working = port.answers["/nodes"]
    async with (
        open_page(port) as url,
        browser(require_tool) as chromium,
        window(chromium, url) as it,
    ):
        await it.go("/nodes")
        data, stale = it.page.get_by_text("There are no nodes."), it.page.locator("#stale")
        await expect(data).to_be_visible()
        port.answers["/nodes"] = NoAnswer("no answer from the operator")
        await expect(stale).to_have_text(
            re.compile(
                r"is of \d+:\d\d:\d\d( [AP]M)?\. no answer from the operator\. Asking again\."
            )
        )
        await expect(data).to_be_visible()
        filtered = await it.page.locator("main > *").first.evaluate(
            "it => getComputedStyle(it).filter"
        )
        assert filtered == "grayscale(1)"
        port.answers["/nodes"] = working
        await expect(stale).to_be_hidden()
        await expect(it.page.locator("main.stale")).to_have_count(0)


COLUMNS = {
    "queue": "Rejected by",
    "decisions": "Node",
    "help": "do",
    "devices": "Held by",
    "owner": "Node",
    "drain": "Node",
    "pod-waiting": "Message",
}
"""The column that one came for, on pages of the tour."""


async def test_on_a_narrow_screen_the_column_one_came_for_is_in_sight(
    require_tool: Callable[[str], str],
) -> None:
    async with touring(require_tool, Size(3)) as (tour, it):
        page = it.page
        await page.set_viewport_size({"width": 380, "height": 900})
        for name, title in COLUMNS.items():
            await it.go(tour.places[name])
            for each in await page.locator("summary").all():
                await each.click()
            header = page.locator("table:not(.heat)").last.locator("th").nth(1)
            await expect(header).to_have_text(title)
            box = await header.bounding_box()
            assert box is not None, name
            assert box["width"] >= 100, f"{name}: words are not broken into letters: {box}"
            assert box["x"] + min(box["width"], 140) <= 380, f"{name}: {box}"
        for name in ("queue", "what-if", "profiles"):
            await it.go(tour.places[name])
            tab = page.locator("nav [aria-current=page]")
            await expect(tab).to_be_in_viewport(ratio=0.9)


async def test_at_800_pixels_nothing_goes_on_beyond_an_edge(
    require_tool: Callable[[str], str],
) -> None:
    async with touring(require_tool, Size(3)) as (tour, it):
        await it.page.set_viewport_size({"width": 800, "height": 900})
        fading: dict[str, list[str | None]] = {}
        for name, place in tour.places.items():
            await it.go(place)
            found = await it.page.locator("main [data-more]:not([data-more=''])").all()
            if found:
                fading[name] = [await each.get_attribute("aria-label") for each in found]
        assert fading == {}


async def test_forms_stand_under_their_heading_with_controls_on_one_line(
    require_tool: Callable[[str], str],
) -> None:
    async with touring(require_tool, Size(3)) as (tour, it):
        await it.page.set_viewport_size({"width": 1400, "height": 900})
        for name in ("queue", "decisions", "nodes", "devices", "help", "what-if"):
            await it.go(tour.places[name])
            heading = await it.page.locator("main h1").first.bounding_box()
            form = it.page.locator("main form.filters")
            box = await form.bounding_box()
            assert heading is not None
            assert box is not None
            assert heading["y"] + heading["height"] <= box["y"], name
            controls = [
                await each.bounding_box()
                for each in await form.locator("input:not([type=hidden]), select, button").all()
            ]
            lines = {(round(each["y"]), round(each["height"])) for each in controls if each}
            assert len(lines) == 1, f"{name}: {controls}"
