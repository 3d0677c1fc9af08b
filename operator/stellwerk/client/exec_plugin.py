"""The credential plugin of a kubeconfig's user: a program that prints an ExecCredential.

`access` runs it whenever credentials are read. Invariant: it ends within its time-out, or is killed
with everything that it has started; what it answers is a credential or a ConfigurationError.
"""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import orjson

from stellwerk_kube.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

PLUGIN_SECONDS: Final = 60.0
"""Longest run of a plugin; some ask a person to log in on another device."""
_MAX_SHOWN_OUTPUT_CHARACTERS: Final = 500
"""Characters that an error shows of what a plugin has written."""


@dataclass(frozen=True, slots=True)
class ExecCredential:
    """The answer of a plugin."""

    token: str | None
    certificate: bytes | None
    key: bytes | None
    expires_at: datetime | None
    """The end of its validity; None: it is good until it is refused, as for kubectl."""


class ExecPlugin:
    """The `exec` section of a user."""

    def __init__(
        self,
        fields: Mapping[str, Any],
        cluster: Mapping[str, Any],
        directory: Path,
        limit_seconds: float = PLUGIN_SECONDS,
    ) -> None:
        """Take what is to be run.

        Args:
            fields: the section.
            cluster: the cluster's entry, told to plugins that ask for it.
            directory: where the kubeconfig lies; a relative path of the command begins there.
            limit_seconds: how long a run may take.
        """
        self._fields = fields
        self._cluster = cluster
        self._directory = directory
        self._limit_seconds = limit_seconds

    @property
    def name(self) -> str:
        """The command as it is written."""
        return str(self._fields.get("command"))

    async def run(self) -> ExecCredential:
        """Run the program.

        Raises:
            ConfigurationError: it cannot be run, fails, takes too long or answers something else.
        """
        try:
            async with asyncio.timeout(self._limit_seconds):
                status, output, complaint = await self._output()
        except TimeoutError:
            raise self._failed(f"no answer within {self._limit_seconds:g} s") from None
        except OSError as error:
            raise self._failed(str(error)) from error
        if status != 0:
            raise self._failed(f"it ended with status {status}. {complaint}")
        try:
            return self._credential(orjson.loads(output))
        except (ValueError, TypeError, AttributeError) as error:
            raise self._failed(f"its output is not an ExecCredential: {error}") from error

    async def _output(self) -> tuple[int, bytes, str]:
        """The status, what was printed, and what it complained about."""
        # A path with a slash begins at the kubeconfig, a bare name is looked up (as kubectl does).
        command = str(self._directory / self.name) if os.sep in self.name else self.name
        process = await asyncio.create_subprocess_exec(
            command,
            *(str(each) for each in self._fields.get("args") or ()),
            env=self._environment(),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        try:
            output, complaint = await process.communicate()
        finally:
            if process.returncode is None:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                await process.wait()
        return process.returncode or 0, output, complaint.decode(errors="replace")

    def _environment(self) -> dict[str, str]:
        spec: dict[str, Any] = {"interactive": False}
        if self._fields.get("provideClusterInfo"):
            spec["cluster"] = self._cluster
        asked = {
            "apiVersion": self._fields.get("apiVersion"),
            "kind": "ExecCredential",
            "spec": spec,
        }
        own = {str(each["name"]): str(each["value"]) for each in self._fields.get("env") or ()}
        return {**os.environ, **own, "KUBERNETES_EXEC_INFO": orjson.dumps(asked).decode()}

    def _credential(self, answer: Mapping[str, Any]) -> ExecCredential:
        wanted = self._fields.get("apiVersion")
        if answer.get("apiVersion") != wanted:
            raise ValueError(f"its apiVersion is {answer.get('apiVersion')}, not {wanted}")
        status = answer.get("status") or {}
        token, certificate, key, expiry = (
            status.get(field)
            for field in (
                "token",
                "clientCertificateData",
                "clientKeyData",
                "expirationTimestamp",
            )
        )
        if not token and not certificate:
            raise ValueError("it has neither a token nor a certificate")
        return ExecCredential(
            str(token) if token else None,
            str(certificate).encode() if certificate else None,
            str(key).encode() if key else None,
            _time(expiry) if expiry else None,
        )

    def _failed(self, why: str) -> ConfigurationError:
        line = " ".join(why.split())[:_MAX_SHOWN_OUTPUT_CHARACTERS]
        return ConfigurationError(f"credential plugin {self.name}: {line}")


def _time(text: str) -> datetime:
    time = datetime.fromisoformat(text)  # noqa: TID251 plugins that leave out the zone mean UTC
    return time if time.tzinfo is not None else time.replace(tzinfo=UTC)
