"""A cluster that does not answer is the end of an examination, with the reason that is known."""

import base64
from datetime import UTC, datetime, timedelta
from pathlib import Path

import orjson
import pytest

from stellwerk.serving.self_signed import self_signed
from stellwerk_cli.commands.diagnosis.examination import examine
from stellwerk_cli.commands.port_arguments import PortAddress
from stellwerk_kube.errors import UnreachableError
from tests.support.fake_api import kubeconfig


async def test_an_expired_certificate_is_named_where_the_server_does_not_answer(
    tmp_path: Path,
) -> None:
    made = base64.b64encode(self_signed("host", datetime.now(UTC) - timedelta(days=400)))
    user = {"client-certificate-data": made.decode(), "client-key-data": made.decode()}
    file = tmp_path / "kubeconfig"
    file.write_bytes(orjson.dumps(kubeconfig("https://127.0.0.1:9", user)))
    address = PortAddress(kubeconfig=str(file))
    with pytest.raises(UnreachableError, match="; your client certificate expired on 20"):
        await examine(address, "stellwerk", for_bundle=False)
