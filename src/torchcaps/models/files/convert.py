"""Weights of public code under our names and in our order; docs/porting.md says what fits what.

A checkpoint of others is a mapping of names to tensors. What changes is the name of a weight, the
order of its axes, and the order of children: (type, h, w) there is (h, w, type) here.
"""

import re
from collections.abc import Callable, Mapping
from functools import partial

import torch
from torch import Tensor

from torchcaps.errors import TorchcapsError, nearest

State = Mapping[str, Tensor]
# By a pattern of names there: the name here, or what makes it, and what lays the tensor out anew.
Name = str | Callable[[re.Match[str]], str]
Names = dict[str, Name | tuple[Name, Callable[[Tensor], Tensor]]]
PARALLEL = "module."


def convert(state: State, *, source: str) -> dict[str, Tensor]:
    """Give a state of public code as a state of ours, for `load_state_dict`.

    Arguments:
        state: tensors by the names that they have there; the prefix of DataParallel may be on.
        source: whose: "apple" (inverted attention), "rem" (CapsNet and γ-CapsNet), "yl-1993"
            (matrix capsules), "efficient" (Efficient-CapsNet, Keras names in layer order).

    >>> model.load_state_dict(convert(torch.load("theirs.pt", weights_only=True), source="apple"))
    """
    if source not in SOURCES:
        raise TorchcapsError(f"source={source!r} is unknown; {nearest(str(source), SOURCES)}.")
    bare = {name.removeprefix(PARALLEL): tensor for name, tensor in state.items()}
    try:
        return SOURCES[source](bare)
    except (RuntimeError, IndexError, KeyError) as error:
        raise TorchcapsError(
            f"these tensors are not named and laid out as those of {source!r} "
            f"({str(error).splitlines()[0]}); are they of another network?"
        ) from None


def _apple(state: State) -> dict[str, Tensor]:
    layers = sorted({int(name.split(".")[1]) for name in state if name.startswith("capsule_")})
    types, names = _apple_types(state), dict(APPLE)
    for n, depth in enumerate(layers):
        conv = state[f"capsule_layers.{depth}.w"].ndim == 6
        ours = f"conv_{n + 1}" if conv else "classes" if depth == layers[-1] else "hidden"
        matrix = _is_matrix(state, depth)
        anew = partial(_apple_weight, types=types.get(depth, 1), matrix=matrix)
        names[rf"capsule_layers\.{depth}\.w"] = (f"layers.{ours}.weight", anew)
        names[rf"capsule_layers\.{depth}\.nonlinear_act\.(\w+)"] = rf"layers.{ours}.routing.norm.\1"
    return _renamed(state, names, "apple")


def _apple_types(state: State) -> dict[int, int]:
    """Return how many child types lie behind the children (type, h, w) of the first dense layer."""
    primary, norm = state["pc_layer.weight"], state["nonlinear_act.weight"]
    types, depth = len(primary) // len(norm), 0
    while (w := state[f"capsule_layers.{depth}.w"]).ndim == 6:
        types, depth = w.shape[5 if _is_matrix(state, depth) else 4], depth + 1
    return {depth: types}


def _is_matrix(state: State, depth: int) -> bool:
    """Say whether poses are matrices: the root of their size is then the side of a weight."""
    size = len(state[f"capsule_layers.{depth}.nonlinear_act.weight"])
    return int(state[f"capsule_layers.{depth}.w"].shape[-3]) ** 2 == size


def _apple_weight(w: Tensor, types: int, matrix: bool) -> Tensor:
    """[k, l, n, x, y, m] or [k, l, n, a, m, d] of windows, the same without k and l of children."""
    w = torch.movedim(w, -1, -3) if matrix else torch.movedim(w, -3, -1)
    if w.ndim == 6:
        return w.flatten(0, 2)
    return torch.unflatten(w, 0, (types, -1)).transpose(0, 1).flatten(0, 1)


APPLE: Names = {
    r"pre_caps\.pre_caps\.(\d)\.(\w+)": r"backbone.\1.\2",
    r"pre_caps\.pre_caps\.(\d)\.(\d)\.conv(\d)\.(\w+)": lambda m: (
        f"backbone.{_block(m)}.residual.{3 * int(m[3]) - 3}.{m[4]}"
    ),
    r"pre_caps\.pre_caps\.(\d)\.(\d)\.bn(\d)\.(\w+)": lambda m: (
        f"backbone.{_block(m)}.residual.{3 * int(m[3]) - 2}.{m[4]}"
    ),
    r"pre_caps\.pre_caps\.(\d)\.(\d)\.shortcut\.(\d)\.(\w+)": lambda m: (
        f"backbone.{_block(m)}.shortcut.{m[3]}.{m[4]}"
    ),
    r"pc_layer\.(\w+)": r"primary.projection.\1",
    r"nonlinear_act\.(\w+)": r"primary.norm.\1",
    r"final_fc\.(\w+)": r"head.\1",
}


