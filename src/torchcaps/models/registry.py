"""Names of networks, and how one is made of a name."""

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import nn

from torchcaps.errors import TorchcapsError, nearest, short
from torchcaps.layers import Routing
from torchcaps.layers.backbone import ImageTooSmall
from torchcaps.layers.routing.base import check_begun
from torchcaps.layers.routing.table import import_path
from torchcaps.models import (
    capsnet,
    convnets,
    deepcaps,
    efficient,
    gamma,
    matrix_capsnet,
    mitterreiter,
    peer,
    resnet,
)
from torchcaps.models import inverted_capsnet as inverted
from torchcaps.models.limits import check_sides, check_weights, doubt_order, kernel_that_fits, made
from torchcaps.models.options import (
    ITERATES,
    SQUASHES,
    check_iterations,
    check_option,
    check_routing,
    check_use,
)
from torchcaps.models.preset import Preset
from torchcaps.models.standardise import Standardise

__all__ = [
    "MODELS",
    "check_made",
    "check_options",
    "create_model",
    "list_models",
]


matrix_capsnet_mnist = partial(
    matrix_capsnet.matrix_capsnet,
    iterations=2,
    variant="gritzman",
    compete="window",
    lambda_=0.001,
    lambda_schedule="constant",
    norm=True,
)
tsai_em_resnet = partial(matrix_capsnet.tsai_em, backbone="resnet")
tsai_inverted_resnet = partial(inverted.tsai_inverted, backbone="resnet", width=128)

SMALL, WIDE, OVERLAID = (1, 28, 28), (1, 40, 40), (1, 36, 36)
CIFAR = (3, 32, 32)
# Windows with a stride and one matrix for all; a convolution over the whole map.
FOR_LARGE_IMAGES = ("rem_effconv", "efficient_capsnet")

