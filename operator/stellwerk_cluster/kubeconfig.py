"""The kubeconfig that leads to an embedded cluster.

Written by `cluster.EmbeddedCluster` once its port answers. Invariant: the file appears complete or
not at all.
"""

from __future__ import annotations

import base64
import os
import tempfile
from pathlib import Path

import yaml

from stellwerk_cluster.identity.assembly import ADMIN

_NAME = "stellwerk"


def write_kubeconfig(path: Path, url: str, token: str, authority: bytes = b"") -> None:
    """Write a kubeconfig with one cluster, one user and one context, for its owner's eyes only.

    `authority` is the certificate, as PEM, that the server is checked by.

    Raises:
        OSError: the file cannot be written.
    """
    cluster = {"server": url}
    if authority:
        cluster["certificate-authority-data"] = base64.b64encode(authority).decode()
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": _NAME, "cluster": cluster}],
        "users": [{"name": ADMIN.name, "user": {"token": token}}],
        "contexts": [
            {
                "name": _NAME,
                "context": {"cluster": _NAME, "user": ADMIN.name, "namespace": "default"},
            }
        ],
        "current-context": _NAME,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            yaml.safe_dump(content, file, sort_keys=False)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
