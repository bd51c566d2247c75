"""Hooks that somebody registered on a part of a layer which is not called by itself."""

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from torch import nn
from torch.nn.utils.prune import BasePruningMethod
from torch.nn.utils.spectral_norm import SpectralNorm
from torch.nn.utils.weight_norm import WeightNorm

from torchcaps.types import Couple, Keep, Routed, Step

# Torch's own, which make a weight out of others before a forward.
MAKE_WEIGHTS = (BasePruningMethod, WeightNorm, SpectralNorm)
# Held while a module has another forward than its own.
_turn = threading.RLock()


def has_hooks(module: nn.Module, *, but: tuple[type, ...] = ()) -> bool:
    """Say whether somebody registered a hook on this module, of another kind than `but`."""
    all_hooks = (
        module._forward_pre_hooks,
        module._forward_hooks,
        module._backward_pre_hooks,
        module._backward_hooks,
    )
    return any(all_hooks) and any(
        not isinstance(hook, but) for hooks in all_hooks for hook in hooks.values()
    )


def make_weights(module: nn.Module) -> None:
    """Let the hooks of torch.nn.utils make the weights that they make before a forward."""
    for hook in module._forward_pre_hooks.values():
        if isinstance(hook, MAKE_WEIGHTS):
            hook(module, ())


def stepped(
    module: nn.Module,
    step: Callable[..., Step],
    *given: Any,
    keep: Keep,
    couple: Couple | None,
    but: tuple[type, ...] = (),
) -> Step:
    """Take one iteration as a call of the module, with all its hooks, which see a `Routed` leave
    it; of another kind than `but`.

    Only torch knows which of its hooks see what, and in which order, so the module is called with
    the step in place of its forward.
    """
    made: list[Step] = []

    def forward(*seen: Any, keep: Keep, couple: Couple | None) -> Routed:
        made.append(step(*seen, keep=keep, couple=couple))
        return Routed(made[-1].parents, () if keep == "none" else (made[-1],))

    with _turn:
        own = vars(module).get("forward")
        before = module._forward_pre_hooks
        if any(isinstance(hook, but) for hook in before.values()):
            left = ((at, hook) for at, hook in before.items() if not isinstance(hook, but))
            module._forward_pre_hooks = OrderedDict(left)
        module.forward = forward
        try:
            routed: Routed = module(*given, keep=keep, couple=couple)
        finally:
            module._forward_pre_hooks = before
            del module.forward
            if own is not None:
                module.forward = own
    return made[-1]._replace(parents=routed.parents)
