"""`stellwerk cluster`: the embedded cluster, for kubectl and for schedulers of any kind.

The command line calls it. Invariant: the cluster's own package does the work.
"""

import argparse
from pathlib import Path
from typing import Final

from stellwerk.garbage import collect_seldom

HELP: Final = "serve an embedded cluster on this machine"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the cluster is made of, and where it is served."""
    parser.add_argument(
        "--nodes",
        default="3",
        metavar="N|FILE",
        help="how many hollow nodes, or a file with node manifests (default: 3)",
    )
    parser.add_argument(
        "--port", type=int, default=0, help="port on 127.0.0.1 (default: a free one)"
    )
    parser.add_argument(
        "--kubeconfig",
        metavar="FILE",
        type=Path,
        default=Path("stellwerk.kubeconfig"),
        help="written once the port answers (default: %(default)s)",
    )
    parser.add_argument(
        "--faults",
        metavar="FILE",
        type=Path,
        help="what goes wrong between clients and the API, for practice (docs/faults.md)",
    )


def run(options: argparse.Namespace) -> int:
    """Serve until SIGTERM or SIGINT."""
    collect_seldom()
    import uvloop  # noqa: PLC0415

    from stellwerk_cluster.command import serve_cluster  # noqa: PLC0415

    uvloop.run(serve_cluster(options.nodes, options.port, options.kubeconfig, options.faults))
    return 0
