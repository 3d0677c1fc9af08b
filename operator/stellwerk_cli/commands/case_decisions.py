"""`stellwerk decide`: cases in, one result line out for each, or a table to read.

Called by the command line. Invariant: results come in the order of the cases; the first broken one
ends the run with its number and field, after the results before it were printed.
"""

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, BinaryIO, Final, TextIO

import orjson
import yaml

from stellwerk.answers.answer import codec
from stellwerk.answers.pod import DevicesOfPod
from stellwerk.answers.what_if import TemplateOutcome, WhatIf
from stellwerk_cli.commands.printer import console
from stellwerk_cli.commands.what_if_table import print_template
from stellwerk_kube.clock import SystemClock, rfc3339_seconds
from stellwerk_kube.compatibility import AS_RECORDED, Compatibility, decided_as
from stellwerk_kube.errors import AbsentError, ConfigurationError, ProfileError
from stellwerk_kube.file_limits import UTF16_MARKS, as_utf8
from stellwerk_kube.json_values import JsonObject
from stellwerk_kube.untrusted_text import json_escaped, printable_lines
from stellwerk_simulation.cases.case_files import Read, cases_of, read_cases
from stellwerk_simulation.cases.decide import TEMPLATE_FIELD, CaseError, decide, decide_template
from stellwerk_simulation.cases.plugin_cases import decide_plugin_case, is_plugin_case

MAX_CASE_BYTES: Final = 256 << 20
"""Bytes of a line, which may be a whole cluster as JSON. Python needs several times as many."""

_TABLES: Final = frozenset({"table", "wide"})


def decide_lines(
    path: str,
    *,
    form: str = "json",
    output: TextIO | None = None,
    pod_key: str = "",
    choose: Callable[[bool], Compatibility] = lambda _: AS_RECORDED,
    read: Read = list,
) -> int:
    """Decide every case of a file ("-": standard input); returns the exit status.

    `choose` gives the release to decide as where none is named: True asks for objects of a cluster,
    which `read` admits; False for cases, which are recorded decisions.

    Raises:
        ConfigurationError: the file cannot be read, or a line is no case; names line and field.
        AbsentError: the file has no pod of this name.
    """
    place, are_objects = "standard input" if path == "-" else path, False

    def look(objects: Sequence[JsonObject]) -> Sequence[JsonObject]:
        nonlocal are_objects
        are_objects = True
        return read(objects)

    with _opened(path) as lines:
        try:
            for number, case in read_cases(lines, pod_key, look):
                _decide(
                    _as_of_now(case) if are_objects else case,
                    f"{place}, line {number}",
                    form=form,
                    output=output,
                    compatibility=choose(are_objects),
                )
        except _PlacedError:
            raise
        except AbsentError as error:
            raise AbsentError(f"{place}, {error}") from error
        except ConfigurationError as error:
            if str(error).startswith((f"{place}: ", f"{place}, ")):
                raise
            raise ConfigurationError(f"{place}, {error}") from error
    return 0


def decide_objects(
    objects: Iterable[Mapping[str, Any]],
    place: str,
    *,
    form: str = "json",
    pod_key: str = "",
    compatibility: Compatibility = AS_RECORDED,
) -> int:
    """Decide for the pending pods, or for one pod, among the objects of a cluster.

    Raises:
        ConfigurationError: an object is malformed.
        AbsentError: there is no pod of this name.
        NoPendingPodError: no pod is named, and every one has a node.
    """
    for case in cases_of(objects, pod_key):
        _decide(_as_of_now(case), place, form=form, compatibility=compatibility)
    return 0


def _as_of_now(case: Mapping[str, Any]) -> Mapping[str, Any]:
    """The case of a cluster's objects, which is decided as of the present."""
    return {**case, "now": rfc3339_seconds(SystemClock().now())}


class _PlacedError(ConfigurationError):
    """Says already where it happened."""


def _decide(
    case: Mapping[str, Any],
    place: str,
    *,
    form: str = "json",
    output: TextIO | None = None,
    compatibility: Compatibility,
) -> None:
    try:
        if TEMPLATE_FIELD in case:
            _print_outcome(decide_template(case, compatibility), form, output or sys.stdout)
            return
        if is_plugin_case(case):
            result, form = decide_plugin_case(case), "json" if form in _TABLES else form
        else:
            result = decide(case, compatibility)
    except (CaseError, ProfileError) as error:
        raise _PlacedError(f"{place}: {error}") from error
    print(_written(result, form), file=output or sys.stdout, flush=True)


def _print_outcome(answer: WhatIf, form: str, output: TextIO) -> None:
    """Print the counts of a large controller's pods."""
    (outcome,) = answer.templates or ()
    if form in _TABLES:
        to = console(output)
        to.is_wide = form == "wide"
        print_template(outcome, to)
        return
    counts = codec(TemplateOutcome).as_json(outcome)
    result = {"id": outcome.template, "compatibility": "".join(answer.compatibility), **counts}
    print(_written(result, form), file=output, flush=True)


