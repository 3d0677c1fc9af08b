"""Bytes that somebody changed, given to everything that reads bytes from outside.

`python -m tests.support.fuzzing --seconds 60 [--seed N]` gives each target its share of the time
and prints what it found; whoever starts it sees whether a signal ended it, and `--last FILE` says
at which input. One input alone: `--only TARGET NUMBER`. Invariant: an input follows from the seed,
the target and its number.
"""

import argparse
import asyncio
import json
import logging
import random
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from random import Random
from typing import Any, Final, TypeAlias

import orjson
import yaml
import zstandard
from aiohttp import web
from typing_extensions import override

from stellwerk.client.access import Kubeconfig
from stellwerk.client.extender_tls import TlsMaterial, _context
from stellwerk.clock import VirtualClock
from stellwerk.convert.conversion import convert_text
from stellwerk.errors import ConfigurationError, SchedulerError
from stellwerk.journal.decoding import JournalError, decode
from stellwerk.journal.reader import Journal
from stellwerk.listening import json_within
from stellwerk.models.answers.what_if import Supposition
from stellwerk.models.yaml_file import read_objects
from stellwerk.page.supposition_form import supposition
from stellwerk.serving.http import LIMITS, HttpServer, Probes
from stellwerk.serving.self_signed import self_signed
from stellwerk_cluster.apimachinery.failures import StatusError
from stellwerk_cluster.apimachinery.label_selectors import parse_labels
from stellwerk_cluster.apiserver.continue_tokens import ContinueToken, read_token, write_token
from stellwerk_cluster.cluster import EmbeddedCluster
from tests.support.odd_requests import GOOD_BODIES
from tests.support.page_window import opened

MOST_SECONDS: Final = 1.0
"""Of processor time, for one input."""
_SHOWN: Final = 20
_REPOSITORY: Final = Path(__file__).parents[2]

Call: TypeAlias = Callable[[bytes], Awaitable[None]]


def mutated(random: Random, good: bytes) -> bytes:
    """A few changes: bits, bytes, pieces that go, come twice, or come from elsewhere."""
    data = bytearray(good)
    for _ in range(random.choice((1, 1, 2, 3, 8))):
        at = random.randrange(len(data) + 1)
        end = min(len(data), at + random.choice((1, 2, 8, 100)))
        match random.randrange(8):
            case 0 if at < len(data):
                data[at] ^= 1 << random.randrange(8)
            case 1:
                del data[at:end]
            case 2:
                data[at:at] = data[at:end] * random.choice((1, 2, 50))
            case 3:
                del data[at:]
            case 4:
                other = random.randrange(len(data) + 1)
                data[at:at] = data[other : other + random.choice((1, 8, 100))]
            case 5:
                data[at:end] = random.randbytes(end - at)
            case _:
                data[at : random.choice((at, end))] = random.choice(_WORDS)
    return bytes(data[: 256 << 10])


_WORDS: Final = (
    *(b"\x00", b"\xff\xfe", b"\r\n", b"\r\n\r\n", b"\n", b": ", b"\xed\xa0\x80", b"%00", b"%ff"),
    *(
        b"{",
        b"[",
        b"[" * 20_000,
        b'{"a":' * 5_000,
        b"- " * 2_000,
        b"? " * 500,
        b"&a *a ",
        b"!!",
        b"<<: ",
    ),
    *(b"null", b"true", b"-1", b"1e999", b"9" * 400, b"0x", b"-0", b'""', b"''", b"NaN", b".inf"),
    *(
        b"../",
        b"/../..",
        b"*",
        b"?",
        b"#",
        b"\\u0000",
        b"\\ud800",
        b"(a+)+$",
        b"(" * 300,
        b"{1,9999}",
    ),
    *(b"Content-Length: 5\r\n", b"Transfer-Encoding: chunked\r\n", b"Expect: 100-continue\r\n"),
    *(b"Upgrade: websocket\r\n", b"Connection: close\r\n", b"Content-Type: application/yaml\r\n"),
    *(
        b"Content-Encoding: gzip\r\n",
        b"ffffffffffffffff",
        b"HTTP/9.9",
        b"!!python/object:os.system x",
    ),
)
"""What readers may stumble over, and the directives of the formats."""


