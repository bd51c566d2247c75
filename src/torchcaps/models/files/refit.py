"""Weights for another number of classes: what fits is kept, the rest is made new and named."""

import logging
from collections.abc import Collection, Mapping

from torch import Tensor, nn

from torchcaps.errors import TorchcapsError
from torchcaps.models.files.as_made import CHOICES, changed_settings, made_again, shapes
from torchcaps.models.preset import NamedNetwork
from torchcaps.models.registry import make_model


def take_dtypes(network: nn.Module, state: Mapping[str, Tensor]) -> None:
    """Give tensors the types of those of a state, which are then copied into them."""
    for key, tensor in network.state_dict(keep_vars=True).items():
        if key in state and tensor.dtype != state[key].dtype:
            tensor.data = tensor.data.to(state[key].dtype)


def take_fitting(network: nn.Module, state: Mapping[str, Tensor]) -> tuple[str, ...]:
    """Give a network every tensor of the same name and shape; the names of those that it keeps as
    they were made."""
    own = network.state_dict()
    fitting = {
        name: value
        for name, value in state.items()
        if name in own and value.shape == own[name].shape
    }
    if not fitting:
        raise TorchcapsError(
            "no tensor fits by its name and shape, so nothing was learnt that could be kept; are "
            "these weights of another network?"
        )
    network.load_state_dict(fitting, strict=False)
    return tuple(name for name in own if name not in fitting)


def say_what_is_new(
    whose: str, new: tuple[str, ...], network: nn.Module, state: Mapping[str, Tensor]
) -> None:
    """Name on standard error what is made new, unless somebody sets up logging otherwise. Unused
    tensors of the file are named too; they may be its backbone."""
    own = network.state_dict()
    left = [name for name in state if name not in own]
    said = []
    if new:
        said.append(f"{', '.join(new)} {'is' if len(new) == 1 else 'are'} made new")
    if left:
        have, were = ("has", "was") if len(left) == 1 else ("have", "were")
        said.append(
            f"{', '.join(left)} of the file {have} no place in this network and {were} left out"
        )
    if not said:
        return
    logging.getLogger("torchcaps").warning(
        "%s: %s; %d of the file's %d tensors fit by name and shape, and were kept",
        whose,
        "; ".join(said),
        len(own) - len(new),
        len(state),
    )


def reset_classes(network: NamedNetwork, n_classes: int) -> tuple[str, ...]:
    """Score other classes, in place: what `NamedNetwork.reset_classes` says."""
    config = getattr(network, "config", None)
    if not isinstance(config, dict) or isinstance(config.get("routing"), dict):
        raise TorchcapsError(
            "reset_classes remakes a network of create_model by its name and options, which "
            "this one was not made by; give it a new last layer yourself."
        )
    words = {name: value for name, value in config.items() if name != "name"}
    fresh = make_model(config["name"], **{**words, "n_classes": n_classes})
    like = next(network.parameters())
    fresh.to(like.device, like.dtype)
    # Before numbers are copied: in between they would be rounded.
    take_dtypes(fresh, network.state_dict())
    new = take_fitting(fresh, network.state_dict())
    made = made_again(network)
    by_hand = {} if made is None else changed_settings(network, made)
    _choose_again(network, fresh, new, by_hand)
    _replace(network, fresh)
    network.config = fresh.config
    # Of parts that stay, what follows from the number of classes.
    for path, (fitting, _) in changed_settings(network, fresh).items():
        part, _, name = path.rpartition(".")
        setattr(network.get_submodule(part), name, fitting)
    return new


def _choose_again(
    old: nn.Module, fresh: nn.Module, new: tuple[str, ...], by_hand: Collection[str]
) -> None:
    """Give what somebody chose of the parts of a network, chosen of those of another: the backend,
    which are in training, other settings, and which of the weights that are kept learn."""
    parts = dict(old.named_modules())
    for name, part in fresh.named_modules():
        chosen = vars(parts[name]) if name in parts else {}
        for choice, value in chosen.items():
            if choice in CHOICES or f"{name}.{choice}".removeprefix(".") in by_hand:
                setattr(part, choice, value)
    learns = {name: each.requires_grad for name, each in old.named_parameters() if name not in new}
    for name, parameter in fresh.named_parameters():
        parameter.requires_grad_(learns.get(name, parameter.requires_grad))


def _replace(old: nn.Module, fresh: nn.Module) -> None:
    """Replace the parts that are of other sizes, each as a whole; the others stay what they are."""
    for name, part in fresh.named_children():
        there = old.get_submodule(name)
        if isinstance(part, nn.ModuleDict):
            _replace(there, part)
        elif shapes(there) != shapes(part):
            old._modules[name] = part


NamedNetwork._refit = reset_classes
