"""`stellwerk doctor`: what is broken in a cluster where Stellwerk does not work, and what to do.

The command line calls it. Invariant: it writes nothing to the cluster. It sends reads, and reviews
of access rights, which store nothing; what the caller may not read is named, and the rest goes on.
"""

import argparse
import sys
import textwrap
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from stellwerk_cli.commands.arguments import add_force_argument
from stellwerk_cli.commands.port_arguments import (
    add_exit_code_argument,
    add_output_arguments,
    add_port_arguments,
    operator_namespace,
    port_address,
)
from stellwerk_kube.untrusted_text import printable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stellwerk.answers.diagnosis import DoctorReport, State
    from stellwerk_cli.commands.output import Shown
    from stellwerk_cli.commands.printer import Printer

HELP: Final = "find out what is broken in an installation of Stellwerk, and what to do"
EXAMPLES: Final = (
    "doctor",
    "doctor --namespace scheduling -o json",
    "doctor --bundle stellwerk-support.tar.gz",
)
_MAX_DIAGNOSIS_COLUMNS: Final = 80
"""Width of a diagnosis: it is read in mails and issues, where wider lines break anywhere."""
_STATE_STYLES: "Final[Mapping[State, str]]" = {
    "ok": "green",
    "warning": "yellow",
    "failed": "bold red",
    "unknown": "cyan",
}
_STATE_WIDTH: Final = max(map(len, _STATE_STYLES))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments for the installation, the form of the answer and the bundle."""
    parser.add_argument(
        "-n",
        "--namespace",
        default=operator_namespace(),
        help="namespace of the operator's pods (default: $STELLWERK_NAMESPACE, else stellwerk)",
    )
    parser.add_argument(
        "--bundle",
        metavar="FILE",
        type=Path,
        help="also write a support bundle: a tar.gz with findings, versions, profiles, queue, "
        "dump, metrics and logs; it contains only the fields that docs/doctor.md lists",
    )
    add_force_argument(parser)
    add_output_arguments(parser)
    add_exit_code_argument(parser, "a check fails")
    add_port_arguments(parser)
    parser.set_defaults(log_level="error")


def run(options: argparse.Namespace) -> int:
    """Look at everything, print it, and write the bundle if one is wanted.

    Raises:
        ConfigurationError: the kubeconfig cannot be used, or the bundle may not be written.
        UnreachableError: the API server does not answer.
    """
    import asyncio  # noqa: PLC0415

    from stellwerk.answers.answer import codec  # noqa: PLC0415
    from stellwerk.answers.diagnosis import DoctorReport  # noqa: PLC0415
    from stellwerk_cli.commands.diagnosis.bundle import check_writable, write_bundle  # noqa: PLC0415
    from stellwerk_cli.commands.diagnosis.examination import examine  # noqa: PLC0415
    from stellwerk_cli.commands.output import show_written  # noqa: PLC0415

    if options.bundle is not None:
        # Before a minute of questions, and again when it is written.
        check_writable(options.bundle, force=options.force)
    address = port_address(options)
    if not options.lease:
        address = replace(address, lease_namespace=options.namespace)
    observed = asyncio.run(
        examine(address, options.namespace, for_bundle=options.bundle is not None)
    )
    show_written(codec(DoctorReport).as_json(observed.diagnosis), options.output, shown_diagnosis())
    if options.bundle is not None:
        write_bundle(options.bundle, observed, force=options.force)
        sys.stderr.write(f"wrote {options.bundle}: read it before you pass it on\n")
    return 1 if options.exit_code and observed.diagnosis.state == "failed" else 0


def shown_diagnosis() -> "Shown[DoctorReport]":
    """The kind of answer, its table and its names; rich is imported with it."""
    from stellwerk.answers.diagnosis import DoctorReport  # noqa: PLC0415
    from stellwerk_cli.commands.output import Shown  # noqa: PLC0415

    return Shown(
        DoctorReport,
        print_diagnosis,
        lambda diagnosis: (each.check for each in diagnosis.items if each.state != "ok"),
    )


def print_diagnosis(diagnosis: "DoctorReport", to: "Printer") -> None:
    """A line for each finding: state, check, what was found; below it what to do, and quotations.

    In the wide form no line is broken.
    """
    width = sys.maxsize if to.is_wide else min(to.width, _MAX_DIAGNOSIS_COLUMNS)
    indent = " " * (_STATE_WIDTH + 2)
    for each in diagnosis.items:
        text = f"{each.state:<{_STATE_WIDTH}}  {each.check}: {each.what}"
        first, *rest = textwrap.wrap(printable(text), width, subsequent_indent=indent)
        state, found = first[:_STATE_WIDTH], first[_STATE_WIDTH:]
        to.say((state, _STATE_STYLES[each.state]), found, wraps=False)
        for line in rest:
            to.say(line, wraps=False)
        below = [(f"> {each.remedy}", "")] if each.remedy and each.state != "ok" else []
        for text, style in (*below, *((f"| {text}", "dim") for text in each.quoted)):
            for line in textwrap.wrap(
                printable(text),
                width,
                initial_indent=indent,
                subsequent_indent=f"{indent}  ",
                break_on_hyphens=False,
            ):
                to.say((line, style), wraps=False)
    counts = Counter(each.state for each in diagnosis.items)
    to.say(", ".join(f"{counts[state]} {state}" for state in _STATE_STYLES))
