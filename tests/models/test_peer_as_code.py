"""Sign networks as in the first version of the code that [peer2022] names, beside that code in
plain loops: costs with ln σ² and λ = 0.01, all first values by one deviation."""

import math

import pytest
import torch

from torchcaps.models import create_model

INVERSE_TEMPERATURE = 0.01
FLOOR = 1e-4


def by_the_code(poses, weight, bias, beta_a, beta_u):
    """One layer of EM of one component: the pose of each parent, a_j times the sign of its mean."""
    n_in, n_out = weight.shape
    active = [abs(pose) for pose in poses]
    votes = [[weight[i, j] * poses[i] + bias[j] for j in range(n_out)] for i in range(n_in)]
    share = [[1 / n_out] * n_out for _ in range(n_in)]
    for t in range(3):
        means, variances, activations = [], [], []
        for j in range(n_out):
            given = [share[i][j] * active[i] for i in range(n_in)]
            mean = sum(g * votes[i][j] for i, g in enumerate(given)) / sum(given)
            squares = sum(g * (votes[i][j] - mean) ** 2 for i, g in enumerate(given))
            variance = squares / sum(given) + FLOOR
            cost = (beta_u[j] + math.log(variance)) * sum(given)
            heat = INVERSE_TEMPERATURE * (1 - 0.95 ** (t + 1))
            means.append(mean)
            variances.append(variance)
            activations.append(1 / (1 + math.exp(-heat * (beta_a[j] - cost))))
        for i in range(n_in):
            likely = [
                activations[j]
                * math.exp(-((votes[i][j] - means[j]) ** 2) / (2 * variances[j]))
                / math.sqrt(2 * math.pi * variances[j])
                for j in range(n_out)
            ]
            share[i] = [x / sum(likely) for x in likely]
    return [a * math.copysign(1, mean) for a, mean in zip(activations, means, strict=True)]


@pytest.mark.parametrize("poses", [True, "code"])
@pytest.mark.parametrize("number", [-0.8, 0.3])
def test_em_is_that_of_the_code(number, poses):
    torch.manual_seed(0)
    chosen = {"bias": True, "as_code": True, "unit_poses": poses}
    network = create_model("peer_sign_em", n_hidden=4, **chosen).double()
    poses = [number]
    for layer in network.layers.values():
        weight = layer.weight[..., 0, 0].tolist()
        assert layer.vote_bias.unique().tolist() == [0.5]
        poses = by_the_code(
            poses,
            torch.tensor(weight, dtype=torch.float64),
            layer.vote_bias.flatten().tolist(),
            # Twice ours: half of the costs at twice the λ.
            (2 * layer.routing.beta_a).tolist(),
            (2 * layer.routing.beta_u).tolist(),
        )
    ours = network(torch.tensor([[[[number]]]], dtype=torch.float64)).scores
    theirs = torch.tensor([abs(pose) for pose in poses], dtype=torch.float64)
    torch.testing.assert_close(ours.flatten(), theirs, rtol=1e-6, atol=0)


def test_first_values_are_of_one_deviation():
    torch.manual_seed(0)
    network = create_model("peer_sign_em", bias=True, as_code=True, n_hidden=4000)
    beta = network.layers["hidden_2"].routing.beta_u
    assert beta.std().item() == pytest.approx(0.25, rel=0.05)
    network = create_model("peer_sign_dynamic", bias="added", as_code=True)
    for layer in network.layers.values():
        assert layer.routing.bias.unique().tolist() == [0.5]
    # Without the option all is as before.
    before = create_model("peer_sign_em", bias=True).layers["classes"]
    assert before.vote_bias.unique().tolist() == [pytest.approx(0.1)]
    assert before.routing.lambda_ == 1.0
