"""The Dockerfile: linted, pinned, and with nothing in its last stage but what was collected."""

import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

from stellwerk import __version__
from tests.structure.image_steps import instructions, sent_to_the_builder
from tests.support.repository import ROOT

LAST = max(each.stage for each in instructions())


def of_last_stage(name: str) -> list[str]:
    return [each.text for each in instructions() if (each.stage, each.name) == (LAST, name)]


def test_hadolint_has_no_complaint(require_tool: Callable[[str], str]) -> None:
    done = subprocess.run(
        [require_tool("hadolint"), ROOT / "Dockerfile"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "")


def test_the_bases_are_one_argument_with_a_full_version() -> None:
    arguments = [each.text for each in instructions() if each.name == "ARG"]
    (argument,) = [each for each in arguments if not each.startswith("VERSION=")]
    assert re.fullmatch(r"BASE=python:\d+\.\d+\.\d+-slim-\w+(@sha256:[0-9a-f]{64})?", argument)
    bases = [each.text.split()[0] for each in instructions() if each.name == "FROM"]
    assert bases == ["${BASE}", "scratch"]


def test_an_image_is_built_of_a_base_by_its_digest_or_not_by_mistake(tmp_path: Path) -> None:
    """With a docker that only says what it was asked for: none is here."""
    text = (ROOT / "Dockerfile").read_text()
    (base,) = re.findall(r"^ARG BASE=([^@\s]+)", text, re.MULTILINE)
    (tmp_path / "Dockerfile").write_text(
        re.sub(r"^(ARG BASE=[^@\s]+).*", r"\1", text, flags=re.MULTILINE)
    )
    docker = tmp_path / "bin" / "docker"
    docker.parent.mkdir()
    docker.write_text(f"""#!/bin/sh
echo "$@" >> {tmp_path}/asked
case "$*" in *imagetools*) echo sha256:{"ab" * 32};; esac
""")
    docker.chmod(0o755)

    def make(*words: str) -> subprocess.CompletedProcess[str]:
        command = ("make", "--silent", "--file", str(ROOT / "Makefile"), *words)
        path = f"{docker.parent}:{os.environ['PATH']}"
        environment = {**os.environ, "PATH": path, "MAKEFLAGS": ""}
        return subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )

    refused = make("image")
    assert refused.returncode != 0
    assert "the base of the image has no digest: make digests writes it" in refused.stderr
    assert not (tmp_path / "asked").exists()
    assert make("image", "UNPINNED=1").returncode == 0
    assert "linux/amd64,linux/arm64" in (tmp_path / "asked").read_text()
    assert make("digests").returncode == 0
    pinned = f"ARG BASE={base}@sha256:{'ab' * 32}\n"
    assert pinned in (tmp_path / "Dockerfile").read_text()
    assert make("image").returncode == 0
    assert make("digests").returncode == 0, "again, when the base has moved on"
    assert pinned in (tmp_path / "Dockerfile").read_text()


def test_the_image_says_what_it_is_in_labels_of_oci() -> None:
    (label,) = of_last_stage("LABEL")
    labels = dict(re.findall(r'org\.opencontainers\.image\.(\w+)="([^"]+)"', label))
    assert set(labels) >= {"title", "description", "version", "licenses", "url", "source"}
    assert labels["version"] == "${VERSION}"
    assert of_last_stage("ARG") == [f"VERSION={__version__}"]


def test_the_last_stage_has_what_was_collected_and_runs_nothing() -> None:
    assert of_last_stage("FROM") == ["scratch"]
    assert of_last_stage("RUN") == []
    assert of_last_stage("COPY") == ["--from=build /image /"]
    assert of_last_stage("USER") == ["65532:65532"]


def test_what_is_copied_is_sent_to_the_builder() -> None:
    copied = [
        Path(source)
        for each in instructions()
        if each.name == "COPY" and not each.text.startswith("--from")
        for source in each.text.split()[:-1]
    ]
    assert set(copied) <= set(sent_to_the_builder())
    assert all((ROOT / source).exists() for source in sent_to_the_builder())