def _written(result: Mapping[str, Any], form: str) -> str:
    if form in _TABLES:
        return printable_lines(_table(result))
    if form == "name":
        return printable_lines(str(result["id"]))
    if form == "yaml":
        return f"---\n{yaml.safe_dump(dict(result), sort_keys=False)}".rstrip()
    return json_escaped(orjson.dumps(result).decode())


@contextmanager
def _opened(path: str) -> Iterator[Iterable[bytes]]:
    if path == "-":
        yield _lines(sys.stdin.buffer, path)
        return
    try:
        lines = open(path, "rb")  # noqa: PTH123, SIM115 a stream of lines, closed below
    except OSError as error:
        raise ConfigurationError(f"cannot read {path}: {error.strerror}") from error
    with lines:
        yield _lines(lines, path)


def _lines(file: BinaryIO, path: str) -> Iterator[bytes]:
    """The lines of a file, none of which is longer than any file of objects may be."""
    is_first = True
    while line := file.readline(MAX_CASE_BYTES + 1):
        if len(line) > MAX_CASE_BYTES:
            raise ConfigurationError(f"cannot read {path}: a line of more than 256 MiB")
        if is_first and (whole := _not_utf8(line, file, path)):
            yield from whole.splitlines(keepends=True)
            return
        is_first = False
        yield line


def _not_utf8(first: bytes, file: BinaryIO, path: str) -> bytes:
    """A file in UTF-16 as UTF-8; empty: its first line is not in UTF-16."""
    try:
        if not first.startswith(UTF16_MARKS):
            as_utf8(first)
            return b""
        rest = file.read(MAX_CASE_BYTES + 1)
        if len(rest) > MAX_CASE_BYTES:
            raise _PlacedError(f"cannot read {path}: more than 256 MiB in UTF-16")
        return as_utf8(first + rest)
    except OSError as error:
        name = "standard input" if path == "-" else path
        raise _PlacedError(f"cannot read {name}: {error.strerror}") from error


def _table(result: Mapping[str, Any]) -> str:
    """The decision as people read it: where the pod may go, each node's scores or its reasons."""
    selected = result["selected"]
    by = decided_as([result["compatibility"]])
    lines = [f"{result['id']} ({by}): {_headline(result, selected)}"]
    plugins = list(result.get("scores") or {})
    width = max([4, *(len(node) for node in result["filter"])])
    for node in sorted(
        result["filter"], key=lambda name: (-(result.get("total") or {}).get(name, -1), name)
    ):
        mark = "*" if node in selected else " "
        lines.append(f"{mark} {node:<{width}}  {_node_text(result, node, plugins)}")
    preemption = result.get("preemption") or {}
    if preemption.get("nominatedNode"):
        victims = ", ".join(preemption["victims"])
        lines.append(f"  preempts on {preemption['nominatedNode']}: {victims}")
    if "devices" in result:
        devices = codec(DevicesOfPod).read(result["devices"])
        lines += [f"  {line}" for line in devices.lines()]
    return "\n".join([*lines, ""])


def _headline(result: Mapping[str, Any], selected: list[str]) -> str:
    if result.get("error"):
        return f"error: {result['error']}"
    if not selected:
        return str(result.get("message", ""))
    if len(selected) == 1:
        return selected[0]
    return f"one of {', '.join(selected)} (they tie)"


def _node_text(result: Mapping[str, Any], node: str, plugins: list[str]) -> str:
    verdict = result["filter"][node]
    if not verdict["fits"]:
        return _reasons(result, node, verdict)
    parts = [_score_text(plugin, result["scores"][plugin][node]) for plugin in plugins]
    return f"{result['total'][node]:>5} = {' + '.join(filter(None, parts)) or '0'}"


def _reasons(result: Mapping[str, Any], node: str, verdict: Mapping[str, Any]) -> str:
    """Every plugin's reasons against the node, the first to reject it first."""
    first = verdict.get("plugin", "PreFilter")
    every = {first: verdict["reasons"], **(result.get("allFilters") or {}).get(node, {})}
    return "; ".join(f"{plugin}: {', '.join(reasons)}" for plugin, reasons in every.items())


def _score_text(plugin: str, score: Mapping[str, int]) -> str:
    """Weighted, with raw and normalised scores where they differ; empty: nothing at all."""
    raw, normalized, weighted = score["raw"], score["normalized"], score["weighted"]
    if not raw and not weighted:
        return ""
    if raw == normalized == weighted:
        return f"{plugin} {weighted}"
    times = f"×{weighted // normalized}" if normalized and weighted != normalized else ""
    return f"{plugin} {weighted} ({raw} → {normalized}{times})"
