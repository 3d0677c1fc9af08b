"""`stellwerk cluster`: the embedded cluster, for kubectl and for schedulers of any kind.

The command line calls it. Invariant: the cluster's own package does the work.
"""

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Final

from stellwerk.commands.arguments import add_cluster_arguments, add_release_flags, kubeconfig_file
from stellwerk.garbage import collect_seldom

HELP: Final = "serve an embedded cluster on this machine"
EXAMPLES: Final = (
    "cluster --nodes 100",
    "cluster --data-dir state --authorization rbac",
    "cluster fail node-1",
    "cluster cut-off node-1",
    "cluster restore node-1",
    "cluster pod web-0 --exit-code 137",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments for the cluster's nodes and its address."""
    add_cluster_arguments(parser)
    parser.add_argument(
        "--faults",
        metavar="FILE",
        type=Path,
        help="what goes wrong between clients and the API, for practice (docs/faults.md)",
    )
    for word in ("enable", "disable"):
        name, what = f"--{word}-admission-plugins", f"{word} these admission plugins"
        parser.add_argument(name, metavar="NAMES", default="", help=what)
    add_release_flags(parser)
    parser.add_argument(
        "--storage-class",
        action="store_true",
        help="have a default StorageClass `standard` that binds with the first consumer, as "
        "`stellwerk up` has one",
    )
    parser.add_argument(
        "--data-dir",
        metavar="DIR",
        type=Path,
        help="keep all objects there over a restart (default: they go with the process)",
    )
    parser.add_argument(
        "--controllers",
        metavar="NAMES",
        default="*",
        help="*, none, or names as in kube-controller-manager; -name leaves one out (default: *)",
    )
    _add_access(parser)
    from stellwerk_cluster.node_flags import add_node_flags  # noqa: PLC0415

    add_node_flags(parser)


def _add_access(parser: argparse.ArgumentParser) -> None:
    """Arguments for users and rights."""
    parser.add_argument(
        "--authorization",
        choices=("always-allow", "rbac"),
        default="always-allow",
        help="what users may do: everything, or what roles and bindings say, over TLS "
        "(default: %(default)s)",
    )
    parser.add_argument(
        "--token-auth-file",
        metavar="FILE",
        type=Path,
        help='bearer tokens, as in kube-apiserver: token,user,uid,"group1,group2" (over TLS)',
    )
    parser.add_argument(
        "--tls", action="store_true", help="serve HTTPS, under a certificate authority of its own"
    )
    parser.add_argument(
        "--client-ca-file",
        metavar="FILE",
        type=Path,
        help="with --tls: who signs the certificates of further clients (PEM)",
    )


def run(options: argparse.Namespace) -> int:
    """Serve until SIGTERM or SIGINT."""
    collect_seldom()
    import uvloop  # noqa: PLC0415

    from stellwerk_cluster.access_flags import AccessFlags  # noqa: PLC0415
    from stellwerk_cluster.command import api_features, serve_cluster  # noqa: PLC0415
    from stellwerk_cluster.node_flags import kubelet_options  # noqa: PLC0415

    features = api_features(
        options.enable_admission_plugins,
        options.disable_admission_plugins,
        options.feature_gates,
        options.kubernetes_version,
        options.runtime_config,
    )
    features = replace(features, storage_class=options.storage_class)
    access = AccessFlags(
        options.authorization,
        options.token_auth_file,
        options.client_ca_file,
        options.controllers,
        tls=options.tls,
    )
    uvloop.run(
        serve_cluster(
            options.nodes,
            options.port,
            kubeconfig_file(options),
            options.faults,
            options.data_dir,
            access,
            features,
            kubelet_options(options.stages, options.kubelet_config, options.devices),
        )
    )
    return 0
