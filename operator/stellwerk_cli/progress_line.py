"""A line on the terminal that says what is waited for, once it takes longer than a second.

Commands that start or ask for something enter it. Invariant: it writes to a terminal alone, on
standard error, and leaves nothing behind.
"""

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, TextIO

from stellwerk_kube.untrusted_text import terminal

LINE_SECONDS: Final = 1.0
"""Time after which there is a line: shorter waits need none."""
BAR_SECONDS: Final = 3.0
"""Time after which the line has a bar with the seconds."""
_PERIOD_SECONDS: Final = 0.25
_WIDTH: Final = 20


@contextmanager
def waiting_for(what: str | Callable[[], str], output: TextIO | None = None) -> Iterator[None]:
    """Say what is waited for while inside, in a thread of its own; a function gives it anew."""
    stream = terminal(output or sys.stderr)
    if not stream.isatty():
        yield
        return
    over = threading.Event()
    thread = threading.Thread(
        target=_write, args=(what, stream, over), name="waiting line", daemon=True
    )
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _write(what: str | Callable[[], str], stream: TextIO, over: threading.Event) -> None:
    began, shown = time.monotonic(), False
    wait_seconds = LINE_SECONDS
    while not over.wait(wait_seconds):
        seconds = time.monotonic() - began
        text = what if isinstance(what, str) else what()
        stream.write(f"\r{line_after(text, seconds)}\x1b[K")
        stream.flush()
        shown, wait_seconds = True, _PERIOD_SECONDS
    if shown:
        stream.write("\r\x1b[K")
        stream.flush()


def line_after(what: str, seconds: float) -> str:
    """The line after so long; how much is left is not known, so that its bar goes round."""
    if seconds < BAR_SECONDS:
        return f"{what} …"
    at = int(seconds / _PERIOD_SECONDS) % _WIDTH
    bar = "".join("#" if (place - at) % _WIDTH < 5 else " " for place in range(_WIDTH))  # noqa: PLR2004 its length
    return f"{what} [{bar}] {seconds:.0f} s"
