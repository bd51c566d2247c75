"""Every routing keeps the public contract, and the contract calls every fault by its name."""

import inspect
import re
from functools import partial
from typing import NamedTuple

import pytest
import torch

from reference.conv3d import conv3d_routing as conv3d_twin
from reference.distance import distance_routing as distance_twin
from reference.dynamic import dynamic_routing as dynamic_twin
from reference.em import em_routing as em_twin
from reference.inverted import inverted_routing as inverted_twin
from reference.self_attention import self_attention_routing as self_attention_twin
from reference.self_routing import self_routing as self_routing_twin
from reference.uniform import uniform_routing as uniform_twin
from torchcaps.errors import TorchcapsError
from torchcaps.layers import DynamicRouting, Routing, SelfAttentionRouting, UniformRouting
from torchcaps.ops import (
    conv3d_routing,
    distance_routing,
    dynamic_routing,
    em_routing,
    inverted_routing,
    self_attention_routing,
    self_routing,
    uniform_routing,
)
from torchcaps.ops.squashing import squash
from torchcaps.testing import CLAUSES, RoutingContractError, assert_routing_contract
from torchcaps.types import Capsules, Routed, Step


class Entry(NamedTuple):
    name: str
    routing: object
    reference: object
    declared: dict


def over_parents(votes):
    return torch.full_like(votes[..., 0], 1 / votes.shape[-2])


def over_parents_and_nobody(votes):
    return torch.full_like(votes[..., 0], 1 / (votes.shape[-2] + 1))


def like(votes, options):
    """The parameters among the options in the dtype and on the device of the votes."""
    return {key: x.to(votes) if torch.is_tensor(x) else x for key, x in options.items()}


def dynamic(name, *, declared=None, **options):
    def routing(votes, *, keep):
        return dynamic_routing(votes, **like(votes, options), keep=keep)

    def reference(votes):
        parents, couplings = dynamic_twin(votes, **like(votes, options))
        return parents, couplings[-1]

    declared = {"first_iteration": over_parents} | (declared or {})
    return Entry(f"dynamic-{name}", routing, reference, declared)


def uniform(name, *, declared=None, **options):
    def routing(votes, *, keep):
        return uniform_routing(votes, **like(votes, options), keep=keep)

    def reference(votes):
        return uniform_twin(votes, **like(votes, options))

    declared = {"fixed_coupling": True} | (declared or {})
    return Entry(f"uniform-{name}", routing, reference, declared)


def self_attention(name, *, declared=None, **options):
    def routing(votes, *, keep):
        return self_attention_routing(votes, **like(votes, options), keep=keep)

    def reference(votes):
        return self_attention_twin(votes, **like(votes, options))

    return Entry(f"self-attention-{name}", routing, reference, declared or {})


def by_themselves(name, weight, bias, *, declared=None):
    """Children that see nothing of the votes but by the poses that the contract makes of them."""

    def given(votes):
        return {"weight": weight.to(votes), "bias": bias.to(votes)}

    def routing(votes, *, poses, keep):
        active = as_their_votes_lean(votes)
        return self_routing(votes, active, poses=poses, **given(votes), keep=keep)

    def reference(votes, *, poses):
        active = as_their_votes_lean(votes)
        return self_routing_twin(votes, active, poses, **given(votes))

    declared = {"fixed_coupling": True, "sizes": [OWN_SIZE]} | (declared or {})
    return Entry(f"self-routing-{name}", routing, reference, declared)


def of_one_length(votes):
    """Some votes are longer, some shorter."""
    return votes.new_full(votes.shape[:-2], 1.2)


def of_growing_lengths(votes):
    return torch.linspace(0.8, 1.6, votes.shape[-3]).to(votes).expand(votes.shape[:-2])


def distance(name, *, lengths=of_one_length, declared=None, **options):
    def routing(votes, *, keep):
        return distance_routing(votes, lengths(votes), **like(votes, options), keep=keep)

    def reference(votes):
        parents, couplings, _ = distance_twin(votes, lengths(votes), **like(votes, options))
        return parents, couplings[-1]

    declared = {"first_iteration": over_parents} | (declared or {})
    return Entry(f"distance-{name}", routing, reference, declared)


