"""The files of the image, collected in the build stage of the Dockerfile for its last stage.

`/opt/stellwerk/bin/python collect.py TARGET` writes a root file system into TARGET: the virtual
environment that runs this script, the standard library of its interpreter, the shared libraries
that `ldd` names for both, and the files of `OPENED_AT_RUN_TIME`. What they hold and no command
needs is left out by name, each with its reason. Invariant: every file belongs to root, only root
may write it, none is set-user-ID, and the only programs are those of `PROGRAMS`.
"""

import compileall
import os
import re
import shutil
import ssl
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from fnmatch import fnmatch
from pathlib import Path

USER = 65532
"""The number of the user and of the group that the image runs as."""
HOME = "/tmp"  # noqa: S108 the folder of a pod with a read-only root that the user may write to
"""The home of that user: credential plugins keep caches below it."""
PLUGINS = "plugins"
"""The folder of the virtual environment that an image made of this one adds packages to."""
PROGRAMS = ("python", "stellwerk", "kubectl-stellwerk")
"""The programs of the virtual environment that stay.

The others are activation scripts of shells, and commands of dependencies.
"""

WITHOUT = {
    # of the standard library
    "config-*": "a static library and a makefile, to compile an interpreter",
    "ensurepip": "brings pip back",
    "venv": "makes virtual environments, for which pip would be needed",
    "distutils": "drives compilers",
    "lib2to3": "rewrites sources of Python 2",
    "idlelib": "an editor, which needs Tk",
    "tkinter": "needs Tk and X11",
    "turtle.py": "needs Tk",
    "turtledemo": "needs Tk",
    "lib-dynload/_tkinter.*": "needs Tk",
    "test": "tests of the standard library",
    "lib-dynload/_test*": "tests of the interpreter",
    "lib-dynload/_ctypes_test.*": "tests of ctypes",
    "lib-dynload/_xx*": "tests of the interpreter",
    "lib-dynload/xx*": "examples of extension modules",
    "pydoc_data": "the texts of help()",
    "sitecustomize.py": "Debian's hook for its package of crash reports, which is not here",
    # of packages
    "*/tests": "tests of packages",
    "*/test": "tests of packages",
    "numpy/conftest.py": "tests of NumPy",
    "numpy/distutils": "drives compilers",
    "numpy/f2py": "compiles Fortran",
    "numpy/*/include": "headers, to compile extension modules",
    "numpy/*/lib/*.a": "static libraries, to compile extension modules",
    "*.pyi": "types, for type checkers",
    "*.pyx": "sources of extension modules",
    "*.pxd": "sources of extension modules",
    "*.pxi": "sources of extension modules",
    "*.c": "sources of extension modules",
    "*.h": "sources of extension modules",
    "*-stubs": "types, for type checkers",
    "CHANGELOG.md": "a text that a wheel drops beside its package",
    "CONTRIBUTING.md": "a text that a wheel drops beside its package",
    "LICENSE": "a text that a wheel drops beside its package; its own lies in *.dist-info",
    "README.md": "a text that a wheel drops beside its package",
    "pyproject.toml": "a file that a wheel drops beside its package",
    # of Stellwerk
    "stellwerk_cluster": "an API server, a signer of tokens and an injector of faults: tools of an "
    "intruder, which no command needs that asks a cluster",
    # of all of them
    "__pycache__": "compiled anew, without the dates of files",
    "*/__pycache__": "as above",
}
"""Patterns of paths below the standard library or the packages that the image leaves out, and why.

A star stands for folders as well.
"""

OPENED_AT_RUN_TIME = {
    "libgcc_s.so.1": "glibc opens it when a thread ends, and C++ when it throws",
    "libnss_files.so.2": "an older glibc opens it for /etc/hosts and /etc/passwd",
    "libnss_dns.so.2": "an older glibc opens it to resolve names",
}
"""Libraries that no file names as its own, and that the C library opens by name."""

TEXTS = {
    "etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
    "etc/passwd": f"stellwerk:x:{USER}:{USER}:Stellwerk:{HOME}:/nonexistent\n",
    "etc/group": f"stellwerk:x:{USER}:\n",
}
PACKAGE_STATUS = "var/lib/dpkg/status.d"
"""The folder in which scanners look for Debian's packages in images without a package manager."""
AUTHORITIES = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt")
"""Where distributions keep the certificates of public authorities."""


def main(target: Path) -> None:
    """Write the whole root file system.

    Raises:
        ValueError: something that the image needs is not in the build stage.
    """
    prefix, library = Path(sys.prefix), Path(sysconfig.get_path("stdlib"))
    packages = Path(sysconfig.get_path("purelib"))
    for folder in (library, packages):
        copy_folder(folder, below(target, folder))
    copy_prefix(prefix, target, packages)
    copy_libraries(target, elf_files(target))
    # For scanners: the release of Debian that the packages below var/lib/dpkg are from.
    shutil.copyfile("/etc/os-release", place(target / "etc/os-release"))
    for name, text in TEXTS.items():
        place(target / name).write_text(text)
    copy_authorities(target)
    for folder in (library, packages):
        compile_folder(target, below(target, folder))
    set_owner_and_mode(target, prefix)
    folder = target / "tmp"
    folder.mkdir()
    folder.chmod(0o1777)


def below(target: Path, path: Path) -> Path:
    """Return the place of an absolute path in the image."""
    return target / path.relative_to("/")


