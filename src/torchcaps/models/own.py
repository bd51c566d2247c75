"""Networks of one's own, beside those that torchcaps knows by name."""

import inspect
import logging
import math
from collections.abc import Callable, Mapping
from typing import Any, final

from torch import Tensor, nn

from torchcaps.errors import TorchcapsError, short
from torchcaps.layers.routing.table import import_path
from torchcaps.models.limits import check_sides
from torchcaps.models.preset import MODELS, Preset
from torchcaps.types import Couple, Intervene, Keep, Output

# What a recipe and a file call a network that has no name of its own.
OWN = "own"
# Arguments that change what goes on inside.
INTERVENTIONS = ("couple", "intervene", "iterations")
# Classes of files that were imported because somebody said so, by their import path.
CLASSES: dict[str, type[nn.Module]] = {}


@final
class OwnNetwork(nn.Module):
    """Any module that returns an `Output`, called as our networks are.

    Where its forward takes `target` (the labels), `keep`, `iterations`, `couple` or `intervene`, it
    is given them. Where it hands on whatever it is asked, by **asked, it is given all of these that
    somebody asks for, but for the labels. Of `image` and `n_classes` nobody need say anything; its
    attribute `image` is taken where no other is given.
    """

    def __init__(
        self,
        module: nn.Module,
        *,
        image: tuple[int, int, int] | None = None,
        n_classes: int | None = None,
    ):
        super().__init__()
        self.module = module
        image = getattr(module, "image", None) if image is None else image
        if image is not None:
            self.image = tuple(image)
        taken = inspect.signature(module.forward).parameters
        asked = ("target", "keep", *INTERVENTIONS)
        self._takes = tuple(name for name in asked if name in taken)
        self._hands_on = any(each.kind is each.VAR_KEYWORD for each in taken.values())
        self.config = {
            "name": OWN,
            "class": import_path(type(module)),
            "image": image,
            "n_classes": n_classes,
        }

    def forward(
        self,
        image: Tensor,
        target: Tensor | None = None,
        *,
        keep: Keep = "none",
        iterations: int | None = None,
        couple: Couple | Mapping[str, Couple] | None = None,
        intervene: Mapping[str, Intervene] | None = None,
    ) -> Output:
        """Give what the module says of the images."""
        given = {
            "target": target,
            "keep": keep,
            "couple": couple,
            "intervene": intervene,
            "iterations": iterations,
        }
        for name in INTERVENTIONS:
            if given[name] is not None and name not in self._takes and not self._hands_on:
                raise TorchcapsError(
                    f"{type(self.module).__name__} takes no `{name}`, so nothing in it can be "
                    f"changed; let its forward take {name}=None and hand it to its capsule layers."
                )
        # What nobody asked for is the module's own to choose.
        taken = [name for name in self._takes if given[name] is not None or name == "target"]
        if self._hands_on:
            others = [name for name in ("keep", *INTERVENTIONS) if name not in self._takes]
            taken += [name for name in others if given[name] not in (None, "none")]
        out = self.module(image, **{name: given[name] for name in taken})
        if not isinstance(out, Output):
            raise TorchcapsError(
                f"a network returns a torchcaps.Output, but {type(self.module).__name__} returned "
                f"a {type(out).__name__}; let its forward end in: return tc.Output(scores, "
                f'"logits"), or "lengths" for lengths of capsules.'
            )
        n_classes = self.config["n_classes"]
        expected = (len(image), out.scores.shape[-1] if n_classes is None else n_classes)
        if tuple(out.scores.shape) != expected:
            raise TorchcapsError(
                f"{type(self.module).__name__} should give one score for each of {expected[1]} "
                f"classes, {list(expected)}, but gave {list(out.scores.shape)}."
            )
        return out


def check_has_weights(module: nn.Module) -> None:
    """Refuse a module in which there is nothing to train or to save."""
    if not module.state_dict():
        raise TorchcapsError(
            f"{type(module).__name__} has no weights; are its layers in a list? Keep each as an "
            f"attribute, or all in an nn.ModuleList."
        )


def as_network(model: nn.Module) -> nn.Module:
    """Give the network itself where it is called as ours are, else `OwnNetwork` around it."""
    taken = inspect.signature(model.forward).parameters
    return model if {"target", "keep"} <= set(taken) else OwnNetwork(model)


def as_given(network: nn.Module) -> nn.Module:
    """Give the network without the `OwnNetwork` around it, where there is one."""
    return network.module if isinstance(network, OwnNetwork) else network


