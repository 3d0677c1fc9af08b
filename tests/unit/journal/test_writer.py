"""What a journal is written over, and what it is not."""

import os
from pathlib import Path

import pytest

from stellwerk.journal.entries import Head, encode
from stellwerk.journal.reader import open_journal, part_before
from stellwerk.journal.writer import JournalOptions, JournalWriter
from stellwerk.journal.zstandard import framing
from tests.support.findings import hold

HEAD = Head("test", "2026-01-01T00:00:00Z")
NOTES = b"what I must not forget\n"


def write_journal(file: Path) -> None:
    JournalWriter(JournalOptions(file), HEAD).close()


def journal() -> bytes:
    return framing()(encode(HEAD))


@pytest.mark.parametrize("is_earlier", [False, True], ids=["", "as the part before"])
@pytest.mark.parametrize(
    "content",
    [
        pytest.param(NOTES, id="notes"),
        pytest.param(framing()(NOTES), id="notes, compressed as a journal is"),
        pytest.param(journal()[:4] + NOTES, id="nothing but the magic number"),
    ],
)
def test_another_file_stays_as_it_is(tmp_path: Path, content: bytes, *, is_earlier: bool) -> None:
    file = tmp_path / "j"
    other = part_before(file) if is_earlier else file
    other.write_bytes(content)
    with pytest.raises(OSError, match=rf"{other.name} exists and is not a journal"):
        write_journal(file)
    assert other.read_bytes() == content
    assert is_earlier is not file.exists()
    if not is_earlier:
        JournalWriter(JournalOptions(file, force=True), HEAD).close()
        assert next(iter(open_journal(file))) == HEAD


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"", id="empty"),
        pytest.param(journal() * 3, id="a journal"),
        pytest.param(journal()[:10], id="a journal that was cut in its first block"),
        pytest.param(
            framing()(encode(Head("1", "x", part=7)) + os.urandom(1 << 19))[: 1 << 18],
            id="a journal whose first block is long",
        ),
    ],
)
def test_a_journal_is_replaced_and_readable_to_its_owner_alone(
    tmp_path: Path, content: bytes
) -> None:
    file = tmp_path / "j"
    for each in (file, part_before(file)):
        each.write_bytes(content)
        each.chmod(0o644)
    write_journal(file)
    assert list(open_journal(file)) == [HEAD]
    assert file.stat().st_mode & 0o700 == 0o600
    hold("recording mode", file.stat().st_mode & 0o077)
    assert not part_before(file).exists()


def test_links_and_what_is_no_file_are_refused(tmp_path: Path) -> None:
    target, link, pipe = tmp_path / "target", tmp_path / "link", tmp_path / "pipe"
    target.write_bytes(journal())
    link.symlink_to(target)
    os.mkfifo(pipe)
    with pytest.raises(OSError, match="link is a symbolic link"):
        write_journal(link)
    with pytest.raises(OSError, match="pipe is not a regular file"):
        write_journal(pipe)
    with pytest.raises(OSError, match="Is a directory"):
        write_journal(tmp_path)
    hold("links followed", target.read_bytes() != journal())
