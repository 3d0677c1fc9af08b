"""The page in a browser: headless Chromium, as a user would meet it.

What is judged: it shows what has just happened and follows, nothing is logged as an error, nothing
is loaded from elsewhere, every text is legible, and it can be used by keyboard, at both widths.
"""

import os
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import pytest

from stellwerk.client.operator_port import NoAnswer
from stellwerk.page.server import open_page
from tests.support.builders import make_pod
from tests.support.device_cases import device, held
from tests.support.explaining_port import explaining_port, two_nodes, with_devices
from tests.support.hostile_answers import hostile_answers
from tests.support.in_process import quiet
from tests.support.page_window import AcceptedSpecs, ScriptedPort, Through
from tests.support.pod_groups import make_group, make_member
from tests.support.processes import Process, fetch, running, server_of, until
from tests.support.repository import ROOT

try:
    import axe_playwright_python
    from playwright.async_api import Browser, Page, ViewportSize, async_playwright, expect
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
AXE = Path(axe_playwright_python.__file__).parent / "axe.min.js"
LEGIBILITY = ROOT / "tests" / "support" / "legibility.js"


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
        cells = page.locator("table.scores td.cell")
        assert await cells.count() % 3 == 0
        assert await cells.count() >= 9, "three nodes × some plugins"


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
        assert await focused(page) == "Skip to the content"
        await keys.press("Enter")
        assert await page.evaluate("document.activeElement.id") == "content"
        await it.go("/")
        await tab_to(page, "Profiles")
        await keys.press("Enter")
        await expect(page.get_by_role("heading", name="Profiles")).to_be_visible()
        await tab_to(page, "pod-name")
        await keys.type("default/large")
        await keys.press("Enter")
        await expect(page.get_by_role("heading", name="default/large")).to_be_visible()
        await tab_to(page, "Nodes and the plugins that turn them away")
        await it.go("/what-if")
        await tab_to(page, "drain")
        await keys.type("node-1")
        await keys.press("Enter")
        await expect(page.get_by_role("heading", name="If node-1 were drained")).to_be_focused()


async def tab_to(page: Page, name: str) -> None:
    """Press Tab until an element of this name or id has the focus, which must be seen each time."""
    for _ in range(100):
        await page.keyboard.press("Tab")
        outline = await page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
        assert outline == "solid"
        if await focused(page) == name:
            return
    pytest.fail(f"{name} cannot be reached by keyboard")


async def focused(page: Page) -> str:
    """The label, id or text of what has the focus."""
    name: str = await page.evaluate(
        "(it => it.getAttribute('aria-label') || it.id || it.textContent.trim())"
        "(document.activeElement)"
    )
    return name


JUDGED = (
    *PLACES[:5],
    "/devices",
    "/devices?state=held",
    "/queue?queue=gated&q=gat",
    "/decisions?node=small",
    "/nodes?sort=cpu&label=zone",
    "/nodes/small",
    "/nodes/a",
    "/claims/default/used",
    "/groups/default/team",
    "/owners/default/ReplicaSet/web",
    "/profiles/stellwerk",
    "/profiles/stellwerk?try=yes&NodeResourcesFit=9",
    "/pods/default/web",
    "/pods/default/large",
    "/pods/default/holder",
    "/pods/default/we",
    "/what-if?drain=small&decide=yes",
    "/what-if?drain=none&decide=yes",
    "/help",
)


@pytest.mark.parametrize(("width", "scheme"), [(380, "light"), (1400, "dark")])
async def test_axe_finds_nothing_on_any_page(
    width: int, scheme: Literal["light", "dark"], require_tool: Callable[[str], str]
) -> None:
    async with explaining_port() as operator:
        await two_nodes(operator)
        devices = [device("gpu-0"), device("gpu-1")]
        with_devices(operator, held("used", "gpu-1", by="holder"), devices=devices)
        operator.world.apply(make_group("team", 2), make_member("member", "team"))
        named = [{"name": "c", "resourceClaimName": "used"}]
        operator.world.apply(make_pod("holder", cpu="1", node_name="a", resourceClaims=named))
        gates = [{"name": "g"}]
        operator.world.apply(make_pod("gated", scheduler_name="stellwerk", schedulingGates=gates))
        await quiet(100)
        viewport: ViewportSize = {"width": width, "height": 900}
        async with (
            open_page(Through(operator), api=AcceptedSpecs()) as url,
            browser(require_tool) as chromium,
            window(chromium, url, viewport=viewport, color_scheme=scheme) as it,
        ):
            wrong = {}
            for place in JUDGED:
                await it.go(place)
                assert await it.page.evaluate("document.documentElement.scrollWidth") <= width
                await it.page.evaluate(AXE.read_text(encoding="utf-8"))
                found = await it.page.evaluate("axe.run()")
                assert len(found["passes"]) > 10, place
                for each in found["violations"]:
                    wrong[place, each["id"]] = [node["html"] for node in each["nodes"]]
            assert wrong == {}


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


async def test_when_the_operator_ends_the_page_says_so_and_comes_back(
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
        await expect(it.page.get_by_text("There are no nodes.")).to_be_visible()
        port.answers["/nodes"] = NoAnswer("no answer from the operator")
        await expect(it.page.get_by_text("no answer from the operator")).to_be_visible()
        port.answers["/nodes"] = working
        await expect(it.page.get_by_text("There are no nodes.")).to_be_visible()
