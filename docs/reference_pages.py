"""The reference, made from the code: `python docs/reference_pages.py FOLDER`, before Sphinx.

Invariant: no sentence about a field, a command, a metric, a plugin, an annotation or a message is
written here; each is the one that the code has. What stands here is how stable kube-scheduler calls
a metric, and what a level of the log means. The list of messages is that of `make texts`.
"""

import argparse
import ast
import importlib
import inspect
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import yaml

import stellwerk
from stellwerk.metrics import Metrics
from stellwerk.models import troubleshooting
from stellwerk.plugins.registry import DISTRIBUTION, IN_TREE, describe, installed_points
from stellwerk.profiles.spec.crd import crd_manifest
from stellwerk.serving.openapi import openapi_document
from stellwerk_cli import cli
from stellwerk_cli.cli import build_parser
from stellwerk_kube.errors import ConfigurationError, SchedulerError, UnreachableError
from tests.structure.user_texts import Text, texts

if TYPE_CHECKING:
    from stellwerk.framework.interface import Plugin

_STATUSES: Final = (
    "The exit status is 0 if the question was answered; 1 if a name is not there, or something was "
    "refused or failed, and with `--exit-code` also if the answer is no; 2 for a mistake in "
    "arguments, files or kubeconfig; and 3 if the cluster or the operator does not answer."
)
PROFILE_EXAMPLES: Final = Path(__file__).parent / "reference" / "profile-examples.yaml"
_LONGEST_EXAMPLE: Final = 60
MADE: Final = "This page is made from the code when the site is built."
_OURS: Final = re.compile(r"([a-z]+\.)?stellwerk\.dev/(?!v[0-9])[a-z][a-z0-9-]*")
_CODE: Final = re.compile(r"(`[^`]*`)")
_PARAGRAPH_END: Final = re.compile(r"\n\s*\n")


def write(folder: Path) -> list[Path]:
    """Write every page into a folder, those alone that are not as they should be."""
    folder.mkdir(parents=True, exist_ok=True)
    for old in set(folder.glob("*.md")) - {folder / f"{name}.md" for name in PAGES}:
        old.unlink()
    written = []
    for name, page in PAGES.items():
        file, text = folder / f"{name}.md", "\n".join(page()) + "\n"
        if not file.exists() or file.read_text(encoding="utf-8") != text:
            file.write_text(text, encoding="utf-8")
        written.append(file)
    return written


def profile_fields() -> Iterator[str]:
    """The fields of a SchedulerProfile, from the schema of its definition."""
    definition = crd_manifest()["spec"]
    (version,) = definition["versions"]
    schema = version["schema"]["openAPIV3Schema"]
    yield from _head(
        f"Fields of a {definition['names']['kind']}",
        f"`apiVersion: {definition['group']}/{version['name']}`; short name "
        f"`{'`, `'.join(definition['names']['shortNames'])}`. {schema['description']}",
    )
    yield "An example is the first place in the [documents below](#examples) that has the field.\n"
    shown = examples(PROFILE_EXAMPLES)
    rows = (
        (path, kind, default, _shown(shown.get(path.strip("`"))), meaning)
        for path, kind, default, meaning in _fields(schema["properties"], "")
    )
    yield from _table(("field", "type", "default", "example", "meaning"), rows)
    yield "\n## Columns of `kubectl get schedulerprofiles`\n"
    columns = version["additionalPrinterColumns"]
    yield from _table(
        ("column", "from", "meaning"),
        (
            (column["name"], f"`{column['jsonPath']}`", column.get("description", ""))
            for column in columns
        ),
    )
    yield "## Examples\n"
    yield f"```{{literalinclude}} ../{PROFILE_EXAMPLES.name}\n:language: yaml\n:linenos:\n```\n"


def examples(file: Path) -> dict[str, tuple[int, str]]:
    """Field → line and text of the first place where a document of the file uses it."""
    text = file.read_text(encoding="utf-8")
    found: dict[str, tuple[int, str]] = {}
    for document in yaml.compose_all(text, Loader=yaml.SafeLoader):
        _note_examples(document, "", text, found)
    return found


