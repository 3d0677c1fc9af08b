"""CEL selectors: compiled once per expression, evaluated once per distinct device as it reads it.

Drivers publish names and serial numbers with their devices, so whole devices never repeat; what an
expression reads of them does. Invariant: a device's answer is that of evaluating the expression on
it, and an expression that fails raises what fails, with kube-scheduler's text. Its value depends on
nothing of a device beside the paths that its text shows; where that is not plain, on everything.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from operator import attrgetter
from typing import Final, TypeAlias, TypeVar

import orjson

from stellwerk_kube.cel.bounded_cache import RecentlyMade
from stellwerk_kube.cel.environment import (
    DEVICE,
    Program,
    device_program,
    device_tree,
)
from stellwerk_kube.cel.errors import CompileError, EvaluationError
from stellwerk_kube.cel.library.quantities import parse_quantity
from stellwerk_kube.cel.library.versions import parse_version
from stellwerk_kube.cel.tree import (
    Bind,
    Call,
    ListLiteral,
    Literal,
    MapLiteral,
    MessageLiteral,
    Name,
    Node,
    Select,
)
from stellwerk_kube.cel.values import DefaultMap, Value, type_name
from stellwerk_kube.json_values import JsonObject
from stellwerk_kube.resource_slice import UNSUPPORTED, Attribute, Device, Listing, Slice

FieldPath: TypeAlias = tuple[str, ...]
"""`("driver",)`, `("attributes", domain, name)`, …"""

_VARIABLE: Final = "device"
_LOOKUPS: Final = frozenset({"_[_]", "_[?_]", "_?._"})
_WHOLE_FIELDS: Final = frozenset({"driver", "allowMultipleAllocations"})
_MAPS: Final = frozenset({"attributes", "capacity"})
_IN_MAPS: Final = 3


def paths_read(tree: Node) -> Sequence[FieldPath] | None:
    """The paths of a device that are read; None: any."""
    found: dict[FieldPath, None] = {}
    for path in _paths(tree):
        if path[:1] and path[0] in _WHOLE_FIELDS:
            found[path[:1]] = None
        elif len(path) >= _IN_MAPS and path[0] in _MAPS:
            found[path[:_IN_MAPS]] = None
        else:
            return None
    return tuple(found)


def _paths(node: Node) -> Iterator[FieldPath]:
    """The chain of names from each mention of the variable on."""
    chain = _chain(node)
    if chain is not None:
        yield chain
        return
    for part in _parts(node):
        yield from _paths(part)


def _chain(node: Node) -> FieldPath | None:
    """The names that lead from the variable to a node; None: it is something else."""
    match node:
        case Name():
            return () if node.name.removeprefix(".") == _VARIABLE else None
        case Select():
            before = _chain(node.operand)
            return None if before is None else (*before, node.field)
        case Call() if node.function in _LOOKUPS and node.target is None:
            container, key = node.arguments
            before = _chain(container)
            if before is None or not isinstance(key, Literal) or not isinstance(key.value, str):
                return None
            return (*before, key.value)
        case _:
            return None


def _parts(node: Node) -> tuple[Node, ...]:
    match node:
        case Select():
            return (node.operand,)
        case Call():
            return node.operands
        case ListLiteral():
            return node.elements
        case MapLiteral():
            return tuple(part for entry in node.entries for part in (entry.key, entry.value))
        case Bind():
            return (node.value, node.result)
        case Literal() | Name() | MessageLiteral():
            return ()


Projection: TypeAlias = Hashable
"""All of a device that an expression reads."""

Entry = TypeVar("Entry")

_ATTRIBUTES: Final = "attributes"
_CAPACITY: Final = "capacity"
_MAX_KEPT_ANSWERS: Final = 4096
"""Answers of one selector, and versions and quantities, that are kept."""
_MAX_KEPT_CHARACTERS: Final = 128
"""Characters of a text whose meaning is kept. Longer texts are read anew each time."""
_NATIVE: Final[Mapping[str, str]] = {
    "string": "unsupported native conversion from string to 'bool'",
    "int": "unsupported type conversion from 'int' to bool",
}


class SelectorError(Exception):
    """An expression does not compile, or has no answer for a device.

    Its text ends in the event FailedScheduling, with the reason SchedulerError in the pod's
    condition: `claims` makes an AllocationError of it, `node_verdicts` an error Status.
    """

    def __init__(self, text: str, *, of_device: bool = False) -> None:
        """`of_device`: it has no answer for this device."""
        super().__init__(text)
        self.of_device = of_device


class Selector:
    """One CEL expression over devices."""

    def __init__(self, expression: str, *, reads_lists: bool = False) -> None:
        """Compile it; what is wrong with it is raised when it is asked.

        `reads_lists`: attributes that are lists have a value, as in v1.37.
        """
        self._reads_lists = reads_lists
        self._failure = ""
        self._program: Program | None = None
        self._readers: list[Callable[[Device], Hashable]] = []
        self.paths: Sequence[FieldPath] | None = None
        """The fields of a device that it reads; None: perhaps any."""
        self._answers: OrderedDict[Projection, bool | str] = OrderedDict()
        """By projection; a text is that of a runtime error."""
        try:
            self._program = device_program(expression, with_lists=reads_lists)
            self.paths = paths_read(device_tree(expression))
            self._readers = [_reader_of(path) for path in self.paths or ()]
        except CompileError as error:
            self._failure = f"CEL compile error: {error}"

    def matches(self, device: Device) -> bool:
        """Whether the device is wanted.

        Raises:
            SelectorError: the expression is wrong, or has no answer for this device.
        """
        if self._program is None:
            raise SelectorError(self._failure)
        key = self._projection(device)
        answer = self._answers.get(key)
        if answer is None:
            answer = self._answers[key] = _evaluated(
                self._program, device, reads_lists=self._reads_lists
            )
            if len(self._answers) > _MAX_KEPT_ANSWERS:
                self._answers.popitem(last=False)
        if isinstance(answer, str):
            raise SelectorError(f"CEL runtime error: {answer}", of_device=True)
        return answer

    def _projection(self, device: Device) -> Projection:
        """A device's values at the paths; all but its name where it is not known what is read."""
        if self.paths is not None:
            return tuple([read(device) for read in self._readers])
        traits = device.traits
        whole = (device.driver, traits.shareable, device.attributes, traits.written_capacity)
        return orjson.dumps(whole, option=orjson.OPT_SORT_KEYS)


