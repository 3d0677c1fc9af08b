"""The fingerprint of a set of pods, by which an exporter says which pods it has seen on its node.

XXH64 of the pods' hashes in order, where a pod's hash is that of its name, seeded with that of its
namespace (version 001 of the format that exporters write). The hash is of the package xxhash, of
the extra `plugins`.
"""

import importlib.util
from collections.abc import Iterable
from typing import Final

_PREFIX: Final = "pfp0v001"


def require_hashes() -> None:
    """Make sure that fingerprints can be computed.

    Raises:
        ModuleNotFoundError: the package xxhash is missing.
    """
    if importlib.util.find_spec("xxhash") is None:
        message = (
            "cacheResyncPeriodSeconds compares fingerprints of pods with the package xxhash, which "
            "is missing: stellwerk[plugins]"
        )
        raise ModuleNotFoundError(message)


def fingerprint(pods: Iterable[tuple[str, str]]) -> str:
    """The fingerprint of pods given by namespace and name, in any order."""
    from xxhash import xxh64_hexdigest, xxh64_intdigest  # noqa: PLC0415 of an extra

    hashes = sorted(
        xxh64_intdigest(name.encode(), xxh64_intdigest(namespace.encode()))
        for namespace, name in pods
    )
    return f"{_PREFIX}{xxh64_hexdigest(b''.join(each.to_bytes(8, 'little') for each in hashes))}"
