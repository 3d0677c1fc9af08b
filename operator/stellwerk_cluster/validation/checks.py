"""The checks of single values that many kinds share: numbers, names, addresses, paths.

Called by the validation of every kind. Invariant: each function yields what is wrong with one
value, in the API server's words, and nothing if it is right.
"""

from __future__ import annotations

import ipaddress
import re
from typing import TYPE_CHECKING, Final

from stellwerk_cluster.apimachinery.failures import (
    FieldError,
    bad_value,
    duplicate,
    required,
    unsupported,
)
from stellwerk_cluster.apimachinery.names import (
    label_errors,
    path_segment_errors,
    qualified_name_errors,
    subdomain_errors,
)
from stellwerk_kube.quantity import milli_units

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from stellwerk_kube.json_values import JsonValue

NEGATIVE: Final = "must be greater than or equal to 0"
IMMUTABLE: Final = "field is immutable"
MORE_THAN_ONE_SOURCE: Final = "may not specify more than 1 volume type"
PROTOCOLS: Final = ("SCTP", "TCP", "UDP")
MAX_INT32: Final = 2**31 - 1
MAX_PORT: Final = 65_535
"""The highest port of TCP and UDP."""
_MAX_PORT_NAME_CHARACTERS: Final = 15
"""Characters of a port's name, which is a service name of IANA."""
_MAX_FILE_MODE: Final = 0o777
"""The highest mode of a file in a volume: 0777."""
_CONFIG_KEY: Final = "[-._a-zA-Z0-9]+"
_MAX_KEY_CHARACTERS: Final = 253
"""Characters of a key of a ConfigMap or Secret (`DNS1123SubdomainMaxLength`)."""
_UNDERSCORE_SUBDOMAIN: Final = (
    "[a-z0-9_]([-_a-z0-9]*[a-z0-9_])?(\\.[a-z0-9_]([-_a-z0-9]*[a-z0-9_])?)*"
)
_PERCENT: Final = "[0-9]+%"


def in_range(lowest: int, highest: int) -> str:
    """The words for a number outside a range."""
    return f"must be between {lowest} and {highest}, inclusive"


def subdomain(value: str, field: str) -> Iterator[FieldError]:
    """A lowercase RFC 1123 subdomain."""
    return (bad_value(field, value, error) for error in subdomain_errors(value))


def label(value: str, field: str) -> Iterator[FieldError]:
    """A lowercase RFC 1123 label."""
    return (bad_value(field, value, error) for error in label_errors(value))


def qualified_name(value: str, field: str) -> Iterator[FieldError]:
    """A qualified name, such as the key of a label."""
    return (bad_value(field, value, error) for error in qualified_name_errors(value))


def path_segment(value: str, field: str) -> Iterator[FieldError]:
    """A name that can be one segment of a path."""
    return (bad_value(field, value, error) for error in path_segment_errors(value))


def search_domain(value: str, field: str) -> Iterator[FieldError]:
    """A subdomain in which underscores are allowed."""
    if len(value) > _MAX_KEY_CHARACTERS:
        yield bad_value(field, value, f"must be no more than {_MAX_KEY_CHARACTERS} characters")
    if not re.fullmatch(_UNDERSCORE_SUBDOMAIN, value):
        yield bad_value(
            field,
            value,
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, "
            "'-' or '.', and must start and end with an alphanumeric character (e.g. "
            f"'example.com', regex used for validation is '{_UNDERSCORE_SUBDOMAIN}')",
        )


def one_of(value: str, allowed: Sequence[str], field: str) -> Iterator[FieldError]:
    """A value of an enumeration; it must be there."""
    if not value:
        yield required(field)
    elif value not in allowed:
        yield unsupported(field, value, allowed)


def not_negative(value: int, field: str) -> Iterator[FieldError]:
    """A number of at least 0."""
    if value < 0:
        yield bad_value(field, value, NEGATIVE)


def port_number(value: int, field: str) -> Iterator[FieldError]:
    """A port."""
    if not 1 <= value <= MAX_PORT:
        yield bad_value(field, value, in_range(1, MAX_PORT))


def port_name_errors(name: str) -> list[str]:
    """Errors of a text as the name of a port (an IANA service name)."""
    errors = []
    if len(name) > _MAX_PORT_NAME_CHARACTERS:
        errors.append(f"must be no more than {_MAX_PORT_NAME_CHARACTERS} characters")
    if not re.fullmatch("[-a-z0-9]+", name):
        errors.append("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)")
    if not re.search("[a-z]", name):
        errors.append("must contain at least one letter (a-z)")
    if "--" in name:
        errors.append("must not contain consecutive hyphens")
    if name.startswith("-") or name.endswith("-"):
        errors.append("must not begin or end with a hyphen")
    return errors


def port_number_or_name(value: JsonValue, field: str) -> Iterator[FieldError]:
    """A port, by number or by name."""
    if isinstance(value, str):
        for error in port_name_errors(value):
            yield bad_value(field, value, error)
    else:
        yield from port_number(value, field)


def ip_address(value: str, field: str) -> Iterator[FieldError]:
    """An IP address of either family."""
    if parsed_ip(value) is None:
        text = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"
        yield bad_value(field, value, text)


