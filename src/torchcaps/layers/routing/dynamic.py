"""Dynamic routing as a module."""

from typing import Literal, final, get_args

import torch
from torch import nn

from torchcaps._checks import check_choice, check_flag
from torchcaps.errors import TorchcapsError, short
from torchcaps.layers.routing.base import OpRouting, named
from torchcaps.ops.checks import check_factor, check_iterations
from torchcaps.ops.routing import Detach
from torchcaps.ops.squashing import Squash

# The factor on agreements; "learned" is one number a layer.
Agreement = float | Literal["learned"]
LEARNED_FROM = 0.1


@named("dynamic")
@final
class DynamicRouting(OpRouting):
    """`ops.dynamic_routing` with its prior and bias.

    Arguments:
        iterations: how often couplings are made, from 1.
        prior: the logits before the first iteration. "zero": none. "learned": a logit for every
            child and parent, shared by the batch and zero at first [mitterreiter2023] §3.3.
        bias: what is added before every squash. True: a vector a parent, 0.1 at first, without
            which x and −x cannot be told apart [peer2022] §4.1. "odd": its control, which cannot
            either. False: nothing.
        leaky: whether a child may give to nobody, by one more parent that is then dropped.
        squash: the length of a parent: "hinton", "exp" or "none", as in `ops.squash`.
        detach: what is a constant to the gradient: "none", "votes", "states" or "coupling", as in
            `ops.dynamic_routing`; with "coupling" no prior and no factor on agreements is trained.
        agreement: the factor on what a logit grows by, 1 in the papers; ours, because deep networks
            are hard to train through agreement as sharp as at 1. "learned": one number a layer, 0.1
            at first.

    >>> DenseCapsules(n_in=8, d_in=4, n_out=3, d_out=6, routing=DynamicRouting(bias=True))
    """

    algorithm = "dynamic"
    told = ("iterations", "bias", "prior", "odd_bias", "leaky", "squash", "detach", "agreement")
    prior: nn.Parameter | None
    bias: nn.Parameter | None
    agreement: float | nn.Parameter

    def __init__(
        self,
        *,
        iterations: int = 3,
        prior: Literal["zero", "learned"] = "zero",
        bias: bool | Literal["odd"] = False,
        leaky: bool = False,
        squash: Squash = "hinton",
        detach: Detach = "none",
        agreement: Agreement = 1.0,
    ):
        super().__init__()
        check_iterations(iterations)
        check_choice("prior", prior, ("zero", "learned"))
        check_choice("squash", squash, get_args(Squash))
        check_choice("detach", detach, get_args(Detach))
        # 0 and 1 are taken for False and True.
        if not isinstance(bias, int | str) or bias not in (False, True, "odd"):
            raise TorchcapsError(f'bias must be False, True or "odd", but came as {short(bias)}.')
        check_flag("leaky", leaky)
        if isinstance(agreement, str):
            check_choice("agreement", agreement, ("learned",))
            # With one iteration no logit grows; constant couplings hand no gradient on.
            learns = iterations > 1 and detach != "coupling"
            factor = nn.Parameter(torch.tensor(LEARNED_FROM), requires_grad=learns)
            self.register_parameter("agreement", factor)
        else:
            check_factor("agreement", agreement)
            self.agreement = agreement
        self.iterations = iterations
        self.leaky = leaky
        if leaky:
            self.normalised_over = "none"
        self.squash: Squash = squash
        self.detach: Detach = detach
        self.odd_bias = bias == "odd"
        self._learns_prior = prior == "learned"
        self._has_bias = bool(bias)
        self.has_parameters = self._learns_prior or self._has_bias
        self.register_parameter("prior", None)
        self.register_parameter("bias", None)

    def create_parameters(self, *, n_in: int, n_out: int, d_out: int) -> None:
        if self._learns_prior:
            learns = self.detach != "coupling"
            self.prior = nn.Parameter(torch.zeros(n_in, n_out), requires_grad=learns)
        if self._has_bias:
            self.bias = nn.Parameter(torch.full((n_out, d_out), 0.1))
