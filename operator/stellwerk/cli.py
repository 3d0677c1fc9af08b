"""The command line: parses arguments and calls the rest; no logic of its own.

Invariant: a mistake of the user is one clear line on standard error and exit status 2, never a
traceback.
"""

import argparse
import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

from stellwerk import __version__
from stellwerk.errors import ConfigurationError, SchedulerError
from stellwerk.garbage import collect_seldom
from stellwerk.models.name_syntax import parse_duration

if TYPE_CHECKING:
    from stellwerk.serving.port import PortOptions

USAGE_ERROR: Final = 2
_LEVELS: Final = ("trace", "debug", "info", "warning", "error")
TRACE: Final = 5
"""Below debug: plugin scores of every attempt."""

_Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"  # noqa: SLF001 has no other name


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit status."""
    options = build_parser().parse_args(arguments)
    _configure_logging(options.log_level)
    try:
        status: int = options.command(options)
    except ConfigurationError as error:
        print(f"stellwerk: {error}", file=sys.stderr)
        return USAGE_ERROR
    except SchedulerError as error:
        print(f"stellwerk: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The reader (head, less) has seen enough.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return status


def build_parser() -> argparse.ArgumentParser:
    """Every command with its options."""
    parser = argparse.ArgumentParser(
        prog="stellwerk", description="A Kubernetes scheduler that explains its decisions."
    )
    parser.add_argument("--version", action="version", version=f"stellwerk {__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    _add_run(commands)
    _add_cluster(commands)
    _add_demo(commands)
    _add_decide(commands)
    _add_convert(commands)
    return parser


def _command(commands: "_Commands", name: str, text: str) -> argparse.ArgumentParser:
    parser = commands.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.")
    parser.add_argument(
        "--log-level", choices=_LEVELS, default="info", help="how much to log (default: info)"
    )
    return parser


def _add_run(commands: "_Commands") -> None:
    parser = _command(commands, "run", "schedule the pods of a cluster (the operator)")
    parser.add_argument(
        "--kubeconfig",
        metavar="FILE",
        help="credentials of the cluster (default: $KUBECONFIG, then the pod's own, "
        "then ~/.kube/config)",
    )
    parser.add_argument("--context", help="context of the kubeconfig (default: its current one)")
    parser.add_argument(
        "--pod-max-in-unschedulable-pods-duration",
        metavar="DURATION",
        type=_seconds,
        default=300.0,
        help="pods that no event woke are retried after this time (default: 5m)",
    )
    parser.add_argument(
        "--audit-period",
        metavar="DURATION",
        type=_seconds_or_none,
        default=300.0,
        help="how often cache and queue are compared with the API, and repaired; 0: never "
        "(default: 5m)",
    )
    parser.add_argument(
        "--no-fast-lane",
        action="store_true",
        help="take events the way kopf delivers them: slower, without private parts of kopf",
    )
    _add_port(parser)
    _add_limits(parser)
    _add_leader_election(parser)
    parser.set_defaults(command=_run)


def _add_port(parser: argparse.ArgumentParser) -> None:
    """The port of probes and metrics, its certificate and its guard."""
    group = parser.add_argument_group("probes and metrics")
    group.add_argument(
        "--bind-address",
        metavar="HOST:PORT",
        default="127.0.0.1:10259",
        help="the port of /livez, /readyz and /healthz, which need no credentials, and of "
        "/metrics, which needs a right that the cluster grants (default: %(default)s)",
    )
    files = {
        "--tls-cert-file": "the port's certificate, in PEM; read again when it is replaced "
        "(default: one made at the start)",
        "--tls-private-key-file": "the key of --tls-cert-file",
        "--client-ca-file": "the authority whose client certificates are accepted "
        "(default: the one that the cluster publishes in kube-system)",
    }
    for name, text in files.items():
        group.add_argument(name, metavar="FILE", type=Path, help=text)
    group.add_argument(
        "--plain-http",
        action="store_true",
        help="no TLS and no questions; only with a --bind-address of this machine itself",
    )


def _port_options(options: argparse.Namespace) -> "PortOptions":
    from stellwerk.serving.certificates import CertificateFiles  # noqa: PLC0415
    from stellwerk.serving.port import PortOptions  # noqa: PLC0415

    pair = (options.tls_cert_file, options.tls_private_key_file)
    if (pair[0] is None) != (pair[1] is None):
        raise ConfigurationError("--tls-cert-file and --tls-private-key-file go together")
    return PortOptions(
        bind_address=options.bind_address,
        certificate=None if pair[0] is None else CertificateFiles(*pair),
        client_ca_file=options.client_ca_file,
        plain_http=options.plain_http,
    )


def _add_limits(parser: argparse.ArgumentParser) -> None:
    """What bounds the cost of foreign code and of single pods."""
    parser.add_argument(
        "--plugin-timeout",
        metavar="DURATION",
        type=_seconds,
        default=0.5,
        help="a call of a plugin from another package that takes longer is cut off "
        "(default: 500ms)",
    )
    parser.add_argument(
        "--foreign-time-share",
        metavar="PERCENT",
        type=_share,
        default=0.2,
        help="plugins from other packages and extenders of one profile may take this much of the "
        "scheduler's time while other profiles serve; 100 turns the limit off (default: 20)",
    )
    parser.add_argument(
        "--max-pod-complexity",
        metavar="NUMBER",
        type=int,
        default=2000,
        help="pending pods with more terms, expressions, values, constraints, tolerations and the "
        "like are not scheduled; pod affinity terms and spread constraints count ten each "
        "(default: %(default)s)",
    )


def _add_leader_election(parser: argparse.ArgumentParser) -> None:
    """kube-scheduler's flags, with its defaults but for the first."""
    group = parser.add_argument_group("leader election")
    group.add_argument(
        "--leader-elect",
        metavar="true|false",
        type=_truth,
        nargs="?",
        const=True,
        default=False,
        help="schedule only while holding a lease, so that several replicas can run "
        "(default: false)",
    )
    for name, default, text in (
        ("lease-duration", "15s", "how long other replicas wait after the last renewal seen"),
        ("renew-deadline", "10s", "after so long without a renewal the leader stops and ends"),
        ("retry-period", "2s", "how long to wait between attempts to acquire or renew"),
    ):
        group.add_argument(
            f"--leader-elect-{name}",
            metavar="DURATION",
            type=_seconds,
            default=_seconds(default),
            help=f"{text} (default: {default})",
        )
    group.add_argument(
        "--leader-elect-resource-lock",
        choices=["leases"],
        default="leases",
        help="the kind of object that is the lock (default and only choice: %(default)s)",
    )
    for name, default in (
        ("resource-name", "kube-scheduler"),
        ("resource-namespace", "kube-system"),
    ):
        group.add_argument(
            f"--leader-elect-{name}",
            metavar="NAME",
            default=default,
            help="of the lease; the default is the one of the cluster's own scheduler, behind "
            "which Stellwerk then stands by (default: %(default)s)",
        )


