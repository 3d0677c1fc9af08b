"""What is in the image: the programs, libraries and files that run, and nothing else."""

import json
import re
import stat
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from stellwerk import __version__
from tests.image.conftest import BuiltImage
from tests.support.built_image import config_of
from tests.support.repository import ROOT

MAX_BYTES = 270_000_000
PAGE = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
PROGRAMS = {"kubectl-stellwerk", "python", "stellwerk"}


def files(root: Path) -> Iterator[tuple[str, Path]]:
    """Every file and folder, by its place in the image."""
    for path in root.rglob("*"):
        yield f"/{path.relative_to(root)}", path


def python(image: BuiltImage, code: str) -> str:
    """What a programme prints in the image, as the image's user without any environment."""
    done = subprocess.run(
        ["chroot", "--userspec=65532:65532", image.root, "/opt/stellwerk/bin/python", "-c", code],
        capture_output=True,
        text=True,
        check=False,
        env={},
        executable="/usr/sbin/chroot",
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_only_programs_are_python_and_stellwerk(image: BuiltImage) -> None:
    runnable = {
        place
        for place, path in files(image.root)
        if path.is_file() and not path.is_symlink() and path.stat().st_mode & 0o111
    }
    loaders = {place for place in runnable if Path(place).name.startswith("ld-linux")}
    assert runnable - loaders == {f"/opt/stellwerk/bin/{name}" for name in PROGRAMS}
    assert len(loaders) == 1
    folders = {place for place, path in files(image.root) if path.name in {"bin", "sbin"}}
    assert folders == {"/opt/stellwerk/bin"}
    assert {path.name for path in (image.root / "opt/stellwerk/bin").iterdir()} == PROGRAMS


def test_all_is_roots_and_nobody_else_may_write_it(image: BuiltImage) -> None:
    wrong = {}
    for place, path in files(image.root):
        status = path.lstat()
        mode = stat.S_IMODE(status.st_mode)
        if (status.st_uid, status.st_gid) != (0, 0):
            wrong[place] = f"{status.st_uid}:{status.st_gid}"
        elif stat.S_ISLNK(status.st_mode):
            continue
        elif mode & 0o7022 and (place, mode) != ("/tmp", 0o1777):  # noqa: S108 of the image
            wrong[place] = oct(mode)
    assert wrong == {}


@pytest.mark.parametrize(
    "name",
    [
        *("sh", "bash", "dash", "busybox", "perl", "apt", "dpkg", "pip", "pip3", "f2py"),
        *("cc", "gcc", "as", "ld", "make", "mount", "su", "curl", "wget"),
        *("ensurepip", "idlelib", "tkinter", "turtle.py", "lib2to3", "distutils", "setuptools"),
        *("tests", "test", "bazel-project", "stellwerk_cluster", "zstandard"),
    ],
)
def test_nothing_has_the_name_of_what_is_left_out(image: BuiltImage, name: str) -> None:
    found = [place for place, path in files(image.root) if path.name == name]
    assert found == (["/var/lib/dpkg"] if name == "dpkg" else [])  # what scanners read


@pytest.mark.parametrize("ending", [".a", ".c", ".h", ".pyi", ".pyx", ".whl", ".exe"])
def test_there_are_no_sources_to_compile(image: BuiltImage, ending: str) -> None:
    assert [place for place, path in files(image.root) if path.suffix == ending] == []


def test_it_is_no_larger_than_it_may_be(image: BuiltImage) -> None:
    sizes = {path.lstat().st_ino: path.lstat().st_size for _, path in files(image.root)}
    assert sum(sizes.values()) <= MAX_BYTES


def part_of(place: str) -> str:
    """The row of the page's table that counts a file."""
    if place.startswith(("/etc/", "/var/")):
        return "certificates"
    if place.startswith("/opt/stellwerk/lib/"):
        ours = re.search(r"/site-packages/(kubectl_)?stellwerk", place)
        return "Stellwerk" if ours else "packages"
    return "the standard library" if re.search(r"/lib/python3\.\d+/", place) else "the interpreter"


def test_the_page_has_the_size_of_each_part(image: BuiltImage) -> None:
    """Within a MiB or 5 %; a failure prints what the page is to say."""
    sizes: Counter[str] = Counter()
    for place, path in files(image.root):
        if path.is_file() and not path.is_symlink():
            sizes[part_of(place)] += path.lstat().st_size
    libraries = {place for place, _ in files(image.root) if part_of(place) == "the interpreter"}
    libraries = {place for place in libraries if ".so" in place}
    found = {part: size / 2**20 for part, size in sizes.items()}
    table = PAGE.split("| part | MiB |")[1].split("\n\n")[0]
    rows = re.findall(r"^\| (.*) \| ([\d.]+) \|$", table, re.MULTILINE)
    written = {part: float(size) for part in found for name, size in rows if name.startswith(part)}
    assert written == pytest.approx(found, rel=0.05, abs=1)
    (total,) = re.findall(r"(\d+) MiB unpacked", PAGE)
    assert float(total) == pytest.approx(sum(found.values()), rel=0.05)
    assert f"the {len(libraries)} shared libraries" in table


def test_the_user_and_the_names_of_hosts_are_known(image: BuiltImage) -> None:
    etc = image.root / "etc"
    assert (etc / "passwd").read_text().splitlines() == [
        "stellwerk:x:65532:65532:Stellwerk:/tmp:/nonexistent"
    ]
    assert (etc / "group").read_text().splitlines() == ["stellwerk:x:65532:"]
    assert "hosts: files dns\n" in (etc / "nsswitch.conf").read_text()


def test_certificates_and_time_zones_are_found(image: BuiltImage) -> None:
    printed = python(
        image,
        "import ssl, zoneinfo\n"
        "print(ssl.create_default_context().cert_store_stats()['x509_ca'])\n"
        "print(zoneinfo.ZoneInfo('Europe/Berlin'))",
    )
    authorities, zone = printed.split()
    assert int(authorities) > 50
    assert zone == "Europe/Berlin"


def test_every_extension_module_finds_its_libraries(image: BuiltImage) -> None:
    """With a thread that ends, for which glibc opens libgcc_s."""
    printed = python(
        image,
        """
import importlib, importlib.machinery, json, pathlib, sys, sysconfig, threading
suffix = importlib.machinery.EXTENSION_SUFFIXES[0]
folder = pathlib.Path(sysconfig.get_path("stdlib"), "lib-dynload")
names = [path.name.partition(".")[0] for path in folder.iterdir()]
for name in [*names, "numpy", "cryptography.x509", "re2", "uvloop", "orjson",
             "pydantic_core", "backports.zstd", "xxhash", "yaml", "google.protobuf.message"]:
    importlib.import_module(name)
thread = threading.Thread(target=print)
thread.start()
thread.join()
print(json.dumps(names))
""",
    )
    assert {"_ssl", "_ctypes", "_sqlite3"} <= set(json.loads(printed.splitlines()[-1]))


def test_every_module_that_the_operator_imports_is_compiled(image: BuiltImage) -> None:
    """A root that is read-only would have them compiled at each start."""
    printed = python(
        image,
        """
import json, os, sys
import stellwerk.app, stellwerk.handlers.watching, stellwerk_cli.commands.run, stellwerk_plugins
import numpy, uvloop, cryptography.x509, yaml, jinja2
missing = [
    name for name, module in sys.modules.items()
    if (cached := getattr(module, "__cached__", None)) and not os.path.exists(cached)
]
print(json.dumps([len(sys.modules), missing]))
""",
    )
    count, missing = json.loads(printed)
    assert count > 1000
    assert missing == []


def test_scanners_find_the_packages_that_the_libraries_are_from(image: BuiltImage) -> None:
    folder = image.root / "var/lib/dpkg/status.d"
    packages = {path.name: path.read_text() for path in folder.iterdir()}
    assert {"libc6", "libssl3", "zlib1g", "libgcc-s1"} <= packages.keys()
    assert all(f"Package: {name}\n" in text for name, text in packages.items())
    assert all("\nVersion: " in text for text in packages.values())
    assert "ID=debian\n" in (image.root / "etc/os-release").read_text()


def test_neither_pip_nor_the_embedded_cluster_can_be_imported(image: BuiltImage) -> None:
    printed = python(
        image,
        """
import importlib.util
names = ["pip", "ensurepip", "venv", "setuptools", "distutils", "stellwerk_cluster", "tkinter"]
print([name for name in names if importlib.util.find_spec(name)])
""",
    )
    assert printed.strip() == "[]"


def test_the_image_says_what_it_is_and_as_whom_it_runs(image: BuiltImage) -> None:
    config = config_of(image.name)
    assert config["User"] == "65532:65532"
    assert (config["Entrypoint"], config["Cmd"]) == (["stellwerk"], ["run"])
    assert config["Labels"]["org.opencontainers.image.version"] == __version__