def parsed_ip(value: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """The address that a text names; numbers may have leading zeros, as in the API."""
    sloppy = re.sub(r"(?<![0-9a-fA-F:])0+(?=\d)", "", value) if ":" not in value else value
    try:
        return ipaddress.ip_address(sloppy) if "%" not in sloppy else None
    except ValueError:
        return None


def cidr(value: str, field: str) -> Iterator[FieldError]:
    """A block of addresses."""
    if parsed_cidr(value) is None:
        text = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"
        yield bad_value(field, value, text)


def parsed_cidr(value: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    """The block that a text names."""
    address, slash, length = value.partition("/")
    known = parsed_ip(address)
    if known is None or not slash or not re.fullmatch("[0-9]{1,3}", length):
        return None
    try:
        return ipaddress.ip_network(f"{known}/{int(length)}", strict=False)
    except ValueError:
        return None


def one_of_each_family(blocks: Sequence[str], read: Callable[[str], JsonValue]) -> bool:
    """Whether a list has at most one address or block of each family."""
    versions = [found.version for found in map(read, blocks) if found is not None]
    return len(versions) <= len(set(versions))


def file_mode(holder: JsonValue, key: str, field: str) -> Iterator[FieldError]:
    """The permissions of a file, if they are given."""
    mode = holder.get(key)
    if mode is not None and not 0 <= mode <= _MAX_FILE_MODE:
        text = "must be a number between 0 and 0777 (octal), both inclusive"
        yield bad_value(f"{field}.{key}", mode, text)


def no_backsteps(path: str, field: str) -> Iterator[FieldError]:
    """A path that does not lead upwards."""
    if ".." in path.split("/"):
        yield bad_value(field, path, "must not contain '..'")


def descending_path(path: str, field: str) -> Iterator[FieldError]:
    """A relative path that does not lead upwards."""
    if path.startswith("/"):
        yield bad_value(field, path, "must be a relative path")
    yield from no_backsteps(path, field)


def own_path(path: str, field: str) -> Iterator[FieldError]:
    """A relative path that begins with no name of the kubelet's."""
    yield from descending_path(path, field)
    if path.startswith("..") and not path.startswith("../"):
        yield bad_value(field, path, "must not start with '..'")


def config_key(key: str, field: str) -> Iterator[FieldError]:
    """A key of a config map or secret."""
    if len(key) > _MAX_KEY_CHARACTERS:
        yield bad_value(field, key, f"must be no more than {_MAX_KEY_CHARACTERS} characters")
    if not re.fullmatch(_CONFIG_KEY, key):
        yield bad_value(
            field,
            key,
            "a valid config key must consist of alphanumeric characters, '-', '_' or "
            "'.' (e.g. 'key.name',  "
            f"or 'KEY_NAME',  or 'key-name', regex used for validation is '{_CONFIG_KEY}')",
        )
    if key in (".", ".."):
        yield bad_value(field, key, f"must not be '{key}'")
    elif key.startswith(".."):
        yield bad_value(field, key, "must not start with '..'")


def environment_name(name: str, field: str) -> Iterator[FieldError]:
    """The name of an environment variable."""
    if not all(" " <= letter <= "~" and letter != "=" for letter in name):
        text = (
            "a valid environment variable name must consist only of printable ASCII characters "
            "other than '='"
        )
        yield bad_value(field, name, text)


def user_id(holder: JsonValue, key: str, field: str) -> Iterator[FieldError]:
    """The number of a user or group, if it is given."""
    value = holder.get(key)
    if value is not None and not 0 <= value <= MAX_INT32:
        yield bad_value(f"{field}.{key}", value, in_range(0, MAX_INT32))


def quantity_not_negative(amount: JsonValue, field: str) -> Iterator[FieldError]:
    """An amount of at least 0."""
    # Amounts are in canonical form here: only one below zero begins with a minus.
    if str(amount).startswith("-"):
        yield bad_value(field, str(amount), NEGATIVE)


def is_whole(amount: JsonValue) -> bool:
    """Whether an amount has no fraction of a unit."""
    return milli_units(amount) % 1000 == 0


def immutable(new: JsonValue, old: JsonValue, field: str) -> Iterator[FieldError]:
    """A value that may not change."""
    if new != old:
        yield bad_value(field, new, IMMUTABLE)


def unique(values: Iterable[JsonValue], field_of: Callable[[int], str]) -> Iterator[FieldError]:
    """Values that may not come twice; `field_of` names the field of a position."""
    seen = set()
    for position, value in enumerate(values):
        if value in seen:
            yield duplicate(field_of(position), value)
        seen.add(value)


def int_or_percent_errors(value: JsonValue, field: str) -> list[FieldError]:
    """Errors of a count or percentage."""
    if isinstance(value, str):
        if re.fullmatch(_PERCENT, value):
            return []
        text = (
            "a valid percent string must be a numeric string followed by an ending '%' "
            f"(e.g. '1%',  or '93%', regex used for validation is '{_PERCENT}')"
        )
        return [bad_value(field, value, text)]
    return [bad_value(field, value, "must be greater than or equal to 0")] if value < 0 else []


def too_many(field: str, given: int, most: int) -> FieldError:
    """A list with more items than it may have."""
    message = f"Too many: {given}: must have at most {most} item{'s' if most != 1 else ''}"
    return FieldError(field, "FieldValueTooMany", message)