def commands() -> Iterator[str]:
    """Each command with its options and examples, from the parsers."""
    parser = build_parser()
    yield from _head("Commands", parser.description or "")
    yield f"{_STATUSES}\n"
    for name, command in _subcommands(parser):
        yield from _command(name, command, 2)


def metrics() -> Iterator[str]:
    """Each family of /metrics."""
    yield from _head("Metrics", "The families of `/metrics`, in the order in which they appear.")
    yield (
        "Stability is what the source of kube-scheduler v1.36.2 says, read on 2026-11-23: a "
        "STABLE or BETA metric is kept for some releases and an ALPHA one for none. Stellwerk's "
        "own change by the rule of "
        "[releases](../../compatibility.md#what-may-change).\n"
    )
    rows = (
        (
            f"`{family.name}`",
            _kind_of(family),
            _codes(family.label_names),
            _stability(family.name),
            family.text,
        )
        for family in Metrics().families
    )
    yield from _table(("name", "type", "labels", "stability", "meaning"), rows)


def plugins() -> Iterator[str]:
    """Each plugin with its points and arguments."""
    yield from _head("Plugins", "What a profile may name, with its arguments in `pluginConfig`.")
    classes: dict[str, type[Plugin]] = {plugin.name: plugin for plugin in IN_TREE}
    for point in installed_points():
        if point.dist is not None and point.dist.name == DISTRIBUTION:
            classes[point.name] = point.load()
    for name, source in sorted(classes.items()):
        description = describe(source)
        yield f"## {name}\n"
        yield f"{_first_paragraph(source.__doc__)}\n"
        points = sorted(point.value for point in description.extension_points)
        yield f"Extension points: {_codes(points)}\n"
        own = {plugin.name for plugin in IN_TREE}
        known = [
            entry
            for section in troubleshooting.sections()
            for entry in section.entries
            if name in entry.plugins
        ]
        if known:
            place = "../../troubleshooting.md"
            reasons = (f"[{each.cells[0]}]({place}#{each.anchor})" for each in known)
            yield f"Reasons it gives: {'; '.join(reasons)}\n"
        events = list(_events(source)) if name in own else []
        if events:
            yield f"Events that may end its rejection: {_codes(dict.fromkeys(events))}\n"
        model = description.args_model
        if model is None:
            yield "It takes no arguments.\n"
        else:
            yield from _arguments(model.model_json_schema(by_alias=True))


def annotations() -> Iterator[str]:
    """Annotations and labels with the project's prefixes, as the modules that own them say."""
    yield from _head(
        "Annotations and labels",
        "What Stellwerk writes and reads on objects beside their fields; those of the embedded "
        "cluster's stages are with [hollow nodes](../../hollow-nodes.md).",
    )
    rows = sorted(_named_constants())
    yield from _table(("name", "where", "meaning"), rows)


def exit_codes() -> Iterator[str]:
    """The exit statuses of every command, from the kinds of errors that lead to them."""
    yield from _head("Errors by exit status", _STATUSES)
    statuses: dict[int, list[str]] = {}
    for error in _errors(SchedulerError):
        status = _status_of(error)
        statuses.setdefault(status, []).append(error.__name__)
    rows = [("0", "The question was answered, or the work is done.", "")]
    rows += [
        (
            f"{status}",
            _first_paragraph(_WITH_STATUS[status].__doc__),
            _codes(sorted(names)),
        )
        for status, names in sorted(statuses.items())
    ]
    rows.append(("130", "Interrupted by Ctrl-C.", "`KeyboardInterrupt`"))
    yield from _table(("status", "means", "errors"), rows)
    yield "`Unavailable` ends with 3 if no HTTP answer came at all.\n"
    yield "With `--exit-code`, 1 is an answer, too; the help of the command says which.\n"


