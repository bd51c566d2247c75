"""Parts of a network that training leaves as they are."""

from torch import nn

from torchcaps.errors import TorchcapsError, nearest
from torchcaps.models.own import as_given, check_has_weights


def freeze(model: nn.Module, names: tuple[str, ...], *, made_new: tuple[str, ...] = ()) -> None:
    """Train the weights of the parts of these names no more; what fitted nothing in the file that
    the run begins with was made new and must not be among them, since nobody ever trained it."""
    whole = as_given(model)
    parts = dict(whole.named_modules())
    for name in names:
        if name not in parts or not name:
            known = [each for each in parts if each and each.count(".") < 2]
            # Of a weight, as state_dict names it, the part that holds it.
            holders = [each for each in known if name.startswith(f"{each}.")]
            meant = {name: holders[-1]} if holders else {}
            raise TorchcapsError(
                f"freeze: the network has no part {name!r}; {nearest(name, known, meant=meant)}."
            )
        untrained = [each for each in made_new if each.startswith(f"{name}.")]
        if untrained:
            raise TorchcapsError(
                f"freeze: {', '.join(untrained)} of {name} fits nothing in the file that the run "
                f"begins with and was made new, so frozen it would never be trained; leave {name} "
                f"out of freeze, or name the parts of it that were kept."
            )
        parts[name].requires_grad_(False)
    if not any(weight.requires_grad for weight in model.parameters()):
        check_has_weights(whole)
        if not names:
            raise TorchcapsError(
                f"none of the weights of {type(whole).__name__} is to be trained; set "
                f"requires_grad_(True) on those that are."
            )
        raise TorchcapsError(
            f"freeze={', '.join(names)} leaves no weight to train; leave one part out of it."
        )


def eval_frozen(model: nn.Module, names: tuple[str, ...]) -> None:
    """Let the parts of these names go by their statistics. They are looked up each time: Lightning
    may have put a synchronised batch normalisation in the place of one that was frozen."""
    for name in names:
        as_given(model).get_submodule(name).eval()