def place(path: Path) -> Path:
    """Make the folder of a file that is about to be written, and return the file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def copy_folder(source: Path, target: Path) -> None:
    """Copy a folder without what `WITHOUT` names; links become the files that they lead to.

    The standard library of an interpreter holds its packages, which are not those of the virtual
    environment: both names of their folder are left out as well.
    """

    def left_out(folder: str, names: list[str]) -> list[str]:
        inside = Path(folder).relative_to(source)
        others = [] if inside.parts else ["site-packages", "dist-packages"]
        matched = [
            name
            for name in names
            if any(fnmatch(str(inside / name), pattern) for pattern in WITHOUT)
        ]
        return others + matched

    shutil.copytree(source, target, ignore=left_out)


def copy_prefix(prefix: Path, target: Path, packages: Path) -> None:
    """Copy what makes the packages a virtual environment, and make a place for plugins."""
    for name in PROGRAMS:
        shutil.copyfile(prefix / "bin" / name, place(below(target, prefix / "bin" / name)))
    shutil.copyfile(prefix / "pyvenv.cfg", below(target, prefix / "pyvenv.cfg"))
    below(target, prefix / PLUGINS).mkdir()
    # A file *.pth names further folders of packages; the entry points in them are found as well.
    (below(target, packages) / f"{PLUGINS}.pth").write_text(f"{prefix / PLUGINS}\n")


def elf_files(target: Path) -> Iterator[Path]:
    """Yield the programs and libraries of the image, by their first bytes."""
    for path in sorted(target.rglob("*")):
        if path.is_file():
            with path.open("rb") as opened:
                if opened.read(4) == b"\x7fELF":
                    yield path


def copy_libraries(target: Path, files: Iterable[Path]) -> None:
    """Copy the libraries that `ldd` names, and those that are opened at run time, to their places.

    Raises:
        ValueError: one is not in the build stage.
    """
    needed: set[Path] = set()
    for file in files:
        told = subprocess.run(  # noqa: S603 a program of the build stage
            ["/usr/bin/ldd", file], capture_output=True, text=True, check=False
        ).stdout
        missing = re.findall(r"^\s*(\S+) => not found", told, re.MULTILINE)
        if missing:
            raise ValueError(f"{file} needs {', '.join(missing)}, which the base does not have")
        # `name => /path (address)`, and the loader as `/path (address)`.
        found = re.findall(r"(?:=> |^\s*)(/\S+) \(0x", told, re.MULTILINE)
        needed |= set(map(Path, found))
    needed = {path for path in needed if not path.is_relative_to(target)}
    (of_libc,) = [path for path in needed if path.name == "libc.so.6"]
    needed |= {of_libc.with_name(name) for name in OPENED_AT_RUN_TIME}
    for path in sorted(needed):
        shutil.copyfile(path, place(below(target, path)))
        note_package(target, path)
    # With an index the loader finds each at its place, whichever folders it knows itself.
    folders = sorted({str(path.parent) for path in needed})
    place(target / "etc/ld.so.conf").write_text("\n".join([*folders, ""]))
    subprocess.run(["/sbin/ldconfig", "-r", target], check=True)  # noqa: S603


def note_package(target: Path, file: Path) -> None:
    """Note which package of Debian a library is from, so that scanners know its version.

    A library that the base compiled itself, as the official one did with Python, is of none.
    """
    # Debian's index of files has names of before /lib became a link to /usr/lib, or of after.
    names = {file, Path("/usr", file.relative_to("/")), file.resolve()}
    found = query("--search", *names)
    if found:
        package = found.partition(": ")[0].partition(",")[0]
        status = query("--status", package)
        place(target / PACKAGE_STATUS / package.partition(":")[0]).write_text(status)


def query(*words: str | Path) -> str:
    """Return what dpkg-query prints; nothing where it knows nothing."""
    return subprocess.run(  # noqa: S603 a program of the build stage
        ["/usr/bin/dpkg-query", *words], capture_output=True, text=True, check=False
    ).stdout


def copy_authorities(target: Path) -> None:
    """Copy the certificates of public authorities, and link them from where OpenSSL looks.

    Raises:
        ValueError: the build stage has none.
    """
    found = next((path for path in map(Path, AUTHORITIES) if path.is_file()), None)
    if found is None:
        raise ValueError(f"no certificates of authorities at {' or '.join(AUTHORITIES)}")
    shutil.copyfile(found, place(below(target, found)))
    looked_for = Path(ssl.get_default_verify_paths().openssl_cafile)
    if not below(target, looked_for).exists():
        place(below(target, looked_for)).symlink_to(found)


def compile_folder(target: Path, folder: Path) -> None:
    """Compile every module: with a read-only root each start would compile it anew.

    Nothing checks a module against its source at a start: a file of an image does not change.

    Raises:
        ValueError: a module is no Python of this version.
    """
    if not compileall.compile_dir(
        folder,
        maxlevels=99,
        stripdir=str(target),
        prependdir="/",
        quiet=1,
        workers=os.cpu_count() or 1,
        invalidation_mode=compileall.py_compile.PycInvalidationMode.UNCHECKED_HASH,
    ):
        raise ValueError(f"not all modules of {folder} can be compiled")


def set_owner_and_mode(target: Path, prefix: Path) -> None:
    """Give everything to root, for all to read and for nobody else to write."""
    programs = {below(target, prefix / "bin" / name) for name in PROGRAMS}
    for path in [target, *target.rglob("*")]:
        os.chown(path, 0, 0, follow_symlinks=False)
        if not path.is_symlink():
            is_run = path.is_dir() or path in programs or path.name.startswith("ld-linux")
            path.chmod(0o755 if is_run else 0o644)


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]))
    except ValueError as error:
        sys.exit(f"collect.py: {error}")