_selectors: Final = RecentlyMade(Selector)
_selectors_of_lists: Final = RecentlyMade(partial(Selector, reads_lists=True))


def selector_of(expression: str, *, reads_lists: bool = False) -> Selector:
    """The one selector of an expression."""
    return (_selectors_of_lists if reads_lists else _selectors).of(expression)


def attribute_reader(name: str) -> Callable[[Device], Attribute | None]:
    """Read the attribute of that full name; a name without a domain finds nothing but itself.

    The column is looked up once for each slice, so a reader is for one search.
    """
    domain, slash, short = name.partition("/")
    columns: dict[Slice, Sequence[Listing[Attribute | None]]] = {}

    def read(device: Device) -> Attribute | None:
        source = device.source
        found = columns.get(source)
        if found is None:
            names = (name, short) if slash and domain == device.driver else (name,)
            found = [source.columns[each] for each in names if each in source.columns]
            columns[source] = found
        for column in found:
            value = column.at(device.position)
            if value is not None:
                return value
        return None

    return read


def _reader_of(path: FieldPath) -> Callable[[Device], Hashable]:
    """Read the value at a path; the driver's own may stand without a domain."""
    match path:
        case ("driver",):
            return attrgetter("driver")
        case ("attributes", domain, name):
            full_name = f"{domain}/{name}"

            def attribute(device: Device) -> Attribute | None:
                found = device.attribute(full_name)
                if found is None and domain == device.driver:
                    return device.attribute(name)
                return found

            return attribute
        case ("capacity", domain, name):
            return partial(_total_capacity, domain, name)
        case _:
            return attrgetter("traits.shareable")


def _total_capacity(domain: str, name: str, device: Device) -> Hashable:
    capacities = device.traits.capacities
    amount = capacities.get(f"{domain}/{name}")
    if amount is None and domain == device.driver:
        amount = capacities.get(name)
    return None if amount is None else amount.total.value


def _evaluated(program: Program, device: Device, *, reads_lists: bool) -> bool | str:
    """The answer, or the text of what went wrong."""
    try:
        value = program.evaluate({DEVICE: device_value(device, reads_lists=reads_lists)})
        if isinstance(value, bool):
            return value
        kind = type_name(value)
    except EvaluationError as error:
        return str(error)
    short = kind.rpartition(".")[2]
    reason = _NATIVE.get(kind, f"type conversion error from '{short}' to 'bool'")
    return f"CEL result of type {kind} could not be converted to bool: {reason}"


def device_value(device: Device, *, reads_lists: bool = False) -> Value:
    """The variable `device` of expressions."""
    traits = device.traits
    attribute_value = _list_or_attribute_value if reads_lists else _attribute_value
    return {
        "driver": device.driver,
        "allowMultipleAllocations": traits.shareable,
        _ATTRIBUTES: _by_domain(device.driver, device.attributes, attribute_value),
        _CAPACITY: _by_domain(device.driver, traits.written_capacity, _capacity_value),
    }


def _by_domain(
    driver: str, entries: Mapping[str, Entry], value_of: Callable[[Entry], Value]
) -> DefaultMap:
    domains = DefaultMap()
    for full_name, entry in entries.items():
        domain, slash, name = full_name.rpartition("/")
        domains.setdefault(domain if slash else driver, {})[name] = value_of(entry)
    return domains


def _attribute_value(attribute: Attribute) -> Value:
    if not isinstance(attribute, tuple):
        return attribute
    kind, value = attribute
    if attribute == UNSUPPORTED or isinstance(value, tuple):
        raise EvaluationError("unsupported attribute value")
    return _version_value(str(value)) if kind == "version" else value


def _list_or_attribute_value(attribute: Attribute) -> Value:
    """The value of an attribute that may be a list."""
    kind, values = attribute if isinstance(attribute, tuple) else ("", attribute)
    if not isinstance(values, tuple):
        return _attribute_value(attribute)
    return [_version_value(str(each)) for each in values] if kind == "versions" else list(values)


def _version_value(written: str) -> Value:
    return _version(written) if len(written) <= _MAX_KEPT_CHARACTERS else parse_version(written)


@lru_cache(maxsize=_MAX_KEPT_ANSWERS)
def _version(written: str) -> Value:
    return parse_version(written)


def _capacity_value(capacity: JsonObject) -> Value:
    written = str(capacity["value"])
    # What is longer is no quantity in CEL, and is not kept.
    return _quantity(written) if len(written) <= _MAX_KEPT_CHARACTERS else parse_quantity(written)


@lru_cache(maxsize=_MAX_KEPT_ANSWERS)
def _quantity(written: str) -> Value:
    return parse_quantity(written)
