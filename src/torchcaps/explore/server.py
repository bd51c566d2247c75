"""The explorer as a server: a few paths, each with one answer."""

import secrets
import socket
import sys
import traceback
from contextlib import suppress
from importlib import resources
from typing import Annotated, Any

from torchcaps._extras import needing
from torchcaps._printable import printable
from torchcaps.errors import TorchcapsError
from torchcaps.explore.guard import Guard, Refused, Turns
from torchcaps.explore.looking import Looker
from torchcaps.explore.pictures import png
from torchcaps.explore.state import State

with needing("fastapi", room="explore", extra="explore"):
    from fastapi import FastAPI, Query, Request
    from fastapi.exceptions import RequestValidationError
    from fastapi.responses import PlainTextResponse, Response
    from starlette.exceptions import HTTPException
    from starlette.types import ASGIApp

with needing("uvicorn", room="explore", extra="explore"):
    import uvicorn

MOST_CONNECTIONS = 128
KINDS = {".html": "text/html", ".css": "text/css", ".js": "text/javascript"}
Page = Annotated[str, Query(max_length=40)]
Number = Annotated[int, Query(ge=0, le=2**53)]


def page_files() -> dict[str, str]:
    folder = resources.files("torchcaps.explore") / "page"
    return {
        each.name: each.read_text(encoding="utf-8")
        for each in folder.iterdir()
        if each.name.endswith(tuple(KINDS))
    }


def application(looker: Looker, turns: Turns) -> FastAPI:
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    files = page_files()

    @app.get("/")
    @app.get("/page/{name}")
    async def file(name: str = "index.html") -> Response:
        if name not in files:
            raise Refused(404, "the page has no such file.")
        kind = KINDS[name[name.rindex(".") :]]
        return Response(files[name], media_type=f"{kind}; charset=utf-8")

    @app.get("/api/about")
    async def about() -> dict[str, Any]:
        return looker.about()

    @app.get("/api/images/{collection}")
    async def images(collection: int) -> list[dict[str, Any]]:
        return await turns.take(lambda: looker.images(max(collection, 0)))

    @app.post("/api/look")
    async def look(state: State, page: Page = "", number: Number = 0) -> dict[str, Any]:
        return await turns.take(lambda: looker.look(state), page=page, number=number)

    # Of the images of a collection, where look is of the one that is shown.
    @app.post("/api/over")
    async def over(state: State, page: Page = "", number: Number = 0) -> dict[str, Any]:
        return await turns.take(lambda: looker.over(state), page=page, number=number)

    @app.post("/api/picture")
    async def picture(request: Request) -> dict[str, str]:
        content = await request.body()

        def kept() -> dict[str, str]:
            digest = looker.pictures.add(content)
            return {"picture": digest, "png": png(looker.pictures.get(digest))}

        return await turns.take(kept)

    for kind in (Refused, TorchcapsError, RequestValidationError, HTTPException, Exception):
        app.add_exception_handler(kind, _sentence)
    return app


async def _sentence(_: Request, error: Exception) -> Response:
    """Answer what is wrong by a status and one sentence, never by a traceback."""
    if isinstance(error, Refused):
        status, said = error.status, error.sentence
    elif isinstance(error, TorchcapsError):
        status, said = 400, str(error)
    elif isinstance(error, RequestValidationError):
        first = error.errors()[0]
        where = printable(".".join(str(part) for part in first["loc"][1:])[:100], keep="")
        status, said = 422, f"the question is not understood: {where}: {first['msg']}"
    elif isinstance(error, HTTPException):
        here = "there is nothing here" if error.status_code == 404 else "this is not understood"
        status, said = error.status_code, f"{here}: {error.detail}"
    else:
        # To be reported; who asked is told the kind alone.
        traceback.print_exception(error)
        fault = "by a fault of its own or for want of memory"
        status, said = 500, f"the explorer could not answer, {fault}: {type(error).__name__}."
    return PlainTextResponse(said + "\n", status)


def guarded(looker: Looker, *, token: str, port: int, host: str = "127.0.0.1") -> ASGIApp:
    """Give the whole server, as it may be asked."""
    # Told to listen everywhere, it goes by every address of this machine, and by its name.
    everywhere = {"*", socket.gethostname().casefold()} if host in ("0.0.0.0", "::") else set()
    names = {"localhost", "127.0.0.1", "[::1]", host.casefold()} | everywhere
    return Guard(application(looker, Turns()), token=token, names=names, port=port)


def serve(looker: Looker, *, host: str = "127.0.0.1", port: int = 0) -> None:
    """Print a link on standard output and answer until Ctrl-C; port 0 is one that is free."""
    listening = bound(host, port)
    token = secrets.token_urlsafe(16)
    port = listening.getsockname()[1]
    named = f"[{host}]" if ":" in host else host
    print(f"http://{named}:{port}/{token}/", flush=True)
    print("Open this link in a browser; whoever has it may ask. Ctrl-C ends.", file=sys.stderr)
    config = uvicorn.Config(
        guarded(looker, token=token, host=host, port=port),
        log_level="critical",
        access_log=False,
        server_header=False,
        date_header=False,
        proxy_headers=False,
        ws="none",
        limit_concurrency=MOST_CONNECTIONS,
        timeout_keep_alive=10,
        timeout_graceful_shutdown=2,
    )
    with listening, suppress(KeyboardInterrupt):
        uvicorn.Server(config).run(sockets=[listening])


def bound(host: str, port: int) -> socket.socket:
    """Give a socket that listens there, before the link is printed."""
    is_6 = ":" in host
    family = socket.AF_INET6 if is_6 else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, dualstack_ipv6=is_6)
    except OSError as error:
        # Python adds where it tried.
        why = (error.strerror or "").partition(" (while ")[0]
        raise TorchcapsError(
            f"the explorer cannot listen at {host}, port {port} ({why}); another "
            f"program may: take another --port, or leave it out for one that is free."
        ) from None