def messages() -> Iterator[str]:
    """Each message with its meaning, by where a user meets it."""
    yield from _head(
        "Messages",
        "What does this message mean? Search this page for a part of it; `…` stands for what is "
        "filled in. A reason with a link has a remedy in "
        "[Troubleshooting](../../troubleshooting.md).",
    )
    yield (
        "Other texts have pages of their own: options are in [Commands](commands.md), metrics in "
        "[Metrics](metrics.md), fields in [Fields of a SchedulerProfile](profile-fields.md), "
        "arguments in [Plugins](plugins.md), answers in [The port](port.md). The embedded cluster "
        "refuses objects in the words of Kubernetes' API server; these are not listed.\n"
    )
    found = [*texts()]
    told = {_key(each.text) for each in found if each.kind in {"help", "metric", "field"}}
    own = [each for each in found if _key(each.text) not in told and not _is_example(each, told)]
    yield "## Alerts\n"
    alerts: dict[str, dict[str, str]] = {}
    for each in own:
        if each.kind == "alert":
            name, _, annotation = each.place.partition(" ")
            alerts.setdefault(name, {})[annotation] = _FILLED_IN.sub("…", each.text)
    rows = (
        (
            f"[{name}](../../monitoring.md#{name.lower()})",
            f"{alert.get('summary', '')}. {alert.get('description', '')}",
        )
        for name, alert in alerts.items()
    )
    yield from _table(("alert", "it means; the link says what to do"), rows)
    yield "## Log lines\n"
    levels = "; ".join(f"{level}: {meaning}" for level, meaning in _LEVELS.items())
    yield f"Lines of the operator's log, and of commands on standard error. {levels}.\n"
    logged = [each for each in own if each.kind == "log"]
    yield from _table(("message", "level", "module"), _rows(logged, lambda each: each.about))
    yield "## Errors\n"
    yield "They end a command, or are the answer to a request, or follow a name in the log.\n"
    meanings = {error.__name__: error for error in _errors(SchedulerError)}
    errors = [each for each in own if each.kind == "error"]
    yield from _table(
        ("message", "it means", "module"),
        _rows(errors, lambda each: _meaning_of(meanings.get(each.about), each.about)),
    )
    yield "## Reasons, events, conditions and answers of the operator\n"
    said = [each for each in own if each.kind == "message"]
    commands = [each for each in said if each.place.startswith(_COMMANDS)]
    yield from _table(
        ("message", "it means", "module"),
        _rows([each for each in said if not each.place.startswith(_COMMANDS)], _explained),
    )
    yield "## What commands print\n"
    yield from _table(("message", "module"), ((a, c) for a, _, c in _rows(commands, _explained)))
    yield "## The page\n"
    shown = [each for each in own if each.kind == "page"]
    yield from _table(("text", "file"), ((a, c) for a, _, c in _rows(shown, _explained)))


def port() -> Iterator[str]:
    """What the operator's port answers, from its OpenAPI document."""
    document = openapi_document()
    yield from _head(
        "The port",
        "What a program may ask the operator for, beside probes and metrics; `GET /openapi/v3` "
        "answers with this as an OpenAPI document.",
    )
    rows = (
        (f"`{method.upper()} {path}`", operation["summary"])
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    )
    yield from _table(("request", "answer"), rows)
    for name, schema in sorted(document["components"]["schemas"].items()):
        yield f"\n## {name}\n"
        yield f"{_first_paragraph(schema.get('description', ''))}\n"
        if "properties" in schema:
            yield from _properties(schema)


PAGES: Final[Mapping[str, Callable[[], Iterator[str]]]] = {
    "profile-fields": profile_fields,
    "commands": commands,
    "metrics": metrics,
    "plugins": plugins,
    "port": port,
    "annotations": annotations,
    "exit-codes": exit_codes,
    "messages": messages,
}

