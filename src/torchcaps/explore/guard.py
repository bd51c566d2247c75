"""Who may ask the explorer, and how much at once.

Only who has the link may ask: it holds a token that is drawn at every start. A page of somebody
else is refused by the Origin that its browser sends; a foreign name that was made to lead to this
machine (DNS rebinding) is refused by the Host.
"""

import asyncio
import re
import secrets
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from torchcaps._extras import needing
from torchcaps.explore.pictures import MOST_BYTES

with needing("fastapi", room="explore", extra="explore"):
    from starlette.responses import PlainTextResponse
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

T = TypeVar("T")
# Questions that wait at once, and pages whose newest question is remembered.
MOST_WAITING, MOST_PAGES = 64, 256
# Of a body: bytes of a question, and seconds until it is here.
MOST_WORDS, SECONDS = 1 << 16, 20.0
ADDRESS = re.compile(r"[0-9.]+|\[[0-9a-fA-F:.]+\]")
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = (
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
)


class Refused(Exception):
    """A request that is not answered: status, and a sentence why."""

    def __init__(self, status: int, sentence: str):
        super().__init__(sentence)
        self.status, self.sentence = status, sentence


class Guard:
    """Hands on only requests that may be answered, without the token. `names` may be a Host's."""

    def __init__(self, app: ASGIApp, *, token: str, names: set[str], port: int):
        self.app, self.token, self.names, self.port = app, token, names, port

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", []), *HEADERS]
            await send(message)

        try:
            inside = self._checked(scope)
            most = MOST_BYTES if inside["path"] == "/api/picture" else MOST_WORDS
            body = await _body(receive, most)
        except Refused as refused:
            answer = PlainTextResponse(refused.sentence + "\n", refused.status)
            await answer(scope, receive, guarded)
            return
        await self.app(inside, body, guarded)

    def _checked(self, scope: Scope) -> Scope:
        """Give the request as the application sees it, without the token."""
        headers = {name.lower(): value.decode("latin-1") for name, value in scope["headers"]}
        host = headers.get(b"host", "")
        if not self._is_here(host):
            raise Refused(
                421,
                f"the explorer does not go by the name {host[:100]!r}; open the link it printed.",
            )
        origins = [value for name, value in scope["headers"] if name.lower() == b"origin"]
        if any(origin.decode("latin-1") != f"http://{host}" for origin in origins):
            raise Refused(403, "another page may not ask the explorer; open the link it printed.")
        _, token, *rest = (scope["path"] + "/").split("/", 2)
        if not secrets.compare_digest(token.encode(), self.token.encode()):
            raise Refused(
                403, "this link has no valid token; open the link that the explorer printed last."
            )
        if scope["method"] not in ("GET", "HEAD", "POST"):
            raise Refused(405, "the explorer answers GET and POST alone.")
        path = "/" + rest[0].removesuffix("/") if scope["path"].count("/") > 1 else ""
        return {**scope, "path": path, "raw_path": path.encode()}

    def _is_here(self, host: str) -> bool:
        name, colon, port = host.rpartition(":")
        if not colon or port.endswith("]"):
            name, port = host, "80"
        # A foreign name may have been made to lead to this machine; an address cannot be.
        is_known = name.casefold() in self.names
        is_address = "*" in self.names and ADDRESS.fullmatch(name) is not None
        return port == str(self.port) and (is_known or is_address)


async def _body(receive: Receive, most: int) -> Receive:
    """Read a body of at most so many bytes, and return what hands it to the application."""
    body, more = b"", True
    try:
        async with asyncio.timeout(SECONDS):
            while more:
                message = await receive()
                body += message.get("body", b"")
                more = message.get("more_body", False)
                if len(body) > most:
                    raise Refused(413, f"at most {most:,} bytes are read here; send fewer.")
    except TimeoutError:
        raise Refused(408, f"the rest did not come within {SECONDS:g} seconds.") from None
    whole: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def again() -> Message:
        return whole.pop() if whole else await receive()

    return again


class Turns:
    """Works on one question after the other, and of one page on its newest question alone."""

    def __init__(self) -> None:
        # One thread: those of PyTorch's operators belong to the thread that calls them.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="explorer")
        self._waiting = 0
        self._newest: OrderedDict[str, int] = OrderedDict()

    async def take(self, work: Callable[[], T], *, page: str = "", number: int = 0) -> T:
        """Wait for a turn and work. `number` counts the questions of a page upwards; those of no
        page are never outdated."""
        if self._waiting >= MOST_WAITING:
            raise Refused(503, f"{MOST_WAITING} questions wait already; ask again in a moment.")
        if page:
            self._newest[page] = max(number, self._newest.pop(page, 0))
            while len(self._newest) > MOST_PAGES:
                self._newest.popitem(last=False)

        def turn() -> T:
            if page and number < self._newest.get(page, 0):
                raise Refused(409, "this question is outdated: the page has asked a newer one.")
            return work()

        self._waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, turn)
        finally:
            self._waiting -= 1
