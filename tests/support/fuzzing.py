"""Bytes that somebody changed or made up, given to everything that reads bytes from outside.

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
from aiohttp import web
from typing_extensions import override

from stellwerk.answers.what_if import Supposition
from stellwerk.client.access import Kubeconfig
from stellwerk.client.extender_tls import TlsMaterial, _context
from stellwerk.journal.decoding import JournalError, decode
from stellwerk.journal.reader import Journal
from stellwerk.journal.zstandard import ZstdDecompressor
from stellwerk.serving.http import LIMITS, HttpServer, Probes
from stellwerk.serving.self_signed import self_signed
from stellwerk_cli.convert.conversion import convert_text
from stellwerk_cli.page.supposition_form import supposition
from stellwerk_cluster.apimachinery.failures import StatusError
from stellwerk_cluster.apimachinery.messages import has_message
from stellwerk_cluster.apimachinery.protobuf import MEDIA_TYPE, write_body
from stellwerk_cluster.apimachinery.selectors import parse_labels
from stellwerk_cluster.apimachinery.structural import matches, pattern_error
from stellwerk_cluster.apiserver.listing import ContinueToken, read_token, write_token
from stellwerk_cluster.apiserver.request_info import parse_path, path_parts
from stellwerk_cluster.cluster import EmbeddedCluster
from stellwerk_kube.clock import VirtualClock
from stellwerk_kube.errors import ConfigurationError, SchedulerError
from stellwerk_kube.listening.middleware import json_within
from stellwerk_kube.yaml_file import read_objects
from tests.support.odd_requests import GOOD_BODIES
from tests.support.page_window import opened
from tests.support.structured_inputs import http_bytes, protobuf_body

MOST_SECONDS: Final = 1.0
"""Of processor time, for one input."""
FIRST_SECONDS: Final = 0.2
"""So long an answer is waited for while its request may go on,"""
FURTHER_SECONDS: Final = 0.05
"""and for more of it."""
_SHOWN: Final = 20
_REPOSITORY: Final = Path(__file__).parents[2]

Call: TypeAlias = Callable[[bytes], Awaitable[None]]
Making: TypeAlias = Callable[[Random, Sequence[bytes]], bytes]


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

    def __init__(
        self, good: Sequence[bytes], call: Call, share: int = 1, make: Making | None = None
    ) -> None:
        """`make`: how an input is made of the good ones; by default one of them is changed."""
        self.good, self.call, self.share = good, call, share
        self.make = make or (lambda random, good: mutated(random, random.choice(good)))
        self.number = 0

    def input(self, seed: int, name: str) -> bytes:
        """The next input."""
        random = Random(f"{seed} {name} {self.number}")
        self.number += 1
        return self.make(random, self.good)


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
    inflated = ZstdDecompressor().decompress(small)
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

    def pattern(data: bytes) -> None:
        text = data.decode("utf-8", "replace")
        if not pattern_error(text):
            matches(text, "a" * 40 + text[:1000])  # its time is that of both lengths

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
    acts = {
        "relabel": ["n1 disk=ssd zone-"],
        "taint": ["n1 a=b:NoExecute c:NoSchedule-"],
        "delete": ["node/n1", "pod/shop/web"],
        "scale": ["deployment/shop/web=5"],
    }
    what_if.append(orjson.dumps(acts))
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
        "patterns": Target(
            [
                b"^(a+)+$",
                rb"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.x|(?i)y{2,5}\d)*$",
                b"(?P<n>\\pL|.*?)$",
            ],
            reading(pattern),
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
        of_api = [*requests, *_api_requests()]
        yield {
            "the operator's port": Target(requests, _asking(number)),
            "the page": Target(requests, _asking(page)),
            "the embedded API": Target(of_api, _asking(api), 4),
            "the operator's port by the grammar": Target(requests, _asking(number), 2, http_bytes),
            "the page by the grammar": Target(requests, _asking(page), 1, http_bytes),
            "the embedded API by the grammar": Target(of_api, _asking(api), 3, http_bytes),
            "messages to the embedded API": Target(
                _messages(cluster),
                _asking(api),
                4,
                lambda random, good: _with_message(random, random.choice(good)),
            ),
        }


def _messages(cluster: EmbeddedCluster) -> list[bytes]:
    """Requests that create and replace objects by protobuf."""
    found = []
    for path, body in GOOD_BODIES.items():
        target = parse_path(path_parts(path), cluster.api.kinds)
        if target is None or target.kind.custom or not has_message(target.kind.type_name):
            continue
        content = write_body(target.kind.type_name, body)
        for method, place in (("POST", path), ("PUT", f"{path}/odd")):
            head = f"{method} {place} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: {MEDIA_TYPE}\r\n"
            found.append(f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content)
    return found


def _with_message(random: Random, request: bytes) -> bytes:
    """A request with a changed message, whose length is right."""
    head, _, body = request.partition(b"\r\n\r\n")
    lines = [line for line in head.split(b"\r\n") if not line.startswith(b"Content-Length")]
    changed = protobuf_body(random, body)
    lines += [b"Content-Length: %d" % len(changed), b"Connection: close", b"", changed]
    return b"\r\n".join(lines)


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


async def _read(reader: asyncio.StreamReader, first_seconds: float) -> bytes:
    """What comes until the end, or until nothing comes for a while; a watch goes on."""
    answer, seconds = b"", first_seconds
    while len(answer) < 1 << 20:
        try:
            piece = await asyncio.wait_for(reader.read(1 << 16), seconds)
        except TimeoutError:
            break
        if not piece:
            break
        answer, seconds = answer + piece, FURTHER_SECONDS
    return answer


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
            # The end of what is sent comes later: a peer that has gone is answered no more.
            answer = await _read(reader, FIRST_SECONDS)
            writer.write_eof()
            answer += await _read(reader, MOST_SECONDS)
        except OSError:
            pass  # what is refused is closed, perhaps before it is all sent
        finally:
            writer.transport.abort()
        for each in answer.split(b"HTTP/1.1 "):
            # kube-apiserver answers some patches so, without a reason; others say InternalError.
            if each.startswith(b"500") and b'"reason"' in each:
                raise AssertionError(each[:500])

    return ask


# --- the run --------------------------------------------------------------------------------------


Input: TypeAlias = tuple[str, Target, int, bytes]
"""What it is for, and its number."""


def note(last: Path, inputs: Sequence[Input]) -> None:
    """Write down which inputs come next."""
    told = [(name, number) for name, _, number, _ in inputs]
    last.write_text(json.dumps(told), encoding="utf-8")


async def _found(seed: int, last: Path | None, inputs: Sequence[Input]) -> list[str]:
    """What is wrong with how targets take inputs at once; then each is tried alone, too."""
    if last is not None:
        note(last, inputs)
    wrong = await _given(inputs)
    if not wrong:
        return []
    found = []
    for each in inputs:
        name, _, number, data = each
        again = wrong if len(inputs) == 1 else await _given([each])
        if again:
            told_again = f"{again} of {len(data)} bytes {data[:120]!r}"
            found.append(f"--seed {seed} --only {name!r} {number}: {told_again}")
    return found or [f"seed {seed}, only together: {wrong} of {[each[:3:2] for each in inputs]}"]


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
                inputs = [
                    (name, target, target.number, target.input(seed, name))
                    for name, target in targets.items()
                    for _ in range(target.share)
                ]
                alone = [each for each in inputs if each[0] not in ports or only is not None]
                for each in alone:
                    failures += await _found(seed, last, [each])
                failures += await _found(seed, last, [each for each in inputs if each not in alone])
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


async def _given(inputs: Sequence[Input]) -> str:
    """What is wrong with how targets take inputs at once; empty: nothing."""
    began = time.process_time()
    _LOGGED.errors.clear()
    calls = (target.call(data) for _, target, _, data in inputs)
    for outcome in await asyncio.gather(*calls, return_exceptions=True):
        if isinstance(outcome, BaseException):
            return f"{type(outcome).__name__}: {outcome}"
    if _LOGGED.errors:
        return f"logged {_LOGGED.errors[0][:300]}"
    took = time.process_time() - began
    return f"{took:.1f} s" if took > MOST_SECONDS else ""


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
