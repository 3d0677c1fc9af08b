"""Arguments that several commands share, and what they mean: durations, files, truth.

The modules of commands use it as types of arguments. Invariant: what is malformed is an
ArgumentTypeError of one line.
"""

import argparse
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

from stellwerk.models.number_options import DurationSeconds, PortNumber, Size
from stellwerk_kube.compatibility import (
    NEWEST_RELEASED,
    NO_GATES,
    RECORDED,
    RELEASES,
    Compatibility,
    FeatureGates,
    PatchRelease,
    compatibility_beside,
    release_named,
)
from stellwerk_kube.errors import ConfigurationError

if TYPE_CHECKING:
    from stellwerk.journal.writer import JournalOptions
    from stellwerk_cluster.kubeconfig import KubeconfigFile
    from stellwerk_kube.destinations import UrlPrefix


seconds: Final = DurationSeconds()
"""The type of durations, which are longer than 0."""
seconds_or_none: Final = DurationSeconds(or_zero=True)
"""The type of durations that may be 0."""
size: Final = Size()
"""The type of sizes of files."""
port_number: Final = PortNumber()
"""The type of ports; 0 stands for a free one."""


def operator_name(text: str) -> str:
    """The name of one of several operators: a label's value, and the name of its first profile."""
    from stellwerk_kube.names import is_label_value, is_subdomain  # noqa: PLC0415

    if not is_label_value(text) or not is_subdomain(text):
        message = f"{text!r} is not a name of at most 63 lower-case letters, digits, - and ."
        raise argparse.ArgumentTypeError(message)
    return text


def absolute(text: str) -> Path:
    """An absolute path."""
    if not text.startswith("/"):
        raise argparse.ArgumentTypeError(f"{text!r} is not an absolute path")
    return Path(text)


def url_prefix(text: str) -> "UrlPrefix":
    """A URL that others may begin with."""
    from stellwerk_kube.destinations import UrlPrefix  # noqa: PLC0415

    try:
        return UrlPrefix.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def truth(text: str) -> bool:
    """A bool as Go's flags take it."""
    if text.lower() in {"1", "t", "true"}:
        return True
    if text.lower() in {"0", "f", "false"}:
        return False
    raise argparse.ArgumentTypeError(f"{text!r} is neither true nor false")


def add_cluster_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments for the size of an embedded cluster, and for its address."""
    parser.add_argument(
        "--nodes",
        default="3",
        metavar="N|FILE",
        help="number of hollow nodes, or a file with Node manifests (default: 3)",
    )
    parser.add_argument(
        "--port",
        type=port_number,
        default=0,
        help="port of the cluster on 127.0.0.1 (default: a free one)",
    )
    parser.add_argument(
        "--kubeconfig",
        metavar="FILE",
        type=Path,
        default=Path("stellwerk.kubeconfig"),
        help="kubeconfig to write once the port answers; to an existing kubeconfig the cluster "
        "is added while it runs (default: %(default)s)",
    )
    add_force_argument(parser)


def add_device_flag(parser: argparse.ArgumentParser) -> None:
    """The flag that gives hollow nodes devices."""
    parser.add_argument(
        "--devices",
        metavar="NAME|FILE",
        action="append",
        default=[],
        help="devices of every node: gpus, gpu-partitions, nics, or a file; may be repeated "
        "(docs/devices.md)",
    )


def check_embedded_cluster() -> None:
    """Refuse to go on in an installation without the embedded cluster.

    Raises:
        ConfigurationError: there is none.
    """
    if find_spec("stellwerk_cluster") is None:
        raise ConfigurationError(
            "this installation has no embedded cluster, as the image has none. Run this command "
            "on your own machine, with the package of the same version"
        )


def kubeconfig_file(options: argparse.Namespace) -> "KubeconfigFile":
    """The file that `add_cluster_arguments` names, looked at.

    Raises:
        ConfigurationError: it may not be written.
    """
    from stellwerk_cluster.kubeconfig import KubeconfigFile  # noqa: PLC0415

    return KubeconfigFile(options.kubeconfig.absolute(), force=options.force)


def add_filename_argument(parser: argparse.ArgumentParser, text: str) -> None:
    """Kubectl's option for files of manifests."""
    parser.add_argument("-f", "--filename", metavar="FILE", action="append", default=[], help=text)