def _block(match: re.Match[str]) -> int:
    """Rename blocks: three of 64 channels at 3, then four at 4, lie one after the other here."""
    return int(match[2]) + (3 if match[1] == "3" else 6)


def _rem_weight(w: Tensor) -> Tensor:
    """[type, h, w, parent, d_out, d_in], or one matrix for all children."""
    return w[0, 0, 0] if w.shape[:3] == (1, 1, 1) else w.movedim(0, 2).flatten(0, 2)


REM: Names = {
    r"conv1\.(\w+)": r"backbone.0.\1",
    r"primaryCaps\.caps_poses\.(\w+)": r"primary.projection.\1",
    r"fcCaps\.weight": ("layers.hidden.weight", _rem_weight),
    r"classCaps\.weight": ("layers.classes.weight", _rem_weight),
    # [type, 1, 1, d, 1]
    r"fcCaps\.routing_bias": ("layers.hidden.routing.bias", lambda bias: bias.flatten(1)),
    r"classCaps\.routing_bias": ("layers.classes.routing.bias", lambda bias: bias.flatten(1)),
    r"decoder\.fc(\d)\.(\w+)": lambda m: f"decoder.layers.{2 * int(m[1]) - 2}.{m[2]}",
}

YL_1993: Names = {
    r"conv1\.(\w+)": r"backbone.0.\1",
    r"bn1\.(\w+)": r"backbone.1.\1",
    r"primary_caps\.pose\.(\w+)": r"primary.projection.\1",
    r"primary_caps\.a\.(\w+)": r"primary.activation.\1",
    # One more axis, for the batch; slots of a window are ordered (h, w, type) there too.
    r"conv_caps(\d)\.weights": (r"layers.conv_\1.weight", lambda w: w[0]),
    r"conv_caps(\d)\.(beta_[au])": r"layers.conv_\1.routing.\2",
    r"class_caps\.weights": (r"layers.classes.weight", lambda w: w[0]),
    r"class_caps\.(beta_[au])": r"layers.classes.routing.\1",
}

CONVOLUTIONS = (*(f"backbone.{n}" for n in (0, 3, 6, 9)), "primary.projection")
NORMS, DENSE = tuple(f"backbone.{n}" for n in (2, 5, 8, 11)), (0, 2, 4)
OF_NORM = {
    "gamma": "weight",
    "beta": "bias",
    "moving_mean": "running_mean",
    "moving_variance": "running_var",
}


def _efficient(state: State) -> dict[str, Tensor]:
    """Keras numbers its layers anew in every process, so their order tells them apart."""
    found: dict[str, Tensor] = {}
    seen: dict[str, int] = {}
    for name, tensor in state.items():
        leaf = name.removesuffix(":0").rpartition("/")[2]
        count = seen[leaf + str(tensor.ndim)] = seen.get(leaf + str(tensor.ndim), -1) + 1
        if leaf == "W":  # [parent, child, d_in, d_out]
            found["layers.classes.weight"] = tensor.permute(1, 0, 3, 2)
        elif leaf == "b":  # [parent, child, 1]
            found["layers.classes.routing.prior"] = tensor[..., 0].T
        elif leaf in OF_NORM and count < len(NORMS):
            found[f"{NORMS[count]}.{OF_NORM[leaf]}"] = tensor
        elif leaf == "kernel" and tensor.ndim == 4 and count < len(CONVOLUTIONS):
            found[f"{CONVOLUTIONS[count]}.weight"] = tensor.permute(3, 2, 0, 1)
        elif leaf == "kernel" and tensor.ndim == 2 and count < len(DENSE):
            found[f"decoder.layers.{DENSE[count]}.weight"] = tensor.T
        elif leaf == "bias" and count < len(CONVOLUTIONS) + len(DENSE):
            layers = (*CONVOLUTIONS, *(f"decoder.layers.{n}" for n in DENSE))
            found[f"{layers[count]}.bias"] = tensor
        else:
            raise _unknown(name, "efficient")
    return found


def _renamed(state: State, names: Names, source: str) -> dict[str, Tensor]:
    found = {}
    for name, tensor in state.items():
        matches = ((re.fullmatch(pattern, name), ours) for pattern, ours in names.items())
        match, ours = next((each for each in matches if each[0]), (None, ""))
        if match is None:
            raise _unknown(name, source)
        ours, anew = ours if isinstance(ours, tuple) else (ours, None)
        here = match.expand(ours) if isinstance(ours, str) else ours(match)
        found[here] = tensor if anew is None else anew(tensor)
    return found


SOURCES: dict[str, Callable[[State], dict[str, Tensor]]] = {
    "apple": _apple,
    "efficient": _efficient,
    "rem": partial(_renamed, names=REM, source="rem"),
    "yl-1993": partial(_renamed, names=YL_1993, source="yl-1993"),
}


def _unknown(name: str, source: str) -> TorchcapsError:
    return TorchcapsError(
        f"the checkpoint holds {name!r}, which no network of {source!r} that we know has; is it of "
        f"another network, or are the weights one level deeper, as in checkpoint['model']?"
    )
