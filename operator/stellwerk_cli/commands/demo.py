"""`stellwerk demo`: schedules the examples of Kubernetes' documentation on an embedded cluster.

The command line calls it. Invariant: it logs warnings only, since its output is the demo.
"""

import argparse
from typing import Final

from stellwerk_cli.commands.arguments import check_embedded_cluster

HELP: Final = "run the examples of the Kubernetes documentation on an embedded cluster"
EXAMPLES: Final = (
    "demo",
    "demo --keep",
    "demo -v",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Whether the cluster stays."""
    parser.add_argument(
        "--keep", action="store_true", help="keep the cluster running afterwards, for kubectl"
    )
    parser.add_argument(
        "-v", "--verbose", action="store_true", help="also print the scheduler's own messages"
    )
    parser.set_defaults(log_level="warning")


def run(options: argparse.Namespace) -> int:
    """Run the demo."""
    check_embedded_cluster()
    from stellwerk_cli.progress_line import waiting_for  # noqa: PLC0415

    with waiting_for("loading the cluster and its scheduler"):
        import uvloop  # noqa: PLC0415

        from stellwerk_cli.demo.demo import run_demo  # noqa: PLC0415

    return uvloop.run(run_demo(keep=options.keep, is_verbose=options.verbose))