MODELS: dict[str, Preset] = {
    # One of a kind
    "capsnet": Preset(capsnet.capsnet, SMALL, 10, "sabour2017; gu2021 §3; renzulli2025 §4.2"),
    "convnet_avg": Preset(convnets.convnet_avg, WIDE, 10, "gu2021 §3.1"),
    "convnet_fc": Preset(convnets.convnet_fc, WIDE, 10, "gu2021 §3"),
    "deepcaps": Preset(deepcaps.deepcaps, (3, 64, 64), 10, "rajasegaran2019", ITERATES),
    "efficient_capsnet": Preset(efficient.efficient_capsnet, SMALL, 10, "mazzia2021"),
    "efficient_convnet": Preset(efficient.efficient_convnet, SMALL, 10, "ours, a control"),
    "gamma_capsnet": Preset(gamma.gamma_capsnet, SMALL, 10, "peer2018"),
    "matrix_capsnet": Preset(matrix_capsnet.matrix_capsnet, (2, 32, 32), 5, "hinton2018"),
    "matrix_capsnet_mnist": Preset(matrix_capsnet_mnist, SMALL, 10, "hinton2018, gritzman2019"),
    "resnet18": Preset(resnet.resnet18, CIFAR, 10, "tsai2020 Table 1"),
    # Gu et al.
    "gu_aff_capsnet": Preset(capsnet.gu_aff_capsnet, WIDE, 10, "gu2021 §3.1"),
    "gu_aff_capsnet_dr": Preset(capsnet.gu_aff_capsnet_dr, WIDE, 10, "gu2021 §3.1"),
    "gu_capsnet": Preset(capsnet.gu_capsnet, WIDE, 10, "gu2021 §3, Table 3"),
    "gu_capsnet_nor": Preset(capsnet.gu_capsnet_nor, WIDE, 10, "gu2021 §3.1"),
    "gu_convnet_cr": Preset(convnets.gu_convnet_cr, SMALL, 10, "gu2021 §3.3"),
    "gu_convnet_cr_sf": Preset(convnets.gu_convnet_cr_sf, SMALL, 10, "gu2021 §3.3"),
    "gu_convnet_fc_lk": Preset(convnets.gu_convnet_fc_lk, OVERLAID, 10, "gu2021 §3.2"),
    "gu_convnet_r": Preset(convnets.gu_convnet_r, SMALL, 10, "gu2021 §3.3"),
    # Mitterreiter et al.
    "mitterreiter_5x16": Preset(
        mitterreiter.mitterreiter_5x16, WIDE, 10, "mitterreiter2023 §4.1; renzulli2025 B.1"
    ),
    "mitterreiter_grid": Preset(
        mitterreiter.mitterreiter_grid, WIDE, 10, "mitterreiter2023 §4, appendix", SQUASHES
    ),
    "mhsa_stack": Preset(mitterreiter.mhsa_stack, WIDE, 10, "mitterreiter2023 §5, Table 3"),
    # Peer et al.
    "peer_deep_dynamic": Preset(
        peer.peer_deep_dynamic, SMALL, 10, "peer2022 §5.3", by_em="peer_deep_em"
    ),
    "peer_deep_em": Preset(peer.peer_deep_em, SMALL, 10, "peer2022 §5.3"),
    "peer_sign_dynamic": Preset(
        peer.peer_sign_dynamic, (1, 1, 1), 2, "peer2022 §5.2", by_em="peer_sign_em"
    ),
    "peer_sign_em": Preset(peer.peer_sign_em, (1, 1, 1), 2, "peer2022 §5.2"),
    # Renzulli et al.
    "rem_deepcaps": Preset(deepcaps.rem_deepcaps, SMALL, 10, "renzulli2025 §4.2", ITERATES),
    "rem_dr": Preset(capsnet.rem_dr, SMALL, 10, "renzulli2025 §4.2"),
    "rem_eff_cifar": Preset(efficient.rem_eff, CIFAR, 10, "renzulli2025 §4.3.1"),
    "rem_eff_mnist": Preset(efficient.rem_eff, SMALL, 10, "renzulli2025 §4.3.1"),
    "rem_eff_norb": Preset(efficient.rem_eff_norb, (2, 48, 48), 5, "renzulli2025 §4.3.1"),
    "rem_eff_svhn": Preset(efficient.rem_eff, CIFAR, 10, "renzulli2025 §4.3.1"),
    "rem_effconv": Preset(efficient.rem_effconv, (3, 128, 128), 10, "renzulli2025 B.1"),
    "rem_gamma": Preset(gamma.rem_gamma, SMALL, 10, "renzulli2025 §4.2"),
    "rem_multilayer": Preset(mitterreiter.rem_multilayer, SMALL, 10, "renzulli2025 B.1", SQUASHES),
    # Tsai et al.
    "tsai_cnn_c10": Preset(convnets.tsai_cnn, CIFAR, 10, "tsai2020 Table 2"),
    "tsai_cnn_c100": Preset(convnets.tsai_cnn, CIFAR, 100, "tsai2020 Table 3"),
    "tsai_dmm_cnn": Preset(convnets.tsai_dmm_cnn, OVERLAID, 10, "tsai2020 Table 12"),
    "tsai_dmm_cnn_fcpool": Preset(convnets.tsai_dmm_cnn_fcpool, OVERLAID, 10, "tsai2020 §6"),
    "tsai_dmm_matrix": Preset(inverted.tsai_dmm, OVERLAID, 10, "tsai2020 Table 10"),
    "tsai_dmm_matrix_42m": Preset(
        partial(inverted.tsai_dmm, types=64), OVERLAID, 10, "tsai2020 Fig. 5"
    ),
    "tsai_dmm_vector": Preset(
        partial(inverted.tsai_dmm, pose="vector"), OVERLAID, 10, "tsai2020 Table 11"
    ),
    "tsai_dmm_vector_dynamic": Preset(
        inverted.tsai_dmm_vector_dynamic, OVERLAID, 10, "tsai2020 Fig. 5, CapsNet*"
    ),
    "tsai_dynamic_resnet_c10": Preset(capsnet.tsai_dynamic_resnet, CIFAR, 10, "tsai2020 A.1"),
    "tsai_dynamic_resnet_c100": Preset(capsnet.tsai_dynamic_resnet, CIFAR, 100, "tsai2020 A.1"),
    "tsai_dynamic_simple_c10": Preset(capsnet.tsai_dynamic_simple, CIFAR, 10, "tsai2020 Table 4"),
    "tsai_dynamic_simple_c100": Preset(capsnet.tsai_dynamic_simple, CIFAR, 100, "tsai2020 Table 5"),
    "tsai_em_resnet_c10": Preset(tsai_em_resnet, CIFAR, 10, "tsai2020 A.1"),
    "tsai_em_resnet_c100": Preset(tsai_em_resnet, CIFAR, 100, "tsai2020 A.1"),
    "tsai_em_simple_c10": Preset(matrix_capsnet.tsai_em, CIFAR, 10, "tsai2020 Table 6"),
    "tsai_em_simple_c100": Preset(matrix_capsnet.tsai_em, CIFAR, 100, "tsai2020 Table 7"),
    "tsai_inverted_resnet_c10": Preset(tsai_inverted_resnet, CIFAR, 10, "tsai2020 A.1"),
    "tsai_inverted_resnet_c100": Preset(
        partial(inverted.tsai_inverted_c100, backbone="resnet"), CIFAR, 100, "tsai2020 A.1"
    ),
    "tsai_inverted_simple_c10": Preset(inverted.tsai_inverted, CIFAR, 10, "tsai2020 Table 8"),
    "tsai_inverted_simple_c10_d36": Preset(
        partial(inverted.tsai_inverted, d_pose=36), CIFAR, 10, "tsai2020 §5"
    ),
    "tsai_inverted_simple_c10_d64": Preset(
        partial(inverted.tsai_inverted, d_pose=64), CIFAR, 10, "tsai2020 §5"
    ),
    "tsai_inverted_simple_c100": Preset(
        inverted.tsai_inverted_c100, CIFAR, 100, "tsai2020 Table 9"
    ),
    "tsai_resnet18_c100": Preset(resnet.resnet18, CIFAR, 100, "tsai2020 Table 1"),
}


