"""3-D convolutional dynamic routing, one sample after another: [rajasegaran2019].

A child is one type i. A parent j has a row, a column and a type, numbered in this order, so its
type is j % types. The softmax of a child runs over all of them together; the squash takes the norm
of a type's whole map, or that of one parent.
"""

from reference.numbers import constant, samples, scalars, shaped, softmax
from reference.squash import squash as g


def conv3d_routing(
    votes, *, parent_grid, iterations=3, bias=None, squash_over="map", detach="none"
):
    """Parents [*b, j, d] and the couplings [*b, i, j] of every iteration, as a list."""
    *_, types = parent_grid
    *lead, n_in, n_out, size = votes.shape
    bias = scalars(votes.new_zeros(types, size) if bias is None else bias)
    poses, couplings = [], [[] for _ in range(iterations)]
    for u_hat in samples(votes, 3, lead):
        b = scalars(votes.new_zeros(n_in, n_out))
        for t in range(1, iterations + 1):
            u = constant(u_hat) if detach == "votes" and t < iterations else u_hat
            b = constant(b) if detach == "coupling" else b
            c = [softmax(row) for row in b]
            couplings[t - 1].append(c)
            s = [
                [
                    sum((c[i][j] * u[i][j][k] for i in range(n_in)), bias[j % types][k])
                    for k in range(size)
                ]
                for j in range(n_out)
            ]
            v = [g(pose) for pose in s] if squash_over == "pose" else _by_maps(s, types)
            agreed = constant(v) if detach == "states" else v
            for i in range(n_in):
                for j in range(n_out):
                    for k in range(size):
                        b[i][j] = b[i][j] + u[i][j][k] * agreed[j][k]
        poses.append(v)
    return (
        shaped(poses, votes, *lead, n_out, size),
        [shaped(c, votes, *lead, n_in, n_out) for c in couplings],
    )


def _by_maps(s, types):
    """All poses of a type squashed as if they were one."""
    size, v = len(s[0]), [None] * len(s)
    for z in range(types):
        together = g([x for pose in s[z::types] for x in pose])
        v[z::types] = [together[k : k + size] for k in range(0, len(together), size)]
    return v
