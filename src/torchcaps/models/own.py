"""Networks of one's own, beside those that torchcaps knows by name."""

import inspect
from collections.abc import Callable

from torch import nn

from torchcaps.errors import TorchcapsError
from torchcaps.models.registry import MODELS, Preset

__all__ = ["register_model"]


def register_model(
    name: str,
    build: Callable[..., nn.Module],
    *,
    image: tuple[int, int, int],
    n_classes: int,
    source: str = "yours",
) -> None:
    """Give a network of one's own a name that `create_model`, recipes and the command line take.

    It holds in this process alone: a saved network or a run says the name, and who opens it
    registers the network again (on the command line by `--import` of the file that does).

    Arguments:
        name: what it shall be called, a word such as "my_net".
        build: a function or a class that makes it, from `image` and `n_classes` as keywords. What
            else it takes are the options of the network; each has a default, a number or a word.
            The network maps images [b, c, h, w] to an `Output`.
        image: (channels, height, width) where nobody says otherwise.
        n_classes: how many classes there are where nobody says otherwise.
        source: where it comes from, for the list of networks.

    >>> tc.register_model("my_net", MyNet, image=(1, 28, 28), n_classes=10)
    >>> tc.create_model("my_net", n_classes=7)
    """
    if not isinstance(name, str) or not name.isidentifier():
        raise TorchcapsError(
            f'a network needs a name of letters, digits and _, for example "my_net", but got '
            f"{name!r}."
        )
    if isinstance(build, nn.Module) or not callable(build):
        raise TorchcapsError(
            f"register_model takes the class of the network, or a function that makes it, but got "
            f"the {type(build).__name__} itself; for one module use fit(recipe, out, model=module)."
        )
    known = MODELS.get(name)
    if known is not None and not (known.is_own and _path(known.build) == _path(build)):
        raise TorchcapsError(
            f"the name {name!r} belongs to another network; choose another for {_path(build)}."
        )
    parameters = inspect.signature(build).parameters
    for each in ("image", "n_classes"):
        if each not in parameters:
            raise TorchcapsError(
                f"{_path(build)} must take image=(channels, height, width) and n_classes, but it "
                f"takes no {each}; a network that fits one data set only can do so too, and ignore "
                f"them."
            )
    for each, parameter in parameters.items():
        named = parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        if named and parameter.default is parameter.empty and each not in ("image", "n_classes"):
            raise TorchcapsError(
                f"every option of {_path(build)} needs a default, because a network is made by its "
                f"name alone; {each} has none."
            )
    MODELS[name] = Preset(build, image, n_classes, source, is_own=True)


def _path(build: Callable[..., nn.Module]) -> str:
    name = getattr(build, "__qualname__", type(build).__name__)
    return f"{getattr(build, '__module__', '')}.{name}"
