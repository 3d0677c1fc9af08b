"""The examples of groups for each release of Kubernetes, made from those of docs/examples.

`python -m tests.support.gang_examples` writes them. Invariant: the files differ from their source
in what the version of PodGroup asks for, and in the comment that names the release.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.support.repository import ROOT

EXAMPLES: Final = ROOT / "docs" / "examples"
WRITTEN: Final = "v1beta1"
"""The version of the examples that lie in docs/examples: that of 1.37."""
VERSIONS: Final = {"1.36": "v1alpha2", "1.38": "v1"}
"""The version of PodGroup that each other release serves."""
_API: Final = "apiVersion: scheduling.k8s.io/"


def directory(release: str) -> Path:
    """The examples for a release."""
    return EXAMPLES if release not in VERSIONS else EXAMPLES / f"kubernetes-{release}"


def examples(release: str) -> Iterator[tuple[Path, str]]:
    """The path and the text of each example for a release."""
    version = VERSIONS[release]
    for source in sorted(EXAMPLES.glob("gang-*.yaml")):
        text = source.read_text()
        if f"{_API}{WRITTEN}" not in text:
            continue
        text = text.replace(f"{_API}{WRITTEN}", f"{_API}{version}")
        if version == "v1alpha2":
            # A text there, and an object with one field from v1alpha3 on.
            text = re.sub(r"disruptionMode:\n +all: \{\}", "disruptionMode: PodGroup", text)
        head = f"# For Kubernetes {release}; made from ../{source.name} by `make gang-examples`.\n"
        yield directory(release) / source.name, head + text


if __name__ == "__main__":
    for each in VERSIONS:
        directory(each).mkdir(exist_ok=True)
        for path, written in examples(each):
            path.write_text(written)
