"""`stellwerk up`: a cluster and its scheduler in one process, to try things on.

The command line calls it. Invariant: nothing of it is left when it ends.
"""

import argparse
from typing import Final

from stellwerk.garbage import collect_seldom
from stellwerk_cli.commands.arguments import (
    add_cluster_arguments,
    add_device_flag,
    add_release_flags,
    check_embedded_cluster,
    kubeconfig_file,
    port_number,
)

HELP: Final = "start an embedded cluster and the scheduler, to try things out"
EXAMPLES: Final = (
    "up",
    "up --nodes 50 --page-port 8080",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments for the cluster."""
    add_cluster_arguments(parser)
    parser.add_argument(
        "--page-port",
        type=port_number,
        default=0,
        help="port of the page on 127.0.0.1; its key is kept for the next start (default: a "
        "free one)",
    )
    parser.add_argument(
        "--operator-port",
        type=port_number,
        default=0,
        help="port of the scheduler on 127.0.0.1 (default: a free one)",
    )
    add_release_flags(parser)
    add_device_flag(parser)
    parser.set_defaults(log_level="warning")


def run(options: argparse.Namespace) -> int:
    """Run until SIGTERM or SIGINT."""
    check_embedded_cluster()
    collect_seldom()
    from stellwerk_cli.progress_line import waiting_for  # noqa: PLC0415

    with waiting_for("loading the cluster and its scheduler"):
        import uvloop  # noqa: PLC0415

        from stellwerk_cli.commands.page import ApiServer  # noqa: PLC0415
        from stellwerk_cli.demo.sandbox import PageOptions, run_up  # noqa: PLC0415
        from stellwerk_cli.embedded_cluster import api_features  # noqa: PLC0415

    features = api_features(
        gates=options.feature_gates,
        release=options.kubernetes_version,
        runtime=options.runtime_config,
    )
    uvloop.run(
        run_up(
            options.nodes,
            options.port,
            kubeconfig_file(options),
            PageOptions(options.page_port, ApiServer),
            features,
            options.devices,
            options.operator_port,
        )
    )
    return 0
