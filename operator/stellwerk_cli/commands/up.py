"""`stellwerk up`: a cluster and its scheduler in one process, to try things on.

The command line calls it. With `--detach` that process runs in the background, and
`detached_cluster` starts it. Invariant: nothing of it is left when it ends.
"""

import argparse
import sys
import threading
from dataclasses import replace
from shlex import quote
from typing import TYPE_CHECKING, Final

from stellwerk.garbage import collect_seldom
from stellwerk_cli.commands.arguments import (
    add_cluster_arguments,
    add_device_flag,
    add_release_flags,
    check_embedded_cluster,
    kubeconfig_file,
    port_number,
)
from stellwerk_cli.commands.down import DEFAULT

if TYPE_CHECKING:
    from stellwerk_cli.demo.addresses import Addresses

HELP: Final = "start an embedded cluster and the scheduler, to try things out"
EXAMPLES: Final = (
    "up",
    "up --detach --open",
    "up --nodes 50 --page-port 8080",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments for the cluster."""
    parser.add_argument(
        "--detach",
        action="store_true",
        help="return once it serves, and leave it in the background until `stellwerk down`; its "
        "state and its log lie beside the kubeconfig (FILE.up, FILE.up.log)",
    )
    parser.add_argument("--open", action="store_true", help="open the page in the default browser")
    add_cluster_arguments(parser)
    parser.add_argument(
        "--tls", action="store_true", help="serve HTTPS, under a certificate authority of its own"
    )
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
    """Run until SIGTERM or SIGINT; with `--detach`, return once the cluster serves."""
    check_embedded_cluster()
    return _start(options) if options.detach else _serve(options)


def _start(options: argparse.Namespace) -> int:
    """Start this command again in the background, without `--detach`."""
    from stellwerk_cli.commands.detached_cluster import FLAG, start  # noqa: PLC0415
    from stellwerk_cli.demo.addresses import own_command  # noqa: PLC0415
    from stellwerk_cli.progress_line import waiting_for  # noqa: PLC0415

    words = [word for word in options.command_line if word not in {FLAG, "--open"}]
    with waiting_for("starting the cluster and its scheduler"):
        started = start(options.kubeconfig.absolute(), words)
    if isinstance(started, int):
        return started
    is_default = options.kubeconfig == DEFAULT
    named = "" if is_default else f" --kubeconfig {quote(str(options.kubeconfig))}"
    started.print(sys.stdout, f"{own_command()} down{named}", "in this terminal")
    if options.open:
        _open(started.page)
    return 0


def _serve(options: argparse.Namespace) -> int:
    collect_seldom()
    from stellwerk_cli.progress_line import waiting_for  # noqa: PLC0415

    with waiting_for("loading the cluster and its scheduler"):
        import uvloop  # noqa: PLC0415

        from stellwerk_cli.commands.detached_cluster import told  # noqa: PLC0415
        from stellwerk_cli.commands.page import ApiServer  # noqa: PLC0415
        from stellwerk_cli.demo.sandbox import PageOptions, run_up  # noqa: PLC0415
        from stellwerk_cli.embedded_cluster import api_features  # noqa: PLC0415

    features = api_features(
        gates=options.feature_gates,
        release=options.kubernetes_version,
        runtime=options.runtime_config,
    )
    features = replace(features, tls=options.tls)

    def say(addresses: "Addresses") -> None:
        addresses.print(sys.stdout, "Ctrl-C", "in another terminal")
        if options.open:
            # A browser on the terminal would hold the loop up.
            threading.Thread(target=_open, args=(addresses.page,), daemon=True).start()

    with told(options.kubeconfig.absolute(), say) as tell:
        uvloop.run(
            run_up(
                options.nodes,
                options.port,
                kubeconfig_file(options),
                tell,
                PageOptions(options.page_port, ApiServer),
                features,
                options.devices,
                options.operator_port,
            )
        )
    return 0


def _open(page: str) -> None:
    import webbrowser  # noqa: PLC0415

    if not webbrowser.open(page):
        sys.stderr.write("stellwerk: there is no browser here; the address of the page is above\n")
