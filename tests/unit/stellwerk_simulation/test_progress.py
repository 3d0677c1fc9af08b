"""The progress bar: on a terminal alone, with rate and time left."""

import io

from typing_extensions import override

from stellwerk.clock import VirtualClock
from stellwerk_simulation.progress import Progress


class Terminal(io.StringIO):
    @override
    def isatty(self) -> bool:
        return True


def test_the_line_has_share_rate_and_time_left() -> None:
    clock, terminal = VirtualClock(), Terminal()
    progress = Progress(200, terminal, clock)
    assert progress.line(0).endswith("0 pods/s  …")
    clock.advance(5)
    progress.show(40, 10)
    assert "[#######                       ]  25 %  10 pods/s  15 s left" in terminal.getvalue()
    progress.end()
    assert terminal.getvalue().endswith("\r\x1b[K")


def test_nothing_is_written_to_a_file() -> None:
    output = io.StringIO()
    progress = Progress(200, output, VirtualClock())
    progress.show(10)
    progress.end()
    assert output.getvalue() == ""
