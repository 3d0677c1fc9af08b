"""YAML files of users, read whole.

Commands and the embedded cluster read manifests, stages and tables of faults with it. Invariant: a
file that cannot be read is one line that names it.
"""

from pathlib import Path
from typing import Final, TextIO

import yaml

from stellwerk.errors import ConfigurationError

DEEPEST: Final = 10_000
"""The API server's limit on what stands inside of each other, in JSON and YAML alike."""
DEEPEST_OF_A_FILE: Final = 200
"""Of users' own files: PyYAML takes a second for a thousand levels."""
_OPENERS: Final = b"[{-:?"
"""Each level of nesting has one of these at least."""


def read_yaml(file: Path) -> list[object]:
    """The documents of a file; JSON is YAML, too.

    Raises:
        ConfigurationError: it cannot be opened, or is not YAML.
    """
    try:
        with file.open(encoding="utf-8") as opened:
            return parse_yaml(str(file), opened)
    except OSError as error:
        raise ConfigurationError(f"cannot read {file}: {error.strerror}") from error


def parse_yaml(name: str, text: TextIO) -> list[object]:
    """The documents of a text that is read to its end; `name` begins the message of an error.

    Raises:
        ConfigurationError: it is not YAML.
        OSError: it cannot be read.
    """
    try:
        content = text.read()
        check_depth(content.encode("utf-8", "surrogatepass"), DEEPEST_OF_A_FILE)
        return list(yaml.safe_load_all(content))
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError, ValueError) as error:
        raise ConfigurationError(f"{name}: not YAML: {' '.join(str(error).split())}") from error


def check_depth(content: bytes, deepest: int = DEEPEST) -> None:
    """Refuse a text that nests too deeply: libyaml's composer would end the process.

    The composer calls itself once a level, on the stack of C; the parser beneath it does not.

    Raises:
        yaml.YAMLError: it nests deeper than `deepest`, or is no YAML.
    """
    if sum(content.count(opener) for opener in _OPENERS) <= deepest:
        return
    depth = 0
    for event in yaml.parse(content, getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > deepest:
            problem = f"exceeded max depth of {deepest}"
            raise yaml.composer.ComposerError(None, None, problem, event.start_mark)  # type: ignore[arg-type]  # libyaml has marks of its own


def read_one_yaml(file: Path) -> object:
    """The only document of a file; None where it is empty.

    Raises:
        ConfigurationError: as `read_yaml`; there are several.
    """
    documents = read_yaml(file)
    if len(documents) > 1:
        raise ConfigurationError(f"{file}: {len(documents)} documents, one is expected")
    return documents[0] if documents else None