def add_force_argument(parser: argparse.ArgumentParser) -> None:
    """The flag to overwrite a file that is another's."""
    parser.add_argument(
        "--force",
        action="store_true",
        help="overwrite an existing file, whatever it contains (a link is never followed)",
    )


def add_release_flags(parser: argparse.ArgumentParser) -> None:
    """The flags for the release of an embedded cluster, and for what it serves."""
    parser.add_argument(
        "--kubernetes-version",
        metavar="1.36|1.37|1.38",
        default="1.37",
        help="release of Kubernetes that the cluster serves (default: %(default)s)",
    )
    parser.add_argument(
        "--runtime-config",
        metavar="VERSION=true,…",
        default="",
        help="API versions to serve or to leave out, as in kube-apiserver: api/beta=true, "
        "scheduling.k8s.io/v1beta1=false (docs/embedded-cluster.md)",
    )
    parser.add_argument(
        "--feature-gates",
        metavar="GATE=true,…",
        default="",
        help="feature gates, as in kube-apiserver. PodGroups and Workloads are on; "
        "AllAlpha=true,AllBeta=true turns on everything that belongs to them (docs/gangs.md)",
    )


def add_compatibility(parser: argparse.ArgumentParser) -> None:
    """The flag that chooses the release to decide as."""
    parser.add_argument(
        "--compatibility",
        type=_known_release,
        metavar="1.N|1.N.PATCH",
        help="decide as kube-scheduler of this release if the profile names none: "
        f"{', '.join(RELEASES)}, or a patch release of one. 1.36 means its newest known patch "
        f"release. Default: the API server's release for a live cluster, else {NEWEST_RELEASED}; "
        f"{RECORDED} for cases",
    )


def _known_release(text: str) -> str:
    try:
        release_named(text)
    except ConfigurationError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


def add_scheduler_gates(parser: argparse.ArgumentParser) -> None:
    """kube-scheduler's flag for its feature gates."""
    parser.add_argument(
        "--feature-gates",
        metavar="GATE=true,…",
        type=scheduler_gates,
        default=NO_GATES,
        help="feature gates, as in kube-scheduler; docs/compatibility.md says what each one "
        "does here",
    )


def scheduler_gates(text: str) -> FeatureGates:
    """Feature gates of some release."""
    try:
        return FeatureGates.parse(text)
    except ConfigurationError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def chosen_compatibility(
    options: argparse.Namespace, server_version: str = "", default: PatchRelease | None = None
) -> Compatibility:
    """The meaning of `add_compatibility` and `add_scheduler_gates`.

    Args:
        options: as parsed.
        server_version: of the live cluster that decisions are about; empty: there is none.
        default: the release of recorded decisions, which is followed as it was, with its faults.

    Raises:
        ConfigurationError: the release refuses the gates.
    """
    gates = options.feature_gates
    if options.compatibility is not None:
        default = release_named(options.compatibility)
    if default is not None:
        chosen = Compatibility.with_release(default, gates)
    else:
        chosen = compatibility_beside(server_version, gates)
    for problem in gates.problems(chosen.release):
        raise ConfigurationError(f"--feature-gates: {problem}")
    return chosen


_MOST: Final = "256Mi"


def add_journal_arguments(parser: argparse._ActionsContainer, prefix: str = "--") -> None:
    """Arguments for the size of a journal, and for hashed names."""
    parser.add_argument(
        f"{prefix}max-size",
        dest="journal_bytes",
        metavar="SIZE",
        type=size,
        default=size(_MOST),
        help="maximum size of the journal; beyond it the older half is dropped (default: 256Mi)",
    )
    parser.add_argument(
        f"{prefix}hash-names",
        dest="hash_names",
        action="store_true",
        help="write hashes instead of names, namespaces and label values",
    )


def journal_options(file: Path, options: argparse.Namespace) -> "JournalOptions":
    """The file, and what `add_journal_arguments` added."""
    from stellwerk.journal.writer import JournalOptions  # noqa: PLC0415

    return JournalOptions(file, options.journal_bytes, hashed=options.hash_names)
