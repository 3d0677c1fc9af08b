"""Secrets that profiles name: who reads one gets nothing of it for another address."""

import asyncio
import base64
from typing import Any

import pytest

from stellwerk.framework.secret_reading import read_secret
from stellwerk_kube.destinations import HOSTS_ANNOTATION
from stellwerk_kube.errors import SecretRefusedError


def content(url: str, **metadata: Any) -> dict[str, bytes]:
    async def get_object(path: str) -> dict[str, Any]:
        assert path == "/api/v1/namespaces/tools/secrets/gpu"
        return {"metadata": metadata, "data": {"token": base64.b64encode(b"hunter2").decode()}}

    return asyncio.run(read_secret(get_object, "tools", "gpu", [url]))


def test_a_secret_is_read_for_the_addresses_that_its_owner_wrote() -> None:
    annotations = {HOSTS_ANNOTATION: "https://a.example:8443"}
    assert content("https://a.example:8443/x", annotations=annotations) == {"token": b"hunter2"}


@pytest.mark.parametrize("metadata", [{}, {"annotations": None}, {"annotations": {"x": "https:"}}])
def test_a_secret_without_the_annotation_goes_nowhere(metadata: dict[str, Any]) -> None:
    with pytest.raises(SecretRefusedError, match="the Secret tools/gpu is not for") as refused:
        content("https://a.example", **metadata)
    assert "hunter2" not in str(refused.value)
