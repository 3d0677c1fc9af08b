"""`stellwerk down`: end the cluster that `stellwerk up --detach` has started.

The command line calls it. Invariant: it ends no process but one that holds the lock of a state file
of this user (`detached_cluster`).
"""

import argparse
import os
import sys
from pathlib import Path
from typing import Final

from stellwerk_cli.commands.arguments import check_embedded_cluster

HELP: Final = "end the cluster that `up --detach` started, with everything in it"
EXAMPLES: Final = (
    "down",
    "down --kubeconfig try.kubeconfig",
)
DEFAULT: Final = Path("stellwerk.kubeconfig")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The kubeconfig, which tells clusters apart."""
    parser.add_argument(
        "--kubeconfig",
        metavar="FILE",
        type=Path,
        help=f"the file that `up` was given (default: {DEFAULT} here, else $KUBECONFIG)",
    )
    parser.set_defaults(log_level="warning")


def run(options: argparse.Namespace) -> int:
    """End it, and say so.

    Raises:
        AbsentError: there is none.
        SchedulerError: it does not end.
    """
    check_embedded_cluster()
    from stellwerk_cli.commands.detached_cluster import has_state, stop  # noqa: PLC0415
    from stellwerk_cli.progress_line import waiting_for  # noqa: PLC0415

    kubeconfig = options.kubeconfig or DEFAULT
    exported = os.environ.get("KUBECONFIG", "")
    if options.kubeconfig is None and exported and not has_state(DEFAULT.absolute()):
        # The terminal in which `up` was typed may be in another folder by now.
        kubeconfig = Path(exported)
    with waiting_for("ending the cluster"):
        done = stop(kubeconfig.absolute())
    sys.stdout.write(f"{done}\n")
    return 0
