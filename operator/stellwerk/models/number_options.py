"""Types of command-line options that are numbers: each has a range, which its refusals name.

The command line and the simulation's commands use them as types of arguments. Invariant: what is no
number of the range is an ArgumentTypeError of one line, whatever was written.
"""

import argparse
import math
from dataclasses import dataclass
from typing import Final, TypeVar

from typing_extensions import override

from stellwerk_kube.names import parse_duration
from stellwerk_kube.quantity import whole_units

_MAX_TEXT: Final = 40
"""Characters of a number that are read and shown. The largest range ends at 20 digits."""
MAX_PORT: Final = 65535
"""The last port of TCP."""
MAX_DURATION_SECONDS: Final = 10.0 * 365 * 24 * 3600
"""The longest duration of an option, 10 years: long enough to mean "never", and below the 292 years
at which timers overflow."""
MIN_SIZE_BYTES: Final = 1 << 16
"""The smallest size of an option: a smaller journal holds no entry of a large object."""
MAX_SIZE_BYTES: Final = 1 << 60
"""The largest size of an option, 1Ei. It is below 2⁶², where quantities saturate."""
_KIBIBYTE: Final = 1 << 10
_SIZE_UNITS: Final = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")


def shortened(text: str) -> str:
    """The text of a number as a message shows it: of a long one the beginning."""
    return text if len(text) <= _MAX_TEXT else f"{text[:_MAX_TEXT]}…"


_Number = TypeVar("_Number", int, float)


class NumberOption:
    """A type of an option whose value is a number; `range_text` says which numbers it takes."""

    @property
    def range_text(self) -> str:
        """The values that the option takes, as the end of the sentence "it is not …"."""
        raise NotImplementedError

    def __call__(self, text: str) -> float:
        """Read the option's value.

        Raises:
            ArgumentTypeError: it is no number of the range.
        """
        raise NotImplementedError

    def _refusal(self, text: str) -> argparse.ArgumentTypeError:
        return argparse.ArgumentTypeError(f"{shortened(text)!r} is not {self.range_text}")

    def _within(self, text: str, number: _Number, least: float, most: float) -> _Number:
        """Return the number; NaN is in no range."""
        if not least <= number <= most:
            raise self._refusal(text)
        return number


@dataclass(frozen=True, slots=True)
class WholeNumber(NumberOption):
    """A whole number, both ends included."""

    least: int
    most: int

    @property
    @override
    def range_text(self) -> str:
        return f"a whole number from {self.least} to {self.most}"

    @override
    def __call__(self, text: str) -> int:
        """Read the option's value.

        Raises:
            ArgumentTypeError: it is no whole number of the range.
        """
        digits = text.removeprefix("-")
        if not (digits.isascii() and digits.isdecimal() and len(digits) <= _MAX_TEXT):
            raise self._refusal(text)
        return self._within(text, int(text), self.least, self.most)


@dataclass(frozen=True, slots=True)
class PositiveNumber(NumberOption):
    """A number above 0; `percent`: as 20 or 20%, which is read as a share."""

    most: float
    example: str = ""
    percent: bool = False

    @property
    @override
    def range_text(self) -> str:
        kind = "percentage" if self.percent else "number"
        like = f", such as {self.example}" if self.example else ""
        return f"a {kind} above 0 and up to {self.most:g}{like}"

    @override
    def __call__(self, text: str) -> float:
        """Read the option's value.

        Raises:
            ArgumentTypeError: it is no number of the range.
        """
        try:
            number = float(text.removesuffix("%") if self.percent else text)
        except ValueError:
            raise self._refusal(text) from None
        self._within(text, number, math.ulp(0.0), self.most)
        return number / 100 if self.percent else number


@dataclass(frozen=True, slots=True)
class DurationSeconds(NumberOption):
    """Seconds, as a number or as Go writes them (90s, 1m30s); `or_zero`: 0 is one, too."""

    or_zero: bool = False
    most: float = MAX_DURATION_SECONDS

    @property
    @override
    def range_text(self) -> str:
        least = "from 0" if self.or_zero else "longer than 0 and"
        return f"a duration like 90s or 5m, {least} up to {self.most / 3600:g}h"

    @override
    def __call__(self, text: str) -> float:
        """Read the option's value.

        Raises:
            ArgumentTypeError: it is no duration of the range.
        """
        try:
            value = float(text) if text[-1:].isdecimal() else parse_duration(text)
        except ValueError:
            raise self._refusal(text) from None
        return self._within(text, value, 0.0 if self.or_zero else math.ulp(0.0), self.most)


@dataclass(frozen=True, slots=True)
class Size(NumberOption):
    """Bytes, as a Kubernetes quantity: 256Mi."""

    least: int = MIN_SIZE_BYTES
    most: int = MAX_SIZE_BYTES

    @property
    @override
    def range_text(self) -> str:
        return f"a size like 256Mi, from {_in_units(self.least)} to {_in_units(self.most)}"

    @override
    def __call__(self, text: str) -> int:
        """Read the option's value.

        Raises:
            ArgumentTypeError: it is no size of the range.
        """
        try:
            value = whole_units(text)
        except ValueError:
            raise self._refusal(text) from None
        return self._within(text, value, self.least, self.most)


@dataclass(frozen=True, slots=True)
class PortNumber(NumberOption):
    """A port of this machine; 0 stands for a free one."""

    @property
    @override
    def range_text(self) -> str:
        return f"a port from 0 to {MAX_PORT}"

    @override
    def __call__(self, text: str) -> int:
        """Read the option's value.

        Raises:
            ArgumentTypeError: it is no port.
        """
        if not (text.isascii() and text.isdecimal() and len(text) <= len(str(MAX_PORT))):
            raise self._refusal(text)
        return self._within(text, int(text), 0, MAX_PORT)


def _in_units(size_bytes: int) -> str:
    unit = 0
    while size_bytes >= _KIBIBYTE:
        size_bytes, unit = size_bytes // _KIBIBYTE, unit + 1
    return f"{size_bytes}{_SIZE_UNITS[unit]}"
