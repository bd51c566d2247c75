"""Who may ask the explorer, how much, and what an answer looks like."""

import asyncio
import base64
import io
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from PIL import Image
from starlette.testclient import TestClient
from starlette.websockets import WebSocketDisconnect

from laid_pictures import png
from tables import beside
from torchcaps.explore.guard import MOST_WAITING, Refused, Turns
from torchcaps.explore.pictures import decoded
from torchcaps.explore.server import guarded, page_files
from torchcaps.explore.state import Shown

TOKEN, HOST = "a-token", "127.0.0.1:8123"
PAGE = {"host": HOST, "origin": f"http://{HOST}"}
ASKED = beside(__file__, "asked.toml")["asked"]


@pytest.fixture(scope="module")
def client(looker):
    app = guarded(looker, token=TOKEN, port=8123)
    with TestClient(app, base_url=f"http://{HOST}", raise_server_exceptions=False) as client:
        yield client


def ask(client, path, state=None, **how):
    return client.post(f"/{TOKEN}/api/{path}", json=state or {}, headers=PAGE, **how)


def picture(kind="PNG", size=(30, 20), colour="red"):
    buffer = io.BytesIO()
    Image.new("RGB", size, colour).save(buffer, format=kind)
    return buffer.getvalue()


def bomb(width, height):
    """A PNG of a few bytes that claims to be large."""
    return png(width, height, [], colour=2)


def test_the_page_and_its_files_come_with_a_strict_policy(client):
    page = client.get(f"/{TOKEN}/")
    assert page.status_code == 200
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert page.headers["referrer-policy"] == "no-referrer"
    for name in set(page_files()) - {"index.html"}:
        assert client.get(f"/{TOKEN}/page/{name}").status_code == 200, name


@pytest.mark.parametrize(("path", "headers", "status", "words"), ASKED, ids=repr)
def test_whoever_may_not_ask_is_told_so(client, path, headers, status, words):
    # As raw bytes, or the client would tidy the path up.
    url = client.base_url.copy_with(raw_path=path.replace("TOKEN", TOKEN).encode())
    headers = [(name, value.replace("HOST", HOST)) for name, value in headers]
    answer = client.get(url, headers=headers)
    assert (answer.status_code, words in answer.text) == (status, True), answer.text


def test_told_to_listen_everywhere_it_goes_by_addresses_and_no_other_name(looker):
    app = guarded(looker, token=TOKEN, port=8123, host="0.0.0.0")
    with TestClient(app, base_url=f"http://{HOST}") as client:
        for host, status in (("10.0.0.7:8123", 200), ("[fe80::1]:8123", 200), ("a.b:8123", 421)):
            answer = client.get(f"/{TOKEN}/api/about", headers={"host": host})
            assert answer.status_code == status


@pytest.mark.parametrize("host", ["127.0.0.1:8123", "localhost:8123", "[::1]:8123"])
def test_this_machine_may_ask(client, host):
    answer = client.get(f"/{TOKEN}/api/about", headers={"host": host, "origin": f"http://{host}"})
    assert answer.status_code == 200
    assert [each["label"] for each in answer.json()["networks"]] == ["deep", "windows"]


def test_other_methods_and_sockets_are_refused(client):
    for method in ("PUT", "DELETE", "OPTIONS", "PATCH"):
        assert client.request(method, f"/{TOKEN}/api/look").status_code == 405
    with pytest.raises(WebSocketDisconnect), client.websocket_connect(f"/{TOKEN}/"):
        pass


def test_a_question_is_answered(client):
    state = {"shown": {"collection": 0, "number": 2}, "selected": ["classes", 1]}
    answer = ask(client, "look", state)
    assert answer.status_code == 200
    assert len(answer.json()["scores"]) == 10
    assert len(client.get(f"/{TOKEN}/api/images/0").json()) == 12
    assert len(ask(client, "over", state).json()["lengths"]) == 12


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        (b"{", 422, "not understood"),
        (b'{"shown": {"turn": NaN}}', 422, "shown.turn"),
        (b'{"shown": {"scale": 1e9}}', 422, "shown.scale: Input should be less than or equal"),
        (b'{"changed": {"iterations": 11}}', 422, "changed.iterations"),
        (b'{"path": "/etc/passwd"}', 422, "path: Extra inputs are not permitted"),
        (b'{"\\n": 1}', 422, r"understood: \n: Extra inputs are not permitted"),
        (b'{"selected": ["classes", 99]}', 400, "this network has no capsule 99"),
        (b"[" * 60_000, 400, "not understood"),
        (b" " * 70_000, 413, "at most 65,536 bytes are read here"),
    ],
)
def test_a_bad_question_is_a_sentence(client, body, status, words):
    kind = {"content-type": "application/json"}
    answer = client.post(f"/{TOKEN}/api/look", content=body, headers=PAGE | kind)
    assert (answer.status_code, words in answer.text) == (status, True), answer.text
    assert answer.text.count("\n") == 1