def own_module(config: dict[str, Any], given: nn.Module | type[nn.Module] | None) -> nn.Module:
    """Give the module of the class that a file names: the one that is given, or one made of its
    class.

    Nothing is imported for it. A class is called with `image` and `n_classes`, where it takes them.
    """
    needed = str(config.get("class"))
    name = needed.rpartition(".")[2]
    if given is None:
        given = _imported(needed)
    else:
        _check_given(needed, given)
    if isinstance(given, nn.Module):
        return given
    taken = inspect.signature(given).parameters
    known = {key: config.get(key) for key in ("image", "n_classes")}
    try:
        return given(**{key: value for key, value in known.items() if key in taken and value})
    except TypeError as error:
        raise TorchcapsError(
            f"{name} cannot be made without more arguments ({error}); make one as it was when it "
            f"was saved, and give that: model={name}(…)."
        ) from None


def _imported(needed: str) -> type[nn.Module]:
    """Give the class of this path that an imported file has; else the only one of this name, since
    a script is called __main__ while it runs, and a file may have been renamed."""
    if needed in CLASSES:
        return CLASSES[needed]
    alike = [kind for kind in CLASSES.values() if _is_called(kind, needed)]
    name = needed.rpartition(".")[2]
    if not alike:
        others = f"; the imported files have only {', '.join(CLASSES)}" if CLASSES else ""
        raise TorchcapsError(
            f"this is a network of your own, of the class {needed}; a file never runs code, so "
            f"give its class or a module of it: model={name} (on the command line: --import of its "
            f"file{others})."
        )
    if len(alike) > 1:
        raise TorchcapsError(
            f"this is a network of the class {needed}, and the imported files have several of that "
            f"name, {' and '.join(map(import_path, alike))}; import the one file alone."
        )
    if not needed.startswith("__main__."):
        logging.getLogger("torchcaps").warning(
            "this is a network of the class %s; %s is taken for it", needed, import_path(alike[0])
        )
    return alike[0]


def _check_given(needed: str, given: object) -> None:
    """Refuse what is not of the class that a file names."""
    name = needed.rpartition(".")[2]
    if isinstance(given, nn.Module):
        kind = type(given)
    elif isinstance(given, type) and issubclass(given, nn.Module):
        kind = given
    else:
        raise TorchcapsError(
            f"model must be the class {name} or a module of it, but is {short(given)}."
        )
    # A script and a notebook are called __main__, whatever their file.
    elsewhere = "__main__" in (kind.__module__, needed.partition(".")[0])
    if import_path(kind) != needed and not (elsewhere and _is_called(kind, needed)):
        raise TorchcapsError(
            f"this is a network of the class {needed}, but {import_path(kind)} was given; give "
            f"model={name}."
        )


def _is_called(kind: type, needed: str) -> bool:
    return needed.endswith(f".{kind.__qualname__}")


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
            f"{short(name)}."
        )
    if isinstance(build, nn.Module) or not callable(build):
        raise TorchcapsError(
            f"register_model takes the class of the network, or a function that makes it, but got "
            f"the {type(build).__name__} itself; for one module use fit(recipe, out, model=module)."
        )
    check_sides(image, n_classes)
    known = MODELS.get(name)
    if known is not None and not (known.is_own and _path(known.build) == _path(build)):
        raise TorchcapsError(
            f"the name {short(name)} belongs to another network; choose another for {_path(build)}."
        )
    parameters = inspect.signature(build).parameters
    for each in ("image", "n_classes"):
        if each not in parameters:
            raise TorchcapsError(
                f"{_path(build)} must take image=(channels, height, width) and n_classes, but it "
                f"takes no {each}; let it take both, even if it needs neither."
            )
    for each, parameter in parameters.items():
        named = parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        if named and parameter.default is parameter.empty and each not in ("image", "n_classes"):
            raise TorchcapsError(
                f"every option of {_path(build)} needs a default, because a network is made by its "
                f"name alone; {each} has none."
            )
        if named and not _is_written_down(parameter.default) and each not in ("image", "n_classes"):
            raise TorchcapsError(
                f"every option of {_path(build)} needs a number, a word, True, False or None as "
                f"its default, because a saved network writes it down, but {each} has "
                f"{short(parameter.default)}; let it be a word, and choose by that."
            )
    channels, height, width = image
    MODELS[name] = Preset(build, (channels, height, width), n_classes, source, is_own=True)


def _path(build: Callable[..., nn.Module]) -> str:
    name = getattr(build, "__qualname__", type(build).__name__)
    return f"{getattr(build, '__module__', '')}.{name}"


def _is_written_down(default: object) -> bool:
    """Say whether it comes back from JSON as it was."""
    finite = not isinstance(default, float) or math.isfinite(default)
    return default is None or (isinstance(default, bool | int | float | str) and finite)
