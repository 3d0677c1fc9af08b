"""The links inside the built site lead to what is there: a file, and the anchor in it.

`make docs` runs it after Sphinx (`python -m tests.structure.site_anchors build/docs`), because
Sphinx checks the links that it makes, and not the anchors that the page, the terminal and the
alerts use. Invariant: it reads the HTML alone, as a browser does.
"""

import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from typing_extensions import override

from stellwerk.models import troubleshooting

PAGE: Final = "troubleshooting.html"
PLUGINS: Final = "reference/made/plugins.html"
"""The page that links each reason of a plugin to its entry."""


class Page(HTMLParser):
    """The anchors of a page, and the links in it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.feed(text)

    @override
    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.anchors |= {value for key in ("id", "name") if (value := values.get(key))}
        if tag == "a" and (link := values.get("href")):
            self.links.append(link)


def faults(site: Path) -> Iterator[str]:
    """A line for each link that leads nowhere, each entry that no anchor or plugin's reason has."""
    pages = {
        path.resolve(): Page(path.read_text(encoding="utf-8")) for path in site.rglob("*.html")
    }
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            known = pages.get(target)
            if not target.exists():
                yield f"{path.relative_to(site.resolve())}: {link}: no such file"
            elif parts.fragment and known and unquote(parts.fragment) not in known.anchors:
                yield f"{path.relative_to(site.resolve())}: {link}: no such anchor"
    entries = [each for section in troubleshooting.sections() for each in section.entries]
    anchors = pages[(site / PAGE).resolve()].anchors
    yield from (f"{PAGE}: no anchor {e.anchor}" for e in entries if e.anchor not in anchors)
    if reasons := pages.get((site / PLUGINS).resolve()):
        linked = {urlsplit(link).fragment for link in reasons.links}
        lost = (each.anchor for each in entries if each.plugins and each.anchor not in linked)
        yield from (f"{PLUGINS}: no link to {PAGE}#{anchor}" for anchor in lost)


if __name__ == "__main__":
    found = [*faults(Path(sys.argv[1]))]
    sys.stdout.writelines(f"{line}\n" for line in found)
    sys.exit(bool(found))
