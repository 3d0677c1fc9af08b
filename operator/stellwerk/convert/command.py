"""`stellwerk convert FILE`: manifests to standard output, remarks to standard error.

Called by the command line. Invariant: standard output is empty or complete; what is on it applies.
"""

import sys
from pathlib import Path
from typing import TextIO

from stellwerk.convert.conversion import Conversion, convert_text, render
from stellwerk.errors import ConfigurationError, ProfileError


def convert_command(path: str, output: TextIO | None = None, remarks: TextIO | None = None) -> int:
    """Convert a file ("-": standard input); returns the exit status.

    Raises:
        ConfigurationError: the file cannot be read, or holds something else; names the field.
    """
    output, remarks = output or sys.stdout, remarks or sys.stderr
    try:
        conversion = _convert(sys.stdin.read() if path == "-" else _text(path), path)
    except (ConfigurationError, ProfileError) as error:
        raise ConfigurationError(f"{path}: {error}") from error
    for warning in conversion.warnings:
        remarks.write(f"{path}: {warning}\n")
    remarks.flush()
    output.write(render(conversion))
    output.flush()
    return 0


def _convert(text: str, path: str) -> Conversion:
    """Convert with the Policy file that an old configuration names, where it can be read here."""
    directory = Path() if path == "-" else Path(path).parent
    try:
        return convert_text(text, lambda name: (directory / name).read_text())
    except (OSError, UnicodeDecodeError):
        # It lies on some control plane: the conversion says what is missing.
        return convert_text(text)


def _text(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError as error:
        raise ConfigurationError(f"cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"not text: {error}") from error
