"""EM routing, one sample after another: [peer2022] Alg. 2, with the releases of two other papers.

"paper" is Alg. 2; "official" is the released code of [hinton2018]; "gritzman" is that of
[gritzman2019]. Children compete for parents, so with windows a child that many of them see may
compete once ("all") or once per window ("window").
"""

import math

import torch

from reference.numbers import scalars, shaped, softmax

FLOORS = {"paper": 1e-4, "official": 5e-4, "gritzman": 1e-9}
NO_ACTIVATION = 1e-12


def em_routing(
    votes,
    activation,
    *,
    beta_a,
    beta_u,
    iterations=3,
    variant="paper",
    compete="window",
    child_id=None,
    lambda_=0.01,
    lambda_schedule="growing",
    variance_floor=None,
):
    """Parents [*b, j, d], their activations [*b, j] and a list of couplings [*b, i, j].

    With compete="all" the votes are [*b, p, i, j, d] and the results have the axis p too.
    """
    *lead, n_in, n_out, size = votes.shape
    floor = FLOORS[variant] if variance_floor is None else variance_floor
    if compete == "window":
        windows, child_id = 1, torch.arange(n_in).unsqueeze(0)
    else:
        windows = lead[-1]
    names = child_id.tolist()
    betas = [beta.expand(n_out).unbind() for beta in (beta_a, beta_u)]
    growth = [1 if lambda_schedule == "constant" else 1 - 0.95**t for t in range(1, iterations + 1)]
    lambdas = [lambda_ * each for each in growth]
    poses, activations, couplings = [], [], [[] for _ in range(iterations)]
    samples = zip(
        scalars(votes.reshape(-1, windows, n_in, n_out, size)),
        scalars(activation.reshape(-1, windows, n_in)),
        strict=True,
    )
    for sample, a in samples:
        mu, active, steps = _route(sample, a, names, *betas, variant, lambdas, floor)
        poses.append(mu)
        activations.append(active)
        for t, coupling in enumerate(steps):
            couplings[t].append(coupling)
    return (
        shaped(poses, votes, *lead, n_out, size),
        shaped(activations, votes, *lead, n_out),
        [shaped(coupling, votes, *lead, n_in, n_out) for coupling in couplings],
    )


def _route(votes, activation, names, beta_a, beta_u, variant, lambdas, floor):
    n_out = len(beta_a)
    slots = {}  # child -> every (window, slot) that sees it
    for p, row in enumerate(names):
        for i, name in enumerate(row):
            slots.setdefault(name, []).append((p, i))
    coupling = []
    for row in names:
        shares = [1 if variant == "official" else len(slots[name]) for name in row]
        coupling.append([[beta_a[0].new_tensor(1 / (n_out * k))] * n_out for k in shares])
    mu = [[[0.0] * len(votes[0][0][0])] * n_out for _ in votes]
    steps = []
    for t, inverse_temperature in enumerate(lambdas, start=1):
        how = (beta_a, beta_u, variant, inverse_temperature, floor)
        windows = zip(votes, coupling, activation, mu, strict=True)
        moments = [_m_step(*window, *how) for window in windows]
        mu, var, logit = ([m[k] for m in moments] for k in range(3))
        steps.append(coupling)
        if t < len(lambdas):
            coupling = _e_step(votes, mu, var, logit, slots)
    return mu, [[torch.sigmoid(x) for x in row] for row in logit], steps


def _m_step(votes, coupling, activation, before, beta_a, beta_u, variant, temperature, floor):
    """Mean, variance and activation logit of every parent of one window."""
    n_in, n_out, size = len(votes), len(beta_a), len(votes[0][0])
    mean, variance, logits = [], [], []
    for j in range(n_out):
        r = []
        for i in range(n_in):
            a = activation[i] if activation[i] >= NO_ACTIVATION else NO_ACTIVATION
            r.append(coupling[i][j] * a)
        m = sum(r)
        mu, var = [], []
        for h in range(size):
            x = sum(r[i] * votes[i][j][h] for i in range(n_in)) / m
            if variant == "official":
                x = 0.9 * x + 0.1 * before[j][h]
            mu.append(x)
            spread = sum(r[i] * (votes[i][j][h] - x) ** 2 for i in range(n_in))
            var.append(spread / m + floor)
        if variant == "official":
            volume = sum(torch.log(x) for x in var)
            price = volume + beta_u[j] * size * (math.log(2 * math.pi) + 1)
            logit = temperature * (-m * price - 5000 * beta_a[j])
        else:
            mass = m * 100 * n_out / n_in if variant == "gritzman" else m
            cost = sum((beta_u[j] + torch.log(x) / 2) * mass for x in var)
            logit = temperature * (beta_a[j] - cost)
        mean.append(mu)
        variance.append(var)
        logits.append(logit)
    return mean, variance, logits


def _e_step(votes, mu, var, logit, slots):
    """Couplings: the posterior of the parents of a child, over all windows that see it."""
    n_out, size = len(mu[0]), len(mu[0][0])
    coupling = [[None for _ in window] for window in votes]
    for seen in slots.values():
        log_q = []
        for p, i in seen:
            for j in range(n_out):
                x = torch.nn.functional.logsigmoid(logit[p][j])
                for h in range(size):
                    distance = (votes[p][i][j][h] - mu[p][j][h]) ** 2
                    x = x - torch.log(2 * math.pi * var[p][j][h]) / 2
                    x = x - distance / (2 * var[p][j][h])
                log_q.append(x)
        largest = max(x.item() for x in log_q)  # cancels in the quotient; exp(-800) is zero
        shares = softmax([x - largest for x in log_q])
        for k, (p, i) in enumerate(seen):
            coupling[p][i] = shares[k * n_out : (k + 1) * n_out]
    return coupling
