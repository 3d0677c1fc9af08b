"""`stellwerk decide FILE`: cases in, one result line out for each, or a table to read.

Called by the command line. Invariant: results come in the order of the cases; the first broken line
ends the run with its number and field, after the results before it were printed.
"""

import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, TextIO

import orjson

from stellwerk.errors import ConfigurationError, ProfileError
from stellwerk.explain.decide import CaseError, decide

_WIDTH: Final = 78


def decide_lines(path: str, *, human: bool, output: TextIO | None = None) -> int:
    """Decide every case of a file ("-": standard input); returns the exit status.

    Raises:
        ConfigurationError: the file cannot be read, or a line is no case; names line and field.
    """
    output = output or sys.stdout
    with _opened(path) as lines:
        for number, case in _cases(path, lines):
            try:
                result = decide(case)
            except (CaseError, ProfileError) as error:
                raise ConfigurationError(f"{_place(path, number)}: {error}") from error
            text = _table(result) if human else orjson.dumps(result).decode()
            print(text, file=output, flush=True)
    return 0


@contextmanager
def _opened(path: str) -> Iterator[Iterable[bytes]]:
    if path == "-":
        yield sys.stdin.buffer
        return
    try:
        with open(path, "rb") as lines:  # noqa: PTH123 a stream of lines, not a whole file
            yield lines
    except OSError as error:
        raise ConfigurationError(f"cannot read {path}: {error.strerror}") from error


def _cases(path: str, lines: Iterable[bytes]) -> Iterator[tuple[int, Mapping[str, Any]]]:
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            case = orjson.loads(line)
        except orjson.JSONDecodeError as error:
            raise ConfigurationError(f"{_place(path, number)}: not JSON: {error}") from error
        if isinstance(case, dict) and isinstance(case.get("case"), dict):
            case = case["case"]
        if not isinstance(case, dict):
            raise ConfigurationError(f"{_place(path, number)}: not a case: an object is expected")
        yield number, case


def _place(path: str, number: int) -> str:
    return f"{'standard input' if path == '-' else path}, line {number}"


def _table(result: Mapping[str, Any]) -> str:
    """The decision as people read it: where the pod may go, each node's scores or its reasons."""
    selected = result["selected"]
    lines = [f"{result['id']}: {_headline(result, selected)}"]
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
        return f"{verdict.get('plugin', 'PreFilter')}: {', '.join(verdict['reasons'])}"
    parts = [
        f"{plugin} {result['scores'][plugin][node]['weighted']}"
        for plugin in plugins
        if result["scores"][plugin][node]["weighted"]
    ]
    return f"{result['total'][node]:>5} = {' + '.join(parts) or '0'}"
