"""The client behind `stellwerk cluster fail` and its like: it patches one annotation.

These commands import it late: what it needs of TLS and HTTP would slow the start of every command.
Invariant: the kubeconfig that the running cluster wrote is all that is known of it.
"""

from __future__ import annotations

import base64
import json
import ssl
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Any, Final

import yaml

from stellwerk_cluster.identity.assembly import ADMIN
from stellwerk_cluster.kubeconfig import CONTEXT
from stellwerk_kube.errors import ConfigurationError, SchedulerError, UnreachableError
from stellwerk_kube.yaml_file import parse_yaml, read_small_file

if TYPE_CHECKING:
    from pathlib import Path

_TIMEOUT_SECONDS: Final = 10.0
"""Longest wait for an answer of the cluster, which listens on this machine."""


def annotate(kubeconfig: Path, path: str, key: str, value: str | None) -> None:
    """Patch one annotation.

    Raises:
        ConfigurationError: the kubeconfig cannot be read.
        UnreachableError: no cluster answers where it leads.
        SchedulerError: the cluster refuses.
    """
    url, token, context = _access(kubeconfig)
    body = json.dumps({"metadata": {"annotations": {key: value}}}).encode()
    headers = {
        "Authorization": f"Bearer {token}",
        "Content-Type": "application/merge-patch+json",
    }
    request = urllib.request.Request(  # noqa: S310  (the scheme is checked)
        f"{url}{path}", data=body, headers=headers, method="PATCH"
    )
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT_SECONDS, context=context):  # noqa: S310
            return
    except urllib.error.HTTPError as error:
        message = _message(error)
        raise SchedulerError(f"cannot change {path}: {message}") from error
    except OSError as error:
        raise UnreachableError(f"{kubeconfig}: no cluster answers at {url}: {error}") from error


def _message(error: urllib.error.HTTPError) -> str:
    try:
        return str(json.loads(error.read()).get("message", error.reason))
    except ValueError:
        return str(error.reason)


def _access(kubeconfig: Path) -> tuple[str, str, ssl.SSLContext | None]:
    """URL, token and trust of what `stellwerk cluster` wrote into a kubeconfig, by its names."""
    try:
        content: Any
        [content] = parse_yaml(read_small_file(kubeconfig))
        [cluster] = (each["cluster"] for each in content["clusters"] if each["name"] == CONTEXT)
        [user] = (each["user"] for each in content["users"] if each["name"] == ADMIN.name)
        url, token = cluster["server"], user["token"]
    except OSError as error:
        text = (
            f"{kubeconfig}: {error.strerror}; is the cluster running? --kubeconfig names its file"
        )
        raise ConfigurationError(text) from error
    except (yaml.YAMLError, LookupError, TypeError, ValueError) as error:
        raise ConfigurationError(f"{kubeconfig}: not a kubeconfig of this command") from error
    if not str(url).startswith(("http://", "https://")):
        raise ConfigurationError(f"{kubeconfig}: {url} is not the URL of a cluster")
    authority = cluster.get("certificate-authority-data")
    if not authority:
        return url, token, None
    pem = base64.b64decode(authority).decode("ascii")
    return url, token, ssl.create_default_context(cadata=pem)
