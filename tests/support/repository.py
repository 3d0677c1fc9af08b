"""Where the repository lies, and the recordings that may lie beside it.

A clone alone runs every test whose data is committed; recordings of real components are read where
they lie, and the tests that need them skip without.
"""

from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
RECORDINGS: Final = ROOT.parent / "shared"
TRANSCRIPTS: Final = RECORDINGS / "transcripts"
"""What a real API server, kubectl and kube-scheduler said on the wire."""
