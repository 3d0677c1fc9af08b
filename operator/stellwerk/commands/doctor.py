"""`stellwerk doctor`: what is broken in a cluster where Stellwerk does not work, and what to do.

The command line calls it. Invariant: it writes nothing to the cluster. It sends reads, and reviews
of access rights, which store nothing; what the caller may not read is named, and the rest goes on.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from stellwerk.commands.arguments import add_force_argument
from stellwerk.commands.port_arguments import (
    add_exit_code_argument,
    add_output_arguments,
    add_port_arguments,
    operator_namespace,
    port_address,
)

if TYPE_CHECKING:
    import argparse
    from datetime import datetime

    from stellwerk.commands.diagnosis.bundle import Observed
    from stellwerk.commands.port_arguments import PortAddress

HELP: Final = "say what is broken in a cluster where Stellwerk does not work, and what to do"
EXAMPLES: Final = (
    "doctor",
    "doctor --namespace scheduling -o json",
    "doctor --bundle stellwerk-support.tar.gz",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments for the installation, the form of the answer and the bundle."""
    parser.add_argument(
        "-n",
        "--namespace",
        default=operator_namespace(),
        help="of the operator's pods (default: $STELLWERK_NAMESPACE, else stellwerk)",
    )
    parser.add_argument(
        "--bundle",
        metavar="FILE",
        type=Path,
        help="write a support bundle, too: a tar.gz with findings, versions, profiles, queue, "
        "dump, metrics and log, of which only listed fields are taken over (docs/doctor.md)",
    )
    add_force_argument(parser)
    add_output_arguments(parser)
    add_exit_code_argument(parser, "anything is failed")
    add_port_arguments(parser)
    parser.set_defaults(log_level="error")


def run(options: argparse.Namespace) -> int:
    """Look at everything, print it, and write the bundle if one is wanted.

    Raises:
        ConfigurationError: the kubeconfig cannot be used, or the bundle may not be written.
        UnreachableError: the API server does not answer.
    """
    import asyncio  # noqa: PLC0415

    from stellwerk.commands.diagnosis.bundle import check_writable, write_bundle  # noqa: PLC0415
    from stellwerk.commands.tables import DIAGNOSIS, show_written  # noqa: PLC0415
    from stellwerk.models.answers.answer import codec  # noqa: PLC0415
    from stellwerk.models.answers.diagnosis import DoctorReport  # noqa: PLC0415

    if options.bundle is not None:
        # Before a minute of questions, and again when it is written.
        check_writable(options.bundle, force=options.force)
    observed = asyncio.run(
        _observe(port_address(options), options.namespace, for_bundle=options.bundle is not None)
    )
    show_written(codec(DoctorReport).as_json(observed.diagnosis), options.output, DIAGNOSIS)
    if options.bundle is not None:
        write_bundle(options.bundle, observed, force=options.force)
        import sys  # noqa: PLC0415

        sys.stderr.write(f"wrote {options.bundle}: read it before you hand it on\n")
    return 1 if options.exit_code and observed.diagnosis.state == "failed" else 0


async def _observe(address: PortAddress, namespace: str, *, for_bundle: bool) -> Observed:
    """Make every check; what a bundle holds beside them is read for one alone."""
    import random  # noqa: PLC0415, TID251 spreads retries of one command

    from stellwerk.client.credentials import load_credentials  # noqa: PLC0415
    from stellwerk.client.kubernetes import KubernetesClient  # noqa: PLC0415
    from stellwerk.client.transport import RetryPolicy  # noqa: PLC0415
    from stellwerk.clock import SystemClock  # noqa: PLC0415
    from stellwerk.commands.diagnosis import checks, port_checks  # noqa: PLC0415
    from stellwerk.commands.diagnosis.bundle import Observed, read_logs  # noqa: PLC0415
    from stellwerk.commands.diagnosis.rights import (  # noqa: PLC0415
        check_caller_rights,
        check_operator_rights,
    )
    from stellwerk.commands.diagnosis.survey import Survey  # noqa: PLC0415
    from stellwerk.metrics import Metrics  # noqa: PLC0415
    from stellwerk.models.answers.diagnosis import Finding  # noqa: PLC0415

    clock = SystemClock()
    credentials = await load_credentials(address.kubeconfig, address.context, clock=clock)
    async with KubernetesClient(
        credentials,
        clock=clock,
        metrics=Metrics(),
        jitter=random.random,
        # Something is broken: a question that fails twice is a finding.
        retry=RetryPolicy(attempts=2, timeout_seconds=15.0),
    ) as client:
        server = await client.check_reachable()
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
            rights = await check_operator_rights(survey, installed.account, installed.wanted_lease)
            found.append(rights)
        else:
            what = "no pod of it with a service account is seen, so whose rights to look at is not known"
            found.append(Finding(check="operator's rights", state="unknown", what=what))
        found.append(await check_caller_rights(survey, installed.wanted_lease))
        found += await checks.check_unserved_pods(survey, installed)
        found += await checks.check_api(survey)
        found += port_checks.check_own_credentials(credentials.access, survey.now)
        if for_bundle:
            await read_logs(survey, observed)
    await _ask_port(address, observed, clock.now(), for_bundle=for_bundle)
    return observed


async def _ask_port(
    address: PortAddress, observed: Observed, now: datetime, *, for_bundle: bool
) -> None:
    """Make the checks that ask the operator's port, as far as it answers."""
    from stellwerk.commands.diagnosis import port_checks  # noqa: PLC0415
    from stellwerk.commands.diagnosis.bundle import read_answers  # noqa: PLC0415
    from stellwerk.commands.operator_port import open_port  # noqa: PLC0415
    from stellwerk.errors import SchedulerError  # noqa: PLC0415

    found = observed.findings
    try:
        async with open_port(address) as port:
            found += await port_checks.check_readiness(port)
            found += await port_checks.check_port_certificate(port, now)
            more, observed.metrics = await port_checks.check_metrics(port)
            found += more
            if for_bundle:
                await read_answers(port, observed)
    except SchedulerError as error:
        found.append(port_checks.unreachable(error))