STABILITY: Final[Mapping[str, str]] = {
    "scheduler_framework_extension_point_duration_seconds": "STABLE",
    "scheduler_pending_pods": "STABLE",
    "scheduler_pod_scheduling_attempts": "STABLE",
    "scheduler_preemption_attempts_total": "STABLE",
    "scheduler_preemption_victims": "STABLE",
    "scheduler_queue_incoming_pods_total": "STABLE",
    "scheduler_schedule_attempts_total": "STABLE",
    "scheduler_scheduling_attempt_duration_seconds": "STABLE",
    "scheduler_goroutines": "BETA",
    "scheduler_permit_wait_duration_seconds": "BETA",
    "scheduler_plugin_evaluation_total": "BETA",
    "scheduler_pod_scheduling_sli_duration_seconds": "BETA",
    "scheduler_unschedulable_pods": "BETA",
    "leader_election_master_status": "ALPHA",
    "leader_election_slowpath_total": "ALPHA",
    "rest_client_request_duration_seconds": "ALPHA",
    "rest_client_request_retries_total": "ALPHA",
    "rest_client_requests_total": "ALPHA",
    "scheduler_cache_size": "ALPHA",
    "scheduler_dra_bindingconditions_allocations_total": "ALPHA",
    "scheduler_dra_bindingconditions_wait_duration_seconds": "ALPHA",
    "scheduler_event_handling_duration_seconds": "ALPHA",
    "scheduler_inflight_events": "ALPHA",
    "scheduler_plugin_execution_duration_seconds": "ALPHA",
    "scheduler_pod_scheduled_after_flush_total": "ALPHA",
    "scheduler_podgroup_schedule_attempts_total": "ALPHA",
    "scheduler_podgroup_scheduling_algorithm_duration_seconds": "ALPHA",
    "scheduler_podgroup_scheduling_attempt_duration_seconds": "ALPHA",
    "scheduler_preemption_goroutines_duration_seconds": "ALPHA",
    "scheduler_preemption_goroutines_execution_total": "ALPHA",
    "scheduler_queueing_hint_execution_duration_seconds": "ALPHA",
    "scheduler_resourceclaim_creates_total": "ALPHA",
    "scheduler_scheduling_algorithm_duration_seconds": "ALPHA",
    "scheduler_volume_binder_cache_requests_total": "ALPHA",
    "scheduler_volume_scheduling_stage_error_total": "ALPHA",
}
"""As `StabilityLevel` says in the source of v1.36.2: pkg/scheduler/metrics/metrics.go, that of the
plugin volumebinding, and component-base's of client-go. Read on 2026-11-23."""
_LEVELS: Final = {
    "info": "nothing to do",
    "warning": "Stellwerk copes with it and continues; look for the cause if it comes often",
    "error": "something failed that should not; the traceback below it belongs into a bug report",
}
_FILLED_IN: Final = re.compile(r"\{\{.*?\}\}")
_COMMANDS: Final = (
    "operator/stellwerk_cli/",
    "operator/stellwerk_cluster/",
    "operator/stellwerk_simulation/",
)
"""Beginnings of places whose texts commands print."""
_MIN_LETTERS_SAID: Final = 12
"""Letters of a message that an entry of Troubleshooting has to share: fewer are a coincidence."""
_MIN_WORDS: Final = 3
"""Words of a text that is listed: shorter ones are names and parts of others."""
_WITH_STATUS: Final = {1: SchedulerError, 2: ConfigurationError, 3: UnreachableError}


def _key(text: str) -> str:
    return " ".join(text.lower().split()).rstrip(".")


def _is_example(each: Text, told: set[str]) -> bool:
    """Whether a text is a command's example, or has too few words for a message."""
    return len(each.text.split()) < _MIN_WORDS or _key(f"stellwerk {each.text}") in told


def _rows(found: Iterable[Text], meaning: Callable[[Text], str]) -> Iterator[tuple[str, str, str]]:
    """(text, meaning, modules) of texts in their order, each text once."""
    places: dict[str, list[str]] = {}
    firsts: dict[str, Text] = {}
    for each in found:
        text = " ".join(each.text.split())
        firsts.setdefault(text, each)
        module = each.place.rpartition(":")[0].removeprefix("operator/").removesuffix(".py")
        places.setdefault(text, []).append(module.replace("/", "."))
    for text in sorted(places, key=lambda text: re.sub(r"^[^a-z]+", "", text.lower())):
        shown = text if "`" in text else f"`{text}`"
        yield shown, meaning(firsts[text]), _codes(dict.fromkeys(places[text]))


def _meaning_of(error: type[SchedulerError] | None, name: str) -> str:
    if error is None:
        is_option = name == "ArgumentTypeError"
        return "A value of an option cannot be used." if is_option else "A part of other messages."
    return f"{_first_paragraph(error.__doc__)} Exit status {_status_of(error)}."


