"""The explorer on a port of this machine, as long as a test asks it."""

import threading
import time
from contextlib import contextmanager

import uvicorn

from torchcaps.explore.server import bound, guarded

TOKEN = "a-token"


@contextmanager
def serving(looker):
    """Its link."""
    listening = bound("127.0.0.1", 0)
    port = listening.getsockname()[1]
    app = guarded(looker, token=TOKEN, port=port)
    server = uvicorn.Server(uvicorn.Config(app, log_level="error", ws="none", lifespan="off"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{port}/{TOKEN}/"
    finally:
        server.should_exit = True
        thread.join(10)
        listening.close()
