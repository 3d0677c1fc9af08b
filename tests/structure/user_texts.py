"""Every text that a user can meet, with its place, and a report on the words: `make texts`.

Texts are those of documents, of `--help`, of messages in the code (log lines at INFO and above,
errors, conditions, events, whatever a command prints), of the page with its script, the chart, the
manifests, the definition, the arguments of plugins, the answers' fields, the alerts and the
dashboard. Texts that repeat Kubernetes' own to the letter are a kind of their own. The report lists
long sentences, words that plain English avoids, and long lines. It is to be read: no limit fails,
because what needs judgement is no rule. `docs/reference_pages.py` makes the page of messages of it.
"""

import argparse
import ast
import json
import re
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, Final

import yaml
from typing_extensions import override

from stellwerk.metrics import Metrics
from stellwerk.plugins.registry import known_plugins
from stellwerk.profiles.spec.crd import crd_manifest
from tests.structure.texts import documents, modules
from tests.support.command_line import commands
from tests.support.repository import ROOT

MAX_SENTENCE_WORDS: Final = 35
"""Words of a sentence that a reader takes in at once; longer ones are reported."""
MAX_LINE_CHARACTERS: Final = 120
"""Characters of a line that an editor shows beside another file; longer ones are reported."""
AVOIDED: Final = re.compile(
    r"\b(anew|besides?|otherwise|all the same|in hand|in vain|by other hands|so long|so many"
    r"|of which(?!\ shape)|be it|is asked about|it is looked|looked at|lies? in|typical|ask of"
    r"|of before|foretold|spares?|turn(?:s|ed)? away|in place of|in its place|for want of|taken? up"
    r"|taken? over|any more|stands? there|is there and|goes? on)\b"
    r"|,\ too\b|(?<!there\ )\b(?:is|are)\ no\ (?!longer\b|more\b)",
    re.IGNORECASE,
)
"""Words and phrases that a reader of plain English stumbles over; many have a right use."""
UPSTREAM: Final = (
    "stellwerk_cluster/validation/",
    "stellwerk_cluster/apimachinery/",
    "stellwerk_cluster/admission/",
    "stellwerk_cluster/apiserver/",
    "stellwerk_cluster/controllers/",
    "stellwerk_cluster/defaults/",
    "stellwerk_cluster/hollow/eviction_",
    "stellwerk_cluster/hollow/kubelet.py",
    "stellwerk_cluster/hollow/pod_",
    "stellwerk_cluster/identity/",
    "stellwerk_cluster/registry/",
    "stellwerk_kube/admission.py",
    "stellwerk_kube/cel/",
    "stellwerk_kube/schema/",
)
"""Beginnings of modules whose texts are Kubernetes' own: its API server's, kubelet's, CEL's."""
_OWN: Final = frozenset(
    {
        "stellwerk_cluster/registry/data_directory.py",
        "stellwerk_cluster/identity/secret_files.py",
    }
)
"""Modules below `UPSTREAM` whose texts are ours."""
_TABLES: Final = frozenset(
    {
        "stellwerk/journal/hashing.py",
        "stellwerk/journal/recorded_fields.py",
        "stellwerk_cli/commands/completion.py",
        "stellwerk_kube/cel/parser.py",
    }
)
"""Modules whose long strings are tables of names, or scripts."""
_LOGGED: Final = frozenset({"info", "warning", "error", "exception", "critical"})
_SENTENCE_END: Final = re.compile(r"(?<=[.!?:;])\s+(?=[A-Z`*\[(])")
_FENCED: Final = re.compile(r"^(```+|~~~+).*?^\1[^\n]*$", re.DOTALL | re.MULTILINE)
_FILLED_IN: Final = re.compile(r"%[.0-9]*[sdrf]")
_MARKUP: Final = ("<", ":root", "text{", "\nbody {")
"""Beginnings of strings that are HTML or CSS."""
_SENTENCE_OF_CODE: Final = re.compile(r"[a-z]+ [a-z…{]+ ?[a-z…{]+")
"""Three words in a row: anything shorter in the code is a name and no text."""


