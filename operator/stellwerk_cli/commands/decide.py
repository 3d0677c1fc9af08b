"""`stellwerk decide`: cases, lists of objects or a live cluster in, the whole decision out.

The command line calls it. Invariant: nothing is written to a cluster that is read.
"""

import argparse
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Final

from stellwerk_cli.commands.arguments import (
    add_compatibility,
    add_filename_argument,
    add_scheduler_gates,
    chosen_compatibility,
)
from stellwerk_cli.commands.port_arguments import add_access_arguments, add_output_arguments
from stellwerk_kube.compatibility import RECORDED, Compatibility, PatchRelease
from stellwerk_kube.errors import ConfigurationError
from stellwerk_kube.json_values import JsonObject

HELP: Final = "decide for cases, manifests or the pending pods of a cluster, without binding"
EXAMPLES: Final = (
    "decide cluster.json -o table",
    "decide --kubeconfig ~/.kube/config --pod team/web-0",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments for the case, and for the form of the result."""
    parser.add_argument(
        "files",
        metavar="FILE",
        nargs="*",
        help="cases, one JSON object per line; or objects of a cluster, as `kubectl get -o json` "
        "or in YAML; - reads standard input. Several files are one cluster",
    )
    add_filename_argument(parser, "one of these files, as in kubectl; may be repeated")
    add_access_arguments(parser, "without a file: kubeconfig of the cluster to read")
    parser.add_argument(
        "--pod",
        default="",
        metavar="NAMESPACE/NAME",
        help="decide for this pod alone; a name without a namespace is in the context's, or in "
        "`default` in a file (default: every pod without a node)",
    )
    add_output_arguments(parser, "json")
    parser.add_argument("--human", action="store_true", help="short for -o table")
    add_compatibility(parser)
    add_scheduler_gates(parser)


def run(options: argparse.Namespace) -> int:
    """Decide, and print a result for each case."""
    from stellwerk_cli.commands.case_decisions import decide_lines, decide_objects  # noqa: PLC0415 as above
    from stellwerk_cli.commands.manifests import say_unused  # noqa: PLC0415 as above
    from stellwerk_kube.yaml_file import read_objects  # noqa: PLC0415 as above
    from stellwerk_simulation.cases.case_files import USED, NoPendingPodError  # noqa: PLC0415 the scheduler
    from stellwerk_simulation.manifest_reader import admitted, settled  # noqa: PLC0415 as above

    files = [*options.files, *options.filename]
    pod = options.pod.removeprefix("pod/")
    if pod and "/" not in pod:
        pod = f"{_namespace(options, files)}/{pod}"
    if files and options.kubeconfig is not None:
        raise ConfigurationError("name either a file, or a cluster with --kubeconfig")
    form = "table" if options.human else options.output

    def read(place: str, objects: Sequence[JsonObject]) -> list[JsonObject]:
        found = admitted(place, objects, USED)
        say_unused(place, found, USED)
        return settled(found, USED)

    if len(files) == 1:
        [file] = files
        place = "standard input" if file == "-" else file
        return decide_lines(
            file,
            form=form,
            pod_key=pod,
            choose=cache(
                lambda are_objects: _chosen(options, default=None if are_objects else RECORDED)
            ),
            read=lambda objects: read(place, objects),
        )
    objects, source, server_version = list[JsonObject](), ", ".join(files), ""
    for each in files:
        objects += read(each, read_objects(Path(each)))
    if not files:
        from stellwerk_cli.commands.live_objects import read_live_objects  # noqa: PLC0415

        live = read_live_objects(options.kubeconfig, options.context)
        objects, server_version = live, live.server_version
        source = options.kubeconfig or "the cluster"
    compatibility = _chosen(options, server_version)
    try:
        return decide_objects(
            settled(objects, USED), source, form=form, pod_key=pod, compatibility=compatibility
        )
    except NoPendingPodError as error:
        if files:
            raise
        # Of a cluster it is an answer; a file without one is the wrong file.
        sys.stderr.write(f"stellwerk: {error}\n")
        return 0


def _chosen(
    options: argparse.Namespace, server_version: str = "", default: PatchRelease | None = None
) -> Compatibility:
    """The release to decide as; says which gates have no effect."""
    compatibility = chosen_compatibility(options, server_version, default)
    for message in compatibility.gates.without_effect(compatibility.release):
        sys.stderr.write(f"stellwerk: {message}\n")
    return compatibility


def _namespace(options: argparse.Namespace, files: Sequence[str]) -> str:
    if files:
        return "default"
    from stellwerk.client.credentials import context_namespace  # noqa: PLC0415 aiohttp

    return context_namespace(options.kubeconfig, options.context)
