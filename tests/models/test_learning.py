"""Initial weights from which a network starts to learn: within two epochs of 2,000 real digits it
loses half of its loss and has three tenths right, more than who knows how often each digit comes.
What was tried and does not is in SLOW_STARTERS with the reason.
"""

import os

import pytest
import torch

from torchcaps import create_model, list_models
from torchcaps.data import load
from torchcaps.layers import DistanceRouting, EMRouting, InvertedRouting, SelfAttentionRouting
from torchcaps.ops import (
    binary_cross_entropy_loss,
    cross_entropy_loss,
    margin_loss,
    reconstruction_loss,
)

IMAGES = 2000

# Name, options, batch size, learning rate.
LEARNERS = [
    ("efficient_capsnet", {}, 25, 1e-3),
    ("rem_eff_mnist", {}, 25, 1e-3),
    ("rem_eff_norb", {}, 25, 1e-3),
    ("gamma_capsnet", {}, 25, 1e-3),
    ("rem_gamma", {}, 25, 1e-3),
    ("tsai_inverted_simple_c10", {}, 32, 1e-3),
    ("tsai_inverted_simple_c10_d36", {}, 32, 1e-3),
    ("tsai_inverted_simple_c10_d64", {}, 32, 1e-3),
    ("tsai_inverted_simple_c100", {}, 32, 1e-3),
    ("tsai_inverted_resnet_c10", {}, 32, 1e-3),
    ("tsai_inverted_resnet_c100", {}, 32, 1e-3),
    ("tsai_dmm_matrix", {}, 32, 1e-3),
    # Seen by a script alone: 87 % right in the second epoch, whose mean loss is 0.65 of the start.
    ("peer_deep_em", {"n_layers": 5, "bias": True}, 10, 2e-3),
    ("peer_deep_dynamic", {"n_layers": 5, "bias": "added"}, 10, 1e-3),
]
# Tried, and not there after two epochs.
SLOW_STARTERS = {
    "matrix_capsnet": "a third is right, at 0.83 of the loss; activations above the first layer "
    "are 0.03 and hardly depend on the image; its authors train it for hundreds of thousands of "
    "steps",
    "tsai_dmm_vector": "the loss falls from 7.9 to 3.3, still more than equal logits cost, with "
    "accuracy at chance; one learning rate was tried",
    **dict.fromkeys(
        ("tsai_em_simple_c10", "tsai_em_resnet_c10"),
        "class activations start at 0.88 and the loss falls as all of them do, by half in one "
        "epoch, with accuracy at chance",
    ),
}
# On MNIST's ten classes these are the very networks beside them, but for that of 42 million
# parameters, of which one epoch alone was tried: the loss fell from 7.5 to 2.3, with 64 % right.
ALIKE = {
    "rem_eff_cifar": "rem_eff_mnist",
    "rem_eff_svhn": "rem_eff_mnist",
    "tsai_dmm_matrix_42m": "tsai_dmm_matrix",
    "tsai_em_simple_c100": "tsai_em_simple_c10",
    "tsai_em_resnet_c100": "tsai_em_resnet_c10",
}
KINDS = (EMRouting, InvertedRouting, DistanceRouting, SelfAttentionRouting)


@pytest.mark.parametrize("name", list_models())
def test_every_network_of_these_kinds_is_accounted_for(name):
    with torch.device("meta"):
        model = create_model(name)
    routed = any(isinstance(part, KINDS) for part in model.modules())
    tried = {row[0] for row in LEARNERS} | set(SLOW_STARTERS)
    assert set(ALIKE.values()) <= tried
    if routed and not name.startswith("peer_sign"):
        assert (name in tried) != (name in ALIKE)


def loss_of(out, y, x):
    if out.scores_are == "lengths":
        loss = margin_loss(out.scores, y)
    elif out.scores_are == "logits":
        loss = cross_entropy_loss(out.scores, y)
    else:
        loss = binary_cross_entropy_loss(out.scores, y, scores_are=out.scores_are)
    if out.reconstruction is not None:
        loss = loss + 0.0005 * reconstruction_loss(out.reconstruction, x)
    return loss


def digits():
    root = os.environ.get("TORCHCAPS_DATA")
    if root is None:
        pytest.skip("TORCHCAPS_DATA is not set; it names the folder that holds MNIST/raw")
    data = load("mnist", split="train", root=root)
    first = torch.arange(IMAGES)
    return data.pixels(first), data.labels[first]


@pytest.mark.slow
@pytest.mark.data
@pytest.mark.parametrize(
    ("name", "options", "batch", "rate"), LEARNERS, ids=[row[0] for row in LEARNERS]
)
def test_loss_falls_by_half_in_two_epochs(name, options, batch, rate):
    x, y = digits()
    model = create_model(name, image=(1, 28, 28), n_classes=10, **options)
    optimiser = torch.optim.Adam(model.parameters(), lr=rate)

    def of_all():
        """The mean loss, and the share that is right."""
        loss = right = 0.0
        with torch.no_grad():
            for a, b in zip(x.split(100), y.split(100), strict=True):
                out = model(a, b)
                loss += float(loss_of(out, b, a)) * len(b)
                right += int((out.scores.argmax(-1) == b).sum())
        return loss / IMAGES, right / IMAGES

    start, _ = of_all()
    for _ in range(2):
        for index in torch.randperm(IMAGES).split(batch):
            loss = loss_of(model(x[index], y[index]), y[index], x[index])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
    loss, right = of_all()
    assert loss < start / 2
    assert right > 0.3