@dataclass(frozen=True)
class Text:
    """A text, where it stands, and what kind of text it is."""

    kind: str
    place: str
    text: str
    about: str = ""
    """Of a log line its level, of an error its class."""


def texts() -> Iterator[Text]:
    """Every text, kind by kind."""
    yield from _of_documents()
    yield from _of_help()
    yield from _of_code()
    yield from _of_the_page()
    yield from _of_the_chart()
    yield from _of_manifests()
    for family in Metrics().families:
        yield Text("metric", family.name, family.text)
    yield from _of_arguments()
    yield from _of_answers()


def _of_documents() -> Iterator[Text]:
    """Paragraphs, list items and table cells, without code blocks."""
    for path in documents():
        source = (ROOT / path).read_text(encoding="utf-8")
        source = _FENCED.sub(lambda block: "\n" * block[0].count("\n"), source)
        paragraph: list[str] = []
        begun = 1
        for number, line in enumerate([*source.splitlines(), ""], start=1):
            ends = not line.strip() or line.startswith(("#", "|", "<!--"))
            if paragraph and (ends or re.match(r"\s*([-*]|\d+\.) ", line)):
                yield Text("document", f"{path}:{begun}", " ".join(paragraph))
                paragraph = []
            if line.startswith("|"):
                cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)]
                yield from (
                    Text("document", f"{path}:{number}", cell) for cell in cells if " " in cell
                )
            elif not ends:
                begun = begun if paragraph else number
                paragraph.append(line.strip().removeprefix("- "))


def _of_help() -> Iterator[Text]:
    """Descriptions, options and examples of every command."""
    for words, parser in commands():
        place = f"stellwerk {words} --help"
        if parser.description:
            yield Text("help", place, parser.description)
        for line in (parser.epilog or "").splitlines():
            if line.strip():
                yield Text("help", f"{place} (examples)", line.strip())
        for action in parser._actions:  # noqa: SLF001 argparse shows its options nowhere else
            if action.help and action.help != argparse.SUPPRESS:
                name = max(action.option_strings, key=len, default=action.dest)
                yield Text("help", f"{place} {name}", action.help)


def _of_code() -> Iterator[Text]:
    """Strings of the code that read as text, by what is done with them."""
    for path, source in modules().items():
        if path in _TABLES:
            continue
        is_upstream = path.startswith(UPSTREAM) and path not in _OWN
        for kind, line, shown, about in _strings(ast.parse(source)):
            whose = "upstream" if is_upstream else kind
            yield Text(whose, f"operator/{path}:{line}", shown, about)


def _strings(tree: ast.Module) -> Iterator[tuple[str, int, str, str]]:
    """(kind, line, text, level or class) of the strings of a module that read as text."""
    nodes = [*ast.walk(tree)]
    silent = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}  # docstrings
    told: dict[int, tuple[str, str]] = {}
    for node in nodes:
        for each, kind, about in _told(node):
            for inner in ast.walk(each):
                told.setdefault(id(inner), (kind, about))
        if isinstance(node, ast.Call) and _is_quiet(node):
            silent.update(id(inner) for inner in ast.walk(node))
        if isinstance(node, ast.JoinedStr):
            silent.update(id(inner) for inner in node.values)
    for node in nodes:
        shown = "" if id(node) in silent else _string(node)
        if _SENTENCE_OF_CODE.search(shown) and not shown.lstrip().startswith(_MARKUP):
            kind, about = told.get(id(node), ("message", ""))
            shown = _FILLED_IN.sub("…", shown) if kind == "log" else shown
            yield kind, getattr(node, "lineno", 0), shown, about


def _told(node: ast.AST) -> Iterator[tuple[ast.AST, str, str]]:
    """(part, kind, level or class) of what a statement writes into the log or raises."""
    if isinstance(node, ast.Raise) and node.exc is not None:
        raised = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
        yield node.exc, "error", ast.unparse(raised).rpartition(".")[2]
    if (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in _LOGGED
        and "log" in ast.unparse(node.func.value).lower()
    ):
        level = "error" if node.func.attr == "exception" else node.func.attr
        yield from ((each, "log", level) for each in node.args)


