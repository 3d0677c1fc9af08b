from pathlib import Path

import pytest

from stellwerk_cluster.faults.table import (
    Delay,
    FaultTable,
    HttpDate,
    InjectedAnswer,
    Outage,
    read_fault_table,
)
from stellwerk_kube.errors import ConfigurationError
from tests.support.fault_runs import EXAMPLES
from tests.support.repository import ROOT

EVERY_FAULT = """
seed: 7
faults:
  - {fault: delay, seconds: 0.1}
  - {fault: delay, seconds: [0.1, 2], moment: after}
  - {fault: reset, verbs: [create], resources: [pods/binding], probability: 0.5}
  - {fault: answer, code: 429, retryAfter: [null, 1, -1, 1e300, soon, {date: 5}], every: 3}
  - {fault: answer, code: 404, verbs: [list], resources: [nodes], times: 2}
  - {fault: answer, code: 200, body: {kind: Status}, between: [1, 2.5]}
  - {fault: lostAnswer}
  - {fault: falseSuccess, userAgent: stellwerk/}
  - {fault: hang, seconds: 5}
  - {fault: endWatch, afterEvents: 10}
  - {fault: cutLine, afterSeconds: [1, 3]}
  - {fault: silence, seconds: 30}
  - {fault: streamError, code: 410}
  - {fault: late, seconds: 1}
  - {fault: reorder, share: 0.1, sameObject: true}
  - {fault: repeat, events: 20}
  - {name: lossy, fault: drop, share: 0.01}
  - {fault: endlessList, perSecond: 10}
  - {fault: noBookmarks}
  - {fault: olderVersions, by: 5, share: 0.5}
  - {fault: twins, types: [ADDED]}
  - {fault: longLines, bytes: 100}
  - {fault: otherKind, kind: Node}
  - {fault: drip, bytes: 2, seconds: 0.1}
  - {fault: halfAnswer, seconds: 1}
  - {fault: gzipBomb, bytes: 1000000}
  - {fault: endlessPages, verbs: [list]}
  - {fault: outage, between: [10, 20], history: older, revisions: 50}
"""


def write(directory: Path, text: str) -> Path:
    path = directory / "faults.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_every_fault_can_be_written(tmp_path: Path) -> None:
    table = read_fault_table(write(tmp_path, EVERY_FAULT))
    first, _, _, throttled, *_, outage = table.faults
    assert table.seed == 7
    assert isinstance(first, Delay)
    assert first.seconds == (0.1, 0.1)
    assert isinstance(throttled, InjectedAnswer)
    assert throttled.retry_after == (None, "1", "-1", "1e300", "soon", HttpDate(date=5))
    assert isinstance(outage, Outage)
    assert table.titles()[-2:] == ("27 (endlessPages)", "28 (outage)")


def test_an_empty_file_is_a_table_without_faults(tmp_path: Path) -> None:
    assert read_fault_table(write(tmp_path, "")).faults == ()


def entry(fields: str) -> str:
    return "faults:\n  - {fault: reset}\n  - {" + fields + "}\n"


@pytest.mark.parametrize(
    ("text", "mistake"),
    [
        pytest.param("seed: x", "seed: input should be a valid integer", id="the seed"),
        pytest.param("fault: []", "fault: there is no such field", id="an unknown field"),
        pytest.param("- 1", "input should be a valid dictionary", id="no table at all"),
        pytest.param("a: [", "not YAML: line 1, column 5: ", id="not YAML"),
        pytest.param(entry("fault: rest"), "entry 2 (rest): fault: must be one of 'delay'", id="k"),
        pytest.param(entry("name: x"), "entry 2 (x): fault: must name the fault", id="no fault"),
        pytest.param("faults: [1]", "entry 1: input should be", id="no object"),
        pytest.param(
            entry("fault: delay"), "entry 2 (delay): seconds: required", id="a missing field"
        ),
        pytest.param(
            entry("fault: delay, seconds: [2, 1]"),
            "entry 2 (delay): seconds: must be [least, most]",
            id="a span that ends before it begins",
        ),
        pytest.param(
            entry("fault: answer, code: 700"),
            "entry 2 (answer): code: input should be less than or equal to 599",
            id="a status that is none",
        ),
        pytest.param(
            entry("fault: answer, code: 429, retryAfter: [[1]]"),
            "entry 2 (answer): retryAfter: must be a number of seconds, a text",
            id="a Retry-After that is none",
        ),
        pytest.param(
            entry("name: x, fault: reset, verbs: [bind]"),
            "entry 2 (x): verbs[0]: input should be 'get', 'list'",
            id="a verb that is none",
        ),
        pytest.param(
            entry("fault: reset, probability: 0.5, every: 2"),
            "entry 2 (reset): every and probability exclude each other",
            id="two ways to choose",
        ),
        pytest.param(
            entry("fault: drop, verbs: [list]"),
            "entry 2 (drop): it strikes watches only",
            id="a fault of watches that strikes none",
        ),
        pytest.param(
            entry("fault: outage"), "entry 2 (outage): between is required", id="no time to be away"
        ),
        pytest.param(
            entry("fault: outage, between: [1, 2], userAgent: x"),
            "entry 2 (outage): it strikes everything: userAgent has no effect",
            id="an outage of a part",
        ),
    ],
)
def test_a_mistake_is_one_line_with_file_entry_and_field(
    tmp_path: Path, text: str, mistake: str
) -> None:
    path = write(tmp_path, text)
    with pytest.raises(ConfigurationError) as raised:
        read_fault_table(path)
    shown = str(raised.value)
    assert shown.startswith(f"{path}: {mistake}")
    assert "\n" not in shown


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"none\.yaml: No such file"):
        read_fault_table(tmp_path / "none.yaml")


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.stem)
def test_the_examples_are_tables(path: Path) -> None:
    assert read_fault_table(path).faults


def test_the_page_names_every_fault_and_every_field() -> None:
    page = (ROOT / "docs" / "faults.md").read_text(encoding="utf-8")
    definitions = FaultTable.model_json_schema()["$defs"]
    for definition in definitions.values():
        for field, schema in definition["properties"].items():
            assert field in page, f"{definition['title']}.{field}"
            assert str(schema.get("const", "")) in page
