"""`stellwerk convert`: kube-scheduler's configuration as SchedulerProfile manifests.

The command line calls it. Invariant: NumPy is not needed for it, nor imported.
"""

import argparse
from typing import Final

HELP: Final = "turn kube-scheduler's configuration into SchedulerProfile manifests"
EXAMPLES: Final = (
    "convert kube-scheduler.yaml",
    "convert -",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The file."""
    parser.add_argument(
        "file", help="a KubeSchedulerConfiguration or Policy, YAML or JSON; - reads standard input"
    )


def run(options: argparse.Namespace) -> int:
    """Convert one file."""
    from stellwerk_cli.convert.conversion import convert_command  # noqa: PLC0415

    return convert_command(options.file)
