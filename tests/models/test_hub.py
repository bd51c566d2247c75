"""Networks go to a hub and come back, and whatever is wrong there is a sentence."""

import json
import re
import sys

import pytest
import safetensors.torch
import torch

import hub as local
import torchcaps as tc
from error_text import text_of
from torchcaps.models.files.saving import content_of
from torchcaps.tasks.trained import open_trained

# Of the library about the client that it uses itself.
pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")

SMALL = {"image": (1, 12, 11), "n_classes": 3, "decoder": False}
FILE = "model.safetensors"


@pytest.fixture
def hub(monkeypatch, tmp_path):
    from huggingface_hub import constants
    from huggingface_hub.utils import disable_progress_bars

    disable_progress_bars()
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    # Its storage is another protocol, of a library of its own.
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    monkeypatch.setenv("HF_TOKEN", "good")
    with local.running() as found:
        monkeypatch.setenv("HF_ENDPOINT", found.url)
        yield found


@pytest.fixture
def network():
    torch.manual_seed(0)
    return tc.create_model("mitterreiter_5x16", **SMALL).eval()


def test_a_network_comes_back_by_the_name_that_push_gives(hub, network):
    name = tc.push(network, "me/small", private=True)
    assert re.fullmatch("hf-hub:me/small@[0-9a-f]{40}", name)
    images = torch.rand(2, 1, 12, 11)
    expected = network(images).scores
    for each in (name, "hf-hub:me/small"):
        found = tc.load(each)
        assert found.config == network.config
        assert torch.equal(found(images).scores, expected)
    (files,) = hub.repos["me/small"].values()
    assert set(files) == {FILE, "README.md"}
    assert files[FILE] == content_of(network)
    card = files["README.md"].decode()
    assert card.startswith("---\nlibrary_name: torchcaps\npipeline_tag: image-classification\n")
    assert "for images of 1×12×11 and 3 classes." in card
    assert 'model = tc.load("hf-hub:me/small")' in card
    # An older commit is the older network.
    tc.push(tc.create_model("efficient_capsnet", decoder=False), "me/small", card="mine")
    assert tc.load(name).config == network.config
    assert tc.load("hf-hub:me/small").config["name"] == "efficient_capsnet"
    assert list(hub.repos["me/small"].values())[-1]["README.md"] == b"mine"


def test_of_a_network_of_the_zoo_the_card_is_told(hub):
    tc.push("zoo:mitterreiter_5x16.part-whole-uniform", "me/twin")
    (files,) = hub.repos["me/twin"].values()
    assert '"right": 1981' in files["README.md"].decode()
    kept = safetensors.torch.load(files[FILE])
    assert kept["layers.hidden_2.weight"].dtype == torch.float32
    # Every command opens it as it opens a file.
    assert open_trained("hf-hub:me/twin").image == (1, 32, 32)


def test_of_a_run_recipe_and_result_are_told(hub, network, tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    tc.save(network, run / FILE)
    (run / "recipe.json").write_text('{"epochs": 7}')
    (run / "result.json").write_text('{"test_accuracy": 0.5, "measures": {"of": "classes"}}')
    tc.push(run, "me/run")
    card = next(iter(hub.repos["me/run"].values()))["README.md"].decode()
    assert '"epochs": 7' in card
    assert '"test_accuracy": 0.5' in card
    assert "measures" not in card


def said(name):
    return text_of(lambda: tc.load(f"hf-hub:{name}"))


def test_what_is_not_there_is_said(hub):
    hub.commit("me/other", {"pytorch_model.bin": b"x"})
    assert said("me/none") == (
        "there is no me/none on the hub that you may use; is the name right, and are you logged "
        "in (hf auth login, or HF_TOKEN)?"
    )
    assert said("me/other@v2") == (
        "me/other has no revision v2; is it a branch, a tag or a commit of it?"
    )
    assert said("me/other") == "me/other has no model.safetensors; was it pushed by torchcaps?"
    for name in ("other", "me/other@", "me/o/ther", "me/../x y"):
        assert said(name) == (
            f"a network on a hub is named OWNER/NAME, or OWNER/NAME@REVISION, but came as {name!r}."
        )
    assert said("me/" + "x" * 120).startswith("the hub takes no such name as me/xxx")


def test_who_is_not_known_may_not_push(hub, network, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "bad")
    found = text_of(lambda: tc.push(network, "me/small"))
    assert found.startswith("there is no me/small on the hub that you may use; ")
    assert hub.repos == {}


@pytest.mark.parametrize("how", ["offline", "unreachable"])
def test_without_a_hub_what_is_in_the_cache_opens(hub, network, monkeypatch, how):
    from huggingface_hub import constants

    name = tc.push(network, "me/small")
    tc.load(name)
    hub.commit("me/never", {FILE: content_of(network)})
    if how == "offline":
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    else:
        monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
        monkeypatch.setattr("time.sleep", lambda seconds: None)  # between its attempts
    assert tc.load(name).config == network.config
    found = said("me/never")
    assert found.startswith("the hub did not give or take me/never (")
    assert found.endswith(
        "), and no copy of it is on this machine; is there a network, and is HF_ENDPOINT right "
        "where it is set?"
    )


def test_a_file_that_was_changed_is_refused(hub, network):
    content = bytearray(content_of(network))
    content[-1] ^= 1
    hub.commit("me/small", {FILE: bytes(content)})
    assert "is damaged: its tensors or its configuration are not those that were" in said(
        "me/small"
    )
    header = safetensors.torch.load(content_of(network))
    bare = {**network.config}
    hub.commit("me/bare", {FILE: safetensors.torch.save(header, {"torchcaps": json.dumps(bare)})})
    assert said("me/bare") == (
        "model.safetensors of me/bare has no digest, so nobody can say whether it is whole; have "
        "it saved and pushed again by a torchcaps of today."
    )


HOSTILE = {
    "it is code": (b"\x80\x04cos\nsystem\n", "is not a readable safetensors file ("),
    "of torch.save": (b"PK\x03\x04", "was written by torch.save, and load reads what"),
    "no tensors": (b"", "is not a readable safetensors file ("),
}
CONFIGS = {
    "unknown network": ({"name": "os.system"}, "holds the network 'os.system', which is unknown"),
    "a class to import": ({"name": "own", "class": "os.system"}, ""),
    "too large": ({"widths": "99999999,99999999"}, ""),
    "no option": ({"__class__": "x"}, ""),
    "of no kind": ({"image": [[1]], "n_classes": {}}, ""),
}


@pytest.mark.parametrize("why", HOSTILE)
def test_what_is_no_network_is_refused(hub, why):
    content, words = HOSTILE[why]
    hub.commit("me/evil", {FILE: content})
    assert words in said("me/evil")


@pytest.mark.parametrize("why", CONFIGS)
def test_a_hostile_configuration_is_a_sentence(hub, network, why):
    from torchcaps.models.files.saving import _digest

    changed, words = CONFIGS[why]
    config = {**network.config, **changed}
    state = network.state_dict()
    # Whoever writes a file can write its digest.
    text = json.dumps(config | {"sha256": _digest(state, json.loads(json.dumps(config)))})
    hub.commit("me/evil", {FILE: safetensors.torch.save(state, {"torchcaps": text})})
    assert words in said("me/evil")


def test_without_the_extra_a_sentence_names_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'torchcaps\[hub\]'\.$"):
        tc.load("hf-hub:me/small")
