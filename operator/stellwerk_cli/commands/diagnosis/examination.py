"""One examination of a cluster: every check in order, and the other contents of a bundle.

`commands.doctor` prints the findings, `bundle` writes the rest. Invariant: a check that fails to
run is a finding, and the next check runs.
"""

from __future__ import annotations

import random  # noqa: TID251 spreads retries of one command
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from stellwerk.answers.diagnosis import STATES, DoctorReport, Finding, State
from stellwerk.answers.dump import CacheDump
from stellwerk.answers.profiles import ProfilesPage
from stellwerk.answers.queue import QueuePage
from stellwerk.client.credentials import load_credentials
from stellwerk.client.kubernetes import KubernetesClient
from stellwerk.client.transport import RetryPolicy
from stellwerk.metrics import Metrics
from stellwerk_cli.commands.diagnosis import checks, port_checks
from stellwerk_cli.commands.diagnosis.rights import check_caller_rights, check_operator_rights
from stellwerk_cli.commands.diagnosis.survey import Survey, Unseen
from stellwerk_cli.commands.operator_port import open_port
from stellwerk_kube.clock import SystemClock
from stellwerk_kube.errors import SchedulerError, UnreachableError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from stellwerk.client.operator_port import OperatorPort
    from stellwerk_cli.commands.port_arguments import PortAddress

_PATIENCE: Final = RetryPolicy(attempts=2, timeout_seconds=15.0)
"""Something is broken, and a request that fails twice is a finding."""
_QUEUED_PODS: Final = 5000
"""Waiting pods that the bundle lists: as many as the operator's port gives at once."""
_MAX_PODS_WITH_LOGS: Final = 10
"""Pods of the operator whose logs are read. An installation has two or three."""


@dataclass(slots=True)
class Observed:
    """A cluster as it was seen: findings, and what only a bundle takes over."""

    server: str
    installed: checks.Installation
    findings: list[Finding] = field(default_factory=list)
    metrics: str = ""
    logs: dict[str, Sequence[str]] = field(default_factory=dict)
    """Lines by pod; of the run before, by the pod's name with `-previous`."""
    profiles: ProfilesPage | None = None
    queue: QueuePage | None = None
    dump: CacheDump | None = None

    @property
    def diagnosis(self) -> DoctorReport:
        """The answer of the command."""
        states: list[State] = [each.state for each in self.findings]
        worst: State = max(states, key=STATES.index, default="unknown")
        return DoctorReport(state=worst, items=self.findings)


async def examine(address: PortAddress, namespace: str, *, for_bundle: bool) -> Observed:
    """Make every check; what a bundle holds beside findings is read for one alone.

    Raises:
        ConfigurationError: the kubeconfig cannot be used.
        UnreachableError: the API server does not answer.
    """
    clock = SystemClock()
    credentials = await load_credentials(address.kubeconfig, address.context, clock=clock)
    own = port_checks.check_own_credentials(credentials.access, clock.now())
    async with KubernetesClient(
        credentials, clock=clock, metrics=Metrics(), jitter=random.random, retry=_PATIENCE
    ) as client:
        try:
            server = await client.check_reachable()
        except UnreachableError as error:
            # TLS ends with an alert that names no reason.
            expired = [f"; {each.what}" for each in own if each.state == "failed"]
            raise type(error)(f"{error}{''.join(expired)}") from error
        survey = Survey(client, namespace, clock.now())
        installed = await checks.read_installation(survey)
        observed = Observed(server=server, installed=installed)
        found = observed.findings
        found.append(checks.check_versions(server, installed))
        found.append(await checks.check_definition(survey))
        found += await checks.check_operator(survey, installed)
        found += checks.check_leases(installed)
        found += checks.check_profiles(installed)
        if installed.account is not None:
            rights = await check_operator_rights(
                survey,
                installed.account,
                installed.wanted_lease,
                observes=installed.observes,
            )
        else:
            what = "no pod of it with a service account is seen, so its user is not known"
            rights = Finding(check="operator's rights", state="unknown", what=what)
        found.append(rights)
        found.append(await check_caller_rights(survey, installed.wanted_lease))
        found += await checks.check_unserved_pods(survey, installed)
        found += await checks.check_api(survey)
        found += own
        if for_bundle:
            await _read_logs(survey, observed)
    await _ask_port(address, observed, clock.now(), for_bundle=for_bundle)
    return observed


async def _ask_port(
    address: PortAddress, observed: Observed, now: datetime, *, for_bundle: bool
) -> None:
    """Make the checks that ask the operator's port, as far as it answers."""
    found = observed.findings
    try:
        async with open_port(address) as port:
            found += await port_checks.check_readiness(port)
            found += await port_checks.check_port_certificate(port, now)
            more, observed.metrics = await port_checks.check_metrics(port)
            found += more
            if for_bundle:
                await _read_answers(port, observed)
    except SchedulerError as error:
        found.append(port_checks.unreachable(error))


async def _read_logs(survey: Survey, observed: Observed) -> None:
    """Read the last lines of the operator's pods, of this run and the one before."""
    pods = observed.installed.pods
    for pod in () if isinstance(pods, Unseen) else pods[:_MAX_PODS_WITH_LOGS]:
        metadata = pod["metadata"]
        for container in pod["spec"].get("containers") or ():
            for previous in (False, True):
                lines = await survey.log(
                    metadata["namespace"], metadata["name"], container["name"], previous=previous
                )
                if not isinstance(lines, Unseen):
                    name = f"{metadata['name']}-{container['name']}"
                    observed.logs[f"{name}{'-previous' if previous else ''}"] = lines


async def _read_answers(port: OperatorPort, observed: Observed) -> None:
    """Ask the operator's port for what the bundle holds of it; a refusal is a finding."""
    try:
        observed.profiles = await port.get("/profiles", ProfilesPage)
        observed.queue = await port.get(f"/queue?limit={_QUEUED_PODS}", QueuePage)
    except SchedulerError as error:
        observed.findings.append(port_checks.refused("queue", error))
    try:
        observed.dump = dump = await port.get("/debug/dump", CacheDump)
    except SchedulerError as error:
        observed.findings.append(port_checks.refused("cache", error))
        return
    kinds = ", ".join(f"{each.count} {each.kind}" for each in dump.differences)
    if kinds:
        what = f"the cache differs from the API: {kinds}"
        remedy = "normal for a moment under load: `stellwerk dump` compares again"
        finding = Finding(check="cache", state="warning", what=what, remedy=remedy)
    elif dump.compared:
        finding = Finding(check="cache", state="ok", what="the cache agrees with the API")
    else:
        what = "the operator could not compare its cache with the API"
        finding = Finding(check="cache", state="failed", what=what, quoted=[dump.comparison])
    observed.findings.append(finding)