def _is_quiet(node: ast.Call) -> bool:
    """Whether a call writes into the log below INFO, or compiles a pattern."""
    called = ast.unparse(node.func)
    return called.endswith((".debug", ".trace", "re.compile")) or called in {"NewType", "TypeVar"}


def _string(node: ast.AST) -> str:
    """A string as a reader sees it; what is filled in is an ellipsis."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    if isinstance(node, ast.JoinedStr):
        return "".join(
            str(each.value) if isinstance(each, ast.Constant) else "…" for each in node.values
        )
    return ""


class _Words(HTMLParser):
    """The words of a template, line by line, and those of its attributes, without its scripts."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[int, str]] = []

    @override
    def handle_data(self, data: str) -> None:
        self._note(data)
        for expression in re.findall(r"\{[{%](.*?)[%}]\}", data, re.DOTALL):
            for literal in re.findall(r'"([^"]+)"', expression):
                if _SENTENCE_OF_CODE.search(literal):
                    self._note(literal)

    @override
    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in {"title", "aria-label", "placeholder", "alt"} and value:
                self._note(value)

    def _note(self, data: str) -> None:
        shown = re.sub(r"\{%.*?%\}|\{#.*?#\}", "", data, flags=re.DOTALL)
        shown = re.sub(r"\{\{.*?\}\}", "…", shown, flags=re.DOTALL)
        if re.search(r"[a-z]{3}", shown):
            self.found.append((self.getpos()[0], " ".join(shown.split())))


def _of_the_page() -> Iterator[Text]:
    page = ROOT / "operator" / "stellwerk_cli" / "page"
    for file in sorted((page / "templates").glob("*.html")):
        parser = _Words()
        # Jinja's tags may hold what HTML would end at.
        parser.feed(file.read_text(encoding="utf-8"))
        for line, shown in parser.found:
            yield Text("page", f"{file.relative_to(ROOT)}:{line}", shown)
    script = page / "static" / "page.js"
    for number, code in enumerate(script.read_text(encoding="utf-8").splitlines(), start=1):
        for literal in re.findall(r'"([^"]+)"', code):
            if re.search(r"[A-Za-z]+ [a-z]+ [a-z]+", literal):
                yield Text("page", f"{script.relative_to(ROOT)}:{number}", literal)


def _of_arguments() -> Iterator[Text]:
    """Descriptions of the arguments of plugins, which stand in `pluginConfig`."""
    for name, plugin in sorted(known_plugins().items()):
        model = plugin.args_model
        if model is not None:
            yield from _of_schema("field", model.model_json_schema(by_alias=True), name)


def _of_answers() -> Iterator[Text]:
    """Descriptions of the fields of answers in JSON."""
    yield from _of_schema("answer", json.loads((ROOT / "docs/answers.json").read_text()), "answers")


def _of_schema(kind: str, schema: Any, path: str) -> Iterator[Text]:
    """Descriptions in a JSON schema, with those of its definitions."""
    if isinstance(schema, list):
        for each in schema:
            yield from _of_schema(kind, each, path)
    elif isinstance(schema, dict):
        if isinstance(schema.get("description"), str):
            yield Text(kind, path, schema["description"])
        for name, below in schema.items():
            inner = path if name in {"properties", "$defs", "items"} else f"{path}.{name}"
            yield from _of_schema(kind, below, inner)


def _of_the_chart() -> Iterator[Text]:
    """Notes, and comments of the values."""
    chart = ROOT / "charts" / "stellwerk"
    for file in (chart / "templates" / "NOTES.txt", chart / "values.yaml"):
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), start=1):
            shown = line.strip().removeprefix("#").strip()
            is_text = file.suffix == ".txt" or line.strip().startswith("#")
            if is_text and " " in shown and not shown.startswith("{{"):
                yield Text("chart", f"{file.relative_to(ROOT)}:{number}", shown)


