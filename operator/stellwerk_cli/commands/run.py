"""`stellwerk run`: the operator, with kube-scheduler's flags where it has them.

The command line calls it. Invariant: nothing heavy is imported before the command runs.
"""

import argparse
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from stellwerk.garbage import collect_seldom
from stellwerk.models.number_options import PositiveNumber, WholeNumber
from stellwerk_cli.commands.arguments import (
    absolute,
    add_journal_arguments,
    add_scheduler_gates,
    journal_options,
    operator_name,
    seconds,
    seconds_or_none,
    truth,
    url_prefix,
)
from stellwerk_kube.errors import ConfigurationError

if TYPE_CHECKING:
    from stellwerk.serving.port import PortOptions

HELP: Final = "schedule the pods of a cluster (the operator)"
EXAMPLES: Final = (
    "run --kubeconfig ~/.kube/config --plain-http",
    "run --leader-elect --leader-elect-resource-name stellwerk",
)


_MAX_AT_ONCE: Final = 1_000_000
"""The largest number of connections or requests at once: more than a process has descriptors."""
_MAX_COMPLEXITY: Final = 1_000_000_000
"""The largest limit of a pod's complexity: beyond every pod that the API server takes (1.5 MiB)."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Every flag of the operator."""
    parser.add_argument(
        "--kubeconfig",
        metavar="FILE",
        help="credentials of the cluster (default: $KUBECONFIG, then the pod's own, "
        "then ~/.kube/config)",
    )
    parser.add_argument("--context", help="context of the kubeconfig (default: its current one)")
    parser.add_argument(
        "--observe",
        action="store_true",
        help="schedule nothing: serve only profiles with `mode: Observe`, and write only the lease "
        "and the status of profiles (manifests/overlays/observe has the rights)",
    )
    parser.add_argument(
        "--pod-max-in-unschedulable-pods-duration",
        metavar="DURATION",
        type=seconds,
        default=300.0,
        help="retry unschedulable pods after this time, even if no event has woken them "
        "(default: 5m)",
    )
    parser.add_argument(
        "--audit-period",
        metavar="DURATION",
        type=seconds_or_none,
        default=300.0,
        help="how often to compare cache and queue with the API and repair them; 0 turns it off "
        "(default: 5m)",
    )
    parser.add_argument(
        "--operator-name",
        metavar="NAME",
        type=operator_name,
        help="serve only profiles with the label scheduling.stellwerk.dev/operator=NAME, for "
        "several operators in one cluster (default: profiles without the label)",
    )
    parser.add_argument(
        "--profile-history-namespace",
        metavar="NAME",
        help="namespace in which to keep accepted specs of profiles, for `stellwerk profile` "
        "(default: the namespace of the operator's pod; outside a cluster none are kept)",
    )
    add_scheduler_gates(parser)
    _add_port(parser)
    _add_limits(parser)
    _add_extenders(parser)
    _add_leader_election(parser)
    _add_journal(parser)


