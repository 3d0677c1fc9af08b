"""The site: Sphinx over the Markdown of this folder, with a reference made from the code.

`make docs` builds it. Invariant: it needs no network, and a link or anchor that leads nowhere is an
error.
"""

import os
import re
from pathlib import Path
from typing import Any, Final

from docutils import nodes
from pygments.lexer import RegexLexer, bygroups
from pygments.lexers import TextLexer
from pygments.token import Generic, Text
from sphinx.ext.napoleon import Config, GoogleDocstring

from stellwerk import __version__
from stellwerk.models import troubleshooting

HERE: Final = Path(__file__).parent
project = "Stellwerk"
author = "the Stellwerk authors"
release = version = __version__
extensions = ["myst_parser", "sphinx.ext.autodoc"]
exclude_patterns = ["examples/README.md", "faults/README.md", "examples/**/README.md"]
html_theme = "furo"
html_title = f"Stellwerk {release}"
html_copy_source = False
html_static_path = ["static"]
html_css_files = ["copying.css", "cards.css"]
html_show_sphinx = False
myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence"]
autodoc_member_order = "bysource"
autodoc_typehints = "description"
linkcheck_timeout = 20

NAPOLEON: Final = Config(napoleon_use_ivar=True)
_LINK: Final = re.compile(r"\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)#:\s]+)(#[^)\s]*)?\)")
_CODE: Final = re.compile(r"^(```+|~~~+).*?^\1", re.DOTALL | re.MULTILINE)


class ConsoleLexer(RegexLexer):  # type: ignore[misc] Pygments is without types
    """Blocks of commands: behind `$ ` and `> ` what is typed, here-documents too, and output."""

    name = "Console"
    tokens = {  # noqa: RUF012 as Pygments reads it
        "root": [
            (r"^([$>] )(.*\n)", bygroups(Generic.Prompt, Text)),
            (r".*\n", Generic.Output),
        ]
    }


def outside_links(_: Any, docname: str, source: list[str]) -> None:  # noqa: ANN401 Sphinx
    """Replace links to what the site does not have by what they say.

    Files of the repository outside docs/, and folders, are read where the repository is.
    """
    folder = (HERE / f"{docname}.md").parent

    def shown(link: re.Match[str]) -> str:
        path = Path(os.path.normpath(folder / link[2]))
        inside = path.is_relative_to(HERE) and path.is_file()
        if inside and path.is_symlink():  # MyST would look for the page where the link leads
            page = path.relative_to(HERE).with_suffix("").as_posix()
            role, target = ("ref", f"{page}-{link[3][1:]}") if link[3] else ("doc", f"/{page}")
            return f"{{{role}}}`{link[1].replace('`', '')} <{target}>`"
        if inside and path.suffix == ".md" and path.name == "README.md":
            inside = False
        return link[0] if inside or not path.exists() else link[1]

    source[0] = _LINK.sub(shown, source[0])


def name_entries(app: Any, tree: nodes.document) -> None:  # noqa: ANN401 Sphinx
    """Give each entry of the page on troubleshooting its anchor, and a label for other pages."""
    page = app.env.docname
    if page != "troubleshooting":
        return
    labels = app.env.domains["std"].anonlabels
    tables = list(tree.findall(nodes.table))
    for section, table in zip(troubleshooting.sections(), tables, strict=True):
        (body,) = table.findall(nodes.tbody)
        for entry, row in zip(section.entries, body.children, strict=True):
            row["ids"].append(entry.anchor)
            labels[f"{page}-{entry.anchor}"] = page, entry.anchor


def google_docstring(_: Any, what: str, *described: Any) -> None:  # noqa: ANN401 Sphinx
    """Read sections of docstrings as ours are written; attributes have none."""
    lines = described[-1]
    if what not in {"attribute", "property", "data"}:
        lines[:] = GoogleDocstring(lines, NAPOLEON, what=what).lines()


def setup(app: Any) -> None:  # noqa: ANN401 Sphinx
    """Prepare the reading of pages and docstrings."""
    app.connect("source-read", outside_links)
    app.connect("doctree-read", name_entries)
    app.connect("autodoc-process-docstring", google_docstring)
    app.add_lexer("mermaid", TextLexer)
    app.add_lexer("console", ConsoleLexer)
