"""Dynamic routing, one sample after another: [mitterreiter2023] Alg. 1, [peer2022] Alg. 1 and §4.1.

Four readings of where gradients stop: nowhere; at the votes of all but the last iteration; at the
parents of all but the last; at the logits, always. odd_bias puts the bias on the side of s;
agreement is the factor on what a logit grows by.
"""

from reference.numbers import constant, samples, shaped, softmax
from reference.squash import squash as g


def dynamic_routing(
    votes,
    *,
    iterations=3,
    bias=None,
    prior=None,
    odd_bias=False,
    leaky=False,
    squash="hinton",
    detach="none",
    agreement=1.0,
):
    """Parents [*b, j, d] and the couplings [*b, i, j] of every iteration, as a list."""
    *lead, n_in, n_out, size = votes.shape
    bias = votes.new_zeros(n_out, size) if bias is None else bias
    prior = votes.new_zeros(n_in, n_out) if prior is None else prior
    parents, couplings = [], [[] for _ in range(iterations)]
    given = (samples(votes, 3, lead), samples(bias, 2, lead), samples(prior, 2, lead))
    for u_hat, added, b in zip(*given, strict=True):
        for t in range(1, iterations + 1):
            seen = constant(u_hat) if detach == "votes" and t < iterations else u_hat
            if detach == "coupling":
                b = constant(b)
            # The parent "nobody" has logit 0, exp(0) = 1.
            c = [softmax(row, others=1.0 if leaky else 0.0) for row in b]
            v = []
            for j in range(n_out):
                s = [sum(c[i][j] * seen[i][j][k] for i in range(n_in)) for k in range(size)]
                side = 1.0
                if odd_bias:
                    along = sum((s[k] * added[j][k]).item() for k in range(size))
                    side = (along > 0) - (along < 0)
                v.append(g([s[k] + side * added[j][k] for k in range(size)], squash))
            couplings[t - 1].append(c)
            agreed = constant(v) if detach == "states" else v
            for i in range(n_in):
                for j in range(n_out):
                    for k in range(size):
                        b[i][j] = b[i][j] + agreement * seen[i][j][k] * agreed[j][k]
        parents.append(v)
    return (
        shaped(parents, votes, *lead, n_out, size),
        [shaped(c, votes, *lead, n_in, n_out) for c in couplings],
    )
