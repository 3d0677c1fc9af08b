"""`stellwerk up`: a cluster and its scheduler in one process, to try things on.

The command line calls it. Invariant: nothing of it is left when it ends.
"""

import argparse
from pathlib import Path
from typing import Final

from stellwerk.garbage import collect_seldom

HELP: Final = "start an embedded cluster with the scheduler on it, to try things"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the cluster is made of."""
    parser.add_argument(
        "--nodes",
        default="3",
        metavar="N|FILE",
        help="how many hollow nodes, or a file with node manifests (default: 3)",
    )
    parser.add_argument(
        "--port", type=int, default=0, help="of the cluster, on 127.0.0.1 (default: a free one)"
    )
    parser.add_argument(
        "--kubeconfig",
        metavar="FILE",
        type=Path,
        default=Path("stellwerk.kubeconfig"),
        help="written once the port answers (default: %(default)s)",
    )
    from stellwerk_cluster.node_flags import add_device_flag  # noqa: PLC0415

    add_device_flag(parser)
    parser.set_defaults(log_level="warning")


def run(options: argparse.Namespace) -> int:
    """Run until SIGTERM or SIGINT."""
    collect_seldom()
    import uvloop  # noqa: PLC0415

    from stellwerk.demo.up import run_up  # noqa: PLC0415

    file = options.kubeconfig.absolute()
    uvloop.run(run_up(options.nodes, options.port, file, devices=options.devices))
    return 0
