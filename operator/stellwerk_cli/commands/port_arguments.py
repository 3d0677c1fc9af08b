"""The arguments of commands that ask the operator: where it is, of which object, how to print.

Invariant: nothing heavy is imported for them, since every command's arguments are made each time.
"""

import argparse
import os
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from stellwerk.client.election import KUBE_SCHEDULER_LEASE
from stellwerk.models.number_options import MAX_PORT, shortened
from stellwerk_kube.errors import ConfigurationError

IN_PLACE: Final = KUBE_SCHEDULER_LEASE
"""The lease of an operator in kube-scheduler's place, which kube-scheduler holds otherwise."""


@dataclass(frozen=True, slots=True)
class PortAddress:
    """Arguments for the way to the operator's port."""

    kubeconfig: str | None = None
    context: str | None = None
    url: str = ""
    """Empty: the pod that holds the lease is looked up, and a port forwarded to it."""
    lease_namespace: str = "stellwerk"
    lease_name: str = "stellwerk"
    verify: bool = True
    or_in_place: bool = False
    """Whether the lease of kube-scheduler may be the operator's, too: the user has named none."""

    @property
    def history_namespace(self) -> str:
        """The operator's namespace: its lease may lie beside kube-scheduler's, its history not."""
        is_own = self.lease_namespace != IN_PLACE[0]
        return self.lease_namespace if is_own else operator_namespace()


def add_access_arguments(
    parser: argparse._ActionsContainer, text: str = "kubeconfig of the cluster"
) -> None:
    """The cluster, as kubectl finds it; `text`: what it is for."""
    parser.add_argument("--kubeconfig", metavar="FILE", help=f"{text} (default: as kubectl)")
    parser.add_argument("--context", help="context of the kubeconfig (default: its current one)")


def add_port_arguments(parser: argparse.ArgumentParser) -> None:
    """The address of the operator's port."""
    group = parser.add_argument_group("how to reach the operator")
    add_access_arguments(group)
    group.add_argument(
        "--url",
        default=os.environ.get("STELLWERK_URL", ""),
        help="address of the operator's port, such as http://127.0.0.1:10259 (default: "
        "$STELLWERK_URL, else found by the lease: the port of `stellwerk up`, or one that "
        "kubectl forwards to the leader)",
    )
    group.add_argument(
        "--lease",
        default="",
        metavar="NAMESPACE/NAME",
        help=f"lease that the operator holds (default: {operator_namespace()}/stellwerk, or "
        "kube-system/kube-scheduler if Stellwerk replaces kube-scheduler; $STELLWERK_NAMESPACE "
        "names another namespace)",
    )
    group.add_argument(
        "--insecure-skip-tls-verify",
        action="store_true",
        help="send your token to whatever answers. Neither the certificate of --url is verified "
        "(the operator makes its own unless it is given one) nor, without --url, the key "
        "that the lease names",
    )


def operator_namespace() -> str:
    """The namespace that the operator runs in, unless an option says another."""
    return os.environ.get("STELLWERK_NAMESPACE") or "stellwerk"


def add_namespace_argument(parser: argparse.ArgumentParser) -> None:
    """`-n`, as kubectl has it."""
    parser.add_argument(
        "-n",
        "--namespace",
        help="namespace of the object (default: that of the kubeconfig's context)",
    )


def namespace_of(options: argparse.Namespace) -> str:
    """The namespace that `-n` names, or the one of the kubeconfig's context.

    Raises:
        ConfigurationError: the kubeconfig that is named cannot be used.
    """
    if options.namespace:
        return str(options.namespace)
    from stellwerk.client.credentials import context_namespace  # noqa: PLC0415 aiohttp

    return context_namespace(options.kubeconfig, options.context)


def split_name(options: argparse.Namespace, name: str) -> tuple[str, str]:
    """(namespace, name) of NAME or NAMESPACE/NAME.

    Raises:
        ConfigurationError: it is neither.
    """
    namespace, slash, last = name.rpartition("/")
    if not last or (slash and not namespace) or "/" in namespace:
        raise ConfigurationError(f"{name!r}: expected NAME or NAMESPACE/NAME")
    return (namespace, last) if slash else (namespace_of(options), last)


def port_address(options: argparse.Namespace) -> PortAddress:
    """The address that the arguments name.

    Raises:
        ConfigurationError: the lease has no namespace, or the URL no scheme.
    """
    if options.url and not options.url.startswith(("http://", "https://")):
        raise ConfigurationError(
            f"--url {options.url}: expected http://HOST:PORT or https://HOST:PORT"
        )
    try:
        has_port = urlsplit(options.url).port != 0
    except ValueError:  # the port is no number, or too large
        has_port = False
    if not has_port:
        raise ConfigurationError(
            f"--url {shortened(options.url)}: PORT is a whole number from 1 to {MAX_PORT}"
        )
    lease = options.lease or f"{operator_namespace()}/stellwerk"
    namespace, slash, name = lease.partition("/")
    if not slash:
        raise ConfigurationError(f"--lease {options.lease}: expected NAMESPACE/NAME")
    return PortAddress(
        options.kubeconfig,
        options.context,
        options.url,
        namespace,
        name,
        verify=not options.insecure_skip_tls_verify,
        or_in_place=not options.lease,
    )


FORMS: Final = ("table", "wide", "json", "yaml", "name")


def add_output_arguments(parser: argparse.ArgumentParser, default: str = "table") -> None:
    """`-o`, the form of the answer."""
    parser.add_argument(
        "-o",
        "--output",
        choices=FORMS,
        default=default,
        help="output format; docs/answers.json has the schemas of JSON (default: %(default)s)",
    )


def add_exit_code_argument(parser: argparse.ArgumentParser, when: str) -> None:
    """`--exit-code`; `when`: the answer that is a no."""
    parser.add_argument("--exit-code", action="store_true", help=f"exit with status 1 if {when}")