def list_models() -> list[str]:
    """The names that `create_model` knows.

    >>> "capsnet" in list_models()
    True
    """
    return sorted(MODELS)


def create_model(
    name: str,
    *,
    image: tuple[int, int, int] | None = None,
    n_classes: int | None = None,
    standardise: tuple[Sequence[float], Sequence[float]] | None = None,
    **options: Any,
) -> nn.Module:
    """Make a named network for images (channels, height, width), any size, any class count.

    Its `config` attribute holds all that was chosen, and `save` writes it down.

    Arguments:
        name: one that `list_models` lists, or `register_model` was given.
        image: (channels, height, width) of the images; those of the paper if not given.
        n_classes: how many classes there are; as many as in the paper if not given.
        options: those of the network; `torchcaps models NAME` explains them. `routing` is a name of
            `layers.ROUTINGS`, or a routing object, which is copied for every layer.
        standardise: (means, standard deviations) of the channels; the network brings its images to
            mean 0 and deviation 1 by itself. Without it it computes with images as they are.

    >>> create_model("capsnet", image=(3, 64, 48), n_classes=7)
    """
    if isinstance(name, str) and name in MODELS:
        check_use(MODELS[name], options)
    return make_model(name, image=image, n_classes=n_classes, standardise=standardise, **options)


