"""Answers of extenders, read with suspicion: bounded, and of the promised types.

`client/extender.py` reads each answer here. Keys are read without regard to case and null is empty,
as in Go. Invariant: what is returned has the types that it says, texts are without control
characters; everything else is an ExtenderError that names the extender, the verb and the field.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import orjson

from stellwerk_kube.errors import ExtenderError
from stellwerk_kube.untrusted_text import cut, printable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import aiohttp

MAX_EXTENDER_ANSWER_BYTES: Final = 4 * 2**20
"""Bytes of an answer beyond twice the request: nodes that were sent may come back."""
MAX_INT32: Final = 2**31 - 1
"""Largest score or count. Scores go from 0 to 10; what does not fit into 32 bits is neither."""
_CHUNK_BYTES: Final = 64 * 1024
"""Bytes read before the length of an answer is compared with its limit."""
_MAX_EXCERPT_BYTES: Final = 100
"""Bytes that an error shows of a value that is not what it should be."""


@dataclass(frozen=True, slots=True)
class FilterAnswer:
    """An extender's answer to Filter: the nodes that fit, and reasons for the others."""

    node_names: tuple[str, ...]
    """Those that remain, in the extender's order."""
    failed: Mapping[str, str]
    """Reason by node: taking pods away may help."""
    unresolvable: Mapping[str, str]
    """Reason by node: taking pods away does not help."""


@dataclass(frozen=True, slots=True)
class AnsweredVictims:
    """The victims on one node that an extender agrees with."""

    uids: tuple[str, ...]
    pdb_violations: int


