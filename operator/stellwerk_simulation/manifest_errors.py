"""The errors of manifests, each as one line that names file and object.

Everything that is made of manifests is made by `made`. Invariant: an object that cannot be used
ends in a ConfigurationError and in nothing else.
"""

from collections.abc import Callable
from typing import TypeVar

from stellwerk_kube.errors import ConfigurationError
from stellwerk_kube.json_values import JsonObject

Made = TypeVar("Made")


def made(make: Callable[[JsonObject], Made], obj: JsonObject, source: str) -> Made:
    """The result of parsing an object.

    Raises:
        ConfigurationError: the object is wrong; names it and the source.
    """
    try:
        return make(obj)
    except ConfigurationError as error:
        raise ConfigurationError(f"{source}, {_name(obj)}: {error}") from error
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ConfigurationError(f"{source}, {_name(obj)}: {_reason(error)}") from error


def some(found: list[Made], source: str, kind: str) -> list[Made]:
    """The objects that were found, at least one.

    Raises:
        ConfigurationError: there is none; names what there is none of, and the source.
    """
    if not found:
        raise ConfigurationError(f"{source}: there is no {kind}")
    return found


def _reason(error: Exception) -> str:
    return f"there is no field {error}" if isinstance(error, KeyError) else str(error)


def _name(obj: JsonObject) -> str:
    metadata = obj.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    return f"{obj.get('kind', 'object')} {name or 'without a name'}"