def _status_of(error: type[SchedulerError]) -> int:
    return cli.status_of(error.__new__(error))


def _explained(each: Text) -> str:
    """The meaning of a message in Troubleshooting, with a link to its entry."""
    text = " ".join(each.text.split())
    entries = (entry for section in troubleshooting.sections() for entry in section.entries)
    best = max(entries, key=lambda entry: entry.says(text))
    if best.says(text) < _MIN_LETTERS_SAID:
        return ""
    meaning = best.cells[2 if best.plugins else 1]
    return f"[{meaning or best.cells[0]}](../../troubleshooting.md#{best.anchor})"


def _stability(name: str) -> str:
    if name.startswith("stellwerk_"):
        return "own"
    return STABILITY[name]


def _errors(kind: type[SchedulerError]) -> Iterator[type[SchedulerError]]:
    yield kind
    for below in kind.__subclasses__():
        yield from _errors(below)


def _events(plugin: "type[Plugin]") -> Iterator[str]:
    """The events that a plugin's own code registers, as `Resource: Action`."""
    for node in ast.walk(ast.parse(inspect.getsource(inspect.getmodule(plugin) or plugin))):
        match node:
            case ast.Call(func=ast.Name(id="ClusterEventWithHint"), args=[resource, action, *_]):
                words = re.sub(r"(Resource|Action)\.", "", ast.unparse(action)).split(" | ")
                named = ast.unparse(resource).removeprefix("Resource.")
                yield f"{named}: {', '.join(words)}"


def _named_constants() -> Iterator[tuple[str, str, str]]:
    """(name, module, meaning) of each documented constant that is a name with a prefix of ours."""
    root = Path(stellwerk.__file__).parent.parent
    for file in sorted(root.glob("stellwerk*/**/*.py")):
        text = file.read_text(encoding="utf-8")
        if "stellwerk.dev" not in text and "{GROUP}/" not in text:
            continue
        name = ".".join(file.relative_to(root).with_suffix("").parts)
        body = ast.parse(text).body
        for statement, following in pairwise(body):
            match statement, following:
                case (
                    ast.AnnAssign(target=ast.Name(id=constant)),
                    ast.Expr(value=ast.Constant(value=str(meaning))),
                ):
                    value = getattr(importlib.import_module(name), constant, None)
                    if isinstance(value, str) and _OURS.fullmatch(value):
                        yield f"`{value}`", f"`{name}`", _first_paragraph(meaning)


def _kind_of(family: object) -> str:
    return type(family).__name__.removesuffix("Family").lower()


def _head(title: str, text: str) -> Iterator[str]:
    yield f"# {title}\n"
    yield f"{text}\n"
    yield f"*{MADE}*\n"


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """The rows as Markdown, without a last column in which nothing stands."""
    rows = list(rows)
    if not any(row[-1] for row in rows):
        columns, rows = columns[:-1], [row[:-1] for row in rows]
    yield f"| {' | '.join(columns)} |"
    yield f"|{'---|' * len(columns)}"
    for row in rows:
        yield f"| {' | '.join(_cell(text) for text in row)} |"
    yield ""


def _cell(text: str) -> str:
    """A text for a cell: in code nothing but the bar needs a backslash."""
    parts = _CODE.split(" ".join(text.split()).replace("|", r"\|"))
    parts[::2] = (part.replace("<", r"\<").replace("*", r"\*") for part in parts[::2])
    return "".join(parts)


def _codes(words: Iterable[str]) -> str:
    return ", ".join(f"`{word}`" for word in words)


def _first_paragraph(text: str | None) -> str:
    return " ".join(_PARAGRAPH_END.split((text or "").strip())[0].split())


def _fields(properties: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, str, str, str]]:
    for name, schema in properties.items():
        path = f"{prefix}{name}"
        kind, inner, suffix = _type_of(schema)
        default = f"`{json.dumps(schema['default'])}`" if "default" in schema else ""
        yield f"`{path}`", kind, default, schema.get("description", "")
        yield from _fields(inner, f"{path}{suffix}.")


