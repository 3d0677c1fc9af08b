"""`stellwerk cluster`: the embedded cluster, for kubectl and for schedulers of any kind.

The command line calls it. Invariant: the cluster's own package does the work.
"""

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Final

from stellwerk.garbage import collect_seldom
from stellwerk.models.number_options import WholeNumber
from stellwerk_cli.commands.arguments import (
    add_cluster_arguments,
    add_device_flag,
    add_release_flags,
    check_embedded_cluster,
    kubeconfig_file,
)

HELP: Final = "serve an embedded cluster on this machine"
EXAMPLES: Final = (
    "cluster --nodes 100",
    "cluster --data-dir state --authorization rbac",
    "cluster fail node-1",
    "cluster cut-off node-1",
    "cluster restore node-1",
    "cluster pod web-0 --exit-code 137",
)
_MACHINE: Final = "stellwerk.dev/machine"
_END_NOW: Final = "stellwerk.dev/end-now"
_STATES: Final = {"fail": "failed", "cut-off": "cut-off", "restore": None}
_TEXTS: Final = {
    "fail": "power off a node: its lease expires and its containers are lost",
    "cut-off": "cut off a node from the network: its lease expires, its containers keep running",
    "restore": "bring back a node that failed or was cut off",
}
_EXIT_CODE: Final = WholeNumber(0, 255)
"""The exit codes that a process can have."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments for the cluster's nodes and its address."""
    add_cluster_arguments(parser)
    parser.add_argument(
        "--faults",
        metavar="FILE",
        type=Path,
        help="file of faults to inject between clients and the API (docs/faults.md)",
    )
    for word in ("enable", "disable"):
        name, what = f"--{word}-admission-plugins", f"{word} these admission plugins"
        parser.add_argument(name, metavar="NAMES", default="", help=what)
    add_release_flags(parser)
    parser.add_argument(
        "--storage-class",
        action="store_true",
        help="create a default StorageClass `standard` that binds with the first consumer, as "
        "`stellwerk up` does",
    )
    parser.add_argument(
        "--data-dir",
        metavar="DIR",
        type=Path,
        help="folder that keeps all objects over a restart (default: they are lost when the "
        "process ends)",
    )
    parser.add_argument(
        "--controllers",
        metavar="NAMES",
        default="*",
        help="controllers to run: *, none, or names as in kube-controller-manager; -name leaves "
        "one out (default: *)",
    )
    _add_access(parser)
    _add_nodes(parser)


def _add_access(parser: argparse.ArgumentParser) -> None:
    """Arguments for users and rights."""
    parser.add_argument(
        "--authorization",
        choices=("always-allow", "rbac"),
        default="always-allow",
        help="let users do everything (always-allow), or what roles and bindings grant, over "
        "TLS (rbac) "
        "(default: %(default)s)",
    )
    parser.add_argument(
        "--token-auth-file",
        metavar="FILE",
        type=Path,
        help='file of bearer tokens, as in kube-apiserver: token,user,uid,"group1,group2" (over '
        "TLS)",
    )
    parser.add_argument(
        "--tls", action="store_true", help="serve HTTPS with a certificate authority of its own"
    )
    parser.add_argument(
        "--client-ca-file",
        metavar="FILE",
        type=Path,
        help="with --tls: authority that signs certificates of further clients (PEM)",
    )


def _add_nodes(parser: argparse.ArgumentParser) -> None:
    """Arguments for nodes, and the commands that make nodes and pods of a running cluster fail.

    These commands change annotations, which the hollow kubelets follow.
    """
    parser.add_argument(
        "--stages",
        metavar="FILE",
        type=Path,
        help="file that says how pods start, run and end (docs/hollow-nodes.md)",
    )
    parser.add_argument(
        "--kubelet-config",
        metavar="FILE",
        type=Path,
        help="KubeletConfiguration of all nodes: eviction thresholds and reserved resources",
    )
    add_device_flag(parser)
    commands = parser.add_subparsers(title="commands on a running cluster", metavar="COMMAND")
    for name, text in _TEXTS.items():
        command = commands.add_parser(name, help=text, description=f"{text.capitalize()}.")
        command.add_argument("node", help="name of the node")
        command.set_defaults(command=_change_machine, incident=name)
    pod = commands.add_parser("pod", help="end the containers of a running pod")
    pod.add_argument("pod", help="name of the pod")
    pod.add_argument(
        "-n", "--namespace", default="default", help="namespace of the pod (default: %(default)s)"
    )
    pod.add_argument(
        "--exit-code",
        type=_EXIT_CODE,
        default=1,
        help="exit code of the containers (default: %(default)s)",
    )
    pod.set_defaults(command=_end_pod)


def _change_machine(options: argparse.Namespace) -> int:
    check_embedded_cluster()
    from stellwerk_cluster.annotation_client import annotate  # noqa: PLC0415  (it loads TLS)

    state = _STATES[options.incident]
    annotate(options.kubeconfig, f"/api/v1/nodes/{options.node}", _MACHINE, state)
    print(f"node/{options.node}: {state or 'back'}")
    return 0


def _end_pod(options: argparse.Namespace) -> int:
    check_embedded_cluster()
    from stellwerk_cluster.annotation_client import annotate  # noqa: PLC0415  (it loads TLS)

    path = f"/api/v1/namespaces/{options.namespace}/pods/{options.pod}"
    annotate(options.kubeconfig, path, _END_NOW, str(options.exit_code))
    print(f"pod/{options.pod}: its containers end with exit code {options.exit_code}")
    return 0


def run(options: argparse.Namespace) -> int:
    """Serve until SIGTERM or SIGINT."""
    check_embedded_cluster()
    collect_seldom()
    import uvloop  # noqa: PLC0415

    from stellwerk_cli.embedded_cluster import (  # noqa: PLC0415
        api_features,
        kubelet_options,
        serve_cluster,
    )
    from stellwerk_cluster.access_flags import AccessFlags  # noqa: PLC0415

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
