"""The log level over HTTP, while the operator runs: GET and PUT /debug/flags/v.

`app` adds the routes to the operator's port, whose guard asks the API server who may. Invariant:
a body that names no level changes nothing.
"""

import logging
from typing import Final

from aiohttp import web

from stellwerk import logs

logger = logging.getLogger(__name__)

PATH: Final = "/debug/flags/v"
"""kube-scheduler's path for its verbosity."""
LONGEST_BODY: Final = 64
"""In bytes."""


def log_level_routes() -> web.RouteTableDef:
    """Return both requests, as routes of the port."""
    routes = web.RouteTableDef()

    @routes.get(PATH)
    async def read(_: web.Request) -> web.Response:
        return web.Response(text=f"{logs.level()}\n")

    @routes.put(PATH)
    async def write(request: web.Request) -> web.Response:
        body = await request.read()
        try:
            name = logs.set_level(body.decode(errors="replace"))
        except ValueError as error:
            raise web.HTTPBadRequest(text=f"{error}\n") from error
        logger.warning("the log level is %s from here on", name)
        return web.Response(text=f"the log level is {name} from here on\n")

    return routes
