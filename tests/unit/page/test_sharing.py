"""Commands to copy: a shell reads back what was meant, whatever a name holds."""

import shlex
import subprocess
from pathlib import Path

import pytest

from stellwerk.page.sharing import command, file_name, what_if_command


def test_a_command_is_read_back_word_by_word() -> None:
    words = ["stellwerk", "explain", "pod/$(touch x)", "-n", "a'b; c"]
    assert shlex.split(command(*words[:2], "", *words[2:])) == words


def test_manifests_become_files_that_the_command_reads(tmp_path: Path) -> None:
    pod = "kind: Pod\nEND\nname: $HOME `id`"
    form = {"pod": pod.replace("\n", "\r\n"), "nodes": "kind: Node", "count": "3", "drain": "n 1"}
    script = what_if_command(form)
    called = tmp_path / "stellwerk"
    called.write_text('#!/bin/sh\nprintf "%s\\n" "$@" > called\n')
    called.chmod(0o755)
    subprocess.run(
        ["/bin/sh", "-c", script],
        check=True,
        cwd=tmp_path,
        env={"PATH": f"{tmp_path}:/bin:/usr/bin"},
    )
    assert (tmp_path / "pod.yaml").read_text() == f"{pod}\n"
    words = (tmp_path / "called").read_text().split("\n")[:-1]
    assert words == [
        "what-if", "--add-nodes", "nodes.yaml", "--count", "3", "--pod", "pod.yaml",
        "--drain", "n 1",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("path", "name"),
    [("/", "overview.json"), ("/pods/a/b", "pods-a-b.json"), ('/nodes/"x\n/..', "nodes-x.json")],
)
def test_a_file_is_named_after_its_page(path: str, name: str) -> None:
    assert file_name(path) == name