def conv3d(name, *, grid, declared=None, **options):
    """`grid` makes the parent grid of the number of parents: the contract brings several."""

    def routing(votes, *, keep):
        given = like(votes, options)
        return conv3d_routing(votes, parent_grid=grid(votes.shape[-2]), **given, keep=keep)

    def reference(votes):
        given = like(votes, options)
        parents, couplings = conv3d_twin(votes, parent_grid=grid(votes.shape[-2]), **given)
        return parents, couplings[-1]

    declared = {"first_iteration": over_parents} | (declared or {})
    return Entry(f"conv3d-{name}", routing, reference, declared)


def one_map(n_out):
    return (1, n_out, 1)


def one_position(n_out):
    return (1, 1, n_out)


def two_maps(n_out):
    return (2, n_out // 4, 2)


def em(name, *, declared=None, **options):
    """Children of one activation and, unless betas are given, parents of one price."""

    def given(votes):
        betas = {"beta_a": torch.tensor(0.5), "beta_u": torch.tensor(0.2)}
        return votes.new_full(votes.shape[:-2], 0.7), like(votes, betas | options)

    def routing(votes, *, keep):
        activation, own = given(votes)
        return em_routing(votes, activation, **own, keep=keep)

    def reference(votes):
        activation, own = given(votes)
        pose, parent_activation, couplings = em_twin(votes, activation, **own)
        return pose, couplings[-1], parent_activation

    declared = {"first_iteration": over_parents} | (declared or {})
    return Entry(f"em-{name}", routing, reference, declared)


def as_their_votes_lean(votes):
    """Child activations that change places with the children, and none with the parents. In double:
    with huge votes their gradients are more than float16 can hold."""
    return votes.double().mean((-2, -1)).sigmoid()


def inverted(name, *, normed=False, active=False, declared=None, **options):
    """`normed`: a LayerNorm as training begins, of any size. `active`: with activations."""

    def given(votes):
        made = like(votes, options)
        if normed:
            size = votes.shape[-1]
            made["norm"] = votes.new_ones(size), votes.new_zeros(size)
        if active:
            made["activation"] = as_their_votes_lean(votes)
            made |= {"beta_a": votes.new_tensor(0.5), "beta_u": votes.new_tensor(0.2)}
        return made

    def routing(votes, *, keep):
        return inverted_routing(votes, **given(votes), keep=keep)

    def reference(votes):
        parents, couplings, activations = inverted_twin(votes, **given(votes))
        twin = parents, couplings[-1], activations
        return twin if active else twin[:2]

    declared = {"first_iteration": over_parents} | (declared or {})
    return Entry(f"inverted-{name}", routing, reference, declared)


GENERATOR = torch.Generator().manual_seed(7)
N_IN, N_OUT, SIZE = OWN_SIZE = (5, 3, 4)
BIAS = torch.randn(N_OUT, SIZE, generator=GENERATOR, dtype=torch.float64) / 5
PRIOR = torch.randn(N_IN, N_OUT, generator=GENERATOR, dtype=torch.float64) / 5
CHOICE = torch.randn(N_IN, N_OUT, SIZE, generator=GENERATOR, dtype=torch.float64)
SAME_CHOICE = CHOICE[:1].expand_as(CHOICE)
BIAS_OF_TYPES = torch.randn(2, 2, generator=GENERATOR, dtype=torch.float64) / 5


def prior_against_nobody(votes):
    """Nobody has the logit zero."""
    mass = PRIOR.to(votes).exp()
    return (mass / (mass.sum(-1, keepdim=True) + 1)).expand(votes.shape[:-1])


WITH_BIAS = {"sizes": [OWN_SIZE], "interchangeable": "children"}
WITH_PRIOR = {
    "sizes": [OWN_SIZE],
    "interchangeable": "neither",
    "first_iteration": lambda votes: PRIOR.to(votes).softmax(-1).expand(votes.shape[:-1]),
}
LEAKY = {"leftover": True, "first_iteration": over_parents_and_nobody}
STOPPED = {"stops_gradient": True}
# Added after the softmax: sums are free, signs are the bias's own business.
ADDED = {"sizes": [OWN_SIZE], "interchangeable": "neither", "normalised_over": "none"}
# A parent of one type cannot take the place of one of another: they have a norm and a bias each.
TWO_MAPS = {"sizes": [(3, 12, 2)], "interchangeable": "children"}

# Votes that cancel leave rounding errors, and five iterations of LayerNorm make poses of them.
DEAF = {"fixed_coupling": True}


def after_start(votes):
    return (votes * BIAS.to(votes)).sum(-1).softmax(-1)


WITH_START = {
    "sizes": [OWN_SIZE],
    "interchangeable": "children",
    "first_iteration": after_start,
}

ROUTINGS = [
    dynamic("default"),
    dynamic("one-iteration", iterations=1, declared={"fixed_coupling": True}),
    dynamic("two-iterations", iterations=2),
    dynamic("five-iterations", iterations=5),
    dynamic("squash-exp", squash="exp"),
    dynamic("squash-none", squash="none", iterations=2),
    dynamic("leaky", leaky=True, declared=LEAKY),
    dynamic("leaky-exp", leaky=True, squash="exp", declared=LEAKY),
    dynamic("detach-votes", detach="votes", declared=STOPPED),
    dynamic("detach-states", detach="states", declared=STOPPED),
    dynamic("detach-coupling", detach="coupling", declared=STOPPED),
    dynamic("agreement", agreement=0.3),
    dynamic("bias", bias=BIAS, declared=WITH_BIAS),
    dynamic("odd-bias", bias=BIAS, odd_bias=True, declared=WITH_BIAS),
    dynamic("prior", prior=PRIOR, declared=WITH_PRIOR),
    dynamic(
        "everything",
        bias=BIAS,
        prior=PRIOR,
        leaky=True,
        squash="exp",
        detach="votes",
        declared=WITH_PRIOR
        | {
            "stops_gradient": True,
            "leftover": True,
            "first_iteration": prior_against_nobody,
        },
    ),
    em("paper"),
    em("official", variant="official"),
    em("gritzman", variant="gritzman"),
    em("one-iteration", iterations=1, declared={"fixed_coupling": True}),
    em("large-lambda-and-floor", lambda_=1.0, variance_floor=0.5, iterations=4),
    em("constant-lambda", lambda_=0.1, lambda_schedule="constant"),
    em("betas", beta_a=BIAS[:, 0], beta_u=BIAS[:, 1], lambda_=1.0, declared=WITH_BIAS),
    uniform("softmax", declared={"first_iteration": over_parents}),
    uniform("softmax-exp", squash="exp"),
    uniform("softmax-none", squash="none"),
    uniform("mean", normalise="mean", declared={"normalised_over": "children"}),
    uniform("bias", bias=BIAS, declared=WITH_BIAS),
    inverted("default"),
    inverted("one-iteration", iterations=1, declared={"fixed_coupling": True}),
    inverted("three-iterations", iterations=3, scale=0.5),
    inverted("norm", normed=True),
    inverted("norm-five-iterations", normed=True, iterations=5, declared=DEAF),
    inverted("start", start=BIAS, declared=WITH_START),
    inverted("activations", active=True, lambda_=0.3),
    inverted(
        "everything",
        normed=True,
        active=True,
        iterations=3,
        start=BIAS,
        declared=WITH_START,
    ),
    self_attention("default"),
    self_attention("squash-none", squash="none"),
    self_attention("bias", bias=PRIOR.abs(), declared=ADDED),
    distance("default"),
    distance("one-iteration", iterations=1, declared={"fixed_coupling": True}),
    distance("five-iterations", iterations=5),
    distance("batch", scale="batch", declared={"batch_statistics": True}),
    distance("stored", scale=torch.tensor([0.8, 0.6])),
    distance("squash-exp", squash="exp"),
    distance("lengths", lengths=of_growing_lengths, declared={"interchangeable": "parents"}),
    distance("detach-votes", detach="votes", declared=STOPPED),
    distance("detach-iterations", detach="iterations", declared=STOPPED),
    distance("bias", bias=BIAS, declared=WITH_BIAS),
    distance(
        "everything",
        lengths=of_growing_lengths,
        iterations=4,
        scale="batch",
        bias=BIAS,
        p=0.8,
        squash="exp",
        detach="votes",
        declared={
            "sizes": [OWN_SIZE],
            "interchangeable": "neither",
            "batch_statistics": True,
            "stops_gradient": True,
        },
    ),
    by_themselves("first", 0 * CHOICE, 0 * PRIOR, declared={"first_iteration": over_parents}),
    by_themselves("learned", CHOICE, PRIOR, declared={"interchangeable": "neither"}),
    by_themselves("same-matrix", SAME_CHOICE, 0 * PRIOR, declared={"interchangeable": "children"}),
    conv3d("one-map", grid=one_map),
    conv3d("one-position", grid=one_position),
    conv3d("one-iteration", grid=one_map, iterations=1, declared={"fixed_coupling": True}),
    conv3d("two-maps", grid=two_maps, bias=BIAS_OF_TYPES, declared=TWO_MAPS),
    conv3d("pose", grid=two_maps, bias=BIAS_OF_TYPES, squash_over="pose", declared=TWO_MAPS),
]


# A second or two each, and nearest to another line.
LONG = {
    "conv3d-one-map",
    "conv3d-one-position",
    "conv3d-pose",
    "distance-bias",
    "distance-detach-votes",
    "distance-five-iterations",
    "distance-lengths",
    "distance-one-iteration",
    "distance-squash-exp",
    "distance-stored",
    "dynamic-five-iterations",
    "dynamic-leaky-exp",
    "dynamic-squash-exp",
    "dynamic-two-iterations",
    "em-large-lambda-and-floor",
    "inverted-activations",
    "inverted-norm-five-iterations",
    "inverted-three-iterations",
}


@pytest.mark.parametrize(
    "entry",
    [
        pytest.param(entry, id=entry.name, marks=pytest.mark.slow if entry.name in LONG else ())
        for entry in ROUTINGS
    ],
)
def test_routing_keeps_the_contract(entry, device):
    errors = assert_routing_contract(
        entry.routing, reference=entry.reference, device=device, **entry.declared
    )
    assert {"call", "shape", "dtype", "keep", "parity", "finite"} <= set(errors) <= set(CLAUSES)
    assert errors["parity"] <= 1e-10
    assert errors["keep"] == 0


@pytest.mark.drawn(3)
@pytest.mark.parametrize("entry", ROUTINGS, ids=lambda entry: entry.name)
def test_zero_votes_have_a_second_derivative(entry):
    # torch.linalg.vector_norm has NaN there.
    size = entry.declared.get("sizes", [OWN_SIZE])[0]
    votes = torch.zeros(*size, dtype=torch.float64, requires_grad=True)
    taken = inspect.signature(entry.routing).parameters
    beside = {"poses": votes.mean(-2)} if "poses" in taken else {}
    parents, steps, _ = entry.routing(votes, keep="last", **beside)
    given = [*parents, steps[-1].coupling]
    score = sum(x.square().sum() + x.sum() for x in given if x is not None)
    (first,) = torch.autograd.grad(score, votes, create_graph=True)
    (second,) = torch.autograd.grad(first.square().sum() + first.sum(), votes)
    assert first.isfinite().all()
    assert second.isfinite().all()


def route(
    votes,
    *,
    keep,
    couple=lambda logits: logits.softmax(-1),
    g=squash,
    sign=1.0,
    iterations=3,
    before=lambda votes: votes,
    agree=lambda parents: parents,
    record=lambda coupling: coupling,
):
    """Dynamic routing with holes in which to put a fault."""
    votes = before(votes)
    logits = torch.zeros_like(votes[..., 0])
    for _ in range(iterations):
        coupling = couple(logits)
        pose = g(torch.einsum("...ij,...ijd->...jd", coupling, votes))
        logits = logits + sign * torch.einsum("...ijd,...jd->...ij", votes, agree(pose))
    parents = Capsules(pose, torch.linalg.vector_norm(pose, dim=-1))
    steps = () if keep == "none" else (Step(None, record(coupling), parents),)
    return Routed(parents, steps)


def centred_over_batch(votes):
    return votes - votes.mean(0, keepdim=True) if votes.ndim > 3 else votes


def first_child_twice(votes):
    return torch.cat([2 * votes[..., :1, :, :], votes[..., 1:, :, :]], -3)


def first_parent_twice(votes):
    return torch.cat([2 * votes[..., :1, :], votes[..., 1:, :]], -2)


def unguarded_squash(s):
    norm = (s * s).sum(-1, keepdim=True).sqrt()
    return norm / (1 + norm**2) * s


def squash_in_half(s):
    square = (s * s).sum(-1, keepdim=True)
    return s * square / (1 + square) / (square + 1e-8).sqrt()


def squeezed(votes, *, keep):
    parents, steps, _ = route(votes, keep=keep)
    return Routed(Capsules(parents.pose.squeeze(), parents.activation.squeeze()), steps)


def in_float64(votes, *, keep):
    return route(votes.double(), keep=keep)


def noisy_when_watched(votes, *, keep):
    return route(votes if keep == "none" else votes + 1e-12, keep=keep)


def forgetful(votes, *, keep):
    return route(votes, keep="none")


def four_axes_only(votes, *, keep):
    _batch, _n_in, _n_out, _size = votes.shape
    return route(votes, keep=keep)


def broken(**fault):
    return partial(route, **fault)


# Name, routing, the clause it breaks, the cause the message must name.
def window_over(axis):
    """Weights that are the same from both ends along an axis of the votes."""

    def weigh(votes):
        n = votes.shape[axis]
        weight = torch.hann_window(n + 2, periodic=False, dtype=votes.dtype)[1:-1] + 0.5
        return votes * weight.view(-1, *[1] * (-axis - 1))

    return weigh


def centred_over_inner_axis(votes):
    return votes - votes.mean(-4, keepdim=True) if votes.ndim > 4 else votes


WRONG = [
    ("window over children", broken(before=window_over(-3)), "child_permutation", "child"),
    ("window over parents", broken(before=window_over(-2)), "parent_permutation", "parent"),
    ("inner leak", broken(before=centred_over_inner_axis), "batch_independence", "batch axis"),
    ("nothing returned", lambda votes, *, keep: None, "call", "the parents alone"),
    ("a tensor returned", lambda votes, *, keep: votes.sum(-3), "call", "the parents alone"),
    (
        "no coupling",
        lambda votes, *, keep: Routed(Capsules(votes.sum(-3)), (Step(None, None, None),)),
        "call",
        "the parents alone",
    ),
    ("softmax over children", broken(couple=lambda b: b.softmax(-2)), "normalisation", "children"),
    ("batch leak", broken(before=centred_over_batch), "batch_independence", "over the batch axis"),
    ("unguarded squash", broken(g=unguarded_squash), "finite", "without a guard at zero"),
    ("wrong sign", broken(sign=-1.0), "meaning", "the wrong sign"),
    ("votes ignored", broken(sign=0.0), "meaning", "fixed_coupling"),
    ("hidden detach", broken(agree=lambda v: v.detach()), "gradient", "detach"),
    ("logits recorded", broken(record=torch.log), "coupling_sign", "logits"),
    ("mass lost", broken(couple=lambda b: b.softmax(-1) / 2), "normalisation", "leftover"),
    ("child counted twice", broken(before=first_child_twice), "child_permutation", "child"),
    ("parent counted twice", broken(before=first_parent_twice), "parent_permutation", "parent"),
    ("half arithmetic", broken(g=squash_in_half), "half_precision", "float32"),
    ("squeeze", squeezed, "shape", "squeeze()"),
    ("other dtype", in_float64, "dtype", "another dtype"),
    ("noise when watched", noisy_when_watched, "keep", "another path"),
    ("keep ignored", forgetful, "keep", "keep is ignored"),
    ("four axes only", four_axes_only, "call", "a fixed number of batch axes"),
]


@pytest.mark.parametrize(
    ("routing", "clause", "cause"), [row[1:] for row in WRONG], ids=[row[0] for row in WRONG]
)
def test_wrong_routing_is_called_by_name(routing, clause, cause):
    with pytest.raises(RoutingContractError) as caught:
        assert_routing_contract(routing)
    assert re.fullmatch(
        rf"{clause}: expected .+, but .+; likely cause: .*{re.escape(cause)}.*\.", str(caught.value)
    )
    assert caught.value.clause == clause


def test_the_frame_of_the_wrong_routings_is_right():
    # route() writes its squares in the dtype of the votes, but squash widens them: nothing to find.
    assert set(assert_routing_contract(route)) == set(CLAUSES) - {"parity", "first_iteration"}


def test_wrong_first_iteration_is_called_by_name():
    with pytest.raises(RoutingContractError, match=r"^first_iteration: .+uniform pass"):
        assert_routing_contract(route, first_iteration=over_parents)
    assert "first_iteration" in assert_routing_contract(
        partial(route, iterations=1), first_iteration=over_parents, fixed_coupling=True
    )


@pytest.mark.parametrize(
    "fault",
    [{"squash": "exp"}, {"iterations": 2}, {"leaky": True}, {"detach": "states"}],
    ids=lambda fault: next(iter(fault)),
)
def test_parity_sees_another_formula_and_another_gradient(fault):
    def reference(votes):
        parents, couplings = dynamic_twin(votes)
        return parents, couplings[-1]

    with pytest.raises(RoutingContractError, match=r"^parity: expected values and gradients of"):
        assert_routing_contract(
            partial(dynamic_routing, **fault), reference=reference, leftover="leaky" in fault
        )


def test_parity_sees_activations():
    def squared(votes, *, keep):
        parents, steps, _ = dynamic_routing(votes, keep=keep)
        return Routed(Capsules(parents.pose, parents.activation**2), steps)

    def reference(votes):
        parents, couplings = dynamic_twin(votes)
        return parents, couplings[-1]

    def own_activation(votes):
        parents, coupling = reference(votes)
        return parents, coupling, parents.norm(dim=-1) ** 2

    with pytest.raises(RoutingContractError, match=r"^parity: "):
        assert_routing_contract(squared, reference=reference)
    assert assert_routing_contract(squared, reference=own_activation)["parity"] <= 1e-10


def test_what_is_declared_is_not_asked():
    centred = broken(before=centred_over_batch)
    assert "batch_independence" not in assert_routing_contract(centred, batch_statistics=True)
    stopped = broken(agree=torch.detach)
    assert "gradient" not in assert_routing_contract(stopped, stops_gradient=True)
    ignoring = broken(sign=0.0)
    assert "meaning" not in assert_routing_contract(ignoring, fixed_coupling=True)
    free = broken(couple=torch.sigmoid)
    assert "normalisation" not in assert_routing_contract(free, normalised_over="none")


def test_parameters_of_one_size_ask_for_sizes():
    def biased(votes, *, keep):
        return dynamic_routing(votes, bias=BIAS.to(votes), keep=keep)

    with pytest.raises(RoutingContractError, match=r"^call: .+\(pass sizes=\)") as caught:
        assert_routing_contract(biased)
    assert isinstance(caught.value.__cause__, TorchcapsError)
    with pytest.raises(RoutingContractError, match=r"^parent_permutation: .+interchangeable"):
        assert_routing_contract(biased, sizes=[OWN_SIZE])
    with pytest.raises(TorchcapsError, match=re.escape("sizes must name at least one")):
        assert_routing_contract(dynamic_routing, sizes=[])


def test_messages_carry_the_numbers():
    with pytest.raises(RoutingContractError) as caught:
        assert_routing_contract(broken(couple=lambda logits: logits.softmax(-1) / 2))
    assert str(caught.value) == (
        "normalisation: expected couplings that sum to 1 over parents, but sums from 0.5 to 0.5 "
        "came with votes [5, 3, 3]; likely cause: a softmax over children, or leftover mass that "
        "was not declared."
    )


def even_routing(votes, *, keep="none"):
    coupling = over_parents(votes)
    parents = Capsules((coupling.unsqueeze(-1) * votes).sum(-3))
    return Routed(parents, () if keep == "none" else (Step(None, coupling, parents),))


class Even(Routing):
    def create_parameters(self, *, n_in, n_out, d_out):
        pass

    def forward(self, votes, activation, *, keep="none"):
        return even_routing(votes, keep=keep)


@pytest.mark.parametrize(
    ("routing", "cause"),
    [
        (
            lambda votes, activation, *, keep="none": even_routing(votes, keep=keep),
            "it is called with votes and keep alone; write activation=None",
        ),
        (Even(), "it is called with votes and keep alone; write activation=None"),
        (
            lambda votes, *, iterations, keep="none": even_routing(votes, keep=keep),
            "it is called with votes and keep alone; give iterations a default",
        ),
        (lambda votes: even_routing(votes), 'keep is missing; write (votes, *, keep="none")'),
        (Even, "the class was given; call it: Even()"),
        ("dynamic", "str is no function; give one, as ops.dynamic_routing"),
    ],
)
def test_a_routing_that_cannot_be_called_is_told_how_to_write_it(routing, cause):
    with pytest.raises(RoutingContractError) as caught:
        assert_routing_contract(routing, fixed_coupling=True)
    assert str(caught.value).endswith(f"; likely cause: {cause}.")


@pytest.mark.parametrize("kind", [DynamicRouting, UniformRouting, SelfAttentionRouting])
def test_a_routing_of_a_layer_is_checked_as_it_is(kind):
    """It took activations without a default, which the contract does not give."""
    routing = kind()
    routing.bind(n_in=4, n_out=3, d_out=2)
    declared = {"fixed_coupling": kind is UniformRouting, "interchangeable": "neither"}
    assert assert_routing_contract(routing, sizes=[(4, 3, 2)], **declared)
