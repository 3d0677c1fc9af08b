"""A bundle is a file of its user's own, and takes the place of an older bundle alone."""

import os
import tarfile
from pathlib import Path

import pytest

from stellwerk.answers.diagnosis import Finding
from stellwerk_cli.commands.diagnosis.bundle import check_writable, write_bundle
from stellwerk_cli.commands.diagnosis.checks import Installation
from stellwerk_cli.commands.diagnosis.examination import Observed
from stellwerk_kube.errors import ConfigurationError


def observed(*findings: Finding) -> Observed:
    return Observed("v1.36.2", Installation((), (), (), ()), list(findings))


def test_it_is_private_whole_and_replaces_an_older_one(tmp_path: Path) -> None:
    file = tmp_path / "b.tar.gz"
    for _ in range(2):
        write_bundle(file, observed(), force=False)
    assert file.stat().st_mode & 0o777 == 0o600
    assert [*tmp_path.iterdir()] == [file]
    with tarfile.open(file) as archive:
        assert archive.getnames()[0] == "stellwerk-bundle/README.txt"
        assert {each.mode for each in archive} == {0o600}


def test_another_file_is_kept_but_with_force(tmp_path: Path) -> None:
    file = tmp_path / "thesis.txt"
    file.write_text("years of work")
    with pytest.raises(ConfigurationError, match="not a bundle of Stellwerk; --force"):
        write_bundle(file, observed(), force=False)
    assert file.read_text() == "years of work"
    write_bundle(file, observed(), force=True)
    check_writable(file, force=False)


def test_a_foreign_archive_is_another_file(tmp_path: Path) -> None:
    file = tmp_path / "b.tar.gz"
    with tarfile.open(file, "w:gz") as archive:
        archive.add(__file__, "thesis.txt")
    with pytest.raises(ConfigurationError, match="not a bundle of Stellwerk"):
        check_writable(file, force=False)


def test_links_pipes_and_missing_directories_are_refused(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_text("kept")
    link, pipe = tmp_path / "link", tmp_path / "pipe"
    link.symlink_to(target)
    os.mkfifo(pipe)
    for path, reason in (
        (link, "it is a link"),
        (pipe, "it is not a file"),
        (tmp_path, "it is not a file"),
        (tmp_path / "none" / "b", "there is no directory"),
    ):
        with pytest.raises(ConfigurationError, match=reason):
            write_bundle(path, observed(), force=True)
    assert target.read_text() == "kept"


def test_the_worst_finding_is_the_state_of_all() -> None:
    def finding(state: str) -> Finding:
        return Finding(check="a", state=state, what="b")  # type: ignore[arg-type]

    assert observed().diagnosis.state == "unknown"
    assert observed(finding("ok"), finding("unknown")).diagnosis.state == "unknown"
    found = observed(finding("failed"), finding("warning"), finding("ok"))
    assert found.diagnosis.state == "failed"
