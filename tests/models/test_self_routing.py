"""Networks with self-routing: printed sizes, scores that are likelihoods, poses that are means."""

import pytest
import torch
from torch.nn.functional import cross_entropy, nll_loss

from torchcaps import create_model
from torchcaps.models.self_routing import _Padded

SMALL = {"image": (1, 16, 16), "n_classes": 3, "types": 4, "d_pose": 6}


@pytest.mark.parametrize(("name", "channels"), [("hahn_sr_resnet20", 3), ("hahn_sr_convnet", 1)])
def test_sizes_are_those_of_the_code(name, channels):
    with torch.device("meta"):
        network = create_model(name)
    assert network.image == (channels, 32, 32)
    assert network.primary_grid == {3: (8, 8, 32), 1: (4, 4, 16)}[channels]
    # Without capsules, with a linear layer on the mean, it has those of the code's AVG: 269,722
    # for ten classes, 144,309 for five.
    maps = sum(each.numel() for each in network.backbone.parameters())
    assert maps + {3: 64 * 10 + 10, 1: 128 * 5 + 5}[channels] == {3: 269_722, 1: 144_309}[channels]


def trained(steps=3):
    torch.manual_seed(0)
    network = create_model("hahn_sr_convnet", **SMALL)
    image, target = torch.rand(12, 1, 16, 16), torch.arange(12) % 3
    optimiser = torch.optim.SGD(network.parameters(), lr=0.3)
    losses = []
    for _ in range(steps):
        loss = cross_entropy(network(image).scores, target)
        losses.append(float(loss.detach()))
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return network.eval(), image, target, losses


def test_it_begins_undecided_and_learns():
    network, _, _, losses = trained(steps=30)
    assert losses[0] == pytest.approx(torch.tensor(3.0).log().item())
    assert losses[-1] < 0.5 * losses[0]
    assert network.layers["classes"].routing.weight.abs().max() > 0


def test_scores_are_logarithms_of_shares():
    network, image, target, _ = trained()
    out = network(image, keep="last")
    assert out.scores_are == "logits"
    shares = out.classes.activation
    torch.testing.assert_close(shares.sum(-1), torch.ones(12))
    torch.testing.assert_close(out.probabilities(), shares)
    torch.testing.assert_close(cross_entropy(out.scores, target), nll_loss(shares.log(), target))
    assert shares.std() > 1e-4
    # A class is the sum of what the children give it, by hand.
    step, children = out.trace[0].routed.steps[0], out.trace[0].children
    given = children.activation.unsqueeze(-1) * step.coupling
    torch.testing.assert_close(shares, given.sum(1) / children.activation.sum(1, keepdim=True))
    means = given.mT @ children.pose / given.sum(1).unsqueeze(-1)
    torch.testing.assert_close(out.classes.pose, means)


def test_a_class_that_nobody_chooses_has_a_finite_score():
    network, image, target, _ = trained(steps=1)
    with torch.no_grad():
        network.layers["classes"].routing.bias[:, 0] = -200
    scores = network(image).scores
    assert scores.isfinite().all()
    loss = cross_entropy(scores, target)
    loss.backward()
    assert all(weight.grad.isfinite().all() for weight in network.parameters())


def test_a_padded_shortcut_by_hand():
    features = torch.arange(2 * 3 * 3.0).view(1, 2, 3, 3)
    made = _Padded()(features)
    assert made.shape == (1, 4, 2, 2)
    assert not made[:, [0, 3]].any()
    assert made[0, 1].tolist() == [[0, 2], [6, 8]]
    assert made[0, 2].tolist() == [[9, 11], [15, 17]]
