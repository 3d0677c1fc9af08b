"""The door that commands ask through: an operator's port, or the cluster where there is none.

`explain`, `what-if`, `queue`, `nodes` and `devices` open it. Invariant: an operator that answers is
asked first unless `--local` is given; an answer that is no operator's says so on standard error.
"""

import argparse
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from typing_extensions import override

from stellwerk_cli.commands.port_arguments import PortAddress, add_port_arguments, port_address
from stellwerk_kube.errors import AccessRefusedError, ApiError, ConfigurationError, SchedulerError

if TYPE_CHECKING:
    from stellwerk.answers.answer import Kind
    from stellwerk.client.operator_port import OperatorPort
    from stellwerk_cli.reading.local_port import LocalPort
    from stellwerk_kube.json_values import JsonObject


@dataclass(frozen=True, slots=True)
class DoorAddress:
    """Arguments for the way to answers."""

    port: PortAddress
    is_local: bool = False
    """The cluster is read at once, and no operator asked."""
    may_read: bool = False
    """The cluster is read if no operator answers."""
    calls_extenders: bool = False
    """The extenders of that configuration are asked about a pod."""
    config: str = ""
    """The configuration of the cluster's scheduler: a file, configmap/NAMESPACE/NAME, or empty."""


def add_door_arguments(parser: argparse.ArgumentParser) -> None:
    """The address of the operator, and how the cluster is read without one."""
    add_port_arguments(parser)
    group = parser.add_argument_group("without an operator")
    group.add_argument(
        "--local",
        action="store_true",
        help="read the cluster with your own credentials, and ask no operator (default: if no "
        "operator answers)",
    )
    group.add_argument(
        "--operator", action="store_true", help="ask the operator alone, and never read the cluster"
    )
    group.add_argument(
        "--config",
        default="",
        metavar="FILE|configmap/NAMESPACE/NAME",
        help="the KubeSchedulerConfiguration of the cluster's scheduler (default: what its pod "
        "shows, and the defaults of its release)",
    )
    group.add_argument(
        "--call-extenders",
        action="store_true",
        help="call the extenders of that configuration about a pod that is explained, from this "
        "machine (default: they are not asked, and the answer says so)",
    )


def door_address(options: argparse.Namespace) -> DoorAddress:
    """The address that the arguments name.

    Raises:
        ConfigurationError: they do not go together.
    """
    names_operator = bool(options.operator or options.url or options.lease)
    if options.local and (options.operator or options.lease):
        raise ConfigurationError("--local asks no operator: leave out --operator and --lease")
    if options.config and not options.local and names_operator:
        raise ConfigurationError("--config is for a cluster that is read: an operator has profiles")
    return DoorAddress(
        port_address(options),
        is_local=options.local,
        may_read=not names_operator,
        calls_extenders=options.call_extenders,
        config=options.config,
    )


class Port(Protocol):
    """The answers to the questions of an operator's port."""

    async def ask_json(self, path: str, body: Mapping[str, Any] | None = None) -> "JsonObject":
        """The answer to a question.

        Raises:
            SchedulerError: there is none.
        """
        ...


class Door(Port):
    """Questions to the operator, or to the cluster once it is known that no operator answers."""

    def __init__(self, address: DoorAddress, stack: AsyncExitStack) -> None:
        """Ask nothing yet; `stack` closes what is opened."""
        self._address = address
        self._stack = stack
        self._operator: OperatorPort | None = None
        self._local: LocalPort | None = None
        self._has_answered = False
        self._lines: list[str] = []

    @property
    def is_local(self) -> bool:
        """Whether the cluster is read, and no operator asked."""
        return self._local is not None

    async def open(self) -> None:
        """Find the operator, or prepare to read the cluster.

        Raises:
            SchedulerError: neither can be done.
        """
        from stellwerk_cli.commands.operator_port import open_port  # noqa: PLC0415 aiohttp

        address = self._address
        if address.is_local:
            await self._read("no Stellwerk asked")
            return
        try:
            self._operator = await self._stack.enter_async_context(open_port(address.port))
        except (ApiError, AccessRefusedError):
            raise  # the API server itself does not answer, or not these credentials
        except SchedulerError as why:
            if not address.may_read:
                raise
            await self._read(_in_words(why))

    @override
    async def ask_json(self, path: str, body: Mapping[str, Any] | None = None) -> "JsonObject":
        from stellwerk.client.operator_port import NoAnswer  # noqa: PLC0415 aiohttp

        if self._operator is not None and self._local is None:
            try:
                answer = await self._operator.ask_json(path, body)
            except NoAnswer as why:
                if self._has_answered or not self._address.may_read:
                    raise
                await self._read(_in_words(why))
            else:
                self._has_answered = True
                return answer
        if self._local is None:
            raise RuntimeError("the door is opened first")
        answer = await self._local.ask_json(path, body)
        self._note(answer)
        return answer

    async def get(self, path: str, kind: "type[Kind]") -> "Kind":
        """The answer to a path, as its kind."""
        from stellwerk.answers.answer import codec  # noqa: PLC0415 pydantic

        return codec(kind).read(await self.ask_json(path))

    def progress(self) -> str:
        """The work that goes on, for the line of a command that waits."""
        return "waiting for the answer" if self._local is None else self._local.progress()

    async def renew(self) -> None:
        """Have the cluster read anew for the next answer, if it is read."""
        if self._local is not None:
            await self._local.renew()

    def take_lines(self) -> list[str]:
        """The lines about readings since the last call, for standard error."""
        lines, self._lines = self._lines, []
        return lines

    def _note(self, answer: "JsonObject") -> None:
        from stellwerk.answers.answer import codec  # noqa: PLC0415 pydantic
        from stellwerk.answers.reading import ClusterReading  # noqa: PLC0415 as above

        self._lines = list(codec(ClusterReading).read(answer["read"]).lines())

    async def _read(self, why_no_operator: str) -> None:
        """Prepare to read the cluster; what reads it is imported only then."""
        from stellwerk.garbage import collect_seldom  # noqa: PLC0415 before the imports

        collect_seldom()
        from stellwerk_cli.commands.cluster_client import open_client  # noqa: PLC0415 aiohttp
        from stellwerk_cli.reading.local_port import LocalPort  # noqa: PLC0415 the operator's parts

        port = self._address.port
        client = await self._stack.enter_async_context(open_client(port.kubeconfig, port.context))
        self._local = LocalPort(
            client,
            self._address.config,
            why_no_operator,
            calls_extenders=self._address.calls_extenders,
        )
        self._stack.push_async_callback(self._local.close)


def _in_words(why: SchedulerError) -> str:
    """The reason for which no operator answered, before what was read."""
    from stellwerk_cli.commands.operator_port import (  # noqa: PLC0415 aiohttp
        LeasesUnreadableError,
        NoOperatorError,
    )

    match why:
        case NoOperatorError(others=[]):
            return "no Stellwerk here"
        case NoOperatorError() | LeasesUnreadableError():
            return f"no Stellwerk found ({why})"
        case _:
            return f"Stellwerk does not answer ({why})"


@asynccontextmanager
async def open_door(address: DoorAddress) -> AsyncIterator[Door]:
    """Yield the door, open inside.

    Raises:
        SchedulerError: there is no operator to ask, and the cluster is not to be read.
    """
    async with AsyncExitStack() as stack:
        door = Door(address, stack)
        await door.open()
        yield door
