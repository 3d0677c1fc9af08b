"""`stellwerk plan profile`: a ready profile as a manifest, with the pods of a trace or a cluster.

`plan_command` calls it. Invariant: what is printed loads as a SchedulerProfile.
"""

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, TypeAlias

import yaml

from stellwerk.errors import ConfigurationError
from stellwerk.models.json_values import JsonObject

NAME: Final = "profile"
HELP: Final = "print a ready profile as a manifest, with the kinds of some pods as its typical pods"
LiveObjects: TypeAlias = Callable[[str, str | None], Sequence[JsonObject]]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.add_argument("name", metavar="NAME", help="a ready profile of `stellwerk simulate`")
    parser.add_argument(
        "--for",
        dest="pods",
        metavar="FILE",
        type=Path,
        help="the pods: CSV as the openb GPU traces are published, or manifests",
    )
    parser.add_argument("--kubeconfig", metavar="FILE", default="", help="a live cluster's pods")
    parser.add_argument("--context", help="of the kubeconfig, in place of its current one")


def run(options: argparse.Namespace, live: LiveObjects) -> int:
    """Print the manifest; returns the exit status.

    Raises:
        ConfigurationError: there is no such profile, or a file cannot be used.
    """
    from stellwerk.models.name_syntax import suggestion  # noqa: PLC0415 as what follows
    from stellwerk.models.profile import API_VERSION, KIND  # noqa: PLC0415 the scheduler
    from stellwerk_simulation.arrivals import typical_pods  # noqa: PLC0415 NumPy, too
    from stellwerk_simulation.manifests import pods_of  # noqa: PLC0415 as above
    from stellwerk_simulation.ready_profiles import (  # noqa: PLC0415 as above
        READY,
        profile_of,
        ready_manifest,
    )
    from stellwerk_simulation.sources import source_of  # noqa: PLC0415 as above

    if (options.pods is None) == (not options.kubeconfig):
        raise ConfigurationError("name the pods: --for FILE, or a --kubeconfig")
    if options.name not in READY:
        near = suggestion(options.name, READY) or f"; ready are {', '.join(READY)}"
        raise ConfigurationError(f"there is no ready profile {options.name}{near}")
    if options.pods is not None:
        pods = source_of(options.pods).pods()
    else:
        pods = pods_of(live(options.kubeconfig, options.context), "the cluster")
    typical = typical_pods(pods)
    profile_of(options.name, typical, pods)
    manifest = {
        "apiVersion": API_VERSION,
        "kind": KIND,
        **ready_manifest(options.name, typical, pods),
    }
    print(yaml.safe_dump(manifest, sort_keys=False, width=100, default_flow_style=None), end="")
    return 0