def _note_examples(
    node: yaml.Node, prefix: str, text: str, found: dict[str, tuple[int, str]]
) -> None:
    match node:
        case yaml.MappingNode():
            for key, value in node.value:
                path = f"{prefix}.{key.value}".lstrip(".")
                written = text[key.start_mark.index : value.end_mark.index]
                found.setdefault(path, (key.start_mark.line + 1, written))
                _note_examples(value, path, text, found)
        case yaml.SequenceNode():
            for item in node.value:
                _note_examples(item, f"{prefix}[]", text, found)


def _shown(example: tuple[int, str] | None) -> str:
    """An example by its line, and as it stands there if it is short."""
    if example is None:
        return ""
    line, text = example
    is_short = "\n" not in text and len(text) <= _LONGEST_EXAMPLE
    return f"`{text}` (line {line})" if is_short else f"line {line}"


def _type_of(schema: Mapping[str, Any]) -> tuple[str, Mapping[str, Any], str]:
    """The type for people, the fields below, and what stands between a name and theirs."""
    kind = schema.get("type") or (
        "integer or string" if "x-kubernetes-int-or-string" in schema else "any"
    )
    if kind == "array":
        inner, below, _ = _type_of(schema["items"])
        return f"list of {inner}", below, "[]"
    if "enum" in schema:
        return _codes(schema["enum"]), {}, ""
    if isinstance(schema.get("additionalProperties"), Mapping):
        inner, below, _ = _type_of(schema["additionalProperties"])
        return f"map to {inner}", below, "{}"
    return kind, schema.get("properties", {}), ""


def _subcommands(
    parser: argparse.ArgumentParser,
) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    for action in parser._actions:  # noqa: SLF001 argparse has no other way to read a parser
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            yield from action.choices.items()


def _command(name: str, parser: argparse.ArgumentParser, depth: int) -> Iterator[str]:
    yield f"{'#' * depth} stellwerk {name}\n"
    yield f"{parser.description or ''}\n"
    formatter = parser.formatter_class(prog=parser.prog, width=96)
    yield f"```text\n{parser.format_usage().strip()}\n```\n"
    rows = []
    for action in parser._actions:  # noqa: SLF001
        if action.help == argparse.SUPPRESS or isinstance(action, argparse._HelpAction):  # noqa: SLF001
            continue
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            continue
        invocation = formatter._format_action_invocation(action)  # noqa: SLF001
        rows.append((f"`{invocation}`", formatter._expand_help(action) if action.help else ""))  # noqa: SLF001
    if rows:
        yield from _table(("argument", "meaning"), rows)
    if parser.epilog:
        yield f"```text\n{parser.epilog.strip()}\n```\n"
    for below, command in _subcommands(parser):
        yield from _command(f"{name} {below}", command, depth + 1)


def _arguments(schema: Mapping[str, Any]) -> Iterator[str]:
    yield "Arguments:\n"
    yield from _properties(schema)


def _properties(schema: Mapping[str, Any]) -> Iterator[str]:
    definitions = schema.get("$defs", {})
    rows = []
    for name, field in schema.get("properties", {}).items():
        default = f"`{json.dumps(field['default'])}`" if field.get("default") is not None else ""
        rows.append(
            (f"`{name}`", _json_type(field, definitions), default, field.get("description", ""))
        )
    yield from _table(("field", "type", "default", "meaning"), rows)


def _json_type(field: Mapping[str, Any], definitions: Mapping[str, Any]) -> str:
    if "$ref" in field:
        name = field["$ref"].rsplit("/", 1)[1]
        target = definitions.get(name, {})
        return _codes(target["enum"]) if "enum" in target else name
    if "anyOf" in field:
        kinds = [_json_type(each, definitions) for each in field["anyOf"]]
        return " or ".join(kind for kind in kinds if kind != "null")
    if "enum" in field:
        return _codes(map(str, field["enum"]))
    if field.get("type") == "array":
        return f"list of {_json_type(field.get('items', {}), definitions)}"
    inner = field.get("additionalProperties")
    if isinstance(inner, Mapping):
        return f"map to {_json_type(inner, definitions)}"
    return str(field.get("type", "any"))


if __name__ == "__main__":
    write(Path(sys.argv[1]))
