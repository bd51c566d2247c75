"""Take the pictures of pages that docs/ and the README show, by Chromium.

python docs/pictures.py [PAGE_OF_THE_DEMO]

Writes docs/explorer.png, and docs/report.png of the page that `torchcaps demo` wrote.
"""

import io
import shutil
import sys
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page, sync_playwright

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "tests"))

from chromium import ARGUMENTS, CHROMIUM  # noqa: E402
from served import serving  # noqa: E402
from torchcaps.explore.looking import Looker  # noqa: E402
from torchcaps.explore.opened import of_the_zoo, opened  # noqa: E402

# The third capsule of the classes is draco, which the first image shows.
LINK = "#i=0.0&a=0&a.sel=classes.2"
DEMO = Path("torchcaps-demo/report.html")


def keep(page: Page, name: str, width: int, height: int) -> None:
    """Write what the window shows, in few colours."""
    image = Image.open(io.BytesIO(page.screenshot())).convert("RGB").resize((width, height))
    image.quantize(192, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE).save(
        HERE / name, optimize=True
    )


def main(report: Path) -> None:
    looker = Looker(opened(of_the_zoo()[:2]))
    with serving(looker) as link, sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM or shutil.which("chromium"), args=ARGUMENTS
        )
        page = browser.new_page(viewport={"width": 1280, "height": 980})
        page.goto(link + LINK)
        page.locator("#mark-parts").check()
        page.wait_for_selector(".capsule-card .thumb")
        page.wait_for_selector("main[aria-busy=false]")
        # Bars and lines glide to their places.
        page.wait_for_timeout(500)
        keep(page, "explorer.png", 1280, 980)
        if report.is_file():
            page.set_viewport_size({"width": 1280, "height": 2500})
            page.goto(report.resolve().as_uri())
            keep(page, "report.png", 768, 1500)
        browser.close()


main(Path(sys.argv[1]) if sys.argv[1:] else DEMO)
