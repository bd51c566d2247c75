"""Networks too large to be made: what is said, and that what is said helps."""

import re

import pytest
import torch

from error_text import text_of
from torchcaps import create_model
from torchcaps.models import limits
from torchcaps.models.limits import LARGEST, heaviest, in_bytes

LARGE = {"image": (3, 224, 224), "n_classes": 200}


def refusal(name, **size):
    return text_of(lambda: create_model(name, **size))


def largest(name, **size):
    with torch.device("meta"):
        return heaviest(create_model(name, **size))[1].nbytes


def test_each_remedy_helps():
    assert largest("capsnet", **LARGE) > LARGEST
    assert largest("capsnet", **LARGE, sharing="type") <= LARGEST
    assert largest("capsnet", image=(3, 88, 88), n_classes=200) <= LARGEST
    assert largest("capsnet", image=(3, 90, 90), n_classes=200) > LARGEST
    made = create_model("rem_effconv", **LARGE)
    with torch.no_grad():
        assert made(torch.rand(1, *LARGE["image"])).scores.shape == (1, 200)


@pytest.mark.parametrize("name", ["gamma_capsnet", "rem_dr", "convnet_fc"])
def test_others_are_refused_with_remedies_of_their_own(name):
    text = refusal(name, image=(3, 600, 400), n_classes=200)
    assert re.search(r"\(1\) .*; \(2\) .*; \(3\) ", text)
    channels, height, width = map(int, re.search(r"images of (\d+)×(\d+)×(\d+) or", text).groups())
    assert largest(name, image=(channels, height, width), n_classes=200) <= LARGEST
    assert ("sharing" in text) == (name == "rem_dr")


def test_a_decoder_too_large_is_told_to_go(monkeypatch):
    monkeypatch.setattr(limits, "LARGEST", 60 << 20)
    text = refusal("capsnet", image=(3, 80, 80), n_classes=2, sharing="all")
    assert "would need decoder." in text
    assert "decoder=False" in text
    create_model("capsnet", image=(3, 80, 80), n_classes=2, sharing="all", decoder=False)


def test_the_memory_of_the_machine_is_a_limit_too(monkeypatch):
    monkeypatch.setattr(limits, "_memory", lambda: 10 << 20)
    assert "10.5 MB is the most that is made" in refusal("capsnet", image=(1, 40, 40))


def test_what_takes_no_memory_is_not_refused():
    with torch.device("meta"):
        assert create_model("capsnet", **LARGE).layers["classes"].weight.shape[0] == 346_112


def test_looking_draws_no_random_numbers():
    torch.manual_seed(0)
    expected = torch.rand(2)
    torch.manual_seed(0)
    refusal("capsnet", **LARGE)
    assert torch.equal(torch.rand(2), expected)


@pytest.mark.parametrize(
    ("size", "words"),
    [(999, "999 bytes"), (1500, "1.5 kB"), (123_456_789, "123 MB"), (2.5e12, "2,500 GB")],
)
def test_sizes_in_words(size, words):
    assert in_bytes(size) == words
