"""What goes with a release beside wheel and sdist: made from a clone, the same each time."""

import hashlib
import json
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from stellwerk import __version__
from tests.support.kubectls import helm
from tests.support.repository import ROOT

PROGRAM = ROOT / ".ci" / "artifacts"


def make(
    *arguments: str | Path, program: Path = PROGRAM, fails: bool = False
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(program), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode != 0) == fails, done.stderr
    return done


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The program in a folder of its own, with what it reads."""
    for name in (
        ".ci/artifacts",
        ".ci/vex.openvex.json",
        "LICENSE",
        "Dockerfile",
        "pyproject.toml",
        "charts/stellwerk/Chart.yaml",
        "docs/profiles.md",
        ".ci/krew/stellwerk.yaml",
        "operator/stellwerk/__init__.py",
        "requirements/run.lock",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def test_the_plugin_of_kubectl_names_its_archives_as_krew_s_index_asks(copy: Path) -> None:
    """The rules of validate-krew-manifest, and that the digests are those of the archives."""
    make("krew", copy / "dist", program=copy / ".ci/artifacts")
    text = (copy / ".ci/krew/stellwerk.yaml").read_text()
    assert text == (ROOT / ".ci/krew/stellwerk.yaml").read_text(), "run make krew"
    plugin: dict[str, Any] = yaml.safe_load(text)
    assert plugin["apiVersion"] == "krew.googlecontainertools.github.com/v1alpha2"
    assert (plugin["kind"], plugin["metadata"]["name"]) == ("Plugin", "stellwerk")
    assert re.fullmatch(r"[\w-]+", plugin["metadata"]["name"])
    spec = plugin["spec"]
    assert set(spec) <= {
        "version", "homepage", "shortDescription", "description", "caveats", "platforms"
    }  # fmt: skip
    assert spec["version"] == f"v{__version__}"
    assert 0 < len(spec["shortDescription"]) <= 50
    assert "\n" not in spec["shortDescription"]
    assert not spec["shortDescription"].endswith(".")
    chosen = [tuple(sorted(each["selector"]["matchLabels"].items())) for each in spec["platforms"]]
    assert len(set(chosen)) == len(chosen) == 4, "no two platforms are for the same machine"
    for each in spec["platforms"]:
        assert set(each) == {"selector", "uri", "sha256", "bin", "files"}
        assert each["uri"].startswith("https://")
        archive = copy / "dist" / each["uri"].rpartition("/")[2]
        assert hashlib.sha256(archive.read_bytes()).hexdigest() == each["sha256"]
        with tarfile.open(archive) as opened:
            members = {member.name: member for member in opened.getmembers()}
        assert {file["from"] for file in each["files"]} == set(members) >= {"LICENSE"}
        assert not each["bin"].startswith(("/", ".."))
        assert members[each["bin"]].mode == 0o755


def test_the_shim_passes_its_words_on_or_says_how_to_get_the_package(copy: Path) -> None:
    make("krew", copy / "dist", program=copy / ".ci/artifacts")
    with tarfile.open(copy / "dist/kubectl-stellwerk_linux_amd64.tar.gz") as opened:
        opened.extractall(copy / "out", filter="data")
    shim = copy / "out/kubectl-stellwerk"
    path = f"{copy / 'bin'}:/usr/bin:/bin"
    command = [str(shim), "explain", "a b"]

    def call() -> subprocess.CompletedProcess[str]:
        kept = {"PATH": path}
        return subprocess.run(command, env=kept, capture_output=True, text=True, check=False)

    absent = call()
    assert absent.returncode == 2
    (wheel,) = re.findall(r"pipx install (\S+)", absent.stderr)
    assert wheel.startswith(f"https://stellwerk.example/releases/v{__version__}/")
    assert wheel.endswith(f"/stellwerk-{__version__}-py3-none-any.whl")
    (copy / "bin").mkdir()
    (copy / "bin/stellwerk").write_text('#!/bin/sh\nprintf "%s|" "$@"\n')
    (copy / "bin/stellwerk").chmod(0o755)
    there = call()
    assert (there.returncode, there.stdout) == (0, "explain|a b|")


def test_the_chart_becomes_an_oci_layout_with_its_provenance(tmp_path: Path) -> None:
    command: list[str | Path] = [
        helm(),
        "package",
        ROOT / "charts/stellwerk",
        "--destination",
        tmp_path,
    ]
    subprocess.run(command, check=True, capture_output=True)
    chart = tmp_path / f"stellwerk-{__version__}.tgz"
    (tmp_path / f"{chart.name}.prov").write_text("signed")
    make("oci", chart, tmp_path / "layout")

    def blob(entry: dict[str, Any]) -> bytes:
        place = tmp_path / "layout/blobs" / str(entry["digest"]).replace(":", "/")
        content = place.read_bytes()
        assert f"sha256:{hashlib.sha256(content).hexdigest()}" == entry["digest"]
        assert len(content) == entry["size"]
        return content

    layout = json.loads((tmp_path / "layout/oci-layout").read_text())
    assert layout == {"imageLayoutVersion": "1.0.0"}
    (entry,) = json.loads((tmp_path / "layout/index.json").read_text())["manifests"]
    assert entry["annotations"]["org.opencontainers.image.ref.name"] == __version__
    manifest = json.loads(blob(entry))
    config = json.loads(blob(manifest["config"]))
    assert (config["name"], config["version"]) == ("stellwerk", __version__)
    assert manifest["config"]["mediaType"] == "application/vnd.cncf.helm.config.v1+json"
    packed, signed = manifest["layers"]
    assert blob(packed) == chart.read_bytes()
    assert packed["mediaType"] == "application/vnd.cncf.helm.chart.content.v1.tar+gzip"
    assert blob(signed) == b"signed"


@pytest.mark.long
def test_a_signed_chart_is_verified_by_helm(
    tmp_path: Path, require_tool: Callable[[str], str]
) -> None:
    gpg = require_tool("gpg")
    keys = tmp_path / "keys"
    keys.mkdir(mode=0o700)

    def run(*command: str | Path) -> str:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == 0, done.stderr
        return done.stdout

    gnupg = (gpg, "--homedir", keys, "--batch", "--pinentry-mode", "loopback", "--passphrase", "")
    run(*gnupg, "--quick-generate-key", "Maker <maker@example.com>", "rsa2048", "sign", "never")
    run(*gnupg, "--output", tmp_path / "secret.gpg", "--export-secret-keys")
    run(*gnupg, "--output", tmp_path / "public.gpg", "--export")
    signing = ("--sign", "--key", "Maker", "--keyring", tmp_path / "secret.gpg")
    run(helm(), "package", ROOT / "charts/stellwerk", "--destination", tmp_path, *signing)
    chart = tmp_path / f"stellwerk-{__version__}.tgz"
    assert "Maker" in run(helm(), "verify", chart, "--keyring", tmp_path / "public.gpg")


def test_the_statement_names_every_file_its_commit_and_the_locked_packages(tmp_path: Path) -> None:
    (tmp_path / "a.whl").write_bytes(b"wheel")
    (tmp_path / "b.tar.gz").write_bytes(b"sdist")
    make("provenance", tmp_path)
    first = (tmp_path / "provenance.intoto.jsonl").read_bytes()
    make("provenance", tmp_path)
    assert (tmp_path / "provenance.intoto.jsonl").read_bytes() == first
    assert first.count(b"\n") == 1
    statement = json.loads(first)
    assert statement["_type"] == "https://in-toto.io/Statement/v1"
    assert statement["predicateType"] == "https://slsa.dev/provenance/v1"
    assert statement["subject"] == [
        {"name": "a.whl", "digest": {"sha256": hashlib.sha256(b"wheel").hexdigest()}},
        {"name": "b.tar.gz", "digest": {"sha256": hashlib.sha256(b"sdist").hexdigest()}},
    ]
    source, *locks = statement["predicate"]["buildDefinition"]["resolvedDependencies"]
    assert re.fullmatch("[0-9a-f]{40}", source["digest"]["gitCommit"])
    content = (ROOT / "requirements/run.lock").read_bytes()
    digest = {"sha256": hashlib.sha256(content).hexdigest()}
    assert {"uri": "file:requirements/run.lock", "digest": digest} in locks


def test_every_vulnerability_has_its_statement_and_no_other_is_stated(copy: Path) -> None:
    program, audit = copy / ".ci/artifacts", copy / "audit.json"
    found = [{"name": "x", "version": "1", "vulns": [{"id": "PYSEC-1", "fix_versions": []}]}]
    audit.write_text(json.dumps({"dependencies": found}))
    done = make("vex", audit, program=program, fails=True)
    assert "without a statement in vex.openvex.json: PYSEC-1" in done.stderr
    document = json.loads((copy / ".ci/vex.openvex.json").read_text())
    document["statements"] = [{"vulnerability": {"name": "PYSEC-1"}, "status": "not_affected"}]
    (copy / ".ci/vex.openvex.json").write_text(json.dumps(document))
    make("vex", audit, program=program)
    audit.write_text('{"dependencies": []}')
    done = make("vex", audit, program=program, fails=True)
    assert "not found any more, but in vex.openvex.json: PYSEC-1" in done.stderr


def test_the_statements_of_a_release_are_on_its_version(tmp_path: Path) -> None:
    make("statements", tmp_path / "vex.json")
    document = json.loads((tmp_path / "vex.json").read_text())
    assert document["@id"].endswith(f"/vex/stellwerk-{__version__}")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", document["timestamp"])


def test_the_sbom_of_the_image_has_the_package_and_the_base(copy: Path) -> None:
    package = {"bom-ref": "root", "name": "stellwerk", "type": "application"}
    part = {"bom-ref": "aiohttp", "name": "aiohttp", "type": "library"}
    packages = {"metadata": {"component": package}, "components": [part], "dependencies": []}
    (copy / "in.json").write_text(json.dumps(packages))
    make("package-sbom", copy / "in.json", program=copy / ".ci/artifacts")
    described = json.loads((copy / "in.json").read_text())
    assert described["metadata"]["component"]["version"] == __version__
    assert {"ref": "root", "dependsOn": ["aiohttp"]} in described["dependencies"]
    make("image-sbom", copy / "in.json", copy / "out.json", program=copy / ".ci/artifacts")
    found = json.loads((copy / "out.json").read_text())
    assert found["metadata"]["component"]["purl"] == f"pkg:oci/stellwerk?tag={__version__}"
    assert [each["name"] for each in found["components"]] == ["stellwerk", "python", "aiohttp"]
    assert found["components"][1]["purl"].startswith("pkg:oci/python@")


def test_the_workflow_signs_what_the_page_verifies() -> None:
    workflow = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text())
    job = workflow["jobs"]["build"]
    steps = "\n".join(step.get("run", "") for step in job["steps"])
    page = (ROOT / "docs/releases.md").read_text()
    for made in (
        "make dist sbom audit krew chart",
        "cosign sign-blob",
        "cosign attest",
        "helm push",
    ):
        assert made in steps
    assert job["permissions"]["id-token"] == "write"
    assert workflow["permissions"] == {}
    assert "provenance.intoto.jsonl.sigstore.json" in steps
    assert "--bundle provenance.intoto.jsonl.sigstore.json" in page
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"make ((?:[a-z]+ ?)+)", steps)[0].split()) <= targets


def test_the_project_has_one_address_which_is_nobody_s_until_it_is_written(copy: Path) -> None:
    """`.example` is kept for examples (RFC 2606): what names it leads to no stranger."""
    listed = subprocess.run(
        [
            "git",
            "grep",
            "--extended-regexp",
            "--files-with-matches",
            r"https://([a-z]+\.)?stellwerk\.",
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    texts = {
        name: (ROOT / name).read_text()
        for name in listed
        if not name.startswith(("tests/", "CHANGELOG"))
    }
    for name, text in texts.items():
        addresses = set(re.findall(r"https://[\w.]*stellwerk\.\w+", text))
        assert addresses == {"https://stellwerk.example"}, name
    make("address", "https://example.org/stellwerk", program=copy / ".ci/artifacts")
    for name in set(texts) - {".github/workflows/release.yml", "docs/releases.md"}:
        assert "stellwerk.example" not in (copy / name).read_text(), name
        assert "https://example.org/stellwerk" in (copy / name).read_text(), name
    refused = make("address", "example.org", program=copy / ".ci/artifacts", fails=True)
    assert refused.stderr.count("\n") == 1