def make_model(
    name: str,
    *,
    image: tuple[int, int, int] | None = None,
    n_classes: int | None = None,
    standardise: tuple[Sequence[float], Sequence[float]] | None = None,
    **options: Any,
) -> nn.Module:
    """The same from a config, where every option is there, of use to the routing or not."""
    preset = _checked(name, options)
    image = preset.image if image is None else image
    n_classes = preset.n_classes if n_classes is None else n_classes
    check_sides(image, n_classes)
    chosen = {"image": tuple(image), "n_classes": n_classes, **options}
    try:
        _check_size(name, preset, chosen)
        model = made(preset.build, chosen)
    except ImageTooSmall as error:
        raise TorchcapsError(_too_small(error, preset, chosen)) from None
    if not isinstance(model, nn.Module):
        raise TorchcapsError(
            f"{name} must make an nn.Module, but what makes it gave {short(model)}; does it end in "
            f"return?"
        )
    check_begun(model)
    _check_free(name, model)
    if standardise is not None and preset.is_own:
        raise TorchcapsError(
            f"{name} is a network of your own, which would not look at standardise; let it "
            f"standardise its images itself, and leave standardise out."
        )
    if standardise is not None:
        if not isinstance(standardise, tuple | list) or len(standardise) != 2:
            raise TorchcapsError(
                f"standardise must be (means, standard deviations), with a number a channel in "
                f"both, but came as {short(standardise)}."
            )
        model.standardise = Standardise(image[0], *standardise)
        chosen["standardise"] = tuple(standardise)
    if isinstance(chosen.get("routing"), Routing):
        # In a tuple: it is no part of the network, whose layers have copies of it.
        model.given_routing = (chosen["routing"],)  # type: ignore[assignment]
        chosen["routing"] = {"class": import_path(type(chosen["routing"]))}
    model.config = {"name": name, **preset.options, **chosen}  # type: ignore[assignment]
    return model


def _check_free(name: str, model: nn.Module) -> None:
    """Refuse a network of one's own that keeps something else where its name and options go. One
    that was made by another name gets the new one."""
    config = getattr(model, "config", None)
    if config is not None and not (isinstance(config, dict) and str(config.get("name")) in MODELS):
        raise TorchcapsError(
            f"torchcaps writes into `config` of a network by what name and options it was made, "
            f"but {name} has a `config` of its own; call that otherwise, for example "
            f"self.settings."
        )


def check_options(name: str, options: dict[str, Any]) -> None:
    """Refuse what `create_model` would refuse of these options, whatever the size of the images."""
    check_use(_checked(name, options), options)


def check_made(
    name: str, options: dict[str, Any], *, image: tuple[int, int, int], n_classes: int
) -> None:
    """Refuse what `create_model` would refuse for images of this size, without any memory. A
    network of one's own may not be made so, and is looked at by its options alone."""
    preset = _checked(name, options)
    chosen = {"image": image, "n_classes": n_classes, **options}
    if preset.is_own:
        return
    try:
        _check_size(name, preset, chosen)
        with torch.device("meta"):
            made(preset.build, chosen)
    except ImageTooSmall as error:
        raise TorchcapsError(_too_small(error, preset, chosen)) from None


def _checked(name: str, options: dict[str, Any]) -> Preset:
    if not isinstance(name, str) or name not in MODELS:
        raise TorchcapsError(f"model {short(name)} is unknown; {nearest(str(name), MODELS)}.")
    preset = MODELS[name]
    for option, value in options.items():
        check_option(name, preset, option, value)
    if "routing" in preset.options:
        known = preset.options | options
        check_routing(name, preset, known["routing"], has_head=known.get("head", False))
        check_iterations(name, known["routing"], known.get("iterations"))
    return preset


def _too_small(error: ImageTooSmall, preset: Preset, chosen: dict[str, Any]) -> str:
    """What was found, and the option that mends it, where the network has it."""
    if doubt := doubt_order(chosen["image"]):
        return doubt
    kernel = chosen.get("kernel", preset.options.get("kernel"))
    fitting = None if kernel is None else kernel_that_fits(preset.build, chosen, kernel)
    if fitting is None:
        return f"{error.found}; use a larger image."
    return (
        f"{error.found}; use a larger image, or a smaller kernel: kernel={fitting}, on the command "
        f"line --option kernel={fitting}."
    )


def _check_size(name: str, preset: Preset, chosen: dict[str, Any]) -> None:
    """Only where it may be larger than in its paper: the look costs some milliseconds. A network of
    one's own may not be made without memory."""
    if preset.is_own:
        return
    sizes = any(
        type(value) is int or (type(value) is str and not preset.words(key))
        for key, value in chosen.items()
        if key != "n_classes"
    )
    size = math.prod(chosen["image"]) * chosen["n_classes"]
    if sizes or size > math.prod(preset.image) * preset.n_classes:
        others = {each: MODELS[each].build for each in FOR_LARGE_IMAGES if each != name}
        check_weights(name, preset.build, others, **chosen)