class ExtenderAnswer:
    """Reads the answer to one verb of one extender."""

    def __init__(self, extender: str, verb: str) -> None:
        """Keep what errors are to name: the URL prefix as it may be shown, and the verb."""
        self._extender = extender
        self._verb = verb

    async def body(self, response: aiohttp.ClientResponse, sent_bytes: int) -> bytes:
        """Read a body; the caller closes the connection if it is refused.

        Raises:
            ExtenderError: it is longer than 4 MiB and twice the request, or encoded.
        """
        encoding = response.headers.get("Content-Encoding", "identity")
        if encoding.lower() != "identity":
            raise self.failure(f"{self._who} answered in an encoding that was not requested")
        limit_bytes = MAX_EXTENDER_ANSWER_BYTES + 2 * sent_bytes
        body = bytearray()
        async for chunk in response.content.iter_chunked(_CHUNK_BYTES):
            body += chunk
            if len(body) > limit_bytes:
                raise self.failure(f"{self._who} answered more than {limit_bytes} bytes")
        return bytes(body)

    def filter(
        self, answer: object, offered: Sequence[str], *, whole_nodes: bool = False
    ) -> FilterAnswer:
        """The nodes that remain of those offered.

        Raises:
            ExtenderError: the extender refuses, or the answer is not one.
        """
        fields = self._object(answer, "")
        self._refuse_on_error(fields)
        names = None if whole_nodes else fields.get("nodenames")
        if names is None:
            remaining = self._names_of_nodes(fields.get("nodes"))
        else:
            remaining = [self._text(name, "nodenames") for name in self._list(names, "nodenames")]
        known = set(offered)
        for name in remaining:
            if name not in known:
                message = (
                    f'extender "{self._extender}" claims a filtered node "{printable(name)}" '
                    "which is not found in the input node list"
                )
                raise self.failure(message)
        if len(set(remaining)) < len(remaining):
            raise self._nonsense(remaining, "nodenames", "a duplicate node")
        return FilterAnswer(
            tuple(remaining),
            self._texts(fields.get("failednodes"), "failedNodes"),
            self._texts(fields.get("failedandunresolvablenodes"), "failedAndUnresolvableNodes"),
        )

    def scores(self, answer: object) -> list[tuple[str, int]]:
        """Scores by node. Nodes that were not offered may be among them, as in kube-scheduler.

        Raises:
            ExtenderError: the answer is not one.
        """
        scores: dict[str, int] = {}
        for item in self._list(answer, ""):
            fields = self._object(item, "")
            host = self._text(fields.get("host"), "host")
            if host in scores:
                raise self._nonsense(host, "host", "a duplicate node")
            scores[host] = self._number(fields.get("score"), "score", least=-MAX_INT32)
        return list(scores.items())

    def bound(self, answer: object) -> None:
        """Nothing, if the extender says that it has bound the pod.

        Raises:
            ExtenderError: it says something else.
        """
        self._refuse_on_error(self._object(answer, ""))

    def victims(self, answer: object) -> dict[str, AnsweredVictims]:
        """The victims that remain, by node.

        Raises:
            ExtenderError: the answer is not one.
        """
        field = "nodeNameToMetaVictims"
        by_node = self._object(answer, "").get(field.lower())
        if by_node is not None and not isinstance(by_node, dict):
            raise self._nonsense(by_node, field)
        return {name: self._victims(each, field) for name, each in (by_node or {}).items()}

    def _victims(self, answer: object, field: str) -> AnsweredVictims:
        fields = self._object(answer, field)
        uids = tuple(
            self._text(self._object(pod, "pods").get("uid"), "uid")
            for pod in self._list(fields.get("pods"), "pods")
        )
        if len(set(uids)) < len(uids):
            raise self._nonsense(list(uids), "pods", "a duplicate pod")
        return AnsweredVictims(
            uids, self._number(fields.get("numpdbviolations"), "numPDBViolations", least=0)
        )

    def _names_of_nodes(self, nodes: object) -> list[str]:
        items = self._list(self._object(nodes, "nodes").get("items"), "nodes.items")
        metadata = (self._object(item, "nodes.items").get("metadata") for item in items)
        return [
            self._text(self._object(each, "metadata").get("name"), "metadata.name")
            for each in metadata
        ]

    # --- errors ---------------------------------------------------------------------------------

    def failure(self, message: str) -> ExtenderError:
        """The error of this call; its text may be foreign."""
        return ExtenderError(self._extender, self._verb, cut(printable(message)))

    @property
    def _who(self) -> str:
        return f'extender "{self._extender}"'

    def _refuse_on_error(self, fields: Mapping[str, Any]) -> None:
        if message := self._text(fields.get("error"), "error"):
            raise self.failure(message)

    def _nonsense(
        self, value: object, field: str, what: str = "an unexpected value"
    ) -> ExtenderError:
        excerpt = _excerpt(value)
        where = f" in {field}" if field else ""
        return self.failure(f"{self._who} answered {self._verb} with {what}{where}: {excerpt}")

    # --- types ----------------------------------------------------------------------------------

    def _object(self, value: object, field: str) -> dict[str, Any]:
        """An object with its keys in lower case."""
        if value is None:
            return {}
        if not isinstance(value, dict):
            raise self._nonsense(value, field)
        return {key.lower(): item for key, item in value.items()}

    def _list(self, value: object, field: str) -> list[Any]:
        if value is None:
            return []
        if not isinstance(value, list):
            raise self._nonsense(value, field)
        return value

    def _number(self, value: object, field: str, *, least: int) -> int:
        if value is None:
            return 0
        if not isinstance(value, int) or isinstance(value, bool):
            raise self._nonsense(value, field)
        if not least <= value <= MAX_INT32:
            raise self._nonsense(value, field, "a number out of range")
        return value

    def _text(self, value: object, field: str) -> str:
        if value is None:
            return ""
        if not isinstance(value, str):
            raise self._nonsense(value, field)
        return value

    def _texts(self, value: object, field: str) -> dict[str, str]:
        """Texts to be shown, by keys that are as they came."""
        if value is None:
            return {}
        if not isinstance(value, dict):
            raise self._nonsense(value, field)
        return {key: cut(printable(self._text(text, field))) for key, text in value.items()}


def _excerpt(value: object) -> str:
    """The beginning of a value that has been read as JSON."""
    try:
        return orjson.dumps(value)[:_MAX_EXCERPT_BYTES].decode(errors="replace")
    except orjson.JSONEncodeError:
        # More can be read than written: 1,024 levels, and 254.
        return "a value nested too deeply to be shown"
