"""The flags of `stellwerk cluster` about nodes, and the commands that make nodes and pods fail.

Read by the command line. Invariant: a running cluster is changed through its API alone, by
annotations that the hollow kubelets and their heartbeats follow.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from stellwerk.errors import ConfigurationError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable

    from stellwerk_cluster.hollow.kubelet import KubeletOptions

_MACHINE: Final = "stellwerk.dev/machine"
_END_NOW: Final = "stellwerk.dev/end-now"
_STATES: Final = {"fail": "failed", "cut-off": "cut-off", "restore": None}
_TEXTS: Final = {
    "fail": "switch the machine of a node off: its lease runs out, its containers are lost",
    "cut-off": "cut a node off: its lease runs out, its containers run on",
    "restore": "let a node that failed or was cut off be heard of again",
}
_EXIT_CODES: Final = 256


def add_node_flags(parser: argparse.ArgumentParser) -> None:
    """Flags about nodes, and the commands `fail`, `cut-off`, `restore` and `pod`."""
    parser.add_argument(
        "--stages",
        metavar="FILE",
        type=Path,
        help="how pods live and end (docs/hollow-nodes.md)",
    )
    parser.add_argument(
        "--kubelet-config",
        metavar="FILE",
        type=Path,
        help="a KubeletConfiguration: eviction thresholds and what is reserved, of all nodes",
    )
    add_device_flag(parser)
    commands = parser.add_subparsers(title="commands on a running cluster", metavar="COMMAND")
    for name, text in _TEXTS.items():
        command = commands.add_parser(name, help=text, description=f"{text.capitalize()}.")
        command.add_argument("node", help="name of the node")
        command.set_defaults(command=_change_machine, incident=name)
    pod = commands.add_parser("pod", help="let the containers of a running pod end")
    pod.add_argument("pod", help="name of the pod")
    pod.add_argument("-n", "--namespace", default="default", help="(default: %(default)s)")
    pod.add_argument("--exit-code", type=int, default=1, help="(default: %(default)s)")
    pod.set_defaults(command=_end_pod)


def add_device_flag(parser: argparse.ArgumentParser) -> None:
    """The flag that gives hollow nodes devices."""
    parser.add_argument(
        "--devices",
        metavar="NAME|FILE",
        action="append",
        default=[],
        help="devices of all nodes: gpus, gpu-partitions, nics, or a file; may be given more than "
        "once (docs/devices.md)",
    )


def _change_machine(options: argparse.Namespace) -> int:
    from stellwerk_cluster.annotation_client import annotate  # noqa: PLC0415  (it loads TLS)

    state = _STATES[options.incident]
    annotate(options.kubeconfig, f"/api/v1/nodes/{options.node}", _MACHINE, state)
    print(f"node/{options.node}: {state or 'heard of again'}")
    return 0


def _end_pod(options: argparse.Namespace) -> int:
    if not 0 <= options.exit_code < _EXIT_CODES:
        raise ConfigurationError(f"--exit-code {options.exit_code}: not between 0 and 255")
    from stellwerk_cluster.annotation_client import annotate  # noqa: PLC0415  (it loads TLS)

    path = f"/api/v1/namespaces/{options.namespace}/pods/{options.pod}"
    annotate(options.kubeconfig, path, _END_NOW, str(options.exit_code))
    print(f"pod/{options.pod}: its containers end with exit code {options.exit_code}")
    return 0


def kubelet_options(
    stages: Path | None, configuration: Path | None, devices: Iterable[str] = ()
) -> KubeletOptions:
    """The content of the files of `--stages`, `--kubelet-config` and `--devices`.

    Raises:
        ConfigurationError: a file cannot be read, or says what it may not.
    """
    from stellwerk.models.yaml_file import read_one_yaml  # noqa: PLC0415
    from stellwerk_cluster.hollow.device_descriptions import read_description  # noqa: PLC0415
    from stellwerk_cluster.hollow.eviction_thresholds import parse_configuration  # noqa: PLC0415
    from stellwerk_cluster.hollow.kubelet import KubeletOptions  # noqa: PLC0415
    from stellwerk_cluster.hollow.lifecycle import parse_stages  # noqa: PLC0415

    return KubeletOptions(
        stages=() if stages is None else tuple(parse_stages(read_one_yaml(stages), str(stages))),
        configuration=None
        if configuration is None
        else parse_configuration(read_one_yaml(configuration), str(configuration)),
        devices=tuple(map(read_description, devices)),
    )
