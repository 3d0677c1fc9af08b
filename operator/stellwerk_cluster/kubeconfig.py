"""The kubeconfig that leads to an embedded cluster.

Written by `cluster.EmbeddedCluster` once its port answers. Invariant: the file appears complete or
not at all.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import yaml

from stellwerk_cluster.apiserver.reviews import USER

_NAME = "stellwerk"


def write_kubeconfig(path: Path, url: str) -> None:
    """Write a kubeconfig with one cluster, one user and one context.

    Raises:
        OSError: the file cannot be written.
    """
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": _NAME, "cluster": {"server": url}}],
        # The server asks for no credentials; the token keeps clients from prompting for some.
        "users": [{"name": USER, "user": {"token": _NAME}}],
        "contexts": [
            {"name": _NAME, "context": {"cluster": _NAME, "user": USER, "namespace": "default"}}
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
