"""docs/operations.md, section by section: what the page tells an administrator to type works.

Each section has a cluster of its own, which enforces access rules. Another scheduler stands for
kube-scheduler, and for each pod of Stellwerk's Deployment a process runs with its arguments and its
service account, as a kubelet would run it.
"""

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from stellwerk_cluster.cluster import ClusterOptions, EmbeddedCluster
from stellwerk_cluster.hollow.kubelet import KubeletOptions
from stellwerk_cluster.identity.assembly import IdentityOptions
from tests.support.kubectls import helm, newest, program_of
from tests.support.lease_scheduler import LeaseScheduler, Placements, kube_scheduler
from tests.support.pod_processes import PodProcesses, pod_processes
from tests.support.repository import ROOT
from tests.support.running_operator import until
from tests.support.shell_steps import Happening, Shell, sections, shell

DOCUMENT = ROOT / "docs" / "operations.md"
SECTIONS = sections(DOCUMENT)
WALK = "A walk through, line by line"
IN_PLACE = "In place of kube-scheduler, and back"
NEEDED = ("charts", "crds", "manifests", "overlays")
PROGRAMS = Path(sys.executable).parent


def cluster_of_an_administrator() -> EmbeddedCluster:
    """Without anything of Stellwerk's: not even the definition."""
    return EmbeddedCluster(
        3,
        options=ClusterOptions(
            identity=IdentityOptions("rbac", service_accounts=True),
            tls=True,
            kubelet=KubeletOptions(respect_grace=False),
        ),
    )


@dataclass
class Site:
    """A cluster, who works on it, and what became of its pods."""

    cluster: EmbeddedCluster
    other: LeaseScheduler
    processes: PodProcesses
    placements: Placements
    shell: Shell
    happenings: Mapping[str, Callable[[], Awaitable[None]]] = field(default_factory=dict)

    async def take(self, section: str) -> None:
        """Do what a section says."""
        for step in SECTIONS[section]:
            try:
                if isinstance(step, Happening):
                    await self.happenings[step.words]()
                else:
                    await self.shell.take(step)
            except AssertionError as failure:
                failure.add_note(self.processes.log())
                raise


@asynccontextmanager
async def reader(directory: Path, environment: Mapping[str, str]) -> AsyncIterator[Shell]:
    """A shell in a directory that has what a clone has."""
    for name in NEEDED:
        (directory / name).symlink_to(ROOT / name)
    programs = (program_of(newest()), helm(), PROGRAMS / "stellwerk")
    async with shell(directory, environment, *programs) as opened:
        yield opened


@asynccontextmanager
async def site(directory: Path) -> AsyncIterator[Site]:
    async with cluster_of_an_administrator() as cluster:
        kubeconfig = directory / "kubeconfig"
        cluster.write_kubeconfig(kubeconfig)
        placements = Placements(cluster)
        async with (
            kube_scheduler(cluster) as other,
            pod_processes(cluster, directory) as processes,
            reader(directory, {"KUBECONFIG": str(kubeconfig)}) as opened,
        ):
            happenings = {
                "kube-scheduler ends": other.stop,
                "kube-scheduler starts": lambda: asyncio.to_thread(lambda: None),
            }
            yield Site(cluster, other, processes, placements, opened, happenings)


def test_every_section_with_commands_is_known() -> None:
    assert set(SECTIONS) == {WALK, *SITES, IN_PLACE}


SITES = ("Install by files", "Install with Helm")


async def test_a_newcomer_can_follow_the_walk_through(tmp_path: Path) -> None:
    async with reader(tmp_path, {}) as opened:
        for step in SECTIONS[WALK]:
            assert not isinstance(step, Happening)
            await opened.take(step)


@pytest.mark.parametrize("section", SITES)
async def test_a_procedure_does_what_the_page_says(section: str, tmp_path: Path) -> None:
    async with site(tmp_path) as prepared:
        await prepared.take(section)
        await until(lambda: not prepared.placements.waiting())
    assert set(prepared.processes.statuses) == {0}, prepared.processes.log()
