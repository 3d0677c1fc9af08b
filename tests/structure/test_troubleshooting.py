"""docs/troubleshooting.md has a line for everything that a user may be told.

The messages of plugins, the reasons of events and conditions, and the kinds of errors are read from
the code, so that a new one needs its line.
"""

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Final

import pytest

from stellwerk.models import troubleshooting
from stellwerk.profiles.spec.profile import Rejected
from stellwerk_kube import errors
from tests.support.repository import ROOT

OPERATOR: Final = ROOT / "operator"
SCHEDULER: Final = OPERATOR / "stellwerk" / "scheduler"
_SPEAKING: Final = ("stellwerk", "stellwerk_kube")
"""Packages whose constants the operator says."""
PAGE: Final = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
SHOWN: Final = set(re.findall(r"`([^`\n]+)`", PAGE))
STATUSES: Final = {"unschedulable": slice(1, None), "unresolvable": slice(1, None)}
"""The functions that make a status of a plugin, with their arguments that are messages."""


class Strings:
    """The strings that expressions of a module may be, with `…` for what differs.

    A name that the module does not define is a constant that it imports.
    """

    def __init__(self, module: ast.Module, imported: Mapping[str, list[str]]) -> None:
        self.imported = imported
        self.constants: dict[str, list[str]] = {}
        for statement in module.body:
            match statement:
                case ast.AnnAssign(target=ast.Name(id=name), value=value) if value is not None:
                    self.constants[name] = self.of(value)
                case ast.Assign(targets=[ast.Name(id=name)], value=value):
                    self.constants[name] = self.of(value)
                case _:
                    pass

    def of(self, node: ast.expr) -> list[str]:
        match node:
            case ast.Constant(value=str(text)):
                return [text]
            case ast.Name(id=name):
                return self.constants.get(name) or self.imported.get(name, [])
            case ast.IfExp(body=body, orelse=otherwise):
                return [*self.of(body), *self.of(otherwise)]
            case ast.JoinedStr(values=values):
                return ["".join(self._part(value) for value in values)]
            case ast.Dict(values=values) | ast.BoolOp(values=values):
                return [text for value in values for text in self.of(value)]
            case _:
                return []

    def _part(self, node: ast.expr) -> str:
        if isinstance(node, ast.FormattedValue):
            texts = self.of(node.value)
            return texts[0] if len(texts) == 1 else "…"
        return self.of(node)[0]


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def public_constants() -> dict[str, list[str]]:
    """The constants of all modules."""
    found: dict[str, list[str]] = {}
    for path in (file for each in _SPEAKING for file in (OPERATOR / each).rglob("*.py")):
        for name, texts in Strings(parsed(path), {}).constants.items():
            if not name.startswith("_"):
                found.setdefault(name, []).extend(texts)
    return found


def modules(*folders: Path) -> Iterator[tuple[ast.Module, Strings]]:
    for folder in folders:
        for path in sorted(folder.rglob("*.py") if folder.is_dir() else [folder]):
            module = parsed(path)
            yield module, Strings(module, public_constants())


def calls(*folders: Path) -> Iterator[tuple[str, ast.Call, Strings]]:
    for module, strings in modules(*folders):
        for node in ast.walk(module):
            if isinstance(node, ast.Call):
                called = node.func
                name = called.attr if isinstance(called, ast.Attribute) else ""
                yield called.id if isinstance(called, ast.Name) else name, node, strings


def messages_of_plugins() -> Iterator[str]:
    plugins = (OPERATOR / "stellwerk" / "plugins", OPERATOR / "stellwerk_plugins")
    for name, call, strings in calls(*plugins):
        for argument in call.args[STATUSES[name]] if name in STATUSES else ():
            yield from strings.of(argument)
    (volume_binding,) = modules(plugins[0] / "volume_binding" / "plugin.py")
    yield from volume_binding[1].constants["_REASONS"]


def reasons_of_events() -> Iterator[str]:
    for name, call, strings in calls(OPERATOR / "stellwerk"):
        if name == "event" and len(call.args) == 5:
            yield from strings.of(call.args[2])


def reasons_of_conditions() -> Iterator[str]:
    places = (
        OPERATOR / "stellwerk" / "profiles",
        SCHEDULER / "gangs",
        OPERATOR / "stellwerk" / "world",
    )
    for module, strings in modules(*places):
        for node in ast.walk(module):
            match node:
                case ast.Dict(keys=keys, values=values):
                    for key, value in zip(keys, values, strict=True):
                        if isinstance(key, ast.Constant) and key.value == "reason":
                            yield from strings.of(value)
                case ast.Tuple(elts=[ast.Name(), ast.Constant(value="True" | "False"), reason, _]):
                    yield from strings.of(reason)
                case ast.Call(func=ast.Name(id="Refusal" | "Report"), args=[*_, reason, _]):
                    yield from strings.of(reason)
                case ast.Call(func=ast.Name(id="ScheduledCondition"), args=[_, reason, *_]):
                    yield from strings.of(reason)
                case _:
                    pass
    yield from Rejected.__annotations__["reason"].__args__
    (status,) = modules(OPERATOR / "stellwerk" / "world" / "pod_status.py")
    for name in ("UNSCHEDULABLE", "SCHEDULER_ERROR", "SLOW"):
        yield from status[1].constants[name]


def kinds_of_errors() -> Iterator[str]:
    for name, value in vars(errors).items():
        if isinstance(value, type) and issubclass(value, errors.SchedulerError):
            yield name


@pytest.mark.parametrize(
    ("told", "least"),
    [
        (messages_of_plugins(), 40),
        (reasons_of_events(), 7),
        (reasons_of_conditions(), 20),
        (kinds_of_errors(), 14),
    ],
    ids=["messages of plugins", "reasons of events", "reasons of conditions", "errors"],
)
def test_everything_that_is_told_has_its_line(told: Iterable[str], least: int) -> None:
    found = {text for text in told if text}
    assert len(found) >= least, "the code is read in another way"
    assert sorted(found - SHOWN) == []


def test_the_page_that_links_of_a_terminal_open_is_current() -> None:
    assert troubleshooting.PAGE.read_text(encoding="utf-8") == troubleshooting.as_page()
    for section in troubleshooting.sections():
        for entry in section.entries:
            assert f'<tr id="{entry.anchor}">' in troubleshooting.as_page()
