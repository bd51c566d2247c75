"""One file with a network inside: what it holds, and what it refuses by name."""

import io
import json
import re
from itertools import product

import pytest
import torch
from PIL import Image

from torchcaps.analysis.trace import capsule_layers, lengths
from torchcaps.errors import TorchcapsError
from torchcaps.explore.export import write_page
from torchcaps.explore.opened import opened
from torchcaps.models import create_model, save


@pytest.fixture
def exported(tmp_path):
    """Write the page of a network that was just made; its path."""

    def exported(name="mitterreiter_5x16", **options):
        network = create_model(name, **{"image": (1, 24, 24), "n_classes": 3, **options})
        save(network, tmp_path / "network.safetensors")
        write_page(opened([tmp_path / "network.safetensors"]), tmp_path / "page.html")
        return tmp_path / "page.html"

    return exported


def test_a_page_is_one_file_that_asks_for_nothing(exported):
    page = exported(decoder=False).read_text(encoding="utf-8")
    assert len(page) < 3 << 20
    assert not re.search(r"(src|href)=\"(?!data:)[^\"]*\"", page.partition("<script")[0])
    assert "import {" not in page
    assert re.search(r"default-src 'none';[^\"]*img-src data: blob:", page)
    given = json.loads(re.search(r'<script id="given"[^>]*>(.*?)</script>', page)[1])
    assert [layer["routing"] for layer in given["program"]["layers"]] == ["dynamic"] * 4
    assert given["images"] == []


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("matrix_capsnet", {"sizes": "4-2-3-3"}, "its layer conv_1 see each other through windows"),
        ("capsnet", {}, r"its weights fill [\d,]{9,} bytes, and at most 2,097,152 are held"),
        ("mitterreiter_5x16", {"routing": "em"}, "its layer hidden_2 routes by EMRouting"),
        ("rem_eff_norb", {"image": (2, 48, 48)}, "it has a LeakyReLU that the page does not know"),
        ("deepcaps", {"image": (1, 28, 28)}, "cannot be computed by a page alone"),
    ],
)
def test_what_a_page_cannot_compute_is_refused_by_name(exported, name, options, words):
    with pytest.raises(TorchcapsError, match=words) as said:
        exported(name, **options)
    assert str(said.value).startswith("network cannot be computed by a page alone: ")
    assert str(said.value).endswith("Explore it with a server: leave --export out.")


def test_a_page_holds_one_network_and_is_html(laid, tmp_path):
    with pytest.raises(TorchcapsError, match="holds one network, but 2 were named"):
        write_page(opened([laid / "windows.safetensors"] * 2), tmp_path / "page.html")
    with pytest.raises(TorchcapsError, match=r"the page must end in \.html, but is page\.txt"):
        write_page(opened([]), tmp_path.__class__("page.txt"))


WAYS = [
    ("mitterreiter_5x16", {"decoder": False}),
    ("mitterreiter_grid", {"decoder": False, "routing": "uniform", "head": True, "widths": "9,7"}),
    ("mitterreiter_5x16", {"decoder": False, "bias": True, "agreement": 0.3, "image": (3, 20, 22)}),
    ("efficient_capsnet", {"decoder": False, "standardise": ([0.2], [0.4])}),
    ("capsnet", {"decoder": False, "width": 8, "types": 2, "sharing": "type"}),
    ("gu_capsnet_nor", {"decoder": False, "width": 8, "types": 2, "image": (1, 24, 24)}),
]


