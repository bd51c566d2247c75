"""A page in Chromium, on a desk and on a telephone: it asks for nothing, says nothing, fits."""

import json
from pathlib import Path

import pytest
import torch

from torchcaps.data import ImageSet
from torchcaps.models import create_model
from torchcaps.tasks import dissect, write_report

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def page_file(tmp_path_factory):
    """Three untrained networks, dissected, one with windows; names as long as users give."""
    images = ImageSet(
        "noise",
        torch.rand(8, 1, 24, 20, generator=torch.Generator().manual_seed(0)),
        torch.arange(8) % 3,
        ("house", "a-class-with-a-long-name", "tree"),
    )
    found = []
    for name, options in (
        ("mitterreiter_5x16", {"routing": "dynamic"}),
        ("mitterreiter_5x16", {"routing": "uniform"}),
        ("tsai_inverted_simple_c10", {}),
    ):
        torch.manual_seed(0)
        model = create_model(name, image=(1, 24, 20), n_classes=3, **options)
        facts = {"folder": "/a/long/path/without/any/space" * 6}
        label = f"Untrained, {options.get('routing', 'inverted')} <b>"
        found.append(dissect(model, images, label=label, facts=facts))
    path = tmp_path_factory.mktemp("page") / "report.html"
    write_report(found, path)
    return path


@pytest.fixture(params=["light", "dark"])
def opened(request, browser, page_file):
    """The page at a width, with all that it asks for and says."""
    context = browser.new_context(color_scheme=request.param)

    def at(width):
        page = context.new_page()
        page.set_viewport_size({"width": width, "height": 900})
        page.asked, page.said = [], []
        page.on("request", lambda request: page.asked.append(request.url))
        page.on("console", lambda message: page.said.append(message.text))
        page.on("pageerror", lambda error: page.said.append(str(error)))
        page.goto(page_file.as_uri(), wait_until="load")
        # Where the machine is busy, the network may be idle before the page is read to its end.
        page.wait_for_load_state("networkidle")
        return page

    yield at
    context.close()


@pytest.mark.parametrize("width", [1280, 800, 390])
def test_page_is_whole_and_quiet(opened, page_file, width):
    page = opened(width)
    assert [url for url in page.asked if not url.startswith("data:")] == [page_file.as_uri()]
    assert page.said == []
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
    assert len(pictures) == 9 + 9 + 7
    assert all(done and wide > 0 and alt > 0 for done, wide, alt in pictures)
    assert page.title() == "What the network does inside · torchcaps"
    heads = page.evaluate("[...document.querySelectorAll('.verdict')].map(e => e.children.length)")
    assert heads == [7, 7, 7]
    # Each sentence leads to its question.
    links = page.evaluate("[...document.querySelectorAll('.verdict a')].map(e => e.hash)")
    assert all(page.locator(f"section{link}").count() == 1 for link in links)


@pytest.mark.parametrize("width", [1280, 390])
def test_nobody_is_shut_out(opened, width):
    """No fault that axe-core calls serious or critical, with everything unfolded."""
    page = opened(width)
    page.evaluate("document.querySelectorAll('details').forEach(e => { e.open = true })")
    from axe_playwright_python.sync_playwright import Axe

    found = Axe().run(page).response["violations"]
    assert [(each["id"], each["impact"]) for each in found if each["impact"] != "minor"] == []


def test_a_page_is_printed_whole_and_light(opened):
    page = opened(1280)
    page.emulate_media(media="print", color_scheme="dark")
    ground = page.evaluate("getComputedStyle(document.querySelector('.card')).backgroundColor")
    assert ground == "rgb(255, 255, 255)"
    # By which pictures are light, too.
    assert page.evaluate("getComputedStyle(document.documentElement).colorScheme") == "light"
    closed = page.locator("details p").first
    assert closed.bounding_box()["height"] > 0


def test_the_numbers_are_there_to_be_taken_along(opened):
    page = opened(1280)
    with page.expect_download() as download:
        page.get_by_text("All numbers as JSON").click()
    numbers = json.loads(Path(download.value.path()).read_text())
    assert set(numbers) == {f"Untrained, {way} <b>" for way in ("dynamic", "uniform", "inverted")}
    assert numbers["Untrained, dynamic <b>"]["use"]["images"] == 8


def test_six_networks_fit_into_three_megabytes(page_file):
    """Three lie far below half of it."""
    assert page_file.stat().st_size < 1_500_000


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
            "[...document.images].slice(0, 3).map(i => Math.round(i.getBoundingClientRect().top))"
        )
        page.close()
    assert max(tops[1280]) - min(tops[1280]) < 60
    assert tops[390][1] - tops[390][0] > 200
