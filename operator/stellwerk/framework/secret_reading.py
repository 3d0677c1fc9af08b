"""Secrets that profiles name, read for the addresses to which their content is to be sent.

`client.extender` reads those of extenders here, and plugins theirs, by `plugin_api`. Who may edit
profiles may not read Secrets, so it is not the profile that says where their content goes.
Invariant: nothing of a Secret is returned unless its owner has written each of the addresses into
its annotation.
"""

import base64
import binascii
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any
from urllib.parse import quote

from stellwerk_kube.destinations import HOSTS_ANNOTATION, hosts_refusal
from stellwerk_kube.errors import SecretRefusedError


async def read_secret(
    get_object: Callable[[str], Awaitable[Mapping[str, Any]]],
    namespace: str,
    name: str,
    urls: Iterable[str],
) -> dict[str, bytes]:
    """The content of a Secret, for requests to these URLs.

    Raises:
        SecretRefusedError: the Secret's owner does not allow one of them; says what to write.
        ApiError: it cannot be read.
        ValueError: a value is not base64.
    """
    path = f"/api/v1/namespaces/{quote(namespace, safe='')}/secrets/{quote(name, safe='')}"
    secret = await get_object(path)
    annotations = (secret.get("metadata") or {}).get("annotations") or {}
    hosts = annotations.get(HOSTS_ANNOTATION) or ""
    if reason := hosts_refusal(hosts, f"its annotation {HOSTS_ANNOTATION}", urls):
        message = f"the Secret {namespace}/{name} is not for this address: {reason}"
        raise SecretRefusedError(message)
    return {key: decoded(value) for key, value in (secret.get("data") or {}).items()}


def decoded(data: str | None) -> bytes:
    """The bytes of base64; none of none.

    Raises:
        ValueError: it is not base64.
    """
    try:
        return base64.b64decode(data or "", validate=True)
    except binascii.Error as error:
        raise ValueError(f"not base64: {error}") from error
