"""A file that cannot be read is one line that names it."""

import gzip
from pathlib import Path
from typing import Final

import pytest
import yaml

from stellwerk_kube.errors import ConfigurationError
from stellwerk_kube.yaml_file import (
    NestedTooDeeply,
    check_depth,
    parse_yaml,
    read_objects,
    read_one_yaml,
    read_yaml,
)


def test_every_document_is_read(tmp_path: Path) -> None:
    file = tmp_path / "f.yaml"
    file.write_text("a: 1\n---\n- b\n---\n")
    assert read_yaml(file) == [{"a": 1}, ["b"], None]


def test_the_signs_of_yaml_are_texts_where_they_are_values(tmp_path: Path) -> None:
    file = tmp_path / "f.yaml"
    file.write_text("args: [=, <<, EOF]\nbase: &base {a: 1}\nmerged: {<<: *base, b: =}\n")
    expected = {"args": ["=", "<<", "EOF"], "base": {"a": 1}, "merged": {"a": 1, "b": "="}}
    assert read_one_yaml(file) == expected
    assert list(read_objects(file)) == [expected]


def doubling(pattern: str) -> bytes:
    """Eleven lines, each of which names the one before nine times."""
    lines = [pattern.format(at=at, names=", ".join([f"*a{at - 1}"] * 9)) for at in range(1, 12)]
    return "\n".join(["a0: &a0 {x: 1}", *lines]).encode()


LAUGHS = doubling("a{at}: &a{at} [{names}]")
MERGED = doubling("a{at}: &a{at} {{<<: [{names}]}}")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        pytest.param(b"a: [", "not YAML: line 1, column 5: ", id="a list without an end"),
        pytest.param(b"\xff\xfe\xfa", "not YAML: ", id="not UTF-8"),
        pytest.param(b"a: " + b"9" * 1_000_000, "not YAML: ", id="a number without an end"),
        pytest.param(b"a: 0x" + b"f" * 1_000_000, "not YAML: ", id="one of base 16"),
        pytest.param(b"a: .inf", "not YAML: ", id="no number of JSON"),
        pytest.param(b"a: !!set {b, c}", "not YAML: ", id="no value of JSON"),
        pytest.param(b"? [a]\n: b", "not YAML: unsupported map key", id="a key that is a list"),
        pytest.param(LAUGHS, "not YAML: ", id="aliases of aliases"),
        pytest.param(MERGED, "not YAML: merged keys", id="merged keys of merged keys"),
        pytest.param(b"a: &a [*a]", "not YAML: anchor", id="a list that contains itself"),
        pytest.param(b"a: &a {<<: *a}", "not YAML: ", id="a mapping that merges itself"),
        pytest.param(b'a: "\\ud800"', "not YAML: ", id="a half of a pair"),
        pytest.param(
            b"a: [1,\n" + b"[" * 20_000,
            "nested more than 200 deep, in line 2, column 199",
            id="nested too deeply",
        ),
    ],
)
def test_what_is_not_yaml_is_one_line(tmp_path: Path, content: bytes, message: str) -> None:
    file = tmp_path / "f.yaml"
    file.write_bytes(content)
    with pytest.raises(ConfigurationError) as caught:
        read_yaml(file)
    assert str(caught.value).startswith(f"{file}: {message}")
    assert "\n" not in str(caught.value)


_TWO_OBJECTS: Final = b"kind: List\nitems: []\nkind: Pod\nmetadata: {name: a}\n"


def test_two_objects_without_a_separator_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "f.yaml"
    file.write_bytes(_TWO_OBJECTS)
    with pytest.raises(ConfigurationError, match=r'line 3, .*"kind" occurs twice in one document'):
        read_objects(file)
    with pytest.raises(yaml.YAMLError, match='"kind" occurs twice'):
        parse_yaml(_TWO_OBJECTS)
    # Further inside, the last key counts, as for kubectl.
    assert parse_yaml(b"metadata: {labels: {a: b, a: c}}") == [{"metadata": {"labels": {"a": "c"}}}]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-8-sig"])
