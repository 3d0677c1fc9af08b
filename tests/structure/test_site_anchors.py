"""The check of the built site finds links without a file or without an anchor, and no others."""

from pathlib import Path

from stellwerk.models import troubleshooting
from tests.structure.site_anchors import PAGE, PLUGINS, faults


def site(folder: Path, link: str) -> Path:
    """A site of two pages, of which the second has one link."""
    entries = [each for section in troubleshooting.sections() for each in section.entries]
    rows = "".join(f'<tr id="{each.anchor}"></tr>' for each in entries)
    (folder / PAGE).write_text(f"<table>{rows}</table>")
    (folder / "plugins.html").write_text(f'<h1 id="top">Plugins</h1><a href="{link}">it</a>')
    return folder


def test_links_that_lead_somewhere_are_no_faults(tmp_path: Path) -> None:
    for link in (f"{PAGE}#insufficient", PAGE, "#top", "https://example.com/none.html#none"):
        assert list(faults(site(tmp_path, link))) == []


def test_an_anchor_and_a_file_that_are_not_there_are_named(tmp_path: Path) -> None:
    for link, fault in (
        (f"{PAGE}#none", "no such anchor"),
        ("#none", "no such anchor"),
        ("none.html", "no such file"),
    ):
        assert list(faults(site(tmp_path, link))) == [f"plugins.html: {link}: {fault}"]


def test_an_entry_without_its_anchor_is_named(tmp_path: Path) -> None:
    folder = site(tmp_path, PAGE)
    text = (folder / PAGE).read_text()
    (folder / PAGE).write_text(text.replace('id="insufficient"', ""))
    assert list(faults(folder)) == [f"{PAGE}: no anchor insufficient"]


def test_a_reason_that_does_not_lead_to_its_entry_is_named(tmp_path: Path) -> None:
    folder = site(tmp_path, PAGE)
    entries = [each for section in troubleshooting.sections() for each in section.entries]
    anchors = [each.anchor for each in entries if each.plugins]
    links = [f'<a href="../../{PAGE}#{anchor}">it</a>' for anchor in anchors]
    page = folder / PLUGINS
    page.parent.mkdir(parents=True)
    page.write_text("".join(links))
    assert list(faults(folder)) == []
    page.write_text("".join(links[1:]) + f'<a href="../../{PAGE}">it</a>')
    assert list(faults(folder)) == [f"{PLUGINS}: no link to {PAGE}#{anchors[0]}"]
