"""Debian's Prometheus as a process beside a running operator, asked over its own API.

Invariant: it keeps its data in the directory it is given, and is ended when the context is.
"""

import asyncio
import json
import urllib.parse
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import yaml

from tests.support.processes import fetch
from tests.support.supervised_operator import free_port

JOB = "stellwerk"
_END_SECONDS = 20.0


class Prometheus:
    """One server."""

    def __init__(self, url: str) -> None:
        self._url = url

    async def query(self, expression: str) -> list[dict[str, Any]]:
        """The samples of an expression now."""
        text = urllib.parse.urlencode({"query": expression})
        answer = json.loads(await fetch(f"{self._url}/api/v1/query?{text}"))
        samples: list[dict[str, Any]] = answer["data"]["result"]
        return samples

    async def down(self) -> dict[str, str]:
        """What was wrong with the last scrape of each page that could not be read."""
        answer = json.loads(await fetch(f"{self._url}/api/v1/targets"))
        return {
            target["scrapeUrl"]: target["lastError"]
            for target in answer["data"]["activeTargets"]
            if target["health"] != "up"
        }

    async def ready(self) -> bool:
        """Whether it answers, and has read every page."""
        try:
            return await self.down() == {}
        except OSError:
            return False


@asynccontextmanager
async def scraping(
    program: str, directory: Path, address: str, token: str, rules: Path
) -> AsyncIterator[Prometheus]:
    """A server that reads the three pages of an operator's port over TLS, with a token."""
    _write_settings(directory, address, token, rules)
    listen = f"127.0.0.1:{free_port()}"
    arguments = (
        f"--config.file={directory / 'prometheus.yaml'}",
        f"--storage.tsdb.path={directory / 'data'}",
        f"--web.listen-address={listen}",
    )
    with (directory / "log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(program, *arguments, stdout=log, stderr=log)
    try:
        yield Prometheus(f"http://{listen}")
    finally:
        if process.returncode is None:
            process.terminate()
        await asyncio.wait_for(process.wait(), _END_SECONDS)


def _write_settings(directory: Path, address: str, token: str, rules: Path) -> None:
    directory.mkdir()
    (directory / "token").write_text(token)
    (directory / "prometheus.yaml").write_text(yaml.safe_dump(_settings(directory, address, rules)))


def _settings(directory: Path, address: str, rules: Path) -> dict[str, Any]:
    def page(job: str, path: str) -> dict[str, Any]:
        return {
            "job_name": job,
            "scheme": "https",
            "metrics_path": path,
            "authorization": {"credentials_file": str(directory / "token")},
            "tls_config": {"insecure_skip_verify": True},
            "static_configs": [{"targets": [address]}],
        }

    return {
        "global": {"scrape_interval": "250ms", "evaluation_interval": "250ms"},
        "rule_files": [str(rules)],
        "scrape_configs": [
            page(JOB, "/metrics"),
            page("resources", "/metrics/resources"),
            page("slis", "/metrics/slis"),
        ],
    }
