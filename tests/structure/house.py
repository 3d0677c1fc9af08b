"""Counts of the house: what a reader finds, of all source below `operator/`. It judges nothing.

`python -m tests.structure.house` prints them, and with `--details` what is counted, by name. A
small module that stands alone for a reason says so in its docstring; no number here is a limit.
"""

import ast
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

OPERATOR: Final = Path(__file__).resolve().parents[2] / "operator"
SMALL_LINES: Final = 80
MANY_METHODS: Final = 25
"""A class with more methods than this is named: it may hold several subjects."""
QUESTIONS: Final = ("What", "Which", "How", "Why", "Who", "Whose", "Where", "When")
"""A docstring that begins with one of these circles what it is about."""
CAPABILITIES: Final = {
    "devices": re.compile(r"device|claim|dynamic_resources|resource_slice"),
    "groups": re.compile(r"gang|group|coscheduling"),
}
"""Words in the paths of modules that a capability is spread over."""
READERS_OF_ANSWERS: Final = ("stellwerk_cli.page", "stellwerk_cli.commands", "stellwerk_cli.demo")
"""Packages that read what the operator answers, by attributes and not by string subscripts."""
_NO_ANSWER: Final = re.compile(r"\['(?:metadata|spec|kind)'\]|match_info")
"""In a subscript of an object of the API, or of a request's path."""
LIMIT: Final = re.compile(r"(?:MAX|MIN)_\w+|\w+_(?:SECONDS|BYTES)")
"""The name of a constant that limits something."""

_Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Module:
    """One file of Python."""

    name: str
    """With dots; a package's is that of its folder."""
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        """The module, parsed."""
        return ast.parse(self.text)

    @property
    def lines(self) -> int:
        """The number of lines."""
        return len(self.text.splitlines())

    @property
    def is_small(self) -> bool:
        """Whether it might be a part of what uses it."""
        return self.lines < SMALL_LINES

    @property
    def package(self) -> str:
        """The package that the module is in."""
        return self.name.rpartition(".")[0]

    @cached_property
    def nodes(self) -> Sequence[ast.AST]:
        """Every node of the tree."""
        return [*ast.walk(self.tree)]

    def docstrings(self) -> Iterator[tuple[_Documented, str]]:
        """Every docstring of the module, with what it is about."""
        for node in self.nodes:
            if isinstance(node, _Documented) and (text := ast.get_docstring(node)) is not None:
                yield node, text

    def imports(self, known: Mapping[str, "Module"]) -> set[str]:
        """The known modules that it imports, anywhere in it."""
        found: set[str] = set()
        for node in self.nodes:
            if isinstance(node, ast.Import):
                found.update(alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                inside = {f"{node.module}.{alias.name}" for alias in node.names}
                found.update(inside & known.keys() or {node.module})
        return (found & known.keys()) - {self.name}

    def string_subscripts(self) -> list[str]:
        """What it reads by a constant string, such as answer["node"].

        Objects of the API are read so, and parts of a request's path; neither counts.
        """
        return [
            ast.unparse(node)
            for node in self.nodes
            if isinstance(node, ast.Subscript)
            and isinstance(node.ctx, ast.Load)
            and isinstance(node.slice, ast.Constant)
            and isinstance(node.slice.value, str)
            and not _NO_ANSWER.search(ast.unparse(node))
        ]

    @cached_property
    def functions(self) -> Sequence[ast.FunctionDef | ast.AsyncFunctionDef]:
        """Every function and method of the module, those within others too."""
        return [
            node for node in self.nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        ]

    def private_functions_named_once(self) -> list[str]:
        """The private functions and methods that one other place of the module names."""
        named = Counter(node.id for node in self.nodes if isinstance(node, ast.Name))
        named.update(node.attr for node in self.nodes if isinstance(node, ast.Attribute))
        return [
            function.name
            for function in self.functions
            if function.name.startswith("_")
            and not function.name.endswith("__")
            and named[function.name] == 1
        ]

    def classes_of_many_methods(self) -> list[tuple[str, int]]:
        """(class, number of methods) of each that has more than MANY_METHODS."""
        found = []
        for node in self.nodes:
            if isinstance(node, ast.ClassDef):
                functions = (ast.FunctionDef, ast.AsyncFunctionDef)
                methods = sum(isinstance(each, functions) for each in node.body)
                if methods > MANY_METHODS:
                    found.append((node.name, methods))
        return found

    def limits(self) -> dict[str, str]:
        """The values of constants that limit something, as the source has them, by name."""
        found = {}
        for node in self.tree.body:
            if isinstance(node, ast.AnnAssign) and node.value is not None:
                name = ast.unparse(node.target)
                if LIMIT.fullmatch(name.lstrip("_")):
                    found[name] = ast.unparse(node.value)
        return found

    def public_classes(self) -> list[str]:
        """The names of its classes that others may use."""
        classes = [node.name for node in self.tree.body if isinstance(node, ast.ClassDef)]
        return [name for name in classes if not name.startswith("_")]


@dataclass(frozen=True)
class House:
    """All modules of the packages."""

    modules: Mapping[str, Module]

    @classmethod
    def read(cls, operator: Path = OPERATOR) -> "House":
        """Read what lies below a folder."""
        found = {}
        for path in sorted(operator.rglob("*.py")):
            parts = path.relative_to(operator).with_suffix("").parts
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            found[name] = Module(name, path.read_text())
        return cls(found)

    @cached_property
    def importers(self) -> Mapping[str, set[str]]:
        """By module, those that import it."""
        found: defaultdict[str, set[str]] = defaultdict(set)
        for module in self.modules.values():
            for imported in module.imports(self.modules):
                found[imported].add(module.name)
        return found

    @cached_property
    def packages(self) -> set[str]:
        """The names of packages."""
        return {module.package for module in self.modules.values()}

    def is_package(self, module: Module) -> bool:
        """Whether a module is what a package's folder is named for."""
        return module.name in self.packages

    def small(self, importers: int) -> list[Module]:
        """Small modules, no packages, with so many importers."""
        return [
            module
            for module in self.modules.values()
            if module.is_small
            and not self.is_package(module)
            and len(self.importers[module.name]) == importers
        ]

    def names_that_recur(self) -> Mapping[str, Sequence[str]]:
        """Module names that occur at least twice, with where."""
        places: defaultdict[str, list[str]] = defaultdict(list)
        for name in self.modules.keys() - self.packages:
            places[name.rpartition(".")[2]].append(name)
        return {name: sorted(found) for name, found in places.items() if len(found) > 1}

    def classes_that_recur(self, package: str) -> Mapping[str, Sequence[str]]:
        """Public classes of a package that share their name, with their modules."""
        places: defaultdict[str, list[str]] = defaultdict(list)
        for module in self.modules.values():
            if module.name.partition(".")[0] == package:
                for name in module.public_classes():
                    places[name].append(module.name)
        return {name: sorted(found) for name, found in places.items() if len(found) > 1}

    def limits_of_two_meanings(self) -> Mapping[str, Sequence[str]]:
        """Limits with one name and several values, with their modules.

        Every public one counts. A private one counts beside a public one of the same package: a
        reader who looks for the name finds both.
        """
        places: defaultdict[str, list[tuple[str, str, bool]]] = defaultdict(list)
        for module in self.modules.values():
            for name, value in module.limits().items():
                is_public = not name.startswith("_")
                places[name.lstrip("_")].append((module.name, value, is_public))
        found = {}
        for name, all_of_name in places.items():
            packages = {place.partition(".")[0] for place, _, is_public in all_of_name if is_public}
            meant = [
                (place, value)
                for place, value, is_public in all_of_name
                if is_public or place.partition(".")[0] in packages
            ]
            if len({value for _, value in meant}) > 1:
                found[name] = sorted(place for place, _ in meant)
        return found

    def capability(self, words: re.Pattern[str]) -> list[Module]:
        """The modules of the scheduler with such a word in their path."""
        return [
            module
            for module in self.modules.values()
            if module.name.startswith("stellwerk.") and words.search(module.name)
        ]


def is_question(docstring: str) -> bool:
    """Whether a docstring begins with a question word."""
    words = docstring.split(maxsplit=1)
    return bool(words) and words[0] in QUESTIONS


def lines(house: House) -> Iterator[str]:
    """A line for each count."""
    modules = house.modules.values()
    by_package = Counter[str]()
    lines_of = Counter[str]()
    for module in modules:
        top = module.name.partition(".")[0]
        by_package[top] += 1
        lines_of[top] += module.lines
    yield f"{len(modules)} modules, {sum(lines_of.values()):,} lines"
    for top, count in by_package.most_common():
        yield f"  {top}: {count} modules, {lines_of[top]:,} lines"
    functions = sum(len(module.functions) for module in modules)
    once = sum(len(module.private_functions_named_once()) for module in modules)
    yield f"{once:,} of {functions:,} functions are private and named once beside their definition"
    many = [pair for module in modules for pair in module.classes_of_many_methods()]
    yield f"{len(many)} classes have more than {MANY_METHODS} methods"
    for name, methods in sorted(many, key=lambda pair: -pair[1]):
        yield f"  {name}: {methods}"
    small = [module for module in modules if module.is_small and not house.is_package(module)]
    alone = house.small(1)
    yield f"{len(small)} modules under {SMALL_LINES} lines, packages aside"
    yield f"  {len(alone)} of them with one importer, {sum(each.lines for each in alone):,} lines"
    yield f"  {len(house.small(2))} of them with two importers"
    yield f"{len(house.names_that_recur())} names of modules occur twice or more"
    yield f"{len(house.classes_that_recur('stellwerk'))} names of public classes of stellwerk do"
    subscripts = sum(
        len(module.string_subscripts())
        for module in modules
        if module.name.startswith(READERS_OF_ANSWERS)
    )
    yield (
        f"{subscripts} subscripts by a string in page, commands and demo, objects of the API aside"
    )
    documented = [pair for module in modules for pair in module.docstrings()]
    asking = [node for node, text in documented if is_question(text)]
    of_modules = sum(isinstance(node, ast.Module) for node in asking)
    yield (
        f"{len(asking)} of {len(documented):,} docstrings begin with a question word, "
        f"{of_modules} of them of modules"
    )
    for name, words in CAPABILITIES.items():
        found = house.capability(words)
        packages = {each.name if house.is_package(each) else each.package for each in found}
        size = sum(module.lines for module in found)
        yield f"{name}: {len(found)} modules in {len(packages)} packages, {size:,} lines"


def details(house: House) -> Iterator[str]:
    """What is counted, by name."""
    for module in sorted(house.small(1), key=lambda module: module.name):
        (importer,) = house.importers[module.name]
        yield f"{module.lines:3} {module.name} ← {importer}"
    for name, places in sorted(house.names_that_recur().items()):
        yield f"module {name}: {', '.join(places)}"
    for name, places in sorted(house.classes_that_recur("stellwerk").items()):
        yield f"class {name}: {', '.join(places)}"
    for module in house.modules.values():
        for node, text in module.docstrings():
            if is_question(text):
                what = "" if isinstance(node, ast.Module) else f".{node.name}"
                yield f"docstring {module.name}{what}: {text.splitlines()[0]}"


if __name__ == "__main__":
    found = House.read()
    shown = details(found) if "--details" in sys.argv[1:] else lines(found)
    sys.stdout.writelines(f"{line}\n" for line in shown)
