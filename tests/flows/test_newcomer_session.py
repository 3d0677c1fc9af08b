"""The sandbox says what a real cluster says to somebody who types kubectl for the first time."""

import asyncio
import re
from pathlib import Path
from typing import Final

import pytest

from stellwerk_cli.demo.sandbox import open_sandbox
from stellwerk_cli.embedded_cluster import api_features
from stellwerk_cluster.kubeconfig import KubeconfigFile
from tests.flows.kubectl_session import Line, recorded, shown, typed
from tests.support.kubectls import program_of
from tests.support.repository import ROOT

DIFFERENT: Final = {
    "kubectl version": "the server's version names Stellwerk",
    "kubectl describe node node-1": "no controller writes `node.alpha.kubernetes.io/ttl` and the "
    "event `RegisteredNode`: the nodes are there from the start",
    "kubectl get namespaces": "the scheduler of the sandbox has its lease in `stellwerk`",
    "kubectl explain deployment.spec.replicas": "descriptions of fields are our own",
    "kubectl top nodes": "metrics.k8s.io is served; elsewhere metrics-server has to be installed",
}
"""Lines that are answered otherwise than recorded, and why; it must only shrink."""


@pytest.mark.long
@pytest.mark.timeout(180)
async def test_a_newcomer_s_session_is_answered_as_on_a_real_cluster(tmp_path: Path) -> None:
    kubectl, session = program_of(36), recorded()
    assert len(session) > 40
    assert DIFFERENT.keys() <= {line.typed for line in session}
    file = KubeconfigFile(tmp_path / "kubeconfig")
    async with open_sandbox(3, file, features=api_features(release="1.36")):
        said = await asyncio.to_thread(
            lambda: list(typed([line.typed for line in session], kubectl, tmp_path, file.path))
        )
    assert [line.typed for line in said] == [line.typed for line in session]
    otherwise = [
        f"$ {ours.typed}\n{ours.printed}"
        for real, ours in zip(session, said, strict=True)
        if answer(real) != answer(ours)
    ]
    unnamed = [each for each in otherwise if each[2:].splitlines()[0] not in DIFFERENT]
    assert unnamed == []
    assert len(otherwise) == len(DIFFERENT), "a line that is named is answered as recorded"


def answer(line: Line) -> tuple[int, list[str]]:
    return line.exit, shown(line)


def test_what_is_answered_otherwise_stands_in_the_document() -> None:
    text = (ROOT / "docs" / "embedded-cluster.md").read_text(encoding="utf-8")
    _, _, section = text.partition("## A newcomer's session")
    rows = re.findall(
        r"^\| `(kubectl [^`]+)` \| (.*) \|$", section.partition("\n## ")[0], re.MULTILINE
    )
    assert dict(rows) == DIFFERENT
    assert f"{len(recorded())} lines" in section
