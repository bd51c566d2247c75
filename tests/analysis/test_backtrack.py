"""The tree of a class on paper, and where nothing leads to it."""

from dataclasses import replace

import torch

import torchcaps as tc
from torchcaps.analysis import backtracked, tree_pixels, tree_size
from torchcaps.types import Capsules, Window
from traces import layer, network


def test_a_tree_of_two_layers_on_paper():
    # Children 0 and 1 choose hidden 0, child 2 chooses hidden 1; hidden 0 chooses class 2.
    hidden = torch.tensor([[[0.9, 0.1], [0.6, 0.4], [0.2, 0.8]]])
    classes = torch.tensor([[[0.1, 0.2, 0.7], [0.5, 0.3, 0.2]]])
    trace = network({"hidden": hidden, "classes": classes})
    low, high = backtracked(trace, 2)
    assert high.tolist() == [[False, False, True], [False, False, False]]
    assert low.tolist() == [[True, False], [True, False], [False, False]]
    low, high = backtracked(trace, 0)
    assert high.nonzero().tolist() == [[1, 0]]
    assert low.nonzero().tolist() == [[2, 1]]


def test_the_size_of_a_tree_on_paper():
    # Of the first image, hidden 0 chooses class 2 and hidden 1 class 0, each with a child of its
    # own. Of the second, both hidden choose class 0, and no child chooses hidden 0.
    hidden = [[[0.9, 0.1], [0.6, 0.4], [0.2, 0.8]], [[0.5, 0.5], [0.1, 0.9], [0.2, 0.8]]]
    classes = [[[0.1, 0.2, 0.7], [0.5, 0.3, 0.2]], [[0.8, 0.1, 0.1], [0.5, 0.3, 0.2]]]
    trace = network({"hidden": hidden, "classes": classes})
    assert tree_size(trace, torch.tensor([2, 0]), n_classes=3).tolist() == [2, 2]
    # Nothing chooses class 1, and so nothing is in its tree.
    assert tree_size(trace, torch.tensor([1, 1]), n_classes=3).tolist() == [0, 0]
    alone = network({"hidden": hidden[1:], "classes": [[[0.8, 0.1, 0.1], [0.2, 0.7, 0.1]]]})
    # The class has a child, hidden 0, which has none.
    assert tree_size(alone, torch.tensor([0]), n_classes=3).tolist() == [1]


def made(name, children, coupling, parents, **more):
    below, above = (Capsules(torch.ones(1, n, 2), torch.ones(1, n)) for n in (children, parents))
    return layer(name, below, torch.as_tensor(coupling)[None], above, **more)


def through_windows():
    """Children on a grid of 1 × 3 positions with 2 types, two windows of 2 positions with 2 parent
    types each, and two classes above the four parents."""
    window = Window((1, 3, 2), (1, 2), (1, 1))
    first = [[0.9, 0.1], [0.5, 0.5], [0.2, 0.8], [0.5, 0.5]]
    second = [[0.7, 0.3], [0.5, 0.5], [0.4, 0.6], [0.1, 0.9]]
    low = made("conv", 6, [first, second], 4, window=window)
    # Only type 1 of window 0 and type 1 of window 1 choose class 0.
    return low, made("classes", 4, [[0.4, 0.6], [0.9, 0.1], [0.5, 0.5], [0.8, 0.2]], 2)


def test_a_tree_through_windows_on_paper():
    trace = through_windows()
    low, high = backtracked(trace, 0)
    assert high.nonzero().tolist() == [[1, 0], [3, 0]]
    # Window 0, slot 2: child 2. Window 1, slots 2 and 3: children 4 and 5.
    assert low.nonzero().tolist() == [[0, 2, 1], [1, 2, 1], [1, 3, 1]]
    # One of two types at the second position, both at the third.
    assert tree_pixels(trace, 0, size=(1, 3)).tolist() == [[0, 0.5, 1]]
    assert tree_pixels(trace, 1, size=(1, 3)).tolist() == [[0.5, 0, 0]]
    assert tree_pixels(trace, 0, size=(4, 6)).shape == (4, 6)
    # Class 0, and parents 1 and 3; class 1, and parent 0, whose children are 0 and 2.
    assert tree_size(trace, torch.tensor([0]), n_classes=2).tolist() == [3]
    assert tree_size(trace, torch.tensor([1]), n_classes=2).tolist() == [2]


def test_loops_over_windows_agree():
    torch.manual_seed(0)
    model = tc.create_model("matrix_capsnet_mnist", image=(1, 20, 20), n_classes=4, sizes="8-2-3-3")
    trace = model.eval()(torch.rand(2, 1, 20, 20), keep="last").trace
    followed = {3}
    for each, edges in zip(reversed(trace), reversed(backtracked(trace, 3, index=1)), strict=True):
        coupling = each.routed.steps[-1].coupling[1]
        coupling = coupling if each.window is not None else coupling[None]
        j, found = coupling.shape[-1], set()
        slots = (
            torch.arange(coupling.shape[1])[None] if each.window is None else each.window.child_id()
        )
        for p in range(len(coupling)):
            for i in range(coupling.shape[1]):
                for k in range(j):
                    leads = bool(coupling[p, i, k] > 1 / j + 1e-6) and p * j + k in followed
                    assert bool(edges.reshape(coupling.shape)[p, i, k]) == leads
                    if leads:
                        found.add(int(slots[p, i]))
        followed = found
    leaves = torch.zeros(4 * 4 * 8)
    leaves[[*followed]] = 1
    assert 0 < len(followed) < len(leaves)
    size = trace[0].window.child_grid[:2]
    assert torch.equal(
        tree_pixels(trace, 3, size=size, index=1).float(), leaves.view(*size, -1).mean(-1)
    )


def test_capsules_on_a_map_below_a_dense_layer_have_a_place():
    (only,) = network({"classes": [[[0.9, 0.1], [0.2, 0.8]]]})
    on_a_map = (replace(only, child_grid=(1, 2, 1)),)
    assert tree_pixels(on_a_map, 1, size=(1, 2)).tolist() == [[0, 1]]


def test_trees_of_several_classes_are_joined():
    trace = through_windows()
    for joined, one, other in zip(
        *(backtracked(trace, each) for each in (range(2), 0, 1)), strict=True
    ):
        assert torch.equal(joined, one | other)
    of_tensor = backtracked(trace, torch.tensor([0, 1]))
    assert all(map(torch.equal, of_tensor, backtracked(trace, range(2))))