class Target:
    """Something that reads bytes: good ones to begin with, and how they are given to it."""

    def __init__(self, good: Sequence[bytes], call: Call, share: int = 1) -> None:
        self.good, self.call, self.share = good, call, share
        self.number = 0

    def input(self, seed: int, name: str) -> bytes:
        """The next input."""
        random = Random(f"{seed} {name} {self.number}")
        self.number += 1
        return mutated(random, random.choice(self.good))


def reading(read: Callable[[bytes], object], *refusals: type[Exception]) -> Call:
    """A call that may only refuse in these ways."""

    async def call(data: bytes) -> None:
        try:
            read(data)
        except refusals:
            return

    return call


# --- what has a reader of its own -----------------------------------------------------------------


def _readers(directory: Path) -> dict[str, Target]:
    recordings = [
        file.read_bytes() for file in (_REPOSITORY / "tests/data/recordings").glob("*.journal")
    ]
    small = min(recordings, key=len)
    inflated = zstandard.ZstdDecompressor().decompressobj().decompress(small)
    cuts = [small[:at] for at in range(len(small))]
    written = directory / "input"

    def journal(data: bytes) -> None:
        written.write_bytes(data)
        for _ in Journal([written]):
            pass

    def manifests(data: bytes) -> None:
        file = written.with_suffix(".yaml")
        file.write_bytes(data)
        read_objects(file)

    async def kubeconfig(data: bytes) -> None:
        written.write_bytes(data)
        try:
            await Kubeconfig(str(written), None, VirtualClock()).load()
        except ConfigurationError:
            return

    pair = self_signed("localhost", datetime(2026, 1, 1, tzinfo=UTC))
    examples = [file.read_bytes() for file in (_REPOSITORY / "docs/examples").glob("*.yaml")]
    configs = [file for file in examples if b"KubeSchedulerConfiguration" in file]
    what_if = [
        orjson.dumps({"pod": GOOD_BODIES[path]}) for path in GOOD_BODIES if path.endswith("/pods")
    ]
    token = write_token(ContinueToken(1, ("default", "odd")), "default").encode()
    return {
        "journals": Target([*recordings, *cuts], reading(journal, JournalError)),
        "lines of journals": Target(
            inflated.splitlines(), reading(decode, ValueError, JournalError)
        ),
        "kubeconfigs": Target([_KUBECONFIG.encode()], kubeconfig),
        "PEM": Target(
            [pair, pair[: len(pair) // 2], pair * 2],
            reading(
                lambda data: _context(TlsMaterial(data, data, data), insecure=False),
                *(OSError, ValueError),
            ),
        ),
        "manifests": Target(examples, reading(manifests, ConfigurationError)),
        "configurations": Target(
            configs,
            reading(lambda data: convert_text(data.decode("utf-8", "replace")), SchedulerError),
        ),
        "forms of the page": Target(
            examples,
            reading(
                lambda data: supposition({"pod": data.decode("utf-8", "replace")}),
                ConfigurationError,
            ),
        ),
        "bodies of what-if": Target(
            what_if,
            reading(
                lambda data: Supposition.of(json_within(LIMITS, data)),
                *(ConfigurationError, web.HTTPBadRequest),
            ),
        ),
        "selectors": Target(
            [b"a=b,c!=d,e in (f,g),h notin (i),!j,k", b"a==b"],
            reading(lambda data: parse_labels(data.decode("utf-8", "replace")), StatusError),
        ),
        "continue tokens": Target(
            [token],
            reading(
                lambda data: read_token(data.decode("utf-8", "replace"), "default"), StatusError
            ),
        ),
    }


_KUBECONFIG: Final = """\
apiVersion: v1
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: k, user: u, namespace: n}}]
clusters: [{name: k, cluster: {server: "https://127.0.0.1:6443", certificate-authority-data: YQ==}}]
users: [{name: u, user: {token: t, client-certificate-data: YQ==, client-key-data: YQ==}}]
"""


# --- ports ----------------------------------------------------------------------------------------


@asynccontextmanager
async def _ports() -> AsyncIterator[dict[str, Target]]:
    async def echo(request: web.Request) -> web.Response:
        return web.Response(body=await request.read())

    async with AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(EmbeddedCluster(2))
        window = await stack.enter_async_context(opened())
        server = HttpServer(
            Probes(), lambda: b"metrics\n", list, routes=[web.post("/what-if", echo)]
        )
        number = await server.start("127.0.0.1:0")
        stack.push_async_callback(server.close)
        api = int(cluster.url.rpartition(":")[2])
        page = int(window.origin.rpartition(":")[2])
        heads = [
            f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: */*\r\n{more}\r\n".encode()
            for path in ("/livez", "/metrics", "/what-if", "/debug/flags/v", "/static/page.js")
            for method, more in (
                ("GET", ""),
                ("POST", "Content-Length: 5\r\n"),
                ("POST", "Transfer-Encoding: chunked\r\n"),
                ("PUT", "Content-Length: 2\r\nContent-Type: application/json\r\n"),
            )
        ]
        requests = [head + b"5\r\nhello\r\n0\r\n\r\n" for head in heads]
        yield {
            "the operator's port": Target(requests, _asking(number)),
            "the page": Target(requests, _asking(page)),
            "the embedded API": Target([*requests, *_api_requests()], _asking(api), 4),
        }


def _api_requests() -> list[bytes]:
    found = []
    for path, body in GOOD_BODIES.items():
        as_json = orjson.dumps(body)
        as_yaml = yaml.safe_dump(body).encode()
        for method, place, kind, content in (
            ("POST", path, "application/json", as_json),
            ("POST", path, "application/yaml", as_yaml),
            ("POST", path, "application/vnd.kubernetes.protobuf", b"k8s\x00\n\x04\n\x00\x12\x00"),
            ("PUT", f"{path}/odd", "application/json", as_json),
            ("PATCH", f"{path}/odd", "application/merge-patch+json", as_json),
            ("PATCH", f"{path}/odd", "application/strategic-merge-patch+json", as_json),
            ("PATCH", f"{path}/odd?fieldManager=f", "application/apply-patch+yaml", as_yaml),
            ("PATCH", f"{path}/odd", "application/json-patch+json", _JSON_PATCH),
            ("GET", f"{path}?labelSelector=a%3Db&fieldSelector=metadata.name%3Dx&limit=1", "", b""),
        ):
            typed = f"Content-Type: {kind}\r\n" if kind else ""
            length = f"Content-Length: {len(content)}\r\n" if content else ""
            head = f"{method} {place} HTTP/1.1\r\nHost: 127.0.0.1\r\n{typed}{length}\r\n"
            found.append(head.encode() + content)
    return found


_JSON_PATCH: Final = orjson.dumps(
    [
        {"op": "add", "path": "/metadata/labels/a", "value": "b"},
        {"op": "copy", "from": "/spec", "path": "/x"},
    ]
)


def _asking(number: int) -> Call:
    places = count()

    async def ask(data: bytes) -> None:
        # A length that is right again, so that most bodies are read to their end.
        head, found, body = data.partition(b"\r\n\r\n")
        if found and b"Content-Length" in head and len(data) % 4:
            lines = [line for line in head.split(b"\r\n") if not line.startswith(b"Content-Len")]
            lines.append(b"Content-Length: %d" % len(body))
            data = b"\r\n".join([*lines, b"Connection: close", b"", body])
        # One address may open so many connections in a second, and is fuzzed faster.
        place = (f"127.1.{next(places) % 250}.1", 0)
        reader, writer = await asyncio.open_connection("127.0.0.1", number, local_addr=place)
        answer = b""
        try:
            writer.write(data)
            writer.write_eof()
            async with asyncio.timeout(5):
                while (piece := await reader.read(1 << 16)) and len(answer) < 1 << 20:
                    answer += piece
        except (OSError, TimeoutError):
            pass  # a watch goes on, and what is refused is closed, perhaps before it is all sent
        finally:
            writer.transport.abort()
        if answer.startswith(b"HTTP/1.1 500") and b'"reason"' in answer:
            # kube-apiserver answers some patches so, without a reason; others say InternalError.
            raise AssertionError(answer[:500])

    return ask


# --- the run --------------------------------------------------------------------------------------


def note(last: Path, name: str, number: int) -> None:
    """Write down which input comes next."""
    last.write_text(json.dumps([name, number]), encoding="utf-8")


async def fuzz(
    seed: int, seconds: float, last: Path | None, only: tuple[str, int] | None, rounds: int
) -> int:
    """Give inputs until time or rounds are over; returns how many of them found something."""
    failures: list[str] = []
    with tempfile.TemporaryDirectory() as directory:
        async with _ports() as ports:
            targets = {**_readers(Path(directory)), **ports}
            if only is not None:
                targets = {only[0]: targets[only[0]]}
                targets[only[0]].number = only[1]
            ends = time.monotonic() + seconds
            for _ in range(rounds):
                if time.monotonic() > ends or len(failures) >= _SHOWN:
                    break
                for name, target in targets.items():
                    for _ in range(target.share):
                        number, data = target.number, target.input(seed, name)
                        if last is not None:
                            note(last, name, number)
                        wrong = await _given(target, data)
                        if wrong:
                            failures.append(f"--seed {seed} --only {name!r} {number}: {wrong}")
                if only is not None:
                    break
            given = {name: target.number for name, target in targets.items()}
    sys.stdout.write(f"seed {seed}, inputs {json.dumps(given)}\n")
    for failure in failures:
        sys.stdout.write(f"{failure}\n")
    return len(failures)


class _Logged(logging.Handler):
    """What is logged as an error, with its traceback."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.errors: list[str] = []

    @override
    def emit(self, record: logging.LogRecord) -> None:
        """Keep one."""
        if record.exc_info:
            self.errors.append(f"{record.getMessage()}: {record.exc_info[1]!r}")


_LOGGED: Final = _Logged()


async def _given(target: Target, data: bytes) -> str:
    """What is wrong with how a target takes an input; empty: nothing."""
    began = time.process_time()
    _LOGGED.errors.clear()
    try:
        await target.call(data)
    except Exception as error:  # noqa: BLE001 whatever it is, it was not meant
        return f"{type(error).__name__}: {error} of {data[:120]!r}"
    if _LOGGED.errors:
        return f"logged {_LOGGED.errors[0][:300]} of {data[:120]!r}"
    took = time.process_time() - began
    return f"{took:.1f} s for {len(data)} bytes {data[:120]!r}" if took > MOST_SECONDS else ""


def main() -> int:
    """Run; the exit status is 1 if anything was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    parser.add_argument("--rounds", type=int, default=sys.maxsize, help="at most so many")
    parser.add_argument("--last", type=Path)
    parser.add_argument("--only", nargs=2, metavar=("TARGET", "NUMBER"))
    options = parser.parse_args()
    logging.basicConfig(level=logging.ERROR, handlers=[_LOGGED])
    only = None if options.only is None else (options.only[0], int(options.only[1]))
    found: Any = asyncio.run(
        fuzz(options.seed, options.seconds, options.last, only, options.rounds)
    )
    return int(found > 0)


if __name__ == "__main__":
    sys.exit(main())
