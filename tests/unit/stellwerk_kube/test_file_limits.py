"""Files of strangers are refused before they cost much, and an option reads more of them."""

import io
import lzma
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from typing_extensions import override

from stellwerk_kube.errors import ConfigurationError
from stellwerk_kube.file_limits import allow, read_stream, read_trace
from stellwerk_kube.yaml_file import parse_yaml, read_objects, read_yaml
from stellwerk_simulation.trace import read_pods

HEAD = (
    b"name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,"
    b"creation_time,deletion_time,scheduled_time\n"
)


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    yield
    allow(1)


def packed(folder: Path, *parts: tuple[bytes, int]) -> Path:
    """An .xz file of parts that are repeated, made without holding it."""
    path, packer = folder / "trace.csv.xz", lzma.LZMACompressor(preset=0)
    with path.open("wb") as file:
        for part, times in parts:
            many = max(1, (1 << 20) // len(part))
            for _ in range(times // many):
                file.write(packer.compress(part * many))
            file.write(packer.compress(part * (times % many)))
        file.write(packer.flush())
    return path


@pytest.mark.parametrize(
    ("part", "times", "reason"),
    [
        pytest.param(b"\0", 300 << 20, "100 times its size", id="zeros"),
        pytest.param(b"a,1,1,0,0,,0,9,1\n", 6_000_000, "100 times its size", id="rows"),
        pytest.param(b"," * 997, 60_000, "100 times its size", id="commas"),
    ],
)
def test_a_small_file_that_unpacks_to_much_costs_little(
    part: bytes, times: int, reason: str, tmp_path: Path
) -> None:
    path = packed(tmp_path, (HEAD, 1), (part, times))
    script = (
        "import re, sys, time; from pathlib import Path\n"
        "from stellwerk_simulation.trace import read_pods\n"
        "from stellwerk_kube.errors import ConfigurationError\n"
        "began = time.process_time()\n"
        "try: read_pods(Path(sys.argv[1]))\n"
        "except ConfigurationError as error: print(error)\n"
        # Not ru_maxrss: that begins with the size of the process which started this one.
        "peak = re.search(r'VmHWM:\\s*(\\d+)', Path('/proc/self/status').read_text())[1]\n"
        "print(time.process_time() - began, peak)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(path)], capture_output=True, text=True, check=True
    )
    said, costs = done.stdout.splitlines()
    seconds, kib = map(float, costs.split())
    assert reason in said or "64 MiB" in said
    assert "; --file-limits 4 allows more" in said
    assert seconds < 2, costs
    assert kib < 256 << 10, costs


def test_the_option_reads_more(tmp_path: Path) -> None:
    path = packed(tmp_path, (b"\n", 12 << 20))
    with pytest.raises(ConfigurationError, match="--file-limits 4"):
        read_trace(path)
    allow(2)
    assert len(read_trace(path)) == 12 << 20


def test_rows_and_lines_are_counted_while_they_are_read(tmp_path: Path) -> None:
    path = tmp_path / "pods.csv"
    path.write_bytes(HEAD + b"".join(b"p%d,1,1,0,0,,0,9,1\n" % each for each in range(100_001)))
    began = time.process_time()
    with pytest.raises(ConfigurationError, match=r"line 100002: more than 100,000 rows; --file"):
        read_pods(path)
    assert time.process_time() - began < 2
    path.write_bytes(HEAD + b"," * ((1 << 20) + 1))
    with pytest.raises(ConfigurationError, match=r"line 2: more than 1,048,576 characters in a"):
        read_pods(path)


@pytest.mark.parametrize("document", ["---\n1\n", "--- {}\n", "--- a\n...\n", "--- [a, b]\n"])
def test_documents_are_counted_while_they_are_read(document: str, tmp_path: Path) -> None:
    path = tmp_path / "many.yaml"
    path.write_text(document * 200_000)
    began = time.process_time()
    with pytest.raises(ConfigurationError, match=r"more than 20,000 documents; --file-limits 4"):
        read_objects(path)
    assert time.process_time() - began < 2
    allow(2)
    assert len(parse_yaml(document * 30_000, is_fast=True)) >= 30_000


def test_json_values_are_counted_like_documents(tmp_path: Path) -> None:
    path = tmp_path / "many.json"
    path.write_text("{} " * 20_001)
    with pytest.raises(ConfigurationError, match="more than 20,000 documents; --file-limits 4"):
        read_objects(path)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        pytest.param("many.yaml", "a: [" + "0," * 600_000 + "0]", id="zeros in YAML"),
        pytest.param("many.yaml", "- 0\n" * 600_000, id="a line for each value"),
        pytest.param("many.yaml", "a: {" + "b: 0, " * 600_000 + "}", id="one key, again and again"),
        pytest.param("many.json", "[" + "0," * 2_000_000 + "0]", id="zeros in JSON"),
        pytest.param("many.json", "[" + "{}," * 2_000_000 + "{}]", id="empty objects"),
    ],
)
def test_values_that_are_very_many_for_the_text_are_counted_before_they_are_made(
    name: str, text: str, tmp_path: Path
) -> None:
    path = tmp_path / name
    path.write_text(text)
    began = time.process_time()
    with pytest.raises(ConfigurationError, match=r"more than [\d,]+ values in \d+ KiB; --file-lim"):
        read_objects(path)
    assert time.process_time() - began < 2


def test_settings_are_read_by_libyaml_where_they_are_long(tmp_path: Path) -> None:
    """PyYAML's own reader takes a second for each 100 KiB."""
    path = tmp_path / "settings.yaml"
    path.write_text("a: [" + "one, " * 150_000 + "two]")
    began = time.process_time()
    assert len(read_yaml(path)) == 1
    assert time.process_time() - began < 4
    path.write_text("a" * ((2 << 20) + 1))
    with pytest.raises(ConfigurationError, match="more than 2 MiB; --file-limits 4 allows more"):
        read_yaml(path)


def test_a_large_file_is_refused_by_its_size(tmp_path: Path) -> None:
    path = tmp_path / "large.yaml"
    with path.open("wb") as file:
        file.truncate((1 << 30) + 1)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(ConfigurationError, match=r"more than 1024 MiB; --file-limits 4 allows"):
        read_objects(path)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 32 << 10


def test_a_stream_is_read_to_its_limit() -> None:
    class Pipe(io.BytesIO):
        @override
        def seekable(self) -> bool:
            return False

    assert read_stream("-", Pipe(b"abc"), 3) == b"abc"
    with pytest.raises(ConfigurationError, match="cannot read -: more than 0 MiB"):
        read_stream("-", Pipe(b"abcd"), 3)
