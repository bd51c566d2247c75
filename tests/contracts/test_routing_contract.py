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
from tables import beside, worked_out
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


def maker(kind, op, twin, usual, answers=("pose", "coupling"), given=like):
    """Make entries of a routing, of options: `given` is what it takes beside votes, `answers` in
    which order its twin answers, and `usual` what is declared of it."""

    def made(name, *, declared=None, **options):
        def routing(votes, *, keep):
            return op(votes, **given(votes, options), keep=keep)

        def reference(votes):
            found = dict(zip(answers, twin(votes, **given(votes, options)), strict=False))
            couplings, activation = found["coupling"], found.get("activation")
            last = couplings[-1] if isinstance(couplings, list) else couplings
            return (found["pose"], last, *([] if activation is None else [activation]))

        return Entry(f"{kind}-{name}", routing, reference, usual | (declared or {}))

    return made


EVEN, FIXED = {"first_iteration": over_parents}, {"fixed_coupling": True}
dynamic = maker("dynamic", dynamic_routing, dynamic_twin, EVEN)
uniform = maker("uniform", uniform_routing, uniform_twin, FIXED)
self_attention = maker("self-attention", self_attention_routing, self_attention_twin, {})


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


def as_long_as(votes, options):
    options = {"lengths": of_one_length} | options
    return {"activation": options.pop("lengths")(votes)} | like(votes, options)


distance = maker("distance", distance_routing, distance_twin, EVEN, given=as_long_as)


def one_map(n_out):
    return (1, n_out, 1)


def one_position(n_out):
    return (1, 1, n_out)


def two_maps(n_out):
    return (2, n_out // 4, 2)


def on_a_grid(votes, options):
    """`grid` makes the parent grid of the number of parents: the contract brings several."""
    options = dict(options)
    return {"parent_grid": options.pop("grid")(votes.shape[-2])} | like(votes, options)


conv3d = maker("conv3d", conv3d_routing, conv3d_twin, EVEN, given=on_a_grid)


def at_a_price(votes, options):
    """Children of one activation and, unless betas are given, parents of one price."""
    prices = {"beta_a": torch.tensor(0.5), "beta_u": torch.tensor(0.2)}
    active = {"activation": votes.new_full(votes.shape[:-2], 0.7)}
    return active | like(votes, prices | options)


OF_EM = ("pose", "activation", "coupling")
em = maker("em", em_routing, em_twin, EVEN, OF_EM, at_a_price)


def as_their_votes_lean(votes):
    """Child activations that change places with the children, and none with the parents. In double:
    with huge votes their gradients are more than float16 can hold."""
    return votes.double().mean((-2, -1)).sigmoid()


def normed_or_active(votes, options):
    """`normed`: a LayerNorm as training begins, of any size. `active`: with activations."""
    made = like(votes, options)
    if made.pop("normed", False):
        made["norm"] = votes.new_ones(votes.shape[-1]), votes.new_zeros(votes.shape[-1])
    if made.pop("active", False):
        made["activation"] = as_their_votes_lean(votes)
        made |= {"beta_a": votes.new_tensor(0.5), "beta_u": votes.new_tensor(0.2)}
    return made


OF_INVERTED = ("pose", "coupling", "activation")
inverted = maker(
    "inverted", inverted_routing, inverted_twin, EVEN, OF_INVERTED, given=normed_or_active
)


GENERATOR = torch.Generator().manual_seed(7)
N_IN, N_OUT, SIZE = OWN_SIZE = (5, 3, 4)
BIAS = torch.randn(N_OUT, SIZE, generator=GENERATOR, dtype=torch.float64) / 5
PRIOR = torch.randn(N_IN, N_OUT, generator=GENERATOR, dtype=torch.float64) / 5
CHOICE = torch.randn(N_IN, N_OUT, SIZE, generator=GENERATOR, dtype=torch.float64)
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


def after_start(votes):
    return (votes * BIAS.to(votes)).sum(-1).softmax(-1)


WITH_START = {
    "sizes": [OWN_SIZE],
    "interchangeable": "children",
    "first_iteration": after_start,
}

TABLE = beside(__file__, "routings.toml")


def entries():
    """The routings of the table, and whether they are slow."""
    for kind, cases in TABLE.items():
        for name, case in cases.items():
            options = dict(case)
            is_slow = options.pop("slow", False)
            for key in ("given", "declared"):
                options[key] = worked_out(options.get(key, {}), globals())
            yield globals()[kind](name, **options.pop("given"), **options), is_slow


ROUTINGS = [entry for entry, _ in entries()]


@pytest.mark.parametrize(
    "entry",
    [
        pytest.param(entry, id=entry.name, marks=pytest.mark.slow if is_slow else ())
        for entry, is_slow in entries()
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


def window_over(axis):
    """Weights that are the same from both ends along an axis of the votes."""

    def weigh(votes):
        n = votes.shape[axis]
        weight = torch.hann_window(n + 2, periodic=False, dtype=votes.dtype)[1:-1] + 0.5
        return votes * weight.view(-1, *[1] * (-axis - 1))

    return weigh


def centred_over_inner_axis(votes):
    return votes - votes.mean(-4, keepdim=True) if votes.ndim > 4 else votes


def uncoupled(votes, *, keep):
    return Routed(Capsules(votes.sum(-3)), (Step(None, None, None),))


WRONG = beside(__file__, "wrong.toml")


@pytest.mark.parametrize("fault", WRONG["broken"])
def test_wrong_routing_is_called_by_name(fault):
    routing, clause, cause = WRONG["broken"][fault]
    with pytest.raises(RoutingContractError) as caught:
        assert_routing_contract(eval(routing, globals()))
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
    with pytest.raises(RoutingContractError, match=r"^parity: expected values and gradients of"):
        assert_routing_contract(
            partial(dynamic_routing, **fault),
            reference=dynamic("default").reference,
            leftover="leaky" in fault,
        )


def test_parity_sees_activations():
    def squared(votes, *, keep):
        parents, steps, _ = dynamic_routing(votes, keep=keep)
        return Routed(Capsules(parents.pose, parents.activation**2), steps)

    reference = dynamic("default").reference

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


@pytest.mark.parametrize("routing", WRONG["uncallable"])
def test_a_routing_that_cannot_be_called_is_told_how_to_write_it(routing):
    with pytest.raises(RoutingContractError) as caught:
        assert_routing_contract(eval(routing, globals()), fixed_coupling=True)
    cause = WRONG["uncallable"][routing]
    assert str(caught.value).endswith(f"; likely cause: {cause}.")


@pytest.mark.parametrize("kind", [DynamicRouting, UniformRouting, SelfAttentionRouting])
def test_a_routing_of_a_layer_is_checked_as_it_is(kind):
    """It took activations without a default, which the contract does not give."""
    routing = kind()
    routing.bind(n_in=4, n_out=3, d_out=2)
    declared = {"fixed_coupling": kind is UniformRouting, "interchangeable": "neither"}
    assert assert_routing_contract(routing, sizes=[(4, 3, 2)], **declared)
