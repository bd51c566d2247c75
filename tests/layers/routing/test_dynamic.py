"""Dynamic routing as a module: what it hands to its op."""

import torch

from layers.routing.bound import SIZE, bound
from torchcaps.layers import DynamicRouting
from torchcaps.ops import dynamic_routing


def test_dynamic_hands_every_option_to_its_op():
    votes = torch.randn(3, *SIZE)
    given = {"iterations": 2, "leaky": True, "squash": "exp", "detach": "votes"}
    mine = bound(DynamicRouting(**given))(votes, None, keep="steps")
    op = dynamic_routing(votes, **given, keep="steps")
    for a, b in zip(mine.steps, op.steps, strict=True):
        assert torch.equal(a.coupling, b.coupling)
    assert torch.equal(mine.parents.pose, op.parents.pose)
    for changed in ({"iterations": 3}, {"leaky": False}, {"squash": "hinton"}):
        other = dynamic_routing(votes, **given | changed)
        assert not torch.equal(mine.parents.pose, other.parents.pose)


def test_a_prior_changes_nothing_before_training():
    votes = torch.randn(3, *SIZE)
    learned = bound(DynamicRouting(prior="learned"))(votes, None)
    zero = bound(DynamicRouting(prior="zero"))(votes, None)
    torch.testing.assert_close(learned.parents.pose, zero.parents.pose)