def test_a_file_in_utf_16_is_read_as_by_kubectl(tmp_path: Path, encoding: str) -> None:
    file = tmp_path / "f.yaml"
    file.write_bytes("kind: Pod\nmetadata: {name: ä}\n".encode(encoding))
    expected = {"kind": "Pod", "metadata": {"name": "ä"}}
    assert read_objects(file) == read_yaml(file) == [expected]
    file = file.with_suffix(".json")
    file.write_bytes('{"kind": "Pod", "metadata": {"name": "ä"}}'.encode(encoding))
    assert read_objects(file) == [expected]


def test_a_compressed_file_is_named_as_one(tmp_path: Path) -> None:
    file = tmp_path / "f.yaml.gz"
    file.write_bytes(gzip.compress(b"kind: Pod"))
    for read in (read_objects, read_yaml):
        with pytest.raises(ConfigurationError, match="compressed with gzip, unpack it first"):
            read(file)


def test_a_file_that_is_not_there_and_a_directory(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"cannot read .*: No such file or directory"):
        read_yaml(tmp_path / "absent")
    with pytest.raises(ConfigurationError, match=r"cannot read .*: Is a directory"):
        read_yaml(tmp_path)


def test_one_document_is_expected(tmp_path: Path) -> None:
    file = tmp_path / "f.yaml"
    file.write_text("")
    assert read_one_yaml(file) is None
    file.write_text("a: 1\n---\nb: 2")
    with pytest.raises(ConfigurationError, match="2 documents, one is expected"):
        read_one_yaml(file)


@pytest.mark.parametrize("opener", ["[", "- ", "{a: ", "? ", "[ {a: "])
@pytest.mark.parametrize("before", ["", "ä: 1\nb:\n ", "- - "])
@pytest.mark.parametrize("levels", [52, 990, 100_000])
def test_the_limit_of_nesting_is_ours_and_not_that_of_a_version_of_libyaml(
    opener: str, before: str, levels: int
) -> None:
    with pytest.raises(NestedTooDeeply, match=r"^nested more than 50 deep, in line"):
        check_depth((before + opener * levels).encode(), 50)


@pytest.mark.parametrize(
    "text", ["[" * 49 + "'[" * 90, "- " * 49 + "'" + "[" * 2000, "a: }" + "[" * 99]
)
def test_what_is_no_yaml_is_not_taken_for_deep(text: str) -> None:
    with pytest.raises(yaml.YAMLError) as caught:
        check_depth(text.encode(), 50)
    assert not isinstance(caught.value, NestedTooDeeply)


def test_nesting_up_to_the_limit_is_read() -> None:
    check_depth(b"[" * 50 + b"]" * 50 + b"\n---\n" + b"[" * 50 + b"]" * 50, 50)


def test_the_scalar_equals_is_a_text(tmp_path: Path) -> None:
    file = tmp_path / "f.yaml"
    file.write_text("args: [=, a]")
    assert read_yaml(file) == [{"args": ["=", "a"]}]
    assert read_objects(file) == [{"args": ["=", "a"]}]


DUMP = """{
    "kind": "NodeList",
    "apiVersion": "v1",
    "items": [{"metadata": {"name": "n"}}]
}
{"kind": "EventList", "apiVersion": "v1", "items": null}
{"kind": "PodList", "apiVersion": "v1", "items": [{"metadata": {"name": "p"}}]}
==== START logs for container c of pod default/p ====
{"level": "info"}
}{
==== END logs for container c of pod default/p ====
==== START logs for container d of pod default/p ====
==== END logs for container d of pod default/p ====
"""


