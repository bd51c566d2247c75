"""A page in Chromium, on a desk and on a telephone: it asks for nothing, says nothing, fits."""

import pytest
import torch

from torchcaps.data import ImageSet
from torchcaps.models import create_model
from torchcaps.tasks import dissect, write_report

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def page_file(tmp_path_factory):
    """Two untrained networks, dissected; names as long as users give."""
    images = ImageSet(
        "noise",
        torch.rand(8, 1, 14, 12, generator=torch.Generator().manual_seed(0)),
        torch.arange(8) % 3,
        ("house", "a-class-with-a-long-name", "tree"),
    )
    found = []
    for routing in ("dynamic", "uniform"):
        torch.manual_seed(0)
        model = create_model("mitterreiter_5x16", image=(1, 14, 12), n_classes=3, routing=routing)
        facts = {"folder": "/a/long/path/without/any/space" * 6}
        found.append(dissect(model, images, label=f"Untrained, {routing} <b>", facts=facts))
    path = tmp_path_factory.mktemp("page") / "report.html"
    write_report(found, path)
    return path


@pytest.mark.parametrize("width", [1280, 800, 390])
def test_page_is_whole_and_quiet(browser, page_file, width):
    page = browser.new_page(viewport={"width": width, "height": 900})
    requests, said = [], []
    page.on("request", lambda request: requests.append(request.url))
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    # Where the machine is busy, the network may be idle before the page is read to its end.
    page.goto(page_file.as_uri(), wait_until="load")
    page.wait_for_load_state("networkidle")
    assert [url for url in requests if not url.startswith("data:")] == [page_file.as_uri()]
    assert said == []
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    tables = page.evaluate(
        "[...document.querySelectorAll('.scroll')].map(e => [e.scrollWidth, e.clientWidth])"
    )
    assert len(tables) >= 4
    assert all(wide <= room for wide, room in tables)
    # A number stands beside its name, in the head of its table or in its row.
    names = page.evaluate(
        "[...document.querySelectorAll('.wide td:nth-child(2)')].map("
        "e => getComputedStyle(e, '::before').content)"
    )
    assert all(name == "none" for name in names) == (width == 1280)
    pictures = page.evaluate(
        "[...document.images].map(i => [i.complete, i.naturalWidth, i.alt.length])"
    )
    assert len(pictures) == 12
    assert all(done and wide > 0 and alt > 0 for done, wide, alt in pictures)
    assert page.title() == "What the network does inside · torchcaps"
    heads = page.evaluate("[...document.querySelectorAll('.verdict')].map(e => e.children.length)")
    assert len(heads) == 2
    assert min(heads) >= 3
    page.close()


def test_what_slipped_into_a_page_is_not_run_and_asks_for_nothing(browser, page_file, tmp_path):
    planted = tmp_path / "planted.html"
    evil = '<script>document.title = "run"</script><img src="other.png" onerror="document.title=1">'
    planted.write_text(page_file.read_text().replace("<h1>", f"{evil}<h1>"))
    (tmp_path / "other.png").write_bytes(b"?")
    page, refused = browser.new_page(), []
    page.on("console", lambda message: refused.append(message.text))
    page.goto(planted.as_uri(), wait_until="load")
    assert page.title() == "What the network does inside · torchcaps"
    assert sum("Content Security Policy" in each for each in refused) >= 3
    page.close()


def test_pictures_stand_side_by_side_on_a_desk_and_below_each_other_on_a_telephone(
    browser, page_file
):
    tops = {}
    for width in (1280, 390):
        page = browser.new_page(viewport={"width": width, "height": 900})
        page.goto(page_file.as_uri())
        tops[width] = page.evaluate(
            "[...document.images].slice(0, 2).map(i => Math.round(i.getBoundingClientRect().top))"
        )
        page.close()
    assert abs(tops[1280][0] - tops[1280][1]) < 60
    assert tops[390][1] - tops[390][0] > 200
