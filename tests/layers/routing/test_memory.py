"""What a routing holds at a time is no more for many iterations than for a few.

Tensors are counted that operators give; what these hold within is tested with each of them."""

import gc
import weakref

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from torchcaps import Capsules
from torchcaps.layers import DenseCapsules, make_routing, use_backend

# Couplings are larger than children, weights and the parents of nine iterations; votes are eight
# times as large.
SIZES = {"n_in": 200, "d_in": 4, "n_out": 8, "d_out": 8}
BATCH, COUPLINGS = 64, 64 * 200 * 8 * 4


class Held(TorchDispatchMode):
    """Bytes of tensors as large as couplings, at most at once."""

    def __init__(self):
        super().__init__()
        self.alive, self.most = {}, 0

    def __torch_dispatch__(self, function, types, arguments=(), options=None):
        made = function(*arguments, **(options or {}))
        for x in tree_leaves(made):
            if isinstance(x, torch.Tensor) and x.untyped_storage().nbytes() >= COUPLINGS:
                storage = x.untyped_storage()
                if storage._cdata not in self.alive:
                    self.alive[storage._cdata] = storage.nbytes()
                    weakref.finalize(storage, self.alive.pop, storage._cdata)
        self.most = max(self.most, sum(self.alive.values()))
        return made


def held(name, way, iterations):
    torch.manual_seed(0)
    layer = DenseCapsules(**SIZES, routing=make_routing(name, iterations=iterations))
    use_backend(layer, way)
    pose = torch.randn(BATCH, 200, 4)
    children = Capsules(pose.requires_grad_(), pose.detach().norm(dim=-1))
    gc.collect()
    with Held() as found:
        layer(children).parents.pose.square().sum().backward()
    return found.most


@pytest.mark.drawn(4)
@pytest.mark.parametrize("way", ["fused", "native"])
@pytest.mark.parametrize(
    ("name", "couplings"), [("distance", 0), ("dynamic", 0), ("em", 5), ("inverted", 0)]
)
def test_it_does_not_grow_with_iterations(name, couplings, way):
    assert held(name, way, 3) == held(name, way, 9) <= couplings * COUPLINGS


@pytest.mark.drawn(4)
@pytest.mark.parametrize("name", ["distance", "dynamic", "em", "inverted"])
def test_it_does_where_votes_are_made(name):
    few, many = (held(name, "plain", iterations) for iterations in (3, 9))
    # Of dynamic routing couplings alone, of six iterations more.
    assert many >= few + 6 * COUPLINGS
    assert few > 3 * 8 * COUPLINGS
