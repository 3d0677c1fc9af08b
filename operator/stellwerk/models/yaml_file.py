"""YAML files of users, read whole.

Commands and the embedded cluster read manifests, stages and tables of faults with it. Invariant: a
file that cannot be read is one line that names it.
"""

from pathlib import Path

import yaml

from stellwerk.errors import ConfigurationError


def read_yaml(file: Path) -> list[object]:
    """The documents of a file; JSON is YAML, too.

    Raises:
        ConfigurationError: it cannot be opened, or is not YAML.
    """
    try:
        return list(yaml.safe_load_all(file.read_text(encoding="utf-8")))
    except OSError as error:
        raise ConfigurationError(f"cannot read {file}: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError, ValueError) as error:
        raise ConfigurationError(f"{file}: not YAML: {' '.join(str(error).split())}") from error


def read_one_yaml(file: Path) -> object:
    """The only document of a file; None where it is empty.

    Raises:
        ConfigurationError: as `read_yaml`; there are several.
    """
    documents = read_yaml(file)
    if len(documents) > 1:
        raise ConfigurationError(f"{file}: {len(documents)} documents, one is expected")
    return documents[0] if documents else None
