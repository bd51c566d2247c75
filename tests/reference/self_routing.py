"""Self-routing, one sample after another, with loops: [hahn2019]."""

from reference.numbers import samples, scalars, shaped, softmax


def self_routing(votes, activation, poses, weight, bias):
    """Parents [*b, j, d], the couplings [*b, i, j], and the activations of parents [*b, j]."""
    *lead, n_in, n_out, size = votes.shape
    parents, couplings, activations = [], [], []
    w, b = scalars(weight), scalars(bias)
    given = (samples(votes, 3, lead), samples(activation, 1, lead), samples(poses, 2, lead))
    for u_hat, a, p in zip(*given, strict=True):
        c = []
        for i in range(n_in):
            logits = [
                sum((w[i][j][k] * p[i][k] for k in range(len(p[i]))), b[i][j]) for j in range(n_out)
            ]
            c.append(softmax(logits))
        for j in range(n_out):
            r = [a[i] * c[i][j] for i in range(n_in)]
            mass = sum(r)
            parents.append(
                [sum(r[i] * u_hat[i][j][k] for i in range(n_in)) / mass for k in range(size)]
            )
            activations.append(mass / sum(a))
        couplings.append(c)
    return (
        shaped(parents, votes, *lead, n_out, size),
        shaped(couplings, votes, *lead, n_in, n_out),
        shaped(activations, votes, *lead, n_out),
    )