def _truth(text: str) -> bool:
    """What Go's flags take for a bool."""
    if text.lower() in {"1", "t", "true"}:
        return True
    if text.lower() in {"0", "f", "false"}:
        return False
    raise argparse.ArgumentTypeError(f"{text!r} is neither true nor false")


def _add_cluster(commands: "_Commands") -> None:
    parser = _command(commands, "cluster", "serve an embedded cluster on this machine")
    parser.add_argument(
        "--nodes",
        default="3",
        metavar="N|FILE",
        help="how many hollow nodes, or a file with node manifests (default: 3)",
    )
    parser.add_argument(
        "--port", type=int, default=0, help="port on 127.0.0.1 (default: a free one)"
    )
    parser.add_argument(
        "--kubeconfig",
        metavar="FILE",
        type=Path,
        default=Path("stellwerk.kubeconfig"),
        help="written once the port answers (default: %(default)s)",
    )
    parser.add_argument(
        "--faults",
        metavar="FILE",
        type=Path,
        help="what goes wrong between clients and the API, for practice (docs/faults.md)",
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
    _add_cluster_access(parser)
    parser.set_defaults(command=_cluster)


def _add_cluster_access(parser: argparse.ArgumentParser) -> None:
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


def _add_demo(commands: "_Commands") -> None:
    parser = _command(
        commands, "demo", "run the examples of the Kubernetes documentation on an embedded cluster"
    )
    parser.add_argument(
        "--keep", action="store_true", help="keep the cluster running afterwards, for kubectl"
    )
    parser.set_defaults(command=_demo, log_level="warning")


def _add_decide(commands: "_Commands") -> None:
    parser = _command(commands, "decide", "decide recorded cases without a cluster")
    parser.add_argument("file", help="cases, one JSON object per line; - reads standard input")
    parser.add_argument(
        "--human", action="store_true", help="print a table instead of JSON objects"
    )
    parser.set_defaults(command=_decide)


def _add_convert(commands: "_Commands") -> None:
    parser = _command(
        commands, "convert", "turn kube-scheduler's configuration into SchedulerProfile manifests"
    )
    parser.add_argument(
        "file", help="a KubeSchedulerConfiguration or Policy, YAML or JSON; - reads standard input"
    )
    parser.set_defaults(command=_convert)


def _share(text: str) -> float:
    """A percentage above 0, as a share."""
    try:
        percent = float(text.removesuffix("%"))
    except ValueError:
        percent = 0.0
    if not 0 < percent <= 100:  # noqa: PLR2004 percent
        raise argparse.ArgumentTypeError(f"{text!r} is not a percentage above 0 and up to 100")
    return percent / 100


def _seconds(text: str) -> float:
    """A duration longer than 0: in seconds, or as Go writes them (90s, 1m30s)."""
    try:
        seconds = float(text) if text[-1:].isdecimal() else parse_duration(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a duration like 90s or 5m") from None
    if seconds <= 0:
        raise argparse.ArgumentTypeError("a duration must be longer than 0")
    return seconds


def _seconds_or_none(text: str) -> float:
    """The same, or 0."""
    return 0.0 if text in {"0", "0s"} else _seconds(text)


def _configure_logging(level: str) -> None:
    logging.addLevelName(TRACE, "TRACE")
    logging.basicConfig(
        level=TRACE if level == "trace" else level.upper(),
        format="%(asctime)s %(levelname)-7s %(name)s: %(message)s",
        stream=sys.stderr,
    )


# Each command imports what it needs: `decide` without kopf, `convert` without NumPy.


def _run(options: argparse.Namespace) -> int:
    collect_seldom()
    import uvloop  # noqa: PLC0415

    from stellwerk.app import RunOptions, run  # noqa: PLC0415
    from stellwerk.client.election import LeaderElectionOptions  # noqa: PLC0415

    uvloop.run(
        run(
            RunOptions(
                kubeconfig=options.kubeconfig,
                context=options.context,
                port=_port_options(options),
                fast_lane=not options.no_fast_lane,
                max_unschedulable_seconds=options.pod_max_in_unschedulable_pods_duration,
                plugin_limit_seconds=options.plugin_timeout,
                audit_seconds=options.audit_period,
                foreign_share=options.foreign_time_share,
                leader_election=LeaderElectionOptions(
                    leader_elect=options.leader_elect,
                    lease_duration_seconds=options.leader_elect_lease_duration,
                    renew_deadline_seconds=options.leader_elect_renew_deadline,
                    retry_period_seconds=options.leader_elect_retry_period,
                    resource_name=options.leader_elect_resource_name,
                    resource_namespace=options.leader_elect_resource_namespace,
                ),
                max_pod_complexity=options.max_pod_complexity,
            )
        )
    )
    return 0


def _cluster(options: argparse.Namespace) -> int:
    collect_seldom()
    import uvloop  # noqa: PLC0415

    from stellwerk_cluster.access_flags import AccessFlags  # noqa: PLC0415
    from stellwerk_cluster.command import serve_cluster  # noqa: PLC0415

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
            options.kubeconfig,
            options.faults,
            options.data_dir,
            access,
        )
    )
    return 0


def _demo(options: argparse.Namespace) -> int:
    import uvloop  # noqa: PLC0415

    from stellwerk.demo.demo import run_demo  # noqa: PLC0415

    return uvloop.run(run_demo(keep=options.keep))


def _decide(options: argparse.Namespace) -> int:
    from stellwerk.explain.command import decide_lines  # noqa: PLC0415

    return decide_lines(options.file, human=options.human)


def _convert(options: argparse.Namespace) -> int:
    from stellwerk.convert.command import convert_command  # noqa: PLC0415

    return convert_command(options.file)
