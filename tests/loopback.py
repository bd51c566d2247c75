"""A server on this machine that answers as it is told: well, badly, or never."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

Answer = Callable[["Handler"], None]
PIECE = 1 << 16


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answers: dict[str, Answer] = {}
        # (path, the Range that was asked for)
        self.asked: list[tuple[str, str | None]] = []
        self.over = threading.Event()

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.server_port}{path}"

    def handle_error(self, request, client_address) -> None:
        """A client that has heard enough hangs up."""


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        self.server.asked.append((self.path, self.headers.get("Range")))
        self.server.answers[self.path](self)

    def log_message(self, *_: object) -> None:
        pass

    def begin(self, status: int, **headers: object) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), str(value))
        self.end_headers()

    def first_byte(self) -> int:
        """The byte from which the client wants the file."""
        asked = self.headers.get("Range", "bytes=0-")
        return int(asked.removeprefix("bytes=").removesuffix("-"))


@contextmanager
def serving() -> Iterator[Server]:
    server = Server()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.over.set()
        server.shutdown()
        thread.join()
        server.server_close()


def whole(content: bytes, *, sent: int | None = None, silent: bool = False) -> Answer:
    """The file from the byte that is wanted, cut short after `sent` bytes, or silent from there."""

    def answer(handler: Handler) -> None:
        start, size = handler.first_byte(), len(content)
        if start:
            content_range = {"Content_Range": f"bytes {start}-{size - 1}/{size}"}
            handler.begin(206, Content_Length=size - start, **content_range)
        else:
            handler.begin(200, Content_Length=size)
        handler.wfile.write(content[start:][:sent])
        if silent:
            handler.server.over.wait(20)

    return answer


def without_ranges(content: bytes, *, sent: int | None = None) -> Answer:
    def answer(handler: Handler) -> None:
        handler.begin(200, Content_Length=len(content))
        handler.wfile.write(content[:sent])

    return answer


def endless(status: int = 200, **headers: object) -> Answer:
    """Bytes without an end, and without a word on how many."""

    def answer(handler: Handler) -> None:
        handler.begin(status, **headers)
        while not handler.server.over.is_set():
            handler.wfile.write(bytes(PIECE))

    return answer


def plain(status: int, **headers: object) -> Answer:
    return lambda handler: handler.begin(status, **headers)


def mute(handler: Handler) -> None:
    """Not even a status line."""
    handler.server.over.wait(20)


def garbled(handler: Handler) -> None:
    handler.wfile.write(b"\x1b[31mSSH-2.0-nonsense\n\n")
