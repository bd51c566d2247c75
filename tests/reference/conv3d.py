"""3-D convolutional dynamic routing, one sample after another: [rajasegaran2019].

A child is one type i. A parent has a row y, a column x and a type z. The softmax of a child runs
over y, x and z together; the squash takes the norm of a type's whole map, or that of one parent.
"""

import torch

from reference.squash import scalars
from reference.squash import squash as g


def conv3d_routing(
    votes, *, parent_grid, iterations=3, bias=None, squash_over="map", detach="none"
):
    """Parents [*b, j, d] and the couplings [*b, i, j] of every iteration, as a list."""
    height, width, types = parent_grid
    *lead, n_in, n_out, size = votes.shape
    bias = scalars(votes.new_zeros(types, size) if bias is None else bias)
    poses, couplings = [], [[] for _ in range(iterations)]
    for sample in votes.reshape(-1, n_in, height, width, types, size):
        parents, steps = _route(scalars(sample), parent_grid, iterations, bias, squash_over, detach)
        poses += parents
        for t, c in enumerate(steps):
            couplings[t] += c
    return (
        torch.stack(poses).reshape(*lead, n_out, size),
        [torch.stack(c).reshape(*lead, n_in, n_out) for c in couplings],
    )


def _route(votes, grid, iterations, bias, squash_over, detach):
    """Numbers in the order (y, x, z, k), and for each iteration in the order (i, y, x, z)."""
    height, width, types = grid
    places = [(y, x, z) for y in range(height) for x in range(width) for z in range(types)]
    size = len(bias[0])
    b = [dict.fromkeys(places, torch.zeros_like(votes[0][0][0][0][0])) for _ in votes]
    steps = []
    for t in range(iterations):
        u = _constant(votes) if detach == "votes" and t < iterations - 1 else votes
        b = _constant(b) if detach == "coupling" else b
        c = []
        for logits in b:
            total = sum(torch.exp(logits[place]) for place in places)
            c.append({place: torch.exp(logits[place]) / total for place in places})
        steps.append([row[place] for row in c for place in places])
        s = {}
        for y, x, z in places:
            for k in range(size):
                total = bias[z][k]
                for i, row in enumerate(c):
                    total = total + row[y, x, z] * u[i][y][x][z][k]
                s[y, x, z, k] = total
        v = {}
        for group in _squashed_together(places, size, types, squash_over):
            v |= dict(zip(group, g([s[index] for index in group]), strict=True))
        agreed = _constant(v) if detach == "states" else v
        for i, logits in enumerate(b):
            for y, x, z in places:
                for k in range(size):
                    logits[y, x, z] = logits[y, x, z] + u[i][y][x][z][k] * agreed[y, x, z, k]
    return [v[(*place, k)] for place in places for k in range(size)], steps


def _constant(numbers):
    """The same without gradients."""
    if isinstance(numbers, dict):
        return {place: number.detach() for place, number in numbers.items()}
    if isinstance(numbers, list):
        return [_constant(each) for each in numbers]
    return numbers.detach()


def _squashed_together(places, size, types, squash_over):
    if squash_over == "map":
        return [
            [(y, x, z, k) for y, x, z in places for k in range(size) if z == kind]
            for kind in range(types)
        ]
    return [[(*place, k) for k in range(size)] for place in places]
