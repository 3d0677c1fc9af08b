"""Every field of the embedded cluster's API stands in one line of one table."""

import re
from collections import Counter
from unittest.mock import Mock

import pytest

from stellwerk_cluster.apimachinery.messages import field_numbers
from stellwerk_cluster.validation.declarative import declared_rules, has_rules
from stellwerk_kube.schema.decoder import plain_go_type
from stellwerk_kube.schema.defaults import declared_defaults, has_defaults
from stellwerk_kube.schema.tables import TABLES
from stellwerk_kube.schema.types import types
from tests.structure import api_fields
from tests.support import schema_tables
from tests.support.repository import ROOT

PACKAGE = ROOT / "operator" / "stellwerk_cluster"
FOLDER = ROOT / "operator" / "stellwerk_kube" / "schema"


def test_every_table_is_read() -> None:
    assert sorted(path.stem for path in FOLDER.glob("*.txt")) == sorted(TABLES)


def test_every_field_of_every_type_stands_in_one_line_of_one_file() -> None:
    lines: Counter[tuple[str, str]] = Counter()
    for path in FOLDER.glob("*.txt"):
        block = ""
        for line in path.read_text().splitlines():
            if not line.startswith(" "):
                block = line.split()[0]
            elif block not in ("kind", "columns"):
                lines[block, line.split()[0]] += 1
    assert [place for place, times in lines.items() if times > 1] == []
    fields = {(name, field) for name, known in types().items() for field in known}
    assert fields <= lines.keys()
    assert {field for _, field in fields} > {"replicas", "nodeName"}


def test_no_other_file_is_a_table_of_fields() -> None:
    named = re.compile(r"^\s*(\w+)\b.*\bterminationGracePeriodSeconds\b", re.MULTILINE)
    elsewhere = [path for path in PACKAGE.rglob("*.txt") if path.parent != FOLDER]
    assert [path.name for path in elsewhere if named.search(path.read_text())] == []


DECODING = {
    "present",
    "always",
    "nullable",
    "pointer",
    "merge",
    "retain",
    "map",
    "set",
    "atomic",
    "granular",
    "go",
    "as",
}
RULES = {
    "default",
    "required",
    "minimum",
    "maximum",
    "maxItems",
    "format",
    "enum",
    "unionMember",
    "immutable",
    "unique",
    "gate",
    "forbidden",
    "check",
}


def test_every_word_of_a_rule_serves_more_than_one_field() -> None:
    words = Counter(
        word for fields in types().values() for field in fields.values() for word in field.words
    )
    assert words.keys() == DECODING | RULES
    assert {word: times for word, times in words.items() if word in RULES and times < 2} == {}


def test_the_lines_name_functions_formats_and_defaults_that_there_are() -> None:
    for name in types():
        rules = declared_rules(name)
        plan = declared_defaults(name)
        assert has_rules(name) is bool(rules.fields), name
        assert has_defaults(name) is bool(plan.values or plan.parts), name


def test_the_script_writes_what_stands_there(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = {
        name: {field: ".".join(map(str, path)) for field, path in fields.items()}
        for name, fields in field_numbers().items()
    }
    named = {
        name: {
            field.name: field.words.get("go") or plain_go_type(field.type)
            for field in types()[name].values()
        }
        for name in numbers
    }
    monkeypatch.setattr(schema_tables, "numbers_and_types", lambda _program: (numbers, named))
    for path, content in schema_tables.written(Mock()).items():
        assert content == path.read_text(), path.name
    numbers["DeploymentSpec"]["newest"] = "99"
    table = schema_tables.written(Mock())[FOLDER / "apps.txt"]
    assert "  newest ? #99\nDeploymentStatus" in table


def test_the_operators_table_of_fields_is_that_of_the_embedded_cluster() -> None:
    assert api_fields.FILE.read_text(encoding="utf-8") == api_fields.table()
