"""Every feature of the page in Chromium, on a desk and on a telephone, in light and in darkness."""

import json
import re
import xml.etree.ElementTree as ET

import pytest
from PIL import Image

from served import serving

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def link(looker):
    with serving(looker) as link:
        yield link


class Visit:
    """A page that is watched: what it asks for, what it says, and whether it fits."""

    def __init__(self, browser, link, width=1280, scheme="light"):
        self.link = link
        self.context = browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme=scheme
        )
        self.page = self.context.new_page()
        self.requests, self.said = [], []
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))

    def open(self, hash_=""):
        self.page.goto(self.link + hash_)
        self.settle()
        return self.page

    def settle(self):
        """Wait until nothing is asked any more, and the link is that of the state."""
        self.page.wait_for_selector(".verdict b")
        for _ in range(2):
            # Longer than a frame, and than what is asked when nothing moves any more.
            self.page.wait_for_timeout(350)
            self.page.wait_for_selector("main[aria-busy=false]", timeout=20_000)

    def says(self, at=0):
        return self.page.locator(".pane").nth(at).locator(".verdict").inner_text()

    def check(self):
        """The page fits, is quiet, asks nobody else, and axe finds nothing serious."""
        assert self.page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
        assert self.said == []
        foreign = [u for u in self.requests if not u.startswith((self.link, "data:", "blob:"))]
        assert foreign == []
        from axe_playwright_python.sync_playwright import Axe

        faults = Axe().run(self.page).response["violations"]
        serious = [each for each in faults if each["impact"] in ("serious", "critical")]
        assert [(each["id"], each["nodes"][0]["html"][:200]) for each in serious] == []
        assert self.page.locator("#trouble").is_hidden()


@pytest.fixture
def visit(browser, link):
    visits = []

    def visit(*how):
        visits.append(Visit(browser, link, *how))
        return visits[-1]

    yield visit
    for each in visits:
        each.context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_a_walk_through_every_feature(visit, tmp_path, width, scheme):
    seen = visit(width, scheme)
    page = seen.open()
    assert page.locator(".strip .thumb").count() == 12
    assert "In truth" in page.locator("section", has_text="The true tree").first.inner_text()
    seen.check()

    # Another image, turned: the tree follows, and the link says so.
    before = seen.says()
    page.locator("#strip .thumb").nth(4).click()
    page.locator("#move-turn").fill("40")
    seen.settle()
    assert seen.says() != before
    assert "i=0.4&turn=40" in page.url
    page.locator("#mark-parts").check()
    assert page.locator("#marks circle").count() >= 4

    # A capsule: what leads to it lights up, and the image shows where it looked.
    page.locator("[data-capsule='hidden_3.6']").click()
    seen.settle()
    assert page.locator(".capsule.lit").count() > 1
    assert page.locator("#glow").is_visible()
    card = page.locator(".capsule-card").first
    assert "hidden_3 6" in card.inner_text()
    assert card.locator(".thumb").count() == 8
    seen.check()

    # Silenced, quantised, routed otherwise, not routed.
    plain = seen.says()
    card.get_by_role("button", name="Silence it").click()
    page.locator("#levels-0").select_option("3")
    page.locator("#often-0").fill("9")
    seen.settle()
    # What is silenced is not called dead, and nothing excites it.
    assert "Silenced: its length is held at 0." in card.inner_text()
    assert card.locator(".thumb").count() == 0
    silent = page.locator("[data-capsule='hidden_3.6']").get_attribute("aria-label")
    assert silent.endswith("length 0.00, silenced")
    right, before = (page.locator(".pane > .note").nth(at).inner_text() for at in range(2))
    assert re.fullmatch(r"Right on \d+ of 12 test images(; unchanged inside, on \d+)?\.", right)
    assert before.startswith("Unchanged inside, it says")
    assert "a.it=9&a.k=3&a.off=hidden_3.6" in page.url
    page.locator("#twin-0").click()
    seen.settle()
    # What is off looks off, and says so to a screen reader.
    assert page.locator("#twin-0").get_attribute("aria-pressed") == "true"
    off = page.locator("#chip-hidden_2-0")
    assert "line-through" in off.evaluate("one => getComputedStyle(one).textDecoration")
    even = page.locator("tbody tr", has_text="hidden_4").locator("td")
    assert even.nth(2).inner_text() == even.nth(3).inner_text() == "0.06"
    page.locator("#chip-hidden_2-0").click()
    seen.settle()
    assert "a.even=hidden_3%2Chidden_4%2Cclasses" in page.url
    seen.check()

    # The link alone brings all of it back.
    again = visit(width, scheme)
    again.open(page.url.removeprefix(seen.link))
    assert again.says() == seen.says() != plain

    # Two networks, and what is seen as files.
    page.locator("#more").click()
    seen.settle()
    assert page.locator(".pane").count() == 2
    # It knows other classes than those of the image.
    assert "it is" not in seen.says(1)
    left, right = (page.locator(".pane").nth(at).bounding_box() for at in range(2))
    assert (left["y"] == right["y"]) == (width == 1280)
    seen.check()
    with page.expect_download() as download:
        page.locator("#save-svg").click()
    tree = ET.parse(download.value.path()).getroot()
    assert tree.tag == "{http://www.w3.org/2000/svg}svg"
    assert len(tree.findall(".//{*}path")) > 700
    with page.expect_download() as download:
        page.locator("#save-json").click()
    saved = json.loads(download.value.path().read_text())
    assert [each["network"] for each in saved["seen"]] == ["deep", "windows"]
    assert len(saved["seen"][0]["answer"]["scores"]) == 10
    page.get_by_role("button", name="Take this network away").click()
    seen.settle()
    assert page.locator(".pane").count() == 1

    # Drawn by hand, then a file of one's own.
    page.locator("#draw").click()
    seen.settle()
    page.locator("#pad").scroll_into_view_if_needed()
    box = page.locator("#pad").bounding_box()
    page.mouse.move(box["x"] + 60, box["y"] + 60)
    page.mouse.down()
    page.mouse.move(box["x"] + 120, box["y"] + 150, steps=5)
    page.mouse.up()
    seen.settle()
    page.wait_for_selector("#shows:text-is('A picture of yours.')")
    seen.settle()
    drawn = page.locator("#seen").get_attribute("src")
    again = visit(width, scheme)
    again.open(page.url.removeprefix(seen.link))
    assert again.says() == seen.says()
    page.locator("#invert").click()
    Image.effect_noise((400, 300), 80).save(tmp_path / "mine.png")
    page.locator("#file").set_input_files(tmp_path / "mine.png")
    seen.settle()
    mine = page.locator("#seen").get_attribute("src")
    assert mine != drawn
    seen.check()
    again = visit(width, scheme)
    again.open(page.url.removeprefix(seen.link))
    assert again.page.locator("#seen").get_attribute("src") == mine