def _of_manifests() -> Iterator[Text]:
    """Comments of the manifests, titles of the dashboard, alerts, and fields of a profile."""
    manifests = ROOT / "manifests"
    for file in sorted(manifests.rglob("*.yaml")):
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), start=1):
            shown = line.strip().removeprefix("# ")
            if shown != line.strip() and " " in shown:
                yield Text("manifest", f"{file.relative_to(ROOT)}:{number}", shown)
    dashboard = manifests / "monitoring" / "dashboard.json"
    for panel in json.loads(dashboard.read_text(encoding="utf-8"))["panels"]:
        yield Text("dashboard", f"{dashboard.relative_to(ROOT)}", panel["title"])
    rules = ROOT / "manifests" / "monitoring" / "rules.yaml"
    loaded = yaml.safe_load(rules.read_text(encoding="utf-8"))
    for group in loaded.get("groups") or loaded["spec"]["groups"]:
        for rule in group["rules"]:
            for name, shown in rule.get("annotations", {}).items():
                yield Text("alert", f"{rule.get('alert', '')} {name}", str(shown))
    (version,) = crd_manifest()["spec"]["versions"]
    yield from _of_fields(version["schema"]["openAPIV3Schema"], "profile")


def _of_fields(schema: dict[str, Any], path: str) -> Iterator[Text]:
    if "description" in schema:
        yield Text("field", path, schema["description"])
    for name, below in schema.get("properties", {}).items():
        yield from _of_fields(below, f"{path}.{name}")
    if isinstance(schema.get("items"), dict):
        yield from _of_fields(schema["items"], f"{path}[]")


def sentences(text: str) -> Iterator[str]:
    """The sentences of a text."""
    for part in re.split(r"\n\s*\n|\n(?=\S+ {2})", text):  # paragraphs, and rows of a table
        yield from _SENTENCE_END.split(" ".join(part.split()))


def report(found: list[Text]) -> Iterator[str]:
    """The lines of the report: what to look at with its place, and then the counts."""
    counts: Counter[tuple[str, str]] = Counter()
    for each in found:
        counts[each.kind, "texts"] += 1
        for sentence in sentences(each.text):
            counts[each.kind, "sentences"] += 1
            if (words := len(sentence.split())) > MAX_SENTENCE_WORDS:
                counts[each.kind, "long sentences"] += 1
                yield f"{each.place}: {words} words: {sentence}"
        for avoided in sorted({found[0].lower() for found in AVOIDED.finditer(each.text)}):
            counts[each.kind, "words"] += 1
            yield f'{each.place}: "{avoided}": {" ".join(each.text.split())}'
    for path in documents():
        for number, line in enumerate(_lines(ROOT / path), start=1):
            if len(line) > MAX_LINE_CHARACTERS and not line.startswith("|"):
                counts["document", "long lines"] += 1
                yield f"{path}:{number}: {len(line)} characters"
    columns = ("texts", "sentences", "long sentences", "words", "long lines")
    yield ""
    yield f"{'':10}" + "".join(f"{name:>16}" for name in columns)
    for kind in dict.fromkeys(kind for kind, _ in counts):
        yield f"{kind:10}" + "".join(f"{counts[kind, name]:>16,}" for name in columns)


def _lines(path: Path) -> list[str]:
    """A page's lines, with those of code blocks empty: what a program prints stays as it is."""
    text = path.read_text(encoding="utf-8")
    return _FENCED.sub(lambda block: "\n" * block[0].count("\n"), text).splitlines()


def main() -> None:
    """Print every text, or the report."""
    parser = argparse.ArgumentParser(description="Every text that a user can meet.")
    parser.add_argument("--report", action="store_true", help="print the report alone")
    options = parser.parse_args()
    found = [*texts()]
    if not options.report:
        sys.stdout.writelines(
            f"{each.place}: [{each.kind}] {' '.join(each.text.split())}\n" for each in found
        )
    sys.stdout.writelines(f"{line}\n" for line in report(found))


if __name__ == "__main__":
    main()
