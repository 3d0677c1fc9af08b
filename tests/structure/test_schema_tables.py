"""Every field of the embedded cluster's API stands in one line of one table."""

import re
from collections import Counter

from stellwerk_cluster.schema.tables import TABLES
from stellwerk_cluster.schema.types import types
from tests.support.repository import ROOT

PACKAGE = ROOT / "operator" / "stellwerk_cluster"
FOLDER = PACKAGE / "schema"


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
