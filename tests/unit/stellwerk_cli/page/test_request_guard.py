"""The page's guard lets its own windows on this machine through, and nothing else."""

import socket
from pathlib import Path

import aiohttp
import pytest

from stellwerk_cli.page.server import open_page
from tests.support.page_window import ScriptedPort, opened


async def test_without_the_key_nothing_is_answered_and_nothing_asked() -> None:
    port = ScriptedPort()
    async with opened(port, with_key=False) as window:
        for path in ("/", "/static/page.css", "/pods/default/web", "/?key=wrong", "/?key=ä"):
            status, text = await window.get(path)
            assert (status, "holds the key" in text) == (403, True), path
    assert port.asked == []


@pytest.mark.parametrize(
    ("host", "status"),
    [
        pytest.param("127.0.0.1:1234", 200, id="another port, forwarded to this one"),
        pytest.param("localhost", 200, id="the name of this machine to itself"),
        pytest.param("[::1]:80", 200, id="loopback of IPv6"),
        pytest.param("rebound.example", 403, id="a name that was bound anew"),
        pytest.param("127.0.0.1.example", 403, id="a name that begins as an address"),
        pytest.param("", 403, id="no host"),
        pytest.param("[::1", 403, id="no address at all"),
    ],
)
async def test_other_hosts_are_refused(host: str, status: int) -> None:
    async with opened() as window:
        # The cookie is sent as a browser would send it to a name that leads here.
        got, _ = await window.get("/", Host=host)
        assert got == status


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        pytest.param({"Sec_Fetch_Site": "same-origin", "Sec_Fetch_Mode": "cors"}, 200, id="itself"),
        pytest.param({"Sec_Fetch_Site": "none", "Sec_Fetch_Mode": "navigate"}, 200, id="the user"),
        pytest.param(
            {
                "Sec_Fetch_Site": "cross-site",
                "Sec_Fetch_Mode": "navigate",
                "Sec_Fetch_Dest": "document",
            },
            200,
            id="a link elsewhere",
        ),
        pytest.param(
            {
                "Sec_Fetch_Site": "cross-site",
                "Sec_Fetch_Mode": "navigate",
                "Sec_Fetch_Dest": "iframe",
            },
            403,
            id="a frame elsewhere",
        ),
        pytest.param(
            {"Sec_Fetch_Site": "same-site", "Sec_Fetch_Mode": "no-cors", "Sec_Fetch_Dest": "image"},
            403,
            id="a picture in a page of another port",
        ),
        pytest.param({"Origin": "http://evil.example"}, 403, id="a script elsewhere"),
    ],
)
async def test_other_sites_cannot_read(headers: dict[str, str], status: int) -> None:
    async with opened() as window:
        assert (await window.get("/", **headers))[0] == status


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        pytest.param("http://evil.example", 403, id="another site"),
        pytest.param("null", 403, id="a page without an origin"),
        pytest.param("", 403, id="no origin said"),
        pytest.param(None, 200, id="the page itself"),
    ],
)
async def test_other_sites_cannot_send_forms(origin: str | None, status: int) -> None:
    port = ScriptedPort()
    port.answers["/what-if"] = {"placed": [], "unplaced": []}
    async with opened(port) as window:
        asked = sum(path == "/what-if" for path, _ in port.asked)
        got, _ = await window.post("/what-if", {"drain": "node-1"}, origin)
        assert got == status
        sent = sum(path == "/what-if" for path, _ in port.asked)
        assert sent - asked == (status == 200)


async def test_every_answer_forbids_what_a_browser_could_do_with_it() -> None:
    async with opened() as window:
        for path in ("/", "/nothing-here", "/search?q=a", "/static/page.js"):
            _, _, headers = await window.whole(path)
            policy = headers["Content-Security-Policy"]
            assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'"), (
                path
            )
            assert "unsafe" not in policy
            assert "frame-ancestors 'none'" in policy
            assert headers["X-Content-Type-Options"] == "nosniff"
            assert headers["Cache-Control"] == "no-store"
            # With no-referrer, browsers would send "null" as the origin of the page's own forms.
            assert headers["Referrer-Policy"] == "same-origin"


async def test_the_key_leaves_the_address_and_no_script_can_read_it() -> None:
    async with opened(with_key=False) as window:
        path = window.url.removeprefix(window.origin)
        async with window.plain().get(window.origin + path, allow_redirects=False) as answer:
            assert (answer.status, answer.headers["Location"]) == (303, "/")
            cookie = answer.headers["Set-Cookie"]
        bookmark = f"/nodes{path.removeprefix('/')}&page=2&q=a%26b%20c"
        async with window.plain().get(window.origin + bookmark, allow_redirects=False) as answer:
            assert answer.headers["Location"] == "/nodes?page=2&q=a%26b+c"
        assert "HttpOnly" in cookie
        assert "SameSite=Lax" in cookie


async def test_a_page_on_a_port_of_its_own_keeps_its_key_and_its_bookmarks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", f"{tmp_path}")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        number = free.getsockname()[1]
    jar = aiohttp.CookieJar(unsafe=True)
    async with aiohttp.ClientSession(cookie_jar=jar) as session:
        async with open_page(ScriptedPort(), number) as first, session.get(first) as answer:
            assert answer.status == 200
            assert "Max-Age=2592000" in answer.history[0].headers["Set-Cookie"]
        async with open_page(ScriptedPort(), number) as again:
            assert again == first
            # A window or a bookmark of before, and one with the key in it.
            for place in ("/nodes?q=a&page=2", f"/nodes?q=a&page=2&key={first.partition('=')[2]}"):
                async with session.get(f"http://127.0.0.1:{number}{place}") as answer:
                    assert (answer.status, answer.url.query_string) == (200, "q=a&page=2")
