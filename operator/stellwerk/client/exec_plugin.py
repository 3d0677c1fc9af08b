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
from typing_extensions import override

from stellwerk_kube.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

PLUGIN_SECONDS: Final = 60.0
"""Longest run of a plugin; some ask a person to log in on another device."""
_MAX_COMPLAINT_SECONDS: Final = 1.0
"""Longest wait for the rest of what a failed plugin has written to its standard error, which a
process in the background may hold open."""
_OUTPUT, _COMPLAINT = 1, 2
"""The descriptors of a program's standard output and standard error."""
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


class _Run(asyncio.SubprocessProtocol):
    """The output and the complaint of a program, and the ends of both and of itself.

    The plain version is `asyncio.create_subprocess_exec` and `communicate`. It waits for the end of
    both pipes, and kubectl of the output alone: a plugin may leave an agent in the background that
    has its standard error. Cancelled, it leaves the pipes open for as long as the agent runs.
    """

    def __init__(self) -> None:
        self.written = {_OUTPUT: bytearray(), _COMPLAINT: bytearray()}
        self.output_ended, self.complaint_ended = asyncio.Event(), asyncio.Event()
        self.exited = asyncio.Event()

    @override
    def pipe_data_received(self, fd: int, data: bytes) -> None:
        self.written[fd] += data

    @override
    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        (self.output_ended if fd == _OUTPUT else self.complaint_ended).set()

    @override
    def process_exited(self) -> None:
        self.exited.set()


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
        program, run = await asyncio.get_running_loop().subprocess_exec(
            _Run,
            command,
            *(str(each) for each in self._fields.get("args") or ()),
            env=self._environment(),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        try:
            await run.output_ended.wait()
            await run.exited.wait()
            if program.get_returncode():
                with suppress(TimeoutError):
                    async with asyncio.timeout(_MAX_COMPLAINT_SECONDS):
                        await run.complaint_ended.wait()
        finally:
            # A process that the program has left in the background may hold the pipes open.
            for descriptor in (_OUTPUT, _COMPLAINT):
                if (pipe := program.get_pipe_transport(descriptor)) is not None:
                    pipe.close()
            if not run.exited.is_set():
                with suppress(ProcessLookupError):
                    os.killpg(program.get_pid(), signal.SIGKILL)
                await run.exited.wait()
            program.close()
        complaint = run.written[_COMPLAINT].decode(errors="replace")
        return program.get_returncode() or 0, bytes(run.written[_OUTPUT]), complaint

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