@pytest.mark.browser
@pytest.mark.parametrize(("name", "options"), WAYS)
def test_chromium_gives_the_numbers_of_torch(browser, exported, name, options):
    path = exported(name, **options)
    (network,) = opened([path.with_name("network.safetensors")]).networks
    pixels = torch.rand(100, *network.image, generator=torch.Generator().manual_seed(0))
    page = browser.new_page()
    said = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.goto(path.as_uri())
    page.wait_for_selector(".verdict b")
    found = page.evaluate(
        """(images) => images.map((pixels) => {
          const { scores, links } = explorer.network.run(Float32Array.from(pixels));
          return [scores, links.map((link) => Array.from(link.coupling))];
        })""",
        pixels.flatten(1).tolist(),
    )
    with torch.no_grad():
        out = network.model(pixels, keep="last")
    scores = torch.tensor([each[0] for each in found])
    assert (scores - out.probabilities()).abs().max() < 1e-4
    for at, layer in enumerate(out.trace):
        coupling = layer.routed.steps[-1].coupling
        ours = torch.tensor([each[1][at] for each in found]).view_as(coupling)
        assert (ours - coupling).abs().max() < 1e-4
    assert said == []
    page.close()


def covered_one_by_one(looker, state):
    """How much the length of the selected capsule changes as each of 7 × 7 places is covered."""
    pixels = looker._pixels(0, state.shown)
    images, ends = [pixels], [round(24 * k / 7) for k in range(8)]
    for y, x in product(range(7), range(7)):
        images.append(pixels.clone())
        images[-1][..., ends[y] : ends[y + 1], ends[x] : ends[x + 1]] = pixels.mean()
    out = looker._ask(0, torch.cat(images), state.changed, None)
    name, capsule = state.selected
    long = lengths(dict(capsule_layers(out.trace))[name])[:, capsule]
    return (long[1:] - long[0]).abs().tolist()


@pytest.mark.browser
def test_a_page_alone_does_what_the_server_does(browser, looker, laid, tmp_path):
    """The same link on both: the same words, the same lines, whatever is changed inside."""
    from laid_runs import tiny_images
    from torchcaps.data import SOURCES
    from torchcaps.explore.state import Changed, Shown, State

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(SOURCES, "tiny", tiny_images(20))
        write_page(opened([laid / "deep"]), tmp_path / "page.html")
    page = browser.new_page()
    page.goto((tmp_path / "page.html").as_uri())
    page.wait_for_selector(".verdict b")
    shown = Shown(collection=0, number=3, turn=25, x=0.1, y=-0.05, scale=1.2, shear=0.2)
    for changed, selected in (
        (Changed(), None),
        (Changed(iterations=6, levels=5), ("hidden_3", 4)),
        (Changed(silenced=(("hidden_2", 1),), even=("classes",)), ("classes", 2)),
    ):
        state = State(shown=shown, changed=changed, selected=selected)
        theirs = looker.look(state)
        ours = page.evaluate("(state) => explorer.ask.look(0, state)", state.model_dump())
        assert ours["scores"] == pytest.approx(theirs["scores"], abs=2e-4)
        assert ours["before"] == pytest.approx(theirs["before"], abs=2e-4)
        for one, other in zip(ours["links"], theirs["links"], strict=True):
            lines = {(i, j): c for i, j, c, _ in other["lines"]}
            assert {(i, j): c for i, j, c, _ in one["lines"]} == pytest.approx(lines, abs=2e-4)
        if selected is not None:
            glow = page.evaluate("(state) => explorer.ask.glow(state)", state.model_dump())
            assert glow["lost"] == pytest.approx(covered_one_by_one(looker, state), abs=2e-4)
            assert glow["saliency"].startswith("data:image/png;base64,")
            assert {k: sorted(v) for k, v in ours["lit"]["capsules"].items()} == {
                k: sorted(v) for k, v in theirs["lit"]["capsules"].items()
            }
    # Transparent places of a picture are white on both.
    clear = io.BytesIO()
    Image.new("RGBA", (24, 24)).save(clear, format="PNG")
    state = State(shown=Shown(picture=looker.pictures.add(clear.getvalue())))
    ours = page.evaluate(
        """async ([content, state]) => {
          const { picture } = await explorer.ask.picture(new Blob([Uint8Array.from(content)]));
          return explorer.ask.look(0, { ...state, shown: { ...state.shown, picture } });
        }""",
        [list(clear.getvalue()), state.model_dump()],
    )
    assert ours["scores"] == pytest.approx(looker.look(state)["scores"], abs=2e-4)
    page.close()