def test_keys_do_everything(visit):
    seen = visit()
    page = seen.open()
    page.locator(".capsule[tabindex='0']").focus()
    for key in ("ArrowDown", "ArrowRight", "ArrowRight", "Enter"):
        page.keyboard.press(key)
    seen.settle()
    chosen = page.evaluate("document.activeElement.dataset.capsule")
    assert chosen.startswith("hidden_4.")
    assert f"a.sel={chosen}" in page.url
    page.keyboard.press("s")
    seen.settle()
    assert f"a.off={chosen}" in page.url
    assert page.evaluate("document.activeElement.dataset.capsule") == chosen
    page.keyboard.press("s")
    page.keyboard.press("Escape")
    seen.settle()
    assert "a.sel" not in page.url
    assert "a.off" not in page.url
    # Escape lets go wherever the focus is.
    page.locator(f"[data-capsule='{chosen}']").press("Enter")
    seen.settle()
    assert "a.sel" in page.url
    page.locator("#save-json").press("Escape")
    seen.settle()
    assert "a.sel" not in page.url
    page.locator("#strip .thumb[tabindex='0']").focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    seen.settle()
    assert "i=0.1" in page.url
    page.locator("#draw").press("Enter")
    for key in (" ", "ArrowDown", "ArrowDown", "ArrowRight", " "):
        page.keyboard.press(key)
    seen.settle()
    page.wait_for_selector("#shows:text-is('A picture of yours.')")
    seen.settle()
    page.wait_for_timeout(1000)
    assert page.locator("#aloud").inner_text().startswith("deep says ")


def test_windows_and_trouble_are_told(visit):
    seen = visit(390)
    page = seen.open("#a=1&a.sel=conv_2.3")
    assert page.locator(".frame").count() == 3
    assert "does not know its data; name it with --data" in page.locator("#strip-note").inner_text()
    # Nothing is shown, which no network says.
    assert "the answer means nothing" in page.locator(".pane > .note").nth(1).inner_text()
    seen.check()
    page.goto("about:blank")
    page.goto(f"{seen.link}#a=0&a.sel=nowhere.3")
    page.wait_for_selector("#trouble:not([hidden])")
    assert "no capsule 3 in a layer 'nowhere'" in page.locator("#trouble").inner_text()


def test_a_dragged_slider_drops_what_is_outdated(visit):
    seen = visit()
    page = seen.open()
    page.evaluate(
        """() => {
          const slider = document.getElementById('move-turn');
          const to = (turn) => { slider.value = turn; slider.dispatchEvent(new Event('input')); };
          for (let turn = 0; turn <= 90; turn += 1) setTimeout(to, turn * 4, turn);
        }"""
    )
    page.wait_for_timeout(800)
    seen.settle()
    assert "turn=90" in page.url
    alone = visit()
    alone.open(page.url.removeprefix(seen.link))
    assert alone.says() == seen.says()
    # A 409 of an outdated question is written to the console by Chromium itself.
    assert [each for each in seen.said if "409" not in each] == []
