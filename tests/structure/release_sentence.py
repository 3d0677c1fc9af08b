"""The sentence on the release that decisions follow, the same on every page that speaks of it.

`python -m tests.structure.release_sentence` writes it between its markers; the numbers come from
stellwerk_kube/compatibility.py. `test_documents.py` compares the pages with it.
"""

import re
import textwrap
from typing import Final

from stellwerk_kube.compatibility import NEWEST_RELEASED, RELEASES
from tests.support.repository import ROOT

SENTENCE: Final = (
    "Decisions follow the release of Kubernetes that the profile names (`compatibility`), or else "
    f"the release of the API server, from {RELEASES[0]} to {RELEASES[-1]}. Without a cluster they "
    f"follow {NEWEST_RELEASED}."
)
PAGES: Final = (
    "README.md",
    "docs/comparison.md",
    "docs/compatibility.md",
    "docs/devices.md",
    "docs/differences.md",
    "docs/gangs.md",
    "docs/index.md",
    "docs/profiles.md",
)
_MARKED: Final = re.compile(r"<!-- release -->\n.*?\n<!-- end of release -->", re.DOTALL)


def written(text: str) -> str:
    """The page with the sentence between its markers, which it has once.

    Raises:
        ValueError: it has no markers, or has them more than once.
    """
    made = f"<!-- release -->\n{textwrap.fill(SENTENCE, 120)}\n<!-- end of release -->"
    text, count = _MARKED.subn(lambda _: made, text)
    if count != 1:
        raise ValueError(f"{count} pairs of markers")
    return text


if __name__ == "__main__":
    for page in PAGES:
        path = ROOT / page
        path.write_text(written(path.read_text(encoding="utf-8")), encoding="utf-8")