@pytest.mark.parametrize("name", ["dump.json", "dump.txt"])
def test_a_dump_of_a_cluster_is_read_as_one_stream(name: str, tmp_path: Path) -> None:
    file = tmp_path / name
    file.write_text(DUMP)
    assert read_objects(file) == [
        {"kind": "Node", "apiVersion": "v1", "metadata": {"name": "n"}},
        {"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "p"}},
    ]


YAML_DUMP = """apiVersion: v1
items:
- metadata: {name: n}
kind: NodeList
---
apiVersion: v1
items:
- metadata: {name: p}
kind: PodList
==== START logs for container c of pod default/p ====
time="now" level=info: {
==== START logs for nobody
==== END logs for container c of pod default/p ====
==== START logs for container d of pod default/p ====
==== END logs for container d of pod default/p ====
---
apiVersion: v1
kind: ServiceList
items: []
%s"""


def test_a_dump_in_yaml_is_read_without_its_logs(tmp_path: Path) -> None:
    file = tmp_path / "dump.yaml"
    objects = [
        {"kind": "Node", "apiVersion": "v1", "metadata": {"name": "n"}},
        {"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "p"}},
    ]
    for end in ("", "==== START logs for container e of pod default/p ====\ncut: off: {"):
        file.write_text(YAML_DUMP % end)
        assert read_objects(file) == objects
    file.write_text(YAML_DUMP % "a: [")
    with pytest.raises(ConfigurationError, match="line 21, column 1: not YAML"):
        read_objects(file)


def test_a_record_of_the_simulator_is_called_one(tmp_path: Path) -> None:
    line = '{"time": "2024-01-01T00:00:00Z", "event": "Add", "resource": {"kind": "Pod"}}\n'
    file = tmp_path / "record.jsonl"
    file.write_text(2 * line)
    with pytest.raises(ConfigurationError, match="a record of kube-scheduler-simulator, which"):
        read_objects(file)


def test_an_export_of_nothing_is_one(tmp_path: Path) -> None:
    file = tmp_path / "export.json"
    file.write_text('{"pods": [], "nodes": [], "pvs": null}')
    assert read_objects(file) == []


def test_an_export_of_the_simulator_is_read(tmp_path: Path) -> None:
    file = tmp_path / "f.yaml"
    file.write_text(
        "pods: [{metadata: {name: p}}]\nnodes: [{metadata: {name: n}}]\npvs: []\n"
        "schedulerConfig: {apiVersion: kubescheduler.config.k8s.io/v1}\n"
    )
    kinds = [obj["kind"] for obj in read_objects(file)]
    assert kinds == ["Pod", "Node", "KubeSchedulerConfiguration"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "- workloadTemplate:\n  - {opcode: a, nodeTemplatePath: config/node-default.yaml}\n",
            "a configuration of scheduler_perf, .* here config/node-default.yaml",
        ),
        ("replicas: {{ .Values.replicas }}\n", "a template"),
        ("{{- if .Values.on }}\nkind: Pod\n{{- end }}\n", "a template"),
        ("- a\n- b\n", "a document must be an object"),
        ('{"a": 1}\n{"b": \n', "not YAML"),
    ],
)
def test_a_refusal_says_what_a_file_is(text: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "f.yaml"
    file.write_text(text)
    with pytest.raises(ConfigurationError, match=message) as caught:
        read_objects(file)
    assert "\n" not in str(caught.value)


def test_scalars_are_what_the_api_server_reads() -> None:
    text = "{a: 2026-13-45, b: 9999-99-99, c: 1:30, d: 010, e: yes, 1: !!timestamp 2026-01-01}"
    expected = {"a": "2026-13-45", "b": "9999-99-99", "c": "1:30", "d": 8, "e": True}
    for is_fast in (True, False):
        assert parse_yaml(text, is_fast=is_fast) == [{**expected, "1": "2026-01-01"}]


def test_a_file_without_an_end_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="more than 2 MiB"):
        read_yaml(Path("/dev/zero"))