def _add_journal(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("recording")
    group.add_argument(
        "--record",
        metavar="FILE",
        type=Path,
        help="record cluster events and decisions in this file, for `stellwerk simulate --replay`",
    )
    add_journal_arguments(group, "--record-")


def _add_port(parser: argparse.ArgumentParser) -> None:
    """The port of probes and metrics, its certificate and its guard."""
    group = parser.add_argument_group("probes and metrics")
    group.add_argument(
        "--bind-address",
        metavar="HOST:PORT",
        default="127.0.0.1:10259",
        help="address of probes and metrics. /livez, /readyz and /healthz need no credentials; "
        "/metrics needs a right that the cluster grants (default: %(default)s)",
    )
    files = {
        "--tls-cert-file": "certificate of the port, in PEM; a replaced file is read again "
        "(default: one made at the start)",
        "--tls-private-key-file": "private key of --tls-cert-file",
        "--client-ca-file": "certificate authority whose client certificates are accepted "
        "(default: the one that the cluster publishes in kube-system)",
    }
    for name, text in files.items():
        group.add_argument(name, metavar="FILE", type=Path, help=text)
    group.add_argument(
        "--plain-http",
        action="store_true",
        help="serve without TLS and without authentication; only on a loopback --bind-address",
    )
    for name, default, text in (
        (
            "connections",
            256,
            (
                "maximum number of open connections, a quarter of them without a user; beyond "
                "it the "
                "oldest idle one is closed"
            ),
        ),
        ("connections-per-address", 32, "maximum number of open connections from one address"),
        (
            "requests-inflight",
            32,
            "maximum number of concurrent requests, not counting probes; further ones get 429",
        ),
        (
            "requests-inflight-per-user",
            8,
            "maximum number of concurrent requests of one user; further ones get 429",
        ),
    ):
        group.add_argument(
            f"--max-{name}",
            metavar="NUMBER",
            type=WholeNumber(1, _MAX_AT_ONCE),
            default=default,
            help=f"{text} (default: %(default)s)",
        )


def _port_options(options: argparse.Namespace) -> "PortOptions":
    from stellwerk.serving.certificates import CertificateFiles  # noqa: PLC0415
    from stellwerk.serving.http import LIMITS, parse_address  # noqa: PLC0415
    from stellwerk.serving.port import PortOptions  # noqa: PLC0415

    pair = (options.tls_cert_file, options.tls_private_key_file)
    if (pair[0] is None) != (pair[1] is None):
        raise ConfigurationError("--tls-cert-file and --tls-private-key-file go together")
    try:
        parse_address(options.bind_address)
    except ConfigurationError as error:
        raise ConfigurationError(f"--bind-address: {error}") from error
    return PortOptions(
        bind_address=options.bind_address,
        certificate=None if pair[0] is None else CertificateFiles(*pair),
        client_ca_file=options.client_ca_file,
        plain_http=options.plain_http,
        limits=replace(
            LIMITS,
            connections=options.max_connections,
            unidentified_connections=max(1, options.max_connections // 4),
            address_connections=options.max_connections_per_address,
            requests=options.max_requests_inflight,
            user_requests=options.max_requests_inflight_per_user,
        ),
    )


def _add_limits(parser: argparse.ArgumentParser) -> None:
    """Arguments for the cost of foreign code and of single pods."""
    parser.add_argument(
        "--plugin-timeout",
        metavar="DURATION",
        type=seconds,
        default=0.5,
        help="time limit for a call of a plugin from another package (default: 500ms)",
    )
    parser.add_argument(
        "--foreign-time-share",
        metavar="PERCENT",
        type=PositiveNumber(100, percent=True),
        default=0.2,
        help="maximum share of the scheduler's time for one profile's extenders and plugins "
        "from other packages, while other profiles serve; 100 turns the limit off "
        "(default: 20)",
    )
    parser.add_argument(
        "--max-pod-complexity",
        metavar="NUMBER",
        type=WholeNumber(1, _MAX_COMPLEXITY),
        default=2000,
        help="do not schedule pods with more terms, expressions, values, constraints, "
        "tolerations and the like; pod affinity terms and spread constraints count ten each "
        "(default: %(default)s)",
    )


def _add_extenders(parser: argparse.ArgumentParser) -> None:
    """Arguments for what profiles may make the operator read and call."""
    group = parser.add_argument_group("files and addresses in profiles")
    group.add_argument(
        "--extender-files-dir",
        metavar="DIRECTORY",
        type=absolute,
        help="folder below which certificate files of extenders may be read (default: none)",
    )
    group.add_argument(
        "--extender-allow",
        metavar="URL-PREFIX",
        nargs="+",
        action="extend",
        type=url_prefix,
        default=[],
        help="URL prefix that profiles may have the operator call, such as "
        "https://extender.example.com/v1. http:// and https:// alone allow every host "
        "except link-local addresses and the API server. Default: in a pod with a service "
        "account only Services by name, which are always allowed there; in a static pod "
        "nothing; elsewhere everything",
    )


def _add_leader_election(parser: argparse.ArgumentParser) -> None:
    """kube-scheduler's flags, with its defaults but for the first."""
    group = parser.add_argument_group("leader election")
    group.add_argument(
        "--leader-elect",
        metavar="true|false",
        type=truth,
        nargs="?",
        const=True,
        default=False,
        help="schedule only while holding a lease, so that several replicas can run "
        "(default: false)",
    )
    for name, default, text in (
        (
            "lease-duration",
            "15s",
            "time after the last renewal at which another replica may take the lease",
        ),
        ("renew-deadline", "10s", "time without a renewal after which the leader stops and exits"),
        ("retry-period", "2s", "pause between attempts to acquire or renew the lease"),
    ):
        group.add_argument(
            f"--leader-elect-{name}",
            metavar="DURATION",
            type=seconds,
            default=seconds(default),
            help=f"{text} (default: {default})",
        )
    group.add_argument(
        "--leader-elect-resource-lock",
        choices=["leases"],
        default="leases",
        help="kind of the lock object (default and only choice: %(default)s)",
    )
    for name, default in (
        ("resource-name", "kube-scheduler"),
        ("resource-namespace", "kube-system"),
    ):
        group.add_argument(
            f"--leader-elect-{name}",
            metavar="NAME",
            default=default,
            help=f"{name.removeprefix('resource-')} of the lease. The default is "
            "kube-scheduler's lease: Stellwerk stands by while kube-scheduler holds it "
            "(default: %(default)s)",
        )


def run(options: argparse.Namespace) -> int:
    """Run until SIGTERM or SIGINT."""
    collect_seldom()
    import uvloop  # noqa: PLC0415

    from stellwerk.app import RunOptions  # noqa: PLC0415
    from stellwerk.app import run as run_operator  # noqa: PLC0415
    from stellwerk.client.election import LeaderElectionOptions  # noqa: PLC0415

    uvloop.run(
        run_operator(
            RunOptions(
                kubeconfig=options.kubeconfig,
                context=options.context,
                port=_port_options(options),
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
                journal=None
                if options.record is None
                else journal_options(options.record, options),
                observe_only=options.observe,
                name=options.operator_name or "",
                history_namespace=options.profile_history_namespace,
                gates=options.feature_gates,
                extender_files_dir=options.extender_files_dir,
                extender_allow=tuple(options.extender_allow),
            )
        )
    )
    return 0
