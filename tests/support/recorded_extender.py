"""An extender that answers as the recorded one did.

Scheduler replays use it. Invariant: the answer to the n-th call of a verb is the n-th recorded one,
after the recorded time; one that let every node pass lets every node pass.
"""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, Self

import orjson
from aiohttp import web

from stellwerk_kube.json_values import JsonObject

RECORDED_ADDRESS: Final = "127.0.0.1:26601"
"""Where the extender of the recordings was."""


class RecordedExtender:
    """See the module docstring."""

    def __init__(
        self,
        recorded: Sequence[JsonObject],
        translated: Callable[[Any], Any],
        bind: Callable[[str, str, str], Awaitable[None]],
    ) -> None:
        """Answer as `recorded`.

        Args:
            recorded: the calls and their answers.
            translated: makes recorded objects those of the present cluster.
            bind: binds a pod (namespace, name, node), as an extender with a bind verb has to.
        """
        self.calls: list[JsonObject] = []
        """verb, request and response of each call."""
        self._answers: defaultdict[str, list[JsonObject]] = defaultdict(list)
        for call in recorded:
            self._answers[call["verb"]].append(call)
        self._translated = translated
        self._bind = bind
        self._runner = web.ServerRunner(web.Server(self._answer))
        self.address = ""
        """host:port."""

    async def __aenter__(self) -> Self:
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.address = "{}:{}".format(*self._runner.addresses[0])
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    async def _answer(self, request: web.BaseRequest) -> web.Response:
        verb = request.path.rpartition("/")[2]
        body = orjson.loads(await request.read())
        answers = self._answers[verb]
        recorded = answers.pop(0) if len(answers) > 1 else answers[0]
        self.calls.append({"verb": verb, "path": request.path, "request": body})
        await asyncio.sleep(recorded["took"])
        if verb == "bind":
            await self._bind(body["PodNamespace"], body["PodName"], body["Node"])
        return self._response(recorded, body)

    def _response(self, recorded: JsonObject, body: JsonObject) -> web.Response:
        response, names = recorded["response"], recorded["request"].get("NodeNames")
        if isinstance(response, str):
            return web.Response(status=recorded["status"], text=response)
        if names is not None and isinstance(response, dict) and response["nodenames"] == names:
            response = {**response, "nodenames": body["NodeNames"]}
        content = orjson.dumps(self._translated(response))
        return web.Response(
            status=recorded["status"], body=content, content_type="application/json"
        )
