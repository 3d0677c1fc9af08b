"""Imports kopf without the client library whose models it would know.

A module that uses kopf imports this one before it.
"""

import sys

_MODELS = "kubernetes_asyncio"


def _import_kopf() -> None:
    """Import kopf without the client library whose model objects it would know, were it given any.

    kopf is given dictionaries only here, and the library is large. It stays there for
    `client.access`.
    """
    if _MODELS in sys.modules:
        return
    sys.modules[_MODELS] = None  # type: ignore[assignment] # "not installed", as import reads it
    try:
        import kopf  # noqa: F401, PLC0415 the point of it
    finally:
        del sys.modules[_MODELS]


_import_kopf()
