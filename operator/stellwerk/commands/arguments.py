"""Arguments that several commands share, and what they mean: durations, shares, truth.

The modules of commands use it as types of arguments. Invariant: what is malformed is an
ArgumentTypeError of one line.
"""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Final

from stellwerk.errors import ConfigurationError
from stellwerk.models.compatibility import (
    NO_GATES,
    RECORDED,
    RELEASES,
    Compatibility,
    FeatureGates,
    release_named,
)
from stellwerk.models.name_syntax import parse_duration
from stellwerk.models.quantity import whole_units

if TYPE_CHECKING:
    from stellwerk.journal.writer import JournalOptions
    from stellwerk.models.destinations import UrlPrefix
    from stellwerk_cluster.kubeconfig import KubeconfigFile


_LAST_PORT: Final = 65535


def share(text: str) -> float:
    """A percentage above 0, as a share."""
    try:
        percent = float(text.removesuffix("%"))
    except ValueError:
        percent = 0.0
    if not 0 < percent <= 100:  # noqa: PLR2004 percent
        raise argparse.ArgumentTypeError(f"{text!r} is not a percentage above 0 and up to 100")
    return percent / 100


def seconds(text: str) -> float:
    """A duration longer than 0: in seconds, or as Go writes them (90s, 1m30s)."""
    try:
        value = float(text) if text[-1:].isdecimal() else parse_duration(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a duration like 90s or 5m") from None
    if value <= 0:
        raise argparse.ArgumentTypeError("a duration must be longer than 0")
    return value


def seconds_or_none(text: str) -> float:
    """The same, or 0."""
    return 0.0 if text in {"0", "0s"} else seconds(text)


def size(text: str) -> int:
    """Bytes, as a Kubernetes quantity: 256Mi."""
    try:
        value = whole_units(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size like 256Mi") from None
    if value < 1 << 16:
        raise argparse.ArgumentTypeError(f"{text!r} is less than 64Ki")
    return value


def port_number(text: str) -> int:
    """A port; 0: a free one."""
    if not (text.isascii() and text.isdecimal() and len(text) <= 5 and int(text) <= _LAST_PORT):  # noqa: PLR2004 digits
        raise argparse.ArgumentTypeError(f"{text!r} is not a port from 0 to {_LAST_PORT}")
    return int(text)


def at_least_one(text: str) -> int:
    """A whole number above 0."""
    if not (text.isascii() and text.isdecimal() and int(text[:9]) > 0):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text[:9])


def operator_name(text: str) -> str:
    """The name of one of several operators: a label's value, and the name of its first profile."""
    from stellwerk.models.name_syntax import is_label_value, is_subdomain  # noqa: PLC0415

    if not is_label_value(text) or not is_subdomain(text):
        message = f"{text!r} is no name of at most 63 lower-case letters, digits, - and ."
        raise argparse.ArgumentTypeError(message)
    return text


def absolute(text: str) -> Path:
    """An absolute path."""
    if not text.startswith("/"):
        raise argparse.ArgumentTypeError(f"{text!r} is not an absolute path")
    return Path(text)


def url_prefix(text: str) -> "UrlPrefix":
    """A URL that others may begin with."""
    from stellwerk.models.destinations import UrlPrefix  # noqa: PLC0415

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
        help="how many hollow nodes, or a file with node manifests (default: 3)",
    )
    parser.add_argument(
        "--port",
        type=port_number,
        default=0,
        help="of the cluster, on 127.0.0.1 (default: a free one)",
    )
    parser.add_argument(
        "--kubeconfig",
        metavar="FILE",
        type=Path,
        default=Path("stellwerk.kubeconfig"),
        help="written once the port answers; the cluster is added to a kubeconfig that is there, "
        "for as long as it runs (default: %(default)s)",
    )
    add_force_argument(parser)


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
        help="overwrite a file that is there, whatever is in it (a link is never followed)",
    )


def add_release_flags(parser: argparse.ArgumentParser) -> None:
    """The flags for the release of an embedded cluster, and for what it serves."""
    parser.add_argument(
        "--kubernetes-version",
        metavar="1.36|1.37|1.38",
        default="1.37",
        help="which release of Kubernetes the cluster is (default: %(default)s)",
    )
    parser.add_argument(
        "--runtime-config",
        metavar="VERSION=true,…",
        default="",
        help="versions that are served or not, as in kube-apiserver: api/beta=true, "
        "scheduling.k8s.io/v1beta1=false (docs/embedded-cluster.md)",
    )
    parser.add_argument(
        "--feature-gates",
        metavar="GATE=true,…",
        default="",
        help="as in kube-apiserver; PodGroups and Workloads are on, and "
        "AllAlpha=true,AllBeta=true turns on all that belongs to them (docs/gangs.md)",
    )


def add_compatibility(parser: argparse.ArgumentParser) -> None:
    """The flag that chooses the release to decide as."""
    parser.add_argument(
        "--compatibility",
        type=_known_release,
        metavar="1.N|1.N.PATCH",
        default=str(RECORDED),
        help="decide as kube-scheduler of this release does, where the profile names none: "
        f"{', '.join(RELEASES)}, or a patch release of one; 1.36 means the newest patch release "
        "that is known (default: %(default)s)",
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
        help="as in kube-scheduler; docs/compatibility.md lists the gates and what they do here",
    )


def scheduler_gates(text: str) -> FeatureGates:
    """Feature gates of some release."""
    try:
        return FeatureGates.parse(text)
    except ConfigurationError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def chosen_compatibility(options: argparse.Namespace) -> Compatibility:
    """The meaning of `add_compatibility` and `add_scheduler_gates`.

    Raises:
        ConfigurationError: the release refuses the gates.
    """
    version, gates = release_named(options.compatibility), options.feature_gates
    for problem in gates.problems(version.release):
        raise ConfigurationError(f"--feature-gates: {problem}")
    return Compatibility.with_release(version, gates)


_MOST: Final = "256Mi"


def add_journal_arguments(parser: argparse._ActionsContainer, prefix: str = "--") -> None:
    """Arguments for the size of a journal, and for hashed names."""
    parser.add_argument(
        f"{prefix}max-size",
        dest="journal_bytes",
        metavar="SIZE",
        type=size,
        default=size(_MOST),
        help="of the journal; beyond it the older half is dropped (default: 256Mi)",
    )
    parser.add_argument(
        f"{prefix}hash-names",
        dest="hash_names",
        action="store_true",
        help="write hashes in place of names, namespaces and label values",
    )


def journal_options(file: Path, options: argparse.Namespace) -> "JournalOptions":
    """The file, and what `add_journal_arguments` added."""
    from stellwerk.journal.writer import JournalOptions  # noqa: PLC0415

    return JournalOptions(file, options.journal_bytes, hashed=options.hash_names)