def test_a_dropped_picture_is_shown(client, looker):
    sent = client.post(f"/{TOKEN}/api/picture", content=picture("JPEG"), headers=PAGE)
    assert sent.status_code == 200
    digest = sent.json()["picture"]
    pixels = looker._pixels(0, Shown(picture=digest))
    assert pixels.shape == (1, 1, 24, 24)
    assert float(pixels.mean()) == pytest.approx(1 / 3, abs=0.02)
    assert ask(client, "look", {"shown": {"picture": digest}}).status_code == 200


def test_a_picture_is_held_as_the_link_of_the_page_has_it(client, looker):
    """What comes back is small, and sent again by whoever opens the link gives the same pixels."""
    buffer = io.BytesIO()
    Image.effect_noise((400, 300), 80).save(buffer, format="PNG")
    held, content = [], buffer.getvalue()
    for _ in range(2):
        sent = client.post(f"/{TOKEN}/api/picture", content=content, headers=PAGE).json()
        held.append(looker.pictures.get(sent["picture"]))
        content = base64.b64decode(sent["png"].partition(",")[2])
    # The size of the larger network.
    assert held[0].shape == (3, 24, 24)
    assert held[0].equal(held[1])


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "I;16"])
def test_a_large_picture_of_any_mode_is_made_smaller(mode):
    buffer = io.BytesIO()
    Image.new(mode, (1200, 600), 65535 if mode == "I;16" else 0).save(buffer, format="PNG")
    pixels = decoded(buffer.getvalue())
    assert pixels.shape == (3, 256, 512)
    # Transparent places become white, as on a page.
    assert float(pixels.mean()) == (1 if mode in ("LA", "RGBA", "I;16") else 0)


@pytest.mark.parametrize(
    ("content", "status", "words"),
    [
        (b"", 400, "could not be read as a picture"),
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", 400, "could not be read as a picture"),
        (picture()[:60], 400, "could not be read as a picture"),
        (picture("TIFF"), 400, "none of PNG, JPEG, WEBP, BMP"),
        (picture("GIF"), 400, "none of PNG, JPEG, WEBP, BMP"),
        (bomb(60_000, 60_000), 400, "claims more pixels than Pillow opens"),
        (bomb(4_001, 4_000), 400, "at most 16,000,000 are decoded"),
        (bomb(100, 100), 400, "could not be read as a picture"),
        (b"x" * ((8 << 20) + 1), 413, "at most 8,388,608 bytes"),
    ],
)
def test_a_hostile_picture_is_a_sentence(client, content, status, words):
    answer = client.post(f"/{TOKEN}/api/picture", content=content, headers=PAGE)
    assert (answer.status_code, words in answer.text) == (status, True), answer.text


def in_a_loop(work):
    """Run it to its end, beside the loop that Playwright may have left in this thread."""
    with ThreadPoolExecutor(1) as other:
        return other.submit(asyncio.run, work).result()


def test_an_outdated_question_is_not_worked_on():
    """While one is worked on, two more come of the same page: the first of them is dropped."""
    turns, hold, worked = Turns(), threading.Event(), []

    async def page():
        first = asyncio.create_task(turns.take(hold.wait, page="p", number=1))
        await asyncio.sleep(0.01)
        second = asyncio.create_task(turns.take(lambda: worked.append(2), page="p", number=2))
        other = asyncio.create_task(turns.take(lambda: worked.append("other"), page="q", number=1))
        await asyncio.sleep(0.01)
        third = asyncio.create_task(turns.take(lambda: worked.append(3), page="p", number=3))
        await asyncio.sleep(0.01)
        hold.set()
        return await asyncio.gather(first, second, other, third, return_exceptions=True)

    _, second, *_ = in_a_loop(page())
    turns._thread.shutdown()
    assert isinstance(second, Refused)
    assert second.status == 409
    assert worked == ["other", 3]


def test_of_too_many_that_wait_the_last_are_refused():
    turns, hold = Turns(), threading.Event()

    async def crowd():
        every = [asyncio.create_task(turns.take(hold.wait)) for _ in range(MOST_WAITING + 3)]
        await asyncio.sleep(0.02)
        hold.set()
        return await asyncio.gather(*every, return_exceptions=True)

    found = in_a_loop(crowd())
    turns._thread.shutdown()
    refused = [each for each in found if isinstance(each, Refused)]
    assert [each.status for each in refused] == [503] * 3


def test_a_fault_is_a_sentence_without_a_traceback(client, looker, monkeypatch):
    def broken(state):
        raise RuntimeError("inside")

    monkeypatch.setattr(looker, "look", broken)
    answer = ask(client, "look")
    assert answer.status_code == 500
    assert answer.text == (
        "the explorer could not answer, by a fault of its own or for want of memory: "
        "RuntimeError.\n"
    )
